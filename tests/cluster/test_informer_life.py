"""A feed's requests, counted at a real API server: one list, one watch, and what each end of a watch costs."""

import itertools
import os
import select
import socket
import time

import psutil
import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.informer_rig import QUICK, following, has_threads
from tests.cluster.pods import Pods
from tests.cluster.tcp_proxy import TcpProxy
from tests.node.support import wait_until
from watchdog import clock
from watchdog.core.model import GapReason

pytestmark = pytest.mark.slow


def test_one_list_and_one_watch(control_plane: ControlPlane, pods: Pods) -> None:
    """A start is one list from the server's memory and one watch of this node's pods; nothing follows it."""
    node, other = pods.node(), pods.node()
    pods.create("mine", node=node)
    pods.create("theirs", node=other)
    with following(control_plane, node) as followed:
        before = clock.now()
        followed.begin(["mine"])
        followed.stays(lambda: followed.verbs() == ["list", "watch"], 3)
        lists, watch = followed.asked()
        assert f"fieldSelector=spec.nodeName%3D{node}&resourceVersion=0" in lists.uri
        assert "allowWatchBookmarks=true&timeoutSeconds=2" in watch.uri
        found = followed.read()
        assert found.gaps == ()
        assert found.synced is not None
        assert before.boottime_s <= found.synced.boottime_s <= clock.now().boottime_s
        assert dict(followed.api.requests) == {"list": 1, "watch": 1}


def test_a_watch_is_kept_alive(control_plane: ControlPlane, pods: Pods) -> None:
    """The kernel probes a silent connection: no firewall in between forgets it, and a peer that died is noticed."""
    with following(control_plane, pods.node()) as followed:
        followed.begin()
        found = sockets_to(control_plane.port)
        assert found
        for each in found:
            assert each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert each.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60
            each.close()


def sockets_to(port: int) -> list[socket.socket]:
    """Copies of this process's sockets that are connected to a port."""
    connections = psutil.Process().net_connections("tcp4")
    return [socket.socket(fileno=os.dup(one.fd)) for one in connections if one.raddr and one.raddr.port == port]


def test_changes_come_and_ring(control_plane: ControlPlane, pods: Pods) -> None:
    """A pod that comes, changes and goes is known at once, rings the bell and costs no request; others stay."""
    node = pods.node()
    pods.create("old", node=node)
    with following(control_plane, node) as followed:
        followed.feed.start()
        followed.wait_for(["old"])
        old = followed.read().pods[0]
        followed.bell.silence()
        new = pods.create("new", node=node, running=False)
        followed.wait_for(["old", "new"])
        wait_until(followed.bell.silence)
        pods.run(new)
        wait_until(lambda: any(one.containers[0].ids for one in followed.read().pods if one.name == "new"))
        pods.delete(new)
        followed.wait_for(["old"])
        assert followed.read().pods[0] is old
        synced = followed.read().synced
        assert synced is not None
        assert clock.now().boottime_s - synced.boottime_s < 30
        assert not followed.feed.has_changed()
        assert followed.verbs() == ["list", "watch"]


def test_the_bell_wakes_who_waits(control_plane: ControlPlane, pods: Pods) -> None:
    """A change is heard by whoever waits for the bell's descriptor, and is then there to read."""
    node = pods.node()
    with following(control_plane, node) as followed:
        followed.begin()
        followed.read()
        followed.bell.silence()
        pods.create("new", node=node, running=False)
        assert select.select([followed.bell.fileno()], [], [], 5)[0]
        assert followed.feed.has_changed()
        assert followed.names == {"new"}


