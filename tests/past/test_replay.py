"""Replay gives a recorded run its own actions again, and another policy what it would have done first."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given

from tests.past.histories import History, histories, policies
from tests.past.life import Life, State, actions_of, holding, replayed, tenant
from tests.past.runs import HIGH, KILL, LOW, P, passes
from tests.worlds import Gi, Mi, at, gpu, owner, policy, rule, step
from watchdog.core.brakes import Brake
from watchdog.core.hours import Hours
from watchdog.core.model import Now
from watchdog.core.policy import Brakes, Policy, Window
from watchdog.past.replay import ReplayedAction


def found(path: Path, under: Policy = P) -> list[ReplayedAction]:
    """The actions of a replay, held back or not."""
    return [each for each in replayed(path, under).findings if each.entry.do.enforces]


def seconds(path: Path, under: Policy = P) -> list[float]:
    """When a replay's actions were let through."""
    return [round(each.at.wall_s - at(0).wall_s, 2) for each in found(path, under) if each.at is not None]


def after(wall_s: float | None) -> float | None:
    """Seconds since the test began."""
    return None if wall_s is None else round(wall_s - at(0).wall_s, 2)


def test_a_run_replayed_under_its_own_policy_gives_its_own_actions(path: Path) -> None:
    """The action that the run came to is found again, at the same moment, with what was used and allowed then."""
    life = Life(path, P).run(passes((20, LOW), (60, HIGH), (80, LOW)))
    assert [each[0] for each in life.actions] == [at(30).wall_s]
    assert actions_of(replayed(path, P)) == life.actions
    (only,) = found(path)
    assert (only.entry.assessment.used, only.entry.assessment.allowed) == (10 * Gi, 8 * Gi)
    assert [key.pid for key in only.entry.targets] == [1000]


@pytest.mark.slow
@given(histories(granule=Mi), policies())
def test_every_run_replayed_under_its_own_policy_gives_its_own_first_actions(past: History, under: Policy) -> None:
    """Whatever a node goes through, replaying it under the policy of the run gives the actions that the run planned."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        life = Life(path, under).run(past.cycles)
        assert sorted(actions_of(replayed(path, under)), key=str) == sorted(life.actions, key=str)


@pytest.mark.slow
@given(histories(granule=Mi), policies())
def test_a_daemon_that_rests_does_and_records_the_same(past: History, under: Policy) -> None:
    """Quiet ticks: what is only counted comes to the same actions and the same ledger, and replay finds them."""
    with TemporaryDirectory() as folder:
        awake = Life(Path(folder) / "awake.db", under).run(past.cycles)
        path = Path(folder) / "journal.db"
        life = Life(path, under, rests=True).run(past.cycles)
        assert (life.actions, life.warnings) == (awake.actions, awake.warnings)
        assert life.ledger.accounts.keys() == awake.ledger.accounts.keys()
        assert sorted(actions_of(replayed(path, under)), key=str) == sorted(life.actions, key=str)


def test_most_cycles_of_a_node_that_hardly_changes_are_ticks(path: Path) -> None:
    """A rest ends for a change and for a step that comes due, and `for` goes on in between."""
    life = Life(path, P, rests=True).run(passes((20, LOW), (60, HIGH), (80, LOW)))
    assert life.ticks > 65
    assert [each[0] for each in life.actions] == [at(30).wall_s]
    assert actions_of(replayed(path, P)) == life.actions


@pytest.mark.slow
@given(histories(granule=128 * Mi), policies(), policies())
def test_another_policy_gives_what_it_would_have_done(past: History, under: Policy, other: Policy) -> None:
    """The past kept under one policy shows another one all that it would have seen itself, to 64Mi."""
    with TemporaryDirectory() as folder:
        path, elsewhere = Path(folder) / "journal.db", Path(folder) / "other.db"
        Life(path, under).run(past.cycles)
        run = Life(elsewhere, other).run(past.cycles)
        assert sorted(actions_of(replayed(path, other)), key=str) == sorted(run.actions, key=str)


def test_each_incident_has_one_deed_and_one_warning(path: Path) -> None:
    """What follows the first action is not claimed; coming down and going up again is another incident."""
    Life(path, P).run(passes((20, LOW), (100, HIGH), (120, LOW), (200, HIGH)))
    assert seconds(path) == [30, 130]
    warned = [each for each in replayed(path, P).findings if not each.entry.do.enforces]
    assert len(warned) == 2


def test_a_deadline_between_two_changes_is_met(path: Path) -> None:
    """Nothing at all changes while a step's `for` runs out: the action is due at that very second all the same."""
    Life(path, P).run(passes((20, LOW), (1500, HIGH)))
    late = policy(rule(step("110%", 1200, "kill")))
    assert seconds(path, late) == [1220]


