"""The breaker across cycles: opening and closing are recorded, so that a restarted daemon knows."""

from fractions import Fraction

import pytest

from tests.daemon.eviction_rig import EVICT_AT_ONCE, World
from tests.worlds import Gi, container, pod, policy, process, rule
from watchdog.core.policy import Brakes, Breaker

BREAKER = Breaker(offenders=Fraction(1, 2), of_at_least=2, hold_s=5)
TURNS = [("breaker", "opened"), ("breaker", "closed")]


def _opened() -> World:
    """Two pods of two owners, both due for an eviction."""
    return World(
        policy=policy(rule(EVICT_AT_ONCE), brakes=Brakes(breaker=BREAKER)),
        pods=(pod("a", container(declared="1Gi")), pod("b", container(declared="1Gi", of="b"))),
        used={5: 4 * Gi, 6: 4 * Gi},
        processes=(process(6, "b/main"),),
    )


@pytest.mark.parametrize(("enforcing", "turns"), [(True, TURNS), (False, [])], ids=["enforce", "observe"])
def test_its_turns_are_written_down_where_they_count(*, enforcing: bool, turns: list[tuple[str, str]]) -> None:
    """Points 30 and 38: one that has opened holds after a restart too; what observe mode saw of it is forgotten."""
    world = _opened()
    for second in (0, 1):
        world.look(second, enforcing=enforcing)
        opened = world.cycle.ledger.brakes.opened
        assert opened is not None
        assert opened.observed is not enforcing
    world.used = {5: Gi, 6: Gi}
    for second in (6, 7):
        world.look(second, enforcing=enforcing)
        assert world.cycle.ledger.brakes.opened is None
    assert (world.record.lines, world.tries) == (turns, [])


def test_one_that_has_really_opened_is_no_trial_because_enforcement_is_off_for_a_while() -> None:
    """Point 30: otherwise it would be forgotten, and all of them let through, when enforcement begins again."""
    world = _opened()
    world.look(0)
    world.look(1, enforcing=False)
    assert (world.cycle.ledger.reset().brakes.opened is not None, world.record.lines) == (True, TURNS[:1])
