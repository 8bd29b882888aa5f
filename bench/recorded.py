"""A node's pods as the API server writes them, served over HTTP: one list, and a watch with so many updates."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

PODS: Final = 250
UPDATES: Final = 1000
POD_BYTES: Final = 10_000
SEQUENCE: Final = "sequence"


def pod(number: int, version: int) -> dict[str, Any]:
    """A running pod of about 10 kB, a good part of it `managedFields`, as the API server sends them."""
    uid = f"{number:08x}-1111-4222-8333-444444444444"
    env = [{"name": f"VARIABLE_{index}", "value": f"value-{index}-" + "x" * 20} for index in range(20)]
    mounts = [{"name": f"volume-{index}", "mountPath": f"/mnt/volume-{index}", "readOnly": True} for index in range(6)]
    volumes = [
        {"name": f"volume-{index}", "configMap": {"name": f"c-{index}", "defaultMode": 420}} for index in range(6)
    ]
    names = ("main", "proxy")
    image = "registry.example.org/team/trainer:2025.1"
    found: dict[str, Any] = {
        "metadata": {
            "name": f"trainer-{number:04d}",
            "generateName": "trainer-",
            "namespace": f"team-{number % 10}",
            "uid": uid,
            "resourceVersion": str(version),
            "creationTimestamp": "2025-01-01T00:00:00Z",
            "labels": {"app": "trainer", "tier": "prod", "pod-template-hash": f"{number:010x}"},
            "annotations": {SEQUENCE: str(version), **{f"example.org/note-{each}": "y" * 40 for each in range(5)}},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "trainer", "uid": uid, "controller": True}
            ],
        },
        "spec": {
            "volumes": volumes,
            "containers": [
                {
                    "name": name,
                    "image": image,
                    "env": env,
                    "resources": {
                        "limits": {"veriff.com/gpu-memory": "4Gi"},
                        "requests": {"veriff.com/gpu-memory": "4Gi"},
                    },
                    "volumeMounts": mounts,
                    "imagePullPolicy": "IfNotPresent",
                }
                for name in names
            ],
            "nodeName": "n1",
            "restartPolicy": "Always",
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": "2025-01-01T00:00:01Z"}
                for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [
                {
                    "name": name,
                    "image": image,
                    "imageID": image,
                    "containerID": f"containerd://{number:063x}{index}",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": "2025-01-01T00:00:01Z"}},
                }
                for index, name in enumerate(names)
            ],
        },
    }
    return _filled(found)


def _filled(found: dict[str, Any]) -> dict[str, Any]:
    """With as many managed fields as it takes to make it as large as it shall be."""
    fields: dict[str, object] = {}
    missing = POD_BYTES - len(json.dumps(found, separators=(",", ":"))) - 150
    for index in range(missing // 40):
        fields[f"f:field-number-{index:05d}"] = {".": {}, "f:name": {}}
    managed = {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": "2025-01-01T00:00:02Z"}
    found["metadata"]["managedFields"] = [{**managed, "fieldsType": "FieldsV1", "fieldsV1": fields}]
    return found


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class _Handler(BaseHTTPRequestHandler):
    """Answers a list and a watch of pods; nothing else is asked here."""

    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_GET(self) -> None:
        """One of the two."""
        if "watch=" in self.path:
            self._stream()
            return
        body = self.server.listed
        self.send_response_only(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> None:
        self.send_response_only(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in self.server.lines:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.server.released.wait()  # the watch stays open until the measurement is over
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.released = threading.Event()
        items = [pod(number, 1000 + number) for number in range(PODS)]
        head = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "2000"}}
        self.listed = _dump({**head, "items": items})
        kind = {"kind": "Pod", "apiVersion": "v1"}
        self.lines = [
            _dump({"type": "MODIFIED", "object": {**kind, **pod(number % PODS, 2001 + number)}}) + b"\n"
            for number in range(UPDATES)
        ]


@contextmanager
def recorded(folder: Path) -> Iterator[Path]:
    """Serve it; gives a kubeconfig."""
    server = _Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}],
        "users": [{"name": "u", "user": {"token": "none"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config), encoding="utf-8")
    try:
        yield path
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
