"""The address of the endpoints: can it be had, and who answers there if not."""

import errno
import http.client
import socket
from http import HTTPStatus
from typing import Final

from watchdog.doctor.facts import ListenFacts
from watchdog.export.listen import explain, parse_listen

_PATIENCE_S: Final = 3.0
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
    connection = http.client.HTTPConnection(host, port, timeout=_PATIENCE_S)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        text = answer.read(1000).decode("utf-8", errors="replace").strip()
    except (OSError, http.client.HTTPException):
        return ListenFacts(listen=listen, state="taken", problem=problem)
    finally:
        connection.close()
    if answer.headers.get("Server") != "gpu-watchdog":
        return ListenFacts(listen=listen, state="taken", problem=problem)
    if answer.status == HTTPStatus.OK:
        return ListenFacts(listen=listen, state="ours")
    return ListenFacts(listen=listen, state="ours_sick", problem=text)
