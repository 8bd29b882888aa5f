"""The notes of Events: what `kubectl describe pod` shows to somebody who has never heard of this daemon.

Each begins with what happened, in the words of the log, and goes on with what follows, what to do and whom to ask.
"""

from collections.abc import Callable, Sequence
from typing import Final

from watchdog.core.eviction import GIVE_UP_AFTER_S
from watchdog.core.findings import Assessment, Misdeclaration
from watchdog.core.model import Now
from watchdog.core.plan import CycleReport, Outcome, PlanEntry, Result
from watchdog.core.policy import Do, Policy
from watchdog.core.units import format_duration
from watchdog.export.advice import advice
from watchdog.export.idle_words import observing_because
from watchdog.export.phrases import clip, inert, said
from watchdog.export.words import LONGEST_NOTE, fit, misdeclared_note, note_writer, outcome_note

# What happened has the larger part of a note; of the rest whatever is too long is left out, whom to ask as the last.
_REST: Final = 600
_LONGEST_CONTACT: Final = 300
_LONGEST_REASON: Final = 250
_AGAIN: Final = f"It is tried again for {format_duration(GIVE_UP_AFTER_S)} at most."
_NOT_OOM: Final = "Kubernetes does not show this as OOMKilled."


def due_note(
    entry: PlanEntry, at: Now, report: CycleReport, *, observing: bool = False, processes: int | None = None
) -> str:
    """Say what a pod uses and what follows: a warning, a kill at its first signal, an eviction, a step held back.

    `observing` says that nothing is done to it.
    """
    policy, suspended = report.policy, report.suspended

    write = note_writer(entry, at, observing=observing, processes=processes, policy=policy, suspended=suspended)

    def head(size: int) -> str:
        return fit(write, size)

    rest = [_besides(entry, report)] if observing else [_afterwards(entry), _not_oom(entry)]
    return _whole(head, [*rest, _remedy(entry, policy), _contact(policy)])


def blocked_note(outcome: Outcome, report: CycleReport) -> str:
    """Say that an eviction was not possible, and why."""
    entry, policy = outcome.entry, report.policy
    why = outcome.for_owner or outcome.reason
    reason = f": {clip(said(why, _LONGEST_REASON), _LONGEST_REASON)}" if why else ""
    end = f"The eviction is blocked{reason}. {_AGAIN}" if outcome.result is Result.BLOCKED else f"It failed{reason}."

    def head(size: int) -> str:
        return f"{fit(note_writer(entry, outcome.at, policy=policy), size - _size(end))} {end}"

    return _whole(head, [_remedy(entry, policy), _contact(policy)])


def ended_note(outcome: Outcome, policy: Policy) -> str:
    """Say what came of a kill or an eviction: its memory free after so long, not seen free in time, or failed."""

    def head(size: int) -> str:
        return outcome_note(outcome, size)

    return _whole(head, [_contact(policy)])


def wrong_note(assessment: Assessment, skipped: Misdeclaration, report: CycleReport) -> str:
    """Say which declaration was skipped, and what holds instead."""
    correct = "Correct it where the pod is defined."

    def head(size: int) -> str:
        return misdeclared_note(assessment, skipped, size)

    return _whole(head, [correct, _contact(report.policy)])


def is_idle_for(assessment: Assessment, report: CycleReport) -> bool:
    """Whether nothing is done to this account: the daemon, or the account's rule, only observes now."""
    return not report.enforcing or assessment.observes


def _whole(head: Callable[[int], str], rest: Sequence[str]) -> str:
    """What happened, and of the rest as much as there is room for, from its end on."""
    kept: list[str] = []
    room = _REST
    for sentence in reversed([each for each in rest if each]):
        if _size(sentence) <= room:
            kept.insert(0, sentence)
            room -= _size(sentence)
    return clip(" ".join([head(LONGEST_NOTE - _REST + room), *kept]), LONGEST_NOTE)


def _size(sentence: str) -> int:
    """Bytes of a sentence with the space before it."""
    return len(sentence.encode("utf-8", errors="replace")) + 1


def _besides(entry: PlanEntry, report: CycleReport) -> str:
    """Of a step that is held back, nobody has said yet that nothing would be done anyway."""
    if entry.withheld_by is None:
        return ""
    why = observing_because(entry.assessment, 63, report.policy, report.suspended)
    return f"Nothing would be done anyway: {why}."


def _afterwards(entry: PlanEntry) -> str:
    if entry.withheld_by is not None:
        return ""
    owner = entry.assessment.pod.owner
    if entry.do is Do.EVICT:
        who = f"its {inert(owner.kind, 63)} {inert(owner.name, 63)}" if owner is not None else ""
        return f"Whether another pod takes its place is up to {who}." if who else "Nothing puts another in its place."
    if entry.do is Do.KILL and entry.definition.scope != "process":
        return "Whether it is started again is up to the pod's restart policy."
    return ""


def _not_oom(entry: PlanEntry) -> str:
    return _NOT_OOM if entry.do is Do.KILL and entry.withheld_by is None else ""


def _remedy(entry: PlanEntry, policy: Policy) -> str:
    remedy = advice(entry.assessment, policy, under_pressure=entry.definition.under_pressure)
    return f"To stay within what is allowed, {remedy}."


def _contact(policy: Policy) -> str:
    return f"Questions: ask {clip(inert(policy.contact), _LONGEST_CONTACT)}." if policy.contact else ""
