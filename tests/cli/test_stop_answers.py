"""`stop` and `resume` claim no more than the daemon that was asked, and the lock beside the file, tell."""

import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tests.cli.answering import ENFORCING, OBSERVING, STOPPED, answering, locked
from tests.ports import free_port
from watchdog.cli.stop import Stop, run_resume, run_stop
from watchdog.report.text import rfc3339


def call(name: str, url: str, journal: Path, stop_file: Path | None = None) -> Result:
    """Run `stop` or `resume` for this journal, and let it ask at this address, for less time than an operator has."""
    stop = Stop.of(stop_file, journal)

    @click.command()
    def command() -> None:
        if name == "stop":
            run_stop(stop, url, "", patience_s=0.3)
        else:
            run_resume(stop, url, patience_s=0.3)

    return CliRunner().invoke(command, [])


@pytest.mark.parametrize("ago_s", [-1.0, 3600.0])
@pytest.mark.parametrize("tells", ["nothing", "another", "the same"])
def test_who_is_stopped_by_another_file_is_not_stopped_by_this_one(tmp_path: Path, tells: str, ago_s: float) -> None:
    """A daemon that is stopped already, by its own file, confirms none that it does not look for; a path may be alike.

    Without a lock beside it, this file may as well be on the laptop from which the daemon's port is reached.
    """
    told = {"nothing": {}, "another": {"stop_file": "/real/stop"}, "the same": {"stop_file": str(tmp_path / "stop")}}
    with answering(STOPPED, ago_s, **told[tells]) as url:
        done = call("stop", url, tmp_path / "journal.db")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: Stop file created; NOT CONFIRMED: ")
    if ago_s < 0:
        own = {"nothing": "a file of its own", **{key: each["stop_file"] for key, each in told.items() if each}}
        assert f"the watchdog of node n1 is stopped by {own[tells]}, and whether that is this very" in done.stderr


@pytest.mark.parametrize("tells", [{}, {"stop_file": "{}/stop"}])
def test_who_looks_for_this_file_has_seen_it(tmp_path: Path, tells: dict[str, str]) -> None:
    """The lock beside it and what is shown together; one of an older version does not tell its path."""
    health = {key: value.format(tmp_path) for key, value in tells.items()}
    with locked(tmp_path / "journal.db"), answering(STOPPED, -1.0, **health) as url:
        done = call("stop", url, tmp_path / "journal.db")
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.startswith(f"Stopped: the watchdog of node n1 has seen {tmp_path / 'stop'}: nothing")
        assert "to see it: `/readyz` has the line" in done.stdout.lower()


def test_a_folder_that_is_known_by_another_name(tmp_path: Path) -> None:
    """The lock is the same whatever the folder is called, so the file is looked for; no path is said to be seen."""
    with locked(tmp_path / "journal.db"), answering(STOPPED, -1.0, stop_file="/in/the/pod/stop") as url:
        done = call("stop", url, Path("journal.db"), tmp_path / "stop")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"Stopped: a watchdog holds the lock in {tmp_path}, so it checks ")
    assert "The one of node n1, which was queried, is stopped by /in/the/pod/stop: nothing is enforced" in done.stdout


def test_what_was_seen_before_the_file_came_is_no_proof(tmp_path: Path) -> None:
    """A cycle that is older than the file shows another file, which may be gone since."""
    with locked(tmp_path / "journal.db"), answering(STOPPED, 3600.0) as url:
        done = call("stop", url, tmp_path / "journal.db")
    assert (done.exit_code, "NOT CONFIRMED" in done.stderr, "before this change, so the result" in done.stderr) == (
        1,
        *[True] * 2,
    )


@pytest.mark.parametrize("shows", [ENFORCING, STOPPED, OBSERVING])
@pytest.mark.parametrize("name", ["stop", "resume"])
def test_a_daemon_that_hangs_confirms_nothing(tmp_path: Path, name: str, shows: dict[str, object]) -> None:
    """It was asked, and its lock is held; whether its loop still looks for a file nobody knows."""
    hangs = rfc3339(time.time() - 3600)
    with locked(tmp_path / "journal.db"), answering(shows, 3600.0, hangs_since=hangs) as url:
        done = call(name, url, tmp_path / "journal.db")
    assert (done.exit_code, "NOT CONFIRMED" in done.stderr) == (1, True)
    assert "the watchdog of node n1 is hung: no cycle has completed since " in done.stderr
    assert "could not be queried" not in done.output


