"""Memory that outlives its process counts for the container it was in, for as long as that has processes."""

import os
import signal

import pytest

from tests.rig import Daemon, Node
from tests.rig.node import Tenant
from tests.stub import GIB, MIB
from tests.world.policies import kill, write_policy
from tests.world.test_kill import ended, run

pytestmark = [pytest.mark.node, pytest.mark.slow]


def leave(world: Node, tenant: Tenant) -> None:
    """Let a process end whose memory stays, as an exit after a fork does."""
    tenant.process.send_signal(signal.SIGKILL)
    tenant.process.wait()
    world.write()


def used(running: Daemon) -> dict[str, int | None]:
    """What each pod uses, as the status says."""
    return {each["pod"]: each["used"] for each in running.status()["accounts"]}


@pytest.mark.parametrize("scope", ["process", "container"])
def test_a_parent_that_allocates_forks_and_exits_does_not_hide_its_memory(any_world: Node, scope: str) -> None:
    """Point 10: the dead PID still counts for its container, whose living processes are the victims, all of them."""
    offender = any_world.single("hog", used=9 * GIB, behaviour="forker")
    (pod,) = any_world.pods
    small = any_world.start(pod, used=300 * MIB)
    calm = any_world.single("calm", used=500 * MIB)
    offender.outlives = True
    any_world.write()
    with run(any_world, write_policy(any_world.root, kill("3s", scope=scope))) as running:
        running.wait_passes(1)
        leave(any_world, offender)
        running.wait_passes(1)
        assert used(running) == {"hog": 9 * GIB + 300 * MIB, "calm": 500 * MIB}
        running.wait(lambda _: not any_world.members(pod))
        offender.used = 0
        any_world.write()
        running.wait(ended)
        assert (small.ended_by, calm.is_alive, calm.terms) == (signal.SIGTERM, True, [])


def test_memory_of_a_container_without_processes_counts_for_nobody(any_world: Node) -> None:
    """Points 10 and 21: neither the pod's other container nor the same one started again answers for a dead PID."""
    pod = any_world.pod("hog", ("main", "1Gi"), ("side", None))
    offender = any_world.start(pod, 0, used=9 * GIB)
    side = any_world.start(pod, 1, used=128 * MIB)
    offender.outlives = True
    any_world.write()
    with run(any_world, write_policy(any_world.root, kill("3s"))) as running:
        running.wait_passes(1)
        leave(any_world, offender)
        pod.containers[0].id = os.urandom(32).hex()
        again = any_world.start(pod, 0, used=256 * MIB)
        any_world.write()
        running.wait_passes(6)
        assert used(running) == {"hog": 384 * MIB}
        assert (side.is_alive, again.is_alive, side.terms, again.terms) == (True, True, [], [])
        assert running.events("kill_begun") == []
