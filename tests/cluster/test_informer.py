"""An informer's requests, counted at a real API server: one list, one watch, and what each end of a watch costs."""

import itertools
import json
import os
import re
import select
import socket
import time
from typing import Any

import psutil
import pytest

from tests.node.support import wait_until
from tests.rig.cluster.accounts import NewAccount
from tests.rig.cluster.api_proxy import ApiProxy
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.faults import lists
from tests.rig.cluster.informer_rig import (
    MATCHES_BY_NAMESPACE,
    MOST_IN_12_S,
    OBSERVES,
    QUICK,
    Follow,
    has_threads,
    stays,
)
from tests.rig.cluster.pods import Pods
from tests.rig.cluster.tcp_proxy import TcpProxy
from watchdog import clock
from watchdog.core.model import GapReason
from watchdog.kube.informers import NamespaceInformer, NodeInformer, pods_of
from watchdog.kube.kinds import Piece
from watchdog.kube.rights import render
from watchdog.kube.watch import Watcher

pytestmark = pytest.mark.slow


def test_one_list_and_one_watch(pods: Pods, control_plane: ControlPlane, follow: Follow) -> None:
    """A start is one list from the server's memory and one watch of this node's pods, kept alive; nothing follows."""
    pods.create("theirs", node=pods.node())
    with follow("mine") as followed:
        before = clock.now()
        followed.begin("mine")
        for each in sockets_to(control_plane.port):
            assert each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert each.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60
            each.close()
        stays(lambda: dict(followed.api.requests) == {"list": 1, "watch": 1}, 3)
        listed, watched = followed.asked()
        assert f"fieldSelector=spec.nodeName%3D{followed.node}&resourceVersion=0" in listed.uri
        assert re.search(r"allowWatchBookmarks=true&timeoutSeconds=(2[4-9]\d|300)&", watched.uri)
        found = followed.read()
        assert found.gaps == ()
        assert found.synced is not None
        assert before.boottime_s <= found.synced.boottime_s <= clock.now().boottime_s


def sockets_to(port: int) -> list[socket.socket]:
    """Copies of this process's sockets that are connected to a port: there is one at least."""
    connections = psutil.Process().net_connections("tcp4")
    found = [socket.socket(fileno=os.dup(one.fd)) for one in connections if one.raddr and one.raddr.port == port]
    assert found
    return found


def test_changes_arrive_and_ring(pods: Pods, follow: Follow) -> None:
    """A pod that is created, changes and goes is known at once, rings the bell and costs no request; others stay."""
    with follow("old") as followed:
        followed.begin("old")
        old = followed.known()
        followed.bell.silence()
        new = followed.create()
        assert select.select([followed.bell.fileno()], [], [], 5)[0]
        followed.wait_for("old", "new")
        pods.run(new)
        wait_until(lambda: bool(followed.known("new").containers[0].ids))
        pods.delete(new)
        followed.wait_for("old")
        assert followed.known() is old
        assert not followed.informer.has_changed()
        assert followed.verbs() == ["list", "watch"]


def test_deeply_nested_pods(pods: Pods, control_plane: ControlPlane, follow: Follow) -> None:
    """The server takes pods with managed fields nested almost 10,000 levels deep; all pods are listed and watched."""

    def create(name: str, node: str) -> None:
        fields = {"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": "NESTED"}
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "tests.invalid/tenant:1"}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "managedFields": [fields]}, "spec": spec}
        text = json.dumps(body).encode().replace(b'"NESTED"', nested)
        answer = control_plane.api.call("POST", f"/api/v1/namespaces/{pods.namespace}/pods", text)
        assert nested in answer.body

    nested = b'{"f:a":' * 9_900 + b"{}" + b"}" * 9_900
    with follow("old") as followed:
        create("deep", followed.node)
        followed.begin("old", "deep")
        create("deeper", followed.node)
        followed.create("new")
        followed.wait_for("old", "deep", "deeper", "new")
        assert dict(followed.api.requests) == {"list": 1, "watch": 1}


def test_renewals_of_a_watch(follow: Follow) -> None:
    """A watch that the server ends on time is renewed at once, without a list; its end vouches for the pods."""
    with follow(pace=QUICK) as followed:
        followed.informer.start()
        wait_until(lambda: followed.verbs().count("watch") == 4)
        assert followed.verbs().count("list") == 1
        assert followed.problem == ""
        synced = followed.read().synced
        assert synced is not None
        assert clock.now().boottime_s - synced.boottime_s < 10
        starts = [one.received_s for one in followed.asked() if one.verb == "watch"]
        assert all(after - before > 2 for before, after in itertools.pairwise(starts))


