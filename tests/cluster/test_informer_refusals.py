"""A feed whose requests the API server refuses: how soon it asks again, what it says, and that it heals by itself."""

import itertools
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.accounts import Account
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.audit import Request
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import lists
from tests.cluster.informer_rig import MOST_IN_12_S, OBSERVES, following, has_threads
from tests.cluster.pods import Pods
from tests.cluster.tcp_proxy import TcpProxy
from tests.node.support import wait_until
from watchdog import clock
from watchdog.clock import Bell
from watchdog.core.model import Pod
from watchdog.kube.client import Api
from watchdog.kube.informers import PodInformer, pods_of
from watchdog.kube.rights import Piece, render
from watchdog.kube.store import Store
from watchdog.kube.watch import Informer
from watchdog.kube.wire import Item

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
        followed.begin(["old"])
        with control_plane.throttle(followed.account.identity.user):
            followed.forget()
            tcp_proxy.cut()
            wait_until(lambda: followed.feed.view.problem is not None)
            assert "429" in str(followed.feed.view.problem)
            time.sleep(4)
            refused = followed.asked()
            assert {(one.verb, one.code) for one in refused} == {("watch", 429)}
            assert all(pause_s >= 1.0 for pause_s in pauses(refused))
            assert followed.names == {"old"}
        pods.create("new", node=node, running=False)
        followed.wait_for(["old", "new"])
        assert "list" not in followed.verbs()
        wait_until(lambda: followed.feed.view.problem is None)


def test_retry_after_is_the_least(control_plane: ControlPlane, pods: Pods, api_proxy: ApiProxy) -> None:
    """Who names 3 s is not asked before; who names nothing is asked again after the pause of our own."""
    node = pods.node()
    api_proxy.answer(429, headers={"Retry-After": "3"}, when=lists("pods"), times=2)
    with following(control_plane, node, by=api_proxy) as followed:
        followed.begin()
        times = [one.at_s for one in api_proxy.seen if lists("pods")(one)]
        assert all(3 <= after - before <= 4.2 for before, after in itertools.pairwise(times))
    api_proxy.answer(429, when=lists("pods"), times=2)
    with following(control_plane, node, by=api_proxy) as followed:
        began = time.time()
        followed.begin()
        assert time.time() - began < 5


def test_refused_again_and_again(control_plane: ControlPlane, pods: Pods, api_proxy: ApiProxy) -> None:
    """A server that fails: the pauses grow, the problem names the code, and nothing is asked but the same again."""
    node = pods.node()
    pods.create("old", node=node)
    with following(control_plane, node, by=api_proxy) as followed:
        followed.begin(["old"])
        api_proxy.answer(500, when=lambda seen: seen.path.endswith("/pods"))
        before = len(api_proxy.seen)
        api_proxy.finish_streams()
        time.sleep(12)
        asked = api_proxy.seen[before:]
        assert 3 <= len(asked) <= MOST_IN_12_S
        assert all(one.watch for one in asked)
        assert "answered 500" in str(followed.feed.view.problem)
        assert followed.names == {"old"}
        api_proxy.heal()
        wait_until(lambda: followed.feed.view.problem is None)


def test_without_rights(control_plane: ControlPlane, pods: Pods) -> None:
    """A real 403 names what to apply; as soon as that is applied the pods are there."""
    node = pods.node()
    pods.create("mine", node=node)
    with following(control_plane, node) as followed:
        whose = followed.account
        control_plane.kubectl("delete", "clusterrolebinding", whose.identity.object_name(Piece.OBSERVE))
        wait_until(lambda: not may_list(whose))
        followed.feed.start()
        wait_until(lambda: followed.feed.view.problem is not None)
        assert "gpu-watchdog rights" in str(followed.feed.view.problem)
        assert followed.read().synced is None
        wait_until(followed.bell.silence)
        assert 2 <= len(followed.asked()) <= MOST_IN_12_S
        control_plane.kubectl("apply", "-f", "-", input=render(OBSERVES, whose.identity))
        followed.wait_for(["mine"])
        wait_until(lambda: followed.feed.view.problem is None)


def may_list(account: Account) -> bool:
    """Whether the server lets the account list pods now."""
    return account.plane.api.call("GET", "/api/v1/pods", token=account.token).status == 200


def test_a_token_that_stays_wrong(control_plane: ControlPlane, pods: Pods) -> None:
    """After the one immediate try with what was read again, a refused token is asked with like anything that fails."""
    node = pods.node()
    with following(control_plane, node, token="wrong") as followed:
        followed.feed.start()
        time.sleep(12)
        assert "401" in str(followed.feed.view.problem)
        # The server's audit log does not say who asked, and for what, but not the requests of others: all have a token.
        assert 3 <= len([one for one in followed.asked() if one.code == 401]) <= MOST_IN_12_S + 1


def test_an_answer_that_is_no_list(control_plane: ControlPlane, pods: Pods, api_proxy: ApiProxy) -> None:
    """A login page with code 200, as something in between gives it, is a problem with a sentence, and no pods."""
    node = pods.node()
    pods.create("mine", node=node)
    api_proxy.answer(200, body=b"<html>sign in</html>", when=lists("pods"))
    with following(control_plane, node, by=api_proxy) as followed:
        followed.feed.start()
        wait_until(lambda: followed.feed.view.problem is not None)
        assert "the response is not a list" in str(followed.feed.view.problem)
        assert followed.read().synced is None
        api_proxy.heal()
        followed.wait_for(["mine"])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_ended_is_told(control_plane: ControlPlane, pods: Pods) -> None:
    """Should the thread ever end by a defect of ours, what is known is not taken for what is."""
    node = pods.node()
    pods.create("mine", node=node)

    def decode(item: Item) -> Pod:
        raise ZeroDivisionError

    with following(control_plane, node) as followed:
        resource = replace(pods_of(node), thread="api-odd", make_store=lambda: Store(decode, namespaced=True))
        feed = Informer(followed.api, resource, followed.bell)
        feed.start()
        wait_until(lambda: feed.view.problem is not None)
        assert "its thread has ended" in str(feed.view.problem)
        feed.stop()
        assert feed.view.problem is None


def test_without_a_way_to_the_api(tmp_path: Path) -> None:
    """Where there is no configuration the problem says so, and the feed goes on trying: it may come."""
    bell = Bell()
    feed = PodInformer(Api(tmp_path / "missing"), "n1", bell)
    feed.fetch()
    assert "the API server can't be used" in str(feed.view.problem)
    assert feed.read(clock.now()).synced is None
    feed.start()
    wait_until(lambda: feed.view.problem is not None)
    feed.stop()
    wait_until(lambda: not has_threads())
    bell.close()
