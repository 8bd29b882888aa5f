"""Every alert on what the real collector exposes: fires, not one step below, resolves, right over a restart."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.monitoring.rules import (
    scenarios_cards,
    scenarios_deeds,
    scenarios_force,
    scenarios_pods,
    scenarios_stale,
    scenarios_watchdog,
)
from tests.monitoring.rules.promtool import ALERTS, hold, rules
from tests.monitoring.rules.scenario import SCENARIOS, Scenario
from tests.monitoring.rules.world import World

# Who is read here has entered its scenarios.
MODULES: Final = (
    scenarios_cards,
    scenarios_deeds,
    scenarios_force,
    scenarios_pods,
    scenarios_stale,
    scenarios_watchdog,
)
RULES: Final = rules(ALERTS)
_SILENT: Final = ("below", "waits", "resolves")
pytestmark = pytest.mark.slow


@cache
def _alone(made: Scenario) -> World:
    world = World()
    made(world)
    return world


def _beside(made: Scenario) -> World:
    world = World("east", neighbour="west")
    made(world)
    return world


@pytest.mark.parametrize("world", [_alone, _beside], ids=["alone", "beside another cluster"])
def test_every_scenario(world: Callable[[Scenario], World], tmp_path: Path) -> None:
    """One Prometheus for one cluster; and beside a healthy cluster with nodes and pods of the same names."""
    hold((world(made) for _, made in SCENARIOS), tmp_path, ALERTS)


def test_what_is_withheld_for_mps_is_told_for_longer_than_a_week(tmp_path: Path) -> None:
    """Of this rule alone: all of them over so many days take minutes."""
    world = World()
    scenarios_force.withheld_for_days(world)
    only = [each for each in RULES if each["alert"] == "GPUMemoryMPSWithheld"]
    file = tmp_path / "alerts.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "one", "rules": only}]}), encoding="utf-8")
    hold(world, tmp_path, file)


def test_every_alert_is_held_to_all_of_it() -> None:
    """Each alert has a scenario in which it fires, does not one step below or before its time, ends, and survives."""
    shown: dict[str, set[str]] = {rule["alert"]: set() for rule in RULES}
    for alert, made in SCENARIOS:
        world = _alone(made)
        assert {check.alert for check in world.checks} == {alert}, made.__name__
        assert all(bool(check.alerts) for check in world.checks if check.shows == "fires"), made.__name__
        assert not any(check.alerts for check in world.checks if check.shows in _SILENT), made.__name__
        shown[alert] |= {check.shows for check in world.checks}
    waiting = {rule["alert"] for rule in RULES if rule["for"] != "0s"}
    for alert, moments in shown.items():
        assert moments >= {"fires", "below", "resolves", "restart", *(["waits"] if alert in waiting else [])}, alert
