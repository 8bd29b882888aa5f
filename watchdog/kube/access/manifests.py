"""The rights of a policy as manifests: a role and its binding a piece, and what ties down those that change things."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from watchdog.core.policy import Policy
from watchdog.kube.access.admission import capacity_admission, eviction_admission
from watchdog.kube.access.rights import Piece, Right, rights_of

NAMESPACE: Final = "gpu-memory-watchdog"
SERVICE_ACCOUNT: Final = "gpu-watchdog"
_GROUP: Final = "rbac.authorization.k8s.io"
_SYSTEM: Final = "kube-system"
_PLAIN: Final = re.compile("[a-z0-9-]+")  # a namespace, and no pattern of them
_SAID: Final = {
    Piece.OBSERVE: "The pods, and the Events that tell their owners.",
    Piece.NODE: "The node's own object.",
    Piece.NAMESPACES: "The labels of namespaces.",
    Piece.EVICT: "Evictions. RBAC can't say which; the admission policy of the same name does.",
    Piece.CAPACITY: "What nodes advertise. RBAC can't say which node; the admission policy of the same name does.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccount:
    """The account that the daemon runs as; the objects that are made for it are named after it."""

    namespace: str = NAMESPACE
    name: str = SERVICE_ACCOUNT

    @property
    def user(self) -> str:
        """Its name as a user."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    def object_name(self, piece: Piece) -> str:
        """The name of the objects of a piece."""
        return f"{self.name}-{piece}"


def render(policy: Policy, account: ServiceAccount) -> str:
    """All that an account needs for a policy and may not do beyond it, as YAML that `kubectl apply -f` takes."""
    rights = rights_of(policy)
    pieces = list(dict.fromkeys(right.piece for right in rights))
    roles = (render_role(piece, rights, account) for piece in pieces)
    return "---\n".join((*roles, *render_admission(policy, account)))


def render_role(piece: Piece, rights: Iterable[Right], account: ServiceAccount) -> str:
    """The rights of one piece: a ClusterRole and its binding to the account, as YAML documents."""
    rules = "".join(
        f"  # {right.why}\n"
        f'  - apiGroups: ["{right.group}"]\n'
        f'    resources: ["{right.target}"]\n'
        f"    verbs: [{', '.join(right.verbs)}]\n"
        for right in rights
        if right.piece is piece
    )
    name = account.object_name(piece)
    role, binding = (_head(kind, name) for kind in ("ClusterRole", "ClusterRoleBinding"))
    return f"""\
# {_SAID[piece]}
{role}rules:
{rules}---
{binding}roleRef:
  apiGroup: {_GROUP}
  kind: ClusterRole
  name: {name}
subjects:
  - kind: ServiceAccount
    namespace: {account.namespace}
    name: {account.name}
"""


def render_admission(policy: Policy, account: ServiceAccount) -> tuple[str, ...]:
    """What ties down the rights that change something, as YAML documents; nothing where a policy needs none of them."""
    pieces = {right.piece for right in rights_of(policy)}
    texts = []
    if Piece.CAPACITY in pieces and policy.capacity is not None:
        name = account.object_name(Piece.CAPACITY)
        texts.append(capacity_admission(name, account.user, policy.capacity.resource))
    if Piece.EVICT in pieces:
        spared = sorted({_SYSTEM, *filter(_PLAIN.fullmatch, policy.protect.namespaces)})
        texts.append(eviction_admission(account.object_name(Piece.EVICT), account.user, spared))
    return tuple(texts)


def _head(kind: str, name: str) -> str:
    return f"""\
apiVersion: {_GROUP}/v1
kind: {kind}
metadata:
  name: {name}
  labels:
    app.kubernetes.io/name: gpu-memory-watchdog
"""
