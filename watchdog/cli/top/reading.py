"""From the status of a daemon to what `top` shows: accounts, recent actions, what keeps the watchdog from its work."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from watchdog.cli.top.values import AccountView, ActionView, CardView, NodeView, ProcessView, UsedAmount, coming
from watchdog.daemon.enforcement import remedy_on
from watchdog.report.status_read import Part, doubts_of, hangs_since
from watchdog.report.text import clock_time, inert, span

_ABOUT: Final = re.compile(r"^(?:Container \S+ of p|P)od [^\s/]+/[^\s:]+:? ")


def actions_of(status: Part) -> tuple[ActionView, ...]:
    """The actions that a status has, newest first; of a daemon that keeps none, only those that are in progress."""
    if "recent" in status.values:
        return tuple(_recent(part) for part in status.parts("recent"))
    return tuple(_under_way(status))


def _recent(part: Part) -> ActionView:
    pod = f"{part.text('namespace')}/{part.text('pod')}"
    told = part.text("reason") or part.text("outcome") or part.text("why") or ""
    return ActionView(
        at_s=part.moment("at"),
        title=_title(part),
        do=inert(part.text("do") or "", 20),
        result=inert(result, 40) if (result := part.text("result")) is not None else None,
        used=UsedAmount(known=part.whole("used"), least=part.whole("used_at_least") or 0),
        allowed=part.whole("allowed"),
        rule=inert(part.text("rule") or ""),
        # Its pod stands beside it already.
        why=inert(_ABOUT.sub("", told) if f"od {pod}" in told else told, 600),
    )


def _title(part: Part) -> str:
    container = part.text("container")
    pod = f"{inert(part.text('namespace') or '')}/{inert(part.text('pod') or '')}"
    return f"{pod} [{inert(container)}]" if container else pod


def _under_way(status: Part) -> Iterator[ActionView]:
    for account in status.parts("accounts"):
        action = account.part("under_way")
        if action is not None:
            yield ActionView(
                at_s=None,
                title=_title(account),
                do=inert(action.text("do") or "", 20),
                result=None,
                used=UsedAmount(known=account.whole("used"), least=account.whole("used_at_least") or 0),
                allowed=account.whole("allowed"),
                rule=inert(account.text("rule") or ""),
                why="",
            )


_LONGEST_TROUBLE = 600
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
        yield f"The GPUs are under maintenance, nothing is known of them: {inert(maintenance, _LONGEST_TROUBLE)}"
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
        yield f"Not known: {things[0]}{more}: {inert(why, _LONGEST_TROUBLE)}"


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
        yield f"Not ready: {inert(reason, _LONGEST_TROUBLE)}"
    blind = health.moment("blind_since")
    if blind is not None:
        since = clock_time(blind, status.moment("at") or blind)
        yield f"NVML has not answered since {since}: nothing is known of the GPUs"
    if (error := health.text("policy_error")) is not None:
        yield f"The policy file on disk is not in force: {inert(error, _LONGEST_TROUBLE)}"


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


_LONGEST: Final = 600


def read_view(document: Mapping[str, Any]) -> NodeView:
    """What a status says; StatusError where it is no status of a gpu-watchdog.

    A value that can't be read is not known, and that is one of the troubles.
    """
    status = Part(document, doubts=[])
    view = _view(status)
    doubts = doubts_of(status)
    return replace(view, troubles=(*view.troubles, doubts)) if doubts else view


def _view(status: Part) -> NodeView:
    labels = {gpu.text("uuid") or "": label_of(gpu) for gpu in status.parts("gpus")}
    accounts = status.parts("accounts")
    return NodeView(
        node=_text(status, "node"),
        at=_text(status, "at"),
        at_s=status.moment("at"),
        ago_s=_ago_s(status),
        mode=_text(status, "mode"),
        force=force_of(status),
        cards=_cards(status, labels),
        accounts=tuple(_account(each, status, labels) for each in accounts),
        no_pod=_no_pod(status, labels),
        actions=actions_of(status),
        troubles=troubles_of(status),
        health=health_of(status),
        counts=not status.flag("pods_stale") and status.text("maintenance") is None and hangs_since(status) is None,
    )


def _ago_s(status: Part) -> float:
    """How long ago the cycle was when the daemon answered; 0 where it does not say."""
    health = status.part("health")
    return max(health.number("last_pass_ago_s") or 0.0, 0.0) if health is not None else 0.0


def _text(part: Part, key: str, limit: int = 253) -> str:
    return inert(part.text(key) or "", limit)


def total(amounts: Iterable[int | None]) -> UsedAmount:
    """A sum, of which parts may not be known."""
    parts = list(amounts)
    least = sum(each for each in parts if each is not None)
    return UsedAmount(known=None if None in parts else least, least=least)


def _cards(status: Part, labels: Mapping[str, str]) -> tuple[CardView, ...]:
    of_pods = _by_gpu(use for account in status.parts("accounts") for use in account.parts("processes"))
    of_none = _by_gpu(status.parts("unattributed"))
    free_below = status.percent("free_below") or 0.0
    found = []
    for gpu in status.parts("gpus"):
        uuid, memory = gpu.text("uuid") or "", gpu.part("memory") or Part({})
        whole, used = memory.whole("total"), memory.whole("used")
        found.append(
            CardView(
                uuid=inert(uuid),
                label=labels[uuid],
                name=" ".join(filter(None, (_text(gpu, "name", 80), _text(gpu, "profile", 40)))),
                up=gpu.flag("up"),
                total=whole,
                used=used,
                reserved=memory.whole("reserved"),
                residual=memory.whole("residual"),
                pods=_whole(total(of_pods.get(uuid, ())), gpu),
                no_pod=_whole(total(of_none.get(uuid, ())), gpu),
                short=bool(whole) and used is not None and (whole or 0) - used < free_below * (whole or 0),
            )
        )
    return tuple(found)


def _whole(sum_: UsedAmount, gpu: Part) -> UsedAmount:
    """What processes use: where not all are known, no more than that it is at least so much."""
    return sum_ if is_listed(gpu) else UsedAmount(known=None, least=sum_.floor)


def _by_gpu(uses: Iterable[Part]) -> dict[str, list[int | None]]:
    found: dict[str, list[int | None]] = {}
    for use in uses:
        found.setdefault(use.text("gpu") or "", []).append(use.whole("used"))
    return found


def _account(part: Part, status: Part, labels: Mapping[str, str]) -> AccountView:
    gpu, container = part.text("gpu"), part.text("container")
    used = UsedAmount(known=part.whole("used"), least=part.whole("used_at_least") or 0)
    first, then = coming(part, status)
    return AccountView(
        key=(part.text("uid") or "", container or "", gpu or ""),
        namespace=_text(part, "namespace"),
        pod=_text(part, "pod"),
        container="unlisted containers" if container == "" else inert(container or ""),
        card="" if gpu is None else f"GPU {labels.get(gpu) or inert(gpu)}",
        used=used,
        declared=part.whole("declared"),
        declared_by=_text(part, "declared_by"),
        allowed=part.whole("allowed"),
        verdict=_text(part, "verdict") or "unknown",
        rule=_text(part, "rule"),
        protected=_text(part, "protected", _LONGEST),
        over_since_s=part.moment("over_since"),
        next=first,
        then=then,
        processes=tuple(_process(use, labels, _text(use, "container")) for use in part.parts("processes")),
    )


def _process(use: Part, labels: Mapping[str, str], where: str) -> ProcessView:
    gpu = use.text("gpu") or ""
    card = labels.get(gpu) or inert(gpu) or "unknown"
    return ProcessView(
        pid=use.whole("pid") or 0, name=_text(use, "name", 120), where=where, card=card, used=use.whole("used")
    )


def _no_pod(status: Part, labels: Mapping[str, str]) -> AccountView | None:
    """A row for the processes of no pod, which is no account of anybody; None: there are none."""
    uses = status.parts("unattributed")
    is_whole = all(is_listed(gpu) for gpu in status.parts("gpus"))
    if not uses:
        return None
    used = total(use.whole("used") for use in uses)
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
        processes=tuple(_process(use, labels, _text(use, "reason")) for use in uses),
    )
