"""A feed whose requests the API server refuses: how soon it asks again, what it says, and that it heals by itself."""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.api_proxy import ApiProxy
from tests.cluster.audit import Request
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import lists, watches
from tests.cluster.feed_rig import MOST_IN_12_S, USER, following, has_threads, let_nobody_read, let_read
from tests.cluster.pods import Pods
from tests.cluster.tcp_proxy import TcpProxy
from tests.kube.watching import error
from tests.node.support import wait_until
from watchdog import clock
from watchdog.bell import Bell
from watchdog.core.model import GapReason
from watchdog.kube.client import Api
from watchdog.kube.feed import Feed, Kind
from watchdog.kube.follower import Follower, Listener, Resource
from watchdog.kube.podfeed import PodFeed, pod_shelf
from watchdog.kube.shelf import Decoded, Item, Shelf

pytestmark = pytest.mark.slow


def pauses(requests: tuple[Request, ...]) -> list[float]:
    """Seconds from each request to the next."""
    times = [one.received_s for one in requests]
    return [after - before for before, after in itertools.pairwise(times)]


def test_throttled_by_priority_and_fairness(control_plane: ControlPlane, pods: Pods, tcp_proxy: TcpProxy) -> None:
    """429 with Retry-After, for real: it is waited for, and the watch goes on without a list when there is room."""
    node = pods.node()
    pods.create("old", node=node)
    with following(control_plane, node, by=tcp_proxy) as followed:
        followed.feed.start()
        followed.wait_until_watching()
        followed.wait_for(["old"])
        with control_plane.throttle(USER):
            followed.forget()
            tcp_proxy.cut()
            wait_until(lambda: followed.feed.problem is not None, 20)
            assert "429" in (followed.feed.problem or "")
            time.sleep(4)
            refused = followed.asked()
            assert {(one.verb, one.code) for one in refused} == {("watch", 429)}
            assert all(pause_s >= 1.0 for pause_s in pauses(refused))
            assert followed.names == {"old"}
        pods.create("new", node=node, running=False)
        followed.wait_for(["old", "new"], 40)
        assert "list" not in followed.verbs()
        wait_until(lambda: followed.feed.problem is None, 5)


def test_retry_after_is_the_least(control_plane: ControlPlane, pods: Pods, api_proxy: ApiProxy) -> None:
    """Who names 3 s is not asked before; who names nothing is asked again after the pause of our own."""
    node = pods.node()
    api_proxy.answer(429, headers={"Retry-After": "3"}, when=lists("pods"), times=2)
    with following(control_plane, node, by=api_proxy) as followed:
        followed.feed.start()
        followed.wait_until_watching(30)
        times = [one.at_s for one in api_proxy.seen if lists("pods")(one)]
        assert all(3 <= after - before <= 4.2 for before, after in itertools.pairwise(times))
    api_proxy.answer(429, when=lists("pods"), times=2)
    with following(control_plane, node, by=api_proxy) as followed:
        began = time.time()
        followed.feed.start()
        followed.wait_until_watching(10)
        assert time.time() - began < 5


@pytest.mark.parametrize("code", [500, 403])
def test_refused_again_and_again(control_plane: ControlPlane, pods: Pods, api_proxy: ApiProxy, code: int) -> None:
    """Whatever the refusal: the pauses grow, the problem names the code, and nothing is asked but the same again."""
    node = pods.node()
    pods.create("old", node=node)
    with following(control_plane, node, by=api_proxy) as followed:
        followed.feed.start()
        followed.wait_for(["old"])
        followed.wait_until_watching()
        api_proxy.answer(code, when=lambda seen: seen.path.endswith("/pods"))
        before = len(api_proxy.seen)
        api_proxy.finish_streams()
        time.sleep(12)
        asked = api_proxy.seen[before:]
        assert 3 <= len(asked) <= MOST_IN_12_S
        assert all(one.watch for one in asked)
        assert f"answered {code}" in (followed.feed.problem or "")
        assert followed.names == {"old"}
        api_proxy.heal()
        wait_until(lambda: followed.feed.problem is None, 40)


def test_without_rights(control_plane: ControlPlane, pods: Pods) -> None:
    """A real 403 names what to apply; as soon as the right is there the pods are."""
    node = pods.node()
    pods.create("mine", node=node)
    with following(control_plane, node) as followed:
        let_nobody_read(control_plane)
        wait_until(lambda: not may_list(control_plane), 10)
        followed.feed.start()
        wait_until(lambda: followed.feed.problem is not None, 20)
        assert "gpu-watchdog rights" in (followed.feed.problem or "")
        assert followed.read().synced is None
        assert followed.bell.silence()
        assert 2 <= len(followed.asked()) <= MOST_IN_12_S
        let_read(control_plane)
        followed.wait_for(["mine"], 40)
        wait_until(lambda: followed.feed.problem is None, 5)


def resource_of(node: str, make_shelf: Callable[[], Shelf[Any]]) -> Resource[Any]:
    """The pods of a node, kept on a shelf of one's own."""
    return Resource(
        noun="pods",
        path="/api/v1/pods",
        list_kind="PodList",
        selector={"fieldSelector": f"spec.nodeName={node}"},
        heartbeat=True,
        make_shelf=make_shelf,
    )


