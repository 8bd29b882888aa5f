"""What people declare, on a real daemon that enforces: who owns the card lives, and a wrong unit kills nobody."""

import json
from pathlib import Path
from typing import Final

import pytest

from tests.node.support import REPOSITORY
from tests.rig import Node, gpu_watchdog
from tests.rig.node import Tenant
from tests.rig.volume import mount
from tests.stub import GIB
from tests.world.policies import KILL_AT_ONCE
from tests.world.test_kill import run

pytestmark = [pytest.mark.node, pytest.mark.slow]

SHIPPED: Final = REPOSITORY / "config" / "policy.toml"
RULE: Final = """
[[rule]]
name = "all"
match = {}
"""
VOLCANO: Final = 'schemes = ["*", "volcano"]'
BY_DEFAULT: Final = 'default = "1Gi"'


def _policy(folder: Path, head: str, rule: str = "") -> Path:
    step = f"[[rule.step]]\n{KILL_AT_ONCE}\nunwarned = true\n"
    return mount(folder / "policy.toml", f'mode = "enforce"\n{head}\n{RULE}{rule}\n{step}')


def _tenant(world: Node, asks: dict[str, str], used: int) -> Tenant:
    """A pod that asks for this and uses so much, beside one that is over its limit for certain."""
    owner = world.pod("owner", ("main", None))
    owner.containers[0].resources = asks
    tenant = world.start(owner, used=used)
    world.single("hog", used=2 * GIB, declared="256Mi")
    return tenant


@pytest.mark.parametrize(
    ("head", "asks", "capacity"),
    [
        ('schemes = ["*"]', {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "0"}, {"nvidia.com/gpu": "10"}),
        ('schemes = ["*"]', {"koordinator.sh/gpu": "100"}, {"koordinator.sh/gpu": "100"}),
        (VOLCANO, {"volcano.sh/vgpu-number": "1"}, {"volcano.sh/vgpu-number": "10"}),
    ],
    ids=["HAMi, 0 is not set", "Koordinator, a whole card", "Volcano, a number of cards"],
)
def test_who_owns_the_card_is_not_killed(
    any_world: Node, head: str, asks: dict[str, str], capacity: dict[str, str]
) -> None:
    """Points 4 and 6: neither a 0 that is not set nor a default ends a pod with a whole card; the offender dies."""
    any_world.mark(labels={"nvidia.com/gpu.count": "1"}, capacity={**capacity, "veriff.com/gpu-memory": "80Gi"})
    owner = _tenant(any_world, asks, 5 * GIB)
    offender = any_world.pods[1].containers[0].tenants[0]
    with run(any_world, _policy(any_world.root, head, BY_DEFAULT)) as running:
        running.wait(lambda _: not offender.is_alive, 20)
        running.wait_passes(2)
        verdicts = {each["pod"]: each["verdict"] for each in running.status()["accounts"]}
    assert (owner.is_alive, owner.terms, verdicts["owner"]) == (True, [], "within")


def test_a_card_by_a_claim_is_not_judged_by_the_default(any_world: Node) -> None:
    """Points 4 and 43: what a claim gave is not known, so the limit is unknown, with its cause, and nothing is done."""
    owner = _tenant(any_world, {}, 5 * GIB)
    offender = any_world.pods[1].containers[0].tenants[0]
    any_world.write()
    pods = json.loads(any_world.pods_file.read_text(encoding="utf-8"))
    pods["items"][0]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    pods["items"][0]["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    any_world.pods_file.write_text(json.dumps(pods), encoding="utf-8")
    with run(any_world, _policy(any_world.root, 'schemes = ["*"]', BY_DEFAULT)) as running:
        running.wait(lambda _: not offender.is_alive, 20)
        (account,) = (each for each in running.status()["accounts"] if each["pod"] == "owner")
    assert (owner.is_alive, account["verdict"], account["declared_by"]) == (True, "unknown", "claim gpu")
    assert "container main may have a GPU by the ResourceClaim gpu" in account["limit_unknown"]


WRONG: Final = 'schemes = ["*"]\n[[declaration]]\nresource = "nvidia.com/gpumem"\nunit = "1"\nper = "gpu"'


def test_a_wrong_unit_kills_nobody_and_check_fails(any_world: Node) -> None:
    """Point 6: MiB read as bytes would kill every pod; the table applies to no pod, and `check` says why."""
    asks = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "6144"}
    owner = _tenant(any_world, asks, 5 * GIB)
    offender = any_world.pods[1].containers[0].tenants[0]
    policy = _policy(any_world.root, WRONG)
    checked = gpu_watchdog("check", policy, stub=any_world.stub_file)
    with run(any_world, policy) as running:
        running.wait(lambda _: not offender.is_alive, 20)
        running.wait_passes(2)
        (account,) = (each for each in running.status()["accounts"] if each["pod"] == "owner")
    assert (owner.is_alive, owner.terms, account["verdict"]) == (True, [], "misdeclared")
    assert (checked.returncode, checked.stdout) == (1, "")
    assert 'declaration[0].unit: "1" is smaller than "1Mi"' in checked.stderr
