"""The daemon with a real API server and real processes, but no kubelet: Events, the node's switches, and trouble."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

import pytest

from tests.node.support import wait_until
from tests.rig import Node, node
from tests.rig.cluster.accounts import Account, NewAccount
from tests.rig.cluster.api import Object
from tests.rig.cluster.api_proxy import ApiProxy
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.event_rig import events_of
from tests.rig.cluster.pods import Pods
from tests.rig.cluster.tcp_proxy import TcpProxy
from tests.rig.command import Daemon, daemon
from tests.rig.devices import seconds_until, watched
from tests.rig.node import Tenant
from tests.rig.record import actions
from tests.stub import GIB
from tests.world.policies import KILL_AT_ONCE, WARN_AT_ONCE, write_policy
from tests.world.test_maintenance import says, started
from watchdog.config.load import load_policy
from watchdog.kube.kinds import Piece

MEMORY: Final = "veriff.com/gpu-memory"
KILL_LATER: Final = KILL_AT_ONCE.replace("100%", "150%")
SLOW_KILL: Final = KILL_AT_ONCE.replace('grace = "2s"', 'grace = "20s"')
OBSERVED: Final = "\n[events]\nobserve = true\n"
MODE: Final = "gpu-memory-watchdog/mode"
MIG_STATE: Final = "nvidia.com/mig.config.state"


class ApiNode:
    """A node `n1` in the API, whose processes are real, with a device file that the driver opens."""

    def __init__(self, world: Node, pods: Pods, new_account: NewAccount) -> None:
        self.world = world
        self.name = pods.node("n1", capacity={MEMORY: "80Gi"})
        self.devices = world.root / "dev"
        self._pods = pods
        self._new_account = new_account
        self.devices.mkdir()
        (self.devices / "nvidia0").touch()
        world.stub = replace(world.stub, device=self.devices / "nvidia0")
        world.write(pods=False)

    def over(self, behaviour: str = "polite") -> tuple[Object, Tenant]:
        """A pod that declares 1Gi and uses 9Gi: an object of the API, and a real process in its cgroup."""
        amount = {MEMORY: "1Gi"}
        made = self._pods.create("hog", node=self.name, container={"resources": {"limits": amount, "requests": amount}})
        (status,) = made["status"]["containerStatuses"]
        ours = self.world.pod("hog", ("main", "1Gi"), uid=made["metadata"]["uid"])
        ours.containers[0].id = status["containerID"].partition("://")[2]
        tenant = self.world.start(ours, used=9 * GIB, behaviour=behaviour)
        self.world.write(pods=False)
        return made, tenant

    def account(self, *steps: str, mode: str = "enforce", more: str = "", without: tuple[Piece, ...] = ()) -> Account:
        """Write a policy with these steps; an account with just its rights, but for pieces that were taken away."""
        policy = load_policy(write_policy(self.world.root, *steps, mode=mode, more=more))
        return self._new_account(policy, self.name, without=without)

    @contextmanager
    def running(self, kubeconfig: Path, *, prefix: tuple[str, ...] = ()) -> Iterator[Daemon]:
        """The daemon under the policy that was written; `prefix` comes before its command."""
        given = ("--policy", self.world.root / "policy.toml", "--journal", self.world.journal)
        options = (*given, "--kubeconfig", kubeconfig)
        with daemon(self.world.root, self.world.stub_file, *options, prefix=prefix) as made:
            yield made

    def run(
        self,
        *steps: str,
        mode: str = "enforce",
        more: str = "",
        without: tuple[Piece, ...] = (),
        prefix: tuple[str, ...] = (),
    ) -> AbstractContextManager[Daemon]:
        """The daemon with just the rights of its policy."""
        kubeconfig = self.account(*steps, mode=mode, more=more, without=without).kubeconfig
        return self.running(kubeconfig, prefix=prefix)


@pytest.fixture
def here(tmp_path: Path, pods: Pods, new_account: NewAccount) -> Iterator[ApiNode]:
    """A node."""
    with node(tmp_path) as world:
        yield ApiNode(world, pods, new_account)


def reasons(plane: ControlPlane, namespace: str) -> list[str]:
    """The reasons of the Events, in the order of time."""
    return [event["reason"] for event in sorted(events_of(plane, namespace), key=lambda each: str(each["eventTime"]))]


def test_a_kill_is_reported_by_events(control_plane: ControlPlane, namespace: str, here: ApiNode) -> None:
    """Promise 2: killed, released: each on the pod while it happens."""
    _, tenant = here.over()
    with here.run(WARN_AT_ONCE, KILL_LATER) as running:
        wait_until(lambda: reasons(control_plane, namespace)[-2:] == ["GPUMemoryKilled", "GPUMemoryReleased"])
        assert not tenant.is_alive
        running.wait(lambda d: (d.metric("events_total", result="written") or 0) >= 2)
        assert running.metric("events_total", result="refused") == 0


def test_a_daemon_that_is_stopped_in_a_grace_period_reports_it(
    control_plane: ControlPlane, namespace: str, here: ApiNode
) -> None:
    """The pod's owner reads that the kill did not happen, although the daemon is gone."""
    _, tenant = here.over("stubborn")
    with here.run(SLOW_KILL) as running:
        wait_until(lambda: reasons(control_plane, namespace) == ["GPUMemoryKilled"])
        assert running.stop()[0] == 0
    assert tenant.is_alive
    ended = [each for each in events_of(control_plane, namespace) if each["reason"] == "GPUMemoryReleased"]
    assert [each["type"] for each in ended] == ["Normal"]
    assert [each.result for each in actions(here.world.journal)] == ["interrupted"]


