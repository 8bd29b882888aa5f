"""The daemon itself tells: a real process over its limit, the real API server, and what `kubectl describe` shows."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.api import Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.event_rig import events_of
from tests.cluster.pods import Pods
from tests.node.support import wait_until
from tests.rig import Node, node
from tests.rig.command import Daemon, daemon
from tests.rig.node import Tenant
from tests.stub import GIB
from tests.world.policies import KILL_AT_ONCE, WARN_AT_ONCE, write_policy
from watchdog.config.load import load_policy
from watchdog.core.policy import Policy

MEMORY = "veriff.com/gpu-memory"
KILL_LATER = KILL_AT_ONCE.replace("100%", "150%")
OBSERVED = "\n[events]\nobserve = true\ncontact = 'the GPU team'\n"
Rights = Callable[[Policy, str], Path]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Node]:
    """A node whose pods are in the API."""
    with node(tmp_path) as made:
        yield made


def over(world: Node, pods: Pods, used: int) -> tuple[Object, Tenant]:
    """A pod of this node that declares 1Gi and uses more: an object of the API, and a real process in its cgroup."""
    amount = {MEMORY: "1Gi"}
    resources = {"resources": {"limits": amount, "requests": amount}}
    made = pods.create("hog", node=pods.node("n1", capacity={MEMORY: "80Gi"}), container=resources)
    uid, (status,) = made["metadata"]["uid"], made["status"]["containerStatuses"]
    ours = world.pod("hog", ("main", "1Gi"), uid=uid)
    ours.containers[0].id = status["containerID"].partition("://")[2]
    tenant = world.start(ours, used=used)
    world.write(pods=False)
    return made, tenant


def running(world: Node, policy: Path, rights: Rights) -> contextlib.AbstractContextManager[Daemon]:
    """The daemon with just the rights that its policy needs."""
    given = ("--policy", policy, "--journal", world.journal, "--kubeconfig", rights(load_policy(policy), "n1"))
    return daemon(world.root, world.stub_file, *given)


def reasons(plane: ControlPlane, namespace: str) -> list[str]:
    """The reasons of what has been told, in the order of time."""
    return [event["reason"] for event in sorted(events_of(plane, namespace), key=lambda each: str(each["eventTime"]))]


def test_the_daemon_tells_what_it_does(
    control_plane: ControlPlane, namespace: str, pods: Pods, world: Node, account_kubeconfig: Rights
) -> None:
    """Warned, killed, released: each on the pod while it happens, with the numbers that the driver gave."""
    _, tenant = over(world, pods, 9 * GIB)
    with running(world, write_policy(world.root, WARN_AT_ONCE, KILL_LATER), account_kubeconfig) as watchdog:
        wait_until(lambda: reasons(control_plane, namespace)[-2:] == ["GPUMemoryKilled", "GPUMemoryReleased"])
        assert not tenant.is_alive
        watchdog.wait(lambda d: (d.metric("events_total", result="written") or 0) >= 2)
        assert watchdog.metric("events_total", result="refused") == 0
    shown = control_plane.kubectl("describe", "pod", "hog", "-n", namespace).stdout
    assert all(each in shown for each in (f"{namespace}/hog", "9Gi", "veriff.com/gpu-memory", "SIGKILL after 2s"))


@pytest.mark.parametrize("wanted", [False, True])
def test_observe_mode_writes_only_where_it_is_wanted(
    control_plane: ControlPlane, namespace: str, pods: Pods, world: Node, account_kubeconfig: Rights, wanted: bool
) -> None:
    """A policy that is tried out says nothing to tenants, unless it says so; and then that nothing was done."""
    _, tenant = over(world, pods, 9 * GIB)
    policy = write_policy(world.root, KILL_AT_ONCE, mode="observe", more=OBSERVED if wanted else "")
    with running(world, policy, account_kubeconfig) as watchdog:
        watchdog.wait(lambda d: (d.metric("would_act_total", action="kill") or 0) >= 1)
        if wanted:
            wait_until(lambda: events_of(control_plane, namespace) != [])
        time.sleep(0.5)
        assert tenant.is_alive
    told = [(event["reason"], event["note"]) for event in events_of(control_plane, namespace)]
    assert len(told) == wanted
    for reason, text in told:
        assert reason == "GPUMemoryOverLimit"
        assert "observe mode" in text
        assert text.endswith("Questions: ask the GPU team.")