@pytest.mark.parametrize("reset", [True, False], ids=["RST", "FIN"])
def test_a_cut_is_resumed(control_plane: ControlPlane, pods: Pods, tcp_proxy: TcpProxy, reset: bool) -> None:
    """A connection that breaks costs one watch and no list, is not worth a word, and loses nothing of what happened."""
    node = pods.node()
    pods.create("old", node=node)
    with following(control_plane, node, by=tcp_proxy) as followed:
        followed.begin(["old"])
        old = followed.read().pods[0]
        tcp_proxy.cut(reset=reset)
        pods.create("meanwhile", node=node, running=False)
        followed.wait_for(["old", "meanwhile"])
        assert followed.verbs() == ["list", "watch", "watch"]
        assert followed.feed.view.problem is None
        assert followed.read().gaps == ()
        assert next(pod for pod in followed.read().pods if pod.name == "old") is old


def test_renewals_of_a_watch(control_plane: ControlPlane, pods: Pods) -> None:
    """A watch that the server ends in its time is renewed at once, without a list; its end vouches for the pods."""
    node = pods.node()
    with following(control_plane, node, pace=QUICK) as followed:
        followed.feed.start()
        wait_until(lambda: followed.verbs().count("watch") == 4)
        assert followed.verbs().count("list") == 1
        assert followed.feed.view.problem is None
        synced = followed.read().synced
        assert synced is not None
        assert clock.now().boottime_s - synced.boottime_s < 10
        starts = [one.received_s for one in followed.asked() if one.verb == "watch"]
        assert all(after - before > 2 for before, after in itertools.pairwise(starts))


@pytest.mark.parametrize("hard", [True, False], ids=["killed", "ended"])
def test_a_restart_of_the_server(control_plane: ControlPlane, pods: Pods, hard: bool) -> None:
    """The pods are kept, age, and a gap says why; when it is back at most one list is made, and the problem is over."""
    node = pods.node()
    pods.create("old", node=node)
    with following(control_plane, node) as followed:
        followed.begin(["old"])
        old = followed.read().pods[0]
        control_plane.stop_apiserver(hard=hard)
        wait_until(lambda: followed.feed.view.problem is not None)
        stale = followed.read()
        assert [pod.name for pod in stale.pods] == ["old"]
        gap = stale.gaps[0]
        assert (gap.reason, gap.what) == (GapReason.PODS, f"pods of node {node}")
        assert "kept, and ages" in str(gap.problem)
        assert "nothing listens there" in str(gap.problem)
        followed.forget()
        control_plane.start_apiserver()
        wait_until(lambda: followed.feed.view.problem is None)
        followed.wait_until_watching()
        pods.create("new", node=node, running=False)
        followed.wait_for(["old", "new"])
        assert next(pod for pod in followed.read().pods if pod.name == "old") is old
        assert followed.verbs().count("list") <= 1
        assert followed.verbs().count("watch") <= 3


def test_stop_and_start(control_plane: ControlPlane, pods: Pods) -> None:
    """A stop takes no time and ends the watch at the server; a start lists again, not from before what was seen."""
    node = pods.node()
    pod = pods.create("old", node=node)
    with following(control_plane, node) as followed:
        followed.begin(["old"])
        began = time.monotonic()
        followed.feed.stop()
        assert time.monotonic() - began < 3
        wait_until(lambda: not has_threads() and not any(one.open for one in followed.asked()))
        pods.delete(pod)
        pods.create("new", node=node, running=False)
        assert followed.names == {"old"}
        followed.feed.start()
        followed.wait_for(["new"])
        assert followed.verbs()[:3] == ["list", "watch", "list"]
        assert "resourceVersion=0" not in followed.asked()[2].uri


def test_one_list_in_the_calling_thread(control_plane: ControlPlane, pods: Pods) -> None:
    """For one look a list is enough; where it fails that is told at once."""
    node = pods.node()
    pods.create("mine", node=node)
    with following(control_plane, node) as followed:
        followed.feed.fetch()
        assert (followed.names, followed.read().gaps) == ({"mine"}, ())
        assert followed.verbs() == ["list"]
    with following(control_plane, node, token="wrong") as followed:
        followed.feed.fetch()
        found = followed.read()
        assert (found.pods, found.synced) == ((), None)
        assert "nothing is known: listing the pods of node" in str(found.gaps[0].problem)
        assert "401" in str(found.gaps[0].problem)
