"""Whether the watchdog enforces, how it is, and sentences about what keeps it from its work."""

import re
from collections.abc import Iterator
from typing import Final

from watchdog.daemon.enforcement import remedy_on
from watchdog.report.status import GpuStatus, RecentStatus, Status
from watchdog.report.text import clock_time, inert, span

_LONGEST: Final = 2000
_MOST_NAMED: Final = 3
_SUBJECT: Final = re.compile(r"^(?:Container \S+ of p|P)od [^\s/]+/[^\s:]+:? ")


def enforcement(status: Status) -> str:
    """Whether it enforces now, in two words."""
    if status.hangs_since is not None:
        return "daemon hung"
    if status.enforcing:
        return "enforcing"
    return "enforcement suspended" if status.suspended else "only observing"


def health(status: Status) -> str:
    """How the daemon itself is, as far as it says so: an older one does not."""
    found = status.health
    if found is None:
        return ""
    parts = (
        f"version {found.version}" if found.version else "",
        f"up {span(found.uptime_s)}" if found.uptime_s else "",
        "ready" if found.ready else "not ready",
        f"cycles take {found.pass_p99_s * 1000:.0f}ms" if found.pass_p99_s is not None else "",
    )
    return ", ".join(filter(None, parts))


def problems(status: Status) -> tuple[str, ...]:
    """Sentences about what is wrong; the ones that concern the whole node come first."""
    return tuple(inert(problem, _LONGEST) for problem in _problems(status))


def why(recent: RecentStatus) -> str:
    """Why an action was taken, or what came of it, without the pod that stands beside it already."""
    told = recent.reason or recent.outcome or recent.why
    return _SUBJECT.sub("", told) if f"od {recent.namespace}/{recent.pod}" in told else told


def _problems(status: Status) -> Iterator[str]:
    at, hangs = status.at, status.hangs_since
    if hangs is not None:
        yield (
            f"The daemon is hung: no cycle has completed since {clock_time(hangs, at)}. All data is as of "
            f"{clock_time(at, at)}, and no new action is taken"
        )
    for reason in status.suspended:
        yield f"Enforcement is suspended, no action is taken: {remedy_on(reason, status.node) or reason}"
    if status.maintenance is not None:
        yield f"The GPUs are under maintenance, and nothing is known about them: {status.maintenance}"
    if status.pods_stale:
        since = f" since {clock_time(status.pods_synced_at, at)}" if status.pods_synced_at is not None else ""
        yield f"The pod list is out of date{since}: all timers are stopped, and no pod is killed or evicted"
    yield from _of_breaker(status)
    yield from _of_health(status)
    for gpu in status.gpus:
        if not gpu.up:
            yield f"GPU {'' if gpu.index is None else f'{gpu.index} '}({gpu.uuid}) is not responding"
    unlisted = [gpu for gpu in status.gpus if gpu.up and not gpu.listed]
    if unlisted:
        yield f"What runs on {_gpus(unlisted)} is not known"
    yield from _of_gaps(status)


def _gpus(gpus: list[GpuStatus]) -> str:
    """The first few GPUs by their numbers, and how many more there are."""
    labels = [f"GPU {gpu.number}" for gpu in gpus]
    more = f" and {len(labels) - _MOST_NAMED} more" if len(labels) > _MOST_NAMED else ""
    return f"{', '.join(labels[:_MOST_NAMED])}{more}"


def _of_breaker(status: Status) -> Iterator[str]:
    breaker = status.breaker
    if not breaker.open:
        return
    then = "one action is let through at a time"
    if breaker.until is not None:
        then = f"no pod is killed or evicted until {clock_time(breaker.until, status.at)}"
    yield f"The breaker is open: too many workloads were over their limit at once; {then}"


def _of_health(status: Status) -> Iterator[str]:
    found = status.health
    if found is None:
        return
    for reason in found.unready:
        yield f"Not ready: {reason}"
    if found.blind_since is not None:
        since = clock_time(found.blind_since, status.at)
        yield f"NVML has not responded since {since}: nothing is known about the GPUs"
    if found.policy_error is not None:
        yield f"The policy file on disk is not in force: {found.policy_error}"


def _of_gaps(status: Status) -> Iterator[str]:
    """What is unknown; things that are so for the same reason are one sentence."""
    by_why: dict[str, list[str]] = {}
    for gap in status.gaps:
        by_why.setdefault(gap.text, []).append(gap.what)
    for reason, things in by_why.items():
        more = f", and {len(things) - 1} more" if len(things) > 1 else ""
        yield f"Unknown: {things[0]}{more}: {reason}"
