"""Pods, nodes and namespaces as the API writes them -> the core's values, decoded one by one.

Only the fields that are read are declared; unknown fields are ignored, known ones must fit.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Final

import msgspec

from watchdog.core.errors import Problem
from watchdog.core.keys import WantedKeys
from watchdog.core.model import Claim, Container, ContainerKind, Gap, GapReason, Node, Owner, Pod, PodKeys
from watchdog.core.units import brief
from watchdog.kube.wire import DECODE_ERRORS, Item, decode_json, name_object, split_items


class _RawClaimUse(msgspec.Struct, gc=False):
    name: str
    request: str | None = None


# Quantities are strings, or numbers if something other than the API wrote them.
class _RawResources(msgspec.Struct, gc=False):
    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None
    claims: list[_RawClaimUse] | None = None


class _RawCapabilities(msgspec.Struct, gc=False):
    add: list[str] | None = None


class _RawSecurityContext(msgspec.Struct, gc=False):
    privileged: bool | None = None
    capabilities: _RawCapabilities | None = None


class _RawContainer(msgspec.Struct, rename="camel", gc=False):
    name: str
    resources: _RawResources | None = None
    restart_policy: str | None = None
    security_context: _RawSecurityContext | None = None


class _RawPodClaim(msgspec.Struct, rename="camel", gc=False):
    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _RawRequestMapping(msgspec.Struct, rename="camel", gc=False):
    container_name: str
    resource_name: str
    request_name: str


class _RawExtendedClaim(msgspec.Struct, rename="camel", gc=False):
    resource_claim_name: str
    request_mappings: list[_RawRequestMapping] | None = None


class _RawSpec(msgspec.Struct, rename="camel", gc=False):
    containers: list[_RawContainer]
    init_containers: list[_RawContainer] | None = None
    ephemeral_containers: list[_RawContainer] | None = None
    node_name: str | None = None
    priority: int | None = None
    termination_grace_period_seconds: int | None = None
    resource_claims: list[_RawPodClaim] | None = None


class _RawTerminated(msgspec.Struct, gc=False):
    container_id: str | None = msgspec.field(default=None, name="containerID")


class _RawState(msgspec.Struct, gc=False):
    running: dict[str, msgspec.Raw] | None = None  # only its presence matters
    terminated: _RawTerminated | None = None


class _RawContainerStatus(msgspec.Struct, rename="camel", gc=False):
    name: str
    container_id: str | None = msgspec.field(default=None, name="containerID")
    state: _RawState | None = None
    last_state: _RawState | None = None


class _RawStatus(msgspec.Struct, rename="camel", gc=False):
    phase: str | None = None
    container_statuses: list[_RawContainerStatus] | None = None
    init_container_statuses: list[_RawContainerStatus] | None = None
    ephemeral_container_statuses: list[_RawContainerStatus] | None = None
    resource_claim_statuses: list[_RawPodClaim] | None = None
    extended_resource_claim_status: _RawExtendedClaim | None = None


class _RawOwnerReference(msgspec.Struct, gc=False):
    kind: str
    name: str
    controller: bool | None = None


class _RawMetadata(msgspec.Struct, rename="camel", gc=False):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    namespace: Annotated[str, msgspec.Meta(min_length=1)]
    uid: Annotated[str, msgspec.Meta(min_length=1)]
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_RawOwnerReference] | None = None
    deletion_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _RawPod(msgspec.Struct, gc=False):
    metadata: _RawMetadata
    spec: _RawSpec
    status: _RawStatus | None = None


class _RawLabelled(msgspec.Struct, gc=False):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    labels: dict[str, str] | None = None


class _RawNodeMetadata(_RawLabelled, gc=False):
    annotations: dict[str, str] | None = None
    uid: str = ""


class _RawNodeStatus(msgspec.Struct, gc=False):
    capacity: dict[str, str | int | float] | None = None


class _RawNode(msgspec.Struct, gc=False):
    metadata: _RawNodeMetadata
    status: _RawNodeStatus | None = None


class _RawNamespace(msgspec.Struct, gc=False):
    metadata: _RawLabelled


_POD: Final = msgspec.json.Decoder(_RawPod)
_NODE: Final = msgspec.json.Decoder(_RawNode)
_NAMESPACE: Final = msgspec.json.Decoder(_RawNamespace)


def decode_namespace(item: Item) -> tuple[str, Mapping[str, str]]:
    """Decode the name and labels of a namespace; an error of DECODE_ERRORS if it can't be read."""
    metadata = decode_json(_NAMESPACE, item).metadata
    return metadata.name, metadata.labels or {}


