"""The control plane itself: what the tests beside it rely on must be true of it."""

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.cluster.api import query
from tests.cluster.control_plane import ControlPlane
from tests.cluster.network import LOOPBACK
from tests.cluster.pods import Pods
from tests.node.support import REPOSITORY, wait_until


def watch_of(namespace: str, version: str, **more: str) -> str:
    """The path of a watch that ends by itself soon."""
    more = {"timeoutSeconds": "2", **more}
    return f"/api/v1/namespaces/{namespace}/pods" + query(watch="1", resourceVersion=version, **more)


def test_requests_are_counted_at_the_server(control_plane: ControlPlane, namespace: str) -> None:
    """The audit log tells each request once: who asked, for what, the answer; a watch is open until it ends."""
    begin, agent = time.time(), {"User-Agent": "counted/1"}
    path = f"/api/v1/namespaces/{namespace}/pods"
    control_plane.api.call("GET", f"{path}/nobody", headers=agent)
    version = control_plane.api.call("GET", path, headers=agent).object["metadata"]["resourceVersion"]
    control_plane.api.call("GET", watch_of(namespace, version, timeoutSeconds="1"), headers=agent)
    control_plane.api.call("GET", path, headers=agent, token="wrong")

    def done() -> bool:
        return [seen.open for seen in control_plane.requests(user_agent="counted/1")] == [False] * 4

    wait_until(done)
    seen = control_plane.requests(user_agent="counted", since=begin)
    assert [(one.verb, one.resource, one.name, one.code, one.user) for one in seen] == [
        ("get", "pods", "nobody", 404, "admin"),
        ("list", "pods", "", 200, "admin"),
        ("watch", "pods", "", 200, "admin"),
        ("list", "pods", "", 401, ""),
    ]
    watch = seen[2]
    assert watch.namespace == namespace
    assert watch.answered_s is not None
    assert watch.ended_s is not None
    assert watch.ended_s - watch.answered_s > 0.8
    assert control_plane.requests(user_agent="counted", since=time.time()) == ()
    assert control_plane.requests(user_agent="counted", user="daemon") == ()


def test_history_ends(control_plane: ControlPlane, namespace: str, pods: Pods) -> None:
    """A watch from before is answered by an ERROR event with 410, one from the new list goes on."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    pods.create("before", running=False)
    old = control_plane.api.ask("GET", path)["metadata"]["resourceVersion"]
    control_plane.expire_history()
    answer = control_plane.api.call("GET", watch_of(namespace, old))
    assert answer.status == 200
    assert answer.object["type"] == "ERROR"
    assert answer.object["object"]["code"] == 410
    assert answer.object["object"]["reason"] == "Expired"
    listed = control_plane.api.ask("GET", path)
    assert [pod["metadata"]["name"] for pod in listed["items"]] == ["before"]
    version = listed["metadata"]["resourceVersion"]
    assert control_plane.api.call("GET", watch_of(namespace, version, timeoutSeconds="1")).body == b""
    exact = path + query(resourceVersion=old, resourceVersionMatch="Exact")
    gone = control_plane.api.call("GET", exact)
    assert (gone.status, "compacted" in gone.object["message"] or "too old" in gone.object["message"]) == (410, True)


def test_one_user_is_throttled(control_plane: ControlPlane) -> None:
    """All that the user asks for gets 429 with Retry-After, watches too; others are served; it ends."""
    tokens = {user: control_plane.token(user) for user in ("nobody", "tenant")}

    def statuses(user: str) -> set[int]:
        paths = ("/version", "/api/v1/pods", "/api/v1/pods?watch=1") * 3
        return {control_plane.api.call("GET", path, token=tokens[user]).status for path in paths}

    with control_plane.throttle("nobody"):
        answer = control_plane.api.call("GET", "/version", token=tokens["nobody"])
        assert (answer.status, int(answer.headers["Retry-After"]) >= 1) == (429, True)
        assert statuses("nobody") == {429}
        assert statuses("tenant") == {200, 403}
    assert statuses("nobody") == {200, 403}
    assert {seen.code for seen in control_plane.requests(user="nobody")} >= {429}


@pytest.mark.parametrize("hard", [False, True], ids=["by SIGTERM", "by SIGKILL"])
def test_a_restart_keeps_port_and_data(control_plane: ControlPlane, namespace: str, pods: Pods, *, hard: bool) -> None:
    """The API server comes back where it was with what it knew, soon, and nobody answers in between."""
    node = pods.node()
    pod = pods.create(node=node)
    before, port = control_plane.apiserver.pid, control_plane.port
    begin = time.monotonic()
    control_plane.stop_apiserver(hard=hard)
    with pytest.raises(OSError):
        control_plane.api.call("GET", "/readyz", timeout_s=2)
    control_plane.start_apiserver()
    assert time.monotonic() - begin < 60
    assert control_plane.port == port
    assert control_plane.apiserver.pid != before
    assert pods.read(pod)["metadata"]["uid"] == pod["metadata"]["uid"]


def test_controllers_settle_after_a_restart(control_plane: ControlPlane) -> None:
    """They are started over once, if the API server was restarted: by themselves they would come back late."""
    assert control_plane.controller_manager is not None
    control_plane.settle()
    before = control_plane.controller_manager.pid
    control_plane.settle()
    assert control_plane.controller_manager.pid == before
    control_plane.stop_apiserver(hard=True)
    control_plane.start_apiserver()
    control_plane.settle()
    assert control_plane.controller_manager.pid not in {None, before}


def test_nothing_is_left(programs: Path, tmp_path: Path) -> None:
    """After the end no process of it runs and no port is taken, also when it ends by an error."""
    pids: list[int | None] = []

    def fail(plane: ControlPlane) -> None:
        pids.extend(server.pid for server in plane.servers)
        raise RuntimeError("on purpose")

    plane = ControlPlane(tmp_path / "p", programs=programs)
    with pytest.raises(RuntimeError, match="on purpose"), plane:
        fail(plane)
    assert len(pids) == 4
    assert None not in pids
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    with pytest.raises(ConnectionRefusedError):
        LOOPBACK.connect(plane.port)


def test_servers_end_with_the_tests(tmp_path: Path) -> None:
    """A server dies with the process that started it, even if that one is killed."""
    code = f"""
        import os, signal, pathlib
        from tests.cluster.processes import Server
        server = Server("sleep", ["sleep", "60"], log=pathlib.Path({str(tmp_path / "log")!r}))
        server.start()
        server.wait_for(lambda: pathlib.Path(f"/proc/{{server.pid}}/comm").read_text() == "sleep\\n")
        print(server.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    ended = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, timeout=180, check=False)
    assert ended.returncode == -signal.SIGKILL
    wait_until(lambda: not Path(f"/proc/{int(ended.stdout)}/exe").exists())  # a zombie has none
