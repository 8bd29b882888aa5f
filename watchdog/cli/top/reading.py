"""From the status of a daemon to what `top` shows: accounts, recent actions, what keeps the watchdog from its work."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from watchdog.cli.top.values import AccountView, ActionView, CardView, NodeView, ProcessView, UsedAmount, coming
from watchdog.daemon.enforcement import remedy_on
from watchdog.report.status import AccountStatus, GpuStatus, ProcessStatus, RecentStatus, Status, UnattributedStatus
from watchdog.report.text import clock_time, inert, rfc3339, span

_ABOUT: Final = re.compile(r"^(?:Container \S+ of p|P)od [^\s/]+/[^\s:]+:? ")


def actions_of(status: Status) -> tuple[ActionView, ...]:
    """The actions that a status has, newest first."""
    return tuple(_recent(part) for part in status.recent)


def _recent(part: RecentStatus) -> ActionView:
    pod = f"{part.namespace}/{part.pod}"
    told = part.reason or part.outcome or part.why or ""
    return ActionView(
        at_s=part.at,
        title=_title(part),
        do=inert(part.do or "", 20),
        result=inert(result, 40) if (result := part.result) is not None else None,
        used=UsedAmount(known=part.used, least=part.used_at_least or 0),
        allowed=part.allowed,
        rule=inert(part.rule or ""),
        # Its pod stands beside it already.
        why=inert(_ABOUT.sub("", told) if f"od {pod}" in told else told, 600),
    )


def _title(part: RecentStatus) -> str:
    container = part.container
    pod = f"{inert(part.namespace or '')}/{inert(part.pod or '')}"
    return f"{pod} [{inert(container)}]" if container else pod


_LONGEST_TROUBLE = 600
_MOST_NAMED = 3


def force_of(status: Status) -> str:
    """Whether force is used now, in two words."""
    if status.hangs_since is not None:
        return "nothing enforced"
    if status.enforcing:
        return "enforcing"
    return "enforcement suspended" if status.suspended else "only observing"


def troubles_of(status: Status) -> tuple[str, ...]:
    """Sentences about what is wrong; the ones that concern the whole node come first."""
    return tuple(_troubles(status))


def _troubles(status: Status) -> Iterator[str]:
    node, at = inert(status.node or ""), status.at
    hangs = status.hangs_since
    if hangs is not None and at is not None:
        then, shown = clock_time(hangs, at), clock_time(at, at)
        yield f"The watchdog hangs, no pass has ended since {then}: all is as of {shown}, nobody new is acted on"
    for reason in status.suspended:
        yield f"Told to enforce, and only observing: {remedy_on(reason, node) or inert(reason)}"
    maintenance = status.maintenance
    if maintenance is not None:
        yield f"The GPUs are under maintenance, nothing is known of them: {inert(maintenance, _LONGEST_TROUBLE)}"
    if status.pods_stale:
        synced = status.pods_synced_at
        since = f" since {clock_time(synced, at)}" if synced is not None and at is not None else ""
        yield f"The pod list is out of date{since}: no time counts, and nobody is killed or evicted"
    yield from _of_breaker(status, at)
    yield from _of_health(status)
    for gpu in status.gpus:
        if not gpu.up:
            index = gpu.index
            yield f"GPU {'' if index is None else index} ({inert(gpu.uuid or '', 60)}) does not answer"
    dark = [gpu for gpu in status.gpus if gpu.up and not gpu.listed]
    if dark:
        yield f"What runs on {_gpus(dark)} is not known"
    yield from _of_gaps(status)


def _gpus(gpus: list[GpuStatus]) -> str:
    """The first few GPUs by their numbers, and how many more there are."""
    labels = [f"GPU {gpu.number}" for gpu in gpus]
    more = f" and {len(labels) - _MOST_NAMED} more" if len(labels) > _MOST_NAMED else ""
    return f"{', '.join(labels[:_MOST_NAMED])}{more}"


def _of_gaps(status: Status) -> Iterator[str]:
    """What is not known; what is so for one and the same reason is told once."""
    by_why: dict[str, list[str]] = {}
    for gap in status.gaps:
        by_why.setdefault(gap.text, []).append(inert(gap.what or ""))
    for why, things in by_why.items():
        more = f", and {len(things) - 1} more" if len(things) > 1 else ""
        yield f"Not known: {things[0]}{more}: {inert(why, _LONGEST_TROUBLE)}"


def _of_breaker(status: Status, at: float | None) -> Iterator[str]:
    breaker = status.breaker
    if breaker is None or not breaker.open:
        return
    until = breaker.until
    when = f" until {clock_time(until, at)}" if until is not None and at is not None else ""
    then = "nobody is killed or evicted" if when else "one is let through at a time"
    yield f"The breaker is open: too many workloads were over at once; {then}{when}"


def _of_health(status: Status) -> Iterator[str]:
    health = status.health
    if health is None:
        return
    for reason in health.unready:
        yield f"Not ready: {inert(reason, _LONGEST_TROUBLE)}"
    blind = health.blind_since
    if blind is not None:
        since = clock_time(blind, status.at or blind)
        yield f"NVML has not answered since {since}: nothing is known of the GPUs"
    if (error := health.policy_error) is not None:
        yield f"The policy file on disk is not in force: {inert(error, _LONGEST_TROUBLE)}"


def health_of(status: Status) -> str:
    """How the daemon itself fares, as far as it says so: an older one does not."""
    health = status.health
    if health is None:
        return ""
    version, uptime_s, pass_s = health.version, health.uptime_s, health.pass_p99_s
    parts = (
        f"version {inert(version, 40)}" if version else "",
        f"up {span(uptime_s)}" if uptime_s else "",
        ("ready" if health.ready else "not ready"),
        f"passes take {pass_s * 1000:.0f}ms" if pass_s is not None else "",
    )
    return ", ".join(filter(None, parts))


_LONGEST: Final = 600


def read_view(status: Status) -> NodeView:
    """What a status says."""
    labels = {gpu.uuid or "": gpu.number for gpu in status.gpus}
    accounts = status.accounts
    return NodeView(
        node=inert(status.node or ""),
        at=rfc3339(status.at),
        at_s=status.at,
        ago_s=_ago_s(status),
        mode=inert(status.mode or ""),
        force=force_of(status),
        cards=_cards(status, labels),
        accounts=tuple(_account(each, status, labels) for each in accounts),
        no_pod=_no_pod(status, labels),
        actions=actions_of(status),
        troubles=troubles_of(status),
        health=health_of(status),
        counts=not status.pods_stale and status.maintenance is None and status.hangs_since is None,
    )


def _ago_s(status: Status) -> float:
    """How long ago the cycle was when the daemon answered; 0 where it does not say."""
    health = status.health
    return max(health.last_pass_ago_s or 0.0, 0.0) if health is not None else 0.0


def total(amounts: Iterable[int | None]) -> UsedAmount:
    """A sum, of which parts may not be known."""
    parts = list(amounts)
    least = sum(each for each in parts if each is not None)
    return UsedAmount(known=None if None in parts else least, least=least)


def _cards(status: Status, labels: Mapping[str, str]) -> tuple[CardView, ...]:
    of_pods = _by_gpu(use for account in status.accounts for use in account.processes)
    of_none = _by_gpu(status.unattributed)
    free_below = status.free_share
    found = []
    for gpu in status.gpus:
        uuid, memory = gpu.uuid or "", gpu.memory
        whole, used = memory.total, memory.used
        found.append(
            CardView(
                uuid=inert(uuid),
                label=labels[uuid],
                name=" ".join(filter(None, (inert(gpu.name or "", 80), inert(gpu.profile or "", 40)))),
                up=gpu.up,
                total=whole,
                used=used,
                reserved=memory.reserved,
                residual=memory.residual,
                pods=_whole(total(of_pods.get(uuid, ())), gpu),
                no_pod=_whole(total(of_none.get(uuid, ())), gpu),
                short=bool(whole) and used is not None and (whole or 0) - used < free_below * (whole or 0),
            )
        )
    return tuple(found)


def _whole(sum_: UsedAmount, gpu: GpuStatus) -> UsedAmount:
    """What processes use: where not all are known, no more than that it is at least so much."""
    return sum_ if gpu.listed else UsedAmount(known=None, least=sum_.floor)


def _by_gpu(uses: Iterable[ProcessStatus | UnattributedStatus]) -> dict[str, list[int | None]]:
    found: dict[str, list[int | None]] = {}
    for use in uses:
        found.setdefault(use.gpu or "", []).append(use.used)
    return found


def _account(part: AccountStatus, status: Status, labels: Mapping[str, str]) -> AccountView:
    gpu, container = part.gpu, part.container
    used = UsedAmount(known=part.used, least=part.used_at_least or 0)
    first, then = coming(part, status)
    return AccountView(
        key=(part.uid or "", container or "", gpu or ""),
        namespace=inert(part.namespace or ""),
        pod=inert(part.pod or ""),
        container="unlisted containers" if container == "" else inert(container or ""),
        card="" if gpu is None else f"GPU {labels.get(gpu) or inert(gpu)}",
        used=used,
        declared=part.declared,
        declared_by=inert(part.declared_by or ""),
        allowed=part.allowed,
        verdict=inert(part.verdict or "") or "unknown",
        rule=inert(part.rule or ""),
        protected=inert(part.protected or "", _LONGEST),
        over_since_s=part.over_since,
        next=first,
        then=then,
        processes=tuple(_process(use, labels, inert(use.container or "")) for use in part.processes),
    )


def _process(use: ProcessStatus | UnattributedStatus, labels: Mapping[str, str], where: str) -> ProcessView:
    gpu = use.gpu or ""
    card, name = labels.get(gpu) or inert(gpu) or "unknown", use.name if isinstance(use, ProcessStatus) else ""
    return ProcessView(pid=use.pid or 0, name=inert(name, 120), where=where, card=card, used=use.used)


def _no_pod(status: Status, labels: Mapping[str, str]) -> AccountView | None:
    """A row for the processes of no pod, which is no account of anybody; None: there are none."""
    uses = status.unattributed
    is_whole = all(gpu.listed for gpu in status.gpus)
    if not uses:
        return None
    used = total(use.used for use in uses)
    return AccountView(
        key=("", "", ""),
        namespace="",
        pod="",
        container="",
        card="",
        used=used if is_whole else UsedAmount(known=None, least=used.floor),
        declared=None,
        declared_by="",
        allowed=None,
        verdict="",
        rule="",
        protected="",
        over_since_s=None,
        next=None,
        then=None,
        processes=tuple(_process(use, labels, inert(use.reason or "")) for use in uses),
    )
