"""The proxy of requests: each fault is what its name says, and it ends."""

import datetime as dt
import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.api import Api
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import lists, watches, writes
from tests.cluster.pods import Pods, path_of
from tests.cluster.streams import shut
from tests.cluster.tcp_proxy import TcpProxy
from tests.cluster.watching import Watch, through
from tests.node.support import wait_until


@pytest.fixture
def api(control_plane: ControlPlane, api_proxy: ApiProxy) -> Api:
    return through(api_proxy, control_plane)


@pytest.fixture
def watch(api: Api, namespace: str) -> Iterator[Watch]:
    with Watch(api, namespace) as made:
        yield made


def test_requests_pass(control_plane: ControlPlane, api_proxy: ApiProxy, api: Api, namespace: str, pods: Pods) -> None:
    """Without a fault lists, writes and errors go through with the client's own headers, and each is noted."""
    pod = pods.create("one", running=False)
    listed = api.call("GET", f"/api/v1/namespaces/{namespace}/pods", headers={"User-Agent": "proxied/1"})
    assert [each["metadata"]["uid"] for each in listed.object["items"]] == [pod["metadata"]["uid"]]
    patch = {"metadata": {"labels": {"a": "b"}}}
    assert api.ask("PATCH", path_of(pod), patch)["metadata"]["labels"] == {"a": "b"}
    assert api.call("GET", "/api/v1/nodes/nobody").status == 404
    assert [seen.method for seen in api_proxy.seen] == ["GET", "PATCH", "GET"]
    assert [seen.code for seen in control_plane.requests(user_agent="proxied/1")] == [200]
    config = control_plane.kubeconfig(token=control_plane.token("admin"), server=api_proxy.url, ca=api_proxy.ca)
    names = control_plane.kubectl("get", "pods", "-n", namespace, "-o", "name", kubeconfig=config).stdout
    assert names == "pod/one\n"


def test_a_watch_passes(
    control_plane: ControlPlane, api_proxy: ApiProxy, watch: Watch, namespace: str, pods: Pods
) -> None:
    """Events come as they happen, and the server learns at once when its client leaves."""
    node = pods.node()
    pods.create("one", node=node, running=False)
    wait_until(lambda: watch.names == ["one"])
    pods.create("two", node=node, running=False)
    wait_until(lambda: watch.names == ["one", "two"])
    assert len(api_proxy.streams) == 1

    def open_watches() -> int:
        found = control_plane.requests(user="admin")
        return sum(seen.open for seen in found if seen.verb == "watch" and seen.namespace == namespace)

    assert open_watches() == 1
    shut(watch.socket)
    wait_until(lambda: open_watches() == 0)


def test_answers_of_its_own(api_proxy: ApiProxy, api: Api) -> None:
    """A faked answer comes as often as it shall, to whom it shall, with its headers, and ends by heal."""
    api_proxy.answer(429, headers={"Retry-After": "7"}, when=lists("pods"), times=2)
    api_proxy.answer(500, body=b"oops", when=lists("nodes"))
    answers = [api.call("GET", "/api/v1/pods") for _ in range(3)]
    assert [answer.status for answer in answers] == [429, 429, 200]
    assert answers[0].headers["Retry-After"] == "7"
    assert answers[0].object["code"] == 429
    assert [api.call("GET", "/api/v1/nodes").body for _ in range(2)] == [b"oops", b"oops"]
    assert api.call("GET", "/version").status == 200
    api_proxy.heal()
    assert api.call("GET", "/api/v1/nodes").status == 200


def test_only_writes(api_proxy: ApiProxy, api: Api, pods: Pods) -> None:
    """A fault can be meant for what is written to a subresource alone."""
    pod = pods.create(running=False)
    api_proxy.answer(401, when=writes("/eviction"))
    assert api.call("POST", f"{path_of(pod)}/eviction", {}).status == 401
    assert api.call("GET", path_of(pod)).status == 200


