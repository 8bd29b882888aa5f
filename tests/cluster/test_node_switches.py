"""The operator's switches on a real Node object: less force at once, and the driver let go for maintenance."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from tests.cluster.accounts import NewAccount
from tests.cluster.api import Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pods import Pods
from tests.rig import Node, node
from tests.rig.command import Daemon, daemon
from tests.rig.devices import seconds_until, watched
from tests.rig.node import Tenant
from tests.rig.record import actions
from tests.stub import GIB
from tests.world.policies import KILL_AT_ONCE, write_policy
from tests.world.test_maintenance import says, started
from watchdog.config.load import load_policy
from watchdog.kube.rights import Piece

MEMORY = "veriff.com/gpu-memory"
STUBBORN = KILL_AT_ONCE.replace('grace = "2s"', 'grace = "20s"')
MODE = "gpu-memory-watchdog/mode"
MIG_STATE = "nvidia.com/mig.config.state"


@pytest.fixture
def world(tmp_path: Path, pods: Pods) -> Iterator[Node]:
    """A node that is in the API, with a device file that the driver opens."""
    with node(tmp_path) as made:
        (tmp_path / "dev").mkdir()
        (tmp_path / "dev" / "nvidia0").touch()
        made.stub = replace(made.stub, device=tmp_path / "dev" / "nvidia0")
        made.write(pods=False)
        pods.node("n1", capacity={MEMORY: "80Gi"})
        yield made


@contextmanager
def watching(world: Node, policy: Path, new_account: NewAccount, *without: Piece) -> Iterator[Daemon]:
    """The daemon with just the rights that its policy takes, but for pieces that an operator took away."""
    kubeconfig = new_account(load_policy(policy), "n1", without=without).kubeconfig
    given = ("--policy", policy, "--journal", world.journal, "--kubeconfig", kubeconfig)
    with daemon(world.root, world.stub_file, *given) as running:
        yield running


@pytest.fixture
def run(world: Node, new_account: NewAccount) -> Iterator[Daemon]:
    """The daemon, which enforces."""
    with watching(world, write_policy(world.root, STUBBORN), new_account) as running:
        yield running


def over(world: Node, pods: Pods) -> tuple[Object, Tenant]:
    """A pod of the API that declares 1Gi, and its process, which uses more and does not heed SIGTERM."""
    amount = {MEMORY: "1Gi"}
    made = pods.create("hog", node="n1", container={"resources": {"limits": amount, "requests": amount}})
    (status,) = made["status"]["containerStatuses"]
    ours = world.pod("hog", ("main", "1Gi"), uid=made["metadata"]["uid"])
    ours.containers[0].id = status["containerID"].partition("://")[2]
    tenant = world.start(ours, used=4 * GIB, behaviour="stubborn")
    world.write(pods=False)
    return made, tenant


def test_the_annotation_ends_a_grace_within_two_seconds(
    control_plane: ControlPlane, world: Node, pods: Pods, run: Daemon
) -> None:
    """Point 33: from the API server's answer to the end of the action; once it is taken away all starts over."""
    _, tenant = over(world, pods)
    run.wait(lambda _: tenant.terms)
    control_plane.kubectl("annotate", "node", "n1", f"{MODE}=observe")
    began_s = time.monotonic()
    run.wait(lambda d: d.metric("actions_total", action="kill", result="interrupted") == 1)
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # processes that want to run, per processor
    assert time.monotonic() - began_s < 2 * busy
    assert "not enforcing: node_annotation" in run.get("/readyz")[1]
    run.wait_passes(2)
    assert (tenant.is_alive, len(tenant.terms)) == (True, 1)
    control_plane.kubectl("annotate", "node", "n1", f"{MODE}-")
    run.wait(lambda _: len(tenant.terms) == 2)
    assert [each.result for each in actions(world.journal)] == ["interrupted", None]


@pytest.mark.parametrize(
    ("grace_s", "why"),
    [(60, "the pod had become protected: it is terminating"), (0, "the pod had gone from the list")],
    ids=["in its time", "by force"],
)
def test_a_deletion_seen_in_the_watch_ends_a_grace(
    world: Node, pods: Pods, run: Daemon, grace_s: int, why: str
) -> None:
    """Points 27 and 28: somebody deletes the pod meanwhile, and then no SIGKILL comes from here."""
    pod, tenant = over(world, pods)
    run.wait(lambda _: tenant.terms)
    pods.delete(pod, grace_s=grace_s)
    run.wait(lambda d: d.metric("actions_total", action="kill", result="interrupted") == 1)
    (told,) = run.events("kill_ended")
    assert why in told["message"]
    assert (tenant.is_alive, len(tenant.terms)) == (True, 1)


