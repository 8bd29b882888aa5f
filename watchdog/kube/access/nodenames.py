"""Whether the cluster has a node of a name, and what may have been meant where it has none."""

from typing import Final

import msgspec

from watchdog.kube.api.client import Api, Query

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