def test_delay(api_proxy: ApiProxy, api: Api) -> None:
    """A delayed request is answered late, and at once when the fault is taken back."""
    api_proxy.delay(0.5, when=lists("pods"), times=1)
    begin = time.monotonic()
    assert api.call("GET", "/api/v1/pods").status == 200
    assert time.monotonic() - begin >= 0.5
    api_proxy.delay(60)
    timer = threading.Timer(0.5, api_proxy.heal)
    timer.start()
    begin = time.monotonic()
    assert api.call("GET", "/version").status == 200
    assert time.monotonic() - begin < 10
    timer.join()


def test_a_line_that_does_not_decode(api_proxy: ApiProxy, watch: Watch, pods: Pods) -> None:
    """One line of a watch is replaced, or dropped, or comes from nowhere; those around it are whole."""
    api_proxy.edit(lambda line: line[:10] + b"\n", when=watches("pods"))
    node = pods.node()
    for name in ("one", "two"):
        pods.create(name, node=node, running=False)
    wait_until(lambda: len(watch.lines) == 2)
    assert len(watch.lines[0]) == 11
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
    assert api_proxy.insert(json.dumps(gone).encode(), when=watches("pods")) == 1
    assert api_proxy.insert(b"never", when=watches("nodes")) == 0
    wait_until(lambda: json.loads(watch.lines[-1]) == gone)


def test_a_watch_cut_in_a_line(api_proxy: ApiProxy, watch: Watch, pods: Pods) -> None:
    """The line comes in half and the connection breaks."""
    api_proxy.cut(when=watches("pods"))
    pods.create("one", running=False)
    wait_until(lambda: watch.end is not None)
    with pytest.raises(ValueError):
        json.loads(b"".join(watch.lines))
    assert watch.lines or isinstance(watch.end, http.client.IncompleteRead)


def test_a_list_cut(api_proxy: ApiProxy, api: Api) -> None:
    """Less comes than the length that was announced."""
    api_proxy.cut(when=lists("namespaces"))
    with pytest.raises(OSError, match="IncompleteRead"):
        api.call("GET", "/api/v1/namespaces")
    assert api.call("GET", "/api/v1/namespaces").status == 200


def test_a_list_edited(api_proxy: ApiProxy, api: Api) -> None:
    """A whole answer can be another one."""
    api_proxy.edit(lambda body: body.replace(b'"kind":"NamespaceList"', b'"kind":7'), when=lists("namespaces"))
    assert api.ask("GET", "/api/v1/namespaces")["kind"] == 7


def test_a_watch_that_ends_properly(api_proxy: ApiProxy, watch: Watch) -> None:
    """The server's own end of a watch is no error."""
    api_proxy.finish_streams()
    wait_until(lambda: watch.end is not None)
    assert watch.end == "closed"
    wait_until(lambda: not api_proxy.streams)


@pytest.mark.parametrize(("begin_min", "end_min", "words"), [(-60, -1, "expired"), (60, 120, "not yet valid")])
def test_its_certificate_may_be_out_of_time(
    control_plane: ControlPlane, tmp_path: Path, begin_min: int, end_min: int, words: str
) -> None:
    """A client refuses a certificate that has expired, or whose time has not come by its clock."""
    now = dt.datetime.now(dt.UTC)
    begin, end = (now + dt.timedelta(minutes=minutes) for minutes in (begin_min, end_min))
    with (
        ApiProxy(control_plane.api, tmp_path / "p", not_before=begin, not_after=end) as proxy,
        pytest.raises(ssl.SSLCertVerificationError, match=words),
    ):
        through(proxy, control_plane).call("GET", "/version")


def test_nothing_of_a_proxy_is_left(control_plane: ControlPlane, tmp_path: Path, namespace: str) -> None:
    """Its end is the end of what went through it, and of its threads."""
    before = threading.active_count()
    with ApiProxy(control_plane.api, tmp_path / "p") as proxy:
        running = Watch(through(proxy, control_plane), namespace)
    with TcpProxy(control_plane.network, control_plane.port) as bytes_proxy:
        other = Watch(through(bytes_proxy, control_plane), namespace)
    for each in (running, other):
        with each:
            wait_until(lambda: each.end is not None)  # noqa: B023 - called at once
    wait_until(lambda: threading.active_count() <= before)
