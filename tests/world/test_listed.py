"""Resources that the node does not list, on a real daemon that enforces: no pod gains by them, and no innocent dies."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.rig import Daemon, Node, gpu_watchdog
from tests.rig.node import Tenant
from tests.rig.volume import mount
from tests.stub import GIB
from tests.world.policies import KILL_AT_ONCE
from tests.world.test_kill import run

pytestmark = [pytest.mark.node, pytest.mark.slow]

GPU, MEMORY, SIZE = "nvidia.com/gpu", "nvidia.com/gpumem", "koordinator.sh/gpu-memory"
COUNT: Final = {"nvidia.com/gpu.count": "1"}
SLICED: Final = {**COUNT, "nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
HAMI: Final = {"hami.io/node-nvidia-register": "[]"}
ONE: Final = {GPU: "1"}
DEFAULT: Final = 'default = "2Gi"'


@dataclass(frozen=True, kw_only=True)
class Given:
    """A node, and what the containers of a pod request there; `schemes` are read before all others."""

    asks: tuple[dict[str, str], ...]
    labels: dict[str, str] = field(default_factory=lambda: dict(SLICED))
    capacity: dict[str, str] = field(default_factory=lambda: {GPU: "4", "cpu": "8"})
    registered: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    schemes: tuple[str, ...] = ()
    rule: str = ""


# The card has 39.5Gi, and a quarter of it is 9.9Gi. Each is with the trick, and without.
RAISING: Final = {
    "gpumem on a node with time-slicing": (Given(asks=({**ONE, MEMORY: "40000"},)), Given(asks=(ONE,))),
    "a sidecar": (Given(asks=(ONE, {SIZE: "39Gi"})), Given(asks=(ONE, {}))),
    "a MIG profile that no device has": (
        Given(asks=({**ONE, "nvidia.com/mig-7g.80gb": "1"},)),
        Given(asks=(ONE,)),
    ),
    "cores that make a whole card, beside a default": (
        Given(asks=({"tencent.com/vcuda-core": "100"},), rule=DEFAULT),
        Given(asks=({},), rule=DEFAULT),
    ),
}
INNOCENT: Final = {
    "HAMi, whose memory no node lists": Given(
        asks=({"nvidia.com/vgpu": "1", MEMORY: "20480"},),
        labels=COUNT,
        capacity={"nvidia.com/vgpu": "10"},
        registered=HAMI,
        rule=DEFAULT,
    ),
    "HAMi, with the labels of an earlier time-slicing": Given(asks=({**ONE, MEMORY: "20480"},), registered=HAMI),
    "an annotation of KAI beside a default": Given(
        asks=({},), annotations={"gpu-memory": "20480"}, schemes=("kai",), rule=DEFAULT
    ),
    "a capacity that is empty": Given(asks=({SIZE: "20Gi"},), labels=COUNT, capacity={}, rule=DEFAULT),
}


def _run(world: Node, given: Given) -> AbstractContextManager[Daemon]:
    names = ", ".join(f'"{name}"' for name in (*given.schemes, "*"))
    step = f"[[rule.step]]\n{KILL_AT_ONCE}\nunwarned = true\n"
    text = f'mode = "enforce"\nschemes = [{names}]\n[[rule]]\nname = "all"\nmatch = {{}}\n{given.rule}\n{step}'
    return run(world, mount(world.root / "policy.toml", text), more=("--node-object", world.node_file))


def _tenant(world: Node, given: Given, used: int) -> Tenant:
    """The pod, whose first container uses this much."""
    world.mark(labels=given.labels, annotations=given.registered, capacity=given.capacity)
    owner = world.pod("owner", *((f"c{number}", None) for number in range(len(given.asks))))
    owner.metadata = {"annotations": given.annotations}
    for box, asked in zip(owner.containers, given.asks, strict=True):
        box.resources = asked
    tenant = world.start(owner, used=used)
    world.write()
    return tenant


def _account(running: Daemon, pod: str = "owner") -> dict[str, Any]:
    found = [each for each in running.status()["accounts"] if each["pod"] == pod]
    return dict(found[0]) if found else {}


@pytest.mark.parametrize("given", RAISING.values(), ids=RAISING)
@pytest.mark.parametrize("is_control", [False, True], ids=["trick", "control"])
def test_what_the_node_does_not_list_saves_no_offender(
    any_world: Node, given: tuple[Given, Given], is_control: bool
) -> None:
    """Point 6: who names its node itself can request anything, and dies like a pod that does not."""
    offender = _tenant(any_world, given[is_control], 15 * GIB)
    with _run(any_world, given[is_control]) as running:
        running.wait(lambda _: not offender.is_alive, 20)


@pytest.mark.parametrize("given", INNOCENT.values(), ids=INNOCENT)
def test_what_was_checked_otherwise_still_counts(any_world: Node, given: Given) -> None:
    """Point 6: a pod that uses what its own system gave it lives, beside an offender of the same kind, which dies."""
    owner = _tenant(any_world, given, 15 * GIB)
    offender = any_world.single("hog", used=3 * GIB, declared="1Gi")
    any_world.mark(
        labels=given.labels,
        annotations=given.registered,
        capacity={**given.capacity, "veriff.com/gpu-memory": "39Gi"} if given.capacity else {},
    )
    with _run(any_world, given) as running:
        running.wait(lambda _: not offender.is_alive, 20)
        running.wait_passes(2)
        account = _account(running)
    assert (owner.is_alive, owner.terms, account["verdict"]) == (True, [], "within")


def _drop(world: Node) -> None:
    world.mark(labels=COUNT, capacity={"cpu": "8"})


@pytest.mark.parametrize("again", [False, True], ids=["the same daemon", "another daemon"])
def test_a_resource_that_vanishes_while_the_node_registers_again_makes_no_offender(
    any_world: Node, again: bool
) -> None:
    """Point 6: what was listed in a pod's life counts, over a restart of the daemon too; a pod that came later dies."""
    listed = Given(asks=({SIZE: "20Gi"},), labels=COUNT, capacity={SIZE: "39Gi", "cpu": "8"}, rule=DEFAULT)
    owner = _tenant(any_world, listed, 15 * GIB)
    with _run(any_world, listed) as running:
        running.wait(lambda daemon: _account(daemon).get("verdict") == "within")
        running.wait(lambda daemon: daemon.status()["enforcing"])
        running.wait_passes(2)
        if not again:
            _survives(any_world, owner, running)
    if again:
        _drop(any_world)
        with _run(any_world, listed) as running:
            _survives(any_world, owner, running)


