"""The tally, a step's second count: dips end no offence, a recovery does."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.core.story import Story
from tests.worlds import Gi, at, container, gpu, planned, pod, policy, process, rule, snapshot, step, use
from watchdog.core.ledger import Ledger, UnderWay
from watchdog.core.model import Snapshot
from watchdog.core.plan import Count, Plan, PlanEntry
from watchdog.core.policy import Declaration, Do, Match, Policy

KILL_10: Final = step("100%", 10, "kill")
OVER: Final = 5 * Gi
BELOW: Final = 4 * Gi


def taken_at(story: Story, readings: Iterable[int | None]) -> int | None:
    """The second of the first reading at which it is acted on; one reading each second."""
    for second, used in enumerate(readings):
        if story.see(second, used).taken:
            return second
    return None


def pattern(above: int, below: int, times: int = 60) -> list[int]:
    """Readings above the threshold, then some below it, `times` times."""
    return ([OVER] * above + [BELOW] * below) * times


@pytest.mark.parametrize(
    ("above", "below", "acts_s"),
    [(9, 1, 26), (3, 1, 74), (7, 3, 146), (2, 1, None), (1, 1, None), (9, 10, None)],
    ids=str,
)
def test_dips_put_off_but_do_not_end(above: int, below: int, acts_s: int | None) -> None:
    """Point 15: above for more than two thirds of the time is due, at two thirds or less never; no stretch is 10 s."""
    assert taken_at(Story(policy(rule(KILL_10))), pattern(above, below)) == acts_s


def test_an_entry_says_by_which_count_it_is_due_and_for_how_long_it_was_above() -> None:
    """The texts name the time above out of the whole time; without dips the stretch is first."""
    story = Story(policy(rule(KILL_10)))
    entries = [story.see(second, used).entries for second, used in enumerate(pattern(9, 1)[:27])]
    assert [(each.count, each.due_in_s, each.taken) for each in entries[0]] == [(Count.STRETCH, 10, False)]
    (entry,) = entries[26]
    assert (entry.count, entry.taken) == (Count.TALLY, True)
    assert entry.tally is not None
    assert (entry.tally.counted_s, entry.tally.above_s, entry.tally.since) == (20.0, 24.0, at(0))


@pytest.mark.parametrize(("unknown", "counted_s"), [(8, 14.0), (9, 0.0)])
def test_an_inconclusive_reading_counts_for_nothing(unknown: int, counted_s: float) -> None:
    """Point 16: a gap counts as an interval at most, and one of 10 s or more drops the tally as it does a stretch."""
    story = Story(policy(rule(KILL_10)))
    for second, used in enumerate([*pattern(9, 1, 2), *[None] * unknown]):
        story.see(second, used)
    story.see(20 + unknown, OVER)
    ((_, state),) = story.ledger.accounts.items()
    (tally,) = state.tallies.values()
    assert tally.counted_s == counted_s


@pytest.mark.slow
def test_after_an_hour_behind_a_brake_a_recovery_gives_the_full_time_again() -> None:
    """Point 15: the tally never exceeds twice `for`, so that `for` below the threshold brings it back to 0."""
    story = Story(policy(rule(KILL_10)))
    story.run(range(3600), OVER)
    story.run(range(3600, 3611), BELOW)
    assert not any(state.tallies for state in story.ledger.accounts.values())
    waits = [entry.due_in_s for second in range(3611, 3622) for entry in story.see(second, OVER).entries]
    assert waits == [*range(10, -1, -1)]


@pytest.mark.parametrize("how", ["ended", "reset", "reloaded", "another boot", "a rule that observed"])
def test_what_restarts_stretches_sets_the_tally_to_nothing(how: str) -> None:
    """Points 16, 18, 20: after a kill, a switch to enforcing, a reload or a reboot all the time is needed again."""
    under = policy(replace(rule(KILL_10), mode="observe") if how == "a rule that observed" else rule(KILL_10))
    story = Story(under)
    for second, used in enumerate(pattern(9, 1, 2)):
        story.see(second, used)
    ((key, state),) = story.ledger.accounts.items()
    assert state.tallies
    now = at(20)
    match how:
        case "ended":
            story.ledger = story.ledger.note_under_way(key, UnderWay(step=None, victim="main")).note_ended(key)
        case "reset":
            story.ledger = story.ledger.reset()
        case "reloaded":
            story.ledger = story.ledger.reloaded(under, replace(under, interval_s=2.0))
        case "another boot":
            now = replace(now, boot_id="another")
        case _:
            story.under = policy(rule(KILL_10))
    plan = story.see(20, OVER, now=now)
    assert [entry.due_in_s for entry in plan.entries] == [10]
    assert [each.counted_s for state in story.ledger.accounts.values() for each in state.tallies.values()] == [0.0]


def test_a_warning_keeps_its_tally_when_a_kill_ends() -> None:
    """Point 18: only kill and evict steps start over."""
    story = Story(policy(rule(step("100%", 4, "warn"), KILL_10)))
    story.run(range(5), OVER)
    ((key, _),) = story.ledger.accounts.items()
    story.ledger = story.ledger.note_under_way(key, UnderWay(step=None, victim="main")).note_ended(key)
    assert {name.do for _, name in story.ledger.accounts[key].tallies} == {Do.WARN}


def test_no_step_under_pressure_and_none_that_is_due_at_once_has_a_tally() -> None:
    """Point 15: they have none."""
    story = Story(policy(rule(step("100%", 0, "warn"), replace(KILL_10, under_pressure=True))))
    story.run(range(5), OVER)
    assert not any(state.tallies for state in story.ledger.accounts.values())


PER_GPU: Final = Declaration(resource="nvidia.com/gpumem", unit=1, per="gpu")


class Parts:
    """Cycles over one pod with an account for each of two parts, containers or cards, which are each allowed 4Gi."""

    def __init__(self, kind: str, **more: Any) -> None:
        self.kind = kind
        made = rule(replace(KILL_10, for_s=5), account="container" if kind == "container" else "pod", **more)
        self.under: Policy = policy(made, **({} if kind == "container" else {"declarations": (PER_GPU,)}))
        resources = {"nvidia.com/gpumem": "4Gi"}
        self.pods = [
            pod("a", container("m", "4Gi"), container("n", "4Gi"))
            if kind == "container"
            else pod("a", container("m", resources=resources))
        ]
        self.ledger = Ledger()

    def see(self, second: float, m: int, n: int) -> Plan:
        """One cycle; what uses nothing has no process."""
        plan = planned(self.seen(second, m, n), self.pods, self.under, self.ledger)
        self.ledger = plan.ledger
        return plan

    def seen(self, second: float, m: int, n: int) -> Snapshot:
        used = {"m": m, "n": n}
        if self.kind == "container":
            uses = [use(5 + "mn".index(name), each) for name, each in used.items() if each]
            processes = [process(5 + "mn".index(name), f"a/{name}") for name in used]
            return snapshot(uses, processes, second=second)
        uses = [use(5, each, "mn".index(name)) for name, each in used.items() if each]
        return snapshot(uses, [process(5, "a/m")], gpus=[gpu(0), gpu(1)], second=second)


def moved(parts: Parts, least: int, every: int = 3, until: int = 60) -> tuple[int, PlanEntry] | None:
    """When it is acted on first while 20Gi move from one part to the other every few seconds, and by which entry."""
    for second in range(until):
        is_first = second // every % 2 == 0
        plan = parts.see(second, *((20 * Gi, least) if is_first else (least, 20 * Gi)))
        if plan.taken:
            return second, plan.taken[0]
    return None


@pytest.mark.parametrize("kind", ["container", "gpu"])
@pytest.mark.parametrize("least", [0, Gi], ids=["nothing is left", "some is left"])
def test_memory_that_moves_between_the_parts_of_a_pod_is_acted_on(kind: str, least: int) -> None:
    """Point 15: the pod's tally gains while any of them is above; the one above in this reading is acted on."""
    found = moved(Parts(kind), least)
    assert found is not None
    second, entry = found
    assert (second, entry.count) == (10, Count.POD)
    assert (entry.account.container, entry.account.gpu) == (("n", None) if kind == "container" else (None, "GPU-1"))


