"""`stop` and `resume`: the stop file created and removed, and whether a daemon has seen it."""

import contextlib
import errno
import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final, NamedTuple

import click
import tenacity

from watchdog import clock
from watchdog.cli.client import NoCycleError, QueryError, program_name, query_status, to_run_inside
from watchdog.daemon.enforcement import LONGEST_REASON, exists, read_stop_file, remedy_on, stop_file
from watchdog.journal.lock import check_lock, lock_path
from watchdog.options import DEFAULT_JOURNAL
from watchdog.report.status import Status
from watchdog.report.text import capital, clock_time, date_time, inert

_NAME_JOURNAL: Final = "name the journal with --journal, as the watchdog has it"
_REMEDIES: Final = {
    errno.EACCES: "this account is not allowed to change it: run this as root",
    errno.EPERM: "this account is not allowed to change it, or the folder is immutable (`lsattr`): run this as root",
    errno.ENOSPC: "its disk is full: free some space",
    errno.EDQUOT: "the quota of its disk is used up: free some space",
    errno.ENOTDIR: f"there is a file where a folder should be: {_NAME_JOURNAL}",
    errno.ENAMETOOLONG: f"the name is too long: {_NAME_JOURNAL}",
}


_BY_API: Final = (
    "Where the watchdog follows the API, this does the same without the file: "
    "kubectl annotate node NODE gpu-memory-watchdog/mode=observe --overwrite"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A stop file."""

    path: Path
    # Whether the default journal's daemon checks for it.
    is_default: bool
    # Held by a daemon that checks for this very file; None: which daemon that would be is unknown.
    lock: Path | None = None

    @classmethod
    def of(cls, path: Path | None, journal: Path) -> "Stop":
        """The file at a path, or else the one next to a journal."""
        path = (path or stop_file(journal)).absolute()
        its_journal = path.with_name(journal.name)
        lock = lock_path(its_journal) if stop_file(its_journal) == path else None
        return cls(path=path, is_default=path == stop_file(DEFAULT_JOURNAL), lock=lock)

    def create(self, why: str) -> bool:
        """Create the file; False if something of that name already exists."""
        try:
            # Created in one step, and effective from then on, whether or not its text can be written.
            # A full disk may accept the name but not the text; the name is enough.
            with _opened(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor, contextlib.suppress(OSError):
                os.write(descriptor, f"{_signed(why)}\n".encode("utf-8", errors="replace"))
                os.fsync(descriptor)
        except OSError as error:
            if os.path.lexists(self.path):
                return False
            raise click.ClickException(f"NOT STOPPED: {self._explain(error, 'stop')}. {_BY_API}") from error
        self._sync()
        return True

    def remove(self) -> bool:
        """Remove the file; False if there was none."""
        try:
            self.path.unlink()
        except IsADirectoryError as error:
            folder = f"{self.path} is a folder, which also counts as a stop file: remove it (`rmdir`)"
            raise click.ClickException(f"STILL STOPPED: {folder}") from error
        except OSError as error:
            # On a read-only disk, removing a file that does not exist fails like removing one that does.
            if not exists(self.path):
                return False
            raise click.ClickException(f"STILL STOPPED: {self._explain(error, 'resume')}") from error
        self._sync()
        return True

    def is_watched(self) -> bool:
        """Whether a daemon keeps its journal next to this file, and so checks for the file."""
        return self.lock is not None and check_lock(self.lock)[0] == "held"

    def read_note(self) -> str:
        """When the file was created, and by whom and why, if it contains that; empty if it does not exist."""
        with contextlib.suppress(OSError):
            at, written = date_time(self.path.lstat().st_mtime), read_stop_file(self.path)
            return inert(f"{at}{f', {written}' if written else ''}", LONGEST_REASON)
        return ""

    def _sync(self) -> None:
        """Have the change survive a power failure, if the file system supports that."""
        with contextlib.suppress(OSError), _opened(self.path.parent, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            os.fsync(descriptor)

    def _explain(self, error: OSError, command: str) -> str:
        folder = self.path.parent
        if error.errno == errno.ENOENT and not folder.exists():
            return (
                f"there is no folder {folder}, so no watchdog keeps its journal there: name that with --journal, or "
                f"run {to_run_inside(command)}"
            )
        if error.errno == errno.EROFS:
            return f"{self.path}: {error.strerror}: it is read-only: mount it writable, or run {to_run_inside(command)}"
        remedy = _REMEDIES.get(error.errno or 0, _NAME_JOURNAL)
        return f"{self.path}: {error.strerror or error}: {remedy}"


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        yield descriptor
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _signed(why: str) -> str:
    """Who created it, and why."""
    by = os.environ.get("SUDO_USER", "")
    if not by:
        try:
            by = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            by = str(os.getuid())
    reason = inert(" ".join(why.split()), LONGEST_REASON)
    return f"by {inert(by, 64)}{f': {reason}' if reason else ''}"


# The daemon checks for the file twice a second, and a cycle that shows it takes its time on a busy node.
_PATIENCE_S: Final = 6.0
_SURE_S: Final = 2.0  # a cycle this much later has seen the change
_PAUSE_S: Final = 0.2
_REASON: Final = "stop_file"


class Sighting(Enum):
    """Whether a daemon has noticed that the file was created or removed.

    YES: it has, or it checks for this very file. IDLE: it would not enforce without the file either, so it shows no
    difference. NO: it continues as if nothing had changed. UNKNOWN: it could not be queried, or does not report it.
    """

    YES = auto()
    IDLE = auto()
    NO = auto()
    UNKNOWN = auto()


class StopAnswer(NamedTuple):
    """Whether the daemon has noticed, and the sentence to print."""

    seen: Sighting
    text: str


def confirm(url: str, stop: Stop, *, stopped: bool, patience_s: float) -> StopAnswer:
    """Wait, with a bound, until the daemon at this address shows that the file was created or removed.

    If it can't be queried, such as from a DaemonSet's host, the lock that it holds next to the file proves that it
    checks for a new file; for a removed one it proves nothing, since something else may keep it from enforcing.
    """
    changed_s = clock.now().wall_s
    if stopped:
        with contextlib.suppress(OSError):
            changed_s = stop.path.lstat().st_ctime

    def ask() -> tuple[Status, StopAnswer | None]:
        status = query_status(url, 1.0)
        return status, (_stopped if stopped else _resumed)(status, stop, changed_s)

    patiently = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda result: result[1] is None),
        stop=tenacity.stop_after_delay(patience_s),
        wait=tenacity.wait_fixed(_PAUSE_S),
        retry_error_callback=lambda state: state.outcome and state.outcome.result(),
    )
    try:
        status, answer = patiently(ask)
    except QueryError as error:
        if stopped and stop.is_watched():
            state = f"{error}." if isinstance(error, NoCycleError) else "It could not be queried."
            see = f"To see what it reports: {to_run_inside('top', '--once')}."
            return StopAnswer(Sighting.YES, f"{_checked(stop)} {state} {see}")
        return StopAnswer(Sighting.UNKNOWN, _unanswered(error, "stop" if stopped else "resume"))
    return answer or _undecided(status, stop, stopped=stopped)


def _checked(stop: Stop) -> str:
    return f"a watchdog holds the lock in {stop.path.parent}, so it checks for this file twice a second."


def _stopped(status: Status, stop: Stop, changed_s: float) -> StopAnswer | None:
    if status.hangs_since is not None:
        return None
    if _REASON in status.suspended:
        return _by_reason(status, stop) if status.at > changed_s else None
    if status.at <= changed_s + _SURE_S:
        return None
    if status.enforcing:
        return _unaffected(status, stop, "is still ENFORCING", "stop")
    if status.mode == "observe":
        return _idle(stop, f"{_watchdog(status)} is in observe mode already, by its policy.")
    return _unaffected(status, stop, "does not see it", "stop")


def _by_reason(status: Status, stop: Stop) -> StopAnswer:
    """The answer of a daemon that is stopped by a file: by this one, if it checks for this one."""
    watchdog, path, is_watched = _watchdog(status), _stop_file(status), stop.is_watched()
    if is_watched and (path is None or _is_same(path, stop)):
        return StopAnswer(Sighting.YES, f"{watchdog} has seen {stop.path}: nothing is enforced there.")
    own = inert(path) if path is not None else "a file of its own"
    if is_watched:
        queried = f"The one of {_node(status)}, which was queried, is stopped by {own}: nothing is enforced there."
        return StopAnswer(Sighting.YES, f"{_checked(stop)} {queried}")
    return StopAnswer(
        Sighting.UNKNOWN,
        f"{watchdog} is stopped by {own}, and whether that is this very file can't be determined: no lock held by a "
        "watchdog next to its journal is visible here. Name its journal with --journal, or run "
        f"{to_run_inside('stop')}.",
    )


def _resumed(status: Status, stop: Stop, changed_s: float) -> StopAnswer | None:
    watchdog, suspended = _watchdog(status), status.suspended
    if status.hangs_since is not None:
        return None
    if status.enforcing:
        return StopAnswer(Sighting.YES, f"{watchdog} enforces.")
    if status.at <= changed_s + _SURE_S:
        return None
    if _REASON in suspended:
        return _unaffected(status, stop, "sees a different stop file", "resume")
    if suspended:
        why = "; ".join(remedy_on(reason, status) or inert(reason) for reason in suspended)
        return StopAnswer(Sighting.IDLE, f"{watchdog} still does not enforce: {why}.")
    return StopAnswer(Sighting.IDLE, f"{watchdog} is in observe mode, by its policy.")


def _idle(stop: Stop, text: str) -> StopAnswer:
    """Nothing is enforced anyway; only the lock shows whether the file will count once that changes."""
    if stop.is_watched():
        held = f"A watchdog holds the lock next to {stop.path}, so it checks for this file."
        return StopAnswer(Sighting.IDLE, f"{text} {held}")
    return StopAnswer(Sighting.UNKNOWN, f"{text} Whether it checks for {stop.path} is unknown.")


def _undecided(status: Status, stop: Stop, *, stopped: bool) -> StopAnswer:
    watchdog, now_s, since_s = _watchdog(status), clock.now().wall_s, status.hangs_since
    if since_s is not None:
        return StopAnswer(
            Sighting.UNKNOWN,
            f"{watchdog} is hung: no cycle has completed since {clock_time(since_s, now_s)}, so its state is unknown. "
            "Check the node's GPU driver (`nvidia-smi`, and the kernel log).",
        )
    then = f"was at {clock_time(status.at, now_s)}"
    if status.mode == "observe":
        text = f"{watchdog} only observed at its last cycle, which {then}."
        return _idle(stop, text) if stopped else StopAnswer(Sighting.IDLE, text)
    return StopAnswer(
        Sighting.UNKNOWN,
        f"the last cycle of {watchdog} {then}, before this change, so the result is not visible yet; /readyz and `top` "
        "show it after its next cycle.",
    )


def _unaffected(status: Status, stop: Stop, what: str, command: str) -> StopAnswer:
    path, text = _stop_file(status), f"{_watchdog(status)} {what}"
    if path is not None and _is_same(path, stop):
        return StopAnswer(
            Sighting.NO,
            f"{text}: the file {inert(path)} that it looks for is in another container or on another node, or it was "
            f"changed again since. Run {to_run_inside(command)}.",
        )
    where = f"it looks for {inert(path)}" if path is not None else f"it keeps its journal outside {stop.path.parent}"
    return StopAnswer(
        Sighting.NO, f"{text}: {where}. Name its journal with --journal, or run {to_run_inside(command)}."
    )


def _stop_file(status: Status) -> str | None:
    """The path at which the daemon checks for the file; None: a version that does not report it."""
    return status.health.stop_file if status.health is not None else None


def _is_same(path: str, stop: Stop) -> bool:
    """Whether a path in the daemon's view is this file; its root directory may differ."""
    folder, name = os.path.split(path)
    return name == stop.path.name and os.path.realpath(folder) == os.path.realpath(stop.path.parent)


def _unanswered(error: QueryError, command: str) -> str:
    if isinstance(error, NoCycleError):
        return f"{error}: it looks for the file `stop` next to its own journal before its first action."
    return (
        f"whether a watchdog looks for it can't be determined from here: {error}. In a DaemonSet the port is the "
        f"pod's: ask there with {to_run_inside(command)}."
    )


def _node(status: Status) -> str:
    return f"node {inert(status.node or 'unknown')}"


def _watchdog(status: Status) -> str:
    return f"the watchdog of {_node(status)}"


def run_stop(stop: Stop, url: str, why: str, *, patience_s: float = _PATIENCE_S) -> None:
    """Turn enforcement off at once, and report what that stops and what it does not."""
    is_new = stop.create(why)
    answer = confirm(url, stop, stopped=True, patience_s=patience_s)
    made = "Stop file created" if is_new else f"Stop file already existed{_since(stop.read_note())}"
    resume = f"{program_name()} resume{'' if stop.is_default else f' --stop-file {stop.path}'}"
    # Whether it worked comes first: a person in a hurry reads no further.
    match answer.seen:
        case Sighting.YES:
            click.echo(f"Stopped: {answer.text}")
            if not is_new:
                click.echo(f"{made}: {stop.path}. Nothing was changed.")
            click.echo(_STOPPED_HELP.format(resume=resume))
        case Sighting.IDLE:
            click.echo(f"{made}: {answer.text}")
            click.echo(_IDLE_HELP.format(resume=resume))
        case Sighting.NO:
            raise click.ClickException(f"{made}; NOT STOPPED: {answer.text} To remove the file: {resume}")
        case Sighting.UNKNOWN:
            raise click.ClickException(
                f"{made}; NOT CONFIRMED: {stop.path} exists, a watchdog checks for `stop` only next to its own "
                f"journal, and {answer.text} {_BY_API}. To remove the file: {resume}"
            )


def run_resume(stop: Stop, url: str, *, patience_s: float = _PATIENCE_S) -> None:
    """Remove the file, and report what follows."""
    note, was_there = stop.read_note(), stop.remove()
    if was_there:
        click.echo(f"{stop.path} is gone. It was there{_since(note)}.")
        click.echo("All timers are reset. A step whose `for` is 0s has no timer: it is due at the first reading.")
    else:
        click.echo(f"There was no stop file at {stop.path}, so nothing was changed.")
    answer = confirm(url, stop, stopped=False, patience_s=patience_s)
    if answer.seen is Sighting.NO:
        raise click.ClickException(f"STILL STOPPED: {answer.text}")
    if answer.seen is Sighting.UNKNOWN and not was_there:
        raise click.ClickException(f"NOT CONFIRMED: nothing was changed, and {answer.text}")
    click.echo(capital(answer.text))


def _since(note: str) -> str:
    return f" since {inert(note, 1200)}" if note else ""


_STOPPED_HELP = """
What stops: kills, evictions and warnings, within two seconds. Also in a grace period:
  no SIGKILL follows, and an eviction that was refused is not retried.
What does not: a process that has received SIGTERM may still exit, and a pod whose
  eviction the API server has accepted is evicted. The watchdog keeps measuring.
How long: until it is removed, across restarts; on this node only.
To see it: `/readyz` has the line `not enforcing: stop_file`, `top` says so at the top,
  and gpu_watchdog_enforcement_suspended{{reason="stop_file"}} is 1.
To enforce again: {resume}
"""
_IDLE_HELP = """
What it changes: nothing now. If the policy is changed to enforce, nothing is enforced
  while the file exists, across restarts; on this node only.
To see it: until then only the file shows it. `/readyz`, `top` and the metrics show it once
  the policy says enforce.
To remove it: {resume}
"""
