"""Which nodes a DaemonSet of the watchdog selects, and at which port of a pod its daemon is asked."""

from typing import Any, Final

import msgspec
import pytest

from watchdog.kube.daemons import _daemon, _RawPod, _selects, _Spec

GPU: Final = {"nvidia.com/gpu.present": "true"}
NODE: Final = {**GPU, "zone": "b", "cards": "8"}


def required(*terms: dict[str, Any] | None) -> dict[str, Any]:
    """A pod template's spec with these terms of a required node affinity."""
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


def wants(*requirements: tuple[str, str, list[str] | None]) -> dict[str, Any]:
    """A term with these requirements: key, operator, values."""
    return {"matchExpressions": [{"key": key, "operator": op, "values": values} for key, op, values in requirements]}


PREFERRED: Final = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}}


@pytest.mark.parametrize(
    ("spec", "is_selected"),
    [
        ({}, True),
        ({"nodeSelector": None, "affinity": None}, True),
        ({"nodeSelector": GPU}, True),
        ({"nodeSelector": {**GPU, "zone": "a"}}, False),
        ({"nodeSelector": {"missing": ""}}, False),
        (PREFERRED, True),
        ({"affinity": {"podAntiAffinity": {}}}, True),
        (required(wants(("zone", "In", ["a", "b"]))), True),
        (required(wants(("zone", "In", ["a"]))), False),
        (required(wants(("missing", "In", ["a"]))), False),
        (required(wants(("zone", "NotIn", ["a"]))), True),
        (required(wants(("zone", "NotIn", ["b"]))), False),
        (required(wants(("missing", "NotIn", ["b"]))), True),
        (required(wants(("zone", "Exists", None))), True),
        (required(wants(("missing", "Exists", None))), False),
        (required(wants(("zone", "DoesNotExist", None))), False),
        (required(wants(("missing", "DoesNotExist", None))), True),
        # All requirements of a term, and one of the terms.
        (required(wants(("zone", "In", ["b"]), ("missing", "Exists", None))), False),
        (required(wants(("zone", "In", ["a"])), wants(("cards", "In", ["8"]))), True),
        # A term without requirements selects nothing; one with fields alone is of a pod, and not of a DaemonSet.
        (required({}), False),
        (required({"matchExpressions": []}, wants(("zone", "Exists", None))), True),
        # Both must fit.
        ({"nodeSelector": {"zone": "a"}, **required(wants(("zone", "In", ["b"])))}, False),
        ({"nodeSelector": GPU, **required(wants(("zone", "In", ["a"])))}, False),
        # What is compared as numbers is left to the scheduler: a node too many is said, and none is forgotten.
        (required(wants(("cards", "Gt", ["16"]))), True),
        (required(wants(("cards", "Lt", ["4"]))), True),
    ],
)
def test_what_a_daemon_set_selects(spec: dict[str, Any], is_selected: bool) -> None:
    """As the scheduler reads a node selector and a required affinity; a preference excludes nothing."""
    assert _selects(msgspec.convert(spec, _Spec), NODE) is is_selected


_PROXY: Final = {"name": "kube-rbac-proxy", "ports": [{"name": "metrics", "containerPort": 9837}]}


@pytest.mark.parametrize(
    ("listen", "ports", "port", "is_local"),
    [
        (None, [9837], 9837, False),
        (None, [], 9837, False),
        ("0.0.0.0:9837", [9837], 9837, False),
        ("[::]:8000", [8000], 8000, False),
        # As the chart has it with a proxy in front; what else its container names is for the probes.
        ("127.0.0.1:9838", [9839], 9838, True),
        ("[::1]:9838", [], 9838, True),
        ("127.0.0.1:0", [9839], 9839, False),
        # What the daemon would not start with, or what no manifest of ours has.
        ("localhost:9838", [9839], 9839, False),
        ("nonsense", [9839], 9839, False),
        ("", [9839], 9839, False),
    ],
)
def test_where_a_daemon_is_asked(listen: str | None, ports: list[int], port: int, is_local: bool) -> None:
    """At its own port, and not at that of a proxy; one that listens for its pod alone is asked by port-forward."""
    variables = [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    variables += [{"name": "GPU_WATCHDOG_LISTEN", "value": listen}] if listen is not None else []
    watchdog = {"name": "watchdog", "env": variables, "ports": [{"containerPort": each} for each in ports]}
    for containers in ([watchdog, _PROXY], [_PROXY, watchdog]):
        made = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "n1", "containers": containers}}
        found = _daemon(msgspec.convert(made, _RawPod))
        assert (found.container, found.port, found.is_local) == ("watchdog", port, is_local)


@pytest.mark.parametrize(
    ("states", "down"),
    [
        ({"watchdog": {"running": {}}, "kube-rbac-proxy": {"running": {}}}, ""),
        ({"kube-rbac-proxy": {"waiting": {"reason": "ImagePullBackOff"}}, "watchdog": {"running": {}}}, ""),
        (
            {"kube-rbac-proxy": {"running": {}}, "watchdog": {"waiting": {"reason": "CrashLoopBackOff"}}},
            "its pod n/p does not run (Running: CrashLoopBackOff)",
        ),
    ],
)
def test_a_daemon_is_down_whatever_its_proxy_does(states: dict[str, Any], down: str) -> None:
    """Whether it can answer is for its own container to say: neither a proxy that runs nor one that does not counts."""
    statuses = [{"name": name, "state": state} for name, state in states.items()]
    made = {
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"nodeName": "n1", "containers": [{"name": "watchdog"}, _PROXY]},
        "status": {"phase": "Running", "containerStatuses": statuses},
    }
    assert _daemon(msgspec.convert(made, _RawPod)).down == down
