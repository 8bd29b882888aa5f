"""Actions in words, from the first signal to the memory seen free: what is done to whom, and how it ended."""

from collections.abc import Sequence
from typing import Final, assert_never

from watchdog.core.model import Owner
from watchdog.core.plan import Outcome, PlanEntry, Result, Sent
from watchdog.core.policy import Do
from watchdog.core.units import format_duration
from watchdog.report.sentences.brakes import AGAIN, brief, observing_because
from watchdog.report.sentences.usage import threshold_text, title
from watchdog.report.status import AccountStatus, PlanStatus, Status, StepStatus, UnderWayStatus
from watchdog.report.text import LONGEST_NAME, LONGEST_NOTE, capital, clock_time, count, fit, inert, span

# How an action ended that did not do what it was meant to.
ENDINGS: Final[dict[str, str]] = {
    Result.FAILED: "failed",
    Result.BLOCKED: "is blocked",
    Result.GONE: "was no longer needed",
    Result.INTERRUPTED: "was interrupted",
    Result.WITHDRAWN: "was withdrawn",
    Result.OBSERVED: "was only observed",
}


def acted(verb: str, entry: PlanEntry, processes: int | None, limit: int) -> str:
    """A verb with what it is done to."""
    match entry.do:
        case Do.WARN:
            return verb
        case Do.KILL:
            return f"{verb} {victims(entry, processes, limit)}"
        case Do.EVICT:
            return f"{verb} the pod with a grace period of {format_duration(entry.definition.grace_s)}"
        case _:
            assert_never(entry.do)


def victims(entry: PlanEntry, processes: int | None = None, limit: int = LONGEST_NAME) -> str:
    """Name what a kill is aimed at: `3 processes of container main`."""
    number = len(entry.targets) if processes is None else processes
    who = count(number, "process", "processes") if number else "the processes"
    if entry.definition.scope == "pod":
        return f"{who} in all containers of the pod"
    return f"{who} of container {inert(entry.victim, limit)}" if entry.victim else f"{who} of the pod"


def victims_planned(entry: PlanStatus) -> str:
    """Name what a planned action is aimed at: `all processes of container main`, `the pod`."""
    whose = f"container {inert(entry.container)}" if entry.container else "the pod"
    match entry.do:
        case Do.WARN:
            return "its owner"
        case Do.EVICT:
            return "the pod"
        case Do.KILL if entry.scope == "pod":
            return "all processes in the containers of the pod"
        case Do.KILL:
            return f"the largest GPU process of {whose}" if entry.scope == "process" else f"all processes of {whose}"
        case _:
            assert_never(entry.do)


def aim(step: StepStatus, account: AccountStatus) -> str:
    """Whom a step that is not above its threshold would hit."""
    match step.do:
        case Do.WARN:
            return ""
        case Do.EVICT:
            return " the pod"
        case Do.KILL if step.scope == "pod":
            return " all containers"
        case Do.KILL:
            return _killed(step, account)
        case _:
            assert_never(step.do)


def _killed(step: StepStatus, account: AccountStatus) -> str:
    only = {process.container or "" for process in account.processes} | {account.container}
    named = sorted(name for name in only if name)
    whose = f"container {inert(named[0])}" if len(named) == 1 else "the container furthest over its own declaration,"
    return f" the largest GPU process of {whose}" if step.scope == "process" else f" {whose}"


def signals(grace_s: float) -> str:
    """The signals of a kill: `SIGTERM, then SIGKILL after 10s`."""
    return f"SIGTERM, then SIGKILL after {format_duration(grace_s)}" if grace_s else "SIGKILL immediately"


def sent_signals(sent: Sequence[Sent]) -> str:
    """Which signals were really sent: `SIGTERM`, `SIGTERM, and 1 process SIGKILL after 10s`."""
    first, *others = sent or (None,)
    if first is None:
        return "no signal"
    if not others:
        return first.signal
    (last,) = others
    whose = "then" if first.keys <= last.keys else f"and {count(len(last.keys), 'process', 'processes')}"
    return f"{first.signal}, {whose} {last.signal} after {span(last.after_s)}"


def shown_as(entry: PlanEntry, *, past: bool = False) -> str:
    """How Kubernetes shows the end of a kill, as a sentence that is true whatever the program does on SIGTERM."""
    step, owner = entry.definition, entry.assessment.pod.owner
    exits, is_main = ("exited", "was") if past else ("exits", "is")
    job = " (its Job counts that as success)" if owner is not None and owner.kind == "Job" else ""
    codes = f"Error (exit code 143 or 137), or Completed if its main process {exits} with 0{job}"
    codes = codes if step.grace_s else "Error (exit code 137)"
    if step.scope == "process":
        return (
            f"The container ends only if this {is_main} its main process. Kubernetes then shows {codes}, not OOMKilled."
        )
    if not step.grace_s:
        return f"Kubernetes shows this as {codes}, not as OOMKilled."
    return f"Kubernetes does not report OOMKilled. The container shows {codes}."


def replaced_by(owner: Owner, limit: int = LONGEST_NAME) -> str:
    """Who decides whether an evicted pod is replaced: `replacing the pod is up to its Job train`."""
    return f"replacing the pod is up to its {inert(owner.kind, limit)} {inert(owner.name, limit)}"


