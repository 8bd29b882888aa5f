"""The feeds of the own node and of namespaces, on a real API server."""

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.informer_rig import MATCHES_BY_NAMESPACE, following
from tests.cluster.pods import Pods
from tests.node.support import wait_until
from watchdog import clock
from watchdog.core.model import GapReason
from watchdog.kube.informers import NamespaceInformer, NodeInformer

pytestmark = pytest.mark.slow


def test_the_own_node(control_plane: ControlPlane, pods: Pods) -> None:
    """The node's labels and annotations as they change; once deleted it is not known, which a gap says."""
    name = pods.node(labels={"zone": "a"})
    with following(control_plane, name) as followed:
        feed = NodeInformer(followed.api, name, followed.bell)
        feed.start()
        try:
            wait_until(lambda: feed.read(clock.now())[0].labels.get("zone") == "a")
            control_plane.kubectl("annotate", "node", name, "gpu-memory-watchdog/mode=observe")
            wait_until(lambda: "gpu-memory-watchdog/mode" in feed.read(clock.now())[0].annotations)
            node, gaps = feed.read(clock.now())
            assert (node.known, node.capacity["cpu"], gaps) == (True, "64", ())
            pods.clear()
            wait_until(lambda: not feed.read(clock.now())[0].known)
            node, (gap,) = feed.read(clock.now())
            assert (node.name, node.labels, gap.reason) == (name, {}, GapReason.NODE)
            assert dict(followed.api.requests) == {"list": 1, "watch": 1}
        finally:
            feed.stop()
        seen = [one for one in control_plane.requests(user_agent="gpu-memory-watchdog/") if name in one.uri]
        assert [one.verb for one in seen] == ["list", "watch"]
        assert f"fieldSelector=metadata.name%3D{name}&resourceVersion=0" in seen[0].uri


def test_namespaces(control_plane: ControlPlane, namespace: str, pods: Pods) -> None:
    """The labels of all namespaces as they change; only metadata is sent."""
    with following(control_plane, "n1", policy=MATCHES_BY_NAMESPACE) as followed:
        feed = NamespaceInformer(followed.api, followed.bell)
        feed.start()
        try:
            wait_until(lambda: namespace in feed.read(clock.now())[0])
            assert feed.read(clock.now())[0]["kube-system"] == {"kubernetes.io/metadata.name": "kube-system"}
            control_plane.kubectl("label", "namespace", namespace, "tier=dev")
            wait_until(lambda: feed.read(clock.now())[0][namespace].get("tier") == "dev")
            assert feed.read(clock.now())[1] == ()
            assert dict(followed.api.requests) == {"list": 1, "watch": 1}
        finally:
            feed.stop()
