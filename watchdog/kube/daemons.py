"""The watchdog's pods in a cluster, the nodes that should have one and have none, and the nodes that are not ready."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import quote

import msgspec
import tenacity
from urllib3.exceptions import ReadTimeoutError

from watchdog.core.errors import Problem
from watchdog.kube.client import LARGEST_RESPONSE, LONGEST_READ_S, Api, ApiResponse, Query
from watchdog.kube.failure import ApiError, ApiExcessError, ApiUnreachableError, DaemonError
from watchdog.kube.wire import DECODE_ERRORS, decode_json
from watchdog.options import ListenError, parse_listen

SELECTOR: Final = "app.kubernetes.io/name=gpu-memory-watchdog"  # of the chart and of Kustomize
_CONTAINER: Final = "watchdog"
_LISTEN: Final = "GPU_WATCHDOG_LISTEN"
_PORT: Final = 9837
ANSWER_S: Final = 5.0  # until a daemon's answer begins, and between its parts
WHOLE_ANSWER_S: Final = 10.0
_LIST_RIGHT: Final = (
    "an administrator binds you the role gpu-watchdog-view (`gpu-watchdog rights --for-people` prints it); if you have "
    "it in the watchdog's namespace alone, name that with --namespace"
)
_NODES_RIGHT: Final = (
    "nodes without a pod of the watchdog are not shown, nor which nodes are not ready: for that an administrator binds "
    "you the roles of `gpu-watchdog rights --for-people`"
)
_JSON: Final = "application/json"
# What `kubectl get` asks for: each node's state in a word, without its images and conditions.
_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"


class _Meta(msgspec.Struct, rename="camel", frozen=True, gc=False):
    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None
    owner_references: list[dict[str, object]] | None = None


class _Port(msgspec.Struct, rename="camel", frozen=True, gc=False):
    container_port: int = 0


class _Variable(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    value: str = ""


class _Container(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    ports: list[_Port] | None = None
    env: list[_Variable] | None = None

    @property
    def port(self) -> int:
        """The first port that it names; 0 if none."""
        return next((port.container_port for port in self.ports or () if port.container_port), 0)

    @property
    def local_port(self) -> int:
        """The port that its variables have it listen on for its own pod alone; 0 if it listens for others too."""
        listen = next((each.value for each in self.env or () if each.name == _LISTEN), "")
        with contextlib.suppress(ListenError, ValueError):
            host, port = parse_listen(listen)
            return port if ip_address(host).is_loopback else 0
        return 0


class _Requirement(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Term(msgspec.Struct, rename="camel", frozen=True, gc=False):
    match_expressions: list[_Requirement] | None = None
    match_fields: list[_Requirement] | None = None


class _Required(msgspec.Struct, rename="camel", frozen=True, gc=False):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(msgspec.Struct, rename="camel", frozen=True, gc=False):
    required_during_scheduling_ignored_during_execution: _Required | None = None


class _Affinity(msgspec.Struct, rename="camel", frozen=True, gc=False):
    node_affinity: _NodeAffinity | None = None


class _Spec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    node_name: str = ""
    containers: list[_Container] | None = None
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None

    @property
    def terms(self) -> list[_Term]:
        """The terms of the required node affinity; empty if there is none."""
        affinity = self.affinity.node_affinity if self.affinity is not None else None
        required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
        return (required.node_selector_terms or []) if required is not None else []


class _Waiting(msgspec.Struct, frozen=True, gc=False):
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct, frozen=True, gc=False):
    waiting: _Waiting | None = None
    running: dict[str, object] | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
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
    items: list[_RawPod] | None = None


class _Template(msgspec.Struct, frozen=True, gc=False):
    spec: _Spec = _Spec()


class _DaemonSetSpec(msgspec.Struct, frozen=True, gc=False):
    template: _Template = _Template()


class _RawDaemonSet(msgspec.Struct, frozen=True, gc=False):
    spec: _DaemonSetSpec = _DaemonSetSpec()


class _RawDaemonSets(msgspec.Struct, frozen=True, gc=False):
    items: list[_RawDaemonSet] | None = None


class _TableColumn(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class _TableObject(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta


class _TableRow(msgspec.Struct, frozen=True, gc=False):
    cells: list[Any] = []
    object: _TableObject | None = None


class _RawTable(msgspec.Struct, rename="camel", frozen=True, gc=False):
    column_definitions: list[_TableColumn] | None = None
    rows: list[_TableRow] | None = None


_PODS: Final = msgspec.json.Decoder(_RawPods)
_POD: Final = msgspec.json.Decoder(_RawPod)
_DAEMON_SETS: Final = msgspec.json.Decoder(_RawDaemonSets)
_NODES: Final = msgspec.json.Decoder(_RawTable)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonPod:
    """A pod of the watchdog, and the node that it is for."""

    node: str
    namespace: str
    name: str
    # The container that is the daemon, and its port.
    container: str = _CONTAINER
    port: int = _PORT
    # Whether only its own pod reaches that port, since a proxy in front of it asks for credentials.
    is_local: bool = False
    # Why it can't answer, as a clause; empty if it should.
    down: str = ""

    @property
    def title(self) -> str:
        """The pod as `namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemons:
    """The watchdog's pods in a cluster, and what is known of the nodes."""

    # By node.
    pods: tuple[DaemonPod, ...]
    # The nodes that a DaemonSet of the watchdog selects and that have no pod of it.
    bare: tuple[str, ...] = ()
    # Nodes that are not ready, and their state as `kubectl get nodes` prints it.
    unready: Mapping[str, str]
    # Why nodes without a pod are not known; None: they are.
    problem: Problem | None = None


def down_problem(daemon: DaemonPod) -> Problem:
    """Why a daemon can't answer, with the remedy."""
    return Problem(daemon.down, f"see `kubectl -n {daemon.namespace} describe pod {daemon.name}`")


def find_daemons(api: Api, namespace: str = "") -> Daemons:
    """The watchdog's pods of a namespace (empty: of all); DaemonError if they can't be listed."""
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    where = f" of namespace {namespace}" if namespace else ""
    response = request(api, f"/api/v1{within}/pods", {"labelSelector": SELECTOR, "resourceVersion": "0"})
    if not response.is_good:
        problem = response.problem(f"listing the watchdog's pods{where}")
        raise DaemonError(Problem(problem.cause, _LIST_RIGHT if response.status == 403 else problem.remedy))
    pods = _decoded(_PODS, response.body, "the list of the watchdog's pods").items
    found = [_daemon(pod) for pod in pods or () if _is_of_a_daemon_set(pod)]
    runs = {(each.node, each.namespace) for each in found if not each.down}
    # An evicted pod stays in the list beside its successor.
    found = [each for each in found if not each.down or (each.node, each.namespace) not in runs]
    ordered = tuple(sorted(found, key=lambda each: (each.node, each.namespace, each.name)))
    problems: list[Problem] = []
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    labelled = {"labelSelector": SELECTOR}
    sets = _tried(
        problems, api, f"/apis/apps/v1{within}/daemonsets", "listing the watchdog's DaemonSets", _DAEMON_SETS, labelled
    )
    metadata = {"includeObject": "Metadata", "resourceVersion": "0"}
    table = _tried(problems, api, "/api/v1/nodes", "listing the nodes", _NODES, metadata, _TABLE)
    specs = [each.spec.template.spec for each in sets.items or ()] if sets is not None else []
    return _with_nodes(ordered, specs, table, problems[0] if problems else None)


def _tried(problems: list[Problem], api: Api, *what: Any) -> Any:
    """A list; None, and why, if it can't be read."""
    try:
        return _listed(api, *what)
    except DaemonError as error:
        problems.append(error.problem)
        return None


def _with_nodes(
    pods: tuple[DaemonPod, ...], specs: Sequence[_Spec], table: _RawTable | None, problem: Problem | None
) -> Daemons:
    titles = [column.name for column in table.column_definitions or ()] if table is not None else []
    place = titles.index("Status") if "Status" in titles else len(titles)
    has_pod = {pod.node for pod in pods}
    bare, unready = [], {}
    for row in (table.rows or ()) if table is not None else ():
        if row.object is None:
            continue
        node = row.object.metadata
        state = str(row.cells[place]) if place < len(row.cells) else ""
        if state and state.split(",")[0] != "Ready":
            unready[node.name] = state
        if node.name not in has_pod and any(_selects(spec, node.labels or {}) for spec in specs):
            bare.append(node.name)
    return Daemons(pods=pods, bare=tuple(sorted(bare)), unready=unready, problem=problem)


def _selects(spec: _Spec, labels: Mapping[str, str]) -> bool:
    """Whether a pod template's node selector and node affinity fit a node's labels."""
    if any(labels.get(key) != value for key, value in (spec.node_selector or {}).items()):
        return False
    return not spec.terms or any(
        term.match_expressions and all(_fits(each, labels) for each in term.match_expressions) for term in spec.terms
    )


def _fits(wanted: _Requirement, labels: Mapping[str, str]) -> bool:
    """Whether labels fit a requirement, as in nodeaffinity of k8s.io/component-helpers; Gt and Lt always do here."""
    value, values = labels.get(wanted.key), wanted.values or []
    match wanted.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "DoesNotExist":
            return value is None
        case "Exists":
            return value is not None
        case _:
            return True


def _is_of_a_daemon_set(pod: _RawPod) -> bool:
    """Whether it is a daemon's: the hooks of the chart have the same label."""
    return any(owner.get("kind") == "DaemonSet" for owner in pod.metadata.owner_references or ())


def _daemon(pod: _RawPod) -> DaemonPod:
    meta, containers = pod.metadata, pod.spec.containers or ()
    # Something in front of it, a proxy that asks for credentials, may have a port too.
    chosen = min(containers, key=lambda each: (each.name != _CONTAINER, not each.ports), default=_Container(_CONTAINER))
    return DaemonPod(
        node=pod.spec.node_name or _meant_node(pod.spec),
        namespace=meta.namespace,
        name=meta.name,
        container=chosen.name,
        port=chosen.local_port or chosen.port or _PORT,
        is_local=bool(chosen.local_port),
        down=_down(pod, chosen.name),
    )


def _meant_node(spec: _Spec) -> str:
    """The node that the DaemonSet's controller made a pod for that is not scheduled yet; empty if it does not say."""
    fields = [each for term in spec.terms for each in term.match_fields or ()]
    return next((each.values[0] for each in fields if each.key == "metadata.name" and each.values), "")


def _down(pod: _RawPod, container: str) -> str:
    states = [each.state for each in pod.status.container_statuses or () if each.name == container]
    if pod.status.phase == "Running" and any(state.running is not None for state in states):
        return ""
    waiting = next((state.waiting for state in states if state.waiting is not None), _Waiting())
    reasons = [pod.status.reason or waiting.reason, waiting.message]
    shown = ": ".join(filter(None, (pod.status.phase or "Unknown", *reasons)))
    return f"its pod {pod.metadata.namespace}/{pod.metadata.name} does not run ({shown})"


def node_of_pod(api: Api, namespace: str, name: str) -> str:
    """The node that a pod is bound to, empty if none; DaemonError if it can't be read or is gone."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
    response = request(api, path)
    if not response.is_good:
        raise DaemonError(response.problem(f"reading pod {namespace}/{name}"))
    pod: _RawPod = _decoded(_POD, response.body, f"pod {namespace}/{name}")
    return pod.spec.node_name


def _listed(
    api: Api, path: str, what: str, decoder: "msgspec.json.Decoder[Any]", query: Query, accept: str = _JSON
) -> Any:
    response = request(api, path, query, accept=accept)
    if not response.is_good:
        problem = response.problem(what)
        raise DaemonError(Problem(problem.cause, _NODES_RIGHT if response.status == 403 else problem.remedy))
    return _decoded(decoder, response.body, what)


def _decoded(decoder: "msgspec.json.Decoder[Any]", body: bytes, what: str) -> Any:
    try:
        return decode_json(decoder, body)
    except DECODE_ERRORS as error:
        raise DaemonError(Problem(f"{what}: the answer can't be read: {error}")) from error


_BUSY: Final = frozenset({429, 503})


def _is_passing(outcome: tenacity.RetryCallState) -> bool:
    """Whether a request failed in a way that the next attempt may not: a broken connection, or a busy API server."""
    if outcome.outcome is None:
        return False
    error = outcome.outcome.exception()
    if error is not None:
        is_lasting = isinstance(error, ApiExcessError) or isinstance(error.__cause__, ReadTimeoutError)
        return isinstance(error, ApiUnreachableError) and not is_lasting
    response = outcome.outcome.result()
    return response.status in _BUSY and response.retry_after_s is not None


def request(
    api: Api,
    path: str,
    query: Query | None = None,
    *,
    accept: str = _JSON,
    largest: int = LARGEST_RESPONSE,
    longest_s: float = LONGEST_READ_S,
) -> ApiResponse:
    """The API server's answer to a GET, up to three attempts; DaemonError if none comes, or more or for longer."""
    patiently = tenacity.Retrying(
        retry=_is_passing,
        stop=tenacity.stop_after_attempt(3),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=2.0),
        retry_error_callback=lambda state: state.outcome and state.outcome.result(),
    )

    def ask() -> ApiResponse:
        with contextlib.closing(api.open(path, query, read_timeout_s=ANSWER_S, accept=accept)) as stream:
            return stream.read(largest, longest_s)

    try:
        return patiently(ask)
    except ApiError as error:
        raise DaemonError(error.problem) from error