@pytest.mark.parametrize("keep", ["no", "open"])
def test_a_label_lets_the_driver_go(
    control_plane: ControlPlane, world: Node, run: Daemon, keep: Literal["no", "open"]
) -> None:
    """Point 34, by the API: within 5 s, and a new process in its place opens nothing before it has read its node."""
    folder = world.root / "dev"
    run.wait(lambda d: d.get("/readyz")[0] == 200)
    if keep != "no":
        world.stub = replace(world.stub, keep=keep)
        world.write(pods=False)
        run.wait_passes(2)
    control_plane.kubectl("label", "node", "n1", f"{MIG_STATE}=pending")
    assert seconds_until(run.pid, folder, is_held=False) < 5
    with watched(run.pid, folder) as seen:
        run.wait(lambda d: says(d, "/readyz", f"{MIG_STATE} is pending"))
        run.wait_passes(2)
    assert (seen, started(run)) == ([], 1 if keep == "no" else 2)
    control_plane.kubectl("label", "--overwrite", "node", "n1", f"{MIG_STATE}=success")
    assert seconds_until(run.pid, folder, is_held=True) < 5
    run.wait(lambda d: d.get("/readyz")[0] == 200)


def test_a_daemon_that_observes_lets_the_driver_go_too(
    control_plane: ControlPlane, world: Node, new_account: NewAccount
) -> None:
    """Point 34 under a policy that asks for nothing of the node: it would hold up the maintenance no less."""
    folder = world.root / "dev"
    with watching(world, write_policy(world.root, STUBBORN, mode="observe"), new_account) as run:
        run.wait(lambda d: d.get("/readyz")[0] == 200)
        control_plane.kubectl("label", "node", "n1", f"{MIG_STATE}=pending")
        assert seconds_until(run.pid, folder, is_held=False) < 5
        run.wait(lambda d: says(d, "/readyz", f"{MIG_STATE} is pending"))
        control_plane.kubectl("label", "--overwrite", "node", "n1", f"{MIG_STATE}=success")
        assert seconds_until(run.pid, folder, is_held=True) < 5


def test_a_reload_to_observe_in_the_middle_of_maintenance(
    control_plane: ControlPlane, world: Node, run: Daemon
) -> None:
    """Nothing is opened by it, and the end of the maintenance is seen as before."""
    folder = world.root / "dev"
    run.wait(lambda d: d.get("/readyz")[0] == 200)
    control_plane.kubectl("label", "node", "n1", f"{MIG_STATE}=pending")
    assert seconds_until(run.pid, folder, is_held=False) < 5
    with watched(run.pid, folder) as seen:
        write_policy(world.root, STUBBORN, mode="observe")
        run.wait(lambda d: d.status()["mode"] == "observe")
        run.wait_passes(3)
    assert (seen, started(run)) == ([], 1)
    control_plane.kubectl("label", "--overwrite", "node", "n1", f"{MIG_STATE}=success")
    assert seconds_until(run.pid, folder, is_held=True) < 5


def test_without_the_right_to_see_its_node_a_daemon_observes_and_says_so(
    world: Node, pods: Pods, new_account: NewAccount
) -> None:
    """An operator took the right away: nothing is suspended, all is measured, and the log says what is missing."""
    over(world, pods)
    policy = write_policy(world.root, STUBBORN, mode="observe")
    with watching(world, policy, new_account, Piece.NODE) as run:
        run.wait(lambda d: d.metric("would_act_total", action="kill") == 1)
        assert run.get("/readyz")[0] == 200
        run.wait(lambda d: any("gpu-watchdog rights" in line["message"] for line in d.events("gap_began")))
        *_, told = (line["message"] for line in run.events("gap_began"))
        assert told.startswith("node n1: ")
        assert all(each in told for each in ("403", "`gpu-watchdog rights`"))
        assert run.status()["suspended"] == []
