"""Every alert on what the real collector exposes: fires, not one step below, resolves, right over a restart."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from tests.monitoring.rules.promtool import ALERTS, hold, rules, written
from tests.monitoring.rules.scenario import SCENARIOS
from tests.monitoring.rules.scenarios_enforcement import withheld_for_days
from tests.monitoring.rules.world import World

# A module that is imported has entered its scenarios.
for _each in sorted(Path(__file__).parent.glob("scenarios_*.py")):
    import_module(f"tests.monitoring.rules.{_each.stem}")
RULES: Final = rules(ALERTS)
_SILENT: Final = ("below", "waits", "resolves")
pytestmark = pytest.mark.slow


def _played(cluster: str = "", neighbour: str = "") -> Iterator[World]:
    """The world of each scenario, played to its end."""
    for alert, made, story in SCENARIOS:
        world = World(cluster, neighbour, alert)
        made(world, world.daemon(**story))
        yield world


@pytest.fixture(scope="module")
def alone() -> Sequence[World]:
    """Those without another cluster: to play them takes half a minute."""
    return tuple(_played())


def test_every_scenario_alone(alone: Sequence[World], tmp_path: Path) -> None:
    """One Prometheus for one cluster."""
    hold(alone, tmp_path, ALERTS)


def test_every_scenario_beside_another_cluster(tmp_path: Path) -> None:
    """Beside a healthy cluster with nodes and pods of the same names."""
    hold(_played("east", "west"), tmp_path, ALERTS)


def test_what_is_withheld_for_mps_fires_for_longer_than_a_week(tmp_path: Path) -> None:
    """Of this rule alone: all of them over this many days take minutes."""
    world = World(alert="GPUMemoryMPSWithheld")
    withheld_for_days(world)
    only = [each for each in RULES if each["alert"] == world.alert]
    hold(world, tmp_path, written(only, tmp_path))


def test_every_alert_is_shown_in_all_its_moments(alone: Sequence[World]) -> None:
    """Each alert has a scenario in which it fires, does not one step below or before its time, ends, and survives."""
    shown: dict[str, set[str]] = {rule["alert"]: set() for rule in RULES}
    for world in alone:
        assert all(test["exp_alerts"] for shows, test in world.checks if shows == "fires"), world.alert
        assert not any(test["exp_alerts"] for shows, test in world.checks if shows in _SILENT), world.alert
        shown[world.alert] |= {shows for shows, _ in world.checks}
    waiting = {rule["alert"] for rule in RULES if rule["for"] != "0s"}
    for alert, moments in shown.items():
        assert moments >= {"fires", "below", "resolves", "restart", *(["waits"] if alert in waiting else [])}, alert