def test_a_daemon_that_was_asked_is_not_said_to_be_silent(tmp_path: Path) -> None:
    """It answers and has shown nothing of the file yet: that is said, and that it holds a lock proves no more."""
    with locked(tmp_path / "journal.db"), answering(ENFORCING, 60.0) as url:
        done = call("stop", url, tmp_path / "journal.db")
    assert (done.exit_code, "NOT CONFIRMED" in done.stderr, "could not be queried" in done.output) == (1, True, False)
    assert "the last cycle of the watchdog of node n1 was at " in done.stderr


@pytest.mark.parametrize(("ago_s", "says"), [(-5.0, "is in observe mode already"), (60.0, "only observed at its last")])
def test_one_that_observes_promises_no_sign_of_the_file(tmp_path: Path, ago_s: float, says: str) -> None:
    """Nothing is shown of a file while the policy observes; whether it will hold is known by the lock alone."""
    with answering(OBSERVING, ago_s) as url:
        with locked(tmp_path / "journal.db"):
            done = call("stop", url, tmp_path / "journal.db")
        assert (done.exit_code, done.stderr, says in done.stdout) == (0, "", True)
        assert "enforcement_suspended" not in done.stdout
        assert "has the line" not in done.stdout
        assert "If the policy is changed to enforce, nothing is enforced" in done.stdout
        done = call("stop", url, tmp_path / "journal.db")
    assert (done.exit_code, done.stdout, says in done.stderr) == (1, "", True)
    assert f"Whether it checks for {tmp_path / 'stop'} is unknown." in done.stderr


@pytest.mark.parametrize("health", [{}, {"stop_file": "/real/stop"}])
def test_a_resume_that_fails_tells_to_resume(tmp_path: Path, health: dict[str, str]) -> None:
    """Whoever wants to go on is not told a command that stops."""
    with answering(STOPPED, -5.0, **health) as url:
        done = call("resume", url, tmp_path / "journal.db")
    assert (done.exit_code, "the watchdog of node n1 sees a different stop file: it " in done.stderr) == (1, True)
    assert "exec POD -- gpu-watchdog resume` (`-n`: the namespace it is installed in)" in done.stderr
    assert "gpu-watchdog stop" not in done.output
    assert ("it looks for /real/stop." in done.stderr) == bool(health)


def test_an_enforcing_daemon_with_a_path_alike_is_elsewhere(tmp_path: Path) -> None:
    """The port of a pod or of another node, brought here: the path is the same, and the file is not."""
    with answering(ENFORCING, -5.0, stop_file=str(tmp_path / "stop")) as url:
        done = call("stop", url, tmp_path / "journal.db")
    assert (done.exit_code, "NOT STOPPED: the watchdog of node n1 is still ENFORCING: the file" in done.stderr) == (
        1,
        True,
    )
    assert "is in another container or on another node" in done.stderr


def test_a_resume_that_nobody_confirms_is_no_success_by_a_lock(tmp_path: Path) -> None:
    """There was no file, and nobody could be asked: something else may still keep the daemon from enforcing."""
    with locked(tmp_path / "journal.db"):
        done = call("resume", f"http://127.0.0.1:{free_port()}", tmp_path / "journal.db")
    assert (done.exit_code, done.stderr.startswith("Error: NOT CONFIRMED: nothing was changed")) == (1, True)


def test_the_api_is_named_for_whoever_follows_it(tmp_path: Path) -> None:
    """A daemon that is given its pods by a file sees no annotation."""
    done = call("stop", f"http://127.0.0.1:{free_port()}", tmp_path / "none" / "journal.db")
    assert "Where the watchdog follows the API, this does the same without the file: kubectl annotate" in done.stderr
