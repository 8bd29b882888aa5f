"""A process that has ended while its memory stays: whose it is, and whom a kill of each scope then ends."""

from dataclasses import replace

import pytest

from tests.worlds import Gi, container, planned, pod, policy, process, rule, snapshot, step, use
from watchdog.core.hazards import Hazard, HazardRole
from watchdog.core.plan import PlanEntry
from watchdog.core.policy import Scope

POD = pod("a", container("main", "1Gi", of="a"), container("side", "50Gi", of="a"))


def entry(scope: Scope, *, ended: int, alive: int) -> PlanEntry:
    """What is due on a pod whose container main has one process that has ended, PID 1, and one that runs, PID 2."""
    dead = process(1, ended=True)
    seen = snapshot([use(1, ended), use(2, alive), use(3, 50 * Gi)], [dead, process(2), process(3, "a/side")])
    (found,) = planned(seen, [POD], policy(rule(step(scope=scope)))).entries
    return found


@pytest.mark.parametrize(
    ("scope", "ended", "alive", "pids", "effective"),
    [
        ("process", 70 * Gi, 2 * Gi, [1, 2], "container"),
        ("process", 2 * Gi, 70 * Gi, [2], "process"),
        ("container", 70 * Gi, 2 * Gi, [1, 2], "container"),
        ("pod", 70 * Gi, 2 * Gi, [1, 2, 3], "pod"),
    ],
)
def test_whom_a_kill_ends(scope: Scope, ended: int, alive: int, pids: list[int], effective: Scope) -> None:
    """Point 10: nobody knows which process keeps the memory, so scope `process` is the whole container."""
    found = entry(scope, ended=ended, alive=alive)
    assert found.assessment.used == 50 * Gi + ended + alive
    assert (found.victim, [key.pid for key in found.targets], found.effective_step.scope) == ("main", pids, effective)
    assert found.definition.scope == scope, "its signature, and so its stretch, stays"


@pytest.mark.parametrize(("ended", "is_hit"), [(70 * Gi, True), (Gi, False)])
def test_an_mps_client_of_the_container_withholds_a_kill_of_all_of_it(ended: int, *, is_hit: bool) -> None:
    """Point 36: what a kill really ends counts, and not what its scope says."""
    found = entry("process", ended=ended, alive=2 * Gi)
    hazard = Hazard(role=HazardRole.HIDDEN)
    with_client = replace(found, assessment=replace(found.assessment, hazards=(hazard,)))
    assert (with_client.hazard == hazard) is is_hit