def test_a_restart_of_the_server(control_plane: ControlPlane, follow: Follow) -> None:
    """The pods are kept, with a gap; when the server is back at most one list is made, and the problem is over."""
    with follow("old") as followed:
        followed.begin("old")
        old = followed.known()
        control_plane.kill_apiserver()
        wait_until(lambda: followed.problem != "")
        stale = followed.read()
        assert [pod.name for pod in stale.pods] == ["old"]
        assert [(gap.reason, gap.what) for gap in stale.gaps] == [(GapReason.PODS, f"pods of node {followed.node}")]
        followed.forget()
        control_plane.start_apiserver()
        wait_until(lambda: followed.problem == "")
        followed.wait_until_watching()
        followed.create()
        followed.wait_for("old", "new")
        assert followed.known() is old
        assert followed.verbs().count("list") <= 1
        assert followed.verbs().count("watch") <= 3


def test_history_that_is_gone(control_plane: ControlPlane, pods: Pods, follow: Follow, tcp_proxy: TcpProxy) -> None:
    """What etcd no longer has (410) costs exactly one list, no older than what was seen, and deleted pods are gone."""
    with follow("gone", "kept", by=tcp_proxy) as followed:
        followed.begin("gone", "kept")
        kept = followed.known("kept")
        version = followed.objects["kept"]["metadata"]["resourceVersion"]
        tcp_proxy.refuse()
        tcp_proxy.cut()
        pods.delete(followed.objects["gone"])
        control_plane.expire_history()
        followed.forget()
        tcp_proxy.heal()
        followed.wait_for("kept")
        followed.wait_until_watching()
        first, again, _ = followed.asked()
        assert followed.verbs() == ["watch", "list", "watch"]
        assert all(f"resourceVersion={version}" in one.uri for one in (first, again))
        assert followed.known("kept") is kept


def test_a_version_that_the_server_has_not_reached(follow: Follow) -> None:
    """A server that lags behind another one: what it can't list is requested as the newest, at once, and once."""
    with follow("mine") as followed:
        updates: list[object] = []
        watcher: Watcher[Any] = Watcher(
            followed.api,
            pods_of(followed.node),
            lambda store, at: updates.append(at),
            updates.append,
            version="999999999",
        )
        assert [watcher.run_once().problem for _ in range(2)] == [None, None]
        assert [one.code for one in followed.asked()] == [504, 200]
        assert "resourceVersion" not in followed.asked()[1].uri
        assert len(updates) == 1
        assert int(watcher.version) < 999999999


def test_stop_and_start(pods: Pods, follow: Follow) -> None:
    """A stop takes no time and ends the watch at the server; a start lists again, not from before what was seen."""
    with follow() as followed:
        old = followed.create("old")
        followed.begin("old")
        began = time.monotonic()
        followed.informer.stop()
        assert time.monotonic() - began < 3
        wait_until(lambda: not has_threads() and not any(one.open for one in followed.asked()))
        pods.delete(old)
        followed.create()
        assert followed.names == {"old"}
        followed.informer.start()
        followed.wait_for("new")
        assert followed.verbs()[:3] == ["list", "watch", "list"]
        assert "resourceVersion=0" not in followed.asked()[2].uri


@pytest.mark.parametrize("phase", ["connecting", "listing", "pausing"])
def test_a_stop_in_every_phase(follow: Follow, tcp_proxy: TcpProxy, api_proxy: ApiProxy, phase: str) -> None:
    """A stop takes no time whatever is in progress, and what still arrives is not taken."""
    tcp_proxy.accept_silently()
    if phase == "listing":
        api_proxy.delay(3, when=lists("pods"))
    else:
        api_proxy.answer(429, headers={"Retry-After": "60"}, when=lists("pods"))
    with follow("old", by=tcp_proxy if phase == "connecting" else api_proxy) as followed:
        followed.informer.start()
        time.sleep(1)
        began = time.monotonic()
        followed.informer.stop()
        assert time.monotonic() - began < 3
        wait_until(lambda: not has_threads())
        assert (followed.read().pods, followed.read().synced) == ((), None)
        assert dict(followed.api.requests) == {"list": 1}


