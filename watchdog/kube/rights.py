"""The rights that a policy needs in the API, as values and as manifests."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from string import Template
from typing import Final, assert_never

from watchdog.core.policy import Do, Policy
from watchdog.kube.kinds import WATCHED_KINDS, Permission, Piece, Right
from watchdog.options import DEFAULT_NAMESPACE, DEFAULT_SERVICE_ACCOUNT


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """The role of an action that changes something through the API."""

    rights: tuple[Right, ...]
    # What it is, as a comment.
    what: str
    # Which policies need it, as a comment of the file in deploy/rbac.
    needed_by: str
    # What the account may do by it, and what follows without, as doctor says it.
    may: str
    without: str

    @property
    def piece(self) -> Piece:
        """The piece that its rights are in."""
        return self.rights[0].piece


def _role_of(do: Do) -> Role | None:
    """The role that an action needs, beside those to watch."""
    match do:
        case Do.WARN | Do.KILL:
            return None
        case Do.EVICT:
            rights = (
                Right(
                    piece=Piece.EVICT,
                    resource="pods",
                    verbs=("get",),
                    why="the pod as it is right before it is evicted",
                ),
                Right(
                    piece=Piece.EVICT,
                    resource="pods",
                    subresource="eviction",
                    verbs=("create",),
                    why="the eviction itself, with the UID of the intended pod",
                ),
            )
            return Role(
                rights=rights,
                what="Evictions. RBAC can't restrict which pods; the admission policy does.",
                needed_by='For a policy that enforces and has a step with `do = "evict"`; with the second half of '
                "admission.yaml.\n# For each namespace in [protect], add spared/NAMESPACE.",
                may="get a pod and create its eviction, if the policy evicts",
                without="every eviction fails; kills still work",
            )
        case _:
            assert_never(do)


def _takes(do: Do, policy: Policy) -> bool:
    return policy.takes(do)


_BY_DO: Final = {do: role for do in Do if (role := _role_of(do)) is not None}
ROLES_OF_ACTIONS: Final = tuple(_BY_DO.values())


def actions_by_api(policy: Policy) -> tuple[Do, ...]:
    """The actions of a policy's steps that change something through the API."""
    return tuple(do for do in _BY_DO if _takes(do, policy))


# The rights beside those to the watched kinds, and whether a policy needs them.
_OTHERS: Final[Mapping[Right, Callable[[Policy], bool]]] = {
    Right(
        piece=Piece.OBSERVE,
        group="events.k8s.io",
        resource="events",
        verbs=("create", "patch"),
        why="Events on the pods that are warned, killed or evicted; patch updates a repeated one",
    ): lambda policy: policy.writes_events,
    **{right: partial(_takes, do) for do, role in _BY_DO.items() for right in role.rights},
    Right(
        piece=Piece.CAPACITY,
        resource="nodes",
        subresource="status",
        verbs=("patch",),
        why="the entry of [capacity] in the node's status",
    ): lambda policy: policy.capacity is not None,
}
_NEEDED: Final[Mapping[Right, Callable[[Policy], bool]]] = {
    **{right: kind.is_needed for kind in WATCHED_KINDS for right in kind.rights},
    **_OTHERS,
}
ALL_RIGHTS: Final = tuple(sorted(_NEEDED, key=lambda right: list(Piece).index(right.piece)))


def rights_of(policy: Policy) -> tuple[Right, ...]:
    """The rights that a policy needs in its mode, in the order of `Piece`."""
    return tuple(right for right in ALL_RIGHTS if _NEEDED[right](policy))


