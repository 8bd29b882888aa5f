"""The watchdog's pods in a cluster, and questions to them through the API server's proxy."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import msgspec

from watchdog.core.errors import Problem
from watchdog.kube.client import Api, ApiResponse
from watchdog.kube.failure import ApiError
from watchdog.kube.wire import DECODE_ERRORS, decode_json

SELECTOR: Final = "app.kubernetes.io/name=gpu-memory-watchdog"  # of the chart and of Kustomize
_PORT: Final = 9837
_ANSWER_S: Final = 5.0
_LIST_RIGHT: Final = (
    "an administrator gives you `list` on pods (`gpu-watchdog rights --for-people`); if you have it in the watchdog's "
    "namespace alone, name that with --namespace"
)
_PROXY_RIGHT: Final = (
    "an administrator gives you `get` on pods/proxy in the watchdog's namespace (`gpu-watchdog rights --for-people`)"
)
_UNREACHABLE: Final = (
    "let the API server reach port {port} of the watchdog's pods (NetworkPolicy, firewall); until then ask in the pod: "
    "`kubectl -n {namespace} exec {name} -- gpu-watchdog top --once`"
)


class _Meta(msgspec.Struct, rename="camel", frozen=True, gc=False):
    name: str
    namespace: str = ""
    owner_references: list[dict[str, object]] | None = None


class _Port(msgspec.Struct, rename="camel", frozen=True, gc=False):
    container_port: int = 0


class _Container(msgspec.Struct, frozen=True, gc=False):
    ports: list[_Port] | None = None


class _Spec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    node_name: str = ""
    containers: list[_Container] = []


class _Waiting(msgspec.Struct, frozen=True, gc=False):
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct, frozen=True, gc=False):
    waiting: _Waiting | None = None
    running: dict[str, object] | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, gc=False):
    state: _State = _State()


class _PodStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    phase: str = ""
    reason: str = ""
    container_statuses: list[_ContainerStatus] | None = None


class _RawPod(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta
    spec: _Spec = _Spec()
    status: _PodStatus = _PodStatus()


class _RawPods(msgspec.Struct, frozen=True, gc=False):
    items: list[_RawPod] = []


_PODS: Final = msgspec.json.Decoder(_RawPods)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonPod:
    """A pod of the watchdog, and the node that it is for."""

    node: str
    namespace: str
    name: str
    port: int = _PORT
    # Why it can't answer, as a clause; empty if it should.
    down: str = ""


class DaemonError(Exception):
    """A question to one daemon, or to all of them, has no answer."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def find_daemons(api: Api, namespace: str = "") -> tuple[DaemonPod, ...]:
    """The watchdog's pods of a namespace (empty: of all), by node; DaemonError if they can't be listed."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods" if namespace else "/api/v1/pods"
    where = f" of namespace {namespace}" if namespace else ""
    response = _request(api, path, {"labelSelector": SELECTOR, "resourceVersion": "0"})
    if not response.is_good:
        problem = response.problem(f"listing the watchdog's pods{where}")
        raise DaemonError(Problem(problem.cause, _LIST_RIGHT if response.status == 403 else problem.remedy))
    try:
        pods = decode_json(_PODS, response.body).items
    except DECODE_ERRORS as error:
        raise DaemonError(Problem(f"the list of the watchdog's pods can't be read: {error}")) from error
    found = [_daemon(pod) for pod in pods if _is_of_a_daemon_set(pod)]
    return tuple(sorted(found, key=lambda each: (each.node, each.namespace, each.name)))


def _is_of_a_daemon_set(pod: _RawPod) -> bool:
    """Whether it is a daemon's: the hooks of the chart have the same label."""
    return any(owner.get("kind") == "DaemonSet" for owner in pod.metadata.owner_references or ())


def _daemon(pod: _RawPod) -> DaemonPod:
    ports = [port.container_port for each in pod.spec.containers for port in each.ports or () if port.container_port]
    meta = pod.metadata
    return DaemonPod(
        node=pod.spec.node_name,
        namespace=meta.namespace,
        name=meta.name,
        port=ports[0] if ports else _PORT,
        down=_down(pod),
    )


def _down(pod: _RawPod) -> str:
    states = [each.state for each in pod.status.container_statuses or ()]
    if pod.status.phase == "Running" and any(state.running is not None for state in states):
        return ""
    waiting = next((state.waiting for state in states if state.waiting is not None), _Waiting())
    reasons = [pod.status.reason or waiting.reason, waiting.message]
    shown = ": ".join(filter(None, (pod.status.phase or "Unknown", *reasons)))
    return f"its pod {pod.metadata.namespace}/{pod.metadata.name} does not run ({shown})"


def ask_daemon(api: Api, daemon: DaemonPod, path: str) -> bytes:
    """What a daemon answers under a path, through the API server's proxy; DaemonError says why it does not."""
    if daemon.down:
        remedy = f"see `kubectl -n {daemon.namespace} describe pod {daemon.name}`"
        raise DaemonError(Problem(daemon.down, remedy))
    where = f"/api/v1/namespaces/{quote(daemon.namespace, safe='')}/pods/{quote(daemon.name, safe='')}:{daemon.port}"
    response = _request(api, f"{where}/proxy{path}", {})
    if response.is_good:
        return response.body
    if response.status == 403 and response.reason:
        problem = response.problem("the proxy to its pod")
        raise DaemonError(Problem(problem.cause, _PROXY_RIGHT))
    if response.reason or "dial tcp" in response.message:
        remedy = _UNREACHABLE.format(port=daemon.port, namespace=daemon.namespace, name=daemon.name)
        raise DaemonError(Problem(f"the API server does not reach its pod: {response.message}", remedy))
    raise DaemonError(Problem(f"its daemon answers {response.status}: {response.message}"))


def _request(api: Api, path: str, query: dict[str, str]) -> ApiResponse:
    try:
        return api.call("GET", path, query, read_timeout_s=_ANSWER_S)
    except ApiError as error:
        raise DaemonError(error.problem) from error
