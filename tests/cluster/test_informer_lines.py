"""A feed whose lists and watches are cut in the middle, spoilt or endless: what it takes of them, and that it heals."""

import contextlib
import json
import tracemalloc

import pytest

from tests.cluster.api_proxy import ApiProxy
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import lists, watches
from tests.cluster.informer_rig import following
from tests.cluster.pods import Pods
from watchdog.kube.store import LONGEST_LINE

pytestmark = pytest.mark.slow


def spoil(line: bytes) -> bytes:
    """The event with containers that no pod has."""
    event = json.loads(line)
    event["object"]["spec"]["containers"] = "spoilt"
    return json.dumps(event).encode() + b"\n"


def test_a_cut_in_the_middle_of_a_line(control_plane: ControlPlane, pods: Pods, api_proxy: ApiProxy) -> None:
    """Half an event is none: it comes again with the next watch, and no list is made."""
    node = pods.node()
    with following(control_plane, node, by=api_proxy) as followed:
        followed.begin()
        api_proxy.cut(when=watches("pods"))
        pods.create("new", node=node, running=False)
        followed.wait_for(["new"])
        assert followed.verbs() == ["list", "watch", "watch"]


def test_a_cut_in_the_middle_of_a_list(control_plane: ControlPlane, pods: Pods, api_proxy: ApiProxy) -> None:
    """Half a list is none: nothing of it is taken, and it is asked for again."""
    node = pods.node()
    pods.create("old", node=node)
    api_proxy.cut(when=lists("pods"))
    with following(control_plane, node, by=api_proxy) as followed:
        followed.feed.start()
        followed.wait_for(["old"])
        assert followed.verbs() == ["list", "list", "watch"][: len(followed.verbs())]


@pytest.mark.parametrize("line", [b"<html>oops</html>", b'{"type":"ADDED","object":{"kind":"Pod"}}', b'{"type":"ADD'])
def test_garbage_on_a_watch(control_plane: ControlPlane, pods: Pods, api_proxy: ApiProxy, line: bytes) -> None:
    """A line of which nothing can be said ends the watch; the event whose place it took comes again, without a list."""
    node = pods.node()
    pods.create("old", node=node)
    with following(control_plane, node, by=api_proxy) as followed:
        followed.begin(["old"])
        old = followed.read().pods[0]
        api_proxy.edit(lambda _: line + b"\n", when=watches("pods"))
        pods.create("new", node=node, running=False)
        followed.wait_for(["old", "new"])
        assert next(pod for pod in followed.read().pods if pod.name == "old") is old
        assert followed.verbs() == ["list", "watch", "watch"]
        assert followed.read().gaps == ()


def test_a_line_without_an_end(control_plane: ControlPlane, pods: Pods, api_proxy: ApiProxy) -> None:
    """A line that grows and grows is given up at its longest: the memory is bounded, and the watch is resumed."""
    node = pods.node()
    pods.create("old", node=node)
    with following(control_plane, node, by=api_proxy) as followed:
        followed.begin(["old"])
        (stream,) = [each for each in api_proxy.streams if watches("pods")(each.seen)]
        part = b"x" * 2**20
        tracemalloc.start()
        try:
            with contextlib.suppress(OSError):  # the feed hangs up
                for _ in range(20 * LONGEST_LINE // len(part)):
                    stream.write(part)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 3 * LONGEST_LINE
        pods.create("new", node=node, running=False)
        followed.wait_for(["old", "new"])
        assert followed.verbs() == ["list", "watch", "watch"]


def test_an_event_that_can_not_be_read(control_plane: ControlPlane, pods: Pods, api_proxy: ApiProxy) -> None:
    """That pod is not known any more and is named; the others go on; its next good event heals it; no request more."""
    node = pods.node()
    odd = pods.create("odd", node=node)
    pods.create("old", node=node)
    with following(control_plane, node, by=api_proxy) as followed:
        followed.begin(["old", "odd"])
        old = next(pod for pod in followed.read().pods if pod.name == "old")
        api_proxy.edit(spoil, when=watches("pods"))
        pods.set_status(odd, {"message": "one"})
        followed.wait_for(["old"])
        found = followed.read()
        assert found.pods[0] is old
        assert [gap.what for gap in found.gaps] == [f"pod {pods.namespace}/odd"]
        assert "unknown pod" in str(found.gaps[0].problem)
        pods.create("new", node=node, running=False)
        followed.wait_for(["old", "new"])
        pods.set_status(odd, {"message": "two"})
        followed.wait_for(["old", "new", "odd"])
        assert followed.read().gaps == ()
        assert followed.verbs() == ["list", "watch"]


def test_a_listed_pod_that_can_not_be_read(control_plane: ControlPlane, pods: Pods, api_proxy: ApiProxy) -> None:
    """One odd pod of a list is named and costs nobody else."""
    node = pods.node()
    pods.create("odd", node=node)
    pods.create("old", node=node)

    def change(body: bytes) -> bytes:
        found = json.loads(body)
        for item in found["items"]:
            if item["metadata"]["name"] == "odd":
                item["spec"]["containers"] = 7
        return json.dumps(found).encode()

    api_proxy.edit(change, when=lists("pods"))
    with following(control_plane, node, by=api_proxy) as followed:
        followed.feed.start()
        followed.wait_for(["old"])
        assert [gap.what for gap in followed.read().gaps] == [f"pod {pods.namespace}/odd"]
        assert followed.feed.view.problem is None
