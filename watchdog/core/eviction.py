"""Evictions as values: one attempt, what can come of it, its bounds, and what may speak against it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from watchdog.core.assess import Setting
from watchdog.core.model import Now, Pod
from watchdog.core.policy import Do, Rule
from watchdog.core.rules import observes, protection, rule_of

# Whoever evicts by hand waits about as long for a disruption budget (kubectl drain asks every 5 s); after that its
# owner must know, and the step starts over as the brakes let it.
GIVE_UP_AFTER_S: Final = 600.0
MOST_TRIES: Final = 25
_MIRROR: Final = "it is a static pod: the kubelet would go on running it"
DAEMON: Final = "its DaemonSet would put the pod back on this node at once"
FORBIDDEN: Final = "the watchdog may not evict pods in this cluster; its operator has to mend that"
DELETED: Final = "it is being deleted already, and an eviction does no more than that"


class EvictionAnswer(Enum):
    """What came of one try."""

    ACCEPTED = auto()  # the pod is being deleted, with its grace
    GONE = auto()  # the pod is gone, is another one, has ended, or is being deleted already
    SPARED = auto()  # the pod as it is now must not be evicted
    BLOCKED = auto()  # by its disruption budgets
    LATER = auto()  # nothing has been done, and it may go better later
    UNKNOWN = auto()  # no answer came to the eviction itself: it may have been carried out
    REFUSED = auto()  # trying again would not help
    WITHDRAWN = auto()  # it was given up before the eviction was asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRequest:
    """One try. `ticket` brings the reply back to whom it belongs to; `number` counts the tries from 1.

    `grace_s` is whole seconds, at least 1. `deadline_s` is the deletion deadline (Unix time) that the pod had already:
    the eviction is to end it sooner. `is_unsure` says that an earlier try may have been carried out.
    `objection` says in a few words why a pod, as it is at that moment, must not be evicted; `is_wanted`, whether the
    eviction has not been given up meanwhile; `is_fresh`, whether what it was decided by is still recent enough to
    evict by. All are called on the thread that makes the try.
    """

    ticket: int
    number: int
    namespace: str
    name: str
    uid: str
    grace_s: int
    is_unsure: bool
    objection: Callable[[Pod], str | None]
    is_wanted: Callable[[], bool]
    is_fresh: Callable[[], bool] = lambda: True
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionResult:
    """What came of a try, `reason` in words for people; `wait_s` is how long to wait before the next one.

    `for_owner` says it to the pod's owner where `reason` is only good for the operator.
    """

    ticket: int
    answer: EvictionAnswer
    reason: str = ""
    wait_s: float = 0.0
    for_owner: str = ""


def against_evicting(pod: Pod, ends_s: float | None = None) -> str | None:
    """Why a pod like this is not evicted, beyond what protects it from all force; None: nothing.

    A pod of a DaemonSet comes back on the same node at once; a mirror pod stands for one that the API does not run. One
    that hangs in its deletion, beyond its deadline, would be evicted in vain again and again, and use up the brakes of
    others. But a tenant may delete its pod with a grace of a year; an eviction that lets it end sooner, by `ends_s`
    (Unix time), shortens that (BeforeDelete in k8s.io/apiserver/pkg/registry/rest/delete.go).
    """
    if pod.static:
        return _MIRROR
    if pod.deletion_deadline_s is not None and (ends_s is None or pod.deletion_deadline_s <= ends_s):
        return DELETED
    return DAEMON if pod.owner is not None and pod.owner.kind == "DaemonSet" else None


def objection_to_evicting(pod: Pod, grace_s: float, setting: Setting, now: Now) -> str | None:
    """Why a pod must not be evicted, as it is and by the policy as it is at this moment; None: nothing."""
    rule = rule_of(pod, setting.policy, setting.node, setting.namespaces)
    if not isinstance(rule, Rule) or not any(step.do is Do.EVICT for step in rule.steps):
        return "the rule that is for the pod now has no step that evicts"
    if observes(rule, now):
        return f"rule {rule.name} only observes now"
    protected = protection(pod, setting.policy.protect, setting.own, now)
    spared = protected or against_evicting(pod, now.wall_s + grace_s)
    return None if spared is None else f"the pod is protected now: {spared}"