def decode_node(item: Item) -> Node:
    """Decode one node; an error of DECODE_ERRORS if it can't be read."""
    raw = decode_json(_NODE, item)
    capacity = (raw.status or _RawNodeStatus()).capacity or {}
    return Node(
        name=raw.metadata.name,
        labels=raw.metadata.labels or {},
        annotations=raw.metadata.annotations or {},
        capacity={name: str(quantity) for name, quantity in capacity.items()},
        uid=raw.metadata.uid,
    )


_CONFIG: Final = "kubernetes.io/config."
_HASH: Final = re.compile(r"[0-9a-f]{32}")
_CUT: Final = Problem(
    "it has more containers, resources, annotations or labels than are read, and the rest counts as 0",
    "ask its owner to split it: 500 containers that have not run are read, 10,000 resources in all and, besides what "
    "the policy names, 100 resources in each container (32 in a pod with more than 10,000), 200 annotations and 200 "
    "labels",
)
_FINISHED: Final = ("Succeeded", "Failed")
# Quantities of 0 (k8s.io/apimachinery/pkg/api/resource); anything else is kept as it is.
_ZERO: Final = re.compile(r"[+-]?(?:0+\.?0*|\.0+)(?:[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
NO_KEYS: Final = PodKeys()
_CHECK_WRITER: Final = "check what writes the list"
_MOST_GRACE_S: Final = 10**9  # some 30 years
_TEMPLATE_HASH: Final = "pod-template-hash"
_LONGEST_NAME: Final = 253
_ADMIN: Final = ("SYS_ADMIN", "ALL")


def decode_pod(item: Item, node: str | None = None, keys: PodKeys | None = NO_KEYS) -> Pod | None:
    """Decode one pod; with `node`, None if it is bound to another one. An error of DECODE_ERRORS if it can't be read.

    `keys` are read whatever else the pod carries, and of the others a number; None: all are read. A finished pod is
    kept: processes can outlive its phase, and it explains them.
    """
    raw = decode_json(_POD, item)
    return _pod(raw, keys) if not node or raw.spec.node_name in (None, "", node) else None


def parse_pods(
    text: bytes, node: str | None = None, keys: PodKeys | None = NO_KEYS
) -> tuple[tuple[Pod, ...], tuple[Gap, ...]]:
    """Decode a list of pods, or one, without those of another node than `node`; ValueError as `split_items`.

    An unreadable pod becomes a gap, the others count.
    """
    pods = []
    gaps = []
    for item in split_items(text, "Pod"):
        try:
            pods.append(decode_pod(item, node, keys))
        except DECODE_ERRORS as error:
            why = Problem(f"it can't be read: {error}", _CHECK_WRITER)
            gaps.append(Gap(reason=GapReason.PODS, what=f"pod {name_object(item)}", problem=why))
    distinct, more_gaps = distinct_pods(filter(None, pods), _CHECK_WRITER)
    return distinct, (*gaps, *more_gaps)


def distinct_pods(pods: Iterable[Pod], remedy: str) -> tuple[tuple[Pod, ...], tuple[Gap, ...]]:
    """The first pod of each UID, and a gap for each that has the UID of another one or lives and was not read whole."""
    by_uid: dict[str, Pod] = {}
    gaps = []
    for pod in pods:
        if pod.is_cut and not pod.is_finished:  # of which nothing counts unless a process has outlived it
            gaps.append(Gap(reason=GapReason.PODS, what=f"pod {pod.title}", problem=_CUT))
        first = by_uid.setdefault(pod.uid, pod)
        if first is not pod:
            cause = f"it has the UID {pod.uid} of {first.title}, which comes before it, so it is left out"
            gaps.append(Gap(reason=GapReason.PODS, what=f"pod {pod.title}", problem=Problem(cause, remedy)))
    return tuple(by_uid.values()), tuple(gaps)


# The API server allows 256 KiB of annotations, and whatever else etcd takes in 1.5 MiB. A tenant must gain nothing by
# that: neither the memory of the daemon, nor the room for another pod.
_MOST_CONTAINERS: Final = 500  # that have never run
_MOST_RESOURCES: Final = 100  # of one container, besides those that are named exactly
_MOST_KEYS: Final = 10_000  # resources of one pod: some 50 ms are spent on reading as many
_MOST_MATCHED: Final = 32  # by patterns, in one container of a pod with more than that
_MOST_CLAIMS: Final = 64  # of one pod
EXTENDED: Final = ""  # the entry of the claim that the scheduler makes for extended resources
_MOST_LABELS: Final = 200  # and as many annotations, besides those that are named exactly
_LONGEST_VALUE: Final = 300  # no amount or switch is longer


def _bounded(
    texts: Mapping[str, str], keys: Collection[str] | None, containers: Iterable[str]
) -> tuple[dict[str, str], bool]:
    """Labels or annotations, no value at its full length if it is long; and whether one that may count is left out.

    If there are too many, those that are named, then the shortest ones that match a pattern, then the shortest ones.
    """
    kept = {key: brief(value, _LONGEST_VALUE) for key, value in texts.items()}
    if len(kept) <= _MOST_LABELS or keys is None:
        return kept, False
    wanted = WantedKeys(keys, containers)
    named = {key: value for key, value in kept.items() if wanted.names(key)}
    matching = {key for key in kept if key not in named and wanted.matches(key)}
    others = kept.keys() - named.keys()
    by_size = sorted(others, key=lambda key: (key not in matching, len(key) + len(kept[key]), key))
    return named | {key: kept[key] for key in by_size[:_MOST_LABELS]}, len(matching) > _MOST_LABELS


def _pod(raw: _RawPod, keys: PodKeys | None) -> Pod:
    metadata, spec, status = raw.metadata, raw.spec, raw.status or _RawStatus()
    annotations, labels = metadata.annotations or {}, metadata.labels or {}
    deadline = metadata.deletion_timestamp
    every = (
        *_containers(spec.init_containers, status.init_container_statuses, ContainerKind.INIT),
        *_containers(spec.containers, status.container_statuses, ContainerKind.MAIN),
        *_containers(spec.ephemeral_containers, status.ephemeral_container_statuses, ContainerKind.EPHEMERAL),
    )
    if status.extended_resource_claim_status is not None:
        every = tuple(_with_extended(every, status.extended_resource_claim_status))
    containers, containers_cut = _bounded_containers(every, keys)
    names = [container.name for container in containers]
    noted, notes_cut = _bounded(annotations, keys.annotations if keys else None, names)
    labelled, labels_cut = _bounded(labels, keys.labels if keys else None, names)
    left_out = len(noted) < len(annotations) or len(labelled) < len(labels) or _lacks_resources(containers, every)
    return Pod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        containers=containers,
        config_hash=annotations.get(f"{_CONFIG}hash") or annotations.get(f"{_CONFIG}mirror"),
        labels=labelled,
        annotations=noted,
        owner=_owner(metadata),
        priority=spec.priority,
        static=_is_static(metadata.uid, annotations),
        is_finished=status.phase in _FINISHED,
        keys=keys if left_out else None,
        is_cut=containers_cut or notes_cut or labels_cut,
        # The API server has already added the grace period (DeletionTimestamp in k8s.io/apimachinery/pkg/apis/meta/v1).
        deletion_deadline_s=None if deadline is None else deadline.timestamp(),
        claims=_pod_claims(spec, status),
        grace_s=_grace_s(spec.termination_grace_period_seconds),
    )


