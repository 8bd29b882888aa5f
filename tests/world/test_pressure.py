"""`run` on a card that is short of memory: one victim at a time, by rank, and none once there is room."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig import Node, Tenant
from tests.rig.record import actions, events
from tests.rig.volume import mount
from tests.stub import GIB, StubReturn
from tests.world.policies import kill, write_policy
from tests.world.test_kill import run

pytestmark = [pytest.mark.node, pytest.mark.slow]

LIMIT = "example.com/gpu-memory-limit"


def pressing(world: Node) -> Path:
    """A policy that kills above the limit at once, and above the request where less than a quarter is free."""
    pressed = f"{kill('1s', '0s')}\nunder_pressure = true"
    policy = write_policy(world.root, pressed, kill(grace="0s"), more='[pressure]\nfree_below = "25%"\n')
    text = policy.read_text(encoding="utf-8")
    return mount(policy, text.replace('unit = "1"', f'unit = "1"\nlimit_annotation = "{LIMIT}"'))


def guest(world: Node, name: str, used: int, priority: int) -> Tenant:
    """A tenant that asked for 8Gi and may burst to 20Gi."""
    noted = {"annotations": {LIMIT: "20Gi"}}
    return world.single(name, declared="8Gi", used=used, behaviour="plain", priority=priority, metadata=noted)


def others_use(world: Node, used: int, *returns: StubReturn) -> None:
    """Let so much of the card be used by none of this node's pods, and NVML calls return these codes."""
    (card,) = world.stub.gpus
    world.show(gpus=(replace(card, total=80 * GIB, base=used),), returns=returns)


def test_a_short_card_takes_one_after_the_other_and_no_more_than_it_needs(any_world: Node) -> None:
    """Point 37: by rank, the next only after the first one's memory is free, none with room or an unknown counter."""
    wanted = {"little": (12, 0), "much": (13, 0), "important": (14, 1000), "within": (2, 0)}
    guests = {name: guest(any_world, name, gib * GIB, priority) for name, (gib, priority) in wanted.items()}
    uids = {pod.uid: pod.name for pod in any_world.pods}
    any_world.stub = replace(any_world.stub, free_delay_ms=700)
    # Only 4.5 GiB of 80 are free, and nobody can know.
    calls = ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo")
    others_use(any_world, 34 * GIB, *(StubReturn(call=call, code=999) for call in calls))
    with run(any_world, pressing(any_world)) as running:
        running.wait_passes(2)
        assert [each["memory"]["used"] for each in running.status()["gpus"]] == [None]
        others_use(any_world, 14 * GIB)  # 24.5 GiB are free
        running.wait_passes(1)
        assert _living(guests) == ["important", "little", "much", "within"]
        assert actions(any_world.journal) == []
        others_use(any_world, 34 * GIB)
        running.wait(lambda _: not guests["much"].is_alive)
        running.wait(lambda d: d.metric("actions_total", action="kill", result="done") == 2)
        running.wait_passes(2)
        assert _living(guests) == ["important", "within"]
    assert [uids[each.uid] for each in actions(any_world.journal)] == ["much", "little"]
    reported = [(name, action) for name, _, action in events(any_world.journal, "intended", "released")]
    assert reported == [("intended", 1), ("released", 1), ("intended", 2), ("released", 2)]


def _living(guests: dict[str, Tenant]) -> list[str]:
    return sorted(name for name, tenant in guests.items() if tenant.is_alive)
