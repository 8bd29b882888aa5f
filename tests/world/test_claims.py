"""Pods that share a card by resource claims, on a real node: each is held to what its own claim was given."""

import json
from pathlib import Path

import pytest

from tests.claims import claim, device, listed, resource_slice, result, with_claims
from tests.rig import Daemon, Node
from tests.rig.command import gpu_watchdog
from tests.rig.node import GPU, Tenant
from tests.stub import GIB
from tests.world.policies import KILL_AT_ONCE, write_policy
from tests.world.test_kill import run

pytestmark = [pytest.mark.node, pytest.mark.slow]


class Claims:
    """Two pods with a share of one card each, 4Gi and 8Gi, and the files that say so."""

    def __init__(self, world: Node) -> None:
        self.world = world
        self.claims, self.slices = world.root / "claims.json", world.root / "slices.json"
        self.slices.write_bytes(listed(resource_slice(device(uuid=GPU))))
        pods = [world.pod(name, ("main", None)) for name in ("small", "large")]
        self.small, self.large = (world.start(pod, used=GIB) for pod in pods)
        self.uids = [pod.uid for pod in pods]
        self.write("small", "large")
        self.show()

    def write(self, *names: str) -> None:
        """Let the file of claims have those of these pods alone."""
        amounts = {"small": ("4Gi", self.uids[0]), "large": ("8Gi", self.uids[1])}
        made = [claim(name, result(memory=amounts[name][0]), pods=(amounts[name][1],)) for name in names]
        _put(self.claims, listed(*made))

    def show(self) -> None:
        """Let the driver and the pod list show what is there."""
        self.world.write()
        raw = json.loads(self.world.pods_file.read_text(encoding="utf-8"))["items"]
        items = (with_claims(each, {"gpu": each["metadata"]["name"]}, {"main": ["gpu"]}) for each in raw)
        _put(self.world.pods_file, listed(*items))

    def use(self, tenant: Tenant, used: int) -> None:
        """Let a process use this much from now on; the pod list stays."""
        tenant.used = used
        self.world.write(pods=False)

    def share(self) -> None:
        """Let both pods have the claim `large` from now on."""
        made = claim("large", result(memory="8Gi"), pods=tuple(self.uids))
        _put(self.claims, listed(made))
        raw = json.loads(self.world.pods_file.read_text(encoding="utf-8"))["items"]
        _put(self.world.pods_file, listed(*(with_claims(each, {"gpu": "large"}, {"main": ["gpu"]}) for each in raw)))


def _put(path: Path, data: bytes) -> None:
    path.with_suffix(".new").write_bytes(data)
    path.with_suffix(".new").rename(path)


def _declared(running: Daemon, pod: str) -> float | None:
    return running.metric("account_memory_declared_bytes", pod=pod, gpu=GPU)


def test_who_exceeds_its_share_is_killed_and_its_neighbour_lives(any_world: Node) -> None:
    """Points 42 and 43: 5Gi are too much for a claim of 4Gi, and not for one of 8Gi; what is unknown kills nobody."""
    here = Claims(any_world)
    here.write("large")
    policy = write_policy(any_world.root, KILL_AT_ONCE, keys='schemes = ["dra"]\n')
    more = ("--claims", here.claims, "--slices", here.slices)
    with run(any_world, policy, more=more) as running:
        running.wait(lambda _: _declared(running, "large") == 8 * GIB)
        here.use(here.small, 5 * GIB)
        here.use(here.large, 5 * GIB)
        running.wait_passes(3)
        assert running.metric("scan_gaps_total", reason="claims")
        assert here.small.is_alive
        here.write("small", "large")
        running.wait(lambda _: not here.small.is_alive)
        running.wait_passes(2)
        assert here.large.is_alive
        assert not here.large.terms
        (begun,) = running.events("kill_begun")
        assert begun["pod"] == "small"
        assert "4Gi declared by claim small/gpu" in json.dumps(begun), begun


