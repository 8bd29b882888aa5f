"""What the API server says of this account and this node: who it is, what it may do, and which nodes there are."""

from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from watchdog.kube.client import Api, Query
from watchdog.kube.responses import ApiResponse
from watchdog.kube.rights import Right

_TIMEOUT_S: Final = 5.0


class _Items(msgspec.Struct, gc=False):
    items: list[msgspec.Raw] = []


def has_node(api: Api, name: str) -> bool | None:
    """Whether there is an object of this node; None where this account can't see that."""
    # A list of one, since the daemon's role has list and watch: it needs no get.
    return _is_any(api, "/api/v1/nodes", f"metadata.name={name}")


def has_pods(api: Api, name: str) -> bool | None:
    """Whether any pod is assigned to a node of this name; None where this account can't see that."""
    return _is_any(api, "/api/v1/pods", f"spec.nodeName={name}")


def similar_names(name: str) -> tuple[str, ...]:
    """Names that a node may have where its host has this one.

    The kubelet takes the host's name in lower case (GetHostname in k8s.io/component-helpers/node/util).
    """
    lower = name.lower().rstrip(".")
    return tuple(each for each in dict.fromkeys((lower, lower.partition(".")[0])) if each and each != name)


def _is_any(api: Api, path: str, selector: str) -> bool | None:
    query: Query = {"fieldSelector": selector, "limit": 1, "resourceVersion": "0"}
    answer = api.call("GET", path, query, read_timeout_s=_TIMEOUT_S)
    if not answer.is_good:
        return None
    try:
        return bool(msgspec.json.decode(answer.body, type=_Items).items)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


_WHO: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_MAY: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_VERSION: Final = "/version"
_EXTRA: Final = "authentication.kubernetes.io/"
_Kind = TypeVar("_Kind", bound=msgspec.Struct)


class _User(msgspec.Struct, gc=False):
    username: str = ""
    extra: dict[str, list[str]] = {}


class _WhoStatus(msgspec.Struct, rename="camel", gc=False):
    user_info: _User = msgspec.field(default_factory=_User)


class _Who(msgspec.Struct, gc=False):
    status: _WhoStatus = msgspec.field(default_factory=_WhoStatus)


class _MayStatus(msgspec.Struct, gc=False):
    allowed: bool = False


class _May(msgspec.Struct, gc=False):
    status: _MayStatus = msgspec.field(default_factory=_MayStatus)


class _Version(msgspec.Struct, rename="camel", gc=False):
    git_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAccount:
    """Whom the API server takes us for; `node`, `pod` and `pod_uid` stand in a token that was made for a pod."""

    name: str = ""
    node: str = ""
    pod: str = ""
    pod_uid: str = ""


def ask_version(api: Api) -> tuple[ApiResponse, str]:
    """Ask for the server's version; empty where the answer has none."""
    answer = api.call("GET", _VERSION, read_timeout_s=_TIMEOUT_S)
    return answer, _decode(answer, _Version, _Version()).git_version[:100]


def who_am_i(api: Api) -> tuple[ApiResponse, ApiAccount]:
    """Ask whom the server takes us for (SelfSubjectReview, there from 1.28 on)."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = api.call("POST", _WHO, body=body, read_timeout_s=_TIMEOUT_S)
    user = _decode(answer, _Who, _Who()).status.user_info
    # The keys stand in k8s.io/apiserver/pkg/authentication/serviceaccount/util.go.
    node, pod, uid = (next(iter(user.extra.get(_EXTRA + key, ())), "") for key in ("node-name", "pod-name", "pod-uid"))
    return answer, ApiAccount(name=user.username, node=node, pod=pod, pod_uid=uid)


def may_i(api: Api, right: Right, verb: str) -> tuple[ApiResponse, bool]:
    """Ask whether this account has a right everywhere (SelfSubjectAccessReview); not where nothing is said."""
    what = {"group": right.group, "resource": right.resource, "subresource": right.subresource, "verb": verb}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": what},
    }
    answer = api.call("POST", _MAY, body=body, read_timeout_s=_TIMEOUT_S)
    return answer, _decode(answer, _May, _May()).status.allowed


def _decode(answer: ApiResponse, kind: type[_Kind], nothing: _Kind) -> _Kind:
    try:
        return msgspec.json.decode(answer.body, type=kind) if answer.is_good else nothing
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return nothing
