"""What a daemon's answer and the lock beside the file prove of `stop` and `resume`."""

import time
from pathlib import Path
from typing import Any, Final

import click
import pytest
from click.testing import CliRunner

from tests.cli.answering import ENFORCING, OBSERVING, STOPPED, answering, locked
from watchdog.cli.stop import Sighting, Stop, confirm, run_resume, run_stop
from watchdog.report.text import rfc3339

PATIENCE_S: Final = 0.3
HERE: Final = {"stop_file": "{folder}/stop"}
ELSEWHERE: Final = {"stop_file": "/real/stop"}
HUNG: Final = {"hangs_since": rfc3339(time.time() - 3600)}
OLD, NEW = 3600.0, -5.0  # seconds since the daemon's last cycle; below 0, it comes after the change
ANSWERS: Final = {
    # A file beside the lock counts once a later cycle shows it; a daemon that hangs or observes shows nothing of it.
    "stop, lock held": (
        (STOPPED, NEW, {}, Sighting.YES, "has seen {folder}/stop"),
        (STOPPED, NEW, HERE, Sighting.YES, "has seen {folder}/stop"),
        # The folder may have another name in the container: no path is reported as seen.
        (STOPPED, NEW, ELSEWHERE, Sighting.YES, "which was queried, is stopped by /real/stop"),
        (STOPPED, OLD, {}, Sighting.UNKNOWN, "before this change"),
        (ENFORCING, 60.0, {}, Sighting.UNKNOWN, "before this change"),
        (ENFORCING, OLD, HUNG, Sighting.UNKNOWN, "is hung: no cycle has completed since "),
        (STOPPED, OLD, HUNG, Sighting.UNKNOWN, "is hung"),
        (OBSERVING, OLD, HUNG, Sighting.UNKNOWN, "is hung"),
        (OBSERVING, NEW, {}, Sighting.IDLE, "is in observe mode already"),
        (OBSERVING, 60.0, {}, Sighting.IDLE, "only observed at its last cycle"),
    ),
    # Without a lock the file may lie on the laptop from which the port is reached, whatever its path.
    "stop, no lock": (
        (STOPPED, NEW, {}, Sighting.UNKNOWN, "is stopped by a file of its own"),
        (STOPPED, NEW, ELSEWHERE, Sighting.UNKNOWN, "is stopped by /real/stop"),
        (STOPPED, NEW, HERE, Sighting.UNKNOWN, "is stopped by {folder}/stop"),
        (STOPPED, OLD, HERE, Sighting.UNKNOWN, "before this change"),
        (OBSERVING, NEW, {}, Sighting.UNKNOWN, "Whether it checks for {folder}/stop is unknown."),
        (ENFORCING, NEW, ELSEWHERE, Sighting.NO, "is still ENFORCING: it looks for /real/stop"),
        (ENFORCING, NEW, HERE, Sighting.NO, "is in another container or on another node"),
    ),
    "resume, lock held": (
        (ENFORCING, NEW, {}, Sighting.YES, "enforces"),
        (STOPPED, NEW, ELSEWHERE, Sighting.NO, "sees a different stop file: it looks for /real/stop"),
        (STOPPED, NEW, {}, Sighting.NO, "it keeps its journal outside {folder}"),
        (STOPPED, OLD, HUNG, Sighting.UNKNOWN, "is hung"),
        (ENFORCING, OLD, HUNG, Sighting.UNKNOWN, "is hung"),
        (OBSERVING, NEW, {}, Sighting.IDLE, "is in observe mode, by its policy"),
        (OBSERVING, 60.0, {}, Sighting.IDLE, "only observed at its last cycle"),
        ({**STOPPED, "suspended": ["lock"]}, NEW, {}, Sighting.IDLE, "still does not enforce"),
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
        answer = confirm(url, stop, stopped=command == "stop", patience_s=PATIENCE_S)
    assert (answer.seen, says.format(folder=tmp_path) in answer.text) == (seen, True)


@pytest.mark.parametrize(
    ("command", "shows", "ago_s", "code", "begins"),
    [
        ("stop", STOPPED, NEW, 0, "Stopped: "),
        ("stop", OBSERVING, NEW, 0, "Stop file created: "),
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
    # A daemon that observes shows nothing of the file, so no sign of it is promised.
    assert ("has the line" in done.output) is begins.startswith("Stopped")