def _pod_claims(spec: _RawSpec, status: _RawStatus) -> dict[str, Claim]:
    """The claims of a pod by their entries in it, a number of them; one that is made from a template is in its status.

    Finding out what each of them was given is a request, so a tenant must not have thousands of them read.
    """
    made = {each.name: each.resource_claim_name or "" for each in status.resource_claim_statuses or ()}
    entries = (spec.resource_claims or ())[:_MOST_CLAIMS]
    claims = {
        each.name: Claim(
            name=each.resource_claim_name or made.get(each.name, ""),
            template=each.resource_claim_template_name or "",
        )
        for each in entries
    }
    extended = status.extended_resource_claim_status
    return claims if extended is None else {**claims, EXTENDED: Claim(name=extended.resource_claim_name)}


def _with_extended(containers: Iterable[Container], extended: _RawExtendedClaim) -> Iterator[Container]:
    """The containers with the claim that gave them their extended resources in the place of these resources."""
    for container in containers:
        own = [each for each in extended.request_mappings or () if each.container_name == container.name]
        given = {each.resource_name for each in own}
        yield (
            replace(
                container,
                resources={key: text for key, text in container.resources.items() if key not in given},
                claims=(*container.claims, *(f"{EXTENDED}/{each.request_name}" for each in own)),
            )
            if own
            else container
        )