def test_of_two_pods_on_one_claim_the_one_that_uses_more_is_killed(any_world: Node) -> None:
    """Point 42: each is within 8Gi, together they use 9Gi; the other one lives, and is within the claim afterwards."""
    here = Claims(any_world)
    here.share()
    policy = write_policy(any_world.root, KILL_AT_ONCE, keys='schemes = ["dra"]\n')
    more = ("--claims", here.claims, "--slices", here.slices)
    with run(any_world, policy, more=more) as running:
        running.wait(lambda _: _declared(running, "small") == 8 * GIB)
        here.small.used = 4 * GIB
        here.use(here.large, 5 * GIB)
        running.wait(lambda _: not here.large.is_alive)
        running.wait_passes(3)
        assert here.small.is_alive
        assert not here.small.terms
        (begun,) = running.events("kill_begun")
        assert "8.6Gi together with the other pods on its claim" in json.dumps(begun), begun


def test_the_owner_of_a_share_without_an_amount_is_told(any_world: Node) -> None:
    """Point 42: `explain`, `scan` and the status say that its claim gives a share and no amount, and what to add."""
    here = Claims(any_world)
    made = claim("small", result(memory="0"), pods=(here.uids[0],))
    _put(here.claims, listed(made, claim("large", result(memory="8Gi"), pods=(here.uids[1],))))
    for default, says in (("1Mi", "so the default of its rule applies"), ("", "It has no declaration that the policy")):
        policy = write_policy(any_world.root, KILL_AT_ONCE, mode="observe", keys='schemes = ["dra"]\n', default=default)
        files = ("--claims", here.claims, "--slices", here.slices)
        with run(any_world, policy, more=files) as running:
            running.wait(lambda _: _declared(running, "large") == 8 * GIB)
            explained = gpu_watchdog("explain", "ns/small", "--url", running.url, stub=any_world.stub_file).stdout
            open_shares = {each["pod"]: each.get("open_share") for each in running.status()["accounts"]}
        pods = ("--pods", any_world.pods_file, "--node", "n1", "--policy", policy)
        scanned = gpu_watchdog("scan", *pods, *files, stub=any_world.stub_file).stdout
        missing = (
            "laim small/gpu gives it a share of a card, but no amount of memory: to have one, make the pod again with "
            "a ResourceClaim like small whose request gpu has capacity.requests.memory"
        )
        assert says in " ".join(explained.split())
        assert missing in " ".join(explained.split())
        assert missing in " ".join(scanned.split())
        assert open_shares == {"small": f"c{missing}", "large": None}


def test_explain_and_the_page_say_who_shares_the_claim(any_world: Node) -> None:
    """Point 42: the owner of either pod reads what both use together, and which of them is acted on."""
    here = Claims(any_world)
    here.share()
    here.small.used = 4 * GIB
    here.use(here.large, 5 * GIB)
    policy = write_policy(any_world.root, KILL_AT_ONCE, mode="observe", keys='schemes = ["dra"]\n')
    with run(any_world, policy, more=("--claims", here.claims, "--slices", here.slices)) as running:
        running.wait(lambda d: sum(each["over_since"] is not None for each in d.status()["accounts"]) == 2)
        explained = {
            pod: gpu_watchdog("explain", f"ns/{pod}", "--url", running.url, stub=any_world.stub_file).stdout
            for pod in ("small", "large")
        }
        together = " ".join(explained["small"].split())
        assert "Together with ns/large, on the same claim, it is 8.6Gi (not counting their allowances)." in together
        assert "Of these, ns/large uses more and is the one acted on" in together
        whole = " ".join(explained["large"].split())
        assert f"uses 5Gi of GPU memory on {GPU}." in whole
        assert "8Gi declared by claim large/gpu" in whole
        assert "with a ResourceClaim like large whose request gpu has capacity.requests.memory of at least" in whole
        assert "on its claim" in running.get("/")[1]
