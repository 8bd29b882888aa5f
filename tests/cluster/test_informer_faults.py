"""An informer over a network, a proxy or a server that fails: what it requests, what it keeps, and that it heals."""

import contextlib
import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.api_proxy import ApiProxy
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import lists, watches
from tests.cluster.informer_rig import MOST_IN_12_S, QUICK, Follow, has_threads
from tests.cluster.network import LOOPBACK
from tests.cluster.pods import Pods
from tests.cluster.tcp_proxy import TcpProxy
from tests.kube.watch_lines import error
from tests.node.support import wait_until
from watchdog import clock
from watchdog.clock import Bell
from watchdog.kube.client import Api
from watchdog.kube.informers import PodInformer
from watchdog.kube.reflector import PATIENCE_S
from watchdog.kube.store import LONGEST_LINE

pytestmark = pytest.mark.slow

WATCHES, LISTS = watches("pods"), lists("pods")
EXPIRED: Final = {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410, "message": "old"}


def _line(proxy: ApiProxy, text: bytes) -> None:
    proxy.edit(lambda _: text + b"\n", when=WATCHES)


def _endless(proxy: ApiProxy) -> None:
    """A line that grows and grows: the memory it takes is bounded."""
    (stream,) = [each for each in proxy.streams if WATCHES(each.seen)]
    part = b"x" * 2**20
    tracemalloc.start()
    try:
        with contextlib.suppress(OSError):  # the informer hangs up
            for _ in range(20 * LONGEST_LINE // len(part)):
                stream.write(part)
        assert tracemalloc.get_traced_memory()[1] < 3 * LONGEST_LINE
    finally:
        tracemalloc.stop()


def _refused_as_expired(proxy: ApiProxy) -> None:
    proxy.answer(410, body=EXPIRED, when=WATCHES, times=1)
    proxy.finish_streams()


RESUMED: Final = ["watch"]
LISTED: Final = ["list", "watch"]
ENDS: Final[dict[str, tuple[Callable[[ApiProxy], object], list[str]]]] = {
    "cut within a line": (lambda proxy: proxy.cut(when=WATCHES), RESUMED),
    "a web page": (lambda proxy: _line(proxy, b"<html>oops</html>"), RESUMED),
    "half an event": (lambda proxy: _line(proxy, b'{"type":"ADD'), RESUMED),
    "an event of no pod": (lambda proxy: _line(proxy, b'{"type":"ADDED","object":{"kind":"Pod"}}'), RESUMED),
    "a line without an end": (_endless, RESUMED),
    "410 as an event": (lambda proxy: proxy.insert(error(410, "Expired").strip(), when=WATCHES), LISTED),
    "410 as the answer": (_refused_as_expired, LISTED),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_watch_that_ends_badly(follow: Follow, api_proxy: ApiProxy, end: str) -> None:
    """It costs one watch, only after 410 a list too; no change is lost, no pod is replaced and no gap is reported."""
    spoil, expected = ENDS[end]
    with follow("old", by=api_proxy) as followed:
        followed.begin("old")
        old = followed.known()
        followed.forget()
        spoil(api_proxy)
        followed.create()
        followed.wait_for("old", "new")
        followed.wait_until_watching()
        assert followed.verbs() == expected
        assert followed.known() is old
        assert (followed.problem, followed.read().gaps) == ("", ())


@pytest.mark.parametrize("reset", [True, False], ids=["RST", "FIN"])
def test_a_cut_is_resumed(follow: Follow, tcp_proxy: TcpProxy, reset: bool) -> None:
    """A connection that breaks costs one watch and no list, is not reported, and loses nothing of what happened."""
    with follow("old", by=tcp_proxy) as followed:
        followed.begin("old")
        old = followed.known()
        tcp_proxy.cut(reset=reset)
        followed.create()
        followed.wait_for("old", "new")
        assert followed.verbs() == ["list", "watch", "watch"]
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


FAILS: Final[dict[str, Callable[[ApiProxy], object]]] = {
    "410": lambda proxy: proxy.answer(410, when=WATCHES),
    "500": lambda proxy: proxy.answer(500, when=WATCHES),
    "ended early": lambda proxy: proxy.answer(200, body=b"", when=WATCHES),
}


@pytest.mark.parametrize("problem", FAILS)
def test_a_server_that_keeps_failing(follow: Follow, api_proxy: ApiProxy, problem: str) -> None:
    """The pauses grow, the problem is named, the pods are kept and nothing vouches for them."""
    FAILS[problem](api_proxy)
    with follow("old", by=api_proxy) as followed:
        followed.informer.start()
        followed.wait_for("old")
        synced = followed.read().synced
        wait_until(lambda: problem in followed.problem)
        before, began = len(api_proxy.seen), time.monotonic()
        time.sleep(6)
        # After 410 each watch that fails has a list before it.
        assert len(api_proxy.seen) - before <= 2 * MOST_IN_12_S * (time.monotonic() - began) / 12
        assert followed.names == {"old"}
        assert problem == "410" or followed.read().synced == synced


def test_a_token_that_stays_wrong(control_plane: ControlPlane, follow: Follow) -> None:
    """After the one immediate try with what was read again, a refused token is used at the pace of any failure."""
    with follow(config=control_plane.kubeconfig(token="wrong")) as followed:
        followed.informer.start()
        time.sleep(6)
        assert "401" in followed.problem
        assert 3 <= followed.api.requests["list"] <= MOST_IN_12_S + 1


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


def test_half_open(follow: Follow, api_proxy: ApiProxy) -> None:
    """Nothing passes any more, and neither side is notified: silence ends the watch, and pods stay known but age."""
    with (
        TcpProxy(LOOPBACK, api_proxy.port) as tcp_proxy,
        follow("old", by=api_proxy, at=tcp_proxy, pace=QUICK) as followed,
    ):
        followed.begin("old")
        began, synced = time.monotonic(), followed.read().synced
        tcp_proxy.stall()
        followed.create()
        wait_until(lambda: followed.problem != "")
        assert time.monotonic() - began > 2
        assert (followed.read().synced, followed.names) == (synced, {"old"})
        tcp_proxy.heal()
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
    """In a list or in an event, it is named in a gap and affects no other; its next good event heals it."""

    def spoil(text: bytes) -> bytes:
        found = json.loads(text)
        for each in found.get("items", [found.get("object")]):
            if each["metadata"]["name"] == "odd":
                each["spec"]["containers"] = 7
        return json.dumps(found).encode() + b"\n"

    with follow("old", "odd", by=api_proxy) as followed:
        api_proxy.edit(spoil, when=LISTS)
        followed.begin("old")
        old = followed.known()
        assert [gap.what for gap in followed.read().gaps] == [f"pod {pods.namespace}/odd"]
        pods.set_status(followed.objects["odd"], {"message": "one"})
        followed.wait_for("old", "odd")
        assert followed.read().gaps == ()
        api_proxy.edit(spoil, when=WATCHES)
        pods.set_status(followed.objects["odd"], {"message": "two"})
        followed.wait_for("old")
        assert [gap.what for gap in followed.read().gaps] == [f"pod {pods.namespace}/odd"]
        assert followed.known() is old
        assert followed.verbs() == ["list", "watch"]


def test_without_a_way_to_the_api(tmp_path: Path) -> None:
    """Without a configuration that is the problem, and the informer keeps trying: it may appear."""
    bell = Bell()
    informer = PodInformer(Api(tmp_path / "missing"), "n1", bell)
    informer.fetch()
    assert informer.view.problem is not None
    assert informer.read(clock.now()).synced is None
    informer.start()
    wait_until(lambda: informer.view.problem is not None)
    informer.stop()
    wait_until(lambda: not has_threads())
    bell.close()