@pytest.mark.parametrize("kind", ["container", "gpu"])
def test_parts_that_are_above_less_than_two_thirds_of_the_time_are_left_alone(kind: str) -> None:
    """Point 15: it loses while none is above."""
    parts = Parts(kind)
    for second in range(120):
        phase = second % 6
        m, n = (20 * Gi if phase in (0, 1) else Gi), (20 * Gi if phase in (2, 3) else Gi)
        assert not parts.see(second, m, n).taken


def test_a_kill_of_one_part_gives_the_others_the_full_time() -> None:
    """Point 18: the pod's tally starts over with the kill of any of its accounts."""
    parts = Parts("container")
    found = moved(parts, Gi)
    assert found is not None
    second, entry = found
    parts.ledger = parts.ledger.note_under_way(entry.account, UnderWay(step=None, victim="n")).note_ended(entry.account)
    assert parts.ledger.tallies == {}
    (later,) = parts.see(second + 1, 20 * Gi, 0).entries
    assert later.due_in_s == 5


@pytest.mark.parametrize("kind", ["container", "gpu"])
def test_nothing_is_kept_of_a_pod_that_is_gone_or_has_recovered(kind: str) -> None:
    """What is remembered ends with the pod, and twice as fast as it grew once nothing is used."""
    parts = Parts(kind)
    for second in range(4):
        parts.see(second, 20 * Gi, 0)
    gone = planned(parts.seen(4, 0, 0), [], parts.under, parts.ledger).ledger
    assert (gone.accounts, gone.tallies) == ({}, {})
    assert parts.ledger.tallies
    assert parts.ledger.reset().tallies == {}
    for second in range(4, 8):
        parts.see(second, 0, 0)
    assert not parts.ledger.tallies
    assert not any(state.tallies for state in parts.ledger.accounts.values())