# An expression can't name the account: Kustomize changes names in fields, not in texts, and would leave the old one. So
# a policy applies to accounts that have its marker, a permission that allows nothing, and lack `unrestricted`, which no
# role names: those who may do everything have both. More than two queries of the authorizer would exceed the cost limit
# of an expression (k8s.io/apiserver/pkg/cel/library/cost.go); one that fails counts as "not allowed". Kubelets come
# first, so that no error in what follows could reject the status of a node.
_MARKERS: Final = "gpu-memory-watchdog"  # the API group of the markers; no API server has it
_ADMISSION: Final = Template("""\
# $comment
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: $name
  labels:
    app.kubernetes.io/name: gpu-memory-watchdog
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: ["*"]
        operations: [$operations]
        resources: [$resources]
  matchConditions:
    - name: restricted
      expression: >-
        !('system:nodes' in request.userInfo.?groups.orValue([])) &&
        authorizer.group('$group').resource('$restriction').check('use').allowed() &&
        !authorizer.group('$group').resource('unrestricted').check('use').allowed()
$checks---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: $name
  labels:
    app.kubernetes.io/name: gpu-memory-watchdog
spec:
  policyName: $name
  validationActions: [Deny]
""")
# NodeNameKey in k8s.io/apiserver/pkg/authentication/serviceaccount: the node of the pod that a token is bound to, as
# the tokens that the kubelet mounts into pods are.
_OWN_NODE: Final = """\
    - name: ownNode
      expression: request.userInfo.?extra[?'authentication.kubernetes.io/node-name'][?0].orValue('')
"""
_IS_OWN_NODE: Final = """\
    - expression: request.operation == 'UPDATE' && variables.ownNode != '' && variables.ownNode == request.name
      message: the watchdog may only change the node that its pod is on, and its token must be of a pod
      reason: Forbidden
"""
# Both objects are compared in both directions, field by field: what is in neither can't have been changed. The status
# subresource can't change a spec, but labels and annotations (nodeStatusStrategy in
# k8s.io/kubernetes/pkg/registry/core/node). The API server itself copies the capacity of a node without allocatable
# (SetDefaults_NodeStatus in k8s.io/kubernetes/pkg/apis/core/v1), that is one that no kubelet has written to yet.
_ONE_ENTRY: Final = Template("""\
  variables:
$variables\
    - name: both
      expression: "[dyn(object), dyn(oldObject)]"
    - name: before
      expression: dyn(oldObject).?status.?capacity.orValue({})
    - name: after
      expression: dyn(object).?status.?capacity.orValue({})
    - name: changed
      expression: >-
        variables.before.filter(k, !(k in variables.after)) +
        variables.after.filter(k, !(k in variables.before) || variables.before[k] != variables.after[k])
    - name: defaulted
      expression: >-
        !dyn(oldObject).?status.?allocatable.hasValue() &&
        dyn(object).?status.?allocatable == dyn(object).?status.?capacity
  validations:
$validations\
    - expression: >-
        request.operation == 'UPDATE' && variables.both.all(a, variables.both.all(b,
        a.all(k, k in ['metadata', 'status'] || (k in b && a[k] == b[k])) &&
        a.metadata.all(k, k in ['managedFields', 'resourceVersion'] ||
        (k in b.metadata && a.metadata[k] == b.metadata[k])) &&
        a.?status.orValue({}).all(k, k == 'capacity' || (k == 'allocatable' && variables.defaulted) ||
        (k in b.?status.orValue({}) && a.status[k] == b.status[k]))))
      message: the watchdog may only change the node's status.capacity
      reason: Forbidden
    - expression: >-
        request.operation == 'UPDATE' && variables.changed.size() <= 1 && variables.changed.all(k,
        authorizer.group('$group').resource('capacity').subresource(k).check('use').allowed())
      message: the watchdog may only change the entry of the node's status.capacity that its role names
      reason: Forbidden
""")
_MARKER_RULE: Final = Template("""\
  # allows nothing: the admission policy goes by it
  - apiGroups: ["$group"]
    resources: [$markers]
    verbs: [use]
""")
# The request for an eviction does not show which node the pod is on.
_EVICTION: Final = Template("""\
  validations:
    - expression: object.?deleteOptions.?preconditions.?uid.orValue('') != ''
      message: the watchdog may only evict with the UID of the pod as a precondition
      reason: Forbidden
    - expression: >-
        request.namespace != 'kube-system' &&
        !authorizer.group('$group').resource('spared').subresource(request.namespace).check('use').allowed()
      message: the watchdog may not evict pods of this namespace
      reason: Forbidden
""")


class Restriction(StrEnum):
    """What an admission policy restricts, as the marker in the roles of the accounts that it applies to."""

    CAPACITY = "restricted-capacity"
    EVICTIONS = "restricted-evictions"
    WITHDRAWAL = "restricted-withdrawal"


def capacity_markers(resource: str, restriction: Restriction = Restriction.CAPACITY) -> tuple[str, ...]:
    """The markers of an account that may change this entry of a node's capacity and no other."""
    return restriction, f"capacity/{resource}"


