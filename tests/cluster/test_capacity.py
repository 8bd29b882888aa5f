"""What [capacity] advertises stays advertised, on the node of its own and no other, and costs nothing at rest."""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.accounts import NewAccount, wait_until
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import writes
from tests.cluster.pods import Pods
from tests.cluster.tcp_proxy import TcpProxy
from tests.cluster.upkeep import GI, POLICY, RESOURCE, Upkeep, capacity_of, cards, wait_for
from tests.rig.command import COMMAND
from watchdog import clock
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Node, Snapshot
from watchdog.core.policy import Capacity, Policy
from watchdog.kube.capacity import CapacityKeeper
from watchdog.kube.client import USER_AGENT, Api
from watchdog.kube.objects import decode_node

AccountKubeconfig = Callable[[Policy, str], Path]
ENTRY: Final = f"/status/capacity/{RESOURCE.replace('/', '~1')}"
WITH_CAPACITY: Final = f'mode = "observe"\n[capacity]\nresource = "{RESOURCE}"\n'


@pytest.fixture
def node(pods: Pods) -> str:
    """A node without kubelet."""
    return pods.node()


@pytest.fixture
def kubeconfig(account_kubeconfig: AccountKubeconfig, node: str) -> Path:
    """Of an account that may do what a policy with [capacity] needs, on that node."""
    return account_kubeconfig(POLICY, node)


def patches(plane: ControlPlane, node: str, since: float) -> list[int]:
    """The answers to all the patches that the watchdog asked for on a node."""
    asked = plane.requests(user_agent=USER_AGENT, since=since)
    return [each.code for each in asked if each.verb == "patch" and each.name == node]


def set_entry(plane: ControlPlane, node: str, value: str) -> None:
    """Set the entry as somebody else does."""
    change = {"status": {"capacity": {RESOURCE: value}, "allocatable": {RESOURCE: value}}}
    plane.api.ask("PATCH", f"/api/v1/nodes/{node}/status", change)


def test_a_difference_is_mended_and_nothing_is_asked_without_one(
    control_plane: ControlPlane, node: str, kubeconfig: Path
) -> None:
    """One patch a difference; while there is none, no request at all but the watch; a kubelet's 0 is a difference."""
    since = time.time()
    with Upkeep(kubeconfig, node, *cards(80, 40)) as upkeep:
        wait_for(control_plane.api, node, 120 * GI)
        time.sleep(7)
        assert patches(control_plane, node, since) == [200]
        set_entry(control_plane, node, "0")
        assert wait_for(control_plane.api, node, 120 * GI) < 5
        set_entry(control_plane, node, "120Gi")  # the same in other words
        time.sleep(3)
        assert patches(control_plane, node, since) == [200, 200]
        assert [note.text for note in upkeep.notes] == [
            f"node {node} now advertises 120Gi of {RESOURCE}, before it was nothing",
            f"node {node} now advertises 120Gi of {RESOURCE}, before it was 0",
        ]
    others = {each.verb for each in control_plane.requests(user_agent=USER_AGENT, since=since)}
    assert others <= {"list", "watch", "patch"}


def test_a_node_made_anew_has_it_again_within_ten_seconds(
    control_plane: ControlPlane, pods: Pods, node: str, kubeconfig: Path
) -> None:
    """The object of the node is deleted and comes back without the entry, as a cloud's controllers do it."""
    with Upkeep(kubeconfig, node, *cards(80)) as upkeep:
        wait_for(control_plane.api, node, 80 * GI)
        control_plane.api.ask("DELETE", f"/api/v1/nodes/{node}")
        time.sleep(1)
        pods.node(node)
        took_s = wait_for(control_plane.api, node, 80 * GI)
        assert took_s < 10
        assert not upkeep.problems
    print(f"back after {took_s:.2f} s")


def test_a_node_without_any_capacity_gets_the_entry(
    control_plane: ControlPlane, account_kubeconfig: AccountKubeconfig, pods: Pods
) -> None:
    """An object that no kubelet has written to yet has no capacity for an entry to be put in."""
    name = pods.node()
    kubeconfig = account_kubeconfig(POLICY, name)
    control_plane.api.ask("DELETE", f"/api/v1/nodes/{name}")
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    control_plane.api.ask("POST", "/api/v1/nodes", bare)
    with Upkeep(kubeconfig, name, *cards(80)):
        assert wait_for(control_plane.api, name, 80 * GI) < 30


