"""The node's condition in words: what keeps the watchdog from acting there, and what it can't see.

Each text has one sentence or more and is empty if it does not apply. `now_s` is the Unix time at which it is read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from watchdog.core.assessment import Reason
from watchdog.core.brakes import BrakeMemory, breaker_wait_s
from watchdog.core.model import MAINTENANCE, Now
from watchdog.core.plan import CycleReport, StopNote
from watchdog.core.policy import Brakes
from watchdog.core.units import format_duration, format_percent
from watchdog.report.sentences.brakes import acted_on, until
from watchdog.report.status import BreakerStatus, GapStatus, GpuStatus, Moment, Status, StopStatus
from watchdog.report.text import clock_time, count, inert, quoted, rfc3339

TIMERS_PAUSED: Final = "timers are paused, and no pod is killed or evicted"
_LONGEST: Final = 600
MOST_NAMED: Final = 3  # the others are counted
_CHECK_DRIVER: Final = (
    "The node's operator should check its GPU driver (`nvidia-smi`, and the kernel log for NVRM and Xid)."
)
_NO_OWNER: Final = ("", "", "")


class StrayWords(NamedTuple):
    """How memory of processes that belong to no known pod is described, for one reason."""

    # Of several processes: `processes of a pod that is not in the pod list`.
    several: str
    # Of one.
    one: str
    # What to do about it, without a full stop.
    advice: str


# By reason, the most frequent ones first.
STRAYS: Final[Mapping[str, StrayWords]] = {
    Reason.HOST: StrayWords(
        "outside any pod", "a process of the host", "Check what runs on the node besides Kubernetes"
    ),
    Reason.UNKNOWN_POD: StrayWords(
        "of a pod that is not in the pod list",
        "its pod is not in the pod list",
        "A new pod appears here for a few seconds; otherwise check the pod list",
    ),
    Reason.SPOOFED: StrayWords(
        "in another pod's cgroup",
        "its cgroup names another pod's container",
        "Find out what they are: no container runtime does this",
    ),
    Reason.MPS_SERVER: StrayWords(
        "of the MPS server", "the MPS server, with its clients' memory", "This may include its clients' memory"
    ),
    Reason.ZOMBIE: StrayWords(
        "that are zombies", "a zombie: not reaped by its parent", "Their parent processes have not reaped them"
    ),
    Reason.GONE: StrayWords(
        "that have exited and are still listed by the driver",
        "ended, but its memory is still listed",
        "If they stay, drain the node and reset the GPU",
    ),
}


def gpu_label(gpu: GpuStatus) -> str:
    """The name of a GPU for people: `GPU 3`, of a MIG instance `GPU 3, instance 1`."""
    return card_label(gpu) if gpu.gi is None else f"{card_label(gpu)}, instance {gpu.gi}"


def card_label(gpu: GpuStatus) -> str:
    """The name of its card."""
    return f"GPU {inert(gpu.uuid) if gpu.index is None else gpu.index}"


def gpu_labels(gpus: Sequence[GpuStatus]) -> str:
    """The names of the first few GPUs, and how many more there are: `GPU 0, GPU 1, GPU 2 and 2 more`."""
    return few([gpu_label(gpu) for gpu in gpus])


def utilization_gaps(gpus: Sequence[GpuStatus]) -> Iterator[str]:
    """Of which GPUs, or of the processes on which, it isn't known how busy they are, a sentence for each reason."""
    by_reason: dict[tuple[str, bool], list[GpuStatus]] = {}
    for gpu in gpus:
        if gpu.up and gpu.utilization_unknown is not None:
            by_reason.setdefault((gpu.utilization_unknown, gpu.utilization is None), []).append(gpu)
    for (why, is_whole), found in by_reason.items():
        labels, is_one = gpu_labels(found), is_whole and len(found) == 1
        what = labels if is_whole else f"processes on {labels}"
        yield f"How busy {what} {'is' if is_one else 'are'} isn't known: {inert(why, 600)}."


