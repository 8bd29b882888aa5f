"""The demo as a separate process: its output, and what it leaves behind."""

import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.demo.showing import CODE, UNPRIVILEGED, WITHOUT_PIDFD, Showing, on_terminal, showing
from tests.cli.demo.test_sim import children
from tests.node.support import need_root, wait_until
from tools.readme import DEMO
from watchdog.cli.demo.pods import POLICY
from watchdog.cli.demo.sim import is_alive, key_of
from watchdog.config.load import load_policy
from watchdog.journal.playback import recorded_cycles
from watchdog.journal.read import history
from watchdog.past.replay import Replay
from watchdog.report.events import KILLED, RELEASED

pytestmark = pytest.mark.slow

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc")
# The kubelet's variable would have a daemon without a file of pods use the API; no address can be listened on.
POD = ("unshare", "--net", "env", "KUBERNETES_SERVICE_HOST=192.0.2.1", "GPU_WATCHDOG_JOURNAL=/missing/journal.db")
NEIGHBOURS = {"detector", "notebook"}
VICTIMS = {"launcher", "trainer", "loader"}
ORDER = (
    *("over      notebooks/jupyter-7", "warned    notebooks/jupyter-7", "within    notebooks/jupyter-7"),
    *("over      training/finetune", "warned    training/finetune", "kill      training/finetune"),
    *("SIGTERM   launcher", "SIGKILL   trainer", "freed     11.2Gi", "alive     detector"),
)


def check_events(shown: Showing) -> None:
    """What every complete run must print, in this order, and leave behind."""
    seconds = [shown.second(text) for text in ORDER]
    assert seconds == sorted(seconds)
    assert set(shown.keys) == NEIGHBOURS | VICTIMS
    text = "\n".join(shown.lines)
    assert "The GPU is simulated. The processes, the decisions and the signals are real." in text
    assert own_events(text) == own_events(DEMO.read_text(encoding="utf-8"))
    assert text.count("notebooks/jupyter-7, above 120%") == text.count("vision/detector,") == 0
    assert not CONTROL.search(text)
    # Even with the longest PIDs of the kernel no event is cut on a terminal of 80 columns.
    events = [line for line in shown.lines if line.startswith("t=") and "  card " not in line]
    pids = re.compile("|".join(str(key.pid) for key in shown.keys.values()))
    assert max(len(pids.sub("4194304", line)) for line in events) <= 79
    check_nothing_left(shown)


def own_events(text: str) -> dict[str, str]:
    """The Events for the owner of the killed pod, by reason, in one line each and without numbers that vary."""
    found = re.findall(
        r"^Event (\w+) on pod training/finetune, for its owner:\n((?:  .*\n)+)", f"{text}\n", re.MULTILINE
    )
    notes = {reason: re.sub(r"[0-9.]+(?=Gi of|%|s[ ;,.])", "N", " ".join(note.split())) for reason, note in found}
    assert set(notes) == {KILLED, RELEASED}
    return notes


def check_nothing_left(shown: Showing) -> None:
    """No process of the demo runs."""
    assert shown.keys
    wait_until(lambda: not any(is_alive(key) for key in shown.keys.values()))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for the demo's temporary files that every user may write to; it is empty at the end."""
    with tempfile.TemporaryDirectory(prefix="demo-test-") as made:
        Path(made).chmod(0o1777)
        yield Path(made)
        assert list(Path(made).iterdir()) == []


def test_in_a_pipe(folder: Path) -> None:
    """It takes about 20 s; the victim has died when its memory is free, and the others live."""
    with showing(folder) as shown:
        shown.read_until("SIGTERM")
        assert all(is_alive(shown.keys[name]) for name in (*NEIGHBOURS, "trainer"))
        shown.read_until("freed")
        assert [name for name, key in shown.keys.items() if is_alive(key)] == ["detector", "notebook"]
        shown.read_all()
        assert shown.process.wait(timeout=5) == 0
    check_events(shown)
    assert shown.second("alive     ") < 25
    # The grace period of the policy; the lines have tenths of a second.
    assert 2.85 <= shown.second("SIGKILL   ") - shown.second("SIGTERM   ") < 3.5


@pytest.mark.parametrize(
    ("before", "code"),
    [(UNPRIVILEGED, CODE), (CONTAINER, CODE), (POD, CODE), ((), WITHOUT_PIDFD)],
    ids=["without privileges", "in a container", "in a pod without network", "without pidfd"],
)
def test_anywhere(folder: Path, before: tuple[str, ...], code: str) -> None:
    """It works without privileges, in another PID namespace, beside a cluster, without network, without pidfds."""
    if before:
        need_root()
    is_watched = before != CONTAINER  # the PIDs in its lines are those of another namespace
    with showing(folder, *before, code=code, watched=is_watched) as shown:
        assert "freed     11.2Gi" in shown.read_all()
        assert shown.process.wait(timeout=5) == 0
    if is_watched:
        check_events(shown)


