"""Whether the daemon of this node has seen that the stop file came or went: asked of it, for some seconds."""

import os
import time
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from watchdog import clock
from watchdog.ask import AskError, NoPassError, ask_status
from watchdog.daemon.enforcement import remedy_on
from watchdog.export.phrases import clock_time, inert
from watchdog.export.status_read import Part, StatusError, hangs_since
from watchdog.halt.file import Stop
from watchdog.unreached import to_run_inside

# It looks for the file twice a second, and a pass that says so takes its time on a busy node.
_PATIENCE_S: Final = 6.0
_SURE_S: Final = 2.0  # what a pass of so much later says is true of the file too
_PAUSE_S: Final = 0.2
_REASON: Final = "stop_file"


class Seen(Enum):
    """What is known of a daemon and the file that came or went.

    YES: it has seen that, or looks for this very file. IDLE: nothing would be enforced without the file either, so it
    shows nothing of it. NO: it goes on as if nothing had changed. UNKNOWN: it could not be asked, or has not said.
    """

    YES = auto()
    IDLE = auto()
    NO = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the daemon shows of it, and that in a sentence."""

    seen: Seen
    text: str


def confirm(url: str, stop: Stop, *, stopped: bool) -> Answer:
    """Wait until the daemon at this address shows that the file came or went, as long as that can be told.

    Of one that can't be asked, from the host of a DaemonSet say, the lock that it holds beside the file tells that it
    looks for a file that came; of one that went it tells nothing, since something else may keep it from enforcing.
    """
    command = "stop" if stopped else "resume"
    changed_s = stop.changed_s() if stopped else clock.now().wall_s
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            status = Part(ask_status(url, 1.0))
            answer = _stopped(status, stop, changed_s) if stopped else _resumed(status, stop, changed_s)
        except AskError as error:
            held = stopped and stop.is_looked_for()
            return _by_lock(error, stop) if held else Answer(seen=Seen.UNKNOWN, text=_unheard(error, command))
        except StatusError as error:
            return Answer(seen=Seen.UNKNOWN, text=f"what answers at {inert(url)} is no gpu-watchdog: {error}.")
        if answer is not None:
            return answer
        if time.monotonic() > deadline_s:
            return _undecided(status, stop, stopped=stopped)
        time.sleep(_PAUSE_S)


def _by_lock(error: AskError, stop: Stop) -> Answer:
    known = f"{error}." if isinstance(error, NoPassError) else "It could not be asked."
    return Answer(
        seen=Seen.YES,
        text=f"a watchdog keeps its journal in {stop.path.parent}, by the lock there, and looks for this file twice a "
        f"second. {known} What it says of it: {to_run_inside('top', '--once')}.",
    )


def _stopped(status: Part, stop: Stop, changed_s: float) -> Answer | None:
    node = _node(status)
    if hangs_since(status) is not None:
        return None
    if _REASON in status.texts("suspended"):
        return _by_reason(status, stop) if (status.moment("at") or 0.0) > changed_s else None
    if not _is_sure(status, changed_s):
        return None
    if status.flag("enforcing"):
        return Answer(seen=Seen.NO, text=_deaf(status, stop, "goes on ENFORCING", "stop"))
    if status.text("mode") == "observe":
        return _idle(stop, f"the watchdog of {node} only observes in any case: its policy says so.")
    return Answer(seen=Seen.NO, text=_deaf(status, stop, "does not see it", "stop"))


def _by_reason(status: Part, stop: Stop) -> Answer:
    """What a daemon shows that is stopped by a file: by this one, if this one is what it looks for."""
    node, theirs, held = _node(status), _stop_file(status), stop.is_looked_for()
    if held and (theirs is None or _is_same(theirs, stop)):
        return Answer(seen=Seen.YES, text=f"the watchdog of {node} has seen {stop.path}: nothing is enforced there.")
    own = inert(theirs) if theirs is not None else "a file of its own"
    if held:
        return Answer(
            seen=Seen.YES,
            text=f"a watchdog keeps its journal in {stop.path.parent}, by the lock there, and looks for this file "
            f"twice a second. The one of {node}, which was asked, is stopped by {own}: nothing is enforced there.",
        )
    return Answer(
        seen=Seen.UNKNOWN,
        text=f"the watchdog of {node} is stopped by {own}, and whether that is this very file can't be told: no lock "
        "that a watchdog holds beside its journal is seen here. Name its journal with --journal, or run "
        f"{to_run_inside('stop')}.",
    )


def _resumed(status: Part, stop: Stop, changed_s: float) -> Answer | None:
    node, suspended = _node(status), status.texts("suspended")
    if hangs_since(status) is not None:
        return None
    if status.flag("enforcing"):
        return Answer(seen=Seen.YES, text=f"the watchdog of {node} enforces.")
    if not _is_sure(status, changed_s):
        return None
    if _REASON in suspended:
        return Answer(seen=Seen.NO, text=_deaf(status, stop, "sees another one", "resume"))
    if suspended:
        why = "; ".join(remedy_on(reason, status.text("node") or "") or inert(reason) for reason in suspended)
        return Answer(seen=Seen.IDLE, text=f"the watchdog of {node} does not enforce all the same: {why}.")
    return Answer(seen=Seen.IDLE, text=f"the watchdog of {node} only observes: its policy says so.")


def _idle(stop: Stop, text: str) -> Answer:
    """That nothing is enforced anyway; whether the file holds once that changes is known by the lock alone."""
    if stop.is_looked_for():
        return Answer(seen=Seen.IDLE, text=f"{text} A watchdog looks for {stop.path}, by the lock beside it.")
    return Answer(seen=Seen.UNKNOWN, text=f"{text} Whether it looks for {stop.path} can't be told then.")


def _is_sure(status: Part, changed_s: float) -> bool:
    """Whether the pass that is shown began so late that it must have known of the change."""
    return (status.moment("at") or 0.0) > changed_s + _SURE_S


def _undecided(status: Part, stop: Stop, *, stopped: bool) -> Answer:
    node, last, now_s = _node(status), status.moment("at"), clock.now().wall_s
    since = hangs_since(status)
    if since is not None:
        return Answer(
            seen=Seen.UNKNOWN,
            text=f"the watchdog of {node} hangs: no pass has ended since {clock_time(since, now_s)}, so what it does "
            "is not known. Whoever runs the node can look at its driver (`nvidia-smi`, and the kernel log).",
        )
    then = f"was at {clock_time(last, now_s)}" if last is not None else "is not known"
    if status.text("mode") == "observe":
        text = f"the watchdog of {node} only observed by its last pass, which {then}."
        return _idle(stop, text) if stopped else Answer(seen=Seen.IDLE, text=text)
    return Answer(
        seen=Seen.UNKNOWN,
        text=f"the last pass of the watchdog of {node} {then}, before this, so it has shown nothing of it yet; "
        "/readyz and `top` show it after its next pass.",
    )


def _deaf(status: Part, stop: Stop, what: str, command: str) -> str:
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


def _stop_file(status: Part) -> str | None:
    """The file that the daemon looks for, as it names it; None: a version that does not tell."""
    health = status.part("health")
    return health.text("stop_file") if health is not None else None


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


def _node(status: Part) -> str:
    return f"node {inert(status.text('node') or 'unknown')}"
