"""`stop` and `resume`: what the answer of a daemon and the lock beside the file prove, and where no daemon answers."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import pytest
from click.testing import CliRunner, Result

from tests.cli.test_client import answering as served
from tests.cli.test_client import http
from tests.node.support import cannot_run, need_root
from tests.ports import free_port
from tests.rig.command import COMMAND
from watchdog.cli.client import to_run_inside
from watchdog.cli.main import main
from watchdog.cli.stop import Stop, confirm, run_resume, run_stop
from watchdog.journal.lock import NodeLock
from watchdog.report.text import rfc3339

ENFORCING = {"mode": "enforce", "enforcing": True, "suspended": []}
STOPPED = {"mode": "enforce", "enforcing": False, "suspended": ["stop_file"]}
OBSERVING = {"mode": "observe", "enforcing": False, "suspended": []}


@contextmanager
def answering(shows: dict[str, Any], ago_s: float, **health: Any) -> Iterator[str]:
    """The address of one whose last cycle was so long ago; `health` is what it reports of itself."""
    at = rfc3339(time.time() - ago_s)
    status = {"node": "n1", "at": at, "accounts": [], "plan": [], **shows, "health": health or None}
    with served(http(json.dumps(status).encode())) as (url, _):
        yield url


@contextmanager
def locked(journal: Path) -> Iterator[None]:
    """Hold the lock as a daemon with this journal does."""
    lock = NodeLock(journal)
    assert lock.acquire()
    try:
        yield
    finally:
        lock.release()


PATIENCE_S: Final = 0.3
HERE: Final = {"stop_file": "{folder}/stop"}
ELSEWHERE: Final = {"stop_file": "/real/stop"}
HUNG: Final = {"hangs_since": rfc3339(time.time() - 3600)}
OLD, NEW = 3600.0, -5.0  # seconds since the daemon's last cycle; below 0, it comes after the change
SEEN, NOT_SEEN, UNKNOWN = True, False, None
ANSWERS: Final = {
    # A file beside the lock counts once a later cycle shows it; a daemon that hangs shows nothing of it.
    "stop, lock held": (
        (STOPPED, NEW, {}, SEEN, "n1 is stopped. A watchdog holds the lock in {folder}"),
        # The folder may have another name in the container.
        (STOPPED, NEW, ELSEWHERE, SEEN, "n1 is stopped. A watchdog holds the lock in {folder}"),
        ({**STOPPED, "suspended": ["lock"]}, NEW, {}, SEEN, "n1 does not enforce: "),
        (STOPPED, OLD, {}, UNKNOWN, "so what it does now is not known"),
        (ENFORCING, 60.0, {}, UNKNOWN, "so what it does now is not known"),
        (ENFORCING, OLD, HUNG, UNKNOWN, "has completed no cycle since "),
        (STOPPED, OLD, HUNG, UNKNOWN, "has completed no cycle since "),
        (OBSERVING, OLD, HUNG, UNKNOWN, "has completed no cycle since "),
        (OBSERVING, NEW, {}, SEEN, "is in observe mode, by its policy"),
        (OBSERVING, 60.0, {}, SEEN, "is in observe mode, by its policy"),
    ),
    # Without a lock the file may lie on the laptop from which the port is reached, whatever its path.
    "stop, no lock": (
        (STOPPED, NEW, {}, UNKNOWN, "no watchdog holds a lock next to {folder}/stop: it looks for a file, next to"),
        (STOPPED, NEW, ELSEWHERE, UNKNOWN, "it looks for /real/stop"),
        (STOPPED, NEW, HERE, UNKNOWN, "it looks for {folder}/stop"),
        (STOPPED, OLD, HERE, UNKNOWN, "so what it does now is not known"),
        (OBSERVING, NEW, {}, UNKNOWN, "is in observe mode, by its policy, but no watchdog holds a lock"),
        (ENFORCING, NEW, ELSEWHERE, NOT_SEEN, "is still ENFORCING: it looks for /real/stop, next to its own journal"),
    ),
    "resume, lock held": (
        (ENFORCING, NEW, {}, SEEN, "n1 enforces"),
        (STOPPED, NEW, ELSEWHERE, NOT_SEEN, "sees a different stop file: it looks for /real/stop"),
        (STOPPED, OLD, HUNG, UNKNOWN, "has completed no cycle since "),
        (ENFORCING, OLD, HUNG, UNKNOWN, "has completed no cycle since "),
        (OBSERVING, NEW, {}, SEEN, "is in observe mode, by its policy"),
        (OBSERVING, 60.0, {}, SEEN, "is in observe mode, by its policy"),
        ({**STOPPED, "suspended": ["lock"]}, NEW, {}, SEEN, "does not enforce: "),
    ),
}


@pytest.mark.parametrize(
    ("what", "row"),
    [pytest.param(what, row, id=f"{what}: {row[-1]}") for what, rows in ANSWERS.items() for row in rows],
)
def test_what_an_answer_proves(tmp_path: Path, what: str, row: tuple[Any, ...]) -> None:
    """A stop is confirmed only if the daemon is known to check for this very file."""
    command, _, lock = what.partition(", ")
    shows, ago_s, health, seen, says = row
    stop, health = Stop.of(None, tmp_path / "journal.db"), {key: health[key].format(folder=tmp_path) for key in health}
    if command == "stop":
        stop.create("")
    journal = "journal.db" if lock == "lock held" else "other.db"
    with locked(tmp_path / journal), answering(shows, ago_s, **health) as url:
        found, text = confirm(url, stop, stopped=command == "stop", patience_s=PATIENCE_S)
    assert (found, says.format(folder=tmp_path) in text) == (seen, True)


@pytest.mark.parametrize(
    ("command", "shows", "ago_s", "code", "begins"),
    [
        ("stop", STOPPED, NEW, 0, "Stopped: "),
        ("stop", OBSERVING, NEW, 0, "Stopped: "),
        ("stop", ENFORCING, OLD, 1, "Error: Stop file created; NOT CONFIRMED: "),
        ("stop", ENFORCING, NEW, 1, "Error: Stop file created; NOT STOPPED: "),
        ("resume", STOPPED, NEW, 1, "Error: STILL STOPPED: "),
        ("resume", STOPPED, OLD, 1, "Error: NOT CONFIRMED: nothing was changed"),
    ],
)
def test_whether_it_worked_comes_first(
    tmp_path: Path, command: str, shows: dict[str, Any], ago_s: float, code: int, begins: str
) -> None:
    """An operator in a hurry reads first whether it worked; a failure is on stderr, and offers the same command."""
    stop = Stop.of(None, tmp_path / "journal.db")

    @click.command()
    def run() -> None:
        if command == "stop":
            run_stop(stop, url, "", patience_s=PATIENCE_S)
        else:
            run_resume(stop, url, patience_s=PATIENCE_S)

    with locked(tmp_path / "journal.db"), answering(shows, ago_s) as url:
        done = CliRunner().invoke(run, [])
    assert (done.exit_code, (done.stderr if code else done.stdout).startswith(begins)) == (code, True)
    assert (done.stderr != "") is (code == 1)
    assert f"gpu-watchdog {'stop' if command == 'resume' else 'resume'}`" not in done.output
    assert ("has the line" in done.output) is begins.startswith("Stopped")


API = "kubectl annotate node NODE gpu-memory-watchdog/mode=observe --overwrite"


def call(*arguments: str | Path) -> Result:
    """Run the command in this process, at an address without a listener."""
    return CliRunner().invoke(main, [*map(str, arguments), "--listen", f"127.0.0.1:{free_port()}"])


def test_stop_creates_the_file_and_resume_removes_it(tmp_path: Path) -> None:
    """The lock beside the file confirms a stop; the file has the first reason; repeating either changes nothing."""
    journal, stop = tmp_path / "journal.db", tmp_path / "stop"
    with locked(journal):
        done = call("stop", "--journal", journal, "--why", "false alarms;\nask\x1b[2J Kim")
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.startswith(f"Stopped: A watchdog holds the lock in {tmp_path}, so it checks ")
        assert f"gpu-watchdog resume --stop-file {stop}\n" in done.stdout
        assert to_run_inside("top", "--once") in done.stdout
        before = stop.stat()
        done = call("stop", "--journal", journal, "--why", "second")
        assert (done.exit_code, stop.stat().st_mtime_ns) == (0, before.st_mtime_ns)
        assert "\nStop file already existed since 20" in done.stdout
    assert stop.read_text(encoding="utf-8").endswith(": false alarms; ask\\x1b[2J Kim\n")
    done = call("resume", "--journal", journal)
    assert (done.exit_code, stop.exists()) == (0, False)
    assert f"{stop} is gone. It was there since 20" in done.stdout
    assert "false alarms; ask\\x1b[2J Kim" in done.stdout


@pytest.mark.parametrize("where", ["elsewhere/stop", "other", "stop"])
def test_a_file_that_no_watchdog_checks_for_is_not_called_a_stop(tmp_path: Path, where: str) -> None:
    """The file is created, but not reported as effective: exit code 1, with what does work."""
    journal, file = tmp_path / "journal.db", tmp_path / where
    file.parent.mkdir(exist_ok=True)
    with locked(journal):
        pass  # a watchdog was here once
    with locked(tmp_path / "another.db" if where == "stop" else journal):
        done = call("stop", "--journal", journal, "--stop-file", file)
    assert (done.exit_code, done.stdout, file.exists()) == (1, "", True)
    assert done.stderr.startswith(f"Error: Stop file created; NOT CONFIRMED: {file} exists")
    assert all(each in done.stderr for each in (to_run_inside("stop"), API, f"resume --stop-file {file}"))
    assert call("resume", "--stop-file", file).exit_code == 0


@pytest.mark.parametrize("is_locked", [True, False])
def test_a_resume_of_nothing_is_no_success(tmp_path: Path, *, is_locked: bool) -> None:
    """There was no file and no daemon answers: something else may keep it from enforcing, with or without a lock."""
    with locked(tmp_path / ("journal.db" if is_locked else "another.db")):
        done = call("resume", "--journal", tmp_path / "journal.db")
    assert (done.exit_code, f"There was no stop file at {tmp_path / 'stop'}" in done.stdout) == (1, True)
    assert done.stderr.startswith("Error: NOT CONFIRMED: nothing was changed")
    assert to_run_inside("resume") in done.stderr


def test_a_file_made_by_touch_counts_too(tmp_path: Path) -> None:
    """An empty file, a dangling link and a folder stop the daemon; a folder has to be removed by hand."""
    stop = tmp_path / "stop"
    for target in (None, tmp_path / "nowhere"):
        stop.touch() if target is None else stop.symlink_to(target)
        assert "Stop file already existed" in call("stop", "--stop-file", stop).stderr
        assert call("resume", "--stop-file", stop).exit_code == 0
    assert not (tmp_path / "nowhere").exists()
    stop.mkdir()
    assert "Stop file already existed" in call("stop", "--stop-file", stop).stderr
    done = call("resume", "--stop-file", stop)
    assert (done.exit_code, f"STILL STOPPED: {stop} is a folder" in done.stderr) == (1, True)


def test_no_policy_is_needed(tmp_path: Path) -> None:
    """A broken policy, or none, does not prevent a stop: it is not read."""
    broken = {"GPU_WATCHDOG_POLICY": str(tmp_path / "broken.toml"), "GPU_WATCHDOG_JOURNAL": str(tmp_path / "j.db")}
    (tmp_path / "broken.toml").write_text("][", encoding="utf-8")
    with locked(tmp_path / "j.db"):
        done = CliRunner().invoke(main, ["stop", "--listen", f"127.0.0.1:{free_port()}"], env=broken)
    assert (done.exit_code, (tmp_path / "stop").exists()) == (0, True)


def test_no_folder(tmp_path: Path) -> None:
    """Without the folder no watchdog keeps its journal there, so none is created."""
    done = call("stop", "--journal", tmp_path / "none" / "journal.db")
    assert (done.exit_code, f"NOT STOPPED: there is no folder {tmp_path / 'none'}" in done.stderr) == (1, True)
    assert API in done.stderr
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    done = call("stop", "--stop-file", tmp_path / "file" / "stop")
    assert (done.exit_code, "NOT STOPPED: " in done.stderr and "Not a directory" in done.stderr) == (1, True)
    assert "NOT CONFIRMED" in call("resume", "--stop-file", tmp_path / "file" / "stop").stderr


@contextmanager
def another_user() -> Iterator[None]:
    """As a user without any rights."""
    need_root()
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_no_rights(tmp_path: Path) -> None:
    """A user who may not change the folder gets that as the reason, and nothing has changed."""
    stop = tmp_path / "stop"
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    with another_user():
        done = call("stop", "--stop-file", stop)
    assert (done.exit_code, stop.exists()) == (1, False)
    assert f"NOT STOPPED: {stop}: Permission denied: run this as root" in done.stderr
    stop.touch()
    with another_user():
        done = call("resume", "--stop-file", stop)
    assert (done.exit_code, stop.exists()) == (1, True)
    assert f"STILL STOPPED: {stop}: Permission denied" in done.stderr


@pytest.mark.node
def test_a_read_only_folder(tmp_path: Path) -> None:
    """A read-only mount is named as that, by the real command; a file that is there already still counts."""
    need_root()
    (tmp_path / "stop").touch()
    script = (
        f"mount --bind {tmp_path} {tmp_path} && mount -o remount,ro,bind {tmp_path} && "
        f"! {COMMAND} resume --stop-file {tmp_path}/stop && ! {COMMAND} stop --stop-file {tmp_path}/stop && "
        f"! {COMMAND} stop --stop-file {tmp_path}/other && ! {COMMAND} resume --stop-file {tmp_path}/other"
    )
    command = ["unshare", "--mount", "sh", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "Operation not permitted" in done.stderr or "permission denied" in done.stderr:
        cannot_run("no mount namespace can be made here")
    assert done.returncode == 0, done.stderr
    reported = ("Read-only file system", "STILL STOPPED", "NOT STOPPED", "Stop file already existed")
    assert [done.stderr.count(each) for each in reported] == [2, 1, 1, 1]


def test_it_is_in_force_before_anything_is_written(tmp_path: Path) -> None:
    """On a full disk the name is there and the text is not, which is enough: here the disk is full for every write."""
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); import signal; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from pathlib import Path; from watchdog.cli.stop import Stop; "
        f"assert Stop(path=Path({str(tmp_path / 'stop')!r})).create('why')"
    )
    subprocess.run([COMMAND.with_name("python"), "-c", script], check=True, timeout=60)
    assert (tmp_path / "stop").read_bytes() == b""
    assert Stop(path=tmp_path / "stop").read_note().startswith(" since 20")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_reason_in_the_encodings_of_windows(tmp_path: Path, encoding: str) -> None:
    """Any file of this name turns enforcement off; the reason in it is shown whatever a shell has written it in."""
    (tmp_path / "stop").write_bytes("new räck\r\n".encode(encoding))
    assert Stop(path=tmp_path / "stop").read_note().endswith(", new räck")
