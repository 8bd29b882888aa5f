"""Pods as large as the API server accepts, which need not even run, beside an offender of another namespace."""

import json
from functools import partial
from typing import Any, Final

import pytest

from tests.rig import Node
from tests.rig.node import Container
from tests.rig.volume import mount
from tests.stub import GIB
from tests.world.policies import kill
from tests.world.test_kill import run

pytestmark = [pytest.mark.node, pytest.mark.slow]

POLICY: Final = f"""mode = "enforce"
schemes = ["*"]
[[rule]]
name = "all"
match = {{}}
[[rule.step]]
{kill("1s")}
unwarned = true
"""


NONE_OF_100: Final = {f"nvidia.com/mig-{each}": "0" for each in range(100)}


def _fat(number: int) -> dict[str, Any]:
    """A pod that never runs: 250 init containers, each of which requests none of 100 MIG resources (0.76 MB)."""
    limits = {"resources": {"limits": NONE_OF_100}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"fat-{number}", "namespace": "mallory", "uid": f"00000000-0000-4000-8000-{number:012}"},
        "spec": {
            "nodeName": "n1",
            "initContainers": [{"name": f"i{each}", "image": "i", **limits} for each in range(250)],
            "containers": [{"name": "main", "image": "i"}],
        },
        "status": {"phase": "Pending"},
    }


@pytest.mark.parametrize("number", [0, 12], ids=["control", "12 fat pods"])
def test_pods_that_never_run_do_not_stop_the_enforcement_of_a_node(any_world: Node, number: int) -> None:
    """Law 10 and point 39: the offender dies as it does without them."""
    hog = any_world.single("hog", used=9 * GIB)
    pods = json.loads(any_world.pods_file.read_text(encoding="utf-8"))
    pods["items"] += [_fat(each) for each in range(number)]
    any_world.pods_file.write_text(json.dumps(pods), encoding="utf-8")
    with run(any_world, mount(any_world.root / "policy.toml", POLICY)) as running:
        running.wait(lambda _: not hog.is_alive, 30)


@pytest.mark.parametrize("number", [0, 1, 4], ids=["control", "one fat pod", "4 fat pods"])
def test_running_pods_with_thousands_of_phases_stop_nothing_either(any_world: Node, number: int) -> None:
    """Law 10 and point 39: each has a process in a container that the list lacks, so any of its phases may apply."""
    fat = []
    for each in range(number):
        pod = any_world.pod(f"fat-{each}", ("main", "1Gi"), namespace="mallory")
        pod.containers[0].is_new = True
        fat.append(any_world.start(pod, used=2 * GIB))
        pod.containers += [Container(f"i{init}", "", "1Gi", resources=NONE_OF_100, init="plain") for init in range(63)]
    hog = any_world.single("hog", used=9 * GIB)
    with run(any_world, mount(any_world.root / "policy.toml", POLICY)) as running:
        running.wait(lambda _: not hog.is_alive, 30)
        assert running.get("/healthz")[0] == 200
    assert all(tenant.is_alive and not tenant.terms for tenant in fat)


def test_a_pod_hides_in_nothing_that_it_writes(any_world: Node) -> None:
    """Points 6 and 39: what it declares is read although it is as large as can be, and its offending container dies."""
    pod = any_world.pod("hog", ("main", "1Gi"))
    ended = partial(Container, id="", resources=NONE_OF_100, init="plain", is_new=True)
    pod.containers += [ended(f"i{each}") for each in range(250)]
    hog = any_world.start(pod, used=9 * GIB)
    any_world.write()
    with run(any_world, mount(any_world.root / "policy.toml", POLICY)) as running:
        running.wait(lambda _: not hog.is_alive, 30)