def few(names: Sequence[str]) -> str:
    """The first few of some names, and how many more there are: `a, b, c and 2 more`."""
    first, more = list(names[:MOST_NAMED]), len(names) - MOST_NAMED
    last = f"{more} more" if more > 0 else first.pop()
    return f"{', '.join(first)} and {last}" if first else last


def gap_subject(gap: GapStatus, gpus: Sequence[GpuStatus]) -> str:
    """What is unknown, with the number of its card for the UUID where that is known: `GPU 0 processes`."""
    subject, *rest = gap.what.split(" ", 1)
    for gpu in gpus:
        if gpu.index is not None and subject in (gpu.uuid, gpu.parent):
            return " ".join([gpu_label(gpu) if subject == gpu.uuid else f"GPU {gpu.index}", *rest])
    return gap.what


def with_reason_given(remedy: str, switch: str, stops: Sequence[StopNote | StopStatus], node: str) -> str:
    """A remedy for a suspension, with the reason that was given where a switch suspends enforcement."""
    known = next((stop for stop in stops if stop.switch == switch), None)
    return f"{remedy} ({reason_given(known, node)})" if known is not None else remedy


def reason_given(stop: StopNote | StopStatus, node: str) -> str:
    """Who stopped enforcement and why, as a clause: `stopped by root at 2026-01-02 14:05:10 UTC: "driver upgrade"`."""
    by, why = f"stopped by {inert(stop.by)}" if stop.by else "", quoted(stop.why, _LONGEST)
    if why:
        return f'{by or "the reason given"}: "{why}"'
    # The API server records which client set each field and when (metadata.managedFields), which kubectl hides.
    shown = f"`kubectl get node {inert(node)} -o yaml --show-managed-fields` shows who set it and when"
    who = by or (shown if stop.switch == "node_annotation" else "")
    return f"no reason was given{f'; {who}' * bool(who)}"


def hung(status: Status, now_s: float) -> str:
    """That the daemon answers while no cycle completes, so its data is old."""
    if status.hangs_since is None:
        return ""
    return (
        f"The watchdog on this node is hung: no cycle has completed since {clock_time(status.hangs_since, now_s)}. Its "
        f"data is as of {clock_time(status.at, now_s)}, and no new kill or eviction starts until a cycle completes."
    )


def hung_in_full(status: Status) -> tuple[str, ...]:
    """That the daemon is hung, as of the cycle, with the actions that continue and what to check."""
    if status.hangs_since is None:
        return ()
    return hung(status, status.at), _actions_continue(status), _CHECK_DRIVER


def _actions_continue(status: Status) -> str:
    """That actions in progress continue without a cycle, with the pods concerned."""
    titles = [account.title for account in status.accounts if account.under_way is not None]
    titles += [entry.title for entry in status.plan if entry.pending is not None]
    pods = sorted({inert(title) for title in titles})
    more = f" and {count(len(pods) - MOST_NAMED, 'more pod')}" if len(pods) > MOST_NAMED else ""
    known = f"; in progress: {', '.join(pods[:MOST_NAMED])}{more}" if pods else ""
    return f"Actions already in progress may continue, up to SIGKILL or a retried eviction{known}."


def maintenance_since(why: str, since: str | None, *, at_least: bool) -> str:
    """Which label or annotation says that the GPUs are under maintenance, and since when (None: unknown)."""
    return why if since is None else f"{why}, since {'at least ' if at_least else ''}{since}"


def maintenance_clause(status: Status, now_s: float) -> str:
    """The maintenance for people: `the node's label LABEL is VALUE, since 14:05:10 UTC`; empty if there is none."""
    if status.maintenance is None:
        return ""
    since = None if status.maintenance_since is None else clock_time(status.maintenance_since, now_s)
    why = inert(status.maintenance, _LONGEST)
    return maintenance_since(why, since, at_least=status.maintenance_since_at_least)


def maintenance_line(report: CycleReport) -> str:
    """The maintenance for programs, with the time as RFC 3339; empty if there is none."""
    start, since_s = report.maintenance_start, report.maintenance_since_s
    if report.maintenance is None:
        return ""
    why, since = inert(report.maintenance, _LONGEST), None if since_s is None else rfc3339(since_s)
    return maintenance_since(why, since, at_least=start is not None and not start.seen)