def test_moments_are_rounded_and_nothing_is_lost_by_that(path: Path) -> None:
    """A kill that came a tenth of a millisecond after it was due is found, whatever its ends were rounded to."""
    other, third = (replace(LOW, used=holding(used)) for used in (5.0, 4.0))
    before = [*passes((15, LOW)), (15.0, other), (16.0, other), (17.0, other), (18.0, other), (19.3, third)]
    above = [*((20.0006 + second, HIGH) for second in range(10)), (30.0007, HIGH), (30.7004, LOW), (32.0, LOW)]
    life = Life(path, P).run([*before, *above])
    assert [round(each[0] - at(0).wall_s) for each in life.actions] == [30]
    assert actions_of(replayed(path, P)) == life.actions


def test_the_time_before_a_change_of_somebody_else_counts(path: Path) -> None:
    """A pod that moves does not cost another one's timer what it had counted."""
    pods = (tenant("a"), tenant("b"))
    calm = State(used=holding(10.0, "a") | holding(1.0, "b"), pods=pods)
    moved = replace(calm, used=holding(10.0, "a") | holding(2.0, "b"))
    Life(path, P).run(passes((7, calm), (12, moved)))
    assert seconds(path) == [10]


def test_a_restart_ends_every_timer(path: Path) -> None:
    """Time that was not recorded does not count: the ladder starts over with the next daemon."""
    Life(path, P).run(passes((20, LOW), (28, HIGH)))
    Life(path, P).run(passes((60, HIGH), since=30))
    assert seconds(path) == [40]


def test_an_incident_goes_on_over_a_restart(path: Path) -> None:
    """An account that stays over through a restart has had its first action already."""
    Life(path, P).run(passes((20, LOW), (40, HIGH)))
    Life(path, P).run(passes((80, HIGH), since=42))
    assert seconds(path) == [30]


def test_what_a_kill_9_takes_is_a_gap(path: Path) -> None:
    """Cycles that did not get to the disk are unknown; what did get there holds until its last line, no longer."""
    life = Life(path, P)
    for second, state in passes((20, LOW), (27, HIGH)):
        life.see(state, at(second))
    life.kill()
    Life(path, P).run(passes((36, HIGH), since=28))
    assert seconds(path) == []


def test_a_gap_counts_one_interval_and_a_long_one_ends_the_timer(path: Path) -> None:
    """Point 16: between two readings at most one interval counts, and ten seconds without one reset."""
    states = [(float(s), LOW) for s in range(20)]
    states += [(20.0, HIGH), (21.0, HIGH), (26.0, HIGH)] + [(float(s), HIGH) for s in range(27, 60)]
    Life(path, P).run(states)
    assert seconds(path) == [34]
    other = path.with_name("other.db")
    Life(other, P).run([(20.0, HIGH), (21.0, HIGH), (40.0, HIGH)] + [(float(s), HIGH) for s in range(41, 60)])
    assert seconds(other) == [50]


def test_a_stale_pod_list_holds_the_timers(path: Path) -> None:
    """While the list is too old readings are inconclusive, by the stale_after of the policy that is tried."""
    old = replace(HIGH, synced_s=20.0)
    Life(path, P).run(passes((20, LOW), (50, old), (80, HIGH)))
    assert seconds(path) == [30]
    assert seconds(path, replace(P, stale_after_s=8.0)) == [60]
    other = path.with_name("other.db")
    Life(other, P).run(passes((20, LOW), (33, old), (80, HIGH)))
    assert seconds(other, replace(P, stale_after_s=8.0)) == [34]


def test_unknown_bytes_are_no_reading_below(path: Path) -> None:
    """A use that is unknown for a moment neither counts nor ends the incident."""
    dark = replace(HIGH, used=holding(None))
    Life(path, P).run(passes((20, LOW), (25, HIGH), (28, dark), (80, HIGH)))
    assert seconds(path) == [33]


