"""Pods deleted by force on a real node: what the kubelet does with their containers, and what the daemon knows."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.test_force_deleted import YEAR_S, account_of, gap_of, is_left
from tests.rig.cluster.api import Object
from tests.rig.cluster.card import Card
from tests.rig.cluster.node import Cluster
from tests.rig.cluster.node_daemon import NodeDaemon, node_daemon
from tests.rig.cluster.real_pods import MEMORY, container, pod, wait_until
from tests.stub import GIB
from tests.world.policies import kill, write_policy

pytestmark = [pytest.mark.node, pytest.mark.slow]


class Site:
    """A real node with the daemon, and a pod whose container takes no notice of SIGTERM."""

    def __init__(self, cluster: Cluster, room: str, card: Card, daemon: NodeDaemon) -> None:
        self.daemon = daemon
        self._cluster = cluster
        self._room = room
        self._card = card
        made = pod("hog", container("main", "term=ignore", f"gpu={GIB // 2}", memory="1Gi"), grace_s=YEAR_S)
        self.pod: Object = cluster.pods.run(made, room)
        (running,) = cluster.pods.containers(self.pod)
        self.pid = running.pids[0]
        daemon.wait(lambda d: account_of(d, self.pod).get("used") == GIB // 2)

    @property
    def lives(self) -> bool:
        """Whether the container's first process runs."""
        return self.pid in self._cluster.pods.processes(self.pod)

    def exceed(self) -> None:
        """Let it use nine times what it declares."""
        self._card.use(self.pid, 9 * GIB)

    def delete(self) -> None:
        """Delete it with a grace period of a year, then by force; wait until the API server has it no more."""
        path = f"/api/v1/namespaces/{self._room}/pods/hog"
        self._cluster.control_plane.api.ask("DELETE", path, {"gracePeriodSeconds": YEAR_S})
        wait_until(
            lambda: "SIGTERM" in "".join(self._cluster.pods.log("hog", self._room)), "the kubelet has sent SIGTERM"
        )
        self._cluster.pods.delete("hog", self._room)

    def end(self) -> None:
        """End the container, which nothing else does for a year."""
        if self.lives:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


@pytest.fixture
def site(cluster: Cluster, room: str, tmp_path: Path) -> Iterator[Site]:
    """The node."""
    policy = write_policy(tmp_path, kill(grace="6s"))
    cluster.set_capacity(MEMORY, "1Ti")
    try:
        with Card(tmp_path, cluster.cgroups) as card, node_daemon(cluster, card.file, policy) as daemon:
            made = Site(cluster, room, card, daemon)
            try:
                yield made
            finally:
                made.end()
    finally:
        cluster.set_capacity(MEMORY, None)


def test_a_container_outlives_its_pod_and_stays_known(site: Site) -> None:
    """Point 28: the kubelet gives it the year of the first deletion; it is known as left, and named in a gap."""
    site.delete()
    site.daemon.wait(lambda d: is_left(d, site.pod) and gap_of(d))
    site.exceed()
    site.daemon.wait(lambda d: account_of(d, site.pod)["verdict"] == "over")
    site.daemon.wait_passes(3)
    assert site.lives
    assert "terminating" in str(account_of(site.daemon, site.pod)["protected"])
    site.end()
    site.daemon.wait(lambda d: not gap_of(d) and not account_of(d, site.pod))


def test_a_kill_in_its_grace_period_goes_on(site: Site) -> None:
    """Point 28: the pod is deleted by force after SIGTERM, and SIGKILL comes all the same."""
    site.exceed()
    site.daemon.wait(lambda d: account_of(d, site.pod).get("under_way"))
    site.delete()
    site.daemon.wait(lambda d: d.metric("actions_total", action="kill", result="done") == 1)
    assert not site.lives
    assert not site.daemon.metric("actions_total", action="kill", result="interrupted")
