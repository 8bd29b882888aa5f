"""Requests of the tests to servers of their own on loopback, past any proxy of the environment."""

import json
import time
from collections.abc import Callable
from typing import TypeVar

from tests.node.support import pauses
from tests.rig.cluster.api import RefusedError
from tests.rig.cluster.network import LOOPBACK, Answer, exchange

T = TypeVar("T")


def ask(port: int, method: str, path: str, body: object = None) -> Answer:
    """A successful answer; `body` is an object for JSON. Raises RefusedError, and OSError where there is none."""
    sent = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} if sent else {}
    answer = exchange(LOOPBACK.open_http(port), method, path, sent, headers)
    if answer.status >= 300:
        raise RefusedError(f"{method} {path}", answer)
    return answer


def is_ready(port: int) -> bool:
    """Whether a Prometheus or an Alertmanager says that it is ready."""
    try:
        ask(port, "GET", "/-/ready")
    except (OSError, RefusedError):
        return False
    return True


def wait_for(look: Callable[[], T], what: Callable[[], str], limit_s: float) -> T:
    """Wait until something is there, and give it; fails after `limit_s`, with what there is."""
    deadline, pause_s = time.monotonic() + limit_s, pauses()
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {limit_s:.0f} s: {what()}"
        time.sleep(next(pause_s))
    return found
