"""What holds an action back, in sentences: brakes, the breaker, and an eviction that is refused."""

from dataclasses import dataclass
from typing import Final

from watchdog.core.assessment import MpsHazard, MpsRole
from watchdog.core.brakes import Brake, BrakeMemory, breaker_wait_s
from watchdog.core.eviction import DAEMON, GIVE_UP_AFTER_S, MOST_TRIES, against_evicting
from watchdog.core.ledger import Trying
from watchdog.core.model import Now
from watchdog.core.plan import CycleReport, PlanEntry
from watchdog.core.policy import Backoff, Brakes, Breaker, Policy, Window
from watchdog.core.units import format_duration, format_percent
from watchdog.report.text import LONGEST_NAME, clock_time, count, inert, said, span

_LONGEST: Final = 400
_BOUND: Final = f"at most {MOST_TRIES} times in {format_duration(GIVE_UP_AFTER_S)}"
AGAIN: Final = f"and is tried again {_BOUND}"


def trying_because(trying: Trying) -> str:
    """Why an eviction has not come about, as the end of a sentence."""
    if trying.next_s is None:
        which = "" if trying.tries == 1 else f", for the {_ordinal(trying.tries)} time"
        return f"the API server is being asked to evict it{which}"
    times = "once" if trying.tries == 1 else f"{trying.tries} times"
    whom = "its disruption budget does not let the eviction through" if trying.is_blocked else "it has not come about"
    return f"{whom} ({refusal(trying.refused)}), tried {times} so far and {_BOUND}"


def refusal(reason: str) -> str:
    """What the API server said, made harmless, as a part of a sentence."""
    return said(reason, _LONGEST)


def brief(reason: str, limit: int) -> str:
    """Likewise, in a note whose names have at most `limit` characters: a sentence has room for a few of them."""
    return said(reason, max(3 * limit, 120))


def _ordinal(number: int) -> str:
    last = 0 if number % 100 in (11, 12, 13) else number % 10
    return f"{number}{({1: 'st', 2: 'nd', 3: 'rd'}).get(last, 'th')}"


OUT_OF_DATE: Final = "The list of the pods on this node is out of date"
_NO_OWNER: Final = ("", "", "")
NO_TIME_COUNTS: Final = "until it is read anew no time counts"


def withheld_because(entry: PlanEntry, policy: Policy | None = None, limit: int = LONGEST_NAME) -> str:
    """Why an entry is held back, as the end of a sentence; with the policy's numbers where the policy is given."""
    if entry.withheld_by is None:
        return "nothing holds it back"
    if entry.withheld_by is Brake.PROTECTED:
        why = entry.assessment.protected
        if why:
            return f"the pod is protected: {inert(why, limit)}"
        return against_evicting(entry.assessment.pod) or DAEMON
    if entry.withheld_by is Brake.PENDING and entry.trying is not None:
        return trying_because(entry.trying)
    if entry.presumed:
        return _presumed(entry, policy, limit)
    bound = _bound(entry, policy, limit) if policy is not None else ""
    return bound or _plain(entry, policy, limit)


def letting_go(entry: PlanEntry, now: Now) -> str:
    """When the brake lets go: ` for another 4m 10s, until 14:05:10 UTC`; empty where that is not a matter of time.

    Of a step that is not due yet only the moment: how long it will have been held back by then is another span.
    """
    if entry.lets_go_in_s is None:
        return ""
    if entry.due_in_s > 0:
        return until(entry.lets_go_in_s, now.wall_s)
    is_longest = entry.withheld_by is Brake.PENDING and entry.trying is None
    return for_another(entry.lets_go_in_s, now.wall_s, most=is_longest)


def for_another(seconds: float, wall_s: float, *, most: bool = False) -> str:
    """How long something goes on from a moment (Unix time) on: ` for another 4m 10s, until 14:05:10 UTC`."""
    return f" for {'at most ' if most else ''}another {span(seconds)}, until {clock_time(wall_s + seconds, wall_s)}"


def until(seconds: float, wall_s: float) -> str:
    """Until when, so many seconds after a moment (Unix time): `, until 14:05:10 UTC`."""
    return f", until {clock_time(wall_s + seconds, wall_s)}"


