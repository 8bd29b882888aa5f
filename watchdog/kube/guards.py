"""Changes that the admission policies must reject, requested as dry runs: so whether they limit this account is shown.

What a dry run would change does not matter: it is not stored.
"""

from typing import Any, Final
from urllib.parse import quote

import msgspec

from watchdog.kube.client import Api, ApiResponse, Query
from watchdog.kube.wire import DECODE_ERRORS

_TIMEOUT_S: Final = 5.0
_DRY_RUN: Final[Query] = {"dryRun": "All"}
_MERGE: Final = "application/merge-patch+json"
_LABEL: Final = "gpu-memory-watchdog/doctor"
SOME_RESOURCE: Final = _LABEL  # a name that is no resource's
_NO_SUCH_POD: Final = "gpu-watchdog-doctor-no-such-pod"
_SYSTEM: Final = "kube-system"  # exists in every cluster


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class _Named(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()


class _Names(msgspec.Struct, frozen=True, gc=False):
    items: list[_Named] = []


_NAMES: Final = msgspec.json.Decoder(_Names)


def other_node(api: Api, name: str) -> str:
    """The name of any node but this one; empty if there is none, or this account can't see it."""
    query: Query = {"fieldSelector": f"metadata.name!={name}", "limit": 1}
    response = api.call("GET", "/api/v1/nodes", query, read_timeout_s=_TIMEOUT_S)
    try:
        names = _NAMES.decode(response.body) if response.is_good else _Names()
    except DECODE_ERRORS:
        return ""
    return next((each.metadata.name for each in names.items), "")


def label_node(api: Api, name: str) -> ApiResponse:
    """A label on a node, which a change of its status can set too."""
    return _change_node(api, name, {"metadata": {"labels": {_LABEL: "1"}}})


def advertise(api: Api, name: str, resource: str) -> ApiResponse:
    """An amount of a resource in a node's capacity."""
    return _change_node(api, name, {"status": {"capacity": {resource: "1"}}})


def _change_node(api: Api, name: str, change: Any) -> ApiResponse:
    path = f"/api/v1/nodes/{quote(name, safe='')}/status"
    return api.call("PATCH", path, _DRY_RUN, change, content_type=_MERGE, read_timeout_s=_TIMEOUT_S)


def evict_system_pod(api: Api) -> ApiResponse:
    """The eviction of a pod that does not exist, from kube-system and without a UID.

    Admission comes before the search for the pod (EvictionREST.Create in
    k8s.io/kubernetes/pkg/registry/core/pod/storage).
    """
    metadata = {"name": _NO_SUCH_POD, "namespace": _SYSTEM}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = f"/api/v1/namespaces/{_SYSTEM}/pods/{_NO_SUCH_POD}/eviction"
    return api.call("POST", path, _DRY_RUN, body, read_timeout_s=_TIMEOUT_S)


def is_rejected(response: ApiResponse) -> bool | None:
    """Whether such a change was rejected; None if the response does not show it."""
    if response.status == 403:
        return True
    is_searched = response.status == 404 and _NO_SUCH_POD in response.message
    return False if response.is_good or is_searched else None