@pytest.mark.parametrize("wanted", [False, True])
def test_observe_mode_writes_only_where_it_is_wanted(
    control_plane: ControlPlane, namespace: str, here: ApiNode, wanted: bool
) -> None:
    """A policy that is tried out writes no Events to tenants, unless it is set to."""
    _, tenant = here.over()
    with here.run(KILL_AT_ONCE, mode="observe", more=OBSERVED if wanted else "") as running:
        running.wait(lambda d: (d.metric("would_act_total", action="kill") or 0) >= 1)
        if wanted:
            wait_until(lambda: reasons(control_plane, namespace) != [])
        time.sleep(0.5)
        assert tenant.is_alive
    assert reasons(control_plane, namespace) == ["GPUMemoryOverLimit"] * wanted


def test_the_annotation_ends_a_grace_period_within_two_seconds(control_plane: ControlPlane, here: ApiNode) -> None:
    """Point 33: from the API server's answer to the end of the action; once it is removed all starts over."""
    _, tenant = here.over("stubborn")
    with here.run(SLOW_KILL) as running:
        running.wait(lambda _: tenant.terms)
        control_plane.kubectl("annotate", "node", "n1", f"{MODE}=observe")
        began_s = time.monotonic()
        running.wait(lambda d: d.metric("actions_total", action="kill", result="interrupted") == 1)
        busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # processes that want to run, per processor
        assert time.monotonic() - began_s < 2 * busy
        assert "not enforcing: node_annotation" in running.get("/readyz")[1]
        running.wait_passes(2)
        assert (tenant.is_alive, len(tenant.terms)) == (True, 1)
        control_plane.kubectl("annotate", "node", "n1", f"{MODE}-")
        running.wait(lambda _: len(tenant.terms) == 2)
        assert [each.result for each in actions(here.world.journal)] == ["interrupted", None]


