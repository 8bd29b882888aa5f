"""`stop` and `resume`: the stop file made and removed, and whether a daemon has seen it."""

import contextlib
import errno
import os
import pwd
import stat
import time
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final

import click

from watchdog import clock
from watchdog.cli.client import AskError, NoPassError, ask_status, called, to_run_inside
from watchdog.core.errors import WatchdogError
from watchdog.daemon.enforcement import remedy_on
from watchdog.journal.lock import look_at_lock
from watchdog.report.status import Status
from watchdog.report.text import clock_time, date_time, inert

_LONGEST: Final = 1000  # characters of a reason
_MOST_READ: Final = 4096  # bytes
_NAME_JOURNAL: Final = "name the journal with --journal, as the watchdog has it"
_REMEDIES: Final = {
    errno.EACCES: "this account may not change it: run this as root",
    errno.EPERM: "this account may not change it, or the folder is immutable (`lsattr`): run this as root",
    errno.ENOSPC: "its disk is full: free some space",
    errno.EDQUOT: "the quota of its disk is used up: free some space",
    errno.ENOTDIR: f"a file stands where a folder should be: {_NAME_JOURNAL}",
    errno.ENAMETOOLONG: f"the name is too long: {_NAME_JOURNAL}",
}


class StopError(WatchdogError):
    """The file can't be made or removed; the text names it and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A stop file. `is_default`: it is where a daemon looks that was given no journal of its own.

    `lock` is held by a daemon that looks for this very file; None: which daemon that would be is not known.
    """

    path: Path
    is_default: bool
    lock: Path | None = None

    def put(self, why: str) -> bool:
        """Make the file; False where something of that name was there already. StopError."""
        # Made in one step, and in force from then on: what is written into it afterwards is no condition.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            descriptor = os.open(self.path, flags, 0o644)
        except OSError as error:
            if os.path.lexists(self.path):
                return False
            raise StopError(self._explain(error, "stop")) from error
        try:
            # A full disk takes the name, and not the text; the name is enough.
            with contextlib.suppress(OSError):
                os.write(descriptor, f"{_signed(why)}\n".encode("utf-8", errors="replace"))
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._keep()
        return True

    def take_away(self) -> bool:
        """Remove the file; False where there was none. StopError."""
        # Looked for first: on a read-only disk, removing what is not there fails as removing what is there does.
        if self._is_absent():
            return False
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        except IsADirectoryError as error:
            raise StopError(f"{self.path} is a folder, and counts too: remove it (`rmdir`)") from error
        except OSError as error:
            raise StopError(self._explain(error, "resume")) from error
        self._keep()
        return True

    def is_looked_for(self) -> bool:
        """Whether a daemon keeps the journal beside which this file lies, so that it looks for the file."""
        return self.lock is not None and look_at_lock(self.lock)[0] == "held"

    def changed_s(self) -> float:
        """When the file was made, or last changed (Unix time); now, where that can't be seen."""
        try:
            return self.path.lstat().st_ctime
        except OSError:
            return clock.now().wall_s

    def note(self) -> str:
        """When the file was made, by whom and why, as far as it says so; empty where it is not there."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            found = os.fstat(descriptor)
            text = os.read(descriptor, _MOST_READ) if stat.S_ISREG(found.st_mode) else b""
        except OSError:
            return ""
        finally:
            os.close(descriptor)
        written = " ".join(text.decode("utf-8", errors="replace").split())
        return inert(f"{date_time(found.st_mtime)}{f', {written}' if written else ''}", _LONGEST)

    def _keep(self) -> None:
        """Let the change outlive a power cut, where the file system takes that."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _is_absent(self) -> bool:
        """Whether there is nothing of this name; where that can't be seen, it is not said."""
        try:
            self.path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return False

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


def _signed(why: str) -> str:
    """Who made it, and why."""
    by = os.environ.get("SUDO_USER", "")
    if not by:
        try:
            by = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            by = str(os.getuid())
    reason = inert(" ".join(why.split()), _LONGEST)
    return f"by {inert(by, 64)}{f': {reason}' if reason else ''}"