def may_list(plane: ControlPlane) -> bool:
    """Whether the server lets the user list pods now."""
    return plane.api.call("GET", "/api/v1/pods", token=plane.token(USER)).status == 200


def test_a_token_that_stays_wrong(control_plane: ControlPlane, pods: Pods) -> None:
    """After the one immediate try with what was read anew, a refused token is asked with like anything that fails."""
    node = pods.node()
    with following(control_plane, node, token="wrong") as followed:
        followed.feed.start()
        time.sleep(12)
        assert "401" in (followed.feed.problem or "")
        # The server's audit log does not say who asked, and for what, but not the requests of others: all have a token.
        assert 3 <= len([one for one in followed.asked() if one.code == 401]) <= MOST_IN_12_S + 1


def test_a_version_that_the_server_has_not_come_to(control_plane: ControlPlane, pods: Pods) -> None:
    """A server that lags behind another one, for real: what it can't list is asked as the newest, at once, and once."""
    node = pods.node()
    pods.create("mine", node=node)
    with following(control_plane, node) as followed:
        told: list[object] = []
        resource = resource_of(node, lambda: pod_shelf(node))
        listener: Listener[Any] = Listener(on_news=lambda shelf, at: told.append(at), on_problem=told.append)
        follower = Follower(followed.api, resource, listener, version="999999999")
        assert follower.turn().problem is None
        assert follower.turn().problem is None
        assert [one.code for one in followed.asked()] == [504, 200]
        assert "resourceVersion" not in followed.asked()[1].uri
        assert len(told) == 1
        assert int(follower.version) < 999999999


@pytest.mark.parametrize("form", ["status", "event"])
def test_410_in_both_forms(control_plane: ControlPlane, pods: Pods, api_proxy: ApiProxy, form: str) -> None:
    """As the answer or as the first event: one list, and one only, also when it comes twice."""
    node = pods.node()
    pods.create("old", node=node)
    gone = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": "Expired",
        "code": 410,
        "message": "old",
    }
    with following(control_plane, node, by=api_proxy) as followed:
        followed.feed.start()
        followed.wait_until_watching()
        followed.forget()
        if form == "status":
            api_proxy.answer(410, body=gone, when=watches("pods"), times=1)
            api_proxy.finish_streams()
        else:
            api_proxy.insert(error(410, "Expired").strip(), when=watches("pods"))
        followed.wait_until_watching(10)
        pods.create("new", node=node, running=False)
        followed.wait_for(["old", "new"], 5)
        assert followed.verbs() == ["list", "watch"]
        assert followed.feed.problem is None


def test_410_for_ever(control_plane: ControlPlane, pods: Pods, api_proxy: ApiProxy) -> None:
    """A server that takes back the versions that it gives is not asked in a circle."""
    node = pods.node()
    pods.create("old", node=node)
    api_proxy.answer(410, when=watches("pods"))
    with following(control_plane, node, by=api_proxy) as followed:
        followed.feed.start()
        time.sleep(12)
        assert len(api_proxy.seen) <= 2 * MOST_IN_12_S
        assert "410" in (followed.feed.problem or "")
        assert followed.names == {"old"}


def test_an_answer_that_is_no_list(control_plane: ControlPlane, pods: Pods, api_proxy: ApiProxy) -> None:
    """A login page with code 200, as something in between gives it, is a problem with a sentence, and no pods."""
    node = pods.node()
    pods.create("mine", node=node)
    api_proxy.answer(200, body=b"<html>sign in</html>", when=lists("pods"))
    with following(control_plane, node, by=api_proxy) as followed:
        followed.feed.start()
        wait_until(lambda: followed.feed.problem is not None, 20)
        assert "the answer is no list" in (followed.feed.problem or "")
        assert followed.read().synced is None
        api_proxy.heal()
        followed.wait_for(["mine"], 40)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_ended_is_told(control_plane: ControlPlane, pods: Pods) -> None:
    """Should the thread ever end by a defect of ours, what is known is not taken for what is."""
    node = pods.node()
    pods.create("mine", node=node)

    def decode(item: Item) -> Decoded[int]:
        raise ZeroDivisionError

    with following(control_plane, node) as followed:
        resource = resource_of(node, lambda: Shelf(decode, namespaced=True))
        kind = Kind(
            resource=resource, thread="api-odd", reason=GapReason.PODS, gather=lambda shelf: (tuple(shelf.values), ())
        )
        feed = Feed(followed.api, kind, followed.bell)
        feed.start()
        wait_until(lambda: feed.problem is not None, 10)
        assert "its thread has ended" in (feed.problem or "")
        feed.stop()
        assert feed.problem is None


def test_without_a_way_to_the_api(tmp_path: Path) -> None:
    """Where there is no configuration the problem says so, and the feed goes on trying: it may come."""
    bell = Bell()
    feed = PodFeed(Api(tmp_path / "missing"), "n1", bell)
    feed.fetch()
    assert "no way to the API server" in (feed.problem or "")
    assert feed.read(clock.now()).synced is None
    feed.start()
    wait_until(lambda: feed.problem is not None, 20)
    feed.stop()
    wait_until(lambda: not has_threads(), 5)
    bell.close()
