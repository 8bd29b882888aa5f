"""Card-seconds of a simulated day against the same integral taken second by second from what really happened."""

import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import pytest

from tests.worlds import Gi, assessed, at, gpu, owner, pod, policy, process, snapshot, use
from watchdog.core.assessment import Assessment
from watchdog.core.meter import UtilizationMeter
from watchdog.core.model import Pod, Snapshot
from watchdog.core.policy import Idle
from watchdog.core.utilization import CardSeconds, CardUtilization, UtilizationReading

DAY_S: Final = 86400
READ_EVERY_S: Final = 10
SIZES: Final = (80 * Gi, 80 * Gi, 40 * Gi, 24 * Gi)
NAMESPACES: Final = ("a", "b", "c", "d", "e")
POLICY: Final = policy()


@dataclass(kw_only=True)
class Steps:
    """A value that changes at whole seconds."""

    since: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def at(self, second: int) -> float:
        """Its value then."""
        return self.values[bisect_right(self.since, second) - 1]

    def add(self, second: int, value: float) -> None:
        """From then on."""
        self.since.append(second)
        self.values.append(value)


@dataclass(kw_only=True)
class Life:
    """A pod with a process on each of its cards."""

    pod: Pod
    pids: dict[int, int]
    begin: int
    end: int
    # By card: bytes, and the share of the card's time that it uses.
    used: dict[int, Steps]
    busy: dict[int, Steps]

    def is_there(self, second: int) -> bool:
        """Whether it runs in that second."""
        return self.begin <= second < self.end


def changes(dice: random.Random, begin: int, end: int, mean_s: float, values: Iterable[float]) -> Steps:
    """A value that takes one of these after random times."""
    made, second, every = Steps(), begin, [*values]
    while second < end:
        made.add(second, dice.choice(every))
        second += 1 + int(dice.expovariate(1 / mean_s))
    return made