def suspensions(report: CycleReport) -> tuple[str, ...]:
    """The reasons of suspension for programs; that of maintenance has the label, its value and since when."""
    line = maintenance_line(report)
    return tuple(f"{reason}: {line}" if reason == MAINTENANCE and line else reason for reason in report.suspended)


def under_maintenance(status: Status) -> str:
    """That the driver is released, why, and since when."""
    why = maintenance_clause(status, status.at)
    if not why:
        return ""
    return (
        f"The GPUs of this node are under maintenance ({why}): their use is unknown, and no pod is killed or evicted."
    )


def unanswered(status: Status, now_s: float) -> tuple[str, ...]:
    """That the driver is not responding, or which GPUs are not; not during maintenance, when that is intended."""
    if status.maintenance is not None:
        return ()
    if no_answer := _blind(status, now_s):
        return (no_answer,)
    silent = _silent(status)
    found = tuple(_silent_gpu(gpu, status, now_s) for gpu in silent[:MOST_NAMED])
    if len(silent) <= MOST_NAMED:
        return found
    return (*found, f"{count(len(silent) - MOST_NAMED, 'more GPU is', 'more GPUs are')} not responding either.")


def unanswered_in_full(status: Status) -> tuple[str, ...]:
    """That the driver is not responding, as of the cycle, with the actions that continue."""
    found = unanswered(status, status.at)
    return (*found, _actions_continue(status)) if found else ()


def without_unanswered(status: Status) -> Status:
    """The status without the gaps that `unanswered` and `under_maintenance` report."""
    return status.without_gaps({status.interface, *(gpu.uuid for gpu in _silent(status))})


def _silent(status: Status) -> list[GpuStatus]:
    return [gpu for gpu in status.gpus if not gpu.up]


def _blind(status: Status, now_s: float) -> str:
    since_s = status.health.blind_since if status.health is not None else None
    error = _error(status, status.interface)
    if since_s is None and not error:
        return ""
    unknown = "the GPUs of this node and the pods using them are unknown"
    until_then = "No new kill or eviction starts until it responds again."
    return f"{status.interface} {_silent_since(since_s, now_s)}: {unknown}.{error} {until_then}"


def _silent_gpu(gpu: GpuStatus, status: Status, now_s: float) -> str:
    name = gpu_label(gpu) if gpu.index is None else f"{gpu_label(gpu)} ({inert(gpu.uuid)})"
    since_s = next((gap.since for gap in status.gaps if gap.what == gpu.uuid), None)
    return f"{name} {_silent_since(since_s, now_s)}: its use by pod is unknown.{_error(status, gpu.uuid)}"


def unlisted(gpus: Sequence[GpuStatus]) -> str:
    """That the processes on these GPUs are unknown."""
    return f"What runs on {gpu_labels(gpus)} is not known." if gpus else ""


def _silent_since(since_s: float | None, now_s: float) -> str:
    return "is not responding" if since_s is None else f"has not responded since {clock_time(since_s, now_s)}"


def _error(status: Status, what: str) -> str:
    found = inert(next((gap.text for gap in status.gaps if gap.what == what), ""), _LONGEST).rstrip(".")
    return f" Its error: {found}." if found else ""


def out_of_sight(status: Status) -> tuple[str, ...]:
    """What keeps the daemon from seeing its whole node; empty if nothing does."""
    found = (*hung_in_full(status), under_maintenance(status), *unanswered_in_full(status))
    return tuple(filter(None, found)) or tuple(_incomplete_lists(status))


def _incomplete_lists(status: Status) -> Iterator[str]:
    """GPUs that respond but do not list all of their processes."""
    for gpu in status.gpus:
        if gpu.up and not gpu.listed:
            gap = next((gap for gap in status.gaps if gap.what.startswith(gpu.uuid)), GapStatus())
            lasting = f", since {clock_time(gap.since, status.at)}" if gap.since is not None else ""
            why = inert(gap.text or "the driver does not list them", _LONGEST).rstrip(".")
            yield f"The list of processes on {gpu_label(gpu)} is incomplete{lasting}: {why}."


