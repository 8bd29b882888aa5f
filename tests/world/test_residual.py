"""Memory that belongs to no listed process is named, once it lasts."""

from dataclasses import replace

import pytest

from tests.rig import Daemon, Node
from tests.rig.suspension import Suspension
from tests.stub import GIB
from tests.world.policies import KILL_AT_ONCE, write_policy
from tests.world.test_kill import run

pytestmark = [pytest.mark.node, pytest.mark.slow]


@pytest.mark.parametrize("residual", [0, 10 * GIB], ids=["control", "a quarter of the card"])
def test_a_residual_that_lasts_is_a_gap(any_world: Node, residual: int) -> None:
    """Point 10: no pod is charged with it or killed for it, but it is reported."""
    calm = any_world.single("calm", used=512 * 2**20)
    any_world.show(gpus=(replace(any_world.stub.gpus[0], base=residual),))
    machine = Suspension(any_world.root)

    def gaps(running: Daemon) -> list[str]:
        return [gap["what"] for gap in running.status()["gaps"] if gap["reason"] == "residual"]

    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE), prefix=machine.prefix) as running:
        running.wait_passes(2)
        assert gaps(running) == []
        machine.let_pass(61)
        any_world.use(calm, 600 * 2**20)
        running.wait(lambda d: d.metric("pod_memory_used_bytes", pod="calm") == 600 * 2**20)
        running.wait(lambda each: len(gaps(each)) == (residual > 0))
        assert (calm.is_alive, calm.terms) == (True, [])
