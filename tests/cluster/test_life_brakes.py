"""The owner's brake and its back-off against real controllers that replace what was ended."""

import datetime as dt
from pathlib import Path

import pytest

from tests.rig.cluster import workloads
from tests.rig.cluster.api import Object
from tests.rig.cluster.life import life
from tests.rig.cluster.node import Cluster

pytestmark = [pytest.mark.node, pytest.mark.slow]

BRAKES = """
[brakes]
owner = "2 per 10m"
owner_backoff = { first = "5s", factor = 2, max = "1m" }
"""


def test_the_brakes_of_the_owner_stop_the_loops(cluster: Cluster, tmp_path: Path) -> None:
    """Two actions in ten minutes, 5 s apart: then pods of a Deployment and a Job and a kernel are left alone."""
    loops = (("evict", "deployment"), ("evict", "job-ignore"), ("process", "notebook"))
    actions = {"evict": 'do = "evict"', "process": 'do = "kill"\nscope = "process"'}
    with life(cluster, tmp_path / "life", actions, more=BRAKES) as braked:
        braked.apply("evict", workloads.deployment(), workloads.job("job-ignore", ignore_disruptions=True))
        braked.apply("process", workloads.notebook())

        def held() -> set[tuple[str, str]]:
            plan = braked.daemon.status()["plan"]
            return {(entry["namespace"], entry["withheld_by"]) for entry in plan if entry["withheld_by"]}

        braked.wait(
            lambda: braked.daemon.metric("withheld_total", brake="owner") == len(loops), "all are held back", 300
        )
        assert held() == {(braked.rooms[room], "owner") for room in actions}
        # The Job controller's own back-off is longer: 10 s, then 20 s.
        assert braked.daemon.metric("withheld_total", brake="owner_backoff") == len(loops) - 1
        for room, app in loops:
            first, second = braked.actions(room, app)
            # It runs from the intention; an eviction is logged up to a cycle later, when the API server has taken it.
            assert moment(second) - moment(first) >= 4
        assert braked.history("evict", "deployment").pods == 3
        assert braked.history("evict", "job-ignore").pods == 3


def moment(line: Object) -> float:
    """When a line was logged (UNIX seconds)."""
    return dt.datetime.fromisoformat(line["timestamp"]).timestamp()
