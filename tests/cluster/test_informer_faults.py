"""An informer over a network, a proxy or a server that fails: what it requests, what it keeps, and that it heals."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.kube.watch_lines import error
from tests.node.support import wait_until
from tests.rig.cluster.api_proxy import ApiProxy
from tests.rig.cluster.faults import lists, watches
from tests.rig.cluster.informer_rig import MOST_IN_12_S, QUICK, Follow
from tests.rig.cluster.network import LOOPBACK
from tests.rig.cluster.pods import Pods
from tests.rig.cluster.tcp_proxy import TcpProxy
from watchdog import clock
from watchdog.kube.reflector import PATIENCE_S

pytestmark = pytest.mark.slow

WATCHES, LISTS = watches("pods"), lists("pods")
# What breaks a watch -> what that costs. A web page is a line that can't be read.
ENDS: Final[dict[str, tuple[Callable[[ApiProxy, TcpProxy], object], list[str]]]] = {
    "RST": (lambda _, tcp: tcp.cut(), ["watch"]),
    "FIN": (lambda _, tcp: tcp.cut(reset=False), ["watch"]),
    "cut within a line": (lambda api, _: api.cut(when=WATCHES), ["watch"]),
    "a web page": (lambda api, _: api.edit(lambda _: b"<html>oops</html>\n", when=WATCHES), ["watch"]),
    "410": (lambda api, _: api.insert(error(410, "Expired").strip(), when=WATCHES), ["list", "watch"]),
}


@pytest.fixture
def before_proxy(api_proxy: ApiProxy) -> Iterator[TcpProxy]:
    """Faults of the network before the proxy of requests."""
    with TcpProxy(LOOPBACK, api_proxy.port) as proxy:
        yield proxy


@pytest.mark.parametrize("end", ENDS)
def test_a_watch_that_ends_badly(follow: Follow, api_proxy: ApiProxy, before_proxy: TcpProxy, end: str) -> None:
    """It costs one watch, only after 410 a list too; no change is lost, no pod is replaced and no gap is reported."""
    spoil, expected = ENDS[end]
    with follow("old", by=api_proxy, at=before_proxy) as followed:
        followed.begin("old")
        old = followed.known()
        followed.forget()
        spoil(api_proxy, before_proxy)
        followed.create()
        followed.wait_for("old", "new")
        followed.wait_until_watching()
        assert followed.verbs() == expected
        assert followed.known() is old
        assert (followed.problem, followed.read().gaps) == ("", ())


def test_an_outage(follow: Follow, tcp_proxy: TcpProxy) -> None:
    """Nothing listens for a while: few attempts, one problem from start to end, and one watch when it is over."""
    with follow("old", by=tcp_proxy) as followed:
        # A watch that is cut before it was stable counts as failing from its begin on, which this is no later than.
        started = time.monotonic()
        followed.begin("old")
        followed.bell.silence()
        before = followed.api.requests["watch"]
        began = time.monotonic()
        tcp_proxy.refuse()
        tcp_proxy.cut()
        wait_until(followed.bell.silence)
        assert time.monotonic() - started >= PATIENCE_S
        assert "nothing listens there" in followed.problem
        time.sleep(max(0.0, 12 - (time.monotonic() - began)))
        assert not followed.bell.silence()
        tries = followed.api.requests["watch"] - before
        assert 3 <= tries <= MOST_IN_12_S * (time.monotonic() - began) / 12
        followed.forget()
        tcp_proxy.heal()
        wait_until(lambda: followed.problem == "")
        wait_until(followed.bell.silence)
        assert followed.names == {"old"}
        assert followed.verbs() == ["watch"]


def test_a_server_that_accepts_and_stays_silent(follow: Follow, tcp_proxy: TcpProxy) -> None:
    """A connection that never gets a byte is given up within seconds, with that as its problem."""
    tcp_proxy.accept_silently()
    with follow("old", by=tcp_proxy) as followed:
        followed.informer.start()
        wait_until(lambda: "does not respond" in followed.problem)
        assert followed.read().synced is None
        tcp_proxy.heal()
        tcp_proxy.cut()
        followed.wait_for("old")
        assert followed.verbs() == ["list", "watch"]


def test_half_open(follow: Follow, api_proxy: ApiProxy, before_proxy: TcpProxy) -> None:
    """Nothing passes any more, and neither side is notified: silence ends the watch, and pods stay known but age."""
    with follow("old", by=api_proxy, at=before_proxy, pace=QUICK) as followed:
        followed.begin("old")
        began, synced = time.monotonic(), followed.read().synced
        before_proxy.stall()
        followed.create()
        wait_until(lambda: followed.problem != "")
        assert time.monotonic() - began > 2
        assert (followed.read().synced, followed.names) == (synced, {"old"})
        before_proxy.heal()
        followed.wait_for("old", "new")
        assert followed.verbs()[:2] == ["list", "watch"]
        assert "list" not in followed.verbs()[1:]


def test_a_slow_server(follow: Follow, api_proxy: ApiProxy) -> None:
    """A list that takes long to begin is waited for; the pods are as old as the moment it was requested."""
    api_proxy.delay(6, when=LISTS)
    with follow("old", by=api_proxy) as followed:
        began_s = clock.now().boottime_s
        followed.informer.start()
        followed.wait_for("old")
        synced = followed.read().synced
        assert synced is not None
        assert synced.boottime_s - began_s < 5


def test_a_list_that_can_not_be_taken(follow: Follow, api_proxy: ApiProxy) -> None:
    """Half a list is none, and neither is a login page with code 200: each is requested again."""
    api_proxy.answer(200, body=b"<html>sign in</html>", when=LISTS, times=1)
    api_proxy.cut(when=LISTS)
    with follow("old", by=api_proxy) as followed:
        followed.begin("old")
        assert followed.api.requests["list"] == 3
        assert followed.verbs() == ["list", "list", "watch"]


def test_a_pod_that_can_not_be_read(pods: Pods, follow: Follow, api_proxy: ApiProxy) -> None:
    """It is named in a gap and affects no other; its next good event heals it."""

    def spoil(text: bytes) -> bytes:
        found = json.loads(text)
        for each in found["items"]:
            if each["metadata"]["name"] == "odd":
                each["spec"]["containers"] = 7
        return json.dumps(found).encode()

    with follow("old", "odd", by=api_proxy) as followed:
        api_proxy.edit(spoil, when=LISTS)
        followed.begin("old")
        assert [gap.what for gap in followed.read().gaps] == [f"pod {pods.namespace}/odd"]
        pods.set_status(followed.objects["odd"], {"message": "one"})
        followed.wait_for("old", "odd")
        assert followed.read().gaps == ()
        assert followed.verbs() == ["list", "watch"]
