"""Events on pods: which changes are reported to their owners, and in which form."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final, assert_never

from watchdog.core.assessment import Assessment, Misdeclaration
from watchdog.core.declare import CONTAINER
from watchdog.core.eviction import GIVE_UP_AFTER_S
from watchdog.core.model import Now, Pod
from watchdog.core.plan import CycleReport, Outcome, PlanEntry, Result
from watchdog.core.policy import Do, Policy
from watchdog.core.units import format_duration
from watchdog.kube.events import SERIES_GAP_S, PodEvent
from watchdog.report.advice import advice, unit_words
from watchdog.report.changes import Change, ChangeKind, action_events, is_for_owner, is_idle_for
from watchdog.report.sentences.action import outcome_note, replaced_by, shown_as
from watchdog.report.sentences.brakes import observing_because
from watchdog.report.sentences.following import begun_writer, misdeclared_note, note_writer
from watchdog.report.sentences.usage import terms, threshold_text
from watchdog.report.text import LONGEST_NAME, LONGEST_NOTE, capital, clip, fit, inert, said

OVER_LIMIT: Final = "GPUMemoryOverLimit"
KILLED: Final = "GPUMemoryKilled"
RELEASED: Final = "GPUMemoryReleased"
EVICTED: Final = "GPUMemoryEvicted"
EVICTION_BLOCKED: Final = "GPUMemoryEvictionBlocked"
WITHHELD: Final = "GPUMemoryWithheld"
MISDECLARED: Final = "GPUMemoryMisdeclared"
ACTIONS: Final = {
    OVER_LIMIT: "Warn",
    KILLED: "Kill",
    RELEASED: "Release",
    EVICTED: "Evict",
    EVICTION_BLOCKED: "Evict",
    WITHHELD: "Withhold",
    MISDECLARED: "Warn",
}
_PREFIX: Final = "gpu-memory-watchdog/"
# An eviction that is blocked is tried again with back-off, for as long as the API server keeps an Event by default.
_BLOCKED_AGAIN_S: Final = 3600.0


def outcome_event(entry: PlanEntry, reason: str, outcome: Outcome, text: str, would: str = "") -> PodEvent:
    """The Event of an outcome; that it ended in another way makes it no repetition of the last."""
    released = outcome.release_s is not None
    more = {"would": would}
    detail = would
    if reason in (RELEASED, EVICTION_BLOCKED):
        more["result"] = outcome.result.value
        more["release-seconds"] = f"{outcome.release_s:.3f}" if outcome.release_s is not None else ""
        detail = f"{outcome.result.value} {released}"
    return pod_event(entry, reason, text, outcome.at.wall_s, detail=detail, more=more)


def pod_event(entry: PlanEntry, reason: str, text: str, at_s: float, *, detail: str, more: dict[str, str]) -> PodEvent:
    """The Event of a step; `detail` is what makes another occurrence of it no repetition, `more` are annotations."""
    assessment = entry.assessment
    again_s = _BLOCKED_AGAIN_S if reason == EVICTION_BLOCKED else SERIES_GAP_S
    if entry.do is Do.WARN:
        again_s += entry.definition.repeat_s
    account, threshold = assessment.account, threshold_text(entry)
    return PodEvent(
        namespace=assessment.pod.namespace,
        pod=assessment.pod.name,
        uid=_uid(assessment.pod),
        reason=reason,
        action=ACTIONS[reason],
        note=text,
        at_s=at_s,
        key=(account.uid, reason, account.container or "", account.gpu or "", entry.rule.name, threshold, detail),
        is_normal=reason == RELEASED,
        again_within_s=again_s,
        annotations=_annotations(
            used=assessment.used,
            declared=terms(entry).declared,
            allowed=terms(entry).allowed,
            gpu=_gpus(assessment),
            container=_container(entry),
            rule=entry.rule.name,
            mark=threshold,
            **more,
        ),
    )


def misdeclared(assessment: Assessment, skipped: Misdeclaration, text: str, at_s: float) -> PodEvent:
    """The Event of a declaration that was skipped."""
    return PodEvent(
        namespace=assessment.pod.namespace,
        pod=assessment.pod.name,
        uid=_uid(assessment.pod),
        reason=MISDECLARED,
        action=ACTIONS[MISDECLARED],
        note=text,
        at_s=at_s,
        key=(assessment.account.uid, MISDECLARED, skipped.source, skipped.why),
        once=True,
        annotations=_annotations(
            used=assessment.used,
            declared=assessment.declared,
            allowed=assessment.allowed,
            gpu=_gpus(assessment),
            container=assessment.account.container,
            rule=assessment.rule.name if assessment.rule is not None else None,
        ),
    )


def _uid(pod: Pod) -> str:
    """Events of a static pod carry its hash: by that the kubelet writes its own, and `kubectl describe` looks for them.

    PodDescriber.Describe in k8s.io/kubectl/pkg/describe, CreateMirrorPod in k8s.io/kubernetes/pkg/kubelet/pod.
    """
    return pod.config_hash if pod.static and pod.config_hash else pod.uid


def _gpus(assessment: Assessment) -> str:
    return ",".join(sorted({use.gpu for use in assessment.uses}))


def _container(entry: PlanEntry) -> str | None:
    """The container that it is about; none where it is about the whole pod."""
    own = entry.assessment.account.container
    return own if entry.do.enforces and entry.hits_whole_pod else entry.victim or own


def _annotations(**values: str | int | None) -> dict[str, str]:
    """Annotations for machines, amounts in plain bytes; what is unknown is left out."""
    known = {name: value for name, value in values.items() if value is not None and value != ""}
    return {f"{_PREFIX}{name}": inert(str(value), 4096) for name, value in known.items()}


# Of a note what happened has 424 bytes at least. Of the rest what is too long is left out: first which container was
# taken and what comes after, then what to change, last whom to ask.
_REST: Final = 600
_LONGEST_CONTACT: Final = 300
_NAMES: Final = (LONGEST_NAME, 100, 63, 24)  # characters of a name, until it fits
_DEFAULT_CONTACT: Final = "the operator of this cluster"  # as config/render.py announces
_LONGEST_REASON: Final = 250
_AGAIN: Final = f"It is retried for up to {format_duration(GIVE_UP_AFTER_S)}."


def due_note(
    entry: PlanEntry, at: Now, report: CycleReport, *, observing: bool = False, processes: int | None = None
) -> str:
    """Say what a pod uses and what follows: a warning, a kill at its first signal, an eviction, a step held back.

    `observing` says that nothing is done to it.
    """
    policy, suspended = report.policy, report.suspended

    write = note_writer(entry, at, observing=observing, processes=processes, policy=policy, suspended=suspended)
    if entry.do is Do.KILL and processes is not None and not entry.definition.grace_s:
        # SIGKILL at once: the reader learns of processes that have ended.
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
    correct = f"{_read_as(skipped, report.policy)}Correct it in the pod's manifest."

    def head(size: int) -> str:
        return misdeclared_note(assessment, skipped, size)

    return _whole(head, [correct, _contact(report.policy)])


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
    """Of a step that is held back, it has not been said yet that no action would be taken anyway."""
    if entry.withheld_by is None:
        return ""
    why = observing_because(entry.assessment, 63, report.policy, report.suspended)
    return f"No action would be taken anyway: {why}."


def _chosen(entry: PlanEntry) -> str:
    """Why it is this container of several that is hit."""
    shares = [share for share in entry.assessment.shares if share.container]
    own = entry.definition.scope != "pod" and entry.assessment.account.container is None
    if entry.do is not Do.KILL or entry.withheld_by is not None or not own or len(shares) < 2:
        return ""
    return f"Of its containers, {inert(entry.victim, 63)} exceeds its own declaration by the most."


def _afterwards(entry: PlanEntry) -> str:
    if entry.withheld_by is not None:
        return ""
    owner = entry.assessment.pod.owner
    match entry.do:
        case Do.WARN:
            return ""
        case Do.KILL if entry.definition.scope == "process":
            return ""
        case Do.KILL:
            return "The pod's restart policy decides whether the container restarts."
        case Do.EVICT if owner is None:
            return "No controller will replace the pod."
        case Do.EVICT:
            return f"{capital(replaced_by(owner, 63))}."
        case _:
            assert_never(entry.do)


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
        return f"{none}To stay within the limit, {what}."

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
    return f"Questions: ask {clip(inert(policy.events.contact or _DEFAULT_CONTACT), _LONGEST_CONTACT)}."


def pod_events(changes: Iterable[Change], report: CycleReport) -> Iterator[PodEvent]:
    """The Events of a cycle's changes; the report is the cycle's, or the last one before the daemon's end.

    On a pod that is only observed, by the mode or by its rule, nothing is written unless the policy wants it, and then
    as `GPUMemoryOverLimit` whatever would have been done: no one should find a kill there that never happened.
    """
    for change in changes:
        yield from _event_of(change, report)


def _event_of(change: Change, report: CycleReport) -> Iterator[PodEvent]:
    assessment, entry, outcome = change.assessment, change.entry, change.outcome
    if change.misdeclaration is not None and assessment is not None:
        if change.for_owner:
            text = wrong_note(assessment, change.misdeclaration, report)
            yield misdeclared(assessment, change.misdeclaration, text, report.at.wall_s)
    elif outcome is not None:
        yield from _of_outcome(change.event, outcome, report, was_begun=change.was_begun)
    elif change.event is ChangeKind.WITHHELD and entry is not None and is_for_owner(entry.assessment, report):
        yield _withheld(entry, report)


def _of_outcome(event: ChangeKind, outcome: Outcome, report: CycleReport, *, was_begun: bool) -> Iterator[PodEvent]:
    """What came of a step: of an action that has begun its end, of one that has not what is left to be said."""
    entry = outcome.entry
    names = action_events(entry.do)
    if event is ChangeKind.WOULD_ACT:
        yield from (_observed(outcome, report),) if report.policy.events.observe else ()
    elif event is names.begun:
        yield _begun(outcome, report)
    elif event not in (names.blocked, names.ended):
        return
    elif was_begun:
        yield outcome_event(entry, RELEASED, outcome, ended_note(outcome, report.policy))
    elif entry.do is Do.EVICT and outcome.result in (Result.BLOCKED, Result.FAILED):
        yield outcome_event(entry, EVICTION_BLOCKED, outcome, blocked_note(outcome, report))


def _withheld(entry: PlanEntry, report: CycleReport) -> PodEvent:
    brake = entry.withheld_by.value if entry.withheld_by is not None else ""
    more = {"brake": brake, "would": entry.do.value}
    text = due_note(entry, report.at, report, observing=is_idle_for(entry.assessment, report))
    return pod_event(entry, WITHHELD, text, report.at.wall_s, detail=brake, more=more)


def _begun(outcome: Outcome, report: CycleReport) -> PodEvent:
    entry = outcome.entry
    text = due_note(entry, outcome.at, report, processes=len(outcome.signalled) or None)
    return outcome_event(entry, _reason_of(entry.do), outcome, text)


def _reason_of(do: Do) -> str:
    """The reason of the Event that is written when an action begins."""
    match do:
        case Do.WARN:
            return OVER_LIMIT
        case Do.KILL:
            return KILLED
        case Do.EVICT:
            return EVICTED
        case _:
            assert_never(do)


def _observed(outcome: Outcome, report: CycleReport) -> PodEvent:
    text = due_note(outcome.entry, outcome.at, report, observing=True)
    return outcome_event(outcome.entry, OVER_LIMIT, outcome, text, would=outcome.entry.do.value)
