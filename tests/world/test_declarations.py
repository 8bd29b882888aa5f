"""`scan` of pods as GPU sharing systems write them, on a node with whole cards and MIG instances."""

import json
from pathlib import Path

import pytest

from tests.rig import gpu_watchdog
from tests.stub import GIB, MIB, Stub, StubGpu, StubMig

pytestmark = [pytest.mark.node, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PODS = ROOT / "tests" / "kube" / "declaring_pods.json"


def test_a_scan_reads_what_the_driver_and_the_node_tell(tmp_path: Path) -> None:
    """Sizes come from NVML, shares from the node's object, and the shipped policy puts them together."""
    migs = tuple(
        StubMig(uuid=f"MIG-{slot}", slot=slot, gi=slot + 1, profile=profile, total=9728 * MIB)
        for slot, profile in enumerate(["1g.10gb", "1g.10gb", "1g.10gb+me"])
    )
    cards = StubGpu(uuid="GPU-a", total=81 * GIB, reserved=GIB), StubGpu(uuid="GPU-m", total=80 * GIB, migs=migs)
    stub = Stub(gpus=cards).write(tmp_path / "stub")
    metadata = {"name": "gpu-1", "labels": {"nvidia.com/gpu.replicas": "4"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    (tmp_path / "node.json").write_text(json.dumps(node), encoding="utf-8")
    of_node = ("--node", "gpu-1", "--node-object", tmp_path / "node.json")
    done = gpu_watchdog(
        "scan", "--json", "--policy", ROOT / "config" / "policy.toml", "--pods", PODS, *of_node, stub=stub
    )
    assert (done.returncode, done.stderr) == (0, "")
    declared = {each["pod"]: each["declared"] for each in json.loads(done.stdout)["accounts"]}
    expected = {
        "veriff-liveness": 104 * MIB,
        "hami-gpumem": 6000 * MIB,
        "hami-percentage": 40 * GIB,
        "time-sliced": 20 * GIB,
        "time-sliced-renamed": 40 * GIB,
        "mig-two": 2 * 9728 * MIB,
        "mig-media": 9728 * MIB,
        "koordinator-ratio": 160 * GIB,
        "tencent-whole": 160 * GIB,
    }
    assert {name: declared.get(name) for name in expected} == expected
    assert "kai-memory" not in declared  # an annotation, which the shipped policy does not trust