# It looks for the file twice a second, and a cycle that says so takes its time on a busy node.
_PATIENCE_S: Final = 6.0
_SURE_S: Final = 2.0  # what a cycle of so much later says is true of the file too
_PAUSE_S: Final = 0.2
_REASON: Final = "stop_file"


class Sighting(Enum):
    """What is known of a daemon and the file that came or went.

    YES: it has seen that, or looks for this very file. IDLE: nothing would be enforced without the file either, so it
    shows nothing of it. NO: it goes on as if nothing had changed. UNKNOWN: it could not be asked, or has not said.
    """

    YES = auto()
    IDLE = auto()
    NO = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAnswer:
    """What the daemon shows of it, and that in a sentence."""

    seen: Sighting
    text: str


def confirm(url: str, stop: Stop, *, stopped: bool) -> StopAnswer:
    """Wait until the daemon at this address shows that the file came or went, as long as that can be told.

    Of one that can't be asked, from the host of a DaemonSet say, the lock that it holds beside the file tells that it
    looks for a file that came; of one that went it tells nothing, since something else may keep it from enforcing.
    """
    command = "stop" if stopped else "resume"
    changed_s = stop.changed_s() if stopped else clock.now().wall_s
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            status = ask_status(url, 1.0)
            answer = _stopped(status, stop, changed_s) if stopped else _resumed(status, stop, changed_s)
        except AskError as error:
            held = stopped and stop.is_looked_for()
            return _by_lock(error, stop) if held else StopAnswer(seen=Sighting.UNKNOWN, text=_unheard(error, command))
        if answer is not None:
            return answer
        if time.monotonic() > deadline_s:
            return _undecided(status, stop, stopped=stopped)
        time.sleep(_PAUSE_S)


def _by_lock(error: AskError, stop: Stop) -> StopAnswer:
    known = f"{error}." if isinstance(error, NoPassError) else "It could not be asked."
    return StopAnswer(
        seen=Sighting.YES,
        text=f"a watchdog keeps its journal in {stop.path.parent}, by the lock there, and looks for this file twice a "
        f"second. {known} What it says of it: {to_run_inside('top', '--once')}.",
    )


def _stopped(status: Status, stop: Stop, changed_s: float) -> StopAnswer | None:
    node = _node(status)
    if status.hangs_since is not None:
        return None
    if _REASON in status.suspended:
        return _by_reason(status, stop) if (status.at or 0.0) > changed_s else None
    if not _is_sure(status, changed_s):
        return None
    if status.enforcing:
        return StopAnswer(seen=Sighting.NO, text=_deaf(status, stop, "goes on ENFORCING", "stop"))
    if status.mode == "observe":
        return _idle(stop, f"the watchdog of {node} only observes in any case: its policy says so.")
    return StopAnswer(seen=Sighting.NO, text=_deaf(status, stop, "does not see it", "stop"))


def _by_reason(status: Status, stop: Stop) -> StopAnswer:
    """What a daemon shows that is stopped by a file: by this one, if this one is what it looks for."""
    node, theirs, held = _node(status), _stop_file(status), stop.is_looked_for()
    if held and (theirs is None or _is_same(theirs, stop)):
        return StopAnswer(
            seen=Sighting.YES, text=f"the watchdog of {node} has seen {stop.path}: nothing is enforced there."
        )
    own = inert(theirs) if theirs is not None else "a file of its own"
    if held:
        return StopAnswer(
            seen=Sighting.YES,
            text=f"a watchdog keeps its journal in {stop.path.parent}, by the lock there, and looks for this file "
            f"twice a second. The one of {node}, which was asked, is stopped by {own}: nothing is enforced there.",
        )
    return StopAnswer(
        seen=Sighting.UNKNOWN,
        text=f"the watchdog of {node} is stopped by {own}, and whether that is this very file can't be told: no lock "
        "that a watchdog holds beside its journal is seen here. Name its journal with --journal, or run "
        f"{to_run_inside('stop')}.",
    )


