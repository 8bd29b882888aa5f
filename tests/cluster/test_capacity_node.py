"""[capacity] on a real node: the scheduler places by it, the kubelet follows, and it comes back whatever happens."""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import pytest

from tests.cluster.node import NODE, Cluster
from tests.cluster.node_daemon import NodeDaemon, node_daemon
from tests.cluster.real_pods import MEMORY, container, is_running, pod, wait_until
from tests.rig.command import COMMAND
from tests.stub import GIB, Stub, StubGpu, StubReturn
from watchdog.core.units import parse_quantity

POLICY: Final = f"""
mode = "observe"
[[declaration]]
resource = "{MEMORY}"
unit = "1"
[[rule]]
name = "all"
match = {{}}
[capacity]
resource = "{MEMORY}"
reserve = "512Mi"
"""
CARDS: Final = tuple(StubGpu(uuid=f"GPU-{number}", total=40 * GIB, reserved=GIB // 2) for number in range(2))
EACH: Final = 39 * GIB


class Cards:
    """What the stub of NVML shows."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "nvml.txt"
        self.lose()

    def lose(self, *uuids: str) -> None:
        """From now on these have fallen off the bus, and no others."""
        Stub(gpus=CARDS, returns=tuple(StubReturn(call="*", code=15, gpu=uuid) for uuid in uuids)).write(self.file)


class Site:
    """The node, the daemon on it and its cards."""

    def __init__(self, cluster: Cluster, daemon: NodeDaemon, cards: Cards) -> None:
        self.cluster = cluster
        self.daemon = daemon
        self.cards = cards

    def amount(self, of: str) -> int:
        """What the node has by its `capacity` or `allocatable`; 0 where there is no node or no entry."""
        answer = self.cluster.control_plane.api.call("GET", f"/api/v1/nodes/{NODE}")
        status = answer.object["status"] if answer.status == 200 else {}
        return parse_quantity(status.get(of, {}).get(MEMORY, "0"))

    def wait(self, of: str, amount: int, limit_s: float = 180.0) -> float:
        """Wait until the node has this amount; the seconds that it took.

        After a change of allocatable the kubelet gets a second to hear of its own node: a pod that comes in between
        is rejected by what it knew before.
        """
        began = time.monotonic()
        wait_until(lambda: self.amount(of) == amount, lambda: f"{of} is {amount}, not {self.amount(of)}", limit_s)
        took_s = time.monotonic() - began
        if of == "allocatable":
            time.sleep(1)
        return took_s


@contextlib.contextmanager
def open_site(cluster: Cluster, folder: Path) -> Iterator[Site]:
    """The daemon on the node, with exactly the rights of its policy."""
    policy = folder / "policy.toml"
    policy.write_text(POLICY, encoding="utf-8")
    cards = Cards(folder)
    try:
        with node_daemon(cluster, cards, policy) as daemon:
            yield Site(cluster, daemon, cards)
    finally:
        if MEMORY in cluster.node()["status"]["capacity"]:
            cluster.set_capacity(MEMORY, None)


@pytest.fixture
def site(cluster: Cluster, tmp_path: Path) -> Iterator[Site]:
    """A node that advertises what its two cards have."""
    with open_site(cluster, tmp_path) as made:
        made.wait("capacity", 2 * EACH)
        yield made


def test_the_scheduler_places_what_fits_and_no_more(site: Site, room: str) -> None:
    """A pod that asks for the resource runs; one that no longer fits stays Pending until there is room again."""
    followed_s = site.wait("allocatable", 2 * EACH)
    pods = site.cluster.pods
    pods.run(pod("fits", container("main", memory="50Gi"), grace_s=0), room)
    pods.create(pod("too-much", container("main", memory="40Gi"), grace_s=0), room)
    pending = pods.wait("too-much", lambda of: of["status"].get("conditions"), room)
    assert pending["status"]["phase"] == "Pending"
    assert f"Insufficient {MEMORY}" in pending["status"]["conditions"][0]["message"]
    pods.delete("fits", room)
    pods.wait("too-much", is_running, room)
    print(f"allocatable followed after {followed_s:.1f} s")


def test_a_lost_card_is_no_longer_scheduled_on(site: Site, room: str) -> None:
    """The amount falls, the kubelet follows; who runs goes on running, and nobody new comes beyond what is left."""
    site.wait("allocatable", 2 * EACH)
    pods = site.cluster.pods
    pods.run(pod("large", container("main", memory="60Gi"), grace_s=0), room)
    site.cards.lose("GPU-1")
    fell_s = site.wait("capacity", EACH)
    followed_s = site.wait("allocatable", EACH)
    pods.create(pod("small", container("main", memory="1Gi"), grace_s=0), room)
    pods.wait("small", lambda of: of["status"].get("conditions"), room)
    pods.wait("large", is_running, room)
    pods.delete("small", room)
    site.cards.lose()
    rose_s = site.wait("capacity", 2 * EACH, 10)
    site.wait("allocatable", 2 * EACH)
    pods.run(pod("small", container("main", memory="1Gi"), grace_s=0), room)
    print(f"fell after {fell_s:.1f} s, allocatable {followed_s:.1f} s later; rose after {rose_s:.1f} s")


def test_a_kubelet_that_starts_while_there_is_less_rejects_who_does_not_fit(site: Site, room: str) -> None:
    """Why a fall is held back: pods that run are admitted again by a kubelet that starts, and what is left decides."""
    site.wait("allocatable", 2 * EACH)
    pods = site.cluster.pods
    pods.run(pod("large", container("main", memory="60Gi"), grace_s=0), room)
    site.cards.lose("GPU-1")
    site.wait("allocatable", EACH)
    site.cluster.restart_kubelet(hard=True)
    pods.wait("large", lambda of: of["status"]["phase"] in ("Failed", "Succeeded"), room)
    # Its status says OutOf and the resource at first, and then how its containers ended.
    log = (site.cluster.folder / "kubelet.log").read_text(encoding="utf-8")
    assert f'reason="OutOf{MEMORY}"' in log


@pytest.mark.parametrize("forgets", [False, True], ids=["restart", "reinstalled"])
def test_a_kubelet_that_starts_anew_finds_it_there_and_keeps_the_pods(site: Site, room: str, *, forgets: bool) -> None:
    """A kubelet that starts loses neither the amount nor the pod that has some of it, whatever it remembers."""
    site.wait("allocatable", 2 * EACH)
    pods = site.cluster.pods
    (before,) = pods.containers(pods.run(pod("stays", container("main", memory="50Gi"), grace_s=0), room))
    if forgets:
        site.cluster.kubelet.stop(hard=True)
        folder = "/var/lib/kubelet/device-plugins"
        command = [*site.cluster.namespaces.machine, "find", folder, "-mindepth", "1", "-delete"]
        subprocess.run(command, check=True, timeout=120)
        site.cluster.kubelet.start()
    site.cluster.restart_kubelet(hard=True)
    back_s = site.wait("capacity", 2 * EACH, 10)
    site.wait("allocatable", 2 * EACH)
    assert pods.containers(pods.wait("stays", is_running, room)) == [before]
    print(f"there {back_s:.1f} s after the node was ready")


def test_a_node_object_made_anew_has_it_within_ten_seconds(site: Site, room: str) -> None:
    """The node is deleted and registers again: the amount is back, and the daemon goes on with its token."""
    uid = site.cluster.node()["metadata"]["uid"]
    site.cluster.control_plane.api.ask("DELETE", f"/api/v1/nodes/{NODE}")
    site.cluster.kubelet.stop()
    site.cluster.kubelet.start()
    began = 0.0

    def is_back() -> bool:
        nonlocal began
        answer = site.cluster.control_plane.api.call("GET", f"/api/v1/nodes/{NODE}")
        if not began and answer.status == 200 and answer.object["metadata"]["uid"] != uid:
            began = time.monotonic()
        return site.amount("capacity") == 2 * EACH

    wait_until(is_back, "the amount is back", pause_s=0.05)
    back_s = time.monotonic() - began
    assert back_s < 10
    site.cluster.kubelet.wait_for(site.cluster.is_ready)
    site.wait("allocatable", 2 * EACH)
    site.cluster.pods.run(pod("new", container("main", memory="1Gi"), grace_s=0), room)
    print(f"back {back_s:.2f} s after the object was there")


def test_withdraw_takes_it_out_of_allocatable_too(cluster: Cluster, room: str, tmp_path: Path) -> None:
    """After the daemon has ended: the entry goes, and goes from allocatable; pods that have it go on, come what may."""
    with open_site(cluster, tmp_path) as site:
        site.wait("allocatable", 2 * EACH)
        cluster.pods.run(pod("goes-on", container("main", memory="1Gi"), grace_s=0), room)
        site.daemon.process.terminate()
        assert site.daemon.process.wait(60) == 0
        assert site.amount("capacity") == 2 * EACH
        started = [str(each) for each in cast("list[str | Path]", site.daemon.process.args)]
        given = ("--kubeconfig", started[started.index("--kubeconfig") + 1], "--node", NODE)
        command = [str(COMMAND), "withdraw", "--policy", str(tmp_path / "policy.toml"), *given]
        process = cluster.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, _ = process.communicate(timeout=180)
        assert process.returncode == 0
        assert b"(it was 78Gi)" in out
        gone_s = site.wait("allocatable", 0)
        assert site.amount("capacity") == 0
        cluster.restart_kubelet(hard=True)  # what a node does not know at all is no reason to reject a pod
        time.sleep(3)
        goes_on = cluster.pods.get("goes-on", room)
        assert goes_on is not None
        assert is_running(goes_on)
    print(f"out of allocatable after {gone_s:.1f} s")
