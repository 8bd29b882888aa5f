"""Tokens that are rotated under an informer: in a file that a kubeconfig names, and in a pod's service account."""

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.node.support import REPOSITORY, need_root, wait_until
from tests.rig.cluster.accounts import Account
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.credentials import in_a_pod
from tests.rig.cluster.informer_rig import Follow
from tests.rig.cluster.network import LOOPBACK
from tests.rig.cluster.pods import Pods
from tests.rig.cluster.tcp_proxy import TcpProxy

pytestmark = pytest.mark.slow

_FOLLOW = textwrap.dedent(
    """
    import json, sys, time
    from watchdog import clock
    from watchdog.clock import Bell
    from watchdog.kube.client import Api
    from watchdog.kube.informers import PodInformer

    informer = PodInformer(Api(), sys.argv[1], Bell())
    informer.start()
    while True:
        names = sorted(pod.name for pod in informer.read(clock.now()).pods)
        print(json.dumps({"names": names, "problem": str(informer.view.problem or "")}), flush=True)
        time.sleep(0.1)
    """
)
Line = dict[str, Any]


class Tokens:
    """The tokens of an account: the first one is refused after 20 s or so."""

    def __init__(self, account: Account) -> None:
        plane, identity = account.plane, account.identity
        path = f"/api/v1/namespaces/{identity.namespace}/serviceaccounts/{identity.name}"
        uid = plane.api.ask("GET", path)["metadata"]["uid"]
        self._plane = plane
        # The server takes a token for a minute longer than it says (DefaultLeeway in go-jose/jwt).
        self.first = plane.signer.token(identity.namespace, identity.name, uid, begins_s=-100, lasts_s=60)
        self.next = account.token

    def wait_until_refused(self) -> None:
        """Until the server takes the first token no more."""
        wait_until(lambda: self._plane.api.call("GET", "/version", token=self.first).status == 401)


def test_a_token_file(
    control_plane: ControlPlane, observer: Account, follow: Follow, tcp_proxy: TcpProxy, tmp_path: Path
) -> None:
    """A token that was replaced in its file: the first 401 reads it again and tries at once; no list is made."""
    tokens, file = Tokens(observer), tmp_path / "token"
    file.write_text(tokens.first)
    config = control_plane.kubeconfig(token="here", server=tcp_proxy.url)
    config.write_text(config.read_text().replace('"token": "here"', f'"tokenFile": "{file}"'))
    with follow("old", config=config) as followed:
        followed.begin("old")
        file.write_text(tokens.next + "\n")
        tokens.wait_until_refused()
        followed.forget()
        tcp_proxy.cut()
        followed.create()
        followed.wait_for("old", "new")
        assert [(one.verb, one.code) for one in followed.asked()] == [("watch", 401), ("watch", 200)]
        assert followed.problem == ""


def test_the_service_account_of_a_pod(
    control_plane: ControlPlane, pods: Pods, observer: Account, tcp_proxy: TcpProxy, tmp_path: Path
) -> None:
    """In a pod, where the kubelet swaps a link: the next watch uses the new token, and no list is made."""
    need_root()
    node = pods.node()
    pods.create("old", node=node)
    tokens, mount = Tokens(observer), tmp_path / "mount"
    write_token(control_plane, mount, "1", tokens.first)
    since_s = time.time()
    with following(mount, tcp_proxy, node) as lines:
        problem_at(lines, "old")
        write_token(control_plane, mount, "2", tokens.next)
        tokens.wait_until_refused()
        tcp_proxy.cut()
        pods.create("new", node=node, running=False)
        assert problem_at(lines, "new", "old") == ""
        seen = control_plane.requests(user_agent="gpu-memory-watchdog/", since=since_s)
        verbs = [(one.verb, one.code) for one in seen if one.resource == "pods"]
        assert verbs[:2] == [("list", 200), ("watch", 200)]
        assert verbs[2:] in ([("watch", 401), ("watch", 200)], [("watch", 200)])


def write_token(plane: ControlPlane, mount: Path, version: str, token: str) -> None:
    """What a pod has mounted, changed as the kubelet changes it: `..data` comes to name another folder."""
    folder = mount / f"..{version}"
    folder.mkdir(parents=True)
    (folder / "token").write_text(token)
    (folder / "ca.crt").write_bytes(plane.ca.read_bytes())
    link = mount / "..new"
    link.symlink_to(folder.name)
    link.rename(mount / "..data")
    for name in ("token", "ca.crt"):
        if not (mount / name).is_symlink():
            (mount / name).symlink_to(f"..data/{name}")


@contextmanager
def following(mount: Path, proxy: TcpProxy, node: str) -> Iterator[Path]:
    """A process that follows as it would in a pod with this service account; gives the file of its lines."""
    server = {"KUBERNETES_SERVICE_HOST": LOOPBACK.address, "KUBERNETES_SERVICE_PORT": str(proxy.port)}
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **server}
    lines = mount.with_name("lines")
    with lines.open("wb") as out:
        process = subprocess.Popen([*in_a_pod(mount), sys.executable, "-c", _FOLLOW, node], stdout=out, env=environment)
    try:
        yield lines
    finally:
        process.kill()
        process.wait()


def problem_at(lines: Path, *names: str) -> str:
    """Wait until these are the pods that it knows; the problem that it has then."""
    found: list[Line] = []

    def is_there() -> bool:
        whole = [line for line in lines.read_text().splitlines(keepends=True) if line.endswith("\n")]
        found[:] = map(json.loads, whole[-1:])
        return [each["names"] for each in found] == [list(names)]

    wait_until(is_there)
    return str(found[0]["problem"])