def eviction_markers(spared: Iterable[str]) -> tuple[str, ...]:
    """The markers of an account that may evict, but not from these namespaces."""
    return Restriction.EVICTIONS, *(f"spared/{namespace}" for namespace in spared)


def capacity_admission(name: str) -> str:
    """Limit the right to change the status of nodes to one resource of the account's own node; YAML documents."""
    comment = "The watchdog may change only one entry of the capacity of the node that its pod is on."
    return node_admission(comment, name, Restriction.CAPACITY, variables=_OWN_NODE, validations=_IS_OWN_NODE)


def eviction_admission(name: str) -> str:
    """Require a UID in evictions, and exclude namespaces from them; YAML documents."""
    return _ADMISSION.substitute(
        comment="The watchdog may evict only the pod that it has examined, and no system pods.",
        name=name,
        group=_MARKERS,
        restriction=Restriction.EVICTIONS,
        operations="CREATE",
        resources='"pods/eviction"',
        checks=_EVICTION.substitute(group=_MARKERS),
    )


def node_admission(comment: str, name: str, restriction: Restriction, *, validations: str, variables: str = "") -> str:
    """Limit the right to change the status of nodes to one entry of their capacity; YAML documents."""
    return _ADMISSION.substitute(
        comment=comment,
        name=name,
        group=_MARKERS,
        restriction=restriction,
        operations="CREATE, UPDATE, DELETE",
        resources='"nodes", "nodes/*"',
        checks=_ONE_ENTRY.substitute(group=_MARKERS, variables=variables, validations=validations),
    )


