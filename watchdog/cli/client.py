"""Querying a daemon for its status, and what to advise if none answers."""

import contextlib
import http.client
import json
import shlex
import time
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from watchdog.core.errors import WatchdogError
from watchdog.journal.errors import JournalError, NoJournalError
from watchdog.options import parse_listen
from watchdog.report.health import NO_CYCLE_YET
from watchdog.report.status import Status, StatusError, decode
from watchdog.report.text import inert

_STATUS_PATH: Final = "/api/status"
_PATIENCE_S: Final = 5.0
_LARGEST: Final = 64 * 2**20  # bytes; a node of 250 pods and 1000 processes gives less than one MiB


class QueryError(WatchdogError):
    """The daemon did not answer, or something else did; the text names the address and what it answered."""


class NoCycleError(QueryError):
    """The daemon answers but has no data yet: it has just started, or its first driver call hangs."""


def status_url(url: str) -> str:
    """The address of the status, from the daemon's address or that of the status itself; ValueError if it isn't one."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for an invalid port
    except ValueError as error:
        raise ValueError(f"{url!r} is not an address: {error}") from error
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or not is_plain:
        raise ValueError(f"{url!r} is not an address: write http://HOST:PORT, like http://127.0.0.1:9837")
    path = parts.path.rstrip("/")
    return parts._replace(path=path if path.endswith(_STATUS_PATH) else path + _STATUS_PATH, fragment="").geturl()


def listen_url(listen: str) -> str:
    """The address at which a daemon with this --listen can be queried from its own machine; ListenError."""
    host, port = parse_listen(listen)
    # The address of "all interfaces" can't be connected to on every system.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def query_status(url: str, patience_s: float = _PATIENCE_S) -> Status:
    """The current status from the daemon at this address; QueryError, ValueError.

    Each piece may take `patience_s`, and all of it twice as long.
    """
    return _status(url, patience_s)[0]


def query_json(url: str) -> Any:
    """The status as the daemon wrote it, including keys of a later version that this one does not know."""
    try:
        return json.loads(_status(url, _PATIENCE_S)[1])
    except ValueError as error:  # an integer of more digits than Python takes, under an unknown key
        raise QueryError(
            f"what answers at {inert(status_url(url))} is not gpu-watchdog: {inert(str(error), 300)}"
        ) from error


def _status(url: str, patience_s: float) -> tuple[Status, bytes]:
    address = status_url(url)
    body = _get(address, patience_s)
    try:
        return decode(body), body
    except StatusError as error:
        raise QueryError(f"what answers at {inert(address)} is not gpu-watchdog: {error}") from error


def _get(address: str, patience_s: float) -> bytes:
    parts = urlsplit(address)
    where, deadline_s = f"the daemon does not answer at {inert(address)}", time.monotonic() + 2 * patience_s
    # http.client takes no proxy from the environment and follows no redirect: the answer comes from this very address.
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        with contextlib.closing(kind(parts.hostname or "", parts.port, timeout=patience_s)) as connection:
            headers = {"Accept": "application/json", "Connection": "close"}
            connection.request("GET", urlunsplit(("", "", *parts[2:])), headers=headers)
            response = connection.getresponse()
            if response.status // 100 == 2:
                return _body(response, where, deadline_s)
            text = inert(response.read(300).decode("utf-8", errors="replace").strip(), 300)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise QueryError(f"{where}: {_cause(error, patience_s)}") from error
    if response.status == HTTPStatus.SERVICE_UNAVAILABLE and text.startswith(NO_CYCLE_YET):
        raise NoCycleError(f"the daemon at {inert(address)} has no data yet: {text}")
    raise QueryError(f"{where}: status {response.status}{f', {text}' if text and '<' not in text else ''}")


def _body(response: http.client.HTTPResponse, where: str, deadline_s: float) -> bytes:
    body = bytearray()
    while chunk := response.read1(1 << 20):
        body += chunk
        if len(body) > _LARGEST or time.monotonic() > deadline_s:
            raise QueryError(f"{where}: its answer is too long or takes too long")
    if response.length:
        raise QueryError(f"{where}: its answer is cut short")
    return bytes(body)


def _cause(error: object, patience_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"nothing came within {patience_s:g}s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return inert(str(error) or type(error).__name__, 300)


_NAMESPACE: Final = "kubectl -n gpu-memory-watchdog"
# Where it is installed is unknown here: a pod knows only its own namespace, and a host none.
_OWN: Final = "`-n`: the namespace it is installed in"
# After 10 s `/healthz` reports that the loop hangs; the liveness probe restarts the daemon some time later.
_HANGS: Final = (
    "so nothing is known yet about any pod there, and no pod is killed or evicted: it has just started, so ask again "
    "in a few seconds; after more than 10s its first driver call hangs: check `nvidia-smi` on the node, and its kernel "
    "log for NVRM and Xid"
)
_ELSEWHERE: Final = (
    "this does not show whether a watchdog runs on the node: one of a DaemonSet can only be reached in its pod. "
    f"Find that pod, and ask there ({_OWN}):"
)
_KEPT: Final = (
    "this does not show whether a watchdog runs on the node: one of a DaemonSet may keep it where only its pod sees "
    f"it. Find that pod, and ask there ({_OWN}):"
)
_OTHERWISE: Final = (
    f"or forward its port: `{_NAMESPACE} port-forward POD 9837`. Outside of Kubernetes `gpu-watchdog run` starts "
    "one; --url and --listen name another address"
)


def inside(*arguments: str, terminal: bool = False) -> str:
    """The command line that runs a command of gpu-watchdog in the watchdog's pod of a node."""
    how = "exec -it" if terminal else "exec"
    return f"{_NAMESPACE} {how} POD -- gpu-watchdog {shlex.join(map(inert, arguments))}"


def to_run_inside(*arguments: str) -> str:
    """A command line as `inside` gives it, within a sentence, with its placeholder explained."""
    return f"`{inside(*arguments)}` ({_OWN})"


def help_lines(error: QueryError, *arguments: str, terminal: bool = False) -> tuple[str, ...]:
    """What to do about a daemon that could not be queried by a command with these arguments, in lines."""
    if isinstance(error, NoCycleError):
        return (_HANGS,)
    return (_ELSEWHERE, *_commands(*arguments, terminal=terminal), _OTHERWISE)


def without_journal(error: JournalError, *arguments: str) -> str:
    """Why a command with these arguments can't read a journal, and where a missing one may be; in lines."""
    lines = (_KEPT, *_commands(*arguments)) if isinstance(error, NoJournalError) else ()
    return "\n  ".join([str(error), *lines])


def _commands(*arguments: str, terminal: bool = False) -> tuple[str, ...]:
    return (f"  {_NAMESPACE} get pods -o wide", f"  {inside(*arguments, terminal=terminal)}")
