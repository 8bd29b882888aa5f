"""What keeps the watchdog of a node from its work, and how it fares, in a line each."""

from collections.abc import Iterator

from watchdog.daemon.enforcement import remedy_on
from watchdog.export.phrases import clock_time, inert, span
from watchdog.export.status_read import Part, hangs_since

_LONGEST = 600
_MOST_NAMED = 3


def force_of(status: Part) -> str:
    """Whether force is used now, in two words."""
    if hangs_since(status) is not None:
        return "nothing enforced"
    if status.flag("enforcing"):
        return "enforcing"
    return "enforcement suspended" if status.texts("suspended") else "only observing"


def label_of(gpu: Part) -> str:
    """The short name of a GPU: its number, of a MIG instance `0/1`."""
    index, gi = gpu.whole("index"), gpu.whole("gi")
    shown = inert(gpu.text("uuid") or "unknown", 16) if index is None else str(index)
    return shown if gi is None else f"{shown}/{gi}"


def is_listed(gpu: Part) -> bool:
    """Whether all processes of a GPU are known; an older daemon does not say that they are not."""
    return gpu.flag("listed") if "listed" in gpu.values else True


def troubles_of(status: Part) -> tuple[str, ...]:
    """Sentences about what is wrong; the ones that concern the whole node come first."""
    return tuple(_troubles(status))


def _troubles(status: Part) -> Iterator[str]:
    node, at = inert(status.text("node") or ""), status.moment("at")
    hangs = hangs_since(status)
    if hangs is not None and at is not None:
        then, shown = clock_time(hangs, at), clock_time(at, at)
        yield f"The watchdog hangs, no pass has ended since {then}: all is as of {shown}, nobody new is acted on"
    for reason in status.texts("suspended"):
        yield f"Told to enforce, and only observing: {remedy_on(reason, node) or inert(reason)}"
    maintenance = status.text("maintenance")
    if maintenance is not None:
        yield f"The GPUs are under maintenance, nothing is known of them: {inert(maintenance, _LONGEST)}"
    if status.flag("pods_stale"):
        synced = status.moment("pods_synced_at")
        since = f" since {clock_time(synced, at)}" if synced is not None and at is not None else ""
        yield f"The pod list is out of date{since}: no time counts, and nobody is killed or evicted"
    yield from _of_breaker(status, at)
    yield from _of_health(status)
    for gpu in status.parts("gpus"):
        if not gpu.flag("up"):
            index = gpu.whole("index")
            yield f"GPU {'' if index is None else index} ({inert(gpu.text('uuid') or '', 60)}) does not answer"
    dark = [gpu for gpu in status.parts("gpus") if gpu.flag("up") and not is_listed(gpu)]
    if dark:
        yield f"What runs on {_gpus(dark)} is not known"
    yield from _of_gaps(status)


def _gpus(gpus: list[Part]) -> str:
    """The first few GPUs by their numbers, and how many more there are."""
    labels = [f"GPU {label_of(gpu)}" for gpu in gpus]
    more = f" and {len(labels) - _MOST_NAMED} more" if len(labels) > _MOST_NAMED else ""
    return f"{', '.join(labels[:_MOST_NAMED])}{more}"


def _of_gaps(status: Part) -> Iterator[str]:
    """What is not known; what is so for one and the same reason is told once."""
    by_why: dict[str, list[str]] = {}
    for gap in status.parts("gaps"):
        by_why.setdefault(gap.text("why") or "", []).append(inert(gap.text("what") or ""))
    for why, things in by_why.items():
        more = f", and {len(things) - 1} more" if len(things) > 1 else ""
        yield f"Not known: {things[0]}{more}: {inert(why, _LONGEST)}"


def _of_breaker(status: Part, at: float | None) -> Iterator[str]:
    breaker = status.part("breaker")
    if breaker is None or not breaker.flag("open"):
        return
    until = breaker.moment("until")
    when = f" until {clock_time(until, at)}" if until is not None and at is not None else ""
    then = "nobody is killed or evicted" if when else "one is let through at a time"
    yield f"The breaker is open: too many workloads were over at once; {then}{when}"


def _of_health(status: Part) -> Iterator[str]:
    health = status.part("health")
    if health is None:
        return
    for reason in health.texts("unready"):
        yield f"Not ready: {inert(reason, _LONGEST)}"
    blind = health.moment("blind_since")
    if blind is not None:
        since = clock_time(blind, status.moment("at") or blind)
        yield f"NVML has not answered since {since}: nothing is known of the GPUs"
    if (error := health.text("policy_error")) is not None:
        yield f"The policy file on disk is not in force: {inert(error, _LONGEST)}"


def health_of(status: Part) -> str:
    """How the daemon itself fares, as far as it says so: an older one does not."""
    health = status.part("health")
    if health is None:
        return ""
    version, uptime_s, pass_s = health.text("version"), health.number("uptime_s"), health.number("pass_p99_s")
    parts = (
        f"version {inert(version, 40)}" if version is not None else "",
        f"up {span(uptime_s)}" if uptime_s is not None else "",
        ("ready" if health.flag("ready") else "not ready") if "ready" in health.values else "",
        f"passes take {pass_s * 1000:.0f}ms" if pass_s is not None else "",
    )
    return ", ".join(filter(None, parts))
