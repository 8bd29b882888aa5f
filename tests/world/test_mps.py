"""`run` in enforce mode on a node with MPS: no client is ended whose neighbours would break, and no name protects."""

import signal
from typing import Any, Final, Literal

import pytest

from tests.rig import Daemon, Node
from tests.rig.node import Tenant
from tests.stub import GIB, LISTS, MIB, ListName, StubDelay, StubGpu, StubReturn
from tests.world.policies import KILL_AT_ONCE, write_policy
from tests.world.test_kill import ended, explained, history_of, run
from tests.world.test_not_killed import wait_for_the_middle_of_a_reading

pytestmark = [pytest.mark.node, pytest.mark.slow]

CLIENT: tuple[ListName, ...] = ("compute", "mps")
DAEMON_SET = {"ownerReferences": [{"kind": "DaemonSet", "name": "mps-control-daemon", "uid": "u", "controller": True}]}
NOT_SUPPORTED: Final = 3  # NVML_ERROR_NOT_SUPPORTED
EVICT = 'above = "100%"\nfor = "0s"\ndo = "evict"\ngrace = "2s"'
ACCEPTED = "\n[safety]\nsignal_mps_clients = true\n"


def server(world: Node, where: str) -> Tenant | None:
    """The MPS server that the clients have: on the host, in the device plugin's pod, or one that is not seen."""
    if where == "unseen":
        return None
    pod = world.pod("mps-control-daemon", ("ctr", None), metadata=DAEMON_SET) if where == "DaemonSet" else None
    return world.start(pod, used=30 * MIB, behaviour="server")


def held(running: Daemon) -> dict[str, Any]:
    """The one step that is held back for MPS."""
    (entry,) = [each for each in running.status()["plan"] if each["withheld_by"] == "mps"]
    return dict(entry)


@pytest.mark.parametrize("where", ["host", "DaemonSet", "unseen"])
def test_a_client_of_a_shared_server_lives(any_world: Node, where: str) -> None:
    """Point 36: a client whose end would break its neighbours' work is left alone, and that is reported once."""
    shared = server(any_world, where)
    over = any_world.start(any_world.pod("hog", ("main", "1Gi")), used=9 * GIB, lists=CLIENT)
    calm = any_world.start(any_world.pod("neighbour", ("main", "4Gi")), used=GIB, lists=CLIENT)
    any_world.write()
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait(lambda d: d.metric("withheld_total", brake="mps") == 1)
        running.wait_passes(3)
        assert [each.terms for each in (over, calm)] == [[], []]
        assert all(each.is_alive for each in (over, calm, shared) if each is not None)
        assert running.metric("withheld_total", brake="mps") == 1
        assert (held(running)["pod"], held(running)["pids"]) == ("hog", [over.pid])
        why = f"process {over.pid} (python) in container main is a client of an MPS server outside its pod"
        assert why in held(running)["held_because"]
        assert why in explained(any_world, running)
        (logged,) = running.events("withheld")
        assert (logged["brake"], why in logged["message"]) == ("mps", True)
    assert any("an MPS server outside its pod" in row["sentence"] for row in history_of(any_world))


def test_an_eviction_of_a_client_is_withheld_too(any_world: Node) -> None:
    """Point 36: an eviction ends every process of the pod, so one client in any of its containers holds it back."""
    offender = any_world.pod("hog", ("main", "1Gi"), ("side", None))
    any_world.start(offender, used=9 * GIB)
    client = any_world.start(offender, 1, used=128 * MIB, lists=CLIENT)
    any_world.write()
    with run(any_world, write_policy(any_world.root, EVICT)) as running:
        running.wait(lambda d: d.metric("withheld_total", brake="mps") == 1)
        running.wait_passes(2)
        assert held(running)["do"] == "evict"
        assert f"process {client.pid} (python) in container side" in held(running)["held_because"]
        assert running.metric("actions_total", action="evict", result="failed") == 0


def test_who_joined_between_the_decision_and_the_signal_lives(any_world: Node) -> None:
    """Point 36: the last look before the first signal sees a process that has become a client meanwhile."""
    tenant = any_world.single("hog", used=512 * MIB)
    second = StubGpu(uuid="GPU-11111111-0000-0000-0000-000000000000")
    slow = StubDelay(call=LISTS[0], ms=1500, gpu=second.uuid)  # the tenant's card has been read by then
    any_world.show(gpus=(*any_world.stub.gpus, second), delays=(slow,))
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        wait_for_the_middle_of_a_reading(
            running, lambda: any_world.use(tenant, 9 * GIB), hangs=slow.call, cards=len(any_world.stub.gpus)
        )
        tenant.lists = CLIENT
        any_world.write()
        running.wait(lambda d: d.metric("withheld_total", brake="mps") == 1)
        running.wait_passes(1)
        assert (tenant.is_alive, tenant.terms) == (True, [])


