"""`stop` and `resume`: the stop file created and removed, and whether a daemon has seen it."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import psutil
import tenacity

from watchdog import clock
from watchdog.cli.client import QueryError, query_status, to_run_inside
from watchdog.cli.program import program_name
from watchdog.daemon.enforcement import LONGEST_REASON, exists, read_stop_file
from watchdog.journal.lock import check_lock, lock_path
from watchdog.options import stop_file
from watchdog.report.sentences.suspension import remedy_on
from watchdog.report.status import Status
from watchdog.report.text import capital, clock_time, date_time, inert

_BY_API: Final = (
    "Where the watchdog follows the API, this does the same without the file: "
    "kubectl annotate node NODE gpu-memory-watchdog/mode=observe --overwrite"
)
# The daemon checks for the file twice a second, and a cycle that shows it takes its time on a busy node.
_PATIENCE_S: Final = 6.0
_REASON: Final = "stop_file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A stop file."""

    path: Path
    # Held by a daemon that checks for this very file; None: which daemon that would be is unknown.
    lock: Path | None = None

    @classmethod
    def of(cls, path: Path | None, journal: Path) -> "Stop":
        """The file at a path, or else the one next to a journal."""
        path = (path or stop_file(journal)).absolute()
        its_journal = path.with_name(journal.name)
        return cls(path=path, lock=lock_path(its_journal) if stop_file(its_journal) == path else None)

    def create(self, why: str) -> bool:
        """Create the file; False if something of that name already exists."""
        try:
            file = self.path.open("xb", buffering=0)
        except OSError as error:
            if os.path.lexists(self.path):
                return False
            raise click.ClickException(f"NOT STOPPED: {self._explain(error, 'stop')}. {_BY_API}") from error
        reason = inert(" ".join(why.split()), LONGEST_REASON)
        # It is in force already: a full disk may accept the name but not the text.
        with contextlib.suppress(OSError, psutil.Error), file:
            by = os.environ.get("SUDO_USER") or psutil.Process().username()
            file.write(f"by {inert(by, 64)}{f': {reason}' if reason else ''}\n".encode(errors="replace"))
            os.fsync(file)
        return True

    def remove(self) -> bool:
        """Remove the file; False if there was none."""
        try:
            self.path.unlink()
        except OSError as error:
            # On a read-only disk, removing a file that does not exist fails like removing one that does.
            if not exists(self.path):
                return False
            raise click.ClickException(f"STILL STOPPED: {self._explain(error, 'resume')}") from error
        return True

    def is_watched(self) -> bool:
        """Whether a daemon keeps its journal next to this file, and so checks for the file."""
        return self.lock is not None and check_lock(self.lock)[0] == "held"

    def read_note(self) -> str:
        """Since when the file exists, and by whom and why, if it contains that; empty if it does not exist."""
        with contextlib.suppress(OSError):
            at, written = date_time(self.path.lstat().st_mtime), read_stop_file(self.path)
            return " since " + inert(f"{at}, {written}" if written else at, LONGEST_REASON)
        return ""

    def _explain(self, error: OSError, command: str) -> str:
        if isinstance(error, IsADirectoryError):
            return f"{self.path} is a folder, which also counts as a stop file: remove it (`rmdir`)"
        no_folder = f"there is no folder {self.path.parent}, so no watchdog keeps its journal there"
        what = no_folder if isinstance(error, FileNotFoundError) else f"{self.path}: {error.strerror or error}"
        return f"{what}: run this as root, with the watchdog's --journal; or run {to_run_inside(command)}"