def pods_stale(status: Status, now_s: float) -> str:
    """That the pod list is too old to act on, and since when."""
    if not status.pods_stale:
        return ""
    synced = status.pods_synced_at
    last = "has not been read yet" if synced is None else f"is out of date, last updated at {clock_time(synced, now_s)}"
    return f"The pod list {last}: {TIMERS_PAUSED}."


def breaker_open(status: Status, now_s: float) -> str:
    """That the breaker is open, since when, why, and what it lets through."""
    breaker = status.breaker
    if not breaker.open:
        return ""
    state = f"has been open since {clock_time(breaker.since, now_s)}" if breaker.since is not None else "is open"
    acts = acted_on(observing=not status.enforcing)
    then = f"one workload at a time {acts}"
    if breaker.until is not None:
        then = f"no pod {acts} until {clock_time(breaker.until, now_s)}, then one workload at a time"
    return f"The breaker {state}, because so many workloads were over their limits at once: {then}."


def breaker_status(report: CycleReport) -> BreakerStatus:
    """Whether the breaker is open at a cycle, since when, and when it lets the next one through (None: now)."""
    memory, now = report.plan.ledger.brakes, report.at
    if memory.opened is None:
        return BreakerStatus()
    wait_s = breaker_wait_s(memory, report.policy.brakes.breaker, now.boottime_s)
    since = Moment(now.wall_s - (now.boottime_s - memory.opened.at_s))
    return BreakerStatus(open=True, since=since, until=Moment(now.wall_s + wait_s) if wait_s > 0 else None)


def breaker_note(report: CycleReport) -> str:
    """That the breaker has opened, or was open before, why, and what follows; or that it has closed."""
    breaker, opened, now = report.policy.brakes.breaker, report.plan.ledger.brakes.opened, report.at
    if opened is None:
        return "The breaker has closed: it no longer withholds kills and evictions."
    if breaker is None:
        return "The breaker is open."
    hold, acts = format_duration(breaker.hold_s), acted_on(observing=not report.enforcing)
    if opened.at_s < now.boottime_s:  # found open in the journal: this daemon has not counted anything yet
        status = breaker_status(report)
        then = f"one workload {acts} every {hold} until fewer are over"
        if status.until:
            then = f"no pod {acts} until {clock_time(status.until, now.wall_s)}, then {then}"
        since = clock_time(status.since or now.wall_s, now.wall_s)
        return f"The breaker has been open since {since}: {then}. Check `gpu-watchdog scan` and recent changes."
    crowd = report.plan.breaker_owners
    many = ""
    if crowd is not None and crowd.due:
        many = f": {len(crowd.due)} of {len(crowd.known)} workloads were due at once"
    limit = f"{format_percent(breaker.offenders)} of at least {breaker.of_at_least}"
    return (
        f"The breaker is open{many} (it opens at {limit}). No pod {acts} for {hold}, "
        f"then one workload every {hold} until fewer are over. A wrong policy or reading is more likely than that many "
        "real offenders: check `gpu-watchdog scan` and recent changes."
    )


def lost_memory_note(memory: BrakeMemory, brakes: Brakes, now: Now) -> str:
    """Which brakes are treated as full because the journal was lost, and until when; empty if none is."""
    waits = memory.waits(_NO_OWNER, brakes, now.boottime_s)
    if memory.lost_s is None or not waits:
        return ""
    lost = clock_time(now.wall_s - (now.boottime_s - memory.lost_s), now.wall_s)
    held = ", ".join(f"{brake.value}{until(wait_s, now.wall_s).replace(',', '')}" for brake, wait_s in waits)
    return (
        f"The journal was found damaged or missing at {lost}. How many kills and evictions came before is unknown, so "
        f"each limit and back-off of the policy is treated as reached for one full period ({held})."
    )
