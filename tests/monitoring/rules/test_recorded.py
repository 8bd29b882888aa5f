"""The alerts on what `gpu-watchdog run` itself exposed while real processes were over, and were killed."""

import time
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.monitoring.rules.exposed import LABELS
from tests.monitoring.rules.promtool import ALERTS, hold, rules, written
from tests.monitoring.rules.world import Firing, World
from tests.rig.command import Daemon
from tests.rig.node import node
from tests.stub import GIB, MIB
from tests.world.policies import WARN_AT_ONCE, write_policy
from tests.world.test_kill import run

pytestmark = [pytest.mark.node, pytest.mark.slow]
_KILL: Final = 'above = "150%"\nfor = "0s"\ndo = "kill"\nscope = "container"\ngrace = "0s"'
_POD: Final = {"namespace": "ns", "pod": "hog", "node": "n1", "rule": "shared", "severity": "warning"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, float]]:
    """The page of a real daemon, and when it was read: all within, one pod over, that pod killed."""
    pages = []

    def read(running: Daemon) -> None:
        running.wait_passes(1)
        pages.append((running.get("/metrics")[1], time.time()))

    with node(tmp_path_factory.mktemp("node")) as made:
        tenant = made.start(made.pod("hog", ("main", "1Gi")), used=GIB)
        made.start(made.pod("calm", ("main", "4Gi")), used=3 * GIB)
        made.pod("odd", ("main", "-1"))
        made.write()
        with run(made, write_policy(made.root, WARN_AT_ONCE, _KILL)) as running:
            read(running)
            made.use(tenant, 1638 * MIB)
            running.wait(lambda d: d.metric("account_over_limit", pod="hog") == 1)
            read(running)
            made.use(tenant, 9 * GIB)
            running.wait(lambda d: d.metric("actions_total", action="kill", result="done") == 1)
            read(running)
    return pages


def test_a_pod_that_is_over_and_then_killed(recorded: list[tuple[str, float]], tmp_path: Path) -> None:
    """Both alerts fire at their times, with the pod's own labels."""
    over, killed = "GPUMemoryOverLimit", "GPUMemoryPodKilled"
    world = World()
    watchdog = world.daemon()
    moments: tuple[dict[str, tuple[Firing, ...]], ...] = (
        {over: (), killed: ()},
        {over: (Firing(labels=_POD),), killed: ()},
        {over: (), killed: (Firing(labels={**_POD, "container": "main"}),)},
    )
    for minutes, (page, read_s), expected in zip((2, 8, 12), recorded, moments, strict=True):
        watchdog.page, watchdog.epoch_s = page, read_s - minutes * 60 + 30
        world.wait(minutes)
        for alert, firing in expected.items():
            world.expect("fires", *firing, alert=alert)
    without_texts = [{key: value for key, value in rule.items() if key != "annotations"} for rule in rules(ALERTS)]
    hold(world, tmp_path, written(without_texts, tmp_path))


def test_hand_made_nodes_expose_what_a_real_one_does(recorded: list[tuple[str, float]]) -> None:
    """The series that the other tests are made of have the names and labels of a running daemon's."""
    found: dict[str, set[str]] = {}
    for page, _ in recorded:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    ours = {name for name in LABELS if name.startswith("gpu_watchdog_")}
    # Nothing was withheld, but for a step that was pending for a moment at most.
    assert ours - found.keys() - {"gpu_watchdog_account_withheld"} == {"gpu_watchdog_enforcement_suspended"}
    assert {name: LABELS[name] for name in ours & found.keys()} == {name: found[name] for name in ours & found.keys()}