def test_what_it_keeps_can_be_examined(folder: Path, tmp_path: Path) -> None:
    """The journal that it keeps has the explanation and the past, for other policies; it writes to no other journal."""
    kept, policy = tmp_path / "kept", tmp_path / "policy.toml"
    code = f"from pathlib import Path; {CODE.replace('stdout)', f'stdout, keep=Path({str(kept)!r}))')}"
    with showing(folder, code=code) as shown:
        assert "`explain training/finetune --journal" in " ".join(shown.read_all().split())
        assert shown.process.wait(timeout=5) == 0
    journal = kept / "journal.db"
    assert "explained" in {row.event for row in history(journal, "training/finetune", 0.0)}
    for percent, killed in (("120%", ["finetune"]), ("160%", [])):
        policy.write_text(POLICY.read_text(encoding="utf-8").replace("120%", percent), encoding="utf-8")
        found = Replay(load_policy(policy)).run(recorded_cycles(journal, 0.0)).findings
        assert [each.entry.assessment.pod.name for each in found if each.entry.do.enforces] == killed
    with showing(folder, code=code) as again:
        assert again.read_all() == ""
        assert again.process.wait(timeout=5) == 1
        assert again.process.stderr is not None
        assert again.process.stderr.read().decode() == f"{kept} is not empty: name a new folder for --keep\n"


def test_a_journal_that_cannot_be_written(folder: Path) -> None:
    """It ends with the reason before anything is shown; without a journal a daemon would not act either."""
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)); "
    with showing(folder, code=limited + CODE) as shown:
        assert shown.read_all() == ""
        assert shown.process.wait(timeout=5) == 1
        assert shown.process.stderr is not None
        assert shown.process.stderr.read().startswith(b"the demo can't run here: journal ")


@pytest.mark.parametrize(
    ("word", "number"),
    [*((word, signal.SIGINT) for word in ("started", "warned", "SIGTERM")), ("warned", signal.SIGTERM),
     ("SIGTERM", signal.SIGHUP)],
)  # fmt: skip
def test_stopped(folder: Path, word: str, number: signal.Signals) -> None:
    """After Ctrl-C at any point, or another signal that ends programs, it reports that, and no process is left."""
    with showing(folder) as shown:
        shown.read_until(word)
        shown.process.send_signal(number)
        shown.read_all()
        assert shown.process.wait(timeout=5) == 1
        assert shown.process.stderr is not None
        assert shown.process.stderr.read() == b"the demo was stopped; all of its processes have been ended\n"
    check_nothing_left(shown)


def test_stopped_while_it_starts(folder: Path) -> None:
    """Ctrl-C before the daemon runs ends the demo all the same, and the processes that it has started so far."""
    with showing(folder) as shown:
        pid = shown.process.pid
        wait_until(lambda: bool(children(pid)))
        shown.keys["first"] = key_of(children(pid)[0])
        shown.process.send_signal(signal.SIGINT)
        shown.read_all()
        assert shown.process.wait(timeout=5) == 1
        assert shown.process.stderr is not None
        assert shown.process.stderr.read() == b"the demo was stopped; all of its processes have been ended\n"
        assert not is_alive(shown.keys["first"])


def test_killed(folder: Path) -> None:
    """Even a SIGKILL of the demo leaves no process, including the one that ignores SIGTERM."""
    with showing(folder) as shown:
        shown.read_until("SIGTERM")
        shown.process.kill()
        shown.process.wait(timeout=5)
        check_nothing_left(shown)
    for left in folder.iterdir():
        shutil.rmtree(left)  # a killed process removes nothing


def test_reader_goes(folder: Path) -> None:
    """It ends when its reader closes the pipe, and no process is left."""
    with showing(folder) as shown:
        shown.read_until("started")
        assert shown.process.stdout is not None
        shown.process.stdout.close()
        assert shown.process.wait(timeout=10) != 0
        check_nothing_left(shown)


@pytest.mark.parametrize(
    ("before", "code", "says"),
    [
        (CONTAINER[:3], CODE, b"the demo needs the /proc of its own PID namespace"),
        ((), f"import tempfile; tempfile.tempdir = '/missing'\n{CODE}", b"the demo can't run here: "),
    ],
    ids=["the /proc of another namespace", "no temporary folder"],
)
def test_where_it_cannot_run(folder: Path, before: tuple[str, ...], code: str, says: bytes) -> None:
    """It reports what is missing in one line, exits with 1, and starts nothing."""
    if before:
        need_root()
    with showing(folder, *before, code=code) as shown:
        assert shown.read_all() == ""
        assert shown.process.wait(timeout=5) == 1
        assert shown.process.stderr is not None
        (line,) = shown.process.stderr.read().splitlines()
    assert says in line


def test_on_a_terminal(folder: Path) -> None:
    """On a terminal of 80 by 24 each frame fits and is drawn over the previous one; the cursor is restored."""
    written, code = on_terminal(folder)
    assert code == 0
    head, *drawn = re.split(r"\x1b\[([0-9]+)F", written)
    frames = [head.removeprefix("\x1b[?25l"), *drawn[1::2]]
    assert written.startswith("\x1b[?25l")
    assert len(frames) > 10
    shown = [
        [COLOUR.sub("", line).removesuffix("\x1b[K") for line in each.partition("\x1b[J")[0].splitlines()]
        for each in frames
    ]
    assert max(len(line) for lines in shown for line in lines) <= 79
    assert max(len(lines) for lines in shown[:-1]) <= 23
    assert [int(up) for up in drawn[0::2]] == [len(lines) for lines in shown[:-1]]
    assert not any(CONTROL.search(line) for lines in shown for line in lines)
    end = COLOUR.sub("", frames[-1].partition("\x1b[J")[2])
    assert "Event GPUMemoryKilled on pod training/finetune, for its owner:" in end
    assert end.endswith("\x1b[?25h")
    for text in ("kill in", "being killed, SIG", "timers reset", "trainer ignores SIGTERM", "released, "):
        assert any(text in line for lines in shown for line in lines), text
