"""The ladder: what counts, what resets, what is due."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest

from tests.worlds import MEMORY, Gi, assessed, at, container, pod, policy, rule, snapshot, step, use
from watchdog.core.brakes import Brake
from watchdog.core.decide import decide
from watchdog.core.ledger import Ledger, UnderWay
from watchdog.core.model import Now, Snapshot
from watchdog.core.plan import Conditions, Plan
from watchdog.core.policy import Do, Match, Policy

KILL_10 = step("100%", 10, "kill")
WARN_5 = step("50%", 5, "warn")


@dataclass
class Story:
    """Passes over one pod that declares 4Gi, one after the other, the ledger going along."""

    under: Policy
    ledger: Ledger = field(default_factory=Ledger)
    declared: str = "4Gi"

    def see(self, second: float, used: int | None, *, stale: bool = False, now: Now | None = None) -> Plan:
        """One pass at a second, with so much used (None: unknown)."""
        seen = replace(snapshot([use(5, used)], second=second), at=now or at(second))
        return self._decide(seen, stale=stale)

    def miss(self, second: float) -> Plan:
        """One pass in which the driver did not answer; the process is known to live."""
        return self._decide(snapshot([use(5, None)], second=second, blind=True))

    def run(self, seconds: Iterable[float], used: int | None) -> Plan:
        """A pass at each second; gives the last plan."""
        plan = None
        for second in seconds:
            plan = self.see(second, used)
        assert plan is not None
        return plan

    def _decide(self, seen: Snapshot, *, stale: bool = False) -> Plan:
        pods = [pod("a", container(declared=self.declared))]
        plan = decide(assessed(seen, pods, self.under), self.under, self.ledger, seen.at, Conditions(pods_stale=stale))
        self.ledger = plan.ledger
        return plan


def taken(plan: Plan) -> list[str]:
    """What a plan does."""
    return [entry.do.value for entry in plan.actions]


def test_a_step_is_due_after_its_time_above_the_mark() -> None:
    """Point 15: the timer runs between consecutive conclusive readings above the mark."""
    story = Story(policy(rule(KILL_10)))
    assert [taken(story.see(second, 5 * Gi)) for second in range(10)] == [[]] * 10
    assert taken(story.see(10, 5 * Gi)) == ["kill"]


def test_due_in_s_says_when_it_would_come() -> None:
    """The plan of a first look says how long each step above its mark still takes."""
    plan = Story(policy(rule(WARN_5, KILL_10))).see(0, 5 * Gi)
    assert [(entry.step, entry.due_in_s, entry.taken) for entry in plan.entries] == [(0, 5, False), (1, 10, False)]


def test_for_0s_is_due_at_the_first_reading() -> None:
    """Point 15: a step with `for = "0s"` needs no second reading."""
    assert taken(Story(policy(rule(step()))).see(0, 5 * Gi)) == ["kill"]


def test_a_reading_at_the_mark_resets_the_timer() -> None:
    """Point 15 and Law 8: use that is at the mark, strictly not above it, sets the count back to nothing."""
    story = Story(policy(rule(KILL_10)))
    story.run(range(10), 5 * Gi)
    story.see(10, 4 * Gi)
    assert taken(story.run(range(11, 21), 5 * Gi)) == []
    assert taken(story.see(21, 5 * Gi)) == ["kill"]


def test_each_step_has_its_own_timer() -> None:
    """Point 15: falling below a higher mark does not set back the lower one."""
    story = Story(policy(rule(step("100%", 4, "warn"), step("150%", 4, "kill"))))
    story.run(range(3), 7 * Gi)
    story.see(3, 5 * Gi)
    assert taken(story.see(4, 7 * Gi)) == ["warn"]
    assert [e.due_in_s for e in story.see(5, 7 * Gi).entries if e.do is Do.KILL] == [3]


def test_an_inconclusive_reading_counts_nothing() -> None:
    """Point 16: neither an unknown number nor a blind driver moves a timer; a gap counts one interval."""
    story = Story(policy(rule(KILL_10)))
    story.run(range(6), 5 * Gi)  # counts 5 s
    story.see(6, None)
    story.miss(7)
    assert taken(story.see(8, 5 * Gi)) == []  # counts 6 s
    assert taken(story.run(range(9, 12), 5 * Gi)) == []  # counts 9 s
    assert taken(story.see(12, 5 * Gi)) == ["kill"]


def test_nothing_is_due_in_an_inconclusive_reading() -> None:
    """Law 3: what had counted to the end still waits for a reading that is sure."""
    story = Story(policy(rule(KILL_10)))
    story.run(range(10), 5 * Gi)
    assert taken(story.see(10, None)) == []
    assert taken(story.miss(11)) == []


def test_a_long_gap_resets_all_timers() -> None:
    """Point 16: after max(3 intervals, 10 s) without a conclusive reading everything begins anew."""
    for gap, expected in [(9.9, ["kill"]), (10.0, [])]:
        story = Story(policy(rule(KILL_10)))
        story.run(range(10), 5 * Gi)
        assert taken(story.see(9 + gap, 5 * Gi)) == expected
    slow = Story(policy(rule(KILL_10), interval_s=60.0))
    slow.see(0, 5 * Gi)
    assert taken(slow.see(179, 5 * Gi)) == ["kill"]


def test_a_stale_pod_list_counts_nothing_and_withholds() -> None:
    """Points 16 and 27: on an old list nothing counts, and what is due is withheld as `stale`."""
    story = Story(policy(rule(KILL_10)))
    story.run(range(10), 5 * Gi)
    plan = story.see(10, 5 * Gi, stale=True)
    assert plan.actions == ()
    due = Story(policy(rule(step()))).see(0, 5 * Gi, stale=True)
    assert [(entry.withheld_by, entry.taken) for entry in due.entries] == [(Brake.STALE, False)]


def test_time_on_a_stale_pod_list_does_not_count_afterwards() -> None:
    """Point 16: when the list is fresh again, the stale stretch has counted one interval at the most."""
    story = Story(policy(rule(step("100%", 12, "kill"))))
    story.run(range(10), 5 * Gi)
    story.see(10, 5 * Gi, stale=True)
    story.see(11, 5 * Gi, stale=True)
    (entry,) = story.see(12, 5 * Gi).entries
    assert entry.due_in_s == 2


def test_of_the_steps_due_the_last_is_taken() -> None:
    """Point 17: warn, kill and a harder kill due at once: the last in the list."""
    ladder = rule(step("100%", 0, "warn"), step("110%", 0), step("150%", 0, grace_s=0.0))
    plan = Story(policy(ladder)).see(0, 70 * Gi)
    assert [(entry.step, entry.do) for entry in plan.actions] == [(2, Do.KILL)]


def test_a_warning_comes_once_an_incident_and_again_after_repeat() -> None:
    """Point 18: not at every reading, again every `repeat`, and again in a new incident."""
    story = Story(policy(rule(step("100%", 0, "warn", repeat_s=30.0))))
    given = [second for second in range(65) if taken(story.see(second, 5 * Gi))]
    assert given == [0, 30, 60]
    story.see(65, 4 * Gi)
    assert taken(story.see(66, 5 * Gi)) == ["warn"]


def test_after_a_kill_the_timers_of_force_begin_anew() -> None:
    """Point 18: who is over again after a kill climbs the whole ladder again; the warning is not repeated."""
    story = Story(policy(rule(step("100%", 0, "warn"), KILL_10)))
    plan = story.run(range(11), 5 * Gi)
    (kill,) = plan.actions
    story.ledger = story.ledger.note_begun(
        kill.assessment, "all", UnderWay(step=kill.definition.signature, victim="main"), at(10)
    )
    story.ledger = story.ledger.note_ended(kill.account)
    assert taken(story.run(range(12, 22), 5 * Gi)) == []
    assert taken(story.see(22, 5 * Gi)) == ["kill"]


def test_a_failed_step_is_not_tried_at_every_pass() -> None:
    """A kill that fails is tried again after 10 s, 20 s, 40 s: an EPERM must not become a loop."""
    story = Story(policy(rule(step())))
    tried = []
    for second in range(100):
        for entry in story.see(second, 5 * Gi).actions:
            tried.append(second)
            story.ledger = story.ledger.note_failed(entry.account, entry.definition.signature, at(second))
    assert tried == [0, 10, 30, 70]


def test_a_failed_step_holds_up_no_later_step() -> None:
    """Point 27: a failed eviction does not stand in the way of the kill after it."""
    story = Story(policy(rule(step("100%", 0, "evict"), step("100%", 3, "kill"))))
    (evict,) = story.see(0, 5 * Gi).actions
    story.ledger = story.ledger.note_failed(evict.account, evict.definition.signature, at(0))
    assert taken(story.run(range(1, 3), 5 * Gi)) == []
    assert taken(story.see(3, 5 * Gi)) == ["kill"]


def test_another_boot_begins_anew() -> None:
    """Point 19: boot times of two boots are never subtracted."""
    story = Story(policy(rule(KILL_10)))
    story.run(range(10), 5 * Gi)
    assert taken(story.see(10, 5 * Gi, now=replace(at(10), boot_id="another"))) == []


def test_the_wall_clock_has_no_part_in_it() -> None:
    """Point 19: a wall clock that jumps a day neither shortens nor lengthens a wait."""
    story = Story(policy(rule(KILL_10)))
    for second in range(10):
        jumped = replace(at(second), wall_s=at(second).wall_s + (86400 if second % 2 else -86400))
        assert taken(story.see(second, 5 * Gi, now=jumped)) == []
    assert taken(story.see(10, 5 * Gi)) == ["kill"]


@pytest.mark.parametrize(
    ("changed", "keeps"),
    [
        (rule(replace(KILL_10, grace_s=99.0)), True),
        (rule(step("300%", 3, "warn"), KILL_10), True),
        (rule(replace(KILL_10, for_s=9.0)), False),
        (rule(step("101%", 10, "kill")), False),
        (rule(KILL_10, name="other"), False),
    ],
    ids=["grace", "another step before it", "for", "above", "rule name"],
)
def test_a_reload_keeps_the_timer_of_an_unchanged_step(changed: object, keeps: bool) -> None:
    """Point 20: rule name, account, `above`, `for` and `do` unchanged: the timer goes on; else it begins anew."""
    story = Story(policy(rule(KILL_10)))
    story.run(range(10), 5 * Gi)
    story.under = policy(changed)  # type: ignore[arg-type]
    assert (taken(story.see(10, 5 * Gi)) == ["kill"]) is keeps


def test_a_change_of_declared_begins_the_timers_anew() -> None:
    """Point 2: another declaration is another promise."""
    story = Story(policy(rule(KILL_10)))
    story.run(range(10), 5 * Gi)
    story.declared = "3Gi"
    assert taken(story.see(10, 5 * Gi)) == []


def test_from_observe_to_enforce_all_ladders_begin_anew() -> None:
    """Point 20: nobody is killed for the time in which nobody was told to watch out."""
    story = Story(policy(rule(KILL_10)))
    story.run(range(10), 5 * Gi)
    story.ledger = story.ledger.begun_anew()
    assert taken(story.run(range(10, 20), 5 * Gi)) == []
    assert taken(story.see(20, 5 * Gi)) == ["kill"]


def test_observe_plans_one_deed_an_incident() -> None:
    """Point 37: what observe mode has planned once is not planned again until the incident has ended."""
    story = Story(policy(rule(step("100%", 0, "kill"))))
    (kill,) = story.see(0, 5 * Gi).actions
    story.ledger = story.ledger.note_observed(kill.assessment, at(0))
    assert [taken(story.see(second, 5 * Gi)) for second in range(1, 5)] == [[]] * 4
    story.see(5, 4 * Gi)
    assert taken(story.see(6, 5 * Gi)) == ["kill"]


def test_over_since_is_the_first_reading_over() -> None:
    """`over_since` is kept through gaps and goes when the account is within again."""
    story = Story(policy(rule(KILL_10)))
    story.run(range(3), 5 * Gi)
    story.miss(3)
    (state,) = story.ledger.accounts.values()
    assert state.over_since == at(0)
    story.see(4, Gi)
    (state,) = story.ledger.accounts.values()
    assert state.over_since is None


def test_over_since_is_known_without_a_rule_too() -> None:
    """Who is over and left alone because no rule matches is still shown with the time since when."""
    story = Story(policy(rule(step(), match=Match(namespaces=("elsewhere",)))))
    assert story.see(0, 5 * Gi).entries == ()
    story.see(1, 5 * Gi)
    (state,) = story.ledger.accounts.values()
    assert state.over_since == at(0)


def test_not_above_is_the_last_sure_reading_before() -> None:
    """The reaction time is counted from the last conclusive reading that was not above the mark: an upper bound."""
    story = Story(policy(rule(step())))
    story.see(0, Gi)
    story.see(1, None)
    (kill,) = story.see(2, 5 * Gi).actions
    assert kill.not_above == at(0)


def test_a_new_account_was_not_above_at_the_last_whole_pass() -> None:
    """A pod that appears over its limit was not above it when the whole node was last seen without it."""
    under = policy(rule(step()))
    first = decide((), under, Ledger(), at(0), Conditions())
    story = Story(under, first.ledger)
    (kill,) = story.see(1, 5 * Gi).actions
    assert kill.not_above == at(0)


def test_undeclared_accounts_have_no_ladder() -> None:
    """Point 13: without an allowed amount no step can be above its mark, an absolute one neither."""
    under = policy(rule(step(str(Gi))), declarations=())
    assert Story(under).see(0, 70 * Gi).entries == ()


def test_the_declaration_is_the_resource() -> None:
    """The world of these tests declares what it seems to declare."""
    assert pod("a", container(declared="4Gi")).containers[0].resources == {MEMORY: "4Gi"}
