"""An API server over TLS with the pods of one node: a list, and a watch without events."""

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.node import NAME, BenchNode
from tests.rig.cluster.certificates import Authority


class _Handler(BaseHTTPRequestHandler):
    """Answers lists and watches; anything else is 404."""

    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_GET(self) -> None:
        """Answer a list or a watch."""
        body = self.server.lists.get(self.path.partition("?")[0])
        is_watch = body is not None and "watch=" in self.path
        self.send_response_only(HTTPStatus.NOT_FOUND if body is None else HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        if is_watch:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.server.is_over.wait()
            self.close_connection = True
            return
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    do_POST = do_GET  # noqa: N815 - the base class looks for it by this name

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, lists: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lists = lists
        self.is_over = threading.Event()


def _list(kind: str, items: list[dict[str, Any]]) -> bytes:
    for number, item in enumerate(items):
        item["metadata"]["resourceVersion"] = str(number + 1)
    metadata = {"resourceVersion": "2000"}
    return json.dumps({"kind": kind, "apiVersion": "v1", "metadata": metadata, "items": items}).encode()


@contextmanager
def served(node: BenchNode) -> Iterator[Path]:
    """Serve the pods of a node; yields the kubeconfig."""
    authority = Authority(node.root / "authority")
    pair = authority.server("127.0.0.1")
    here = {"metadata": {"name": NAME, "uid": "a-node"}, "status": {}}
    server = _Server({"/api/v1/pods": _list("PodList", node.pods), "/api/v1/nodes": _list("NodeList", [here])})
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    address = f"https://127.0.0.1:{server.server_address[1]}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "c", "cluster": {"server": address, "certificate-authority": str(authority.certificate)}}
        ],
        "users": [{"name": "u", "user": {"token": "none"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path = node.root / "kubeconfig"
    path.write_text(json.dumps(config), encoding="utf-8")
    try:
        yield path
    finally:
        server.is_over.set()
        server.shutdown()
        server.server_close()
