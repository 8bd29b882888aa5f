"""`stop` and `resume` where no daemon answers: the file, what is said, and what stands in the way."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.answering import locked as watchdog
from tests.node.support import need_root
from tests.ports import free_port
from tests.rig.command import COMMAND
from watchdog.cli.main import main
from watchdog.cli.stop import Stop


def call(*arguments: str | Path) -> Result:
    """Run the command in this process, at an address where nobody listens."""
    return CliRunner().invoke(main, [*map(str, arguments), "--listen", f"127.0.0.1:{free_port()}"])


def test_stop_makes_the_file_and_resume_removes_it(tmp_path: Path) -> None:
    """Beside the journal, as the daemon looks for it; who made it, when and why can be read in it and is told."""
    journal, stop = tmp_path / "journal.db", tmp_path / "stop"
    with watchdog(journal):
        done = call("stop", "--journal", journal, "--why", "false alarms;\nask\x1b[2J Kim")
    assert done.exit_code == 0, done.output
    assert stop.read_text(encoding="utf-8").endswith(": false alarms; ask\\x1b[2J Kim\n")
    assert "no SIGKILL follows" in done.stdout
    assert f"To enforce again: gpu-watchdog resume --stop-file {stop}" in done.stdout
    assert "`/readyz` has the line `not enforcing: stop_file`" in done.stdout
    assert done.stdout.startswith(f"Stopped: a watchdog holds the lock in {tmp_path}, so it checks ")
    assert "kubectl -n gpu-memory-watchdog exec POD -- gpu-watchdog top --once" in done.stdout
    done = call("resume", "--journal", journal)
    assert (done.exit_code, stop.exists()) == (0, False)
    assert f"{stop} is gone. It was there since 20" in done.stdout
    assert "false alarms; ask\\x1b[2J Kim" in done.stdout
    assert "All timers are reset." in done.stdout


@pytest.mark.parametrize("where", ["elsewhere/stop", "other"])
def test_a_file_that_no_watchdog_looks_for_is_not_called_a_stop(tmp_path: Path, where: str) -> None:
    """Nobody is told to be safe by a file of which it is not known that it is looked for: it is made, and that is 1."""
    journal, file = tmp_path / "journal.db", tmp_path / where
    file.parent.mkdir(exist_ok=True)
    with watchdog(journal):
        done = call("stop", "--journal", journal, "--stop-file", file)
    assert (done.exit_code, done.stdout, file.exists()) == (1, "", True)
    assert done.stderr.startswith(
        f"Error: Stop file created; NOT CONFIRMED: {file} exists, a watchdog checks for `stop` only beside"
    )
    assert "can't be determined from here: the daemon does not answer at http://127.0.0.1:" in done.stderr
    assert "kubectl -n gpu-memory-watchdog exec POD -- gpu-watchdog stop" in done.stderr
    assert "kubectl annotate node NODE gpu-memory-watchdog/mode=observe --overwrite" in done.stderr
    assert f"To remove the file: gpu-watchdog resume --stop-file {file}" in done.stderr
    done = call("stop", "--stop-file", file)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: Stop file already existed since 20")
    assert call("resume", "--stop-file", file).exit_code == 0


def test_a_lock_that_nobody_holds_confirms_nothing(tmp_path: Path) -> None:
    """Where a watchdog was once, and none is now, nothing is confirmed."""
    journal = tmp_path / "journal.db"
    with watchdog(journal):
        pass
    done = call("stop", "--journal", journal)
    assert (done.exit_code, "NOT CONFIRMED" in done.stderr) == (1, True)


def test_both_may_be_repeated(tmp_path: Path) -> None:
    """A second stop leaves the first one's reason, a second resume finds nothing to do, and says so."""
    journal, stop = tmp_path / "journal.db", tmp_path / "stop"
    with watchdog(journal):
        assert call("stop", "--journal", journal, "--why", "first").exit_code == 0
        before = stop.stat()
        done = call("stop", "--journal", journal, "--why", "second")
        assert (done.exit_code, stop.stat().st_mtime_ns) == (0, before.st_mtime_ns)
        assert done.stdout.startswith("Stopped: ")
        assert "\nStop file already existed since 20" in done.stdout
        assert f": first: {stop}. Nothing was changed." in done.stdout
        assert call("resume", "--journal", journal).exit_code == 0
        assert f"There was no stop file at {stop}" in call("resume", "--journal", journal).stdout


def test_a_resume_of_nothing_is_no_success(tmp_path: Path) -> None:
    """Nothing was there and nobody can be asked: the file that stops the watchdog may lie elsewhere."""
    done = call("resume", "--journal", tmp_path / "journal.db")
    assert done.exit_code == 1
    assert f"There was no stop file at {tmp_path / 'stop'}" in done.stdout
    assert done.stderr.startswith(
        "Error: NOT CONFIRMED: nothing was changed, and whether a watchdog looks for it can't "
    )
    assert "kubectl -n gpu-memory-watchdog exec POD -- gpu-watchdog resume" in done.stderr