def presumed_note(memory: BrakeMemory, brakes: Brakes, now: Now) -> str:
    """Say which brakes count as full because the journal was lost, and until when; empty where none does."""
    waits = memory.waits(_NO_OWNER, brakes, now.boottime_s)
    if memory.lost_s is None or not waits:
        return ""
    lost = clock_time(now.wall_s - (now.boottime_s - memory.lost_s), now.wall_s)
    held = ", ".join(f"{brake.value}{until(wait_s, now.wall_s).replace(',', '')}" for brake, wait_s in waits)
    return (
        f"The journal was found damaged or missing at {lost}. How many kills and evictions came before is unknown, so "
        f"each window and back-off of the policy counts as full until it has elapsed once ({held})."
    )


def _presumed(entry: PlanEntry, policy: Policy | None, limit: int) -> str:
    """Why a brake holds that counts as full, with its number where the policy is given."""
    brakes = policy.brakes if policy is not None else Brakes()
    windows = {Brake.OWNER: brakes.owner, Brake.NAMESPACE: brakes.namespace, Brake.NODE: brakes.node}
    window = windows.get(entry.withheld_by or Brake.STALE)
    bound = ""
    if window is not None:
        bound = f" ({window.count} per {format_duration(window.per_s)})"
    elif entry.withheld_by is Brake.OWNER_BACKOFF and brakes.owner_backoff is not None:
        bound = f" (at most {format_duration(brakes.owner_backoff.max_s)})"
    whose = {
        Brake.OWNER: f"the limit of {_owner(entry, limit)}",
        Brake.OWNER_BACKOFF: f"the wait after a kill or eviction of {_owner(entry, limit)}",
        Brake.NAMESPACE: f"the limit of namespace {inert(entry.assessment.pod.namespace, limit)}",
    }.get(entry.withheld_by or Brake.NODE, "the limit of this node")
    return (
        "the watchdog's journal was found damaged or missing and it is not known how many kills and evictions came "
        f"before, so {whose}{bound} counts as reached until it has elapsed once"
    )


def _plain(entry: PlanEntry, policy: Policy | None, limit: int) -> str:
    """What can be said without the numbers of `[brakes]`."""
    whose, namespace = _owner(entry, limit), inert(entry.assessment.pod.namespace, limit)
    where = f"on {inert(entry.card, limit)}" if entry.card is not None else "here"
    older = f" (older than {format_duration(policy.stale_after_s)})" if policy is not None else ""
    return {
        Brake.PENDING: f"an earlier kill or eviction {where} has not ended yet: its memory has not been seen free",
        Brake.STALE: f"the list of this node's pods is too old to act on{older}",
        Brake.OWNER: f"{whose} had as many kills and evictions here lately as the policy allows",
        Brake.OWNER_BACKOFF: f"the last kill or eviction of {whose} on this node is too recent",
        Brake.NAMESPACE: f"namespace {namespace} had as many kills and evictions here lately as the policy allows",
        Brake.NODE: "this node had as many kills and evictions lately as the policy allows",
        Brake.BREAKER: "so many workloads are over at once that the policy or the node is in doubt, not the pods",
        Brake.JOURNAL: "the watchdog's journal can't be written, and nobody is killed or evicted without a record",
        Brake.MAINTENANCE: "the GPUs of this node are under maintenance",
        Brake.MPS: _mps(entry.mps_hazard, limit),
        Brake.UNKNOWN_CONTAINER: "no container that the pod list has is above what it declares itself",
    }[entry.withheld_by or Brake.NODE]


def _bound(entry: PlanEntry, policy: Policy, limit: int) -> str:
    """The bound of the policy that is reached, in numbers; empty for a brake that `[brakes]` does not set."""
    brakes: Brakes = policy.brakes
    observing = policy.mode == "observe" or entry.assessment.observes
    windows = {
        Brake.OWNER: (brakes.owner, f" of {_owner(entry, limit)}"),
        Brake.NAMESPACE: (brakes.namespace, f" in namespace {inert(entry.assessment.pod.namespace, limit)}"),
        Brake.NODE: (brakes.node, ""),
    }
    window, where = windows.get(entry.withheld_by or Brake.STALE, (None, ""))
    if window is not None:
        return _window(window, where, observing=observing)
    if entry.withheld_by is Brake.OWNER_BACKOFF and brakes.owner_backoff is not None:
        return f"the last kill or eviction of {_owner(entry, limit)} is too recent: {_waits(brakes.owner_backoff)}"
    if entry.withheld_by is Brake.BREAKER and brakes.breaker is not None:
        return _breaker(brakes.breaker)
    return ""


