"""WebSockets through the API server into a pod of the watchdog: a request to its port, and a command in it.

Both go to the kubelet, so they work where the network keeps the API server from the pods.
"""

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import msgspec
import websocket

from watchdog.core.errors import Problem
from watchdog.kube.client import Api, ApiResponse
from watchdog.kube.daemons import ANSWER_S, WHOLE_ANSWER_S, DaemonPod
from watchdog.kube.failure import ApiError, DaemonError, explain
from watchdog.kube.official import ApiException
from watchdog.kube.wire import DECODE_ERRORS

# isort: split
# After `official`: before it, all parts of the client would be imported.
from kubernetes.stream import ws_client
from kubernetes.stream.ws_client import WSClient, get_websocket_url, portforward_call

_ROLES: Final[Mapping[str, str]] = {"portforward": "gpu-watchdog-view", "exec": "gpu-watchdog-operate"}
_STDOUT, _STDERR, _ERROR = 1, 2, 3  # channels: remotecommand/constants.go in k8s.io/apimachinery
_TURN_S: Final = 1.0
_SILENT_S: Final = 60.0
_AGAIN: Final = "the API server or the kubelet may be restarting: try again"
_KINDS: Final = {"portforward": "a port-forward to its pod", "exec": "a command in its pod"}


class _Cause(msgspec.Struct, frozen=True, gc=False):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True, gc=False):
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct, frozen=True, gc=False):
    status: str = ""
    message: str = ""
    details: _Details | None = None


_STATUS: Final = msgspec.json.Decoder(_Status)


class NoRightError(DaemonError):
    """The API server refuses this account a connection into a pod."""


class HangsError(DaemonError):
    """The daemon takes a connection, and does not answer."""


def right_remedy(role: str, namespace: str) -> str:
    """The remedy for a right of a person that is missing."""
    return (
        f"an administrator binds you the role {role} in namespace {namespace} (`gpu-watchdog rights --for-people` "
        "prints it)"
    )


def excess(daemon: DaemonPod, largest: int) -> DaemonError:
    """The error for an answer that is larger, or takes longer, than any of a daemon."""
    cause = f"its answer exceeds {largest // 2**10:,} KiB, or takes more than {WHOLE_ANSWER_S:.0f} s"
    return DaemonError(Problem(cause, log_remedy(daemon)))


def log_remedy(daemon: DaemonPod) -> str:
    """The remedy for an answer that is none of a daemon."""
    return f"see its log, and whether it is a daemon: `kubectl -n {daemon.namespace} logs {daemon.name}`"


def ask_by_port_forward(api: Api, daemon: DaemonPod, path: str, largest: int) -> tuple[int, bytes]:
    """The status and the body of a daemon's answer to a GET, by a connection of its own; DaemonError."""
    forward = _connected(api, daemon, portforward_call, "portforward", [("ports", str(daemon.port))])
    connection = http.client.HTTPConnection("localhost", daemon.port, timeout=ANSWER_S)
    connection.sock = forward.socket(daemon.port)
    connection.sock.settimeout(ANSWER_S)
    # What comes byte by byte never runs into that timeout.
    until_s = time.monotonic() + WHOLE_ANSWER_S
    limit = threading.Timer(WHOLE_ANSWER_S, _cut, (connection.sock,))
    limit.daemon = True
    limit.start()
    try:
        connection.request("GET", path, headers={"Accept": "application/json", "Connection": "close"})
        response = connection.getresponse()
        body = response.read(largest + 1)
    except TimeoutError as error:
        if not forward.connected:
            raise DaemonError(Problem("the connection of the port-forward to its pod broke", _AGAIN)) from error
        cause = f"its daemon takes a connection and does not answer within {ANSWER_S:.0f} s"
        raise HangsError(Problem(cause, log_remedy(daemon))) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = forward.error(daemon.port) or str(error) or type(error).__name__
        raise DaemonError(Problem(f"the port-forward to its pod gives no answer: {' '.join(why.split())}")) from error
    finally:
        limit.cancel()
        forward.close()
    if len(body) > largest or time.monotonic() >= until_s:
        raise excess(daemon, largest)
    return response.status, body


def _cut(connection: socket.socket) -> None:
    """End a connection for its reader."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where a command's output goes, as it comes."""

    out: Callable[[bytes], object]
    err: Callable[[bytes], object]


