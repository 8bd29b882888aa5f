"""Why an action is withheld, in words: brakes, the breaker, a refused eviction, observe mode, a suspension."""

from typing import Final, assert_never

from watchdog.core.assessment import Assessment
from watchdog.core.brakes import Brake
from watchdog.core.eviction import DAEMON, GIVE_UP_AFTER_S, MOST_TRIES, why_spared_by_state
from watchdog.core.ledger import PendingEviction
from watchdog.core.plan import PlanEntry
from watchdog.core.policy import Backoff, Brakes, Breaker, Policy, Window
from watchdog.core.units import format_duration, format_percent
from watchdog.report.sentences.draining import hazard_because
from watchdog.report.text import clock_time, count, inert, quoted, span

_LONGEST: Final = 400  # of what the API server answered
_BOUND: Final = f"up to {MOST_TRIES} times within {format_duration(GIVE_UP_AFTER_S)}"
AND_IS_RETRIED: Final = f"and is retried {_BOUND}"


def pending_because(pending: PendingEviction) -> str:
    """Why an eviction has not succeeded yet, as the end of a sentence."""
    if pending.next_s is None:
        which = "" if pending.tries == 1 else f", for the {_ordinal(pending.tries)} time"
        return f"the API server is being asked to evict it{which}"
    times = "once" if pending.tries == 1 else f"{pending.tries} times"
    state = (
        "its disruption budget does not let the eviction through"
        if pending.is_blocked
        else "the eviction has not succeeded"
    )
    return f"{state} ({quoted(pending.refused, _LONGEST)}); tried {times} so far, {_BOUND}"


def _ordinal(number: int) -> str:
    last = 0 if number % 100 in (11, 12, 13) else number % 10
    return f"{number}{({1: 'st', 2: 'nd', 3: 'rd'}).get(last, 'th')}"


_CROWDED: Final = (
    "so many workloads are over their limits at once that a wrong policy or reading is more likely than that many real "
    "offenders"
)


def withheld_because(entry: PlanEntry, policy: Policy | None = None) -> str:
    """Why an entry is withheld, as the end of a sentence; with the policy's numbers if the policy is given."""
    brake = entry.withheld_by
    if brake is None:
        return "nothing withholds it"
    bounds = policy.brakes if policy is not None else Brakes()
    if entry.counts_as_full:
        return _counting_as_full(entry, brake, bounds)
    observing = entry.assessment.observes or (policy is not None and policy.mode == "observe")
    return _by_state(entry, brake, policy) or _by_count(entry, brake, bounds, observing=observing)


_FIXED: Final = {
    Brake.JOURNAL: "the watchdog can't write its journal, and takes no action without a record",
    Brake.MAINTENANCE: "the GPUs of this node are under maintenance",
    Brake.UNKNOWN_CONTAINER: "no container in the pod list exceeds its own declaration",
}


def _ahead(assessment: Assessment) -> str:
    """Who uses more of a claim than an account."""
    pod = assessment.behind_pod
    return "another container of the pod" if pod == assessment.pod.title else f"pod {inert(pod)}"


def _by_state(entry: PlanEntry, brake: Brake, policy: Policy | None) -> str:
    """Why a brake on the state of the pod, its processes or the watchdog holds; empty for those that count actions."""
    match brake:
        case Brake.PROTECTED:
            protected = entry.assessment.protected
            why = f"the pod is protected: {inert(protected)}" if protected else ""
            why = why or why_spared_by_state(entry.assessment.pod) or DAEMON
        case Brake.PENDING if entry.pending_eviction is not None:
            why = pending_because(entry.pending_eviction)
        case Brake.PENDING:
            where = f"on {inert(entry.gpu)}" if entry.gpu is not None else "here"
            why = f"an earlier kill or eviction {where} is still in progress: its memory has not been freed yet"
        case Brake.STALE:
            older = f" (older than {format_duration(policy.stale_after_s)})" if policy is not None else ""
            why = f"the list of this node's pods is too old to act on{older}"
        case Brake.JOURNAL | Brake.MAINTENANCE | Brake.UNKNOWN_CONTAINER:
            why = _FIXED[brake]
        case Brake.HAZARD:
            why = hazard_because(entry.hazard)
        case Brake.CLAIM:
            why = f"{_ahead(entry.assessment)} uses more of the claim that both have"
        case Brake.OWNER | Brake.OWNER_BACKOFF | Brake.NAMESPACE | Brake.NODE | Brake.BREAKER:
            why = ""
        case _:
            assert_never(brake)
    return why


def _by_count(entry: PlanEntry, brake: Brake, bounds: Brakes, *, observing: bool) -> str:
    """Why a brake that counts actions holds, with its bound if that is known."""
    whose = _owner(entry)
    if brake is Brake.OWNER:
        return _window(bounds.owner, f"{whose} reached", f" of {whose}", observing=observing)
    if brake is Brake.OWNER_BACKOFF:
        waits = f": {_waits(bounds.owner_backoff)}" if bounds.owner_backoff is not None else ""
        return f"the last kill or eviction of {whose}{'' if waits else ' on this node'} is too recent{waits}"
    if brake is Brake.NAMESPACE:
        namespace = f"namespace {inert(entry.assessment.pod.namespace)}"
        return _window(bounds.namespace, f"{namespace} reached", f" in {namespace}", observing=observing)
    if brake is Brake.NODE:
        return _window(bounds.node, "this node reached", "", observing=observing)
    return _breaker(bounds.breaker, observing=observing) if bounds.breaker is not None else _CROWDED


