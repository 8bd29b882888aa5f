"""The hour before a picture: what an earlier daemon would have recorded, in the journal that the daemon of it opens.

And how busy the cards and processes of the picture are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Final

from tests.kube.objects import list_of
from tests.past.life import Life, State
from tests.report.build import record
from tests.rig.command import Daemon
from tests.rig.node import Node, Pod
from tests.stub import Stub, StubGpu
from watchdog import clock
from watchdog.config.load import load_policy
from watchdog.core.model import Gpu, Now, Place, PlaceKind, Process, ProcessKey, Snapshot, Use
from watchdog.core.plan import CycleReport, Outcome, PlanEntry, Result
from watchdog.core.units import LARGEST, parse_quantity
from watchdog.kube.objects import parse_pods
from watchdog.report.hour import LEVELS

_HOUR_S: Final = 3600
_EVERY_S: Final = 15
# How busy processes are, in per cent of a card that has as many of them.
_SHARES: Final = (34, 12, 25, 0, 9)
# What it used by the minute, as a share of what it uses in the picture: steady, started not long ago, in batches, with
# a long pause, and growing.
_SHAPES: Final[Sequence[Callable[[float], float]]] = (
    lambda ago: 1.0,
    lambda ago: 1.0 if ago < 23 else 0.4 if ago < 26 else 0.0,
    lambda ago: 1.0 if ago % 9 < 6 else 0.55,
    lambda ago: 0.15 if 17 < ago < 41 else 1.0,
    lambda ago: 1.0 - 0.7 * ago / 60,
)


@dataclass(frozen=True, kw_only=True)
class Killed:
    """A pod that is there no more: it went over twice its limit on a card and was killed, as many minutes ago."""

    pod: Pod
    ago: float
    card: int = 0


@dataclass(frozen=True, kw_only=True)
class _Process:
    pid: int
    card: int
    # None: it is the host's.
    pod: Pod | None
    # Bytes by how many minutes ago; None: the driver does not say.
    used: Callable[[float], int | None]


@dataclass(frozen=True, kw_only=True)
class _Seen(State):
    snapshot: Snapshot

    def seen(self, now: Now) -> Snapshot:
        """What a scan has given."""
        return replace(self.snapshot, at=now)


def record_hour(
    journal: Path,
    policy: Path,
    stub: Stub,
    owners: Mapping[int, Pod],
    *,
    spells: Mapping[str, tuple[float, float]] | None = None,
    killed: Sequence[Killed] = (),
) -> None:
    """Record an hour in which the node came to what it is: the stub's processes, by PID of these pods.

    What is over its limit in the picture has just gone over it. In `spells` a pod, by its name, was over it before:
    from how many minutes ago, and until how many.
    """
    journal.parent.mkdir(parents=True, exist_ok=True)
    under, now = replace(load_policy(policy), interval_s=float(_EVERY_S)), clock.now()
    processes = [*_present(stub, owners, spells or {}), *_gone(killed)]
    life = Life(journal, under)
    for second in range(_HOUR_S, 0, -_EVERY_S):
        at = replace(now, boottime_s=now.boottime_s - second, wall_s=now.wall_s - second)
        report = life.see(_state(stub, processes, second / 60), at)
        _act(life, report)
    life.end()


def earlier_spells(stub: Stub, owners: Mapping[int, Pod]) -> dict[str, tuple[float, float]]:
    """A quarter of an hour for each pod that uses clearly more than it declares."""
    pods = ((owners.get(each.pid), each.used or 0) for card in stub.gpus for each in card.processes)
    over = [pod.name for pod, used in pods if pod is not None and used * 10 > (_declared(pod) or LARGEST) * 11]
    return {name: (52.0 - 3 * number, 37.0 - 3 * number) for number, name in enumerate(over)}


def is_drawn(running: Daemon) -> bool:
    """Whether a daemon has read the hour back, and how busy its cards are."""
    gpus = running.status()["gpus"]
    return all(len(gpu["hour"]["levels"].strip()) == LEVELS and gpu["utilization"] is not None for gpu in gpus)


def at_work(stub: Stub) -> Stub:
    """What the driver shows, with how busy its cards are, and each process on them."""
    return replace(stub, gpus=tuple(_at_work(card, 5 - index % 4) for index, card in enumerate(stub.gpus)))


def _at_work(card: StubGpu, fifths: int = 5) -> StubGpu:
    shares = [share * fifths // max(len(card.processes), len(_SHARES)) for share in _SHARES]
    busy = tuple(replace(each, utilization=share) for each, share in zip(card.processes, cycle(shares), strict=False))
    return replace(card, processes=busy, utilization=min(sum(each.utilization or 0 for each in busy) + 3, 100))


def put_to_work(node: Node) -> None:
    """Let the driver show how busy the tenants of a node are."""
    tenants = [tenant for pod in node.pods for container in pod.containers for tenant in container.tenants]
    for tenant, share in zip(tenants, cycle(_SHARES), strict=False):
        tenant.utilization = share
    node.show(gpus=tuple(replace(card, utilization=_at_work(card).utilization) for card in node.shown.gpus))


def _present(stub: Stub, owners: Mapping[int, Pod], spells: Mapping[str, tuple[float, float]]) -> Iterator[_Process]:
    numbers = {pod.uid: number for number, pod in enumerate({pod.uid: pod for pod in owners.values()}.values())}
    for index, card in enumerate(stub.gpus):
        for each in card.processes:
            pod = owners.get(each.pid)
            yield _Process(
                pid=each.pid,
                card=index,
                pod=pod,
                used=_used(each.used, pod, numbers.get(pod.uid if pod else "", 0), spells.get(pod.name if pod else "")),
            )


def _used(
    now: int | None, pod: Pod | None, number: int, spell: tuple[float, float] | None
) -> Callable[[float], int | None]:
    declared, shape = _declared(pod) if pod is not None else 0, _SHAPES[number % len(_SHAPES)]
    if now is None:
        return lambda _: None
    usual = declared * 8 // 10 if declared and now > declared else now
    if spell is None:
        return lambda ago: int(usual * shape(ago))
    begin, end = spell
    return lambda ago: declared * 5 // 4 if begin >= ago >= end else int(usual * (shape(ago) or 0.5))


def _gone(killed: Sequence[Killed]) -> Iterator[_Process]:
    for number, each in enumerate(killed):
        declared, ago = _declared(each.pod), each.ago

        def used(at: float, declared: int = declared, ago: float = ago) -> int:
            return 0 if not ago <= at <= ago + 14 else declared * 9 // 4 if at == ago else declared * 8 // 10

        yield _Process(pid=10**6 + number, card=each.card, pod=each.pod, used=used)


def _declared(pod: Pod) -> int:
    """The bytes that a pod declares; 0: nothing, or nothing that is valid."""
    try:
        return int(parse_quantity(pod.containers[0].declared or "0"))
    except ValueError:
        return 0


def _state(stub: Stub, processes: Sequence[_Process], ago: float) -> _Seen:
    there = [(each, each.used(ago)) for each in processes]
    there = [(each, used) for each, used in there if used != 0]
    cards = tuple(
        Gpu(
            uuid=card.uuid,
            index=index,
            name=card.name,
            total=card.total,
            used=card.base + card.reserved + sum(used or 0 for each, used in there if each.card == index),
            reserved=card.reserved,
        )
        for index, card in enumerate(stub.gpus)
    )
    seen = Snapshot(
        at=clock.now(),
        driver=stub.driver,
        interface="NVML",
        gpus=cards,
        uses=tuple(Use(gpu=cards[each.card].uuid, pid=each.pid, used=used, client=False) for each, used in there),
        processes={each.pid: _process(each) for each, _ in there},
    )
    pods = {each.pod.uid: each.pod for each, _ in there if each.pod is not None}
    listed, _ = parse_pods(list_of(*(pod.to_json() for pod in pods.values())))
    return _Seen(snapshot=seen, pods=listed, gpus=cards)


def _process(of: _Process) -> Process:
    place = Place(kind=PlaceKind.HOST)
    if of.pod is not None:
        place = Place(kind=PlaceKind.POD, pod=of.pod.uid, container=of.pod.containers[0].id)
    return Process(pid=of.pid, key=ProcessKey(pid=of.pid, start_ticks=of.pid), place=place, name="python3")


def _act(life: Life, report: CycleReport) -> None:
    """Carry out what is due, as a daemon does that enforces; a kill ends at once."""
    enforcing = life.under.mode == "enforce"
    result = Result.DONE if enforcing else Result.OBSERVED
    warnings = [
        Outcome(entry=entry, result=result, at=report.at)
        for entry in report.plan.taken
        if not (enforcing and entry.do.ends_processes)
    ]
    if warnings:
        record(life.journal, replace(report, enforcing=enforcing, outcomes=tuple(warnings)))
    for entry in report.plan.taken:
        if enforcing and entry.do.ends_processes:
            _kill(life, entry, report.at)


def _kill(life: Life, entry: PlanEntry, at: Now) -> None:
    keys = [use.key for use in entry.assessment.uses]
    action = life.journal.intend(entry, keys, at)
    life.journal.signalled(action, at, "SIGTERM", keys)
    life.journal.end(action, Result.DONE, "", at)
    life.journal.released(action, at, 1.4, "")
