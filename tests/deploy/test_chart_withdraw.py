"""What uninstalling withdraws with: where its Job may run, on which nodes it works, and when there is none."""

import json
from typing import Any, Final

import pytest

from tests.deploy.chart import objects, of_kind, pod, refused

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_programs")]

_POLICY: Final = '[capacity]\nresource = "example.com/vram"\n'
_POOL: Final = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
_POOLS: Final = (
    {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a", "b"]}]},
    {
        "matchExpressions": [
            {"key": "gpu", "operator": "Exists"},
            {"key": "virtual", "operator": "DoesNotExist"},
            {"key": "cards", "operator": "NotIn", "values": ["0"]},
        ]
    },
)
_MANY: Final = {"matchExpressions": [{"key": "cards", "operator": "Gt", "values": ["3"]}]}
_NAMED: Final = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-a"]}]}


def hook(*flags: str) -> list[dict[str, Any]]:
    """Every object of the hook, under a policy with [capacity]."""
    return [each for each in objects(*flags, policy=_POLICY) if each["metadata"]["name"].endswith("-withdraw")]


def terms(*each: object) -> str:
    """The flag for an affinity with these node terms."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": each}}
    return f"--set-json=affinity={json.dumps({'nodeAffinity': required})}"


def job(*flags: str) -> dict[str, Any]:
    """The pod of the hook's Job."""
    (found,) = of_kind(hook(*flags), "Job")
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def selectors(*flags: str) -> list[str]:
    """Its selectors."""
    args: list[str] = job(*flags)["containers"][0]["args"]
    assert args[:4] == ["withdraw", "--all-nodes", "--resource", "example.com/vram"]
    assert args[4::2] == ["--selector"] * len(args[5::2])
    return args[5::2]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], ["nvidia.com/gpu.present=true"]),
        (["--set-json=nodeSelector=null"], []),
        # A label that the GPU Operator changes for a while says nothing about the release.
        (["--set=gpuOperator.client=true"], ["nvidia.com/gpu.present=true"]),
        (["--set=gpuOperator.client=true", "--set-json=nodeSelector=null"], []),
        (["--set=nodeSelector.pool=mig"], ["nvidia.com/gpu.present=true,pool=mig"]),
        (["--set=excludeNodeLabels.pool=mig"], ["nvidia.com/gpu.present=true,pool notin (mig)"]),
        (
            [terms(*_POOLS), "--set-string=excludeNodeLabels.own=1"],
            [
                "nvidia.com/gpu.present=true,pool in (a,b),own notin (1)",
                "nvidia.com/gpu.present=true,gpu,!virtual,cards notin (0),own notin (1)",
            ],
        ),
    ],
    ids=["default", "every node", "clients", "every client", "a pool", "all but a pool", "affinity"],
)
def test_it_works_on_the_nodes_of_the_release(flags: list[str], expected: list[str]) -> None:
    """Another release's nodes keep theirs: the selectors say what nodeSelector and affinity say."""
    assert selectors(*flags) == expected


@pytest.mark.parametrize("flag", ["--set-json=nodeSelector=null", "--set=nodeSelector.pool=a"])
@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ((_POOL, _MANY), "Gt of the label cards can't be expressed"),
        (({"matchExpressions": [*_POOL["matchExpressions"], *_MANY["matchExpressions"]]},), "Gt of the label cards"),
        ((_NAMED,), "matchFields can't be expressed"),
        ((_POOL | _NAMED,), "matchFields can't be expressed"),
        (({},), "all its node terms are empty, and an empty term matches no node"),
    ],
)
def test_nodes_that_no_label_selector_can_name_are_refused(given: tuple[object, ...], reported: str, flag: str) -> None:
    """It would take the entry from other releases' nodes: refused at once, with the remedy, which then helps."""
    assert reported in refused(terms(*given), flag, policy=_POLICY)
    assert hook(terms(*given), flag, "--set=withdraw.onUninstall=false") == []
    assert hook(terms(*given), flag, "--set=rbac.create=false") == []


def test_an_empty_term_selects_no_node() -> None:
    """Kubernetes takes it so: it adds no node to those of the other terms, nor does a label to exclude."""
    flags = (terms(_POOL, {}, None), "--set-json=nodeSelector=null")
    assert selectors(*flags) == ["pool in (a)"]
    assert selectors(*flags, "--set=excludeNodeLabels.own=yes") == ["pool in (a),own notin (yes)"]


@pytest.mark.parametrize("exclude", [{}, {"own": "yes"}])
@pytest.mark.parametrize(
    "affinity",
    [
        None,
        {"nodeAffinity": None},
        {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": None}},
        {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": None}}},
    ],
)
def test_null_is_as_good_as_nothing(affinity: object, exclude: dict[str, str]) -> None:
    """A values file unsets by null what another one set: at any level of the affinity it is as if nothing was there."""
    flags = (f"--set-json=affinity={json.dumps(affinity)}", f"--set-json=excludeNodeLabels={json.dumps(exclude)}")
    assert selectors(*flags) == ["nvidia.com/gpu.present=true" + ",own notin (yes)" * len(exclude)]
    if exclude:
        required = pod(*flags, policy=_POLICY)["affinity"]["nodeAffinity"]
        expression = {"key": "own", "operator": "NotIn", "values": ["yes"]}
        assert required["requiredDuringSchedulingIgnoredDuringExecution"] == {
            "nodeSelectorTerms": [{"matchExpressions": [expression]}]
        }


def test_it_runs_where_no_node_with_gpus_is() -> None:
    """It takes a cordoned node, and any other; those with GPUs are only preferred, for the image is there."""
    spec = job("--set=tolerations[0].key=own,tolerations[0].operator=Exists")
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    (preferred,) = spec["affinity"]["nodeAffinity"].values()
    expression = {"key": "nvidia.com/gpu.present", "operator": "In", "values": ["true"]}
    assert preferred == [{"weight": 100, "preference": {"matchExpressions": [expression]}}]
    cordoned = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    assert spec["tolerations"] == [cordoned, {"key": "own", "operator": "Exists"}]
    assert "affinity" not in job("--set-json=nodeSelector=null")


def test_no_hook_without_its_rights() -> None:
    """It would bring a role and admission policies of its own, which rbac.create=false says not to."""
    assert len(hook()) == 6
    assert hook("--set=rbac.create=false") == []
    assert hook("--set=withdraw.onUninstall=false") == []
