"""A daemon that answers with the status that a test wants: what a real one shows only for a moment."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import test_client
from watchdog.journal.lock import NodeLock
from watchdog.report.text import rfc3339

ENFORCING = {"mode": "enforce", "enforcing": True, "suspended": []}
STOPPED = {"mode": "enforce", "enforcing": False, "suspended": ["stop_file"]}
OBSERVING = {"mode": "observe", "enforcing": False, "suspended": []}


@contextmanager
def answering(shows: dict[str, Any], ago_s: float, **health: Any) -> Iterator[str]:
    """The address of one whose last cycle was so long ago; `health` is what it reports of itself."""
    at = rfc3339(time.time() - ago_s)
    status = {"node": "n1", "at": at, "accounts": [], "plan": [], **shows, "health": health or None}
    with test_client.answering(test_client.http(json.dumps(status).encode())) as (url, _):
        yield url


@contextmanager
def locked(journal: Path) -> Iterator[None]:
    """Hold the lock as a daemon with this journal does."""
    lock = NodeLock(journal)
    assert lock.acquire()
    try:
        yield
    finally:
        lock.release()