_GROUP: Final = "rbac.authorization.k8s.io"
_SYSTEM: Final = "kube-system"
_PLAIN: Final = re.compile("[a-z0-9-]+")  # a namespace, not a pattern of several
_COMMENTS: Final = {
    **{kind.piece: kind.role for kind in WATCHED_KINDS},
    **{role.piece: role.what for role in ROLES_OF_ACTIONS},
    Piece.CAPACITY: "The resource that nodes advertise. RBAC can't restrict which node; the admission policy does.",
}
# Which policies need a piece, as a comment. `{resource}` is that of [capacity].
NEEDED_BY: Final[Mapping[Piece, str]] = {
    **{kind.piece: kind.needed_by for kind in WATCHED_KINDS},
    **{role.piece: role.needed_by for role in ROLES_OF_ACTIONS},
    Piece.CAPACITY: "For a policy with [capacity]; with the first half of admission.yaml.\n"
    "# Replace {resource} by yours.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccount:
    """The account that the daemon runs as; the objects created for it are named after it."""

    namespace: str = DEFAULT_NAMESPACE
    name: str = DEFAULT_SERVICE_ACCOUNT

    @property
    def user(self) -> str:
        """Its name as a user."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    def object_name(self, piece: Piece) -> str:
        """The name of the objects of a piece."""
        return f"{self.name}-{piece}"


def render(policy: Policy, account: ServiceAccount) -> str:
    """Everything that an account needs for a policy and nothing more, as YAML for `kubectl apply -f`."""
    return "---\n".join((*render_roles(policy, account), *render_admission(policy, account)))


def render_roles(policy: Policy, account: ServiceAccount) -> tuple[str, ...]:
    """The roles of a policy with their bindings, as YAML documents."""
    rights, markers = rights_of(policy), markers_of(policy)
    pieces = dict.fromkeys(right.piece for right in rights)
    return tuple(render_role(piece, rights, account, markers.get(piece, ())) for piece in pieces)


def markers_of(policy: Policy) -> Mapping[Piece, Sequence[str]]:
    """The markers by which the admission policies know what an account may change."""
    markers = {Piece.EVICT: eviction_markers(sorted({_SYSTEM, *filter(_PLAIN.fullmatch, policy.protect.namespaces)}))}
    if policy.capacity is not None:
        markers[Piece.CAPACITY] = capacity_markers(policy.capacity.resource)
    return markers


def render_role(piece: Piece, rights: Iterable[Right], account: ServiceAccount, markers: Sequence[str] = ()) -> str:
    """The rights of one piece, with its markers: a ClusterRole and its binding to the account, as YAML documents."""
    rules = _rules(right for right in rights if right.piece is piece)
    if markers:
        rules += _MARKER_RULE.substitute(group=_MARKERS, markers=", ".join(f'"{marker}"' for marker in markers))
    name = account.object_name(piece)
    role, binding = (_head(kind, name) for kind in ("ClusterRole", "ClusterRoleBinding"))
    return f"""\
# {_COMMENTS[piece]}
{role}rules:
{rules}---
{binding}roleRef:
  apiGroup: {_GROUP}
  kind: ClusterRole
  name: {name}
subjects:
  - kind: ServiceAccount
    namespace: "{account.namespace}"
    name: "{account.name}"
"""


# A stream over a WebSocket begins with a GET: Kubernetes 1.35 and later allow it by `create`, earlier ones by `get`
# (AuthorizePodWebsocketUpgradeCreatePermission in k8s.io/kubernetes/pkg/features).
_STREAM: Final = ("create", "get")
_LOOK: Final = (
    Permission(
        resource="pods",
        verbs=("get", "list"),
        why="finding the watchdog's pods; `kubectl port-forward` and `kubectl exec` read theirs first",
    ),
    Permission(
        resource="pods",
        subresource="proxy",
        verbs=("get",),
        why="asking them through the API server, for what every reader of the status page sees",
    ),
    Permission(
        resource="pods",
        subresource="portforward",
        verbs=_STREAM,
        why="asking them where the API server does not reach their port",
    ),
    Permission(
        group="apps", resource="daemonsets", verbs=("list",), why="finding the nodes that should have one and have none"
    ),
)
_NODES: Final = Permission(
    resource="nodes", verbs=("list",), why="which nodes are not ready, and which have no pod of the watchdog"
)
_COMMANDS: Final = Permission(
    resource="pods",
    subresource="exec",
    verbs=_STREAM,
    why="`stop` and `resume`: any command in the pod, so all that the watchdog may do on the node",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalRole:
    """A role for people, which an administrator binds in the watchdog's namespace."""

    # What the name of its object ends with.
    suffix: str
    permissions: tuple[Permission, ...]
    # What it allows, as the object of a sentence.
    what: str
    # Whether what it is about is in no namespace.
    is_of_cluster: bool = False


PERSONAL_ROLES: Final = (
    PersonalRole(suffix="view", permissions=_LOOK, what="look at the watchdog from outside its nodes"),
    PersonalRole(
        suffix="operate",
        permissions=(*_LOOK, _COMMANDS),
        what="look at the watchdog from outside its nodes, and stop and resume enforcement",
    ),
    PersonalRole(
        suffix="view-nodes",
        permissions=(_NODES,),
        what="also see the nodes that have no watchdog",
        is_of_cluster=True,
    ),
)


def render_personal(account: ServiceAccount) -> str:
    """The roles for people who use the watchdog of this account, as YAML documents; nobody has them until bound."""
    return "---\n".join(_personal(role, account) for role in PERSONAL_ROLES)


def _personal(role: PersonalRole, account: ServiceAccount) -> str:
    name = f"{account.name}-{role.suffix}"
    how = f"""\
# Bind it in the watchdog's namespace alone; in all namespaces it would cover every pod of the cluster:
# kubectl -n {account.namespace} create rolebinding {name} --clusterrole={name} --group=GROUP"""
    if role.is_of_cluster:
        how = f"""\
# Nodes are in no namespace:
# kubectl create clusterrolebinding {name} --clusterrole={name} --group=GROUP"""
    return f"""\
# For people who {role.what}.
{how}
{_head("ClusterRole", name)}rules:
{_rules(role.permissions)}"""


def _rules(permissions: Iterable[Permission]) -> str:
    return "".join(
        f"  # {each.why}\n"
        f'  - apiGroups: ["{each.group}"]\n'
        f'    resources: ["{each.target}"]\n'
        f"    verbs: [{', '.join(each.verbs)}]\n"
        for each in permissions
    )


def render_admission(policy: Policy, account: ServiceAccount) -> tuple[str, ...]:
    """The admission policies that limit the rights to change something, as YAML documents; none if not needed."""
    admission = {Piece.CAPACITY: capacity_admission, Piece.EVICT: eviction_admission}
    pieces = {right.piece for right in rights_of(policy)}
    return tuple(made(account.object_name(piece)) for piece, made in admission.items() if piece in pieces)


def _head(kind: str, name: str) -> str:
    return f"""\
apiVersion: {_GROUP}/v1
kind: {kind}
metadata:
  name: {name}
  labels:
    app.kubernetes.io/name: gpu-memory-watchdog
"""
