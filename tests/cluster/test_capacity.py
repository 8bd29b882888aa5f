"""What [capacity] advertises stays advertised, on its own node and no other, and costs nothing at rest."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.rig.cluster.accounts import NewAccount
from tests.rig.cluster.api_proxy import ApiProxy
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.faults import writes
from tests.rig.cluster.pods import Pods
from tests.rig.cluster.real_pods import wait_until
from tests.rig.cluster.tcp_proxy import TcpProxy
from tests.rig.cluster.upkeep import GI, POLICY, RESOURCE, Upkeep, capacity_of, cards, repeating, set_entry, wait_for
from watchdog import clock
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Node, Snapshot
from watchdog.core.policy import Capacity
from watchdog.kube.capacity import CapacityKeeper
from watchdog.kube.client import USER_AGENT, Api
from watchdog.kube.objects import decode_node

BLIND: Final = Gap(reason=GapReason.DRIVER_UNAVAILABLE, what="NVML", problem=Problem("it does not answer"))


@pytest.fixture
def node(pods: Pods) -> str:
    """A node without kubelet."""
    return pods.node()


@pytest.fixture
def kubeconfig(new_account: NewAccount, node: str) -> Path:
    """Of an account that may do what a policy with [capacity] needs, on that node."""
    return new_account(POLICY, node).kubeconfig


def patches(plane: ControlPlane, node: str, since: float) -> list[int]:
    """The answers to all the patches that the watchdog requested on a node."""
    asked = plane.requests(user_agent=USER_AGENT, since=since)
    return [each.code for each in asked if each.verb == "patch" and each.name == node]


def test_a_difference_is_corrected_and_nothing_is_requested_without_one(
    control_plane: ControlPlane, node: str, kubeconfig: Path
) -> None:
    """One patch a difference; while there is none, no request at all but the watch; a kubelet's 0 is a difference."""
    since = time.time()
    with Upkeep(kubeconfig, node, *cards(80, 40)) as upkeep:
        wait_for(control_plane.api, node, 120 * GI)
        time.sleep(6)
        assert patches(control_plane, node, since) == [200]
        set_entry(control_plane.api, node, "0")
        assert wait_for(control_plane.api, node, 120 * GI) < 5
        set_entry(control_plane.api, node, "120Gi")  # the same in another form
        time.sleep(3)
        assert patches(control_plane, node, since) == [200, 200]
        assert (len(upkeep.notes), upkeep.problems) == (2, [])
    verbs = {each.verb for each in control_plane.requests(user_agent=USER_AGENT, since=since)}
    assert verbs <= {"list", "watch", "patch"}


def test_a_lost_card_makes_the_amount_fall_and_its_return_rise(
    control_plane: ControlPlane, node: str, kubeconfig: Path
) -> None:
    """A fall waits until the card has been gone for a while, a rise does not; blindness changes nothing."""
    with Upkeep(kubeconfig, node, *cards(80, 40)) as upkeep:
        wait_for(control_plane.api, node, 120 * GI)
        upkeep.see(*cards(None, None), blind=True, gaps=(BLIND,))
        time.sleep(1)
        upkeep.see(*cards(80, None), blind=False, gaps=())
        fell_s = wait_for(control_plane.api, node, 80 * GI)
        assert POLICY.reset_after_s - 1 < fell_s < POLICY.reset_after_s + 30
        upkeep.see(*cards(80, 40))
        assert wait_for(control_plane.api, node, 120 * GI) < 2


def test_a_contested_entry_is_written_less_and_less(control_plane: ControlPlane, node: str, kubeconfig: Path) -> None:
    """A device plugin offers it too: two writers would be a load on the API server for ever, and it is reported."""
    since = time.time()
    with Upkeep(kubeconfig, node, *cards(80)) as upkeep:
        wait_for(control_plane.api, node, 80 * GI)
        with repeating(lambda number: set_entry(control_plane.api, node, str(number)), 0.25):
            wait_until(lambda: bool(upkeep.problems), "it is reported")
            time.sleep(12)
            requested = len(patches(control_plane, node, since))
        assert requested < 12  # without pauses it would be one for each of the about 50 times
        assert "does not stay at 80Gi" in upkeep.problems[0]
    print(f"{requested} patches")


