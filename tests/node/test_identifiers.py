"""Identifiers that two sources name are compared exactly: a cgroup's with the pod list's, as Kubernetes does.

A UID is opaque (k8s.io/apimachinery/pkg/types). The API server makes it, but a static pod's manifest may contain any,
and the kubelet uses it as written, in the cgroup and in `kubernetes.io/config.hash` (pkg/kubelet/config/common.go).
"""

from typing import Any, Final

import pytest

from tests.kube.objects import HASH, ID, UID, list_of, pod_object
from tests.worlds import process, snapshot, use
from watchdog.core.attribute import attribute
from watchdog.kube.objects import parse_pods
from watchdog.node.cgroup import parse_cgroup

UPPER: Final = UID.upper()
UNDERSCORES: Final = UID.replace("-", "_")


def _pod(name: str, uid: str, container: str = f"containerd://{'e5' * 32}", **annotations: str) -> dict[str, Any]:
    """A pod with a container that no cgroup here names, unless one is given."""
    running = {"name": "main", "containerID": container, "state": {"running": {}}}
    notes = {f"kubernetes.io/config.{key}": value for key, value in annotations.items()}
    return pod_object(name, uid, metadata={"annotations": notes}, status={"containerStatuses": [running]})


LOWER_POD: Final = _pod("lower", UID)
UPPER_POD: Final = _pod("upper", UPPER)
STATIC: Final = _pod("static", "1", hash=HASH.upper(), mirror=HASH.upper())
# The cgroup, the pods in the list, and the pod and container that the use belongs to, or why it belongs to none.
ROWS: Final[dict[str, tuple[str, list[dict[str, Any]], str]]] = {
    "the same": (f"/kubepods/pod{UID}/{ID}", [LOWER_POD], "lower"),
    "a UID in capitals": (f"/kubepods/pod{UPPER}/{ID}", [UPPER_POD], "upper"),
    "a UID in capitals, in a slice": (
        f"/kubepods.slice/kubepods-pod{UPPER.replace('-', '_')}.slice/crio-{ID}.scope",
        [UPPER_POD],
        "upper",
    ),
    "a UID in capitals, and another pod's is equal but for that": (
        f"/kubepods/pod{UPPER}/{ID}",
        [LOWER_POD, UPPER_POD],
        "upper",
    ),
    "a UID in capitals that only another pod's resembles": (f"/kubepods/pod{UPPER}/{ID}", [LOWER_POD], "unknown_pod"),
    "a UID in small letters that only another pod's resembles": (
        f"/kubepods/pod{UID}/{ID}",
        [UPPER_POD],
        "unknown_pod",
    ),
    "a UID with underscores": (f"/kubepods/pod{UNDERSCORES}/{ID}", [_pod("odd", UNDERSCORES)], "odd"),
    "a UID with underscores that only another pod's resembles": (
        f"/kubepods/pod{UNDERSCORES}/{ID}",
        [LOWER_POD],
        "unknown_pod",
    ),
    "a slice, whose underscores are dashes": (
        f"/kubepods.slice/kubepods-pod{UNDERSCORES}.slice/crio-{ID}.scope",
        [_pod("odd", UNDERSCORES), LOWER_POD],
        "lower",
    ),
    "a static pod's hash in capitals": (f"/kubepods/pod{HASH.upper()}/{ID}", [STATIC], "static"),
    "a static pod's hash that another's resembles": (f"/kubepods/pod{HASH}/{ID}", [STATIC], "unknown_pod"),
    "a container": (f"/kubepods/pod{UID}/{ID}", [_pod("a", UID, f"containerd://{ID}")], "a/main"),
    "a container of another runtime": (f"/kubepods/pod{UID}/crio-{ID}", [_pod("a", UID, f"CRI-O://{ID}")], "a/main"),
    "a container in capitals": (f"/kubepods/pod{UID}/{ID}", [_pod("a", UID, f"containerd://{ID.upper()}")], "a"),
    "a container without its runtime": (f"/kubepods/pod{UID}/{ID}", [_pod("a", UID, ID)], "a"),
    "a container of another pod": (
        f"/kubepods/pod{UID}/{ID}",
        [LOWER_POD, _pod("b", "2", f"containerd://{ID}")],
        "spoofed",
    ),
    "a container of a pod that is equal but for its case": (
        f"/kubepods/pod{UID}/{ID}",
        [LOWER_POD, _pod("upper", UPPER, f"containerd://{ID}")],
        "spoofed",
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_differs_in_case_is_another_pod(name: str) -> None:
    """A use belongs to the pod whose identifiers are equal to the cgroup's, and to no pod that only resembles it."""
    path, listed, expected = ROWS[name]
    pods, gaps = parse_pods(list_of(*listed))
    assert not gaps
    seen = snapshot([use(1, 7)], [process(1, place=parse_cgroup(f"0::{path}\n"))])
    found = attribute(seen, pods)
    titles = {each.uid: each.name for each in pods}
    charged = [titles[each.uid] + (f"/{each.container}" if each.container else "") for each in found.attributed]
    assert [*charged, *(each.reason for each in found.unattributed)] == [expected]
