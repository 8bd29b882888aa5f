"""`scan` on a real node, also with pods as GPU sharing systems write them, whole cards and MIG instances."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.node.support import REPOSITORY, need_root
from tests.rig import Node, gpu_watchdog
from tests.rig.node import GPU
from tests.stub import GIB, MIB, Stub, StubGpu, StubMig
from tests.world.policies import KILL_AFTER_2S, WARN_AT_ONCE, kill, write_policy

pytestmark = pytest.mark.node


def scan(stub: Path, *more: str | Path) -> dict[str, Any]:
    """What `scan --json` prints."""
    done = gpu_watchdog("scan", "--json", *more, stub=stub)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_scan_has_the_numbers_of_the_node(world: Node) -> None:
    """Each card, account, process and step that would follow, with the numbers that this node has."""
    offender = world.pod("hog", ("main", "1Gi"), ("side", None))
    over, side = world.start(offender, 0, used=2 * GIB), world.start(offender, 1, used=256 * MIB)
    within, host = world.single("calm", declared="4Gi", used=3 * GIB), world.start(None, used=GIB)
    world.write()
    policy = write_policy(world.root, WARN_AT_ONCE, KILL_AFTER_2S)
    got = scan(world.stub_file, "--policy", policy, "--pods", world.pods_file, "--node", "n1")
    memory = {"total": 40 * GIB, "used": 6 * GIB + 768 * MIB, "reserved": 512 * MIB, "residual": 0}
    (card,) = got["gpus"]
    assert (card["uuid"], card["up"], card["listed"], card["memory"]) == (GPU, True, True, memory)
    first, second = sorted(got["accounts"], key=lambda each: str(each["verdict"]))
    allowed = (GIB * 102) // 100 + 2 * 256 * MIB
    assert (first["pod"], first["used"], first["declared"], first["allowed"]) == ("hog", 9 * 256 * MIB, GIB, allowed)
    assert (first["verdict"], first["declared_by"]) == ("over", "veriff.com/gpu-memory")
    assert first["over_since"] is not None
    assert {(each["pid"], each["container"], each["used"]) for each in first["processes"]} == {
        (over.pid, "main", over.used),
        (side.pid, "side", side.used),
    }
    assert (second["verdict"], [each["pid"] for each in second["processes"]]) == ("within", [within.pid])
    assert [(each["pid"], each["used"], each["reason"]) for each in got["unattributed"]] == [(host.pid, GIB, "host")]
    plan = [(each["do"], each["due_in_s"], each["pids"], each["withheld_by"]) for each in got["plan"]]
    assert plan == [("warn", 0, [], None), ("kill", 2, [over.pid], None)]
    assert (got["node"], got["mode"], got["enforcing"], got["gaps"]) == ("n1", "enforce", False, [])


def test_scan_without_policy_and_pods(any_world: Node) -> None:
    """Without a policy a built-in one observes; without pods every process of a pod is of an unknown one."""
    over = any_world.single("hog", used=9 * GIB)
    got = scan(any_world.stub_file)
    assert got["mode"] == "observe"
    assert [(each["pid"], each["reason"]) for each in got["unattributed"]] == [(over.pid, "unknown_pod")]


def test_scan_never_acts(any_world: Node) -> None:
    """A scan under an enforcing policy that would kill at once leaves everybody alone and opens no journal."""
    over = any_world.single("hog", used=9 * GIB)
    policy = write_policy(any_world.root, kill(grace="0s"))
    before = set(any_world.root.rglob("*"))
    (account,) = scan(any_world.stub_file, "--policy", policy, "--pods", any_world.pods_file, "--node", "n1")[
        "accounts"
    ]
    assert (account["verdict"], over.is_alive) == ("over", True)
    assert set(any_world.root.rglob("*")) == before


def test_every_option_comes_from_the_environment_too(any_world: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option is also `GPU_WATCHDOG_...`; the node's name `NODE_NAME` too."""
    any_world.single("hog", used=9 * GIB)
    monkeypatch.setenv("GPU_WATCHDOG_POLICY", str(write_policy(any_world.root, KILL_AFTER_2S)))
    monkeypatch.setenv("GPU_WATCHDOG_PODS", str(any_world.pods_file))
    monkeypatch.setenv("NODE_NAME", "n1")
    got = scan(any_world.stub_file)
    assert (got["node"], got["mode"], got["accounts"][0]["verdict"]) == ("n1", "enforce", "over")


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
    policy, pods = REPOSITORY / "config/policy.toml", REPOSITORY / "tests/kube/declaring_pods.json"
    got = scan(stub, "--policy", policy, "--pods", pods, "--node", "gpu-1", "--node-object", tmp_path / "node.json")
    declared = {each["pod"]: each["declared"] for each in got["accounts"]}
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


@pytest.mark.parametrize("arguments", [("scan", "--bogus"), ("bogus",), ("check",)])
def test_wrong_use_is_exit_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """An unknown option or command and a missing argument are 2, with the reason on stderr."""
    done = gpu_watchdog(*arguments, stub=tmp_path / "none")
    assert (done.returncode, done.stdout, done.stderr != "") == (2, "", True)


def test_the_default_of_node_is_in_lower_case(any_world: Node) -> None:
    """The kubelet names the node after its host in lower case, so a host in capitals still finds its pods."""
    need_root()
    prefix = ("unshare", "--uts", "sh", "-c", 'hostname GPU-Node-1 && exec "$@"', "sh")
    done = gpu_watchdog("scan", "--json", stub=any_world.stub_file, prefix=prefix)
    assert json.loads(done.stdout)["node"] == "gpu-node-1"
