"""The notes of Events: what `kubectl describe pod` shows to somebody who has never heard of this daemon.

Each begins with what happened, in the words of the log, and goes on with what follows, what to do and whom to ask.
"""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from watchdog.core.assessment import Assessment, Misdeclaration
from watchdog.core.declare import CONTAINER
from watchdog.core.eviction import GIVE_UP_AFTER_S
from watchdog.core.model import Now
from watchdog.core.plan import CycleReport, Outcome, PlanEntry, Result
from watchdog.core.policy import Do, Policy
from watchdog.core.units import format_duration
from watchdog.export.advice import advice
from watchdog.export.clauses import shown_as
from watchdog.export.declaring import unit_words
from watchdog.export.idle_words import observing_because
from watchdog.export.note_words import LONGEST_NOTE, fit
from watchdog.export.outcome_words import outcome_note
from watchdog.export.phrases import LONGEST_NAME, clip, inert, said
from watchdog.export.words import begun_writer, misdeclared_note, note_writer

# Of a note what happened has 424 bytes at least. Of the rest what is too long is left out: first which container was
# taken and what comes after, then what to change, last whom to ask.
_REST: Final = 600
_LONGEST_CONTACT: Final = 300
_NAMES: Final = (LONGEST_NAME, 100, 63, 24)  # characters of a name, until it fits
_NOBODY_NAMED: Final = "the operator of this cluster"  # as config/render.py announces
_LONGEST_REASON: Final = 250
_AGAIN: Final = f"It is tried again for {format_duration(GIVE_UP_AFTER_S)} at most."


def due_note(
    entry: PlanEntry, at: Now, report: CycleReport, *, observing: bool = False, processes: int | None = None
) -> str:
    """Say what a pod uses and what follows: a warning, a kill at its first signal, an eviction, a step held back.

    `observing` says that nothing is done to it.
    """
    policy, suspended = report.policy, report.suspended

    write = note_writer(entry, at, observing=observing, processes=processes, policy=policy, suspended=suspended)
    if entry.do is Do.KILL and processes is not None and not entry.definition.grace_s:
        # SIGKILL at once: whoever reads of it reads of processes that have ended.
        write = begun_writer(entry, at, processes, policy)

    def head(size: int) -> str:
        return fit(write, size)

    rest = [_besides(entry, report)] if observing else [_chosen(entry), _afterwards(entry), _shown_as(entry)]
    return _whole(head, [*rest, _remedy(entry, report), _contact(policy)])


def blocked_note(outcome: Outcome, report: CycleReport) -> str:
    """Say that an eviction was not possible, and why."""
    entry, policy = outcome.entry, report.policy
    why = outcome.for_owner or outcome.reason
    reason = f": {clip(said(why, _LONGEST_REASON), _LONGEST_REASON)}" if why else ""
    end = f"The eviction is blocked{reason}. {_AGAIN}" if outcome.result is Result.BLOCKED else f"It failed{reason}."

    def head(size: int) -> str:
        return f"{fit(note_writer(entry, outcome.at, policy=policy), size - _size(end))} {end}"

    return _whole(head, [_remedy(entry, report), _contact(policy)])


def ended_note(outcome: Outcome, policy: Policy) -> str:
    """Say what came of a kill or an eviction: its memory free after so long, not seen free in time, or failed."""

    def head(size: int) -> str:
        return outcome_note(outcome, size)

    owner = outcome.entry.assessment.pod.owner
    is_of_job = owner is not None and owner.kind == "Job" and outcome.result is Result.DONE
    is_asked = outcome.entry.definition.scope != "process" and any(each.signal == "SIGTERM" for each in outcome.sent)
    return _whole(head, [shown_as(outcome.entry, past=True) if is_of_job and is_asked else "", _contact(policy)])


def wrong_note(assessment: Assessment, skipped: Misdeclaration, report: CycleReport) -> str:
    """Say which declaration was skipped, what holds instead, and how its number is read."""
    correct = f"{_read_as(skipped, report.policy)}Correct it where the pod is defined."

    def head(size: int) -> str:
        return misdeclared_note(assessment, skipped, size)

    return _whole(head, [correct, _contact(report.policy)])


def is_idle_for(assessment: Assessment, report: CycleReport) -> bool:
    """Whether nothing is done to this account: the daemon, or the account's rule, only observes now."""
    return not report.enforcing or assessment.observes


def _whole(head: Callable[[int], str], rest: Sequence[str | Callable[[int], str]]) -> str:
    """What happened, and of the rest as much as there is room for, from its end on.

    A function writes with names of at most so many characters.
    """
    kept: list[str] = []
    room = _REST
    for part in reversed(rest):
        sentence = part if isinstance(part, str) else _fitting(part, room)
        if sentence and _size(sentence) <= room:
            kept.insert(0, sentence)
            room -= _size(sentence)
    return clip(" ".join([head(LONGEST_NOTE - _REST + room), *kept]), LONGEST_NOTE)


def _fitting(write: Callable[[int], str], room: int) -> str:
    return next((text for limit in _NAMES if _size(text := write(limit)) <= room), "")


def _size(sentence: str) -> int:
    """Bytes of a sentence with the space before it."""
    return len(sentence.encode("utf-8", errors="replace")) + 1


def _besides(entry: PlanEntry, report: CycleReport) -> str:
    """Of a step that is held back, nobody has said yet that nothing would be done anyway."""
    if entry.withheld_by is None:
        return ""
    why = observing_because(entry.assessment, 63, report.policy, report.suspended)
    return f"Nothing would be done anyway: {why}."


def _chosen(entry: PlanEntry) -> str:
    """Why it is this container of several that is hit."""
    shares = [share for share in entry.assessment.shares if share.container]
    own = entry.definition.scope != "pod" and entry.assessment.account.container is None
    if entry.do is not Do.KILL or entry.withheld_by is not None or not own or len(shares) < 2:
        return ""
    return f"Of its containers {inert(entry.victim, 63)} is the furthest above what it declares itself."


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


def _shown_as(entry: PlanEntry) -> str:
    """How Kubernetes shows the end: the kubelet does not know whose signal it was."""
    if entry.do is not Do.KILL or entry.withheld_by is not None:
        return ""
    return shown_as(entry)


def _remedy(entry: PlanEntry, report: CycleReport) -> Callable[[int], str]:
    assessment, pressed = entry.assessment, entry.definition.under_pressure
    who = "pod" if assessment.account.container is None else "container"
    none = f"The {who} declares no GPU memory. " if assessment.declared_by == "default" else ""

    def write(limit: int) -> str:
        gpus = report.snapshot.gpus
        what = advice(assessment, report.policy, under_pressure=pressed, gpus=gpus, limit=limit)
        return f"{none}To stay within what is allowed, {what}."

    return write


def _read_as(skipped: Misdeclaration, policy: Policy) -> str:
    """How the number of a declaration is read; empty where it is not known which one that is."""
    key = skipped.source.rpartition(" of ")[0]
    for declaration in policy.declarations:
        patterns = (declaration.key.replace(CONTAINER, "*"), declaration.limit_annotation.replace(CONTAINER, "*"))
        if any(fnmatchcase(key, pattern) for pattern in patterns):
            return f"Under {inert(key, 63)} {unit_words(declaration)}. "
    return ""


def _contact(policy: Policy) -> str:
    return f"Questions: ask {clip(inert(policy.contact or _NOBODY_NAMED), _LONGEST_CONTACT)}."
