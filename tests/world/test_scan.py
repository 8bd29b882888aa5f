"""`scan` on a real node."""

import json
import subprocess

import pytest

from tests.rig import Node, gpu_watchdog
from tests.stub import GIB
from tests.world.policies import KILL_AFTER_2S, write_policy

pytestmark = pytest.mark.node


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
