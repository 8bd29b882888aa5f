"""What the dashboard's first rows say while a part is unknown: no zero that reads as "nothing is wrong"."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.monitoring.grafana import panels_of
from tests.monitoring.rules.promtool import ROOT, hold
from tests.monitoring.rules.scenario import cards
from tests.monitoring.rules.world import Labels, World
from tests.report.build import claiming, policy, trainer_node
from tests.worlds import Gi, gpu, process, snapshot, use
from tools.dashboard.written import FILE
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason

pytestmark = pytest.mark.slow
_PANELS: Final = {each["title"]: each for each in panels_of(json.loads(FILE.read_text(encoding="utf-8")))}
METRICS_PAGE: Final = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
QUERY: Final = re.compile(r"^```promql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ALL: Final = ("$cluster", "$node", "$namespace", "$pod")


def asked(title: str) -> str:
    """The one query of a panel, as Grafana sends it where all is chosen."""
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


def unknown_is_no_zero() -> World:
    """An account whose use becomes unknown, or a hang, does not turn a count into a green 0."""
    world = World()
    first = world.daemon()
    world.wait(1)
    say(world, Over_now=None, Cards_lost=None)
    first.sees(2, partial(trainer_node, 12.4))
    say(world, Over_now=1, Verdict_unknown=0, Cards_lost=0)
    first.sees(3, partial(trainer_node, None))
    say(world, Over_now=None, Verdict_unknown=1)
    second = world.daemon("n2")
    for moment in world.until(4):
        first.see(trainer_node(None, moment))
        second.see(trainer_node(4.0, moment))
    say(world, Over_now=0, Verdict_unknown=1)
    world.remove(second)
    say(world.wait(5), Over_now=None, Verdict_unknown=1, Cards_lost=2)
    return world


def a_card_of_unknown_use_is_no_free_card() -> World:
    """The share in use is of the cards whose use is known, not of all that there are."""
    world = World()
    world.daemon().sees(1, lambda second: cards(second, gpu(0, used=60 * Gi), gpu(1, used=None)))
    say(world, Memory_of_all_cards_in_use=0.75)
    # So it is for who copies the query of the docs.
    (query,) = (each for each in QUERY.findall(METRICS_PAGE) if each.startswith("sum by (model, sharing)"))
    world.gives(f"sum({query})", ({}, 0.75))
    return world


def what_is_declared_beside_a_claim_counts_once() -> World:
    """A card has what its pod's claim gave and what is declared beside that, once; a share of the size of 80Gi."""
    world = World()
    daemon = world.daemon(pods=(claiming(),), under=policy(schemes=("dra",)))
    daemon.sees(1, lambda second: snapshot([use(101, Gi)], [process(101, "a/main")], (gpu(0),), second))
    say(world, **{"Declared,_by_card": 6 / 80})
    return world


def bars_are_whole_over_a_restart() -> World:
    """A bar is what was counted in its minute: by a daemon, by one that restarted, and after a gap in the scrapes."""
    world = World()
    daemon = world.daemon()
    gap = Gap(reason=GapReason.PROCFS, what="process 7", problem=Problem("it is gone"))

    def count(minutes: float) -> None:
        daemon.sees(minutes, partial(trainer_node, 4.0, gaps=(gap,)))
        say(world, **{"Gaps,_by_reason": 2})

    count(2)
    say(daemon.restart(4), **{"Gaps,_by_reason": None})
    count(5)
    count(6)
    daemon.is_up = False
    world.wait(9)
    daemon.is_up = True
    count(10)
    return world


def test_panels_say_what_is_known(tmp_path: Path) -> None:
    """All of these worlds, in one run of promtool."""
    worlds = (
        unknown_is_no_zero(),
        a_card_of_unknown_use_is_no_free_card(),
        what_is_declared_beside_a_claim_counts_once(),
        bars_are_whole_over_a_restart(),
    )
    hold(worlds, tmp_path)
