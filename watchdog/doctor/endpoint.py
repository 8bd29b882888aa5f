"""The address of the endpoints: can it be had, and who answers there if not."""

import errno
import http.client
import json
import socket
from http import HTTPStatus
from typing import Final

from watchdog.doctor.facts import ListenFacts
from watchdog.export.listen import explain, parse_listen

_PATIENCE_S: Final = 3.0
_LARGEST: Final = 2**26  # of a status: some hundred bytes a process
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def look_at_listen(listen: str) -> ListenFacts:
    """Bind it for a moment, without listening; where somebody has it, ask who that is."""
    host, port = parse_listen(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        problem = str(explain(error, listen))
        if error.errno == errno.EADDRINUSE:
            return _ask(listen, _ANYWHERE.get(host, host), port, problem)
        return ListenFacts(listen=listen, state="unusable", problem=problem)
    return ListenFacts(listen=listen, state="free")


def _ask(listen: str, host: str, port: int, problem: str) -> ListenFacts:
    try:
        answer, body = _get(host, port, "/healthz", 1000)
    except (OSError, http.client.HTTPException):
        return ListenFacts(listen=listen, state="taken", problem=problem)
    if answer.headers.get("Server") != "gpu-watchdog":
        return ListenFacts(listen=listen, state="taken", problem=problem)
    sha256 = _policy_sha256(host, port)
    if answer.status == HTTPStatus.OK:
        return ListenFacts(listen=listen, state="ours", policy_sha256=sha256)
    text = body.decode("utf-8", errors="replace").strip()
    return ListenFacts(listen=listen, state="ours_sick", problem=text, policy_sha256=sha256)


def _policy_sha256(host: str, port: int) -> str:
    """Of the policy by which the daemon goes, from its status; empty where it does not say."""
    try:
        answer, body = _get(host, port, "/api/status", _LARGEST)
        said = json.loads(body) if answer.status == HTTPStatus.OK else {}
        return str(said["policy"]["sha256"])
    except (OSError, http.client.HTTPException, ValueError, TypeError, KeyError):
        return ""


def _get(host: str, port: int, path: str, most: int) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=_PATIENCE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer, answer.read(most)
    finally:
        connection.close()
