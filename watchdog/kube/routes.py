"""How each daemon is asked: through the API server's proxy, or where that does not lead there, by a port-forward."""

import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Literal
from urllib.parse import quote

from watchdog.core.errors import Problem
from watchdog.kube.client import Api, ApiResponse
from watchdog.kube.daemons import WHOLE_ANSWER_S, DaemonPod, down_problem, request
from watchdog.kube.failure import ApiExcessError, DaemonError
from watchdog.kube.streams import HangsError, ask_by_port_forward, excess, log_remedy, right_remedy

Via = Literal["proxy", "port-forward"]
_UNREACHABLE: Final = "let the API server reach port {port} of the watchdog's pods (NetworkPolicy, firewall)"
_LOCAL: Final = "its daemon listens only within its pod, as behind a proxy that asks for a token"
# After this many daemons that the proxy did not lead to, and none that it did, the others are not tried through it.
_ENOUGH: Final = 3
_PROXY_AGAIN_S: Final = 300.0
_LONGEST_MESSAGE: Final = 300


class NoRouteError(DaemonError):
    """The API server's proxy does not lead to a pod: a right is missing, or the network is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonAnswer:
    """What a daemon answered to a GET, and which way it came."""

    body: bytes
    via: Via
    # Why it did not come through the proxy; empty if it did.
    why: str = ""


class Routes:
    """Questions to daemons, from any thread, which remember for five minutes where the proxy does not lead."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = threading.Lock()
        # By namespace and name of the pod: why the proxy does not lead there, and when that was (monotonic).
        self._closed: dict[tuple[str, str], tuple[str, float]] = {}
        self._is_open = False

    def ask(self, daemon: DaemonPod, path: str, largest: int) -> DaemonAnswer:
        """What a daemon answers under a path, at most `largest` bytes; DaemonError says why it does not."""
        if daemon.down:
            raise DaemonError(down_problem(daemon))
        why = self._why_closed(daemon)
        if not why:
            try:
                answer = DaemonAnswer(body=_through_proxy(self._api, daemon, path, largest), via="proxy")
            except NoRouteError as error:
                answer = self._forwarded(daemon, path, largest, error.problem)
                # Only what was tried: a conclusion from others must not outlast theirs.
                with self._lock:
                    self._closed[daemon.namespace, daemon.name] = (answer.why, time.monotonic())
                return answer
            self._is_open = True
            return answer
        return self._forwarded(daemon, path, largest, Problem(why))

    def _forwarded(self, daemon: DaemonPod, path: str, largest: int, closed: Problem) -> DaemonAnswer:
        try:
            status, body = ask_by_port_forward(self._api, daemon, path, largest)
        except DaemonError as error:
            with self._lock:
                self._closed.pop((daemon.namespace, daemon.name), None)
            if isinstance(error, HangsError):
                raise
            both = f"{closed.cause}, and {error.problem.cause}"
            remedies = dict.fromkeys(filter(None, (closed.remedy, error.problem.remedy)))
            raise DaemonError(Problem(both, "; or ".join(remedies))) from error
        if status != HTTPStatus.OK:
            raise _unanswered(daemon, status, body.decode("utf-8", errors="replace"))
        return DaemonAnswer(body=body, via="port-forward", why=closed.cause)

    def _why_closed(self, daemon: DaemonPod) -> str:
        """Why a daemon is not to be asked through the proxy; empty: it is."""
        if daemon.is_local:
            return _LOCAL
        with self._lock:
            key, now_s = (daemon.namespace, daemon.name), time.monotonic()
            self._closed = {pod: each for pod, each in self._closed.items() if now_s - each[1] < _PROXY_AGAIN_S}
            if key in self._closed:
                return self._closed[key][0]
            is_closed = not self._is_open and len(self._closed) >= _ENOUGH
            return next(iter(self._closed.values()))[0] if is_closed else ""


def _through_proxy(api: Api, daemon: DaemonPod, path: str, largest: int) -> bytes:
    where = f"/api/v1/namespaces/{quote(daemon.namespace, safe='')}/pods/{quote(daemon.name, safe='')}:{daemon.port}"
    try:
        response = request(api, f"{where}/proxy{path}", largest=largest, longest_s=WHOLE_ANSWER_S)
    except DaemonError as error:
        if isinstance(error.__cause__, ApiExcessError):
            raise excess(daemon, largest) from error
        # The API server itself has just listed the pods: what hangs is its own connection to this one.
        raise NoRouteError(Problem("the API server's proxy to its pod does not answer", _remedy(daemon))) from error
    if response.is_good:
        return response.body
    if _is_forbidden(response):
        remedy = right_remedy("gpu-watchdog-view", daemon.namespace)
        raise NoRouteError(Problem("you may not get pods/proxy", remedy))
    if response.reason or "dial tcp" in response.message:
        why = f"the API server does not reach its pod: {response.message}"
        raise NoRouteError(Problem(why, _remedy(daemon)))
    raise _unanswered(daemon, response.status, response.message)


def _remedy(daemon: DaemonPod) -> str:
    return _UNREACHABLE.format(port=daemon.port)


def _is_forbidden(response: ApiResponse) -> bool:
    """Whether the API server refused it, and not the daemon."""
    return response.status == HTTPStatus.FORBIDDEN and bool(response.reason)


def _unanswered(daemon: DaemonPod, status: int, message: str) -> DaemonError:
    words = " ".join(message.split())[:_LONGEST_MESSAGE]
    return DaemonError(Problem(f"its daemon answers {status}{f': {words}' if words else ''}", log_remedy(daemon)))
