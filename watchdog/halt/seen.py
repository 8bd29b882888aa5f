"""Whether the daemon of this node has seen that the stop file came or went: asked of it, for some seconds."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watchdog import clock
from watchdog.ask import AskError, NoPassError, ask_status
from watchdog.enforcement import remedy_on
from watchdog.export.phrases import clock_time, inert
from watchdog.export.status_read import Part, StatusError
from watchdog.unreached import inside

# It looks for the file twice a second, and a pass that says so takes its time on a busy node.
_PATIENCE_S: Final = 6.0
_SURE_S: Final = 2.0  # what a pass of so much later says is true of the file too
_PAUSE_S: Final = 0.2
_REASON: Final = "stop_file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the daemon shows of it, in a sentence. Not `is_well`: it goes on as if nothing had changed."""

    text: str
    is_well: bool = True


def confirm(url: str, path: Path, *, stopped: bool) -> Answer:
    """Wait until the daemon at this address shows that the file came or went, as long as that can be told."""
    changed_s = clock.now().wall_s
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            status = Part(ask_status(url, 1.0))
            answer = _stopped(status, path, changed_s) if stopped else _resumed(status, path, changed_s)
        except AskError as error:
            return Answer(text=_unheard(error, "stop" if stopped else "resume"))
        except StatusError as error:
            return Answer(text=f"What answers at {inert(url)} is no gpu-watchdog of this kind: {error}.")
        if answer is not None:
            return answer
        if time.monotonic() > deadline_s:
            return _undecided(status, changed_s)
        time.sleep(_PAUSE_S)


def _stopped(status: Part, path: Path, changed_s: float) -> Answer | None:
    node = _node(status)
    if _REASON in status.texts("suspended"):
        return Answer(text=f"The watchdog of {node} has seen it: nothing is enforced there.")
    if not _is_sure(status, changed_s):
        return None
    if status.flag("enforcing"):
        return Answer(text=_deaf(node, path, "goes on ENFORCING"), is_well=False)
    if status.text("mode") == "observe":
        return Answer(text=f"The watchdog of {node} only observes in any case: its policy says so.")
    return Answer(text=_deaf(node, path, "does not see it"), is_well=False)


def _resumed(status: Part, path: Path, changed_s: float) -> Answer | None:
    node, suspended = _node(status), status.texts("suspended")
    if _REASON in suspended:
        if not _is_sure(status, changed_s):
            return None
        return Answer(text=_deaf(node, path, "sees another one"), is_well=False)
    if status.flag("enforcing"):
        return Answer(text=f"The watchdog of {node} enforces.")
    if not _is_sure(status, changed_s):
        return None
    if suspended:
        why = "; ".join(remedy_on(reason, status.text("node") or "") or inert(reason) for reason in suspended)
        return Answer(text=f"The watchdog of {node} does not enforce all the same: {why}.")
    return Answer(text=f"The watchdog of {node} only observes: its policy says so.")


def _is_sure(status: Part, changed_s: float) -> bool:
    """Whether the pass that is shown began so late that it must have known of the change."""
    return (status.moment("at") or 0.0) > changed_s + _SURE_S


def _undecided(status: Part, changed_s: float) -> Answer:
    last = status.moment("at")
    then = f" was at {clock_time(last, changed_s)}" if last is not None else " is not known"
    return Answer(
        text=f"The last pass of the watchdog of {_node(status)}{then}, before this. It looks for the file twice "
        "a second all the same; /readyz and `top` show it after its next pass."
    )


def _deaf(node: str, path: Path, what: str) -> str:
    return (
        f"the watchdog of {node} {what}: it keeps its journal elsewhere than in {path.parent}. Name that with "
        f"--journal, or run `{inside('stop')}`"
    )


def _unheard(error: AskError, command: str) -> str:
    if isinstance(error, NoPassError):
        return f"{str(error)[:1].upper()}{str(error)[1:]}: it looks for the file before its first deed."
    return (
        f"Whether a watchdog has seen it can't be told from here: {error}. In a DaemonSet the port is the pod's: "
        f"`{inside(command)}` asks there."
    )


def _node(status: Part) -> str:
    return f"node {inert(status.text('node') or 'unknown')}"
