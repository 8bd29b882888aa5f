"""Events on pods: which changes are reported to their owners, and in which form."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final
from urllib.parse import quote

from watchdog.core.assessment import Assessment, Misdeclaration
from watchdog.core.declare import CONTAINER
from watchdog.core.eviction import GIVE_UP_AFTER_S
from watchdog.core.model import Now, Pod
from watchdog.core.plan import CycleReport, Outcome, PlanEntry, Result
from watchdog.core.policy import Declaration, Do, Policy
from watchdog.core.units import format_duration
from watchdog.kube.event_objects import SERIES_GAP_S, PodEvent
from watchdog.report.advice import advice, unit_words
from watchdog.report.changes import Change, ChangeKind, action_events, is_for_owner, is_only_observed
from watchdog.report.sentences.action import afterwards, outcome_note, shown_as
from watchdog.report.sentences.brakes import observing_because
from watchdog.report.sentences.following import begun_note, misdeclared_note, note
from watchdog.report.sentences.usage import terms, threshold_text
from watchdog.report.text import LONGEST_NOTE, capital, clip, fit, inert, quoted, shorten_names, size_of

OVER_LIMIT: Final = "GPUMemoryOverLimit"
RELEASED: Final = "GPUMemoryReleased"
EVICTION_BLOCKED: Final = "GPUMemoryEvictionBlocked"
WITHHELD: Final = "GPUMemoryWithheld"
MISDECLARED: Final = "GPUMemoryMisdeclared"
TRANSFERRED: Final = "GPUMemoryTransferred"
IDLE: Final = "GPUMemoryIdle"


def reason_of(do: Do) -> str:
    """The reason of the Event that is written when an action begins: `GPUMemoryKilled`, `GPUMemoryEvicted`."""
    return f"GPUMemory{do.verb.done.capitalize()}" if do.enforces else OVER_LIMIT


KILLED: Final = reason_of(Do.KILL)
ACTIONS: Final = {
    **{reason_of(do): do.capitalize() for do in Do},
    RELEASED: "Release",
    EVICTION_BLOCKED: "Evict",
    WITHHELD: "Withhold",
    MISDECLARED: "Warn",
    TRANSFERRED: "Warn",
    IDLE: "Warn",
}
_PREFIX: Final = "gpu-memory-watchdog/"
# A blocked eviction is retried with back-off; the API server keeps an Event for this long by default.
_BLOCKED_AGAIN_S: Final = 3600.0
# What happened gets at least 424 bytes of a note. What does not fit the rest is left out: first which container was
# taken and what comes after, then what to change, last who can be asked. With a link both parts shrink alike.
_REST: Final = 600
_LONGEST_CONTACT: Final = 300
# That of the longest template, with the longest names of node, namespace and pod.
_LONGEST_LINK: Final = 200 + 253 + 63 + 253
_DEFAULT_CONTACT: Final = "the operator of this cluster"  # as cli/policy_text.py announces
_LONGEST_REASON: Final = 250
_RETRIED: Final = f"It is retried for up to {format_duration(GIVE_UP_AFTER_S)}."


def pod_events(changes: Iterable[Change], report: CycleReport) -> Iterator[PodEvent]:
    """The Events of a cycle's changes; the report is the cycle's, or the last one before the daemon's end.

    On a pod that is only observed, by the mode or by its rule, none is written unless the policy asks for it. Its
    reason is then `GPUMemoryOverLimit` for every action, so that no Event reports a kill that never happened.
    """
    for change in changes:
        yield from _event_of(change, report)


def _event_of(change: Change, report: CycleReport) -> Iterator[PodEvent]:
    assessment, entry, outcome = change.assessment, change.entry, change.outcome
    if change.misdeclaration is not None and assessment is not None:
        if change.for_owner:
            yield _misdeclared(assessment, change.misdeclaration, report)
    elif change.event is ChangeKind.TRANSFERRED and change.pod is not None:
        if change.for_owner:
            yield _transferred(change, change.pod, report)
    elif change.event is ChangeKind.IDLE and assessment is not None:
        if change.for_owner:
            yield _idle(change, assessment, report)
    elif outcome is not None:
        yield from _of_outcome(change.event, outcome, report, was_begun=change.was_begun)
    elif change.event is ChangeKind.WITHHELD and entry is not None and is_for_owner(entry.assessment, report):
        more = {"brake": change.detail, "would": entry.do.value}
        text = due_note(entry, report.at, report, observing=is_only_observed(entry.assessment, report))
        yield _step_event(entry, WITHHELD, text, report.at, detail=change.detail, more=more)


def _of_outcome(event: ChangeKind, outcome: Outcome, report: CycleReport, *, was_begun: bool) -> Iterator[PodEvent]:
    entry, at = outcome.entry, outcome.at
    names = action_events(entry.do)
    if event is ChangeKind.WOULD_ACT:
        if report.policy.events.observe:
            text, would = due_note(entry, at, report, observing=True), entry.do.value
            yield _step_event(entry, OVER_LIMIT, text, at, detail=would, more={"would": would})
    elif event is names.begun:
        text = due_note(entry, at, report, processes=len(outcome.signalled) or None)
        yield _step_event(entry, reason_of(entry.do), text, at)
    elif event not in (names.blocked, names.ended):
        return
    elif was_begun:
        yield _result_event(outcome, RELEASED, ended_note(outcome, report))
    elif entry.do.deletes_pod and outcome.result in (Result.BLOCKED, Result.FAILED):
        yield _result_event(outcome, EVICTION_BLOCKED, blocked_note(outcome, report))


def _result_event(outcome: Outcome, reason: str, text: str) -> PodEvent:
    """The Event of an outcome; one with another result is not a repetition of the last."""
    result, release_s = outcome.result.value, outcome.release_s
    more = {"result": result, "release-seconds": f"{release_s:.3f}" if release_s is not None else ""}
    return _step_event(outcome.entry, reason, text, outcome.at, detail=f"{result} {release_s is not None}", more=more)


def _step_event(
    entry: PlanEntry,
    reason: str,
    text: str,
    at: Now,
    *,
    detail: str = "",
    more: Mapping[str, str] = MappingProxyType({}),
) -> PodEvent:
    """The Event of a step; one with another `detail` is not a repetition; `more` are annotations."""
    assessment, account = entry.assessment, entry.account
    own, held_to, threshold = account.container, terms(entry), threshold_text(entry)
    again_s = _BLOCKED_AGAIN_S if reason == EVICTION_BLOCKED else SERIES_GAP_S
    annotations = {
        "declared": held_to.declared,
        "allowed": held_to.allowed,
        "container": own if entry.definition.hits_whole_pod else entry.victim or own,
        "rule": entry.rule.name,
        "threshold": threshold,
        **more,
    }
    return replace(
        _event(assessment, reason, text, at, annotations),
        key=(account.uid, reason, own or "", account.gpu or "", entry.rule.name, threshold, detail),
        is_normal=reason == RELEASED,
        again_within_s=again_s + (entry.definition.repeat_s if not entry.do.enforces else 0.0),
    )


def _misdeclared(assessment: Assessment, skipped: Misdeclaration, report: CycleReport) -> PodEvent:
    """The Event of a skipped declaration: which one, what applies instead, and how its number is read."""
    declaration = _declaration_of(skipped, report.policy)
    is_of_policy = declaration is not None and bool(declaration.wrong_unit)
    correct = [] if is_of_policy else [f"{_read_as(skipped, declaration)}Correct it in the pod's manifest."]
    rest = [*correct, _contact(report.policy)]
    text = _compose(misdeclared_note(assessment, skipped), rest, link=_link(assessment.pod, report))
    annotations = {
        "declared": assessment.declared,
        "allowed": assessment.allowed,
        "container": assessment.account.container,
        "rule": assessment.rule.name if assessment.rule is not None else None,
    }
    key = (assessment.account.uid, MISDECLARED, skipped.source, skipped.why)
    return replace(_event(assessment, MISDECLARED, text, report.at, annotations), key=key, once=True)


def _transferred(change: Change, pod: Pod, report: CycleReport) -> PodEvent:
    """The Event that memory may have gone from one pod to another, on either of them."""
    return PodEvent(
        namespace=pod.namespace,
        pod=pod.name,
        uid=_uid(pod),
        reason=TRANSFERRED,
        action=ACTIONS[TRANSFERRED],
        note=_compose(change.sentence, [_contact(report.policy)], link=_link(pod, report)),
        at_s=change.at.wall_s,
        key=(pod.uid, TRANSFERRED, change.gpu, change.sentence),
        annotations={f"{_PREFIX}gpu": change.gpu},
    )


def _idle(change: Change, assessment: Assessment, report: CycleReport) -> PodEvent:
    """The Event that an account holds memory without computing; each incident has its own."""
    rest = [
        "Nothing is done about it; the memory is free for others once its processes end.",
        _contact(report.policy),
    ]
    text = _compose(change.sentence, rest, link=_link(assessment.pod, report))
    account, annotations = assessment.account, {"container": assessment.account.container}
    key = (account.uid, IDLE, account.container or "", account.gpu or "", str(change.at.wall_s))
    return replace(_event(assessment, IDLE, text, change.at, annotations), key=key)


def _event(
    assessment: Assessment, reason: str, text: str, at: Now, annotations: Mapping[str, str | int | None]
) -> PodEvent:
    """An Event on a pod; annotations are for machines, with amounts in bytes and without what is unknown."""
    gpus = ",".join(sorted({use.gpu for use in assessment.uses}))
    known = {"used": assessment.used, "gpu": gpus, **annotations}
    return PodEvent(
        namespace=assessment.pod.namespace,
        pod=assessment.pod.name,
        uid=_uid(assessment.pod),
        reason=reason,
        action=ACTIONS[reason],
        note=text,
        at_s=at.wall_s,
        key=(),
        annotations={
            f"{_PREFIX}{name}": inert(str(value), 4096) for name, value in known.items() if value not in (None, "")
        },
    )


def _uid(pod: Pod) -> str:
    """Events of a static pod carry its hash, as the kubelet's own do; `kubectl describe` searches for that.

    PodDescriber.Describe in k8s.io/kubectl/pkg/describe, CreateMirrorPod in k8s.io/kubernetes/pkg/kubelet/pod.
    """
    return pod.config_hash if pod.static and pod.config_hash else pod.uid


def due_note(
    entry: PlanEntry, at: Now, report: CycleReport, *, observing: bool = False, processes: int | None = None
) -> str:
    """What a pod uses and what follows: a warning, a kill at its first signal, an eviction, a withheld step.

    `observing`: no action is taken.
    """
    policy, suspended = report.policy, report.switched_off_by
    if entry.do.ends_processes and processes is not None and not entry.definition.grace_s:
        # SIGKILL at once: the reader learns of processes that have ended.
        text = begun_note(entry, at, processes, policy)
    else:
        text = note(entry, at, observing=observing, processes=processes, policy=policy, suspended=suspended)
    if observing:
        rest = [_no_action_anyway(entry, report)]
    elif entry.withheld_by is not None:
        rest = []
    else:
        rest = [_chosen(entry), afterwards(entry), shown_as(entry) if entry.do.ends_processes else ""]
    return _compose(text, [*rest, _remedy(entry, report), _contact(policy)], link=_link(entry.assessment.pod, report))


def blocked_note(outcome: Outcome, report: CycleReport) -> str:
    """That an eviction was not possible, and why."""
    entry, policy = outcome.entry, report.policy
    why = outcome.for_owner or outcome.reason
    reason = f": {clip(quoted(why, _LONGEST_REASON), _LONGEST_REASON)}" if why else ""
    end = f"The eviction is blocked{reason}. {_RETRIED}" if outcome.result is Result.BLOCKED else f"It failed{reason}."
    rest, link = [_remedy(entry, report), _contact(policy)], _link(entry.assessment.pod, report)
    return _compose(note(entry, outcome.at, policy=policy), rest, end, link=link)


def ended_note(outcome: Outcome, report: CycleReport) -> str:
    """The result of a kill or an eviction: its memory free after some time, not seen free in time, or failed."""
    pod = outcome.entry.assessment.pod
    owner = pod.owner
    is_of_job = owner is not None and owner.kind == "Job" and outcome.result is Result.DONE
    got_sigterm = any(sent.signal == "SIGTERM" for sent in outcome.sent)
    is_asked = outcome.entry.effective_step.scope != "process" and got_sigterm
    shown = shown_as(outcome.entry, past=True) if is_of_job and is_asked else ""
    return _compose(outcome_note(outcome), [shown, _contact(report.policy)], link=_link(pod, report))


def _compose(text: str, rest: Sequence[str], end: str = "", *, link: str = "") -> str:
    """What happened, with its `end`, as many of the other sentences as fit, the last ones first, and the whole link."""
    kept: list[str] = []
    whole = LONGEST_NOTE - (size_of(link) + 1 if link else 0)
    share = room = _REST * whole // LONGEST_NOTE
    for sentence in reversed(rest):
        shortened = shorten_names(sentence, room - 1)
        if shortened and size_of(shortened) < room:
            kept.insert(0, shortened)
            room -= size_of(shortened) + 1
    size = whole - share + room - (size_of(end) + 1 if end else 0)
    return " ".join(filter(None, [clip(" ".join(filter(None, [fit(text, size), end, *kept])), whole), link]))


def _no_action_anyway(entry: PlanEntry, report: CycleReport) -> str:
    """Of a withheld step, that no action would be taken anyway; the note of another one has this already."""
    if entry.withheld_by is None:
        return ""
    why = observing_because(entry.assessment, report.policy, report.switched_off_by)
    return f"No action would be taken anyway: {why}."


def _chosen(entry: PlanEntry) -> str:
    """Why this one of several containers is killed."""
    shares = [share for share in entry.assessment.shares if share.container]
    own = entry.effective_step.scope != "pod" and entry.assessment.account.container is None
    if not entry.do.ends_processes or not own or len(shares) < 2:
        return ""
    return f"Of its containers, {inert(entry.victim)} exceeds its own declaration by the most."


def _remedy(entry: PlanEntry, report: CycleReport) -> str:
    assessment = entry.assessment
    who = "pod" if assessment.account.container is None else "container"
    none = f"The {who} declares no GPU memory. " if assessment.declared_by == "default" else ""
    if assessment.open_share:
        none = f"{capital(inert(assessment.open_share))} gives the {who} a share of a card, but no amount of memory. "
    pressed = entry.definition.under_pressure
    what = advice(assessment, report.policy, under_pressure=pressed, gpus=report.snapshot.gpus, node=report.node)
    return f"{none}To stay within the limit, {what}."


def _declaration_of(skipped: Misdeclaration, policy: Policy) -> Declaration | None:
    """The declaration that was skipped, as the policy has it; None if it does not."""
    for declaration in policy.declarations:
        patterns = (declaration.key, *(limit.key for limit in declaration.limits))
        if any(fnmatchcase(skipped.key, pattern.replace(CONTAINER, "*")) for pattern in patterns):
            return declaration
    return None


def _read_as(skipped: Misdeclaration, declaration: Declaration | None) -> str:
    """How the number of a declaration, or of a limit above it, is read; empty if that is not in the policy."""
    if declaration is None:
        return ""
    limits = (each for each in declaration.limits if fnmatchcase(skipped.key, each.key.replace(CONTAINER, "*")))
    own_unit = next((each.unit for each in limits if each.unit is not None), declaration.unit)
    return f"Under {inert(skipped.key)} {unit_words(replace(declaration, unit=own_unit))}. "


def _contact(policy: Policy) -> str:
    return f"Questions: ask {clip(inert(policy.events.contact or _DEFAULT_CONTACT), _LONGEST_CONTACT)}."


def _link(pod: Pod, report: CycleReport) -> str:
    """Where the pod's page is; empty if the policy has no address, or if the pod's names are longer than names are."""
    link = report.policy.events.page_url
    names = {"{node}": report.node.name, "{namespace}": pod.namespace, "{pod}": pod.name}
    for part, name in names.items():
        link = link.replace(part, quote(name, safe="", errors="replace"))
    return f"Details: {link}" if link and size_of(link) <= _LONGEST_LINK else ""
