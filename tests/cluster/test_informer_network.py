"""A feed over a network that fails in every way: what it asks, what it keeps, what it says, and that it heals."""

import time

import pytest

from tests.cluster.api_proxy import ApiProxy
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import lists, watches
from tests.cluster.informer_rig import MOST_IN_12_S, QUICK, following, has_threads
from tests.cluster.network import LOOPBACK
from tests.cluster.pods import Pods
from tests.cluster.tcp_proxy import TcpProxy
from tests.kube.watch_lines import bookmark
from tests.node.support import wait_until
from watchdog import clock
from watchdog.kube.reflector import PATIENCE_S

pytestmark = pytest.mark.slow


def test_an_outage(control_plane: ControlPlane, pods: Pods, tcp_proxy: TcpProxy) -> None:
    """Nobody listens for a while: few attempts, one problem from begin to end, and one watch when it is over."""
    node = pods.node()
    pods.create("old", node=node)
    with following(control_plane, node, by=tcp_proxy) as followed:
        # A watch that is cut before it was stable counts as failing from its begin on, which this is no later than.
        started = time.monotonic()
        followed.begin(["old"])
        followed.bell.silence()
        before = followed.api.requests["watch"]
        began = time.monotonic()
        tcp_proxy.refuse()
        tcp_proxy.cut()
        wait_until(followed.bell.silence)
        assert time.monotonic() - started >= PATIENCE_S
        assert "nothing listens there" in str(followed.feed.view.problem)
        time.sleep(max(0.0, 12 - (time.monotonic() - began)))
        assert not followed.bell.silence()
        tries = followed.api.requests["watch"] - before
        assert 3 <= tries <= MOST_IN_12_S * (time.monotonic() - began) / 12
        followed.forget()
        tcp_proxy.heal()
        wait_until(lambda: followed.feed.view.problem is None)
        wait_until(followed.bell.silence)
        assert followed.names == {"old"}
        assert followed.verbs() == ["watch"]


def test_a_server_that_accepts_and_stays_silent(control_plane: ControlPlane, pods: Pods, tcp_proxy: TcpProxy) -> None:
    """A connection that never gets a byte is given up within seconds, and said to be that."""
    node = pods.node()
    pods.create("old", node=node)
    tcp_proxy.accept_silently()
    with following(control_plane, node, by=tcp_proxy) as followed:
        followed.feed.start()
        wait_until(lambda: followed.feed.view.problem is not None)
        assert "does not respond" in str(followed.feed.view.problem)
        assert followed.read().synced is None
        tcp_proxy.heal()
        tcp_proxy.cut()
        followed.wait_for(["old"])
        assert followed.verbs() == ["list", "watch"]


@pytest.mark.parametrize("bookmarked", [False, True])
def test_half_open(control_plane: ControlPlane, pods: Pods, api_proxy: ApiProxy, bookmarked: bool) -> None:
    """A watch through which nothing comes any more, and nobody is told: silence ends it, and it is resumed."""
    node = pods.node()
    pods.create("old", node=node)
    with (
        TcpProxy(LOOPBACK, api_proxy.port) as tcp_proxy,
        following(control_plane, node, by=api_proxy, at=tcp_proxy, pace=QUICK) as followed,
    ):
        followed.begin(["old"])
        if bookmarked:
            time.sleep(1)
            version = control_plane.api.ask("GET", "/api/v1/pods")["metadata"]["resourceVersion"]
            api_proxy.insert(bookmark(version).strip(), when=watches("pods"))
            time.sleep(0.3)
        began, synced = time.monotonic(), followed.read().synced
        tcp_proxy.stall()
        pods.create("meanwhile", node=node, running=False)
        time.sleep(1)
        assert followed.names == {"old"}
        tcp_proxy.heal()
        followed.wait_for(["old", "meanwhile"])
        assert time.monotonic() - began > 2
        assert synced is not None
        assert followed.verbs()[:3] == ["list", "watch", "watch"]
        assert followed.feed.view.problem is None