def test_use_that_vanishes_for_a_moment_ends_no_tally() -> None:
    """A pod with a `default` alone has an account only while it uses something: a dip to nothing is a dip."""
    under, ledger, pods = policy(rule(KILL_10, default=4 * Gi)), Ledger(), [pod("a")]
    for second in range(40):
        uses = [] if second % 10 == 9 else [use(5, OVER)]
        plan = planned(snapshot(uses, second=second), pods, under, ledger)
        ledger = plan.ledger
        if plan.taken:
            break
    assert second == 26


def test_a_label_neither_ends_nor_extends_a_tally() -> None:
    """Points 11 and 15: while another rule is in force, the tally is held; then it goes on."""
    first = rule(KILL_10, name="a", match=Match(labels={"tier": "a"}))
    story = Story(policy(first, rule(step("200%", 10), name="b")))
    for second, used in enumerate(pattern(9, 1, 2)):
        story.tier = "a"
        story.see(second, used)
    story.tier = "b"
    story.run(range(20, 60), OVER)
    story.tier = "a"
    assert [story.see(second, OVER).entries[0].due_in_s for second in (60, 61)] == [6.0, 5.0]


def test_a_label_extends_no_tally_of_what_nobody_can_read() -> None:
    """Points 11 and 16: the time up to a reading under another rule does not count, though nothing was read of it."""
    story = Story(policy(rule(KILL_10, name="a", match=Match(labels={"tier": "a"})), rule(step("200%", 10), name="b")))
    for second in range(5):
        story.tier = "ab"[second % 2]
        story.see(second / 2, OVER if story.tier == "a" else None)
    ((_, state),) = story.ledger.accounts.items()
    assert [tally.counted_s for tally in state.tallies.values()] == [1.0]


def test_who_is_allowed_more_for_a_while_loses_its_tally_like_anybody_within() -> None:
    """Point 15: an account that is allowed less from some point on gets the full time from that point."""
    story = Story(policy(rule(KILL_10)), declared="8Gi")
    story.run(range(20), OVER)
    story.declared = "4Gi"
    assert [entry.due_in_s for entry in story.see(20, OVER).entries] == [10]
