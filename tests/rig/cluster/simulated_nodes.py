"""Many nodes whose daemons are small servers, behind a real API server: for views of a whole cluster.

The API server's proxy refuses loopback and link-local addresses, so API server and servers share a network namespace in
which a whole prefix is local. No kubelet runs: what needs one (a port-forward, a command in a pod) fails here.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.report.build import climbing, status_document
from tests.rig.cluster.api import Object
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.network import Network
from watchdog.kube.daemons import SELECTOR
from watchdog.report.card_hours import NodeHours, OwnerHours, encode_hours
from watchdog.report.status import Moment, decode
from watchdog.report.summary import encoded, summary_of

NAMESPACE: Final = "gpu-watchdog"
PORT: Final = 9837
# For benchmarks of networks (RFC 2544); the API server has an address in it too.
_PREFIX: Final = "198.18.0.0/15"
_API_SERVER: Final = "198.19.255.1"
_LABEL: Final = dict([SELECTOR.split("=")])
_SELECTED: Final = {"nvidia.com/gpu.present": "true"}
_AT_ONCE: Final = 8
# When the journals begin.
_BEGINS_S: Final = 1_769_868_000


def address_of(number: int) -> str:
    """The address of the daemon of a node."""
    return f"198.18.{number // 250}.{number % 250 + 1}"


def node_name(number: int) -> str:
    """The name of a node."""
    return f"gpu-{number:04d}"


def pod_name(number: int) -> str:
    """The name of the daemon's pod of a node."""
    return f"gpu-watchdog-{number}"


def documents(number: int, *, accounts: int = 12, over: int = 0) -> Mapping[str, bytes]:
    """What the daemon of a node answers by path, with `accounts` accounts, `over` of them over their limit."""
    whole = status_document(climbing(9))
    (hog,) = (each for each in whole["accounts"] if each["verdict"] == "over")
    calm = {**hog, "verdict": "within", "over_since": None, "used": 2**30, "used_at_least": 2**30, "processes": []}
    hog["hour"], calm["hour"] = {"levels": "4" * 11 + "6" * 18 + "8", "marks": " " * 29 + "w"}, {"levels": "1" * 30}
    whole["node"], plan = node_name(number), whole["plan"]
    whole["accounts"], whole["plan"] = [], []
    for one in range(accounts):
        names = {"namespace": f"team-{one % 5}", "pod": f"job-{number}-{one}", "uid": f"u-{number}-{one}"}
        whole["accounts"].append({**(hog if one < over else calm), **names})
        whole["plan"] += [{**each, **names} for each in plan] if one < over else []
    status = json.dumps(whole).encode()
    return {
        "/api/status": status,
        "/api/summary": encoded(summary_of(decode(status))),
        "/api/report": encode_hours(hours_of(number)),
    }


def hours_of(number: int) -> NodeHours:
    """The card-hours of a node: an owner that all nodes have, and one of its own."""
    shared = OwnerHours(namespace="team-0", kind="Job", name="everywhere", held=4.0, used=1.0, idle=2.0, unused=0.5)
    own = OwnerHours(namespace=f"team-{number % 5}", kind="Pod", name=f"job-{number}", held=1.0, used=1.0)
    begins = Moment(_BEGINS_S)
    return NodeHours(node=node_name(number), since=begins, until=begins, begins=begins, owners=(shared, own))


class SimulatedNodes:
    """Simulated nodes in the network of a control plane; `answer` changes what the daemon of one answers."""

    def __init__(self, folder: Path, programs: Path, number: int) -> None:
        self.folder = folder
        self.number = number
        command = ["unshare", "--net", sys.executable, "-m", __name__, str(number)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        network = Network(namespace=f"/proc/{self._process.pid}/ns/net", address=_API_SERVER, port=6443)
        self.plane = ControlPlane(
            folder / "plane", programs=programs, network=network, controllers=False, scheduler=False
        )

    def start(self) -> None:
        """Start the API server, and create the nodes and the daemons' pods."""
        self.plane.__enter__()
        self.plane.make_namespace(NAMESPACE)
        template = {"metadata": {"labels": _LABEL}, "spec": {"nodeSelector": _SELECTED, "containers": _CONTAINERS}}
        spec = {"selector": {"matchLabels": _LABEL}, "template": template}
        body = _object("apps/v1", "DaemonSet", "gpu-watchdog", spec=spec, labels=_LABEL)
        self._uid = self.plane.api.ask("POST", f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets", body)["metadata"][
            "uid"
        ]
        account = _object("v1", "ServiceAccount", "default")
        self.plane.api.call("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(self._make_node, range(self.number)):
                pass

    def stop(self) -> None:
        """End everything."""
        self.plane.__exit__()
        with self._process:
            self._process.kill()

    def answer(self, number: int, way: str) -> None:
        """Let the daemon of a node behave in another way: `usual`, or one of the server's `WAYS`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{number} {way}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def heads(self) -> list[str]:
        """The heads of the requests that reached a server since the last call, each behind the address it went to."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("heads\n")
        self._process.stdin.flush()
        found: list[str] = json.loads(self._process.stdout.readline())
        return found

    def remove_pod(self, number: int) -> None:
        """Take the daemon's pod of a node away."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod_name(number)}"
        self.plane.api.call("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})

    def set_ready(self, number: int, status: str) -> None:
        """Let a node be ready (`True`), not ready or `Unknown`."""
        conditions = [{"type": "Ready", "status": status, "reason": "x", "message": "x"}]
        path = f"/api/v1/nodes/{node_name(number)}/status"
        self.plane.api.ask("PATCH", path, {"status": {"conditions": conditions}})

    def _make_node(self, number: int) -> None:
        api, name = self.plane.api, node_name(number)
        api.ask("POST", "/api/v1/nodes", _object("v1", "Node", name, labels=_SELECTED))
        self.set_ready(number, "True")
        self.add_pod(number)

    def add_pod(self, number: int) -> None:
        """Create the daemon's pod of a node, running."""
        api, name = self.plane.api, node_name(number)
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "gpu-watchdog", "uid": self._uid}
        pod = _object("v1", "Pod", pod_name(number), labels=_LABEL)
        pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        pod["spec"] = {"nodeName": name, "containers": _CONTAINERS, "nodeSelector": _SELECTED}
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        api.ask("POST", path, pod)
        address = address_of(number)
        running = [{"name": "watchdog", "state": {"running": {}}, "ready": True, **_IMAGE}]
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "containerStatuses": running}
        api.ask("PATCH", f"{path}/{pod_name(number)}/status", {"status": status})