def test_a_lost_card_makes_the_amount_fall_and_its_return_rise(
    control_plane: ControlPlane, node: str, kubeconfig: Path
) -> None:
    """The fall waits until the card has been gone for a while, a rise does not; blindness changes nothing."""
    with Upkeep(kubeconfig, node, *cards(80, 40)) as upkeep:
        wait_for(control_plane.api, node, 120 * GI)
        upkeep.see(*cards(80, None))
        fell_s = wait_for(control_plane.api, node, 80 * GI)
        assert POLICY.reset_after_s - 1 < fell_s < POLICY.reset_after_s + 30
        gap = Gap(reason=GapReason.NVML_UNAVAILABLE, what="NVML", problem=Problem("it does not answer"))
        upkeep.see(*cards(None, None), blind=True, gaps=(gap,))
        time.sleep(POLICY.reset_after_s + 2)
        assert capacity_of(control_plane.api, node) == 80 * GI
        upkeep.see(*cards(80, 40), blind=False, gaps=())
        assert wait_for(control_plane.api, node, 120 * GI) < 2
    print(f"fell after {fell_s:.1f} s")


@contextmanager
def device_plugin(plane: ControlPlane, node: str, every_s: float) -> Iterator[None]:
    """Somebody who sets the entry again and again, as the kubelet does for a device plugin that offers it, too."""
    ended = threading.Event()

    def run() -> None:
        number = 0
        while not ended.wait(every_s):
            number += 1
            set_entry(plane, node, str(number))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(5)


def test_who_is_overruled_again_and_again_gives_way_and_says_so(
    control_plane: ControlPlane, node: str, kubeconfig: Path
) -> None:
    """Two writers of one entry would be a load on the API server for ever: the keeper asks less and less often."""
    since = time.time()
    with Upkeep(kubeconfig, node, *cards(80)) as upkeep:
        wait_for(control_plane.api, node, 80 * GI)
        with device_plugin(control_plane, node, every_s=0.25):
            wait_until(lambda: bool(upkeep.problems), "it was noticed")
            time.sleep(12)
            asked = len(patches(control_plane, node, since))
        assert asked < 12  # without waits it would be one for each of the about 50 times
        (said,) = upkeep.problems
        assert "does not stay at 80Gi" in said
        assert "device plugin" in said
    print(f"{asked} patches")


def test_an_outage_is_told_once_and_made_good(
    control_plane: ControlPlane, new_account: NewAccount, node: str, tcp_proxy: TcpProxy
) -> None:
    """While the API server is away there is one line of it; when it is back the entry is there within half a minute."""
    with Upkeep(new_account(POLICY, node).through(tcp_proxy), node, *cards(80)) as upkeep:
        wait_for(control_plane.api, node, 80 * GI)
        tcp_proxy.refuse()
        tcp_proxy.cut()
        upkeep.see(*cards(80, 40))
        wait_until(lambda: bool(upkeep.problems), "it was told")
        time.sleep(5)
        assert len(upkeep.problems) == 1
        assert tcp_proxy.url in upkeep.problems[0]
        assert "may be restarting" in upkeep.problems[0] or "nothing listens there" in upkeep.problems[0]
        tcp_proxy.heal()
        assert wait_for(control_plane.api, node, 120 * GI) < 31


def test_the_daemon_that_has_lost_the_lock_rests(
    control_plane: ControlPlane, new_account: NewAccount, node: str, api_proxy: ApiProxy
) -> None:
    """What it was about to make good is not made any more: another daemon has the node, and may have another policy."""
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
    """Has a keeper tend a node as it was once known, for so many seconds."""
    with Api(kubeconfig) as api:
        keeper = CapacityKeeper(api)

        def run(node: Node, seconds: float) -> None:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                keeper.keep(node, Snapshot(at=clock.now(), driver="550", gpus=cards(80)), POLICY)
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
    assert set(answers) == {422}
    assert len(answers) < 10
    assert capacity_of(control_plane.api, node) is None


def test_what_was_changed_is_not_changed_again_before_it_is_seen(
    control_plane: ControlPlane, node: str, keep: Callable[[Node, float], None]
) -> None:
    """The watch shows a change some time after it was made; passes until then ask for nothing."""
    since = time.time()
    keep(known(control_plane, node), 4)
    assert patches(control_plane, node, since) == [200]


def test_a_change_by_somebody_else_in_between_is_not_written_over(
    control_plane: ControlPlane, node: str, keep: Callable[[Node, float], None]
) -> None:
    """What is known of the entry is old: the patch is refused, and made again on what is there by then."""
    old = known(control_plane, node)
    set_entry(control_plane, node, "7")
    keep(old, 1)
    assert capacity_of(control_plane.api, node) == 7
    keep(known(control_plane, node), 1)
    wait_for(control_plane.api, node, 80 * GI)