def _grace_s(asked_s: int | None) -> float:
    """The grace period of a spec in seconds, as the API server sets it if none is given; a kubelet gives at least 1."""
    return 30.0 if asked_s is None else float(min(max(asked_s, 1), _MOST_GRACE_S))


def shrunk(pod: Pod, keys: PodKeys) -> Pod:
    """A pod without what can be left out: containers without an ID, resources of those that do not run, keys not named.

    Its processes are still its own, and what it asks for where it runs counts.
    """
    kept = tuple(
        each if each.running else replace(each, resources={}, claims=()) for each in pod.containers if each.ids
    )
    names = [each.name for each in kept]
    annotations, labels = WantedKeys(keys.annotations, names), WantedKeys(keys.labels, names)
    return replace(
        pod,
        containers=kept,
        annotations={key: value for key, value in pod.annotations.items() if annotations.names(key)},
        labels={key: value for key, value in pod.labels.items() if labels.names(key)},
        keys=keys,
        is_cut=pod.is_cut or any(each.resources or each.claims for each in pod.containers if not each.running),
    )


def _owner(metadata: _RawMetadata) -> Owner | None:
    """The pod's controller, followed from a ReplicaSet to its Deployment where the pod's own object shows it.

    A Deployment names its ReplicaSets after itself and a hash, which its pods carry as a label (getNewReplicaSet in
    k8s.io/kubernetes/pkg/controller/deployment/sync). No other kind is followed: the name of a CronJob, for example,
    can only be guessed from that of its Job.

    The tenant can write owner references and labels. Within its own namespace, a pod can thus come under another rule,
    pretend to be a DaemonSet's to avoid an eviction, and share or escape the brakes of an owner. Nothing else depends
    on them: the brakes of the namespace and the node apply regardless.
    """
    owner = next((reference for reference in metadata.owner_references or () if reference.controller), None)
    if owner is None:
        return None
    template = (metadata.labels or {}).get(_TEMPLATE_HASH)
    deployment = owner.name.removesuffix(f"-{template}")
    if owner.kind == "ReplicaSet" and template and deployment not in ("", owner.name):
        return Owner(kind="Deployment", name=_sanitized(deployment))
    return Owner(kind=_sanitized(owner.kind), name=_sanitized(owner.name))


def _sanitized(name: str) -> str:
    """A name like all others of Kubernetes: printable ASCII of limited length.

    The API server accepts any text here (ValidateOwnerReferences in k8s.io/apimachinery), and brakes remember it.
    """
    plain = name if name.isascii() and name.isprintable() else name.encode("unicode_escape", "replace").decode("ascii")
    return plain[:_LONGEST_NAME]


def _is_static(uid: str, annotations: Mapping[str, str]) -> bool:
    """Whether the kubelet runs it from its own source: the mirror of such a pod, or the pod in the kubelet's own list.

    Of the annotations only `mirror` counts: it can't be added later (ValidatePodUpdate in k8s.io/kubernetes), and the
    kubelet does not run a pod of the API that has it. A tenant can write `config.source` and owner references. The
    kubelet's own list has no mirrors; there the UID is the hash (applyDefaults in pkg/kubelet/config/common.go), and no
    UID that the API server gives has that form.
    """
    is_kubelets = _HASH.fullmatch(uid) is not None and annotations.get(f"{_CONFIG}hash") == uid
    return f"{_CONFIG}mirror" in annotations or is_kubelets


def _containers(
    declared: list[_RawContainer] | None, statuses: list[_RawContainerStatus] | None, kind: ContainerKind
) -> list[Container]:
    known = {status.name: status for status in statuses or ()}
    containers = []
    for container in declared or ():
        sidecar = kind is ContainerKind.INIT and container.restart_policy == "Always"
        status = known.get(container.name)
        state = None if status is None else status.state
        containers.append(
            Container(
                name=container.name,
                kind=ContainerKind.SIDECAR if sidecar else kind,
                ids=_ids(status),
                running=state is not None and state.running is not None,
                resources=_resources(container.resources),
                claims=_claims(container.resources),
                privileged=_is_privileged(container.security_context),
            )
        )
    return containers


def _is_privileged(context: _RawSecurityContext | None) -> bool:
    """Whether a container gets CAP_SYS_ADMIN; runtimes take a capability's name in any case, and with `CAP_`."""
    if context is None:
        return False
    added = (context.capabilities and context.capabilities.add) or ()
    return bool(context.privileged) or any(each.upper().removeprefix("CAP_") in _ADMIN for each in added)