def test_one_list_in_the_calling_thread(control_plane: ControlPlane, follow: Follow) -> None:
    """For one reading a list is enough; a failure is reported at once."""
    with follow("mine") as followed:
        followed.informer.fetch()
        assert (followed.names, followed.read().gaps) == ({"mine"}, ())
        assert followed.verbs() == ["list"]
    with follow(config=control_plane.kubeconfig(token="wrong")) as followed:
        followed.informer.fetch()
        found = followed.read()
        assert (found.pods, found.synced) == ((), None)
        assert "401" in str(found.gaps[0].problem)


def test_throttled_by_priority_and_fairness(
    control_plane: ControlPlane, new_account: NewAccount, follow: Follow, tcp_proxy: TcpProxy
) -> None:
    """A real 429 with Retry-After: it is waited for, and the watch continues without a list when there is room."""
    account = new_account(OBSERVES)
    with follow("old", config=account.through(tcp_proxy)) as followed:
        followed.begin("old")
        with control_plane.throttle(account.identity.user):
            followed.forget()
            tcp_proxy.cut()
            wait_until(lambda: "429" in followed.problem)
            time.sleep(4)
            refused = followed.asked()
            assert {(one.verb, one.code) for one in refused} == {("watch", 429)}
            assert all(after.received_s - before.received_s >= 1 for before, after in itertools.pairwise(refused))
        followed.create()
        followed.wait_for("old", "new")
        assert "list" not in followed.verbs()
        wait_until(lambda: followed.problem == "")


def test_without_rights(control_plane: ControlPlane, new_account: NewAccount, follow: Follow) -> None:
    """A real 403 names what to apply; as soon as that is applied the pods are known."""
    account = new_account(OBSERVES)
    with follow("mine", config=account.kubeconfig) as followed:
        control_plane.kubectl("delete", "clusterrolebinding", account.identity.object_name(Piece.OBSERVE))
        wait_until(lambda: control_plane.api.call("GET", "/api/v1/pods", token=account.token).status == 403)
        followed.informer.start()
        wait_until(lambda: "gpu-watchdog rights" in followed.problem)
        assert followed.read().synced is None
        wait_until(followed.bell.silence)
        assert 2 <= len(followed.asked()) <= MOST_IN_12_S
        control_plane.kubectl("apply", "-f", "-", input=render(OBSERVES, account.identity))
        followed.wait_for("mine")
        wait_until(lambda: followed.problem == "")


def test_the_own_node(control_plane: ControlPlane, pods: Pods, follow: Follow) -> None:
    """The node's labels and annotations as they change; once deleted it is unknown, with a gap."""
    with follow() as followed:
        name = followed.node
        informer = NodeInformer(followed.api, name, followed.bell)
        informer.start()
        try:
            wait_until(lambda: informer.read(clock.now())[0].labels.get("kubernetes.io/hostname") == name)
            control_plane.kubectl("annotate", "node", name, "gpu-memory-watchdog/mode=observe")
            wait_until(lambda: "gpu-memory-watchdog/mode" in informer.read(clock.now())[0].annotations)
            node, gaps = informer.read(clock.now())
            assert (node.known, node.capacity["cpu"], gaps) == (True, "64", ())
            pods.clear()
            wait_until(lambda: not informer.read(clock.now())[0].known)
            node, (gap,) = informer.read(clock.now())
            assert (node.name, node.labels, gap.reason) == (name, {}, GapReason.NODE)
        finally:
            informer.stop()
        seen = [one for one in control_plane.requests(user_agent="gpu-memory-watchdog/") if name in one.uri]
        assert [one.verb for one in seen] == ["list", "watch"]
        assert f"fieldSelector=metadata.name%3D{name}&resourceVersion=0" in seen[0].uri


def test_namespaces(control_plane: ControlPlane, namespace: str, new_account: NewAccount, follow: Follow) -> None:
    """The labels of all namespaces as they change; only metadata is sent."""
    with follow(config=new_account(MATCHES_BY_NAMESPACE).kubeconfig) as followed:
        informer = NamespaceInformer(followed.api, followed.bell)
        informer.start()
        try:
            wait_until(lambda: namespace in informer.read(clock.now())[0])
            assert informer.read(clock.now())[0]["kube-system"] == {"kubernetes.io/metadata.name": "kube-system"}
            control_plane.kubectl("label", "namespace", namespace, "tier=dev")
            wait_until(lambda: informer.read(clock.now())[0][namespace].get("tier") == "dev")
            assert informer.read(clock.now())[1] == ()
            assert dict(followed.api.requests) == {"list": 1, "watch": 1}
        finally:
            informer.stop()
