"""What uninstalling withdraws with: where its Job may run, on which nodes it works, and when there is none."""

import json
import subprocess
from typing import Any, Final

import pytest
import yaml

from tests.cluster.programs import NoProgramsError, helm
from tests.deploy import chart
from tests.node.support import cannot_run

pytestmark = pytest.mark.slow

_POLICY: Final = '[capacity]\nresource = "example.com/vram"\n'
_POOLS: Final = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a", "b"]}]},
                {
                    "matchExpressions": [
                        {"key": "gpu", "operator": "Exists"},
                        {"key": "virtual", "operator": "DoesNotExist"},
                        {"key": "cards", "operator": "Gt", "values": ["1"]},
                    ]
                },
            ]
        }
    }
}


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    try:
        helm()
    except NoProgramsError as error:
        cannot_run(str(error))


def hook(*flags: str) -> list[dict[str, Any]]:
    """Every object of the hook."""
    said = subprocess.run(
        [str(helm()), "template", "r", str(chart.CHART), "--set-file=policy=/dev/stdin", *flags],
        input=_POLICY,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [each for each in yaml.safe_load_all(said) if each["metadata"]["name"].endswith("-withdraw")]


def job(*flags: str) -> dict[str, Any]:
    """The pod of the hook's Job."""
    (found,) = [each for each in hook(*flags) if each["kind"] == "Job"]
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def selectors(*flags: str) -> list[str]:
    """What it is told to select."""
    args: list[str] = job(*flags)["containers"][0]["args"]
    assert args[:4] == ["withdraw", "--all-nodes", "--resource", "example.com/vram"]
    assert args[4::2] == ["--selector"] * len(args[5::2])
    return args[5::2]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], ["nvidia.com/gpu.present=true"]),
        (["--set-json=nodeSelector=null"], []),
        (["--set=nodeSelector.pool=mig"], ["nvidia.com/gpu.present=true,pool=mig"]),
        (["--set=excludeNodeLabels.pool=mig"], ["nvidia.com/gpu.present=true,pool notin (mig)"]),
        (
            [f"--set-json=affinity={json.dumps(_POOLS)}", "--set=excludeNodeLabels.own=1"],
            [
                "nvidia.com/gpu.present=true,pool in (a,b),own notin (1)",
                "nvidia.com/gpu.present=true,gpu,!virtual,own notin (1)",
            ],
        ),
    ],
    ids=["default", "every node", "a pool", "all but a pool", "affinity"],
)
def test_it_works_on_the_nodes_of_the_release(flags: list[str], expected: list[str]) -> None:
    """Another release's nodes keep theirs: the selectors say what nodeSelector and affinity say."""
    strings = [each.replace("--set=excludeNodeLabels.own", "--set-string=excludeNodeLabels.own") for each in flags]
    assert selectors(*strings) == expected


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


def test_whoever_gives_the_rights_himself_has_no_hook() -> None:
    """It would bring a role and admission policies of its own, which rbac.create=false says not to."""
    assert len(hook()) == 6
    assert hook("--set=rbac.create=false") == []
    assert hook("--set=withdraw.onUninstall=false") == []
