"""The live table on a real terminal, against the real daemon on the stub of NVML."""

import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.full_node import FullNode, full_node
from tests.cli.session import Session, session
from tests.ports import free_port
from tests.rig.command import COMMAND, Daemon, daemon

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FullNode]:
    """16 cards and 200 pods."""
    with full_node(tmp_path_factory.mktemp("full")) as made:
        yield made


@pytest.fixture(scope="module")
def running(node: FullNode) -> Iterator[Daemon]:
    """Its daemon."""
    with daemon(node.root, node.stub_file, *node.arguments) as made:
        yield made


def url(running: Daemon) -> str:
    """Where it answers."""
    return f"http://127.0.0.1:{running.port}"


def rows(shown: Session) -> list[str]:
    """The pods in the table, from top to bottom."""
    return re.findall(r"^[> ] (\S+)(?: \[main\])? +(?:≥|\d|unknown)", shown.screen.text, re.MULTILINE)


def is_as_before(shown: Session) -> bool:
    """Whether the terminal is as it was: its modes, its cursor, the usual screen with nothing written on it."""
    screen = shown.screen
    return (shown.after, screen.is_other, screen.is_cursor_shown, screen.usual) == (shown.before, False, True, "")


def test_keys(running: Daemon) -> None:
    """Sorting, filtering, only over, moving, pause and help, by the keys that the help names."""
    with session("--url", url(running), columns=140) as shown:
        shown.see("node n1", "16 GPUs", "200 pods", "Pods: 1-", "of 200, sorted by percent", "q quit")
        assert (shown.screen.is_other, shown.screen.is_cursor_shown) == (True, False)
        assert shown.screen.colours
        shown.type("n")
        shown.see("by name", "> batch/")
        assert rows(shown) == sorted(rows(shown))
        shown.type("n")
        shown.see("by name, reversed", "> team-vision/")
        shown.type("fjupyter notebook-a\x7f\r")
        shown.see('filter "jupyter notebook-"')
        assert all(re.match(r"jupyter-dev/notebook-", row) for row in rows(shown))
        shown.type("\x1b")
        shown.wait(lambda screen: ", filter" not in screen.text)
        shown.type("o")
        shown.see("over limit only", "Pods: 1-")
        shown.type("o\x1b[B\x1b[Bjk")
        shown.wait(lambda screen: re.search(r"of 200.*\n.*\n.*\n.*\n> ", screen.text))
        shown.type("?")
        shown.see("Keys", "sort by verdict", "pause and resume")
        shown.type("x")
        shown.see("POD")
        shown.type(" ")
        shown.see("paused")
        before = shown.screen.text
        shown.rest(2.5)
        assert shown.screen.text == before
        shown.type(" ")
        shown.wait(lambda screen: "paused" not in screen.text and screen.text != before)
        shown.type("q")
        assert shown.end() == 0
        assert is_as_before(shown)


def test_it_follows_the_size(running: Daemon) -> None:
    """Another size of the window is another picture at once."""
    with session("--url", url(running), "--interval", "1h") as shown:
        shown.see("by percent", "q quit")
        few = len(rows(shown))
        shown.resize(180, 50)
        shown.see("OVER FOR", "q quit")
        assert len(rows(shown)) > few
        shown.resize(50, 14)
        # Until it is drawn anew, the smaller window has a part of the larger one.
        shown.wait(lambda screen: "Pods: 1-" in screen.text and "OVER FOR" not in screen.text)
        shown.see("q quit")
        assert shown.screen.lines[13]