_IMAGE: Final = {"image": "x", "imageID": "x", "restartCount": 0}
_CONTAINERS: Final = [{"name": "watchdog", "image": "x", "ports": [{"containerPort": PORT}]}]


def _object(version: str, kind: str, name: str, *, labels: Mapping[str, str] | None = None, **more: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": dict(labels or {})}, **more}


@contextmanager
def simulated_nodes(folder: Path, programs: Path, number: int) -> Iterator[SimulatedNodes]:
    """`number` simulated nodes, until the end of the block."""
    made = SimulatedNodes(folder, programs, number)
    try:
        made.start()
        yield made
    finally:
        made.stop()


# --- The servers, in a process of their own.

WAYS: Final = (
    "hang",
    "close",
    "endless",
    "drip",
    "garbage",
    "huge",
    "other-node",
    "error",
    "redirect",
    "escapes",
    "bytes",
    "digits",
)
# Where a redirect leads: a server of this process, but of no node.
ASTRAY: Final = "198.19.0.1"
_MOST_HEADS: Final = 1000
_CHUNK: Final = b"x" * 65536
# Those of the made-up cycle.
_MOMENT: Final = re.compile(rb"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z")


class _Servers:
    def __init__(self, number: int) -> None:
        self._documents = {address_of(each): documents(each, over=int(each % 50 == 7)) for each in range(number)}
        self._ways: dict[str, str] = {}
        self._heads: deque[str] = deque(maxlen=_MOST_HEADS)

    async def serve(self) -> None:
        server = await asyncio.start_server(self._answer, "0.0.0.0", PORT, backlog=512)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        print("ready", flush=True)
        while line := await reader.readline():
            if line == b"heads\n":
                print(json.dumps(list(self._heads)), flush=True)
                self._heads.clear()
                continue
            number, way = line.decode().split()
            self._ways[address_of(int(number))] = way
            print("done", flush=True)
        server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                address = writer.get_extra_info("sockname")[0]
                path = head.split()[1].decode()
                self._heads.append(f"{address} {head.decode()}")
                if not await self._write(writer, address, path):
                    break
        writer.close()

    async def _write(self, writer: asyncio.StreamWriter, address: str, path: str) -> bool:
        """Answer, or do something else; whether the connection stays."""
        path, way = path.partition("?")[0], self._ways.get(address, "usual")
        body = self._documents.get(address, {}).get(path, b"{}")
        body = _MOMENT.sub(time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()).encode(), body)
        if way == "usual":
            writer.write(_head(200, len(body)) + body)
            await writer.drain()
            return True
        if way == "hang":
            await asyncio.sleep(60)
        elif way == "drip":
            writer.write(_head(200, 2**20))
            for _ in range(600):
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.1)
        elif way in {"endless", "huge"}:
            writer.write(_head(200, 2**40 if way == "endless" else 2**27))
            for _ in range(4096):
                writer.write(_CHUNK)
                await writer.drain()
        else:
            writer.write(_odd(way, body))
        await writer.drain()
        return False


def _odd(way: str, body: bytes) -> bytes:
    """What a daemon that behaves in one of the quick ways answers instead of this body; nothing if it closes."""
    if way == "escapes":
        body = body.replace(b"job-", b"\\u001b[2J\\n! fake: ").replace(b"gpu-", b"\\u001b]0;x\\u0007")
    elif way == "other-node":
        body = body.replace(b"gpu-", b"another-")
    elif way == "bytes":
        body = body.replace(b"gpu-", b"\xff-", 1)
    elif way == "digits":  # in a field that nobody knows
        body = body[:-1] + b', "x": ' + b"9" * 5000 + b"}"
    other = {
        "close": b"",
        "garbage": _head(200, 9) + b"<html>\x1b[2",
        "error": _head(503, 12) + b"no cycle yet",
        "redirect": _REDIRECT.encode(),
    }
    return other.get(way, _head(200, len(body)) + body)


_REDIRECT: Final = f"HTTP/1.1 302 X\r\nLocation: http://{ASTRAY}:{PORT}/api/summary\r\nContent-Length: 0\r\n\r\n"


def _head(status: int, size: int) -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n".encode()


def main(arguments: Sequence[str]) -> None:
    """Serve that number of nodes in this network namespace until stdin ends."""
    for command in (("link", "set", "lo", "up"), ("route", "add", "local", _PREFIX, "dev", "lo")):
        subprocess.run(["ip", *command], check=True)
    asyncio.run(_Servers(int(arguments[0])).serve())


if __name__ == "__main__":
    main(sys.argv[1:])