def test_a_file_made_by_touch_counts_too(tmp_path: Path) -> None:
    """What nobody has written anything into, a dangling link and a folder are there; a folder is removed by hand."""
    stop = tmp_path / "stop"
    stop.touch()
    assert "Stop file already existed" in call("stop", "--stop-file", stop).stderr
    assert call("resume", "--stop-file", stop).exit_code == 0
    stop.symlink_to(tmp_path / "nowhere")
    assert "Stop file already existed" in call("stop", "--stop-file", stop).stderr
    assert call("resume", "--stop-file", stop).exit_code == 0
    assert not (tmp_path / "nowhere").exists()
    stop.mkdir()
    assert "Stop file already existed" in call("stop", "--stop-file", stop).stderr
    done = call("resume", "--stop-file", stop)
    assert (done.exit_code, f"STILL STOPPED: {stop} is a folder" in done.stderr) == (1, True)


def test_no_policy_is_needed(tmp_path: Path) -> None:
    """A policy that is broken, or none, keeps nobody from stopping: it is not even read."""
    broken = {"GPU_WATCHDOG_POLICY": str(tmp_path / "broken.toml"), "GPU_WATCHDOG_JOURNAL": str(tmp_path / "j.db")}
    (tmp_path / "broken.toml").write_text("][", encoding="utf-8")
    with watchdog(tmp_path / "j.db"):
        done = CliRunner().invoke(main, ["stop", "--listen", f"127.0.0.1:{free_port()}"], env=broken)
    assert (done.exit_code, (tmp_path / "stop").exists()) == (0, True)


def test_no_folder(tmp_path: Path) -> None:
    """Where there is no folder no watchdog keeps its journal, and a new folder would help nobody."""
    done = call("stop", "--journal", tmp_path / "none" / "journal.db")
    assert done.exit_code == 1
    assert f"NOT STOPPED: there is no folder {tmp_path / 'none'}, so no watchdog keeps its journal there" in done.stderr
    assert "kubectl annotate node NODE gpu-memory-watchdog/mode=observe --overwrite" in done.stderr
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    done = call("stop", "--stop-file", tmp_path / "file" / "stop")
    assert (done.exit_code, "there is a file where a folder should be" in done.stderr) == (1, True)
    assert "NOT CONFIRMED" in call("resume", "--stop-file", tmp_path / "file" / "stop").stderr


@contextmanager
def another_user() -> Iterator[None]:
    """As a user with no rights of its own."""
    need_root()
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_no_rights(tmp_path: Path) -> None:
    """Whoever may not change the folder is told so, and that nothing has changed."""
    stop = tmp_path / "stop"
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    with another_user():
        done = call("stop", "--stop-file", stop)
    assert (done.exit_code, stop.exists()) == (1, False)
    assert (
        f"NOT STOPPED: {stop}: Permission denied: this account is not allowed to change it: run this as root"
        in done.stderr
    )
    stop.touch()
    with another_user():
        done = call("resume", "--stop-file", stop)
    assert (done.exit_code, stop.exists()) == (1, True)
    assert f"STILL STOPPED: {stop}: Permission denied" in done.stderr


@pytest.mark.node
def test_a_read_only_folder(tmp_path: Path) -> None:
    """A mount that is read-only is named as that, by the real command; a file that is there already still counts."""
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
        from tests.node.support import cannot_run

        cannot_run("no mount namespace can be made here")
    assert done.returncode == 0, done.stderr
    assert "Stop file already existed" in done.stderr
    remedy = "it is read-only: mount it writable, or run `kubectl -n gpu-memory-watchdog exec POD -- gpu-watchdog"
    assert [done.stderr.count(f"{remedy} {name}`") for name in ("stop", "resume")] == [1, 1]
    assert f"There was no stop file at {tmp_path / 'other'}" in done.stdout
    assert done.stderr.count("STILL STOPPED") == 1


def test_it_is_in_force_before_anything_is_written(tmp_path: Path) -> None:
    """On a full disk the name is there and the text is not: that is enough. Here the disk is full for every write."""
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); import signal; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from pathlib import Path; from watchdog.cli.stop import Stop; "
        f"assert Stop(path=Path({str(tmp_path / 'stop')!r}), is_default=False).create('why')"
    )
    subprocess.run([COMMAND.with_name("python"), "-c", script], check=True, timeout=60)
    assert (tmp_path / "stop").read_bytes() == b""
    assert Stop(path=tmp_path / "stop", is_default=False).note().startswith("20")
