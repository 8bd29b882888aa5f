"""What the dashboard's first rows say while a part is unknown: no zero that reads as "nothing is wrong"."""

import json
from pathlib import Path
from typing import Final

import pytest

from tests.export.build import trainer_node
from tests.monitoring.rules.promtool import hold
from tests.monitoring.rules.scenario import cards, restart, wait
from tests.monitoring.rules.world import Daemon, Labels, World
from tests.worlds import Gi, gpu
from tools.dashboard.written import FILE
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason

pytestmark = pytest.mark.slow
_PANELS: Final = {each["title"]: each for each in json.loads(FILE.read_text(encoding="utf-8"))["panels"]}
_ALL: Final = ("$cluster", "$node", "$namespace", "$pod")


def asked(title: str) -> str:
    """The one query of a panel, as Grafana asks it where all is chosen."""
    (target,) = _PANELS[title]["targets"]
    expr: str = target["expr"]
    for variable in _ALL:
        expr = expr.replace(variable, ".*")
    return expr.replace("$__interval", "1m")


def say(world: World, **shown: float | None) -> None:
    """What panels show now, by their titles with an underline for each space; None: no number."""
    for title, value in shown.items():
        wanted: list[tuple[Labels, float]] = [] if value is None else [({}, value)]
        world.gives(f"sum({asked(title.replace('_', ' '))})", *wanted)


def look(world: World, minutes: float, daemon: Daemon, used: float | None, *others: Daemon) -> None:
    """Cycles until then over a/trainer, which uses so many GiB on the first node and 4 on the others."""
    for second in world.until(minutes):
        daemon.see(trainer_node(used, second))
        for other in others:
            other.see(trainer_node(4.0, second))


def test_nobody_over_is_no_zero_while_nobody_is_known(tmp_path: Path) -> None:
    """An account that was over and whose use is not told any more does not turn the panel to a green 0; nor a hang."""
    world = World()
    first = world.daemon()
    wait(world, 1)
    say(world, Over_now=None, Cards_lost=None)
    look(world, 2, first, 12.4)
    say(world, Over_now=1, Verdict_unknown=0, Cards_lost=0)
    look(world, 3, first, None)
    say(world, Over_now=None, Verdict_unknown=1)
    second = world.daemon("n2")
    look(world, 4, first, None, second)
    say(world, Over_now=0, Verdict_unknown=1)
    world.remove(second)
    wait(world, 5)
    say(world, Over_now=None, Verdict_unknown=1, Cards_lost=2)
    hold(world, tmp_path)


def test_a_card_that_does_not_tell_is_no_free_card(tmp_path: Path) -> None:
    """The share in use is of the cards that tell what is in use, not of all that there are."""
    world = World()
    daemon = world.daemon()
    for second in world.until(1):
        daemon.see(cards(second, gpu(0, used=60 * Gi), gpu(1, used=None)))
    say(world, Memory_of_all_cards_in_use=0.75)
    hold(world, tmp_path)


def test_bars_are_whole_over_a_restart(tmp_path: Path) -> None:
    """A bar is what was counted in its minute: by a daemon, by one that restarted, and after a gap in the scrapes."""
    world = World()
    daemon = world.daemon()
    gap = Gap(reason=GapReason.PROCFS, what="process 7", problem=Problem("it is gone"))

    def count(minutes: float) -> None:
        for second in world.until(minutes):
            daemon.see(trainer_node(4.0, second, gaps=(gap,)))

    def bars(counted: int | None) -> None:
        say(world, **{"Gaps,_by_reason": counted})

    count(2)
    bars(2)
    restart(world, daemon, 4)
    bars(None)
    count(5)
    bars(2)
    count(6)
    bars(2)
    daemon.is_up = False
    wait(world, 9)
    daemon.is_up = True
    count(10)
    bars(2)
    hold(world, tmp_path)
