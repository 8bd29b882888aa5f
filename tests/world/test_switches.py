"""`run` where enforcement is turned on and off: no kill before a whole ladder, none once it is off."""

import math
import time
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from tests.node.support import wait_until
from tests.rig import Daemon, Node, Tenant
from tests.rig.record import actions, boottime_s, events
from tests.rig.volume import mount
from tests.rig.zone import write_zone
from tests.stub import GIB
from tests.world.policies import HEAD, kill
from tests.world.test_kill import ended, run

pytestmark = [pytest.mark.node, pytest.mark.slow]

FOR_S: Final = 2.0
RULE: Final = '\n[[rule]]\nname = "{name}"\nmatch = {{ namespaces = ["{name}"] }}\n{more}\n[[rule.step]]\n{step}\n'


def ruled(world: Node, *rules: tuple[str, str], mode: str = "enforce", grace: str = "0s", more: str = "") -> Path:
    """A policy with a rule for each of these namespaces, each with what it has besides its one step."""
    text = HEAD.format(mode=mode) + more
    for name, keys in rules:
        text += RULE.format(name=name, more=keys, step=kill(f"{FOR_S:.0f}s", grace))
    return mount(world.root / "policy.toml", text)


def here(world: Node, policy: Path) -> AbstractContextManager[Daemon]:
    """The daemon on this node, which follows the node's own object; with time zones of the test's own."""
    zones = ("env", f"PYTHONTZPATH={world.root / 'zones'}")
    return run(world, policy, prefix=zones, more=("--node-object", world.node_file))


def switch(world: Node, how: str, *, off: bool) -> None:
    """Turn enforcement off by one of the operator's switches, or take that back."""
    if how == "annotation":
        world.mark(annotations={"gpu-memory-watchdog/mode": "observe"} if off else {})
        return
    stop = world.journal.parent / "stop"
    stop.parent.mkdir(exist_ok=True)
    if off:
        stop.touch()
    else:
        stop.unlink()


def hours(world: Node, name: str, span: str, noon_s: float) -> str:
    """The key `active` with a span of every day, in a zone where it is 12:00 at this second."""
    write_zone(world.root / "zones", f"Test/{name}", noon_s)
    return f'active = "Mon-Sun {span} Test/{name}"'


def over(world: Node, *namespaces: str, behaviour: str = "plain") -> list[Tenant]:
    """A tenant in each of these namespaces that uses far more than is allowed."""
    offenders = enumerate(namespaces)
    return [world.single(f"hog-{n}", namespace=each, used=4 * GIB, behaviour=behaviour) for n, each in offenders]


@pytest.fixture(autouse=True)
def _unmarked(any_world: Node) -> None:
    """The node's own object has nothing to tell at first."""
    any_world.mark()


@pytest.mark.parametrize("how", ["policy", "stop file", "annotation"])
def test_no_kill_before_the_ladder_has_run_again(any_world: Node, how: str) -> None:
    """Points 20 and 38: accounts long over when enforcement begins, by whatever switch, get all of it.

    What was only planned until then does not count for the brakes: the three that the node allows are killed.
    """
    brakes = '\n[brakes]\nnode = "3 per 10m"\n'
    tenants = over(any_world, "a", "a", "a")
    if how != "policy":
        switch(any_world, how, off=True)
    policy = ruled(any_world, ("a", ""), mode="observe" if how == "policy" else "enforce", more=brakes)
    with here(any_world, policy) as running:
        running.wait(lambda d: d.metric("would_act_total", action="kill") == 3)
        running.wait_passes(2)
        assert (running.metric("enforcing"), all(each.is_alive for each in tenants)) == (0, True)
        switched_s = boottime_s()
        if how == "policy":
            ruled(any_world, ("a", ""), more=brakes)
        else:
            switch(any_world, how, off=False)
        running.wait(lambda _: not any(each.is_alive for each in tenants))
    begun_s = [each.began_s - switched_s for each in actions(any_world.journal)]
    assert len(begun_s) == 3
    assert min(begun_s) >= FOR_S


def test_rules_that_begin_to_act_give_the_whole_ladder_too(any_world: Node) -> None:
    """Point 20: a rule whose `mode` is taken away, and one whose hours begin, after its pods have long been over."""
    tenants = over(any_world, "trial", "trial", "day", "day")
    never = hours(any_world, "Never", "12:00-18:00", time.time() + 4 * 3600)
    policy = ruled(any_world, ("trial", 'mode = "observe"'), ("day", never))
    with here(any_world, policy) as running:
        running.wait(lambda d: _would_kill(d, "trial") == _would_kill(d, "day") == 2)
        running.wait_passes(2)
        assert (running.metric("enforcing"), all(each.is_alive for each in tenants)) == (1, True)
        switched_s, noon_s = boottime_s(), math.ceil(time.time()) + 2
        ruled(any_world, ("trial", ""), ("day", hours(any_world, "Soon", "12:00-18:00", noon_s)))
        running.wait(lambda _: not any(each.is_alive for each in tenants))
    found = actions(any_world.journal)
    assert sorted(each.namespace for each in found) == ["day", "day", "trial", "trial"]
    assert min(each.began_s for each in found if each.namespace == "trial") - switched_s >= FOR_S
    # 50 ms: the wall clock may be slewed while `for` is counted.
    assert min(each.wall_s for each in found if each.namespace == "day") - noon_s >= FOR_S - 0.05


