"""Which nodes a DaemonSet of the watchdog selects: a node that it does not select lacks no daemon."""

from typing import Any, Final

import msgspec
import pytest

from watchdog.kube.daemons import _selects, _Spec

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