def under_way_sentence(under_way: UnderWayStatus, status: Status) -> str:
    """What an action that has begun has come to: the signals, and that its memory is waited for."""
    match under_way.do:
        case Do.WARN:
            return "A warning is being given."
        case Do.EVICT:
            return _eviction(under_way.grace_s or 0, status)
        case Do.KILL | None:  # None: by a step that the rule does not have any more
            return _kill(under_way, status)
        case _:
            assert_never(under_way.do)


def _kill(under_way: UnderWayStatus, status: Status) -> str:
    whose = f"container {inert(under_way.container)}" if under_way.container is not None else "this pod"
    got = _got(under_way, under_way.grace_s or 0, status)
    timeout_s = status.release_timeout_s
    waits = f" up to {format_duration(timeout_s)}" if timeout_s else ""
    return (
        f"A kill of {whose} is in progress: its processes {got}; the watchdog then waits{waits} for their memory to be "
        "freed."
    )


def _eviction(grace_s: float, status: Status) -> str:
    timeout_s = status.release_timeout_s
    waits = f" up to {format_duration(timeout_s)}" if timeout_s else ""
    return (
        f"An eviction of this pod is in progress: the API server has accepted it. Its containers have "
        f"{format_duration(grace_s)} to exit; the watchdog then waits{waits} for its memory to be freed."
    )


def _got(under_way: UnderWayStatus, grace_s: float, status: Status) -> str:
    """Which signal came, and which one comes when, as what its processes did."""
    killed, now = under_way.sigkill_at, status.at
    begun, sent, has_ended = under_way.begun_at, under_way.signals, under_way.ended
    if has_ended and not sent:
        return "had ended before a signal was sent"
    if not grace_s:
        # A grace that a stronger step has ended: when is not told.
        at = f" at {clock_time(killed, now)}" if killed is not None and now is not None and killed <= now else ""
        return f"got {' and '.join(sent) or 'SIGKILL'}{at}{' and have ended' * has_ended}"
    got = f"got SIGTERM at {clock_time(begun, now)}" if begun is not None and now is not None else "got SIGTERM"
    if has_ended and "SIGKILL" not in sent:
        return f"{got} and have ended"
    at = f"after {format_duration(grace_s)}"
    is_past = killed is not None and now is not None and killed <= now
    if killed is not None and now is not None:
        at = f"at {clock_time(killed, now)}"
    left = "got" if "SIGKILL" in sent else "were due" if is_past or status.hangs_since is not None else "get"
    return f"{got}, and those still running {left} SIGKILL {at}"


def _by(entry: PlanEntry, limit: int) -> str:
    """By which rule and threshold, in brackets."""
    return f" (rule {inert(entry.rule.name, limit)}, {threshold_text(entry)})"


def outcome_note(outcome: Outcome, size: int = LONGEST_NOTE) -> str:
    """Say what came of a step, in at most `size` bytes of UTF-8 (1 kB)."""

    def write(limit: int) -> str:
        what = _result(outcome, limit)
        return f"{capital(title(outcome.entry.assessment, limit))}: {what}{_by(outcome.entry, limit)}."

    return fit(write, size)


def _result(outcome: Outcome, limit: int) -> str:
    match outcome.result:
        case Result.DONE:
            return _done(outcome, limit)
        case Result.OBSERVED:
            return _observed(outcome, limit)
        case _:
            tried = acted(outcome.entry.do.verb.doing, outcome.entry, len(outcome.signalled) or None, limit)
            again = f" {AGAIN}" if outcome.result is Result.BLOCKED else ""
            return f"{tried} {ENDINGS[outcome.result]}{again}{_reason(outcome, limit)}"


def _done(outcome: Outcome, limit: int) -> str:
    begun = outcome.entry.do.first_effect
    freed = f"; the memory was free {span(outcome.release_s)} after {begun}" if outcome.release_s else ""
    done = acted(outcome.entry.do.verb.done, outcome.entry, len(outcome.signalled) or None, limit)
    how = f" with {sent_signals(outcome.sent)}" if outcome.sent else ""
    return f"{done}{how}{_reason(outcome, limit)}{freed}"


def _observed(outcome: Outcome, limit: int) -> str:
    done = acted(outcome.entry.do.verb.done, outcome.entry, None, limit)
    if outcome.entry.assessment.observes:
        return f"would have {done}, but {observing_because(outcome.entry.assessment, limit)}{_reason(outcome, limit)}"
    return f"observe mode would have {done}{_reason(outcome, limit)}"


def delay_note(entry: PlanEntry) -> str:
    """Say that an eviction has not come about yet, and why, in at most 1 kB of UTF-8."""

    def write(limit: int) -> str:
        why = brief(entry.pending_eviction.refused, limit) if entry.pending_eviction is not None else ""
        what = f"{acted(entry.do.verb.doing, entry, None, limit)} has not succeeded yet {AGAIN}: {why}"
        return f"{capital(title(entry.assessment, limit))}: {what}{_by(entry, limit)}."

    return fit(write)


def release_note(outcome: Outcome) -> str:
    """Say when the memory of a kill was seen free, or that it was not, in at most 1 kB of UTF-8."""

    def write(limit: int) -> str:
        subject = capital(title(outcome.entry.assessment, limit))
        if outcome.release_s is not None:
            return (
                f"{subject}: its memory was free again {span(outcome.release_s)} after {outcome.entry.do.first_effect}."
            )
        return f"{subject}: its memory is not confirmed free{_reason(outcome, limit)}."

    return fit(write)


def _reason(outcome: Outcome, limit: int) -> str:
    return f": {brief(outcome.reason, limit)}" if outcome.reason else ""