def test_the_brake_that_holds_is_told_with_its_end(path: Path) -> None:
    """An action that a brake withholds is found when it was due, with the brake, and when it was let through."""
    pods = tuple(tenant(uid, owner=owner()) for uid in "ab")
    both = State(used=holding(10.0, "a") | holding(10.0, "b"), pods=pods)
    Life(path, P).run(passes((100, both)))
    braked = replace(P, brakes=Brakes(owner=Window(count=1, per_s=60.0)))
    first, second = found(path, braked)
    assert (first.due, first.at, first.withheld) == (first.at, first.due, ())
    (held,) = second.withheld
    assert held.entry.withheld_by is Brake.OWNER
    assert (after(held.releases_s), after(second.due.wall_s)) == (70, 10)
    assert seconds(path, braked) == [10, 70]


def test_what_is_unknown_for_a_moment_is_the_same_incident(path: Path) -> None:
    """An action that was held back is reported once, with its brake, although its numbers were unknown in between."""
    pods = tuple(tenant(uid, owner=owner()) for uid in "ab")
    both = State(used=holding(10.0, "a") | holding(10.0, "b"), pods=pods)
    dark = replace(both, used=holding(10.0, "a") | holding(None, "b"))
    Life(path, P).run(passes((30, both), (33, dark), (100, both)))
    braked = replace(P, brakes=Brakes(owner=Window(count=1, per_s=60.0)))
    assert [(len(each.withheld), each.at is not None) for each in found(path, braked)] == [(0, True), (1, True)]


def test_what_is_held_back_to_the_end_is_told(path: Path) -> None:
    """An action that no one would have let through is no kill, and is not lost either."""
    Life(path, P).run(passes((60, replace(HIGH, pods=(tenant(namespace="kube-system"),)))))
    (only,) = found(path)
    assert only.at is None
    assert [each.entry.withheld_by for each in only.withheld] == [Brake.PROTECTED]


def test_a_protection_that_ends_between_two_changes_lets_go(path: Path) -> None:
    """A pod that terminates is spared until its deadline, and no longer."""
    pods = (tenant(deletion_deadline_s=at(45).wall_s),)
    Life(path, P).run(passes((100, replace(HIGH, pods=pods))))
    assert seconds(path) == [pytest.approx(45, abs=1)]


def test_the_hours_of_a_rule_are_those_of_the_past(path: Path) -> None:
    """A rule outside its hours only observes, by the clock of that time, and its ladder starts over with them."""
    minute = int(at(0).wall_s // 60) % (24 * 60)
    hours = Hours(text="x UTC", days=frozenset(range(7)), begin=minute + 1, end=minute + 9, offset_s=lambda _: 0)
    Life(path, P).run(passes((120, HIGH)))
    timed = policy(rule(KILL, active=hours))
    assert [(each.entry.assessment.observes, each.at is not None) for each in found(path, timed)] == [
        (True, True),
        (False, True),
    ]
    assert seconds(path, timed) == [10, 70]


def test_a_reboot_keeps_the_brakes(path: Path) -> None:
    """Brakes go by the wall clock over a reboot, whose own clock begins at 0."""
    pods = tuple(tenant(uid, owner=owner()) for uid in "ab")
    first = State(used=holding(10.0, "a") | holding(1.0, "b"), pods=pods)
    then = State(used=holding(1.0, "a") | holding(10.0, "b"), pods=pods)
    Life(path, P).run(passes((30, first)))
    life = Life(path, P)
    for second in range(200):
        life.see(then, Now(boottime_s=5.0 + second, wall_s=at(60).wall_s + second, boot_id="another"))
    life.end()
    braked = replace(P, brakes=Brakes(owner=Window(count=1, per_s=120.0)))
    assert seconds(path, braked) == [10, pytest.approx(130, abs=1)]


def test_pressure_is_seen_where_it_was(path: Path) -> None:
    """A step under pressure is due where the card was short, although the card's memory is kept to 64Mi only."""
    free = replace(LOW, used=holding(10.0), gpus=(gpu(0, used=60 * Gi), gpu(1)))
    short = replace(free, gpus=(gpu(0, used=76 * Gi + 10 * Mi), gpu(1)))
    almost = replace(free, gpus=(gpu(0, used=76 * Gi - 10 * Mi), gpu(1)))
    under = policy(rule(step("100%", 4, "kill", under_pressure=True)))
    life = Life(path, under).run(passes((20, free), (40, almost), (60, short)))
    assert actions_of(replayed(path, under)) == life.actions
    assert [each[0] for each in life.actions] == [at(44).wall_s]


# The command.