def held_for(entry: PlanEntry, wall_s: float) -> str:
    """When the brake releases: ` for another 4m 10s, until 14:05:10 UTC`; empty if that is not a matter of time.

    Of a step that is not due yet only the moment: how long it will have been withheld by then is another span.
    `wall_s` is the Unix time of the cycle.
    """
    seconds = entry.releases_in_s
    if seconds is None:
        return ""
    if entry.due_in_s > 0:
        return until(seconds, wall_s)
    # The memory of an earlier action may be free before its timeout.
    is_longest = entry.withheld_by is Brake.PENDING and entry.pending_eviction is None
    return f" for {'at most ' if is_longest else ''}another {span(seconds)}{until(seconds, wall_s)}"


def until(seconds: float, wall_s: float) -> str:
    """The moment `seconds` after a Unix time: `, until 14:05:10 UTC`."""
    return f", until {clock_time(wall_s + seconds, wall_s)}"


def _counting_as_full(entry: PlanEntry, brake: Brake, bounds: Brakes) -> str:
    """Why a brake that counts as full holds, with its number if that is known."""
    windows = {
        Brake.OWNER: (f"the limit of {_owner(entry)}", bounds.owner),
        Brake.NAMESPACE: (f"the limit of namespace {inert(entry.assessment.pod.namespace)}", bounds.namespace),
    }
    whose, window = windows.get(brake, ("the limit of this node", bounds.node))
    bound = f" ({window.count} per {format_duration(window.per_s)})" if window is not None else ""
    if brake is Brake.OWNER_BACKOFF:
        whose, backoff = f"the wait after a kill or eviction of {_owner(entry)}", bounds.owner_backoff
        bound = f" (at most {format_duration(backoff.max_s)})" if backoff is not None else ""
    return (
        "the watchdog's journal was found damaged or missing and it is not known how many kills and evictions came "
        f"before, so {whose}{bound} is treated as reached for one full period"
    )


def _window(window: Window | None, whose: str, where: str, *, observing: bool) -> str:
    if window is None:
        return f"{whose} the policy's limit on kills and evictions on this node"
    number, per = count(window.count, "kill or eviction", "kills or evictions"), format_duration(window.per_s)
    begun = "would have started" if observing else "was started" if window.count == 1 else "were started"
    return f"{number}{where} {begun} on this node in the last {per}, and the policy allows {window.count} per {per}"


def _waits(backoff: Backoff) -> str:
    first, longest = format_duration(backoff.first_s), format_duration(backoff.max_s)
    if backoff.factor == 1 or backoff.first_s >= backoff.max_s:
        return f"the policy waits {format_duration(min(backoff.first_s, backoff.max_s))} between them"
    return (
        f"the back-off is {first} after the first and grows {backoff.factor:g}-fold with each further one, "
        f"up to {longest}"
    )


def _breaker(breaker: Breaker, *, observing: bool) -> str:
    share, hold = format_percent(breaker.offenders), format_duration(breaker.hold_s)
    then = f"until fewer are over, one workload {acted_on(observing=observing)} every {hold}"
    return f"{_CROWDED} (the breaker opens at {share}); {then}"


def _owner(entry: PlanEntry) -> str:
    pod = entry.assessment.pod
    if pod.owner is None:
        return "this pod"
    return f"pods of {inert(pod.owner.kind)} {inert(pod.owner.name)}"


def acted_on(*, observing: bool) -> str:
    """The predicate of a pod on which action is taken, or would be."""
    return "would be killed or evicted" if observing else "is killed or evicted"


# In short; `suspension` has the remedies.
_SUSPENDED: Final = {
    "pid_namespace": "the watchdog does not run in the host's PID namespace",
    "procfs": "the watchdog's /proc belongs to another PID namespace",
    "pidfd": "the pidfd system calls are missing",
    "lock": "another watchdog may hold the lock",
    "journal": "the journal can't be opened",
    "stop_file": "a stop file exists on the node",
    "node_annotation": "the node's annotation turns it off",
    "maintenance": "the GPUs of this node are under maintenance",
    "node_unknown": "the Node object has not been read",
    "policy_file": "the policy file is new or has changed, and may not be complete yet",
}


def rule_observes(hours: str | None) -> str:
    """That a rule only observes; `hours` are those in which it enforces."""
    return f"this rule only observes{f' outside its hours ({inert(hours)})' if hours is not None else ''}"


def observing_because(assessment: Assessment, policy: Policy | None = None, suspended: tuple[str, ...] = ()) -> str:
    """Why no action is taken; `suspended` are the reasons why enforcement is suspended."""
    rule = assessment.rule
    if assessment.observes and rule is not None:
        hours = rule.active.text if rule.mode != "observe" and rule.active is not None else None
        return rule_observes(hours)
    if suspended:
        return f"enforcement is suspended ({suspended_because(suspended)})"
    if policy is not None and policy.mode == "enforce":
        return "enforcement was suspended"
    return "the watchdog is in observe mode"


def suspended_because(suspended: tuple[str, ...]) -> str:
    """Why enforcement is suspended, in short."""
    return "; ".join(_SUSPENDED.get(reason, inert(reason)) for reason in suspended)