def test_silence_for_longer_ages_the_pods(control_plane: ControlPlane, pods: Pods, tcp_proxy: TcpProxy) -> None:
    """While nothing comes through, the time at which the pods were known to be true stands still; they stay known."""
    node = pods.node()
    pods.create("old", node=node)
    with following(control_plane, node, by=tcp_proxy, pace=QUICK) as followed:
        followed.begin(["old"])
        synced = followed.read().synced
        tcp_proxy.stall()
        wait_until(lambda: followed.feed.view.problem is not None)
        found = followed.read()
        assert (found.synced, [pod.name for pod in found.pods]) == (synced, ["old"])
        tcp_proxy.heal()
        wait_until(lambda: followed.read().synced != synced)


def test_a_slow_network(control_plane: ControlPlane, pods: Pods, tcp_proxy: TcpProxy) -> None:
    """What comes drop by drop comes all the same: no request more, no problem."""
    node = pods.node()
    for number in range(5):
        pods.create(f"old-{number}", node=node, metadata={"annotations": {"note": "x" * 4000}})
    with following(control_plane, node, by=tcp_proxy) as followed:
        tcp_proxy.slow(8000)
        followed.begin([f"old-{number}" for number in range(5)])
        pods.create("new", node=node, running=False, metadata={"annotations": {"note": "x" * 20000}})
        wait_until(lambda: "new" in followed.names)
        assert followed.verbs() == ["list", "watch"]
        assert followed.feed.view.problem is None


def test_a_slow_server(control_plane: ControlPlane, pods: Pods, api_proxy: ApiProxy) -> None:
    """A list that takes long to begin is waited for; the pods are as old as the moment at which it was asked for."""
    node = pods.node()
    pods.create("old", node=node)
    api_proxy.delay(6, when=lists("pods"))
    with following(control_plane, node, by=api_proxy) as followed:
        began_s = clock.now().boottime_s
        followed.feed.start()
        followed.wait_for(["old"])
        synced = followed.read().synced
        assert synced is not None
        assert synced.boottime_s - began_s < 5
        assert followed.verbs()[0] == "list"


def test_watches_that_end_at_once(control_plane: ControlPlane, pods: Pods, api_proxy: ApiProxy) -> None:
    """A server that accepts a watch and ends it, again and again: pauses grow, and nothing is vouched for by it."""
    node = pods.node()
    pods.create("old", node=node)
    api_proxy.answer(200, body=b"", when=watches("pods"))
    with following(control_plane, node, by=api_proxy) as followed:
        followed.feed.start()
        followed.wait_for(["old"])
        synced = followed.read().synced
        time.sleep(12)
        assert 3 <= len(api_proxy.seen) <= MOST_IN_12_S + 1
        assert "ended early" in str(followed.feed.view.problem)
        assert followed.read().synced == synced
        assert followed.names == {"old"}


@pytest.mark.parametrize("phase", ["connecting", "listing", "pausing"])
def test_a_stop_in_every_phase(
    control_plane: ControlPlane, pods: Pods, tcp_proxy: TcpProxy, api_proxy: ApiProxy, phase: str
) -> None:
    """A stop takes no time whatever is in progress, and what still comes is not taken."""
    node = pods.node()
    pods.create("old", node=node)
    if phase == "connecting":
        tcp_proxy.accept_silently()
    elif phase == "listing":
        api_proxy.delay(3, when=lists("pods"))
    else:
        api_proxy.answer(429, headers={"Retry-After": "60"}, when=lists("pods"))
    by = tcp_proxy if phase == "connecting" else api_proxy
    with following(control_plane, node, by=by) as followed:
        followed.feed.start()
        time.sleep(1)
        began = time.monotonic()
        followed.feed.stop()
        assert time.monotonic() - began < 3
        wait_until(lambda: not has_threads())
        assert (followed.read().pods, followed.read().synced) == ((), None)
        assert dict(followed.api.requests) == {"list": 1}
