"""Whether the watchdog enforces, how it is, and sentences about what keeps it from its work."""

from collections.abc import Iterator
from typing import Final

from watchdog.daemon.enforcement import remedy_on
from watchdog.report.sentences.node import (
    breaker_open,
    hung,
    pods_stale,
    unanswered,
    under_maintenance,
    unlisted,
    without_unanswered,
)
from watchdog.report.status import RecentStatus, Status
from watchdog.report.text import inert, span

_LONGEST: Final = 2000


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
    return tuple(inert(problem, _LONGEST).rstrip(".") for problem in _problems(status) if problem)


def why(recent: RecentStatus) -> str:
    """What an action was taken for, what hindered it, and when its memory was free."""
    freed = ""
    if recent.unreleased is not None:
        freed = f"memory not seen free: {recent.unreleased}"
    elif recent.effect_at is not None and recent.released_at is not None:
        freed = f"memory free after {span(recent.released_at - recent.effect_at)}"
    return "; ".join(filter(None, (recent.mark, recent.reason, freed)))


def _problems(status: Status) -> Iterator[str]:
    now_s, health = status.at, status.health
    yield hung(status, now_s)
    for reason in status.suspended:
        yield f"Enforcement is suspended, no action is taken: {remedy_on(reason, status.node) or reason}"
    yield under_maintenance(status)
    yield pods_stale(status, now_s)
    yield breaker_open(status, now_s)
    if health is not None:
        yield from (f"Not ready: {reason}" for reason in health.unready)
        yield f"The policy file on disk is not in effect: {health.policy_error}" if health.policy_error else ""
    yield from unanswered(status, now_s)
    yield unlisted([gpu for gpu in status.gpus if gpu.up and not gpu.listed])
    yield from _of_gaps(without_unanswered(status))


def _of_gaps(status: Status) -> Iterator[str]:
    """What is unknown; things that are so for the same reason are one sentence."""
    by_why: dict[str, list[str]] = {}
    for gap in status.gaps:
        by_why.setdefault(gap.text, []).append(gap.what)
    for reason, things in by_why.items():
        more = f", and {len(things) - 1} more" if len(things) > 1 else ""
        yield f"Unknown: {things[0]}{more}: {reason}"