class Day:
    """What really happens on a node in a day."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        self.lives: list[Life] = []
        # The times in which the driver says nothing of processes, by card.
        self.silent = {card: changes(dice, 0, DAY_S, 3000.0, (0.0, 0.0, 1.0)) for card in range(len(SIZES))}
        for number in range(140):
            cards = dice.sample(range(len(SIZES)), dice.choice((1, 1, 1, 2)))
            begin = 0 if number < 8 else dice.randrange(DAY_S)
            end = min(begin + int(dice.expovariate(1 / 7000.0)) + 5, DAY_S)
            name = f"p{number}"
            whose = pod(name, namespace=dice.choice(NAMESPACES), owner=owner(name=f"o{number % 20}"))
            amounts = {card: [dice.randrange(SIZES[card] // 12) for _ in range(4)] for card in cards}
            self.lives.append(
                Life(
                    pod=whose,
                    pids={card: 1000 + 10 * number + card for card in cards},
                    begin=begin,
                    end=end,
                    used={card: changes(dice, begin, end, 900.0, amounts[card]) for card in cards},
                    # Of ten seconds the driver gives the mean: what begins within them counts for all of them, up to
                    # the share that is held. Programs that begin and end every few seconds would count as computing.
                    busy={card: changes(dice, begin, end, 1500.0, (0.0, 0.0, 0.02, 0.04, 0.3, 0.9)) for card in cards},
                )
            )

        # The seconds in which a reading of the node differs from that of the second before.
        self.changes = {life.end for life in self.lives}
        self.changes.update(*(used.since for life in self.lives for used in life.used.values()))

    def alive(self, second: int) -> list[Life]:
        """The pods that run in that second."""
        return [life for life in self.lives if life.is_there(second)]

    def snapshot(self, second: int) -> Snapshot:
        """What the daemon reads."""
        uses, processes = [], []
        for life in self.alive(second):
            for card, pid in life.pids.items():
                uses.append(use(pid, int(life.used[card].at(second)), card))
                processes.append(process(pid, f"{life.pod.uid}/main"))
        cards = [gpu(number, size) for number, size in enumerate(SIZES)]
        return snapshot(uses, processes, cards, second)

    def assess(self, seen: Snapshot, second: int) -> tuple[Assessment, ...]:
        """What the daemon makes of it."""
        return assessed(seen, [life.pod for life in self.alive(second)], POLICY)

    def reading(self, second: int) -> UtilizationReading:
        """What the driver says: means of the time since it was last asked."""
        cards, since = [], max(second - READ_EVERY_S, 0)
        lives = [(life, range(max(life.begin, since), min(life.end, second))) for life in self.lives]
        there = [(life, window) for life, window in lives if window]
        for card in range(len(SIZES)):
            by_pid = {
                life.pids[card]: sum(life.busy[card].at(each) for each in window) / (second - since)
                for life, window in there
                if card in life.pids
            }
            is_silent = self.silent[card].at(second - 1) == 1.0
            shares = {pid: share for pid, share in by_pid.items() if share}
            ratio = min(sum(shares.values()), 1.0)
            cards.append(
                CardUtilization(gpu=f"GPU-{card}", ratio=None, why="silent")
                if is_silent
                else CardUtilization(gpu=f"GPU-{card}", ratio=ratio, by_pid=shares)
            )
        return UtilizationReading(at_s=at(second).boottime_s, cards=tuple(cards))


def metered(day: Day) -> tuple[dict[str, CardSeconds], dict[str, CardSeconds]]:
    """What the meter makes of it: by namespace, and the sum of what it gave to the journal."""
    meter, spent = UtilizationMeter(), defaultdict[str, CardSeconds](CardSeconds)
    seen = day.snapshot(0)
    assessments = day.assess(seen, 0)
    found = meter.add(at(0).boottime_s, seen, assessments, [], Idle(), gap_s=30.0)
    looked = 0
    moments = sorted(day.changes | set(range(READ_EVERY_S, DAY_S + 1, READ_EVERY_S)))
    for second in (moment for moment in moments if 0 < moment <= DAY_S):
        if second in day.changes:
            seen = day.snapshot(second)
            assessments = day.assess(seen, second)
        readings = [day.reading(second)] if second % READ_EVERY_S == 0 else []
        found = meter.add(at(second).boottime_s, seen, assessments, readings, Idle(), gap_s=30.0)
        if second - looked >= 300:
            looked = second
            for (namespace, _), part in meter.take_spent().items():
                spent[namespace] += part
    for (namespace, _), part in meter.take_spent().items():
        spent[namespace] += part
    return dict(found.by_namespace), dict(spent)


def integrated(day: Day) -> dict[str, list[float]]:
    """Held, computing and idle by namespace, from what really happened in each second."""
    sums: dict[str, list[float]] = {namespace: [0.0, 0.0, 0.0] for namespace in NAMESPACES}
    for life in day.lives:
        parts = sums[life.pod.namespace]
        for card in life.pids:
            for second in range(life.begin, life.end):
                share = life.used[card].at(second) / SIZES[card]
                parts[0] += share
                if not day.silent[card].at(second):
                    computing = min(share, life.busy[card].at(second))
                    parts[1] += computing
                    parts[2] += share - computing
    return sums


@pytest.mark.slow
def test_a_day_s_card_seconds_are_the_integral_of_what_happened() -> None:
    """Computing and idle of each namespace are within 1% of a sum over all seconds, and held is exact."""
    day = Day(1)
    found, spent = metered(day)
    for namespace, (held, computing, idle) in integrated(day).items():
        assert held > 1000, "there is something to compare"
        assert found[namespace].held == pytest.approx(held, rel=0.0001), "a cycle comes with each change"
        assert found[namespace].computing == pytest.approx(computing, rel=0.01)
        assert found[namespace].idle == pytest.approx(idle, rel=0.01)
        for part in ("held", "computing", "idle", "unused"):
            assert getattr(spent[namespace], part) == pytest.approx(getattr(found[namespace], part), rel=1e-9)
