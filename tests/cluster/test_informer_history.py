"""A feed whose version the API server no longer has, or does not have yet: one list, from where it may begin."""

import time
from typing import Any

import pytest

from tests.cluster.api_proxy import ApiProxy
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import watches
from tests.cluster.informer_rig import MOST_IN_12_S, following
from tests.cluster.pods import Pods
from tests.cluster.tcp_proxy import TcpProxy
from tests.kube.watch_lines import error
from watchdog.kube.informers import pods_of
from watchdog.kube.watch import Watcher

pytestmark = pytest.mark.slow


def test_a_true_410(control_plane: ControlPlane, pods: Pods, tcp_proxy: TcpProxy) -> None:
    """History that etcd no longer has costs exactly one list, not older than what was seen, and what went is gone."""
    node = pods.node()
    gone, kept = pods.create("gone", node=node), pods.create("kept", node=node)
    with following(control_plane, node, by=tcp_proxy) as followed:
        followed.begin(["gone", "kept"])
        known = next(pod for pod in followed.read().pods if pod.name == "kept")
        tcp_proxy.refuse()
        tcp_proxy.cut()
        pods.delete(gone)
        control_plane.expire_history()
        followed.forget()
        tcp_proxy.heal()
        followed.wait_for(["kept"])
        followed.wait_until_watching()
        followed.stays(lambda: followed.verbs() == ["watch", "list", "watch"], 3)
        first, again, _ = followed.asked()
        version = kept["metadata"]["resourceVersion"]
        assert f"resourceVersion={version}" in first.uri
        assert f"resourceVersion={version}" in again.uri
        assert followed.read().pods[0] is known


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
        followed.begin()
        followed.forget()
        if form == "status":
            api_proxy.answer(410, body=gone, when=watches("pods"), times=1)
            api_proxy.finish_streams()
        else:
            api_proxy.insert(error(410, "Expired").strip(), when=watches("pods"))
        followed.wait_until_watching()
        pods.create("new", node=node, running=False)
        followed.wait_for(["old", "new"])
        assert followed.verbs() == ["list", "watch"]
        assert followed.feed.view.problem is None


def test_410_for_ever(control_plane: ControlPlane, pods: Pods, api_proxy: ApiProxy) -> None:
    """A server that takes back the versions that it gives is not asked in a circle."""
    node = pods.node()
    pods.create("old", node=node)
    api_proxy.answer(410, when=watches("pods"))
    with following(control_plane, node, by=api_proxy) as followed:
        followed.feed.start()
        time.sleep(12)
        assert len(api_proxy.seen) <= 2 * MOST_IN_12_S
        assert "410" in str(followed.feed.view.problem)
        assert followed.names == {"old"}


def test_a_version_that_the_server_has_not_come_to(control_plane: ControlPlane, pods: Pods) -> None:
    """A server that lags behind another one, for real: what it can't list is asked as the newest, at once, and once."""
    node = pods.node()
    pods.create("mine", node=node)
    with following(control_plane, node) as followed:
        told: list[object] = []
        resource = pods_of(node)
        watcher: Watcher[Any] = Watcher(
            followed.api, resource, lambda store, at: told.append(at), told.append, version="999999999"
        )
        assert watcher.run_once().problem is None
        assert watcher.run_once().problem is None
        assert [one.code for one in followed.asked()] == [504, 200]
        assert "resourceVersion" not in followed.asked()[1].uri
        assert len(told) == 1
        assert int(watcher.version) < 999999999