def confirm(url: str, stop: Stop, *, stopped: bool, patience_s: float) -> tuple[bool | None, str]:
    """Wait, with a bound, until the daemon at this address shows the change; whether it does, and a sentence.

    None: that is unknown. If it can't be queried, such as from a DaemonSet's host, the lock that it holds next to a
    new file proves that it checks for it; next to a removed one it proves nothing.
    """
    changed_s = clock.now().wall_s
    with contextlib.suppress(OSError):  # once removed it is not there
        changed_s = stop.path.lstat().st_ctime

    def shows(status: Status) -> bool:
        is_sure = status.at > changed_s + 2.0 or status.mode == "observe"  # so much later it has seen the change
        is_shown = (status.at > changed_s and _REASON in status.suspended) if stopped else status.enforcing
        return status.hangs_since is None and (is_sure or is_shown)

    patiently = tenacity.Retrying(
        retry=tenacity.retry_if_not_result(shows),
        stop=tenacity.stop_after_delay(patience_s),
        wait=tenacity.wait_fixed(0.2),
        retry_error_callback=lambda state: state.outcome and state.outcome.result(),
    )
    elsewhere = f"Name its journal with --journal, or run {to_run_inside('stop' if stopped else 'resume')}."
    try:
        status: Status = patiently(lambda: query_status(url, 1.0))
    except QueryError as error:
        if stopped and stop.is_watched():
            return True, f"{_watched(stop)} To see what it reports: {to_run_inside('top', '--once')}."
        return None, f"whether a watchdog looks for it can't be determined from here: {error}. {elsewhere}"
    who, at = f"the watchdog of node {inert(status.node or 'unknown')}", clock_time(status.at, clock.now().wall_s)
    if not shows(status):
        silent = f"has completed no cycle since {at}, so what it does now is not known; `top` shows the next one."
        return None, f"{who} {silent}"
    own = status.health.stop_file if status.health is not None else None
    seen, text = (_stopped if stopped else _resumed)(status, stop)
    looks = f": it looks for {inert(own or 'a file')}, next to its own journal. {elsewhere}"
    return seen, f"{who} {text}{'' if seen else looks}"


def _watched(stop: Stop) -> str:
    return f"A watchdog holds the lock in {stop.path.parent}, so it checks for this file twice a second."


def _stopped(status: Status, stop: Stop) -> tuple[bool | None, str]:
    if status.enforcing:
        return False, "is still ENFORCING"
    shown = _why_not(status) if _REASON not in status.suspended else "is stopped"
    if stop.is_watched():
        return True, f"{shown}. {_watched(stop)}"
    return None, f"{shown}, but no watchdog holds a lock next to {stop.path}"


def _resumed(status: Status, _: Stop) -> tuple[bool | None, str]:
    if status.enforcing:
        return True, "enforces."
    return (False, "sees a different stop file") if _REASON in status.suspended else (True, f"{_why_not(status)}.")


def _why_not(status: Status) -> str:
    why = "; ".join(remedy_on(reason, status) or inert(reason) for reason in status.suspended)
    return f"does not enforce: {why}" if why else "is in observe mode, by its policy"


def run_stop(stop: Stop, url: str, why: str, *, patience_s: float = _PATIENCE_S) -> None:
    """Turn enforcement off at once, and report what that stops and what it does not."""
    is_new = stop.create(why)
    seen, text = confirm(url, stop, stopped=True, patience_s=patience_s)
    made = "Stop file created" if is_new else f"Stop file already existed{stop.read_note()}"
    resume = f"{program_name()} resume --stop-file {stop.path}"
    # Whether it worked comes first: a person in a hurry reads no further.
    if seen is False:
        raise click.ClickException(f"{made}; NOT STOPPED: {text} To remove the file: {resume}")
    if seen is None:
        what = f"{stop.path} exists, a watchdog checks for `stop` only next to its own journal, and {text}"
        raise click.ClickException(f"{made}; NOT CONFIRMED: {what} {_BY_API}. To remove the file: {resume}")
    click.echo(f"Stopped: {text}")
    if not is_new:
        click.echo(f"{made}: {stop.path}. Nothing was changed.")
    click.echo(_STOPPED_HELP.format(resume=resume))


def run_resume(stop: Stop, url: str, *, patience_s: float = _PATIENCE_S) -> None:
    """Remove the file, and report what follows."""
    note, was_there = stop.read_note(), stop.remove()
    if was_there:
        click.echo(f"{stop.path} is gone. It was there{note}.")
        click.echo("All timers are reset. A step whose `for` is 0s has no timer: it is due at the first reading.")
    else:
        click.echo(f"There was no stop file at {stop.path}, so nothing was changed.")
    seen, text = confirm(url, stop, stopped=False, patience_s=patience_s)
    if seen is False:
        raise click.ClickException(f"STILL STOPPED: {text}")
    if seen is None and not was_there:
        raise click.ClickException(f"NOT CONFIRMED: nothing was changed, and {text}")
    click.echo(capital(text))


_STOPPED_HELP = """
What stops: kills, evictions and warnings, within two seconds. Also in a grace period:
  no SIGKILL follows, and an eviction that was refused is not retried.
What does not: a process that has received SIGTERM may still exit, and a pod whose
  eviction the API server has accepted is evicted. The watchdog keeps measuring.
How long: until it is removed, across restarts; on this node only.
To see it: `/readyz` has the line `not enforcing: stop_file`, `top` says so at the top,
  and gpu_watchdog_enforcement_suspended{{reason="stop_file"}} is 1. A daemon in observe
  mode shows none of this until its policy says enforce.
To enforce again: {resume}
"""