def _resumed(status: Status, stop: Stop, changed_s: float) -> StopAnswer | None:
    node, suspended = _node(status), status.suspended
    if status.hangs_since is not None:
        return None
    if status.enforcing:
        return StopAnswer(seen=Sighting.YES, text=f"the watchdog of {node} enforces.")
    if not _is_sure(status, changed_s):
        return None
    if _REASON in suspended:
        return StopAnswer(seen=Sighting.NO, text=_deaf(status, stop, "sees another one", "resume"))
    if suspended:
        why = "; ".join(remedy_on(reason, status.node or "") or inert(reason) for reason in suspended)
        return StopAnswer(seen=Sighting.IDLE, text=f"the watchdog of {node} does not enforce all the same: {why}.")
    return StopAnswer(seen=Sighting.IDLE, text=f"the watchdog of {node} only observes: its policy says so.")


def _idle(stop: Stop, text: str) -> StopAnswer:
    """That nothing is enforced anyway; whether the file holds once that changes is known by the lock alone."""
    if stop.is_looked_for():
        return StopAnswer(seen=Sighting.IDLE, text=f"{text} A watchdog looks for {stop.path}, by the lock beside it.")
    return StopAnswer(seen=Sighting.UNKNOWN, text=f"{text} Whether it looks for {stop.path} can't be told then.")


def _is_sure(status: Status, changed_s: float) -> bool:
    """Whether the cycle that is shown began so late that it must have known of the change."""
    return (status.at or 0.0) > changed_s + _SURE_S


def _undecided(status: Status, stop: Stop, *, stopped: bool) -> StopAnswer:
    node, last, now_s = _node(status), status.at, clock.now().wall_s
    since = status.hangs_since
    if since is not None:
        return StopAnswer(
            seen=Sighting.UNKNOWN,
            text=f"the watchdog of {node} hangs: no pass has ended since {clock_time(since, now_s)}, so what it does "
            "is not known. Whoever runs the node can look at its driver (`nvidia-smi`, and the kernel log).",
        )
    then = f"was at {clock_time(last, now_s)}" if last is not None else "is not known"
    if status.mode == "observe":
        text = f"the watchdog of {node} only observed by its last pass, which {then}."
        return _idle(stop, text) if stopped else StopAnswer(seen=Sighting.IDLE, text=text)
    return StopAnswer(
        seen=Sighting.UNKNOWN,
        text=f"the last pass of the watchdog of {node} {then}, before this, so it has shown nothing of it yet; "
        "/readyz and `top` show it after its next pass.",
    )


def _deaf(status: Status, stop: Stop, what: str, command: str) -> str:
    theirs = _stop_file(status)
    told = f"the watchdog of {_node(status)} {what}"
    if theirs is not None and _is_same(theirs, stop):
        return (
            f"{told}: the file {inert(theirs)} that it looks for is in another container or on another node, or it was "
            f"changed again meanwhile. Run {to_run_inside(command)}."
        )
    where = (
        f"it looks for {inert(theirs)}" if theirs is not None else f"it keeps its journal outside {stop.path.parent}"
    )
    return f"{told}: {where}. Name its journal with --journal, or run {to_run_inside(command)}."


def _stop_file(status: Status) -> str | None:
    """The file that the daemon looks for, as it names it; None: a version that does not tell."""
    health = status.health
    return health.stop_file if health is not None else None


def _is_same(theirs: str, stop: Stop) -> bool:
    """Whether a path of the daemon's names this file here; its own root may be another one."""
    folder, name = os.path.split(theirs)
    return name == stop.path.name and os.path.realpath(folder) == os.path.realpath(stop.path.parent)


