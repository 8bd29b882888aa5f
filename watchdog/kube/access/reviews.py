"""What the API server says of this account itself: who it is, and what it may. Every account may ask both."""

from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from watchdog.kube.access.rights import Right
from watchdog.kube.api.answers import Answer
from watchdog.kube.api.client import Api

_TIMEOUT_S: Final = 5.0
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
class Account:
    """Whom the API server takes us for; `node`, `pod` and `pod_uid` stand in a token that was made for a pod."""

    name: str = ""
    node: str = ""
    pod: str = ""
    pod_uid: str = ""


def ask_version(api: Api) -> tuple[Answer, str]:
    """Ask for the server's version; empty where the answer has none."""
    answer = api.call("GET", _VERSION, read_timeout_s=_TIMEOUT_S)
    return answer, _decode(answer, _Version, _Version()).git_version[:100]


def who_am_i(api: Api) -> tuple[Answer, Account]:
    """Ask whom the server takes us for (SelfSubjectReview, there from 1.28 on)."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = api.call("POST", _WHO, body=body, read_timeout_s=_TIMEOUT_S)
    user = _decode(answer, _Who, _Who()).status.user_info
    # The keys stand in k8s.io/apiserver/pkg/authentication/serviceaccount/util.go.
    node, pod, uid = (next(iter(user.extra.get(_EXTRA + key, ())), "") for key in ("node-name", "pod-name", "pod-uid"))
    return answer, Account(name=user.username, node=node, pod=pod, pod_uid=uid)


def may_i(api: Api, right: Right, verb: str) -> tuple[Answer, bool]:
    """Ask whether this account has a right everywhere (SelfSubjectAccessReview); not where nothing is said."""
    what = {"group": right.group, "resource": right.resource, "subresource": right.subresource, "verb": verb}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": what},
    }
    answer = api.call("POST", _MAY, body=body, read_timeout_s=_TIMEOUT_S)
    return answer, _decode(answer, _May, _May()).status.allowed


def _decode(answer: Answer, kind: type[_Kind], nothing: _Kind) -> _Kind:
    try:
        return msgspec.json.decode(answer.body, type=kind) if answer.is_good else nothing
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return nothing