def test_an_outage_is_reported_once_and_recovered_from(
    control_plane: ControlPlane, new_account: NewAccount, node: str, tcp_proxy: TcpProxy
) -> None:
    """While the API server is away there is one message; when it is back the entry is there within half a minute."""
    with Upkeep(new_account(POLICY, node).through(tcp_proxy), node, *cards(80)) as upkeep:
        wait_for(control_plane.api, node, 80 * GI)
        tcp_proxy.refuse()
        tcp_proxy.cut()
        upkeep.see(*cards(80, 40))
        wait_until(lambda: bool(upkeep.problems), "it is reported")
        time.sleep(3)
        assert len(upkeep.problems) == 1
        tcp_proxy.heal()
        assert wait_for(control_plane.api, node, 120 * GI) < 31


def test_a_daemon_that_has_lost_the_lock_rests(
    control_plane: ControlPlane, new_account: NewAccount, node: str, api_proxy: ApiProxy
) -> None:
    """A change that it was about to repeat is not made: another daemon has the node, and may have another policy."""
    with Upkeep(new_account(POLICY, node).through(api_proxy), node, *cards(80)) as upkeep:
        wait_for(control_plane.api, node, 80 * GI)
        api_proxy.answer(503, when=writes("/status"))
        upkeep.see(*cards(80, 40))
        wait_until(lambda: bool(upkeep.problems), "a change is under way, and is tried again")
        upkeep.has_lock = False
        time.sleep(0.5)
        api_proxy.heal()
        tried = len(api_proxy.seen)
        time.sleep(5)  # the pauses after the first failures are drawn from up to 0.5, 1 and 2 s
        assert [seen.path for seen in api_proxy.seen[tried:] if seen.method == "PATCH"] == []
        assert capacity_of(control_plane.api, node) == 80 * GI
        upkeep.has_lock = True
        wait_for(control_plane.api, node, 120 * GI)


def known(plane: ControlPlane, node: str) -> Node:
    """The node as it is now."""
    return decode_node(plane.api.call("GET", f"/api/v1/nodes/{node}").body)


@pytest.fixture
def keep(kubeconfig: Path) -> Iterator[Callable[[Node, float], None]]:
    """Has a keeper tend a node as it was once known, for this many seconds."""
    with Api(kubeconfig) as api:
        keeper = CapacityKeeper(api)

        def run(node: Node, seconds: float) -> None:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                keeper.advertise(node, Snapshot(at=clock.now(), driver="550", interface="NVML", gpus=cards(80)), POLICY)
                time.sleep(0.05)

        yield run
        keeper.stop()


def test_another_object_of_the_same_name_is_not_touched(
    control_plane: ControlPlane, pods: Pods, node: str, keep: Callable[[Node, float], None]
) -> None:
    """A keeper that knows the node as it was before it was recreated changes nothing of the new one."""
    old = known(control_plane, node)
    control_plane.api.ask("DELETE", f"/api/v1/nodes/{node}")
    pods.node(node)
    since = time.time()
    keep(old, 4)
    answers = patches(control_plane, node, since)
    assert (set(answers), len(answers) < 10) == ({422}, True)
    assert capacity_of(control_plane.api, node) is None


def test_another_writer_s_change_is_not_written_over(
    control_plane: ControlPlane, node: str, keep: Callable[[Node, float], None]
) -> None:
    """What is known of the entry is old: the patch is refused, and made again on what is there by then, once."""
    old = known(control_plane, node)
    set_entry(control_plane.api, node, "7")
    keep(old, 1)
    assert capacity_of(control_plane.api, node) == 7
    since = time.time()
    deadline, now_known = since + 30, known(control_plane, node)
    while capacity_of(control_plane.api, node) != 80 * GI and time.time() < deadline:  # refusals are waited out
        keep(now_known, 1)
    keep(now_known, 1)
    assert (capacity_of(control_plane.api, node), patches(control_plane, node, since)) == (80 * GI, [200])


def test_a_policy_that_drops_the_table_leaves_the_entry(
    control_plane: ControlPlane, node: str, kubeconfig: Path
) -> None:
    """A reload removes nothing by itself: pods may count on it; the command that removes it is reported."""
    with Upkeep(kubeconfig, node, *cards(80)) as upkeep:
        wait_for(control_plane.api, node, 80 * GI)
        upkeep.policy = replace(POLICY, capacity=None)
        wait_until(lambda: bool(upkeep.problems), "it is reported")
        assert f"`gpu-watchdog withdraw --node {node} --resource {RESOURCE}`" in upkeep.problems[0]
        upkeep.policy = replace(POLICY, capacity=Capacity(resource=RESOURCE, amount=5 * GI))
        wait_for(control_plane.api, node, 5 * GI)
        upkeep.policy = replace(POLICY, capacity=None)
        time.sleep(1)
        assert capacity_of(control_plane.api, node) == 5 * GI
