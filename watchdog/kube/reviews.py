"""What the API server reports about this account (identity and rights) and this node (whether it exists)."""

from dataclasses import dataclass
from typing import Final

import msgspec

from watchdog.kube.client import Api, ApiResponse, Query
from watchdog.kube.kinds import Right
from watchdog.kube.wire import DECODE_ERRORS

_TIMEOUT_S: Final = 5.0
_EXTRA: Final = "authentication.kubernetes.io/"


class _UserInfo(msgspec.Struct, frozen=True, gc=False):
    username: str = ""
    extra: dict[str, list[str]] = {}


class _ReviewStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    user_info: _UserInfo = _UserInfo()
    allowed: bool = False


class _Answer(msgspec.Struct, rename="camel", gc=False):
    """The fields of a list, a review or a version that are read."""

    items: list[msgspec.Raw] = []
    status: _ReviewStatus = _ReviewStatus()
    git_version: str = ""


_ANSWER: Final = msgspec.json.Decoder(_Answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAccount:
    """The account that the API server sees."""

    name: str = ""
    # In a token that was issued for a pod, as are the next two; else empty.
    node: str = ""
    pod: str = ""
    pod_uid: str = ""


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
    candidates = dict.fromkeys((lower, lower.partition(".")[0]))
    return tuple(candidate for candidate in candidates if candidate not in ("", name))


def request_version(api: Api) -> tuple[ApiResponse, str]:
    """Request the server's version; empty if the response has none."""
    response = api.call("GET", "/version", read_timeout_s=_TIMEOUT_S)
    return response, (_decode(response) or _Answer()).git_version[:100]


def who_am_i(api: Api) -> tuple[ApiResponse, ApiAccount]:
    """Request the account that the server sees (SelfSubjectReview, since 1.28)."""
    response = _review(api, "authentication.k8s.io", "SelfSubjectReview", {})
    user = (_decode(response) or _Answer()).status.user_info
    # The keys are defined in k8s.io/apiserver/pkg/authentication/serviceaccount/util.go.
    node, pod, uid = (next(iter(user.extra.get(_EXTRA + key, ())), "") for key in ("node-name", "pod-name", "pod-uid"))
    return response, ApiAccount(name=user.username, node=node, pod=pod, pod_uid=uid)


def may_i(api: Api, right: Right, verb: str) -> tuple[ApiResponse, bool]:
    """Request whether this account has a right everywhere (SelfSubjectAccessReview); False if that stays unclear."""
    what = {"group": right.group, "resource": right.resource, "subresource": right.subresource, "verb": verb}
    response = _review(api, "authorization.k8s.io", "SelfSubjectAccessReview", {"spec": {"resourceAttributes": what}})
    return response, (_decode(response) or _Answer()).status.allowed


def _review(api: Api, group: str, kind: str, more: dict[str, object]) -> ApiResponse:
    body = {"apiVersion": f"{group}/v1", "kind": kind, **more}
    return api.call("POST", f"/apis/{group}/v1/{kind.lower()}s", body=body, read_timeout_s=_TIMEOUT_S)


def _is_any(api: Api, path: str, selector: str) -> bool | None:
    query: Query = {"fieldSelector": selector, "limit": 1, "resourceVersion": "0"}
    answer = _decode(api.call("GET", path, query, read_timeout_s=_TIMEOUT_S))
    return None if answer is None else bool(answer.items)


def _decode(response: ApiResponse) -> _Answer | None:
    try:
        return _ANSWER.decode(response.body) if response.is_good else None
    except DECODE_ERRORS:
        return None