def run_in_pod(api: Api, daemon: DaemonPod, command: Sequence[str], output: Output, *, follows: bool = False) -> int:
    """Run a command in a daemon's pod until it ends, and pass on what it prints; its exit code, or DaemonError.

    `follows`: it may be silent for as long as it likes, and gets a standard input that ends when this function is left.
    """
    query = [("command", list(command)), ("container", daemon.container), ("stdout", "true"), ("stderr", "true")]
    query += [("stdin", "true")] if follows else []
    client = _connected(api, daemon, _open_exec, "exec", query)
    ended, last_s = bytearray(), time.monotonic()
    with contextlib.closing(client):
        while True:
            is_open = client.is_open()
            try:
                client.update(timeout=_TURN_S)
            except (websocket.WebSocketException, OSError) as error:
                where = f"the connection to pod {daemon.namespace}/{daemon.name}"
                raise DaemonError(explain(error, where)) from error
            for channel, write in ((_STDOUT, output.out), (_STDERR, output.err), (_ERROR, ended.extend)):
                if data := client.read_channel(channel):
                    write(data)
                    last_s = time.monotonic()
            if not is_open:
                return _code(bytes(ended))
            if not follows and time.monotonic() > last_s + _SILENT_S:
                raise DaemonError(
                    Problem(f"the command in its pod prints nothing for {_SILENT_S:.0f} s", log_remedy(daemon))
                )


def _code(ended: bytes) -> int:
    """The exit code in the Status with which an exec ends (`ExitCode` in k8s.io/kubelet's remotecommand)."""
    try:
        status = _STATUS.decode(ended)
    except DECODE_ERRORS as error:
        raise DaemonError(Problem("the connection broke before the command in its pod had ended")) from error
    if status.status == "Success":
        return 0
    causes = status.details.causes if status.details is not None else None
    code = next((each.message for each in causes or () if each.reason == "ExitCode"), "")
    if not code.isdecimal():
        raise DaemonError(Problem(f"the command could not be run in its pod: {status.message or 'no reason is given'}"))
    return int(code)


class _OneFrame(WSClient):
    """A client that returns after each frame: the official one goes on as long as there are more, in memory."""

    def _frames_immediately_available(self) -> bool:
        return False


def _open_exec(configuration: Any, _method: str, url: str, *, query_params: Any, headers: Any) -> Any:
    address = get_websocket_url(url, query_params)  # type: ignore[no-untyped-call]
    return _OneFrame(configuration, address, headers, capture_all=False, binary=True)  # type: ignore[no-untyped-call]


class _WebSocket(websocket.WebSocket):
    """A WebSocket that follows no redirect: its handshake has the credentials."""

    def connect(self, url: str, **options: Any) -> None:
        super().connect(url, redirect_limit=0, **options)  # type: ignore[no-untyped-call]
        status = self.getstatus() or 0
        if status != HTTPStatus.SWITCHING_PROTOCOLS:
            headers = self.getheaders()
            self.shutdown()  # type: ignore[no-untyped-call]
            raise websocket.WebSocketBadStatusException("Handshake status %d", status, None, headers, b"")


vars(ws_client)["WebSocket"] = _WebSocket  # the official client has no parameter for it


def _connected(api: Api, daemon: DaemonPod, call: Callable[..., Any], kind: str, query: list[tuple[str, Any]]) -> Any:
    websocket.setdefaulttimeout(ANSWER_S)
    pod = f"/api/v1/namespaces/{quote(daemon.namespace, safe='')}/pods/{quote(daemon.name, safe='')}"
    try:
        configuration, token = api.access()
        headers = {"authorization": token} if token else {}
        url = f"{configuration.host}{pod}/{kind}"
        return call(configuration, "GET", url, query_params=query, headers=headers)
    except ApiError as error:
        raise DaemonError(error.problem) from error
    except (ApiException, websocket.WebSocketException, OSError, ValueError) as error:
        cause = error.__context__ if isinstance(error, ApiException) else error
        if not isinstance(cause, websocket.WebSocketBadStatusException):
            raise DaemonError(explain(cause or error, api.host)) from error
        response = ApiResponse(cause.status_code, cause.resp_body or b"", cause.resp_headers or {})
        problem = response.problem(_KINDS[kind])
        remedy = problem.remedy
        if response.status == HTTPStatus.FORBIDDEN:
            missing = f"you may not get and create pods/{kind}"
            raise NoRightError(Problem(missing, right_remedy(_ROLES[kind], daemon.namespace))) from error
        if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            remedy = f"see whether its kubelet answers: `kubectl describe node {daemon.node}`"
        raise DaemonError(Problem(problem.cause, remedy)) from error
