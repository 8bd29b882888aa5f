"""Requests of the tests to servers of their own on loopback, past any proxy of the environment."""

import http.client
import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class RefusedError(RuntimeError):
    """The server answered with an error; the message is what it said."""


def ask(port: int, method: str, path: str, body: object = None, *, kind: str = "application/json") -> bytes:
    """The body of a successful answer; `body` is bytes of this kind, or an object for JSON.

    Raises RefusedError, and OSError where there is no answer.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, body=sent, headers={"Content-Type": kind} if sent is not None else {})
        response = connection.getresponse()
        answer = response.read()
    except http.client.HTTPException as error:
        raise OSError(f"{method} {path}: {error!r}") from error
    finally:
        connection.close()
    if response.status >= 300:
        raise RefusedError(f"{method} {path}: {response.status} {answer[:2000].decode(errors='replace')}")
    return answer


def query_json(port: int, method: str, path: str, body: object = None) -> Any:
    """The same, as the JSON that it is."""
    return json.loads(ask(port, method, path, body))


def is_ready(port: int) -> bool:
    """Whether a Prometheus or an Alertmanager says that it is ready."""
    try:
        ask(port, "GET", "/-/ready")
    except (OSError, RefusedError):
        return False
    return True


def wait_for(look: Callable[[], T], what: Callable[[], str], limit_s: float) -> T:
    """Wait until something is there, and give it; fails after `limit_s`, with what there is."""
    deadline = time.monotonic() + limit_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {limit_s:.0f} s: {what()}"
        time.sleep(0.05)
    return found