@pytest.mark.parametrize("way", ["q", "\x03", "?q", "\x04", signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_every_end_gives_the_terminal_back(running: Daemon, way: str | signal.Signals) -> None:
    """However it ends, the exit code is 0, and the terminal is as it was: modes, cursor, screen."""
    with session("--url", url(running)) as shown:
        shown.see("by percent")
        assert shown.after != shown.before
        shown.type(way) if isinstance(way, str) else shown.process.send_signal(way)
        assert shown.end() == 0
        assert is_as_before(shown)


def test_an_error_gives_the_terminal_back() -> None:
    """An unexpected error leaves a usable terminal, with its message on it."""
    code = (
        "import sys; from watchdog.cli.terminal import Terminal\n"
        "with Terminal(0, sys.stdout): raise RuntimeError('unexpected')"
    )
    with session(command=(sys.executable, "-c", code)) as shown:
        assert shown.end() == 1
        assert (shown.after, shown.screen.is_other, shown.screen.is_cursor_shown) == (shown.before, False, True)
        assert shown.screen.was_other == 1
        assert "RuntimeError: unexpected" in shown.screen.usual


@pytest.mark.parametrize("prefix", [(), ("env", "--ignore-signal=HUP")], ids=["usual", "nohup"])
def test_a_terminal_that_goes_away_ends_it(running: Daemon, prefix: tuple[str, ...]) -> None:
    """When the window is closed it ends by itself, also where nohup(1) has it ignore that signal."""
    with session(command=(*prefix, COMMAND, "top", "--url", url(running))) as shown:
        shown.see("by percent")
        shown.hang_up()
        assert shown.process.wait(timeout=20) == 0


def test_it_can_be_stopped_and_continued(running: Daemon) -> None:
    """Ctrl-Z gives the terminal back to the shell, and fg brings the picture again."""
    with session(command=("bash", "--norc", "--noprofile", "--noediting", "-i"), PS1="ready> ") as shown:
        shown.wait(lambda screen: "ready>" in screen.usual)
        shown.type(f"{COMMAND} top --url {url(running)}\n")
        shown.see("by percent")
        shown.type("\x1a")
        shown.wait(lambda screen: "Stopped" in screen.usual and not screen.is_other and screen.is_cursor_shown)
        shown.type("echo typed\n")
        shown.wait(lambda screen: screen.usual.count("typed") >= 2)
        shown.type("fg\n")
        shown.see("by percent")
        shown.wait(lambda screen: not screen.is_cursor_shown)
        shown.type("n")
        shown.see("by name")
        shown.type("q")
        # The prompt of the shell: what is typed before it is the picture's, and thrown away with it.
        shown.wait(lambda screen: screen.usual.endswith("ready> ") and screen.is_cursor_shown)
        shown.type("exit\n")
        shown.end()


def test_the_daemon_goes_and_comes_back(node: FullNode, tmp_path: Path) -> None:
    """While the daemon is away the last picture stays, marked as old; once it is back, the view continues by itself."""
    port = free_port()
    arguments = (*node.arguments[:-1], tmp_path / "journal.db")
    with session("--url", f"http://127.0.0.1:{port}", "--interval", "500ms", rows=40, columns=140) as shown:
        shown.see("Connection refused", "Retrying every 500ms.", "exec -it POD -- gpu-watchdog top", "q quit")
        with daemon(tmp_path, node.stub_file, *arguments, port=port):
            shown.see("200 pods", "by percent")
            assert "Connection refused" not in shown.screen.text
        shown.see("This data is", "s old, retrying every 500ms: ", "Connection refused", "200 pods")
        # What comes next is no longer known, so no time runs down.
        nexts = re.findall(r"in \d+m ?\d+s", shown.screen.text)
        shown.rest(2.5)
        assert nexts == re.findall(r"in \d+m ?\d+s", shown.screen.text)
        assert int(re.findall(r"This data is (\d+)s old", shown.screen.text)[0]) >= 2
        with daemon(tmp_path, node.stub_file, *arguments, port=port):
            shown.wait(lambda screen: "This data is" not in screen.text)
            shown.see("200 pods", "version")
        shown.type("q")
        assert shown.end() == 0


def test_a_daemon_that_hangs_does_not_hang_it() -> None:
    """Keys work while the daemon sends nothing."""
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        session("--url", f"http://127.0.0.1:{mute.getsockname()[1]}") as shown,
    ):
        shown.see("Waiting for the daemon", "q quit")
        shown.type("?")
        shown.see("Keys")
        began_s = time.monotonic()
        shown.type("q")
        assert shown.end() == 0
        assert time.monotonic() - began_s < 3
        assert is_as_before(shown)


def test_without_colour(running: Daemon) -> None:
    """NO_COLOR leaves bold and reversed, and no colour."""
    with session("--url", url(running), NO_COLOR="1") as shown:
        shown.see("by percent", "over")
        numbers = {number for code in shown.screen.colours for number in code.split(";") if number}
        assert not {each for each in numbers if 30 <= int(each) <= 49 or 90 <= int(each) <= 107}, numbers


def test_without_keys(running: Daemon) -> None:
    """Where the input is no terminal it shows the picture all the same, and ends by a signal."""
    shell = f"exec {COMMAND} top --url {url(running)} < /dev/null"
    with session(command=("sh", "-c", shell)) as shown:
        shown.see("by percent")
        shown.process.send_signal(signal.SIGTERM)
        assert shown.end() == 0
        assert is_as_before(shown)
