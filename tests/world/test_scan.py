"""`scan` on a real node."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig import Node, gpu_watchdog
from tests.rig.node import GPU
from tests.stub import GIB, MIB, StubProcess
from tests.world.policies import KILL_AFTER_2S, WARN_AT_ONCE, write_policy
from watchdog.core.units import parse_quantity

pytestmark = pytest.mark.node


def _ticks(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    return int(text.rpartition(")")[2].split()[19])


def test_scan_prints_the_documented_json(world: Node) -> None:
    """Every key of the JSON, with the numbers that this node has; nothing else."""
    hog = world.pod("hog", ("main", "1Gi"), ("side", None))
    calm = world.pod("calm", ("main", "4Gi"))
    over = world.start(hog, 0, used=2 * GIB)
    side = world.start(hog, 1, used=256 * MIB)
    within = world.start(calm, 0, used=3 * GIB)
    host = world.start(None, used=GIB)
    world.write()
    policy = write_policy(world.root, WARN_AT_ONCE, KILL_AFTER_2S)
    done = gpu_watchdog(
        "scan", "--json", "--policy", policy, "--pods", world.pods_file, "--node", "n1", stub=world.stub_file
    )
    assert (done.returncode, done.stderr) == (0, "")
    got = json.loads(done.stdout)
    allowed = (GIB * 102) // 100 + 2 * 256 * MIB
    assert got.pop("at").endswith("Z")
    assert set(got.pop("policy")) == {"sha256", "loaded_at"}
    assert got.pop("gpus") == [
        {
            "uuid": GPU,
            "index": 0,
            "name": "NVIDIA Stub",
            "parent": None,
            "gi": None,
            "ci": None,
            "profile": None,
            "up": True,
            "memory": {
                "total": 40 * GIB,
                "used": 6 * GIB + 256 * MIB + 512 * MIB,
                "reserved": 512 * MIB,
                "residual": 0,
            },
            "listed": True,
            "unattributed": GIB,
        }
    ]
    hog_account = next(each for each in got["accounts"] if each["pod"] == "hog")
    assert hog_account.pop("over_since") is not None
    expected = {
        "namespace": "ns",
        "pod": "hog",
        "uid": hog.uid,
        "container": None,
        "gpu": None,
        "used": 2 * GIB + 256 * MIB,
        "used_at_least": 2 * GIB + 256 * MIB,
        "declared": GIB,
        "declared_by": "veriff.com/gpu-memory",
        "allowed": allowed,
        "verdict": "over",
        "rule": "shared",
        "protected": None,
        "processes": [
            {
                "pid": tenant.pid,
                "start_ticks": _ticks(tenant.pid),
                "container": name,
                "gpu": GPU,
                "used": tenant.used,
                "name": Path(f"/proc/{tenant.pid}/comm").read_text(encoding="ascii").strip(),
            }
            for tenant, name in sorted(((over, "main"), (side, "side")), key=lambda pair: pair[0].pid)
        ],
    }
    assert {key: hog_account[key] for key in expected} == expected
    calm_account = next(each for each in got.pop("accounts") if each["pod"] == "calm")
    assert (calm_account["verdict"], calm_account["over_since"]) == ("within", None)
    assert [each["pid"] for each in calm_account["processes"]] == [within.pid]
    name = Path(f"/proc/{host.pid}/comm").read_text(encoding="ascii").strip()
    assert got.pop("unattributed") == [{"pid": host.pid, "gpu": GPU, "used": GIB, "reason": "host", "name": name}]
    plan = [(each["do"], each["due_in_s"], each["pids"], each["withheld_by"]) for each in got["plan"]]
    assert plan == [("warn", 0, [], None), ("kill", 2, [over.pid], None)]
    assert set(got.pop("plan")[1]) >= {
        *("namespace", "pod", "uid", "container", "do", "scope", "pids", "rule", "step", "due_in_s", "withheld_by")
    }
    rest = {"node": "n1", "mode": "enforce", "enforcing": False, "suspended": [], "gaps": []}
    assert {key: got[key] for key in rest} == rest


def test_scan_never_acts(world_v1: Node) -> None:
    """A scan under an enforcing policy that would kill at once leaves everybody alone and opens no journal."""
    hog = world_v1.pod("hog", ("main", "1Gi"))
    over = world_v1.start(hog, 0, used=9 * GIB)
    world_v1.write()
    policy = write_policy(world_v1.root, 'above = "100%"\nfor = "0s"\ndo = "kill"\ngrace = "0s"')
    before = set(world_v1.root.rglob("*"))
    done = gpu_watchdog(
        "scan", "--policy", policy, "--pods", world_v1.pods_file, "--node", "n1", stub=world_v1.stub_file
    )
    assert done.returncode == 0
    assert "ns/hog" in done.stdout
    assert over.is_alive
    assert set(world_v1.root.rglob("*")) == before


def test_scan_without_policy_and_pods_says_what_it_does(world_v1: Node) -> None:
    """Without a policy a built-in one observes; without pods every process of a pod is `unknown_pod`; both are said."""
    hog = world_v1.pod("hog", ("main", "1Gi"))
    over = world_v1.start(hog, 0, used=9 * GIB)
    world_v1.write()
    done = gpu_watchdog("scan", "--json", stub=world_v1.stub_file)
    got = json.loads(done.stdout)
    assert got["mode"] == "observe"
    assert [(each["pid"], each["reason"]) for each in got["unattributed"]] == [(over.pid, "unknown_pod")]
    assert "built-in" in done.stderr
    assert "--pods" in done.stderr


def test_a_spoofed_cgroup_charges_nobody_else(world: Node) -> None:
    """A directory named after another pod below one's own cgroup changes nothing."""
    thief, victim = world.pod("thief", ("main", "1Gi")), world.pod("victim", ("main", "1Gi"))
    over = world.start(thief, 0, used=9 * GIB)
    world.enter(f"{thief.cgroup(thief.containers[0])}/{victim.cgroup(victim.containers[0])}", over.pid)
    world.write()
    policy = write_policy(world.root, KILL_AFTER_2S)
    done = gpu_watchdog(
        "scan", "--json", "--policy", policy, "--pods", world.pods_file, "--node", "n1", stub=world.stub_file
    )
    accounts = {each["pod"]: each["used"] for each in json.loads(done.stdout)["accounts"]}
    assert accounts == {"thief": 9 * GIB, "victim": 0}


