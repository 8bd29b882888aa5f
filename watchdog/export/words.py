"""Sentences for people: what an account uses, by which rule something follows, what is done, withheld or came of it.

They name the rule and the mark, never the number of a step, and fit the note of an Event.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from watchdog.core.findings import Assessment, Misdeclaration, Verdict
from watchdog.core.model import Now
from watchdog.core.plan import Outcome, PlanEntry, Result
from watchdog.core.policy import Do, Policy
from watchdog.core.units import format_bytes, format_duration
from watchdog.export.brake_words import NO_TIME_COUNTS, OUT_OF_DATE, letting_go, withheld_because
from watchdog.export.clauses import (
    because,
    capital,
    holder,
    later_force,
    mark,
    next_force,
    signals,
    source,
    usage,
    victims,
)
from watchdog.export.eviction_words import AGAIN, brief
from watchdog.export.idle_words import is_idle, observing_because
from watchdog.export.phrases import LONGEST_NAME, clip, inert, span

# The API server refuses an Event whose note is longer (k8s.io/kubernetes pkg/apis/core/validation/events.go).
LONGEST_NOTE: Final = 1024


def note(
    entry: PlanEntry,
    now: Now,
    *,
    observing: bool = False,
    processes: int | None = None,
    policy: Policy | None = None,
    suspended: tuple[str, ...] = (),
) -> str:
    """Say why a step is due and what follows, in at most 1 kB of UTF-8: the note of an Event.

    `observing` says that nothing will be done, `suspended` why, where the policy says enforce; `processes` is how many
    will be signalled (default: those listed). With the policy the sentence has the numbers of what holds a step back.
    """
    return fit(note_writer(entry, now, observing=observing, processes=processes, policy=policy, suspended=suspended))


def note_writer(
    entry: PlanEntry,
    now: Now,
    *,
    observing: bool = False,
    processes: int | None = None,
    policy: Policy | None = None,
    suspended: tuple[str, ...] = (),
) -> Callable[[int], str]:
    """What `note` says, as a function of the longest name that is written out; for `fit`."""

    def write(limit: int) -> str:
        why = f"{usage(entry, now, limit)} {because(entry, limit, policy)}"
        if entry.withheld_by is not None:
            return f"{why} {_withheld(entry, now, policy, limit, processes)}"
        idle = observing_because(entry.assessment, limit, policy, suspended) if observing else ""
        return f"{why} {_follow(entry, limit, idle=idle, processes=processes)}"

    return write


def outcome_note(outcome: Outcome, size: int = LONGEST_NOTE) -> str:
    """Say what came of a step, in at most `size` bytes of UTF-8 (1 kB)."""

    def write(limit: int) -> str:
        what = _OUTCOMES[outcome.result](outcome, limit)
        return f"{capital(holder(outcome.entry.assessment, limit))}: {what}{_by(outcome.entry, limit)}."

    return fit(write, size)


def delay_note(entry: PlanEntry) -> str:
    """Say that an eviction has not come about yet, and why, in at most 1 kB of UTF-8."""

    def write(limit: int) -> str:
        why = brief(entry.trying.refused, limit) if entry.trying is not None else ""
        what = f"{_deed(_VERBS[entry.do].doing, entry, None, limit)} has not come about yet {AGAIN}: {why}"
        return f"{capital(holder(entry.assessment, limit))}: {what}{_by(entry, limit)}."

    return fit(write)


def release_note(outcome: Outcome) -> str:
    """Say when the memory of a kill was seen free, or that it was not, in at most 1 kB of UTF-8."""

    def write(limit: int) -> str:
        title = capital(holder(outcome.entry.assessment, limit))
        if outcome.release_s is not None:
            return f"{title}: its memory was free again {span(outcome.release_s)} after {_beginning(outcome.entry)}."
        return f"{title}: its memory has not been seen free again{_reason(outcome, limit)}."

    return fit(write)


def misdeclared_note(assessment: Assessment, skipped: Misdeclaration, size: int = LONGEST_NOTE) -> str:
    """Say which declaration of a pod was skipped, why, and what holds instead, in at most `size` bytes of UTF-8."""
    pod = inert(assessment.pod.title)
    if assessment.verdict is Verdict.MISDECLARED:
        instead = "No other declaration holds, so the pod is measured and left alone."
    elif assessment.declared is None:
        instead = "Nothing is declared instead, so the pod is measured and left alone."
    else:
        instead = f"{format_bytes(assessment.declared)} {source(assessment)} holds instead."
    why = inert(skipped.why, 400)
    end = "" if why.endswith(("?", ".")) else "."
    return clip(f"Pod {pod}: {inert(skipped.source)} is skipped: {why}{end} {instead}", size)


def forecast(
    entry: PlanEntry, now: Now, policy: Policy | None = None, suspended: tuple[str, ...] = (), *, stale: bool = False
) -> str:
    """Say which step of whose comes when, or what holds it back: a line of a plan.

    `suspended`: why nothing is done although the policy enforces; `stale`: the pod list is too old; no timer runs.
    """

    def write(limit: int) -> str:
        idle = is_idle(entry.assessment, policy, suspended)
        deed = _deed(_VERBS[entry.do].base, entry, None, limit)
        how = f" ({signals(entry.definition)})" if entry.do is Do.KILL else ""
        nothing = ""
        if entry.withheld_by is not None:
            then = " then" if entry.due_in_s > 0 else ""
            nothing = f" Held back{then}{letting_go(entry, now)}, because {withheld_because(entry, policy, limit)}."
        elif idle:
            nothing = f" Nothing will be done: {observing_because(entry.assessment, limit, policy, suspended)}."
        who = capital(holder(entry.assessment, limit))
        why = because(entry, limit, policy, in_bytes=True)
        still = f" {OUT_OF_DATE}: {NO_TIME_COUNTS}." if stale and entry.due_in_s > 0 else ""
        return f"{who}, {_when(entry)}: {'would ' if idle else ''}{deed}{how}. {why}{nothing}{still}"

    return fit(write)


def _when(entry: PlanEntry) -> str:
    return f"in {span(entry.due_in_s)}" if entry.due_in_s > 0 else "due now"


def _withheld(entry: PlanEntry, now: Now, policy: Policy | None, limit: int, processes: int | None) -> str:
    doing = _deed(_VERBS[entry.do].doing, entry, processes, limit)
    when = f"would be due in {span(entry.due_in_s)}" if entry.due_in_s > 0 else "is due"
    held = f"held back{' then' if entry.due_in_s > 0 else ''}{letting_go(entry, now)}"
    return f"Not acted on: {doing} {when} but {held}, because {withheld_because(entry, policy, limit)}."


def _follow(entry: PlanEntry, limit: int, *, idle: str, processes: int | None) -> str:
    """What follows; `idle` says why nothing does (empty: it does)."""
    verb = _VERBS[entry.do]
    if entry.do is Do.WARN:
        return f"{'Would warn' if idle else 'This is a warning'}: {_outlook(entry, limit, idle)}."
    how = f": {signals(entry.definition)}" if entry.do is Do.KILL else ""
    if idle:
        return f"Would {_deed(verb.base, entry, processes, limit)}{how}. Nothing is done: {idle}."
    return f"{capital(_deed(verb.doing, entry, processes, limit))}{how}."


def _outlook(entry: PlanEntry, limit: int, idle: str) -> str:
    """What comes after a warning: what the rule does, or why nothing will be done to this pod."""
    why, later = entry.assessment.protected, later_force(entry.rule, entry.step)
    if later is not None and why is not None:
        return f"nothing more follows, since this pod is protected ({inert(why, limit)})"
    rule = next_force(entry.rule, entry.step, entry.assessment.allowed)
    if later is None:
        return rule
    observing = idle or (observing_because(entry.assessment, limit) if entry.assessment.observes else "")
    return f"{rule}; nothing will be done: {observing}" if observing else rule


def _by(entry: PlanEntry, limit: int) -> str:
    return f" (rule {inert(entry.rule.name, limit)}, {mark(entry)})"


def _reason(outcome: Outcome, limit: int) -> str:
    return f": {brief(outcome.reason, limit)}" if outcome.reason else ""


class _Verb(NamedTuple):
    base: str
    doing: str
    done: str


_VERBS: Final = {
    Do.WARN: _Verb("warn", "warning", "warned"),
    Do.KILL: _Verb("kill", "killing", "killed"),
    Do.EVICT: _Verb("evict", "evicting", "evicted"),
}


def _deed(verb: str, entry: PlanEntry, processes: int | None, limit: int) -> str:
    if entry.do is Do.KILL:
        return f"{verb} {victims(entry, processes, limit)}"
    grace = format_duration(entry.definition.grace_s)
    return f"{verb} the pod with a grace period of {grace}" if entry.do is Do.EVICT else verb


def _tried(outcome: Outcome, limit: int) -> str:
    return _deed(_VERBS[outcome.entry.do].doing, outcome.entry, len(outcome.signalled) or None, limit)


def _done(outcome: Outcome, limit: int) -> str:
    begun = _beginning(outcome.entry)
    freed = f"; the memory was free {span(outcome.release_s)} after {begun}" if outcome.release_s else ""
    done = _deed(_VERBS[outcome.entry.do].done, outcome.entry, len(outcome.signalled) or None, limit)
    return f"{done}{_reason(outcome, limit)}{freed}"


def _beginning(entry: PlanEntry) -> str:
    return "the eviction was accepted" if entry.do is Do.EVICT else "the first signal"


def _observed(outcome: Outcome, limit: int) -> str:
    done = _deed(_VERBS[outcome.entry.do].done, outcome.entry, None, limit)
    if outcome.entry.assessment.observes:
        return f"would have {done}, but {observing_because(outcome.entry.assessment, limit)}{_reason(outcome, limit)}"
    return f"observe mode would have {done}{_reason(outcome, limit)}"


_OUTCOMES: Final[dict[Result, Callable[[Outcome, int], str]]] = {
    Result.DONE: _done,
    Result.FAILED: lambda outcome, limit: f"{_tried(outcome, limit)} failed{_reason(outcome, limit)}",
    Result.BLOCKED: lambda outcome, limit: f"{_tried(outcome, limit)} is blocked {AGAIN}{_reason(outcome, limit)}",
    Result.GONE: lambda outcome, limit: f"{_tried(outcome, limit)} was not needed any more{_reason(outcome, limit)}",
    Result.INTERRUPTED: lambda outcome, limit: f"{_tried(outcome, limit)} was interrupted{_reason(outcome, limit)}",
    Result.OBSERVED: _observed,
}


def fit(write: Callable[[int], str], size: int = LONGEST_NOTE) -> str:
    """Write with names as long as they are, or shorter where it would not fit the note of an Event, or `size` bytes."""
    for limit in (LONGEST_NAME, 63):
        text = write(limit)
        if len(text.encode("utf-8", errors="replace")) <= size:
            return text
    return clip(write(24), size)