def _survives(world: Node, owner: Tenant, running: Daemon) -> None:
    """The node drops the resource, and only another pod without any declaration dies."""
    _drop(world)
    running.wait_passes(2)
    offender = world.single("hog", used=5 * GIB, declared=None)
    running.wait(lambda _: not offender.is_alive, 20)
    running.wait_passes(2)
    assert (owner.is_alive, owner.terms, _account(running)["verdict"]) == (True, [], "within")


def test_it_is_reported_what_counted_instead(any_world: Node) -> None:
    """Point 6: the status, `scan` and `explain` say which resource nobody has checked, and what applies instead."""
    given = Given(asks=({**ONE, MEMORY: "40000"},))
    _tenant(any_world, given, GIB)
    node = ("--node-object", any_world.node_file)
    with _run(any_world, given) as running:
        running.wait(lambda daemon: _account(daemon).get("verdict") == "within")
        account = _account(running)
        reported = gpu_watchdog("explain", "ns/owner", "--url", running.url, stub=any_world.stub_file).stdout
    assert (account["declared_by"], account["misdeclarations"][0]["counts"]) == (GPU, False)
    assert account["misdeclarations"][0]["source"] == f"{MEMORY} of container c0"
    policy, pods = any_world.root / "policy.toml", any_world.pods_file
    listed = gpu_watchdog(
        "scan", "--node", "n1", "--policy", policy, "--pods", pods, *node, stub=any_world.stub_file
    ).stdout
    for text in (reported, listed):
        flat = " ".join(text.split())
        assert f"{MEMORY} of container c0 is ignored: the node does not list this resource" in flat