def test_a_policy_that_drops_it_leaves_it_and_says_so(control_plane: ControlPlane, node: str, kubeconfig: Path) -> None:
    """A reload takes nothing away by itself: pods may count on it; how to take it back is said."""
    with Upkeep(kubeconfig, node, *cards(80)) as upkeep:
        wait_for(control_plane.api, node, 80 * GI)
        upkeep.policy = replace(POLICY, capacity=None)
        wait_until(lambda: bool(upkeep.problems), "it was said")
        assert f"`gpu-watchdog withdraw --node {node} --resource {RESOURCE}` removes it" in upkeep.problems[0]
        upkeep.policy = replace(POLICY, capacity=Capacity(resource=RESOURCE, amount=5 * GI))
        wait_for(control_plane.api, node, 5 * GI)
        upkeep.policy = replace(POLICY, capacity=None)
        time.sleep(1)
        assert capacity_of(control_plane.api, node) == 5 * GI


class Command:
    """`gpu-watchdog withdraw` for one node."""

    def __init__(self, folder: Path, kubeconfig: Path, node: str) -> None:
        self._folder = folder
        self._kubeconfig = kubeconfig
        self._node = node

    def __call__(self, policy: str, *arguments: str, node: str | None = None) -> tuple[int, str, str]:
        """Exit code, stdout and stderr under a policy of this text."""
        path = self._folder / "policy.toml"
        path.write_text(policy, encoding="utf-8")
        given = ("--policy", path, "--kubeconfig", self._kubeconfig, "--node", node or self._node)
        ended = subprocess.run(
            [COMMAND, "withdraw", *given, *arguments], capture_output=True, text=True, timeout=180, check=False
        )
        assert "Traceback" not in ended.stderr
        return ended.returncode, ended.stdout, ended.stderr


@pytest.fixture
def withdraw(tmp_path: Path, kubeconfig: Path, node: str) -> Command:
    """The command, with the rights of the policy."""
    return Command(tmp_path, kubeconfig, node)


def test_withdraw_takes_it_back_and_may_be_repeated(control_plane: ControlPlane, node: str, withdraw: Command) -> None:
    """The entry is gone, the others are there, and a second time is no failure."""
    set_entry(control_plane, node, "80Gi")
    before = control_plane.get("node", node)["status"]["capacity"]
    code, out, said = withdraw(WITH_CAPACITY)
    assert code == 0
    assert f"node {node} no longer advertises {RESOURCE} (it was 80Gi)" in out
    assert "still has [capacity]" in said
    after = control_plane.get("node", node)["status"]["capacity"]
    assert after == {key: value for key, value in before.items() if key != RESOURCE}
    code, out, _ = withdraw(WITH_CAPACITY)
    assert (code, out) == (0, f"node {node} does not advertise {RESOURCE}: nothing to remove\n")


def test_withdraw_without_the_table(control_plane: ControlPlane, node: str, withdraw: Command) -> None:
    """Where the policy no longer says what was advertised, or is none, the resource is named."""
    set_entry(control_plane, node, "80Gi")
    code, out, said = withdraw('mode = "observe"')
    assert (code, out) == (1, "")
    assert "--resource" in said
    code, out, said = withdraw("mode = 7")
    assert (code, out) == (1, "")
    assert "--resource" in said
    assert capacity_of(control_plane.api, node) == 80 * GI
    code, _, said = withdraw("mode = 7", "--resource", RESOURCE)
    assert (code, said) == (0, "")
    assert capacity_of(control_plane.api, node) is None


def test_withdraw_that_cannot(control_plane: ControlPlane, pods: Pods, withdraw: Command) -> None:
    """A node that is not there, one that is not the account's own, wrong use: each is said, and nothing is done."""
    code, out, said = withdraw(WITH_CAPACITY, node="no-such-node")
    assert (code, out) == (1, "")
    assert "'no-such-node'" in said
    other = pods.node()
    set_entry(control_plane, other, "80Gi")
    code, out, said = withdraw(WITH_CAPACITY, node=other)
    assert (code, out) == (1, "")
    assert "403" in said
    assert capacity_of(control_plane.api, other) == 80 * GI
    code, _, said = withdraw(WITH_CAPACITY, "--resource", "cpu")
    assert code == 2
    assert "has no domain" in said


def test_withdraw_while_others_write(control_plane: ControlPlane, node: str, withdraw: Command) -> None:
    """The node's object is written by others all the time: that does not make it fail."""
    set_entry(control_plane, node, "80Gi")
    ended = threading.Event()

    def heartbeat() -> None:
        number = 0
        while not ended.wait(0.01):
            number += 1
            label = json.dumps({"metadata": {"labels": {"tests.invalid/beat": str(number)}}}).encode()
            control_plane.api.call("PATCH", f"/api/v1/nodes/{node}", label)

    thread = threading.Thread(target=heartbeat, daemon=True)
    thread.start()
    try:
        assert withdraw(WITH_CAPACITY)[0] == 0
    finally:
        ended.set()
        thread.join(5)
    assert capacity_of(control_plane.api, node) is None
