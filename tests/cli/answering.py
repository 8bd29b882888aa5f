"""A daemon that answers with the status that a test wants: what a real one shows only for a moment."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from watchdog.journal.lock import NodeLock
from watchdog.report.text import rfc3339

ENFORCING = {"mode": "enforce", "enforcing": True, "suspended": []}
STOPPED = {"mode": "enforce", "enforcing": False, "suspended": ["stop_file"]}
OBSERVING = {"mode": "observe", "enforcing": False, "suspended": []}


@contextmanager
def answering(shows: dict[str, Any], ago_s: float, **health: Any) -> Iterator[str]:
    """The address of one whose last cycle was so long ago; `health` is what it reports of itself."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            at = rfc3339(time.time() - ago_s)
            status = {"node": "n1", "at": at, "accounts": [], "plan": [], **shows, "health": health or None}
            body = json.dumps(status).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def locked(journal: Path) -> Iterator[None]:
    """Hold the lock as a daemon with this journal does."""
    lock = NodeLock(journal)
    assert lock.acquire()
    try:
        yield
    finally:
        lock.release()