def _mps(hazard: MpsHazard | None, limit: int) -> str:
    """What of an MPS server's or its clients' would break."""
    role = MpsRole.HIDDEN if hazard is None else hazard.role
    if role is MpsRole.HIDDEN or hazard is None:
        return "clients of an MPS server may run on a GPU that can't be listed now, and ending one can break the others"
    who = f"container {inert(hazard.container or '', limit)}"
    if hazard.key is not None:
        who = f"process {hazard.key.pid} ({inert(hazard.name, limit)}) in {who}"
    if role is MpsRole.SERVER:
        return f"{who} may be an MPS server, and the work of all its clients would break with it"
    return f"{who} is a client of an MPS server outside its pod, and ending it can break the work of the other clients"


def _window(window: Window, where: str, *, observing: bool) -> str:
    number, per = count(window.count, "kill or eviction", "kills or evictions"), format_duration(window.per_s)
    begun = "would have been begun" if observing else "was begun" if window.count == 1 else "were begun"
    return f"{number}{where} {begun} on this node in the last {per}, and the policy allows {window.count} per {per}"


def _waits(backoff: Backoff) -> str:
    first, longest = format_duration(backoff.first_s), format_duration(backoff.max_s)
    if backoff.factor == 1 or backoff.first_s >= backoff.max_s:
        return f"the policy waits {format_duration(min(backoff.first_s, backoff.max_s))} between two of them"
    return (
        f"the policy waits {first} after the first and {backoff.factor:g} times as long after each one that follows, "
        f"at most {longest}"
    )


def _breaker(breaker: Breaker) -> str:
    share, hold = format_percent(breaker.offenders), format_duration(breaker.hold_s)
    return (
        "so many workloads are over at once that the policy or the node is in doubt, not the pods (the policy allows "
        f"less than {share} of them); until there are fewer, one is let through every {hold}"
    )


def _owner(entry: PlanEntry, limit: int) -> str:
    pod = entry.assessment.pod
    if pod.owner is None:
        return "this pod"
    return f"pods of {inert(pod.owner.kind, limit)} {inert(pod.owner.name, limit)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerTimes:
    """Since when the breaker is open, and when it lets the next one through (None: now); Unix times."""

    since_s: float
    until_s: float | None


def breaker_times(report: CycleReport) -> BreakerTimes | None:
    """How the breaker stands at a cycle; None: it is closed."""
    memory, now = report.plan.ledger.brakes, report.at
    if memory.opened is None:
        return None
    wait_s = breaker_wait_s(memory, report.policy.brakes.breaker, now.boottime_s)
    since_s = now.wall_s - (now.boottime_s - memory.opened.at_s)
    return BreakerTimes(since_s=since_s, until_s=now.wall_s + wait_s if wait_s > 0 else None)


def breaker_note(report: CycleReport) -> str:
    """Say that the breaker has opened, or was open before, why, and what follows; or that it has closed."""
    times, breaker, opened = breaker_times(report), report.policy.brakes.breaker, report.plan.ledger.brakes.opened
    if times is None or opened is None:
        return "The breaker has closed: force is used again as the rules say."
    if breaker is None:
        return "The breaker is open."
    if opened.at_s < report.at.boottime_s:
        return _still_open(times, breaker, report.at.wall_s)
    crowd, hold = report.plan.crowd, format_duration(breaker.hold_s)
    many = "" if crowd is None or not crowd.due else f": {len(crowd.due)} of {len(crowd.known)} owners are due at once"
    limit = f"{format_percent(breaker.offenders)} of at least {breaker.of_at_least}"
    return (
        f"The breaker is open{many} (the policy allows less than {limit}). Nobody is killed or evicted for {hold}, "
        f"then one owner every {hold} until fewer are over. When most are over at once, the policy or a reading is "
        "more likely wrong than all of them: look at `gpu-watchdog scan`, and at what was changed last."
    )


def _still_open(times: BreakerTimes, breaker: Breaker, wall_s: float) -> str:
    """What a daemon says of a breaker that it found open in the journal: nothing has been counted by it yet."""
    hold = format_duration(breaker.hold_s)
    nobody = f"Nobody is killed or evicted until {clock_time(times.until_s, wall_s)}, then" if times.until_s else "Now"
    return (
        f"The breaker is still open, since {clock_time(times.since_s, wall_s)}. {nobody} one owner is let through "
        f"every {hold} until fewer are over: look at `gpu-watchdog scan`, and at what was changed last."
    )