def _claims(resources: _RawResources | None) -> tuple[str, ...]:
    """The claims that a container uses, by their entries in the pod and their requests, as many as are read."""
    used = ((resources and resources.claims) or ())[:_MOST_CLAIMS]
    names = (f"{each.name}/{each.request}" if each.request else each.name for each in used)
    return tuple(dict.fromkeys(brief(name, _LONGEST_NAME) for name in names))


def _bounded_containers(containers: Sequence[Container], keys: PodKeys | None) -> tuple[tuple[Container, ...], bool]:
    """The containers that have run, and a number of others; and whether any that asks for something is left out.

    What they ask for is read of those that run first, then in order, as far as there is room in one pod.
    """
    if keys is None:
        return tuple(containers), False
    number = sum(len(each.resources) for each in containers)
    if len(containers) <= _MOST_CONTAINERS and number <= _MOST_RESOURCES:
        return tuple(containers), False
    bounds = _ResourceBounds(keys, is_large=number > _MOST_KEYS)
    kept: dict[int, Container] = {}
    others = 0
    for place in sorted(range(len(containers)), key=lambda place: (not containers[place].running, place)):
        container = containers[place]
        others += not container.ids
        if container.ids or others <= _MOST_CONTAINERS:
            asked = bounds.of(container)
            if asked is not None:
                kept[place] = container if asked is container.resources else replace(container, resources=asked)
        else:
            bounds.is_cut |= bool(container.resources or container.claims)
    return tuple(kept[place] for place in sorted(kept)), bounds.is_cut


def _is_zero(quantity: str) -> bool:
    return quantity[:1] in "+-.0" and _ZERO.fullmatch(quantity) is not None


class _ResourceBounds:
    """What is read of what the containers of one pod ask for; `is_cut`: something that may count is left out."""

    def __init__(self, keys: PodKeys, *, is_large: bool) -> None:
        self._wanted = WantedKeys(keys.resources)
        self._zeros = WantedKeys(keys.zeros)
        self._is_large = is_large
        self._room = _MOST_KEYS
        self.is_cut = False

    def of(self, container: Container) -> Mapping[str, str] | None:
        """What is read of a container's resources; None if it is left out as a whole, which has never run."""
        asked = self._bounded(
            {key: text for key, text in container.resources.items() if not self._says_nothing(key, text)}
        )
        if len(asked) > self._room and not container.running:
            self.is_cut |= bool(asked or container.claims)
            return {} if container.ids else None
        self._room -= len(asked)
        return container.resources if len(asked) == len(container.resources) else asked

    def _says_nothing(self, key: str, text: str) -> bool:
        """Whether a resource is 0 and that requests nothing."""
        return _is_zero(text) and not (self._zeros.names(key) or self._zeros.matches(key))

    def _bounded(self, asked: Mapping[str, str]) -> Mapping[str, str]:
        """Of many resources: what is named, then what matches a pattern, then the rest, of a large pod none."""
        if len(asked) <= _MOST_RESOURCES and not self._is_large:
            return asked
        named = {name: quantity for name, quantity in asked.items() if self._wanted.names(name)}
        matching = sorted(name for name in asked if name not in named and self._wanted.matches(name))
        others = sorted(asked.keys() - named.keys() - set(matching)) if not self._is_large else []
        most = _MOST_MATCHED if self._is_large else _MOST_RESOURCES
        self.is_cut |= not all(_is_zero(asked[name]) for name in matching[most:])
        return named | {name: asked[name] for name in [*matching, *others][:most]}


def _lacks_resources(kept: Sequence[Container], every: Sequence[Container]) -> bool:
    """Whether a resource of a container was left out."""
    return sum(len(each.resources) for each in kept) < sum(len(each.resources) for each in every)


def _ids(status: _RawContainerStatus | None) -> frozenset[str]:
    """Container IDs without `containerd://`: the current one and the last one, whose processes may still exist."""
    if status is None:
        return frozenset()
    ended = [state.terminated for state in (status.state, status.last_state) if state and state.terminated]
    texts = [status.container_id, *(state.container_id for state in ended)]
    return frozenset(text.partition("://")[2] for text in texts if text) - {""}


def _resources(resources: _RawResources | None) -> dict[str, str]:
    """Quantities as written, limits before requests: the API server makes them equal for extended resources."""
    if resources is None:
        return {}
    merged = {**(resources.requests or {}), **(resources.limits or {})}
    return {name: str(quantity) for name, quantity in merged.items()}
