"""Evictions as values: an attempt, its possible results, whether another one follows, and the reasons not to evict."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from watchdog.core.assessment import Inputs
from watchdog.core.model import Now, Pod
from watchdog.core.policy import Rule
from watchdog.core.rules import observes, protection, rule_of

# An operator who evicts by hand waits about as long for a disruption budget (kubectl drain asks every 5 s); after that
# the failure is reported to the pod's owner, and the step starts over as soon as the brakes permit.
GIVE_UP_AFTER_S: Final = 600.0
MOST_TRIES: Final = 25
DAEMON: Final = "its DaemonSet would recreate the pod on this node immediately"
FORBIDDEN: Final = "the watchdog is not allowed to evict pods in this cluster; the cluster operator has to fix that"
DELETED: Final = "it is being deleted already, and an eviction does no more than that"


class EvictionAnswer(Enum):
    """The kinds of results of one attempt."""

    ACCEPTED = auto()  # the pod is being deleted, with its grace
    GONE = auto()  # the pod is gone, is another one, has ended, or is being deleted already
    SPARED = auto()  # the pod as it is now must not be evicted
    BLOCKED = auto()  # by its disruption budgets
    LATER = auto()  # nothing has been done; a later attempt may succeed
    UNKNOWN = auto()  # no answer came to the eviction itself: it may have been carried out
    REFUSED = auto()  # trying again would not help
    WITHDRAWN = auto()  # it was given up before the eviction was asked for
    DRY_RUN_PASSED = auto()  # a dry run was accepted, so nothing has been done


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRequest:
    """One attempt at an eviction. Its callables are called on the thread that makes the attempt."""

    # Matches the result to its eviction.
    request_id: int
    # Counts the attempts from 1.
    number: int
    namespace: str
    name: str
    uid: str
    # Whole seconds, at least 1.
    grace_s: int
    # Whether an earlier attempt may have been carried out.
    is_unsure: bool
    # Gives a short reason why a pod, in its state at that moment, must not be evicted; None: it may be.
    why_spared: Callable[[Pod], str | None]
    # Whether the eviction has not been given up meanwhile.
    is_wanted: Callable[[], bool]
    # Whether the reading behind it is still recent enough.
    is_fresh: Callable[[], bool] = lambda: True
    # The deletion deadline (Unix time) that the pod already has, and that the eviction shortens; None: it has none.
    deadline_s: float | None = None
    # Whether the API server only checks that the pod could be evicted.
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionResult:
    """The result of an attempt."""

    # That of the request.
    request_id: int
    answer: EvictionAnswer
    # A readable text.
    reason: str = ""
    # How long to wait before the next attempt.
    wait_s: float = 0.0
    # The reason as reported to the pod's owner, if `reason` is only of use to the operator.
    for_owner: str = ""


class FollowUp(Enum):
    """What follows an attempt at an eviction."""

    AWAIT = auto()  # its answer
    ACCEPTED = auto()  # its memory is waited for
    CLEAR = auto()  # what has to come before the eviction, which a dry run has shown to be possible
    AGAIN = auto()  # another attempt, after a wait; once clients were drained, only what the pod list shows meanwhile
    OVER = auto()  # nothing, as the answer says
    CALLED_OFF = auto()  # nothing, since it was given up before the answer came
    HALF_DONE = auto()  # nothing: it was requested once its clients were drained, which is done only once
    OUT_OF_TRIES = auto()  # nothing: it has been tried for so long, or so often
    OUT_OF_TIME = auto()  # nothing: it could not be tried again in time


_ANSWERED: Final = {
    EvictionAnswer.ACCEPTED: FollowUp.ACCEPTED,
    EvictionAnswer.GONE: FollowUp.OVER,
    EvictionAnswer.SPARED: FollowUp.OVER,
    EvictionAnswer.REFUSED: FollowUp.OVER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """How far an eviction has come. Times are CLOCK_BOOTTIME."""

    # How often it has been tried.
    made: int
    # When it is given up.
    until_s: float
    # When the next attempt would be; None: an answer is awaited, or it has been accepted.
    next_s: float | None
    # Whether it was given up before the answer came.
    is_called_off: bool
    # Whether something was sent before the last attempt, such as a request to drain a client. Then all depends on the
    # answer to that one attempt.
    has_sent: bool


def follow_up(answer: EvictionAnswer | None, attempts: Attempts, now_s: float) -> FollowUp:
    """Whether an eviction is tried again: by an answer that has come now or, without one (None), as time passes.

    With an answer, `next_s` is when the next attempt would be by the wait that it asks for.
    """
    is_due = attempts.next_s is not None and now_s >= attempts.next_s
    if answer is None and now_s >= attempts.until_s:
        return FollowUp.OUT_OF_TIME
    if answer is None:
        return FollowUp.HALF_DONE if attempts.has_sent and is_due else FollowUp.AWAIT
    return _ANSWERED.get(answer) or _after(answer, attempts)


def _after(answer: EvictionAnswer, attempts: Attempts) -> FollowUp:
    """What follows an answer that ends nothing by itself."""
    if attempts.is_called_off:
        return FollowUp.CALLED_OFF
    if answer is EvictionAnswer.DRY_RUN_PASSED:
        return FollowUp.CLEAR
    if attempts.has_sent and answer is not EvictionAnswer.UNKNOWN:  # then the pod list shows what became of it
        return FollowUp.HALF_DONE
    is_late = attempts.next_s is None or attempts.next_s > attempts.until_s
    return FollowUp.OUT_OF_TRIES if is_late or attempts.made >= MOST_TRIES else FollowUp.AGAIN


def why_spared_by_state(pod: Pod, ends_s: float | None = None) -> str | None:
    """Why a pod is not evicted, apart from its protection from all enforcement; None if nothing prevents it.

    A pod of a DaemonSet comes back on the same node at once. A pod whose deletion hangs beyond its deadline would be
    evicted repeatedly without effect, and use up the brakes for others. But a tenant may delete its pod with a grace
    period of a year; an eviction that ends it sooner, by `ends_s` (Unix time), shortens that (BeforeDelete in
    k8s.io/apiserver/pkg/registry/rest/delete.go). For a pod that has left, the attempt reports that it is gone.
    """
    is_deleted = pod.deletion_deadline_s is not None and pod.left_since is None
    if is_deleted and (ends_s is None or (pod.deletion_deadline_s or 0.0) <= ends_s):
        return DELETED
    return DAEMON if pod.owner is not None and pod.owner.kind == "DaemonSet" else None


def why_spared(pod: Pod, grace_s: float, inputs: Inputs, now: Now) -> str | None:
    """Why a pod must not be evicted, by its state and the policy at this moment; None if nothing prevents it."""
    rule = rule_of(pod, inputs.policy, inputs.node, inputs.namespaces)
    if not isinstance(rule, Rule) or not any(step.do.deletes_pod for step in rule.steps):
        return "the rule for the pod now has no step that evicts"
    if observes(rule, now):
        return f"rule {rule.name} only observes now"
    protected = protection(pod, inputs.policy.protect, inputs.own, now)
    spared = protected or why_spared_by_state(pod, now.wall_s + grace_s)
    return None if spared is None else f"the pod is protected now: {spared}"