@pytest.mark.parametrize("keep", ["no", "open"])
def test_a_label_releases_the_driver(control_plane: ControlPlane, here: ApiNode, keep: Literal["no", "open"]) -> None:
    """Point 34, by the API, within 5 s: a new process in its place opens nothing before it has read its node.

    Neither does a reload to observe in the middle of it, and an observing daemon follows its node all the same.
    """
    with here.run(SLOW_KILL) as running:
        running.wait(lambda d: d.get("/readyz")[0] == 200)
        if keep != "no":
            here.world.stub = replace(here.world.stub, keep=keep)
            here.world.write(pods=False)
            running.wait_passes(2)
        control_plane.kubectl("label", "node", "n1", f"{MIG_STATE}=pending")
        assert seconds_until(running.pid, here.devices, is_held=False) < 5
        with watched(running.pid, here.devices) as seen:
            running.wait(lambda d: says(d, "/readyz", f"{MIG_STATE} is pending"))
            write_policy(here.world.root, SLOW_KILL, mode="observe")
            running.wait(lambda d: d.status()["mode"] == "observe")
            running.wait_passes(3)
        assert (seen, started(running)) == ([], 1 if keep == "no" else 2)
        control_plane.kubectl("label", "--overwrite", "node", "n1", f"{MIG_STATE}=success")
        assert seconds_until(running.pid, here.devices, is_held=True) < 5
        running.wait(lambda d: d.get("/readyz")[0] == 200)


def test_without_the_right_to_see_its_node_a_daemon_observes(here: ApiNode) -> None:
    """Nothing is suspended, all is measured, and the log names the right that is missing."""
    here.over()
    with here.run(SLOW_KILL, mode="observe", without=(Piece.NODE,)) as running:
        running.wait(lambda d: d.metric("would_act_total", action="kill") == 1)
        assert running.get("/readyz")[0] == 200
        running.wait(lambda d: any("gpu-watchdog rights" in line["message"] for line in d.events("gap_began")))
        assert running.status()["suspended"] == []


def gaps(running: Daemon, name: str) -> list[str]:
    """The lines of the log when the pods became unknown (`gap_began`), or known again (`gap_ended`)."""
    return [line["message"] for line in running.events(name) if line.get("reason") == "pods"]


def test_an_outage_is_two_lines(here: ApiNode, tcp_proxy: TcpProxy) -> None:
    """However many attempts there are: one when the API server has been away for a while, one when it is back."""
    with here.running(here.account(WARN_AT_ONCE, mode="observe").through(tcp_proxy)) as running:
        running.wait(lambda d: d.metric("pods_last_sync_timestamp_seconds"))
        assert gaps(running, "gap_began") == []
        tcp_proxy.refuse()
        tcp_proxy.cut()
        running.wait(lambda d: gaps(d, "gap_began"))
        running.wait_passes(5)
        tcp_proxy.heal()
        running.wait(lambda d: gaps(d, "gap_ended"))
        assert len(gaps(running, "gap_began")) == len(gaps(running, "gap_ended")) == 1


WAYS: Final[dict[str, tuple[Callable[[ControlPlane], Path], str]]] = {
    "no rights": (lambda plane: plane.kubeconfig(token=plane.token("nobody")), "403: pods is forbidden"),
    "no kubeconfig": (lambda plane: plane.folder / "nowhere", "No such file"),
}


@pytest.mark.parametrize("way", WAYS)
def test_without_pods_it_runs_and_reports_why(control_plane: ControlPlane, here: ApiNode, way: str) -> None:
    """A wrong account or none stops nothing: the daemon observes without pods, and one line says what is missing."""
    make, fragment = WAYS[way]
    write_policy(here.world.root, WARN_AT_ONCE, mode="observe")
    with here.running(make(control_plane)) as running:
        running.wait(lambda d: gaps(d, "gap_began"))
        (line,) = gaps(running, "gap_began")
        assert fragment in line


def test_a_wrong_clock_is_two_lines(here: ApiNode, api_proxy: ApiProxy) -> None:
    """All works, and times are wrong: reported when an answer shows it, and when another one shows it is over."""

    def lines(running: Daemon) -> list[str]:
        found = (*running.events("warning"), *running.events("info"))
        return [line["message"] for line in found if "clock" in line["message"]]

    api_proxy.shift_clock(3600)
    with here.running(here.account(WARN_AT_ONCE, mode="observe").through(api_proxy)) as running:
        running.wait(lines)
        running.wait_passes(3)
        assert len(lines(running)) == 1
        api_proxy.shift_clock(0)
        api_proxy.finish_streams()
        running.wait(lambda d: len(lines(d)) > 1)
        assert len(lines(running)) == 2
