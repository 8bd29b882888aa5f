"""`top --once` and `--json`: for pipes and scripts, by the real command against the daemon's real server."""

import json
import os
import socket
import subprocess
from dataclasses import replace

import pytest

from tests.cli.build import account, climbing, hostile_pod, node, quiet, serving, status
from tests.cli.demo.showing import open_terminal
from tests.export.build import Story, trainer_node
from tests.rig.command import COMMAND
from tests.worlds import Gi, process, snapshot, use
from watchdog.cli.main import main
from watchdog.cli.rows import ASCII, BLOCKS, Choice
from watchdog.cli.top import status_text
from watchdog.report.status import GapStatus


def top(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPU_WATCHDOG")}
    return subprocess.run(
        [COMMAND, "top", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**kept, **environment},
    )


def rows(text: str, title: str) -> list[dict[str, str]]:
    """A table of it, read as a script would: by the places of its titles."""
    blocks = [block.splitlines() for block in text.split("\n\n")]
    (lines,) = [lines for lines in blocks if lines[0].startswith(f"{title} ")]
    return [dict(zip(lines[0].split(), line.split(), strict=False)) for line in lines[1:]]


def test_in_a_pipe() -> None:
    """A pipe gets one picture without control codes, and exit code 0, with `--once` and without it."""
    with serving(climbing()) as url:
        asked, plain = top("--once", "--url", url), top("--url", url)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert (plain.returncode, plain.stdout.split("\n\n")[1:]) == (0, asked.stdout.split("\n\n")[1:])
    assert asked.stdout.replace("\n", "").isprintable()
    (row,) = rows(asked.stdout, "POD")[:1]
    assert {key: row[key] for key in ("POD", "USED", "ALLOWED", "PERCENT", "VERDICT")} == {
        "POD": "a/trainer", "USED": "12.4Gi", "ALLOWED": "10.2Gi", "PERCENT": "122%", "VERDICT": "over",
    }  # fmt: skip


def test_columns_do_not_depend_on_what_is_there() -> None:
    """A script finds the same columns on every node, a value in each cell, and no name cut."""
    name = "x" * 250
    many = node(account(name, container=""), account("b", rule=None))
    told = status_text(many, Choice(), BLOCKS)
    few = status_text(status(quiet()), Choice(), BLOCKS)
    heads = [[line.split() for line in text.splitlines() if line.startswith(("POD ", "GPU "))] for text in (told, few)]
    assert heads[0] == heads[1]
    assert f"ns/{name}  unlisted_containers  -  " in told
    assert all(len(row) >= 9 for row in rows(told, "POD"))


def test_choices_hold_for_it() -> None:
    """--sort, --over and --filter choose what is printed."""
    made = node(account("a", used=Gi), account("b", used=9 * Gi, verdict="over"))
    assert [row["POD"] for row in rows(status_text(made, Choice(sort="name"), BLOCKS), "POD")[:2]] == ["ns/a", "ns/b"]
    assert "ns/a" not in status_text(made, Choice(over=True), BLOCKS)
    with serving(climbing()) as url:
        assert "a/trainer" in top("--url", url, "--over", "--filter", "NOTEBOOKS", "--sort", "time").stdout
        assert "a/trainer" not in top("--url", url, "--filter", "other").stdout
        wrong = top("--url", url, "--sort", "size")
        assert "a/trainer" in top("--url", url, "--gpu", "1").stdout
        nowhere = top("--url", url, "--gpu", "7")
    assert (wrong.returncode, "'size' is not one of" in wrong.stderr) == (2, True)
    assert (nowhere.returncode, "'7' is no GPU of this node; it has: 0, 1" in nowhere.stderr) == (2, True)


def test_what_is_wrong_comes_first() -> None:
    """Problems stand whole at the top, each on a line that begins with an exclamation mark."""
    gaps = (GapStatus(what="GPU-0", why="first " * 100), GapStatus(what="GPU-1", why="second"))
    told = status_text(node(gaps=gaps), Choice(), BLOCKS).splitlines()
    assert told[1:3] == ["! Unknown: GPU-0: " + "first " * 100, "! Unknown: GPU-1: second"]


def test_the_document() -> None:
    """--json prints what the daemon says, as it says it."""
    with serving(climbing()) as url:
        done = top("--json", "--url", url)
    found = json.loads(done.stdout)
    assert (done.returncode, found["node"], found["accounts"][0]["pod"]) == (0, "n1", "trainer")


@pytest.mark.parametrize("how", ["--once", "--json"])
def test_the_daemon_is_away(how: str) -> None:
    """Exit code 1, with the address, the reason and what helps."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        done = top(how, "--url", f"http://127.0.0.1:{probe.getsockname()[1]}")
    assert (done.returncode, done.stdout) == (1, "")
    assert all(word in done.stderr for word in ("Connection refused", "gpu-watchdog run", "--url", "port-forward"))
    assert "this does not show whether a watchdog runs on the node" in done.stderr
    assert f"exec POD -- gpu-watchdog top {how}\n" in done.stderr


def test_the_address() -> None:
    """It asks --url, or else the address of --listen, both also by the environment; a wrong one is wrong use."""
    with serving(climbing()) as url:
        listen = url.removeprefix("http://")
        assert top("--once", "--listen", listen).returncode == 0
        assert top("--once", GPU_WATCHDOG_LISTEN=listen).returncode == 0
        assert top("--once", GPU_WATCHDOG_URL=url).returncode == 0
    assert top("--once", "--url", "localhost").returncode == 2
    assert top("--interval", "0s").returncode == 2
    assert top("--interval", "often").returncode == 2


def test_another_program_answers() -> None:
    """What is no status of a gpu-watchdog is an error in a sentence."""
    with serving(replace(climbing(), node=replace(climbing().node, name="n1"))) as url:
        done = top("--once", "--url", f"{url}/metrics")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_hostile_names_in_a_pipe() -> None:
    """A pipe, too, gets names without their control codes, and one row for each."""
    pod = hostile_pod(uid="u1")
    seen = snapshot([use(1, Gi)], [process(1, "u1/c\x07\r", name="\x1b[2J\nns/other  -")])
    with serving(Story(pods=(pod,)).see(seen)) as url:
        told = top("--once", "--url", url).stdout
    assert told.replace("\n", "").isprintable()
    assert not any(line.startswith("ns/other") for line in told.splitlines())


def test_an_encoding_that_lacks_characters() -> None:
    """Output of another encoding than UTF-8 has bars and names without what it lacks, rather than a traceback."""
    seen = snapshot([use(101, Gi), use(102, None)], [process(101, "u1/main", name="訓練"), process(102, "u1/main")])
    with serving(Story().see(seen)) as url:
        done = top("--once", "--url", url, PYTHONIOENCODING="latin-1", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert ">=1.0Gi" in done.stdout
    assert "  ??\n" in done.stdout
    assert "≥" not in status_text(status(Story().see(trainer_node(None))), Choice(), ASCII)


def test_a_terminal_that_cannot_be_drawn_on() -> None:
    """TERM=dumb, or none: one picture without control codes, and a sentence that says why."""
    with serving(climbing()) as url:
        for term in ("dumb", ""):
            master, slave = open_terminal(80, 24)
            done = subprocess.run(
                [COMMAND, "top", "--url", url],
                stdin=slave,
                stdout=slave,
                stderr=subprocess.PIPE,
                check=False,
                timeout=60,
                env={**os.environ, "TERM": term},
            )
            told = os.read(master, 65536).decode()
            os.close(slave)
            os.close(master)
            assert done.returncode == 0
            assert b"TERM does not name a terminal that supports the live view" in done.stderr
            assert "a/trainer" in told
            assert "\x1b" not in told


@pytest.mark.parametrize("name", ["scan", "top", "history", "explain", "replay", "recommend", "check", "doctor"])
def test_every_command_that_tells_something_tells_it_as_json(name: str) -> None:
    """What a person can read a script can read."""
    assert "--json" in {word for option in main.commands[name].params for word in option.opts}