def _unheard(error: AskError, command: str) -> str:
    if isinstance(error, NoPassError):
        return f"{error}: it looks for the file `stop` beside its own journal before its first deed."
    return (
        f"whether a watchdog looks for it can't be told from here: {error}. In a DaemonSet the port is the pod's: "
        f"ask there with {to_run_inside(command)}."
    )


def _node(status: Status) -> str:
    return f"node {inert(status.node or 'unknown')}"


_BY_API: Final = (
    "Where the watchdog follows the API, this does the same without the file: "
    "kubectl annotate node NODE gpu-memory-watchdog/mode=observe --overwrite"
)


class HaltError(WatchdogError):
    """It was not done, or it does not help; the text says what holds now and what else can be done."""


def run_stop(stop: Stop, url: str, why: str) -> None:
    """Turn enforcement off at once, and say what that stops and what it does not; HaltError."""
    try:
        is_new = stop.put(why)
    except StopError as error:
        raise HaltError(f"NOT STOPPED: {error}. {_BY_API}") from error
    answer = confirm(url, stop, stopped=True)
    made = "File made" if is_new else f"File there already{_said(stop.note())}"
    back = f"{called()} resume{_option(stop)}"
    # Whether anybody is spared by it comes first: who stops it in a hurry reads no further.
    match answer.seen:
        case Sighting.YES:
            click.echo(f"Stopped: {answer.text}")
            if not is_new:
                click.echo(f"{made}: {stop.path}. Nothing was changed.")
        case Sighting.IDLE:
            click.echo(f"{made}: {answer.text}")
            click.echo(_TOLD_IDLE.format(resume=back))
            return
        case Sighting.NO:
            raise HaltError(f"{made}; NOT STOPPED: {answer.text} To take the file away: {back}")
        case Sighting.UNKNOWN:
            raise HaltError(
                f"{made}; NOT CONFIRMED: {stop.path} is there, a watchdog looks for `stop` beside its own journal "
                f"alone, and {answer.text} {_BY_API}. To take the file away: {back}"
            )
    click.echo(_TOLD.format(resume=back))


def run_resume(stop: Stop, url: str) -> None:
    """Take the file away, and say what follows; HaltError."""
    note = stop.note()
    try:
        was_there = stop.take_away()
    except StopError as error:
        raise HaltError(f"STILL STOPPED: {error}") from error
    if was_there:
        click.echo(f"{stop.path} is gone. It was there{_said(note)}.")
        click.echo("All timers begin anew. A step whose `for` is 0s has none: it is due at the first reading.")
    else:
        click.echo(f"There was no {stop.path}: it is not this file that keeps a watchdog from enforcing.")
    answer = confirm(url, stop, stopped=False)
    if answer.seen is Sighting.NO:
        raise HaltError(f"STILL STOPPED: {answer.text}")
    if answer.seen is Sighting.UNKNOWN and not was_there:
        raise HaltError(f"NOT CONFIRMED: nothing was changed, and {answer.text}")
    click.echo(f"{answer.text[:1].upper()}{answer.text[1:]}")


_TOLD = """
What ends: kills, evictions and warnings, within two seconds. Also in a grace period:
  no SIGKILL follows, and an eviction that was refused is not tried again.
What does not: a process that has got SIGTERM may still end by it, and a pod whose
  eviction the API server has accepted goes. The watchdog goes on measuring.
How long: until it is taken back, over restarts; for this node alone.
To see it: `/readyz` has the line `not enforcing: stop_file`, `top` says so at its head,
  and gpu_watchdog_enforcement_suspended{{reason="stop_file"}} is 1.
To enforce again: {resume}
"""
_TOLD_IDLE = """
What it changes: nothing now. If the policy is changed to enforce, nothing is enforced
  while the file is there, over restarts; for this node alone.
To see it: until then only by the file. `/readyz`, `top` and the metrics show it once
  the policy says enforce.
To take it away: {resume}
"""


def _said(note: str) -> str:
    return f" since {inert(note, 1200)}" if note else ""


def _option(stop: Stop) -> str:
    return "" if stop.is_default else f" --stop-file {stop.path}"
