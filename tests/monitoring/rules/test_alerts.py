"""Every alert on what the real collector exposes: fires, not one step below, resolves, right over a restart."""

from collections.abc import Iterator
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


def _worlds(cluster: str = "", neighbour: str = "") -> Iterator[World]:
    """The world of each scenario, played to its end."""
    for alert, made, story in SCENARIOS:
        world = World(cluster, neighbour, alert)
        made(world, world.daemon(**story))
        yield world


@pytest.mark.parametrize("clusters", [(), ("east", "west")], ids=["alone", "beside another cluster"])
def test_every_scenario(clusters: tuple[str, ...], tmp_path: Path) -> None:
    """One Prometheus for one cluster; and beside a healthy cluster with nodes and pods of the same names."""
    hold(_worlds(*clusters), tmp_path, ALERTS)


def test_what_is_withheld_for_mps_fires_for_longer_than_a_week(tmp_path: Path) -> None:
    """Of this rule alone: all of them over this many days take minutes."""
    world = World(alert="GPUMemoryMPSWithheld")
    withheld_for_days(world)
    only = [each for each in RULES if each["alert"] == world.alert]
    hold(world, tmp_path, written(only, tmp_path))


def test_every_alert_is_shown_in_all_its_moments() -> None:
    """Each alert has a scenario in which it fires, does not one step below or before its time, ends, and survives."""
    shown: dict[str, set[str]] = {rule["alert"]: set() for rule in RULES}
    for world in _worlds():
        assert all(test["exp_alerts"] for shows, test in world.checks if shows == "fires"), world.alert
        assert not any(test["exp_alerts"] for shows, test in world.checks if shows in _SILENT), world.alert
        shown[world.alert] |= {shows for shows, _ in world.checks}
    waiting = {rule["alert"] for rule in RULES if rule["for"] != "0s"}
    for alert, moments in shown.items():
        assert moments >= {"fires", "below", "resolves", "restart", *(["waits"] if alert in waiting else [])}, alert