@pytest.mark.parametrize("how", ["own server", "accepted"])
def test_a_client_that_is_killed(any_world: Node, how: str) -> None:
    """Point 36: a server in the client's own pod serves that pod alone; and an operator may accept the risk."""
    offender = any_world.pod("hog", ("main", "1Gi"), ("mps", None))
    own = any_world.start(offender, 1, used=30 * MIB, behaviour="server") if how == "own server" else None
    shared = server(any_world, "host") if how == "accepted" else None
    over = any_world.start(offender, used=9 * GIB, lists=CLIENT)
    any_world.write()
    policy = write_policy(any_world.root, KILL_AT_ONCE, more=ACCEPTED if how == "accepted" else "")
    with run(any_world, policy) as running:
        running.wait(ended)
    assert over.ended_by == signal.SIGTERM
    assert all(each.is_alive for each in (own, shared) if each is not None)


@pytest.mark.parametrize("shared", ["host", "none"])
def test_an_offender_that_calls_itself_mps_server_is_killed(any_world: Node, shared: str) -> None:
    """Point 35: a process's name proves nothing: in a tenant's own pod it protects nobody, MPS on the node or not."""
    over = any_world.single("hog", used=9 * GIB, behaviour="server")
    if shared == "host":
        server(any_world, "host")
        any_world.start(any_world.pod("neighbour", ("main", "4Gi")), used=GIB, lists=CLIENT)
    any_world.write()
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait(ended)
    assert over.ended_by == signal.SIGTERM


SYSTEM: Final = 2_000_001_000  # system-node-critical
SHIPPED: Final = '\n[protect]\npriority_namespaces = ["kube-system", "gpu-operator"]\n'


@pytest.mark.parametrize("behaviour", ["mimic", "server"], ids=["", "all rights in /proc"])
@pytest.mark.parametrize("disguise", ["a priority", "an owner", "both"])
def test_no_disguise_as_the_systems_mps_server_hides_anything(
    any_world: Node, disguise: str, behaviour: Literal["mimic", "server"]
) -> None:
    """Point 35: the bytes of a tenant's "server" count for its pod, whatever its priority and its owner reference.

    In a user namespace of its own it can also seem to have all rights, which its pod's spec does not give.
    """
    metadata = {} if disguise == "a priority" else DAEMON_SET
    priority = None if disguise == "an owner" else SYSTEM
    over = any_world.single("hog", used=20 * GIB, behaviour=behaviour, metadata=metadata, priority=priority)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE, more=SHIPPED)) as running:
        running.wait(ended)
        assert not running.status()["unattributed"]
    assert over.ended_by == signal.SIGTERM


@pytest.mark.parametrize("metadata", [{}, DAEMON_SET], ids=["a priority", "both"])
def test_no_disguise_as_the_systems_mps_server_shields_a_neighbour(any_world: Node, metadata: dict[str, Any]) -> None:
    """Point 35: where the driver lists no MPS clients, a tenant's "server" makes no other pod a client of it."""
    any_world.show(returns=(StubReturn(call=LISTS[2], code=NOT_SUPPORTED),))
    any_world.single("decoy", used=MIB, behaviour="mimic", metadata=metadata, priority=SYSTEM)
    over = any_world.single("hog", used=20 * GIB)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE, more=SHIPPED)) as running:
        running.wait(ended)
    assert over.ended_by == signal.SIGTERM


@pytest.mark.parametrize("more", ["", ACCEPTED, SHIPPED])
def test_the_device_plugins_server_and_its_container_live(any_world: Node, more: str) -> None:
    """Point 35: the server in a DaemonSet's pod stays protected, and so does the container that it runs in."""
    plugin = any_world.pod("mps-control-daemon", ("ctr", "1Gi"), metadata=DAEMON_SET)
    plugin.containers[0].privileged = True
    shared = any_world.start(plugin, used=2 * GIB, behaviour="server")
    beside = any_world.start(plugin, used=9 * GIB)
    any_world.write()
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE, more=more)) as running:
        running.wait(lambda d: d.metric("withheld_total", brake="mps") == 1)
        running.wait_passes(2)
        assert (shared.is_alive, beside.is_alive, beside.terms) == (True, True, [])
        assert [each["reason"] for each in running.status()["unattributed"]] == ["mps_server"]
