"""Every alert on what the real collector exposes: fires, not one step below, resolves, right over a restart."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.monitoring.rules import (
    scenarios_actions,
    scenarios_cards,
    scenarios_enforcement,
    scenarios_pods,
    scenarios_stale,
    scenarios_watchdog,
)
from tests.monitoring.rules.promtool import ALERTS, hold, rules, written
from tests.monitoring.rules.scenario import SCENARIOS, Scenario
from tests.monitoring.rules.world import World

# A module that is imported has entered its scenarios.
MODULES: Final = (
    scenarios_cards,
    scenarios_actions,
    scenarios_enforcement,
    scenarios_pods,
    scenarios_stale,
    scenarios_watchdog,
)
RULES: Final = rules(ALERTS)
_SILENT: Final = ("below", "waits", "resolves")
pytestmark = pytest.mark.slow


@cache
def _alone(alert: str, made: Scenario) -> World:
    world = World(alert=alert)
    made(world)
    return world


def _beside(alert: str, made: Scenario) -> World:
    world = World("east", neighbour="west", alert=alert)
    made(world)
    return world


@pytest.mark.parametrize("world", [_alone, _beside], ids=["alone", "beside another cluster"])
def test_every_scenario(world: Callable[[str, Scenario], World], tmp_path: Path) -> None:
    """One Prometheus for one cluster; and beside a healthy cluster with nodes and pods of the same names."""
    hold((world(alert, made) for alert, made in SCENARIOS), tmp_path, ALERTS)


def test_what_is_withheld_for_mps_fires_for_longer_than_a_week(tmp_path: Path) -> None:
    """Of this rule alone: all of them over so many days take minutes."""
    world = World(alert="GPUMemoryMPSWithheld")
    scenarios_enforcement.withheld_for_days(world)
    only = [each for each in RULES if each["alert"] == world.alert]
    hold(world, tmp_path, written(only, tmp_path))


def test_every_alert_is_shown_in_all_its_moments() -> None:
    """Each alert has a scenario in which it fires, does not one step below or before its time, ends, and survives."""
    shown: dict[str, set[str]] = {rule["alert"]: set() for rule in RULES}
    for alert, made in SCENARIOS:
        world = _alone(alert, made)
        assert all(bool(check.alerts) for check in world.checks if check.shows == "fires"), made.__name__
        assert not any(check.alerts for check in world.checks if check.shows in _SILENT), made.__name__
        shown[alert] |= {check.shows for check in world.checks}
    waiting = {rule["alert"] for rule in RULES if rule["for"] != "0s"}
    for alert, moments in shown.items():
        assert moments >= {"fires", "below", "resolves", "restart", *(["waits"] if alert in waiting else [])}, alert