def _would_kill(running: Daemon, rule: str) -> float | None:
    return running.metric("would_act_total", action="kill", rule=rule)


def test_a_pod_that_is_spared_meanwhile_survives_the_grace_period(any_world: Node) -> None:
    """Points 20, 28, 33: a rule that turns to observe, hours that end, protection: no SIGKILL. Deletion spares none."""
    names = ("mode", "hours", "spared", "ending", "gone", "rest")
    spared = dict.fromkeys(names[:3], True)
    tenants = dict(zip(names, over(any_world, *names, behaviour="stubborn"), strict=True))
    protect = '\n[protect]\nannotation = "example.com/spare"\n'
    policy = ruled(any_world, *((name, "") for name in names), grace="5s", more=protect)
    with here(any_world, policy) as running:
        running.wait(lambda _: all(each.terms for each in tenants.values()))
        noon_s = math.ceil(time.time()) + 1
        rules = {"mode": 'mode = "observe"', "hours": hours(any_world, "Soon", "06:00-12:00", noon_s)}
        ruled(any_world, *((name, rules.get(name, "")) for name in names), grace="5s", more=protect)
        any_world.pods[names.index("spared")].metadata = {"annotations": {"example.com/spare": "yes"}}
        soon = datetime.now(UTC) + timedelta(seconds=60)
        deletion = {"deletionTimestamp": soon.strftime("%Y-%m-%dT%H:%M:%SZ"), "deletionGracePeriodSeconds": 60}
        any_world.pods[names.index("ending")].metadata = deletion
        del any_world.pods[names.index("gone")]
        any_world.write()
        running.wait(lambda _: not any(tenants[name].is_alive for name in names if name not in spared))
        running.wait_passes(2)
    found = {name: (each.is_alive, len(each.terms)) for name, each in tenants.items()}
    assert found == {name: (name in spared, 1) for name in names}
    results = {each.namespace: each.result for each in actions(any_world.journal)}
    assert results == {name: "interrupted" if name in spared else "done" for name in names}
    assert len(actions(any_world.journal)) == len(names)


@pytest.mark.parametrize("how", ["stop file", "annotation"])
def test_a_switch_ends_a_grace_period_within_two_seconds(any_world: Node, how: str) -> None:
    """Point 33: within 2 s, and no SIGKILL while it lasts; afterwards the whole ladder, down to another SIGTERM."""
    (tenant,) = over(any_world, "a", behaviour="stubborn")
    with here(any_world, ruled(any_world, ("a", ""), grace="2s")) as running:
        running.wait(lambda _: tenant.terms)
        switched_s = boottime_s()
        switch(any_world, how, off=True)
        running.wait(lambda d: ended(d, "interrupted"))
        assert boottime_s() - switched_s < 2
        reason = how.replace(" ", "_") if how == "stop file" else "node_annotation"
        assert f"not enforcing: {reason}" in running.get("/readyz")[1]
        assert running.metric("enforcement_suspended", reason=reason) == 1
        wait_until(lambda: boottime_s() > tenant.terms[0] + 3)
        assert (tenant.is_alive, len(tenant.terms)) == (True, 1)
        assert [each.result for each in actions(any_world.journal)] == ["interrupted"]
        removed_s = boottime_s()
        switch(any_world, how, off=False)
        running.wait(ended)
    first, second = tenant.terms
    assert first < removed_s
    assert second - removed_s >= FOR_S
    assert [each.result for each in actions(any_world.journal)] == ["interrupted", "done"]
    reported = [
        name for name, _, action in events(any_world.journal, "intended", "signalled", "kill_ended") if action == 1
    ]
    assert reported == ["intended", "signalled", "kill_ended"]


def test_the_annotation_never_turns_enforcement_on(any_world: Node) -> None:
    """Point 33: another value is ignored, with one warning that names it; and what observes goes on observing."""
    (tenant,) = over(any_world, "a")
    any_world.mark(annotations={"gpu-memory-watchdog/mode": "enforce"})
    with here(any_world, ruled(any_world, ("a", ""), mode="observe")) as running:
        running.wait(lambda d: d.metric("would_act_total", action="kill") == 1)
        running.wait_passes(3)
        assert (tenant.is_alive, tenant.terms, running.metric("enforcing")) == (True, [], 0)
        assert running.metric("would_act_total", action="kill") == 1
        ruled(any_world, ("a", ""))
        running.wait(lambda _: not tenant.is_alive)
        (warning,) = [line["message"] for line in running.log() if "gpu-memory-watchdog/mode" in line["message"]]
    assert "gpu-memory-watchdog/mode is ignored: it is 'enforce'" in warning


def test_a_node_that_cannot_be_read_may_say_stop(any_world: Node) -> None:
    """Point 33: as with a stop file that can't be seen no action is taken; once read, what was read last holds."""
    (tenant,) = over(any_world, "a")
    any_world.node_file.unlink()
    with here(any_world, ruled(any_world, ("a", ""))) as running:
        running.wait_passes(4)
        assert (tenant.is_alive, running.status()["suspended"]) == (True, ["node_unknown"])
        any_world.mark()
        running.wait(lambda d: d.metric("enforcing") == 1)
        any_world.node_file.unlink()
        running.wait(lambda _: not tenant.is_alive)
