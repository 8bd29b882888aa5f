"""What the API server says about this account and this node: its identity, its rights, and whether the node exists."""

from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from watchdog.kube.client import Api, ApiResponse, Query
from watchdog.kube.rights import Right

_TIMEOUT_S: Final = 5.0


class _Items(msgspec.Struct, gc=False):
    items: list[msgspec.Raw] = []


def has_node(api: Api, name: str) -> bool | None:
    """Whether there is an object of this node; None if this account can't see that."""
    # A list of one, since the daemon's role has list and watch, but not get.
    return _is_any(api, "/api/v1/nodes", f"metadata.name={name}")


def has_pods(api: Api, name: str) -> bool | None:
    """Whether any pod is assigned to a node of this name; None if this account can't see that."""
    return _is_any(api, "/api/v1/pods", f"spec.nodeName={name}")


def similar_names(name: str) -> tuple[str, ...]:
    """Node names that are likely on a host with this name.

    The kubelet uses the host's name in lower case (GetHostname in k8s.io/component-helpers/node/util).
    """
    lower = name.lower().rstrip(".")
    return tuple(each for each in dict.fromkeys((lower, lower.partition(".")[0])) if each and each != name)


def _is_any(api: Api, path: str, selector: str) -> bool | None:
    query: Query = {"fieldSelector": selector, "limit": 1, "resourceVersion": "0"}
    response = api.call("GET", path, query, read_timeout_s=_TIMEOUT_S)
    if not response.is_good:
        return None
    try:
        return bool(msgspec.json.decode(response.body, type=_Items).items)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


_SUBJECT_REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_VERSION: Final = "/version"
_EXTRA: Final = "authentication.kubernetes.io/"
_Value = TypeVar("_Value", bound=msgspec.Struct)


class _UserInfo(msgspec.Struct, gc=False):
    username: str = ""
    extra: dict[str, list[str]] = {}


class _SubjectStatus(msgspec.Struct, rename="camel", gc=False):
    user_info: _UserInfo = msgspec.field(default_factory=_UserInfo)


class _SubjectReview(msgspec.Struct, gc=False):
    status: _SubjectStatus = msgspec.field(default_factory=_SubjectStatus)


class _AccessStatus(msgspec.Struct, gc=False):
    allowed: bool = False


class _AccessReview(msgspec.Struct, gc=False):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


class _ServerVersion(msgspec.Struct, rename="camel", gc=False):
    git_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAccount:
    """The account that the API server sees; `node`, `pod` and `pod_uid` are in a token that was issued for a pod."""

    name: str = ""
    node: str = ""
    pod: str = ""
    pod_uid: str = ""


def ask_version(api: Api) -> tuple[ApiResponse, str]:
    """Ask for the server's version; empty if the response has none."""
    response = api.call("GET", _VERSION, read_timeout_s=_TIMEOUT_S)
    return response, _decode(response, _ServerVersion, _ServerVersion()).git_version[:100]


def who_am_i(api: Api) -> tuple[ApiResponse, ApiAccount]:
    """Ask for the account that the server sees (SelfSubjectReview, since 1.28)."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    response = api.call("POST", _SUBJECT_REVIEWS, body=body, read_timeout_s=_TIMEOUT_S)
    user = _decode(response, _SubjectReview, _SubjectReview()).status.user_info
    # The keys are defined in k8s.io/apiserver/pkg/authentication/serviceaccount/util.go.
    node, pod, uid = (next(iter(user.extra.get(_EXTRA + key, ())), "") for key in ("node-name", "pod-name", "pod-uid"))
    return response, ApiAccount(name=user.username, node=node, pod=pod, pod_uid=uid)


def may_i(api: Api, right: Right, verb: str) -> tuple[ApiResponse, bool]:
    """Ask whether this account has a right everywhere (SelfSubjectAccessReview); False without a clear response."""
    what = {"group": right.group, "resource": right.resource, "subresource": right.subresource, "verb": verb}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": what},
    }
    response = api.call("POST", _ACCESS_REVIEWS, body=body, read_timeout_s=_TIMEOUT_S)
    return response, _decode(response, _AccessReview, _AccessReview()).status.allowed


def _decode(response: ApiResponse, kind: type[_Value], nothing: _Value) -> _Value:
    try:
        return msgspec.json.decode(response.body, type=kind) if response.is_good else nothing
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return nothing
