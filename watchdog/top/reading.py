"""From the status of a daemon to what `top` shows. Missing is not known: versions differ."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from watchdog.export.phrases import inert
from watchdog.export.status_read import Part, doubts_of, hangs_since
from watchdog.top.deeds import deeds_of
from watchdog.top.steps import coming
from watchdog.top.troubles import force_of, health_of, is_listed, label_of, troubles_of
from watchdog.top.values import Account, Amount, Card, Process, View

_LONGEST: Final = 600


def read_view(document: Mapping[str, Any]) -> View:
    """What a status says; StatusError where it is no status of a gpu-watchdog.

    A value that can't be read is not known, and that is one of the troubles.
    """
    status = Part(document, doubts=[])
    view = _view(status)
    doubts = doubts_of(status)
    return replace(view, troubles=(*view.troubles, doubts)) if doubts else view


def _view(status: Part) -> View:
    labels = {gpu.text("uuid") or "": label_of(gpu) for gpu in status.parts("gpus")}
    accounts = status.parts("accounts")
    return View(
        node=_text(status, "node"),
        at=_text(status, "at"),
        at_s=status.moment("at"),
        ago_s=_ago_s(status),
        mode=_text(status, "mode"),
        force=force_of(status),
        cards=_cards(status, labels),
        accounts=tuple(_account(each, status, labels) for each in accounts),
        no_pod=_no_pod(status, labels),
        deeds=deeds_of(status),
        troubles=troubles_of(status),
        health=health_of(status),
        counts=not status.flag("pods_stale") and status.text("maintenance") is None and hangs_since(status) is None,
    )


def _ago_s(status: Part) -> float:
    """How long ago the pass was when the daemon answered; 0 where it does not say."""
    health = status.part("health")
    return max(health.number("last_pass_ago_s") or 0.0, 0.0) if health is not None else 0.0


def _text(part: Part, key: str, limit: int = 253) -> str:
    return inert(part.text(key) or "", limit)


def total(amounts: Iterable[int | None]) -> Amount:
    """A sum, of which parts may not be known."""
    parts = list(amounts)
    least = sum(each for each in parts if each is not None)
    return Amount(known=None if None in parts else least, least=least)


def _cards(status: Part, labels: Mapping[str, str]) -> tuple[Card, ...]:
    of_pods = _by_gpu(use for account in status.parts("accounts") for use in account.parts("processes"))
    of_none = _by_gpu(status.parts("unattributed"))
    free_below = status.percent("free_below") or 0.0
    found = []
    for gpu in status.parts("gpus"):
        uuid, memory = gpu.text("uuid") or "", gpu.part("memory") or Part({})
        whole, used = memory.whole("total"), memory.whole("used")
        found.append(
            Card(
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


def _whole(sum_: Amount, gpu: Part) -> Amount:
    """What processes use: where not all are known, no more than that it is at least so much."""
    return sum_ if is_listed(gpu) else Amount(known=None, least=sum_.floor)


def _by_gpu(uses: Iterable[Part]) -> dict[str, list[int | None]]:
    found: dict[str, list[int | None]] = {}
    for use in uses:
        found.setdefault(use.text("gpu") or "", []).append(use.whole("used"))
    return found


def _account(part: Part, status: Part, labels: Mapping[str, str]) -> Account:
    gpu, container = part.text("gpu"), part.text("container")
    used = Amount(known=part.whole("used"), least=part.whole("used_at_least") or 0)
    first, then = coming(part, status)
    return Account(
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


def _process(use: Part, labels: Mapping[str, str], where: str) -> Process:
    gpu = use.text("gpu") or ""
    card = labels.get(gpu) or inert(gpu) or "unknown"
    return Process(
        pid=use.whole("pid") or 0, name=_text(use, "name", 120), where=where, card=card, used=use.whole("used")
    )


def _no_pod(status: Part, labels: Mapping[str, str]) -> Account | None:
    """A row for the processes of no pod, which is no account of anybody; None: there are none."""
    uses = status.parts("unattributed")
    is_whole = all(is_listed(gpu) for gpu in status.parts("gpus"))
    if not uses:
        return None
    used = total(use.whole("used") for use in uses)
    return Account(
        key=("", "", ""),
        namespace="",
        pod="",
        container="",
        card="",
        used=used if is_whole else Amount(known=None, least=used.floor),
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
