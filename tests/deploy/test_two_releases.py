"""The recipe of docs/security.md for two kinds of nodes: two releases that share no object and no node."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deploy.printed import Objects, blocks, daemonset, rendered
from tools import ROOT, kustomize

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_programs")]

_PAGE: Final = ROOT / "docs" / "security.md"
_MIG: Final = {"example.com/gpu-watchdog": "mig"}
_EVERYTHING: Final = (
    'mode = "enforce"\n[[rule]]\nname = "all"\nmatch = { namespace_labels = { a = "b" } }\n'
    '[[rule.step]]\nabove = "110%"\nfor = "1s"\ndo = "evict"\n[capacity]\nresource = "example.com/vram"\n'
)
_LABELS: Final = (
    {"nvidia.com/gpu.present": "true"},
    {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"},
    {"eks.amazonaws.com/instance-gpu-manufacturer": "nvidia"},
    {"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"},
)


def _releases(folder: Path, platform: str, more: str = "") -> tuple[Objects, Objects]:
    (block,) = (each for each in blocks(_PAGE) if "values-mig.yaml" in each.files)
    for name, text in block.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "policy.toml").write_text(_EVERYTHING, encoding="utf-8")
    (first, second) = (each for each in block.commands if each.startswith("helm upgrade --install"))
    return rendered(first + more, folder, platform), rendered(second + more, folder, platform)


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a node has what one matchExpression asks for, as the scheduler has it."""
    value = labels.get(expression["key"])
    return {
        "In": value in expression.get("values", ()),
        "NotIn": value not in expression.get("values", ()),
        "Exists": value is not None,
    }[expression["operator"]]


def _runs_on(objects: Objects, labels: Mapping[str, str]) -> bool:
    spec = daemonset(objects)["spec"]["template"]["spec"]
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False
    if "affinity" not in spec:
        return True
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return any(all(_matches(each, labels) for each in term["matchExpressions"]) for term in terms)


@pytest.mark.parametrize("platform", kustomize.PLATFORMS)
def test_they_share_no_object(platform: str, tmp_path: Path) -> None:
    """Whatever a policy needs and OpenShift's object: neither release takes over or deletes what is the other's."""
    one, other = _releases(tmp_path, platform, " --set openshift.scc=true")
    assert len(one) == len(other) > 10
    assert not one.keys() & other.keys()


@pytest.mark.parametrize("platform", kustomize.PLATFORMS)
def test_no_node_has_both_and_none_is_left_out(platform: str, tmp_path: Path) -> None:
    """Each node on which one release would have run has one of the two: the labelled ones the second."""
    one, other = _releases(tmp_path, platform)
    alone = rendered(f"helm template w deploy/chart --values {kustomize.PLATFORMS[platform]}", tmp_path, platform)
    found = 0
    for labels in _LABELS:
        if _runs_on(alone, labels):
            assert (_runs_on(one, labels), _runs_on(other, labels)) == (True, False), labels
            assert (_runs_on(one, labels | _MIG), _runs_on(other, labels | _MIG)) == (False, True), labels
            found += 1
    assert found


def test_only_the_second_has_the_capability(tmp_path: Path) -> None:
    """SYS_ADMIN stays on the nodes that have MIG."""
    one, other = _releases(tmp_path, "gpu-operator")
    (plain, mig) = (
        daemonset(each)["spec"]["template"]["spec"]["containers"][0]["securityContext"]["capabilities"]["add"]
        for each in (one, other)
    )
    assert (plain, mig) == (["KILL"], ["KILL", "SYS_ADMIN"])


def test_each_withdraws_from_its_own_nodes(tmp_path: Path) -> None:
    """The Job of `helm uninstall` takes the advertised entry from no node of the other release."""
    reported = []
    for objects in _releases(tmp_path, "eks"):
        (job,) = (each for key, each in objects.items() if key[0] == "Job" and key[2].endswith("-withdraw"))
        arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
        reported.append([text for flag, text in pairwise(arguments) if flag == "--selector"])
    assert [len(each) for each in reported] == [3, 3]
    assert all(each.endswith("example.com/gpu-watchdog notin (mig)") for each in reported[0])
    assert all(each.startswith("example.com/gpu-watchdog=mig,") for each in reported[1])
