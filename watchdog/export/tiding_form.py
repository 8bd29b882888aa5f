"""The form of an Event: its reason and action, which others it repeats, and what machines read beside the note."""

from typing import Final

from watchdog.core.assessment import Assessment, Misdeclaration
from watchdog.core.model import Pod
from watchdog.core.plan import Outcome, PlanEntry
from watchdog.core.policy import Do
from watchdog.core.tiding import SERIES_GAP_S, Tiding
from watchdog.export.clauses import mark, terms
from watchdog.export.phrases import inert

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


def told(entry: PlanEntry, reason: str, outcome: Outcome, text: str, would: str = "") -> Tiding:
    """The Event of an outcome; that it ended in another way makes it no repetition of the last."""
    released = outcome.release_s is not None
    more = {"would": would}
    detail = would
    if reason in (RELEASED, EVICTION_BLOCKED):
        more["result"] = outcome.result.value
        more["release-seconds"] = f"{outcome.release_s:.3f}" if outcome.release_s is not None else ""
        detail = f"{outcome.result.value} {released}"
    return tiding(entry, reason, text, outcome.at.wall_s, detail=detail, more=more)


def tiding(entry: PlanEntry, reason: str, text: str, at_s: float, *, detail: str, more: dict[str, str]) -> Tiding:
    """The Event of a step; `detail` is what makes another occurrence of it no repetition, `more` are annotations."""
    assessment = entry.assessment
    again_s = _BLOCKED_AGAIN_S if reason == EVICTION_BLOCKED else SERIES_GAP_S
    if entry.do is Do.WARN:
        again_s += entry.definition.repeat_s
    account, rung = assessment.account, mark(entry)
    return Tiding(
        namespace=assessment.pod.namespace,
        pod=assessment.pod.name,
        uid=_uid(assessment.pod),
        reason=reason,
        action=ACTIONS[reason],
        note=text,
        at_s=at_s,
        key=(account.uid, reason, account.container or "", account.gpu or "", entry.rule.name, rung, detail),
        is_normal=reason == RELEASED,
        again_within_s=again_s,
        annotations=_marks(
            used=assessment.used,
            declared=terms(entry).declared,
            allowed=terms(entry).allowed,
            gpu=_gpus(assessment),
            container=_container(entry),
            rule=entry.rule.name,
            mark=rung,
            **more,
        ),
    )


def misdeclared(assessment: Assessment, skipped: Misdeclaration, text: str, at_s: float) -> Tiding:
    """The Event of a declaration that was skipped."""
    return Tiding(
        namespace=assessment.pod.namespace,
        pod=assessment.pod.name,
        uid=_uid(assessment.pod),
        reason=MISDECLARED,
        action=ACTIONS[MISDECLARED],
        note=text,
        at_s=at_s,
        key=(assessment.account.uid, MISDECLARED, skipped.source, skipped.why),
        once=True,
        annotations=_marks(
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
    whole_pod = entry.do is Do.EVICT or (entry.do is Do.KILL and entry.definition.scope == "pod")
    own = entry.assessment.account.container
    return own if whole_pod else entry.victim or own


def _marks(**values: str | int | None) -> dict[str, str]:
    """Annotations for machines, amounts in plain bytes; what is unknown is left out."""
    known = {name: value for name, value in values.items() if value is not None and value != ""}
    return {f"{_PREFIX}{name}": inert(str(value), 4096) for name, value in known.items()}
