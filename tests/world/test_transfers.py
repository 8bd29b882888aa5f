"""Memory that changes hands by CUDA IPC: an exporter ends, and the driver charges a process that had opened it."""

import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from tests.rig import Daemon, Node
from tests.rig.node import GPU, Tenant
from tests.rig.suspension import Suspension
from tests.stub import GIB, MIB, StubGpu
from tests.world.policies import KILL_AT_ONCE, write_policy
from tests.world.test_kill import history_of, run

pytestmark = [pytest.mark.node, pytest.mark.slow]

EXPORTED: Final = 36 * GIB
OWN: Final = 5 * GIB


@dataclass
class Sharing:
    """A pod that is within its 8Gi, and one of another namespace whose memory it has opened."""

    world: Node
    importer: Tenant
    exporter: Tenant

    @classmethod
    def on(cls, world: Node, total: int = 80 * GIB) -> "Sharing":
        """Start the two on a node with one card."""
        world.stub = replace(world.stub, gpus=(StubGpu(uuid=GPU, total=total, reserved=512 * MIB),))
        importer = world.single("importer", declared="8Gi", used=OWN)
        exporter = world.single("exporter", declared="40Gi", used=EXPORTED, namespace="other")
        return cls(world, importer, exporter)

    def end(self, *, risen: int, more: int = 0) -> None:
        """Let the exporter end, and the driver charge the importer in the same reading; `more` is in use by nobody."""
        self.exporter.used = 0
        self.importer.used += risen
        card = replace(self.world.stub.gpus[0], base=more)
        self.world.show(gpus=(card,))
        self.exporter.process.kill()
        self.exporter.process.wait()

    def again(self, used: int) -> None:
        """Let another pod of the exporter's namespace take its place."""
        self.exporter = self.world.single("exporter-2", declared="40Gi", used=used, namespace="other")


def gaps(running: Daemon) -> list[dict[str, Any]]:
    """The gaps about memory that changed hands."""
    found: list[dict[str, Any]] = running.status()["gaps"]
    return [gap for gap in found if gap["reason"] == "transfer"]


def account(running: Daemon) -> dict[str, Any]:
    """The importer's account."""
    found: dict[str, Any]
    (found,) = [each for each in running.status()["accounts"] if each["pod"] == "importer"]
    return found


def test_an_importer_is_no_victim_of_what_it_was_charged(any_world: Node) -> None:
    """Point 10: for five minutes the risen bytes are unknown, a gap names both pods, and the log warns about both."""
    sharing = Sharing.on(any_world)
    machine = Suspension(any_world.root)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE), prefix=machine.prefix) as running:
        running.wait_passes(1)
        sharing.end(risen=EXPORTED - 400 * MIB)
        running.wait(gaps)
        running.wait_passes(3)
        (gap,) = gaps(running)
        assert ("ns/importer" in gap["what"], "other/exporter" in gap["why"]) == (True, True)
        found = account(running)
        assert (found["used"], found["used_at_least"], found["verdict"]) == (None, OWN, "unknown")
        assert (sharing.importer.is_alive, sharing.importer.terms) == (True, [])
        machine.let_pass(301)
        running.wait(lambda _: not sharing.importer.is_alive)
        assert sharing.importer.ended_by == signal.SIGTERM
        running.wait(lambda each: not gaps(each))


def test_new_memory_of_an_importer_counts(any_world: Node) -> None:
    """Point 10: only the risen bytes are unknown, so that nobody can allocate under their cover."""
    sharing = Sharing.on(any_world)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(1)
        sharing.end(risen=EXPORTED)
        running.wait(gaps)
        any_world.use(sharing.importer, OWN)  # it closes what it had opened
        running.wait(lambda d: account(d)["used"] == OWN)
        any_world.use(sharing.importer, OWN + EXPORTED)
        running.wait(lambda _: not sharing.importer.is_alive)


KILLED: Final[dict[str, Callable[[Sharing], None]]] = {
    "it rises by less than three quarters": lambda sharing: sharing.end(risen=EXPORTED * 3 // 4 - 1),
    "it rises by more": lambda sharing: sharing.end(risen=EXPORTED + 1),
    "the card's use does not fall by the difference": lambda sharing: sharing.end(risen=EXPORTED, more=65 * MIB),
}


@pytest.mark.parametrize("ends", KILLED.values(), ids=KILLED)
def test_what_can_be_no_transfer_is_killed(any_world: Node, ends: Callable[[Sharing], None]) -> None:
    """Point 10: a tenant that allocates while another pod's process ends is no importer."""
    sharing = Sharing.on(any_world)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(1)
        ends(sharing)
        running.wait(lambda _: not sharing.importer.is_alive)


def test_on_a_card_that_is_short_the_bytes_count(any_world: Node) -> None:
    """Point 10: others need that memory now."""
    sharing = Sharing.on(any_world, total=42 * GIB)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(1)
        sharing.end(risen=EXPORTED)
        running.wait(lambda _: not sharing.importer.is_alive)


def test_what_an_offender_leaves_behind_when_it_is_killed_counts(any_world: Node) -> None:
    """Point 10: an accomplice that has opened an offender's memory does not save it from a kill."""
    sharing = Sharing.on(any_world)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(1)
        any_world.use(sharing.exporter, 42 * GIB)
        running.wait(lambda _: not sharing.exporter.is_alive)
        sharing.end(risen=40 * GIB)
        running.wait(lambda _: not sharing.importer.is_alive)


def test_an_owner_is_spared_for_five_minutes_an_hour_across_restarts(any_world: Node) -> None:
    """Point 10: the journal has the window, so neither a second transfer nor another daemon opens a new one."""
    sharing = Sharing.on(any_world)
    machine = Suspension(any_world.root)
    policy = write_policy(any_world.root, KILL_AT_ONCE)
    with run(any_world, policy, prefix=machine.prefix) as running:
        running.wait_passes(1)
        sharing.end(risen=EXPORTED)
        running.wait(gaps)
        running.wait(lambda _: any(row["event"] == "transferred" for row in history_of(any_world)))
    with run(any_world, policy, prefix=machine.prefix) as running:
        running.wait_passes(3)
        assert (sharing.importer.is_alive, len(gaps(running))) == (True, 1)
        any_world.use(sharing.importer, OWN)
        running.wait(lambda d: account(d)["used"] == OWN)
        machine.let_pass(310)
        sharing.again(20 * GIB)
        running.wait_passes(2)
    with run(any_world, policy, prefix=machine.prefix) as running:
        running.wait_passes(2)
        sharing.end(risen=20 * GIB)
        running.wait(lambda _: not sharing.importer.is_alive)
