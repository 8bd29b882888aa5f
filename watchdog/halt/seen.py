"""Whether the daemon of this node has seen that the stop file came or went: asked of it, for some seconds."""

import time
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path
from typing import Final

from watchdog import clock
from watchdog.ask import AskError, NoPassError, ask_status
from watchdog.export.phrases import clock_time, inert
from watchdog.export.status_read import Part, StatusError
from watchdog.halt.file import Stop
from watchdog.loop.enforcement import remedy_on
from watchdog.unreached import inside

# It looks for the file twice a second, and a pass that says so takes its time on a busy node.
_PATIENCE_S: Final = 6.0
_SURE_S: Final = 2.0  # what a pass of so much later says is true of the file too
_PAUSE_S: Final = 0.2
_REASON: Final = "stop_file"


class Seen(Enum):
    """What is known of a daemon and the file that came or went.

    YES: it has seen that. IDLE: nothing would be enforced without the file either, so it shows nothing of it. NO: it
    goes on as if nothing had changed. UNKNOWN: it could not be asked, or has not said.
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

    One that can't be asked, from the host of a DaemonSet say, is known by the lock that it holds beside the file.
    """
    answer = _asked(url, stop.path, stopped=stopped)
    if answer.seen is Seen.UNKNOWN and stop.is_looked_for():
        text = (
            f"a watchdog keeps its journal in {stop.path.parent}, by the lock there, and looks for this file twice a "
            f"second. It could not be asked; what it says of it: `{inside('top', '--once')}`."
        )
        return Answer(seen=Seen.YES, text=text)
    if answer.seen is Seen.IDLE and stopped:
        untold = f"Whether it looks for {stop.path} can't be told then."
        looks = f"It looks for {stop.path}." if stop.is_looked_for() else untold
        return replace(answer, text=f"{answer.text} {looks}")
    return answer


def _asked(url: str, path: Path, *, stopped: bool) -> Answer:
    changed_s = clock.now().wall_s
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            status = Part(ask_status(url, 1.0))
            answer = _stopped(status, path, changed_s) if stopped else _resumed(status, path, changed_s)
        except AskError as error:
            return Answer(seen=Seen.UNKNOWN, text=_unheard(error, "stop" if stopped else "resume"))
        except StatusError as error:
            return Answer(seen=Seen.UNKNOWN, text=f"what answers at {inert(url)} is no gpu-watchdog: {error}.")
        if answer is not None:
            return answer
        if time.monotonic() > deadline_s:
            return _undecided(status, changed_s)
        time.sleep(_PAUSE_S)


def _stopped(status: Part, path: Path, changed_s: float) -> Answer | None:
    node = _node(status)
    if _REASON in status.texts("suspended"):
        return Answer(seen=Seen.YES, text=f"the watchdog of {node} has seen {path}: nothing is enforced there.")
    if not _is_sure(status, changed_s):
        return None
    if status.flag("enforcing"):
        return Answer(seen=Seen.NO, text=_deaf(node, path, "goes on ENFORCING"))
    if status.text("mode") == "observe":
        return Answer(
            seen=Seen.IDLE,
            text=f"the watchdog of {node} only observes in any case: its policy says so.",
        )
    return Answer(seen=Seen.NO, text=_deaf(node, path, "does not see it"))


def _resumed(status: Part, path: Path, changed_s: float) -> Answer | None:
    node, suspended = _node(status), status.texts("suspended")
    if _REASON in suspended:
        if not _is_sure(status, changed_s):
            return None
        return Answer(seen=Seen.NO, text=_deaf(node, path, "sees another one"))
    if status.flag("enforcing"):
        return Answer(seen=Seen.YES, text=f"the watchdog of {node} enforces.")
    if not _is_sure(status, changed_s):
        return None
    if suspended:
        why = "; ".join(remedy_on(reason, status.text("node") or "") or inert(reason) for reason in suspended)
        return Answer(seen=Seen.IDLE, text=f"the watchdog of {node} does not enforce all the same: {why}.")
    return Answer(seen=Seen.IDLE, text=f"the watchdog of {node} only observes: its policy says so.")


def _is_sure(status: Part, changed_s: float) -> bool:
    """Whether the pass that is shown began so late that it must have known of the change."""
    return (status.moment("at") or 0.0) > changed_s + _SURE_S


def _undecided(status: Part, changed_s: float) -> Answer:
    last = status.moment("at")
    then = f" was at {clock_time(last, changed_s)}" if last is not None else " is not known"
    return Answer(
        seen=Seen.UNKNOWN,
        text=f"the last pass of the watchdog of {_node(status)}{then}, before this, so it has shown nothing of it yet; "
        "/readyz and `top` show it after its next pass.",
    )


def _deaf(node: str, path: Path, what: str) -> str:
    return (
        f"the watchdog of {node} {what}: it keeps its journal elsewhere than in {path.parent}. Name that with "
        f"--journal, or run `{inside('stop')}`."
    )


def _unheard(error: AskError, command: str) -> str:
    if isinstance(error, NoPassError):
        return f"{error}: it looks for the file `stop` beside its own journal before its first deed."
    return (
        f"whether a watchdog looks for it can't be told from here: {error}. In a DaemonSet the port is the pod's: "
        f"`{inside(command)}` asks there."
    )


def _node(status: Part) -> str:
    return f"node {inert(status.text('node') or 'unknown')}"