def test_check_prints_the_policy_or_every_mistake(tmp_path: Path) -> None:
    """`check`: 0 and the compiled policy, or 1 and a line for every mistake with its place."""
    good = write_policy(tmp_path, KILL_AFTER_2S)
    done = gpu_watchdog("check", good, stub=tmp_path / "none")
    assert done.returncode == 0
    warnings = [line.partition(": warning: ")[2] for line in done.stderr.splitlines()]
    assert ["[brakes]" in warnings[0], warnings[1].startswith("rule[0].step[0]: ")] == [True, True]
    assert "shared" in done.stdout
    assert parse_quantity("256Mi") == 256 * MIB
    bad = write_policy(
        tmp_path, KILL_AFTER_2S.replace("2s", "2x"), 'above = "9%"\nfor = "1s"\ndo = "kill"', name="bad.toml"
    )
    done = gpu_watchdog("check", bad, stub=tmp_path / "none")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        [str(bad), "rule[0].step[0].for"],
        [str(bad), "rule[0].step[0].grace"],
        [str(bad), "rule[0].step[1].above"],
    ]
    assert "Traceback" not in done.stderr


def test_wrong_use_is_exit_2(tmp_path: Path) -> None:
    """Exit codes: an unknown option or command is 2, with a word on stderr."""
    for arguments in (("scan", "--bogus"), ("bogus",), ("check",)):
        done = gpu_watchdog(*arguments, stub=tmp_path / "none")
        assert done.returncode == 2
        assert done.stderr


def test_every_option_comes_from_the_environment_too(world_v1: Node) -> None:
    """Each option is also `GPU_WATCHDOG_...`; the node's name `NODE_NAME` too."""
    from tests.rig.command import COMMAND
    from tests.stub import environment

    hog = world_v1.pod("hog", ("main", "1Gi"))
    world_v1.start(hog, 0, used=9 * GIB)
    world_v1.write()
    policy = write_policy(world_v1.root, KILL_AFTER_2S)
    own = {"GPU_WATCHDOG_POLICY": str(policy), "GPU_WATCHDOG_PODS": str(world_v1.pods_file), "NODE_NAME": "n1"}
    done = subprocess.run(
        [COMMAND, "scan", "--json"],
        env={**environment(world_v1.stub_file), **own},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    got = json.loads(done.stdout)
    assert (got["node"], got["mode"], got["accounts"][0]["verdict"]) == ("n1", "enforce", "over")


def test_what_runs_on_two_cards_of_one_uuid_is_unknown(world_v1: Node) -> None:
    """A process on the second one is not read as one that uses nothing, nor one on the first as all that there is."""
    tenants = [world_v1.start(world_v1.pod(name, ("main", "1Gi")), used=9 * GIB) for name in ("first", "second")]
    world_v1.write()
    (card,) = world_v1.stub.gpus
    one, other = (replace(card, processes=(StubProcess(pid=tenant.pid, used=9 * GIB),)) for tenant in tenants)
    replace(world_v1.stub, gpus=(one, replace(other, uuid="GPU-1", says=GPU))).write(world_v1.stub_file)
    policy = write_policy(world_v1.root, KILL_AFTER_2S)
    done = gpu_watchdog(
        "scan", "--json", "--policy", policy, "--pods", world_v1.pods_file, "--node", "n1", stub=world_v1.stub_file
    )
    got = json.loads(done.stdout)
    assert {each["pod"]: each["verdict"] for each in got["accounts"]} == {"first": "unknown", "second": "unknown"}
    assert [each["what"] for each in got["gaps"]] == [GPU]
    assert got["plan"] == []
