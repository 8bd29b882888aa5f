"""The ladder: what counts, what resets, what is due."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction

import pytest

from tests.worlds import (
    MEMORY,
    VERIFF,
    Gi,
    assessed,
    at,
    container,
    gpu,
    inputs,
    planned,
    pod,
    policy,
    process,
    rule,
    snapshot,
    step,
    use,
)
from watchdog.core.assessment import Verdict
from watchdog.core.brakes import Brake
from watchdog.core.decide import decide
from watchdog.core.ladder import step_readings
from watchdog.core.ledger import Ledger, PendingEviction, UnderWay
from watchdog.core.model import UNREADABLE, ContainerKind, Now, Snapshot
from watchdog.core.plan import Plan
from watchdog.core.policy import (
    Allowance,
    Brakes,
    Capacity,
    Do,
    Draining,
    Events,
    JournalLimits,
    Match,
    Policy,
    Pressure,
    Protect,
    Pulse,
    Safety,
    Step,
    Window,
)

KILL_10 = step("100%", 10, "kill")
WARN_5 = step("50%", 5, "warn")


@dataclass
class Story:
    """Cycles over one pod that declares 4Gi, one after the other, the ledger going along; `tier` is a label of it."""

    under: Policy
    ledger: Ledger = field(default_factory=Ledger)
    declared: str = "4Gi"
    tier: str = ""

    def see(self, second: float, used: int | None, *, stale: bool = False, now: Now | None = None) -> Plan:
        """One cycle at a second, with this much used (None: unknown)."""
        seen = replace(snapshot([use(5, used)], second=second), at=now or at(second))
        return self._decide(seen, stale=stale)

    def miss(self, second: float) -> Plan:
        """One cycle in which the driver did not answer; the process is known to live."""
        return self._decide(snapshot([use(5, None)], second=second, blind=True))

    def run(self, seconds: Iterable[float], used: int | None) -> Plan:
        """A cycle at each second; returns the last plan."""
        plan = None
        for second in seconds:
            plan = self.see(second, used)
        assert plan is not None
        return plan

    def _decide(self, seen: Snapshot, *, stale: bool = False) -> Plan:
        pods = [pod("a", container(declared=self.declared), labels={"tier": self.tier})]
        plan = decide(
            assessed(seen, pods, self.under), self.ledger, seen.at, inputs(self.under, pods, pods_stale=stale)
        )
        self.ledger = plan.ledger
        return plan


def taken(plan: Plan) -> list[str]:
    """What a plan acts on."""
    return [entry.do.value for entry in plan.taken]


def test_a_step_is_due_after_its_time_above_the_mark() -> None:
    """Point 15: the timer runs between consecutive conclusive readings above the threshold."""
    story = Story(policy(rule(KILL_10)))
    assert [taken(story.see(second, 5 * Gi)) for second in range(10)] == [[]] * 10
    assert taken(story.see(10, 5 * Gi)) == ["kill"]


def test_due_in_s_says_when_it_would_come() -> None:
    """The plan of a first reading shows how long each step above its threshold still takes."""
    plan = Story(policy(rule(WARN_5, KILL_10))).see(0, 5 * Gi)
    assert [(entry.step_index, entry.due_in_s, entry.taken) for entry in plan.entries] == [
        (0, 5, False),
        (1, 10, False),
    ]


def test_for_0s_is_due_at_the_first_reading() -> None:
    """Point 15: a step with `for = "0s"` needs no second reading."""
    assert taken(Story(policy(rule(step()))).see(0, 5 * Gi)) == ["kill"]


def test_a_reading_at_the_mark_resets_the_timer() -> None:
    """Point 15 and law 8: use at the threshold, not above it, resets the count."""
    story = Story(policy(rule(KILL_10)))
    story.run(range(10), 5 * Gi)
    story.see(10, 4 * Gi)
    assert taken(story.run(range(11, 21), 5 * Gi)) == []
    assert taken(story.see(21, 5 * Gi)) == ["kill"]


def test_each_step_has_its_own_timer() -> None:
    """Point 15: falling below a higher threshold does not reset the lower one."""
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
    """Law 3: a step whose time is up still waits for a conclusive reading."""
    story = Story(policy(rule(KILL_10)))
    story.run(range(10), 5 * Gi)
    assert taken(story.see(10, None)) == []
    assert taken(story.miss(11)) == []


def test_a_long_gap_resets_all_timers() -> None:
    """Point 16: after max(3 intervals, 10 s) without a conclusive reading everything starts over."""
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
    assert plan.taken == ()
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


@pytest.mark.parametrize("is_stale", [True, False], ids=["list too old", "amount not known"])
def test_a_low_use_ends_a_stretch_unless_the_list_is_too_old(*, is_stale: bool) -> None:
    """Point 16: a stale list ends nothing; known use below the threshold does, even if allowed is unknown."""
    story = Story(policy(rule(KILL_10)))
    story.run(range(10), 5 * Gi)
    if is_stale:
        story.see(10, 4 * Gi, stale=True)
    else:
        (found,) = assessed(snapshot([use(5, 4 * Gi)], second=10), [pod("a", container(declared="4Gi"))], story.under)
        hidden = replace(found, declared=None, allowed=None, verdict=Verdict.UNKNOWN)
        story.ledger = decide([hidden], story.ledger, at(10), inputs(story.under)).ledger
    assert [entry.due_in_s for entry in story.see(11, 5 * Gi).entries] == [0 if is_stale else 10]


def test_of_the_steps_due_the_last_is_taken() -> None:
    """Point 17: warn, kill and a harder kill due at once: the last in the list."""
    ladder = rule(step("100%", 0, "warn"), step("110%", 0), step("150%", 0, grace_s=0.0))
    plan = Story(policy(ladder)).see(0, 70 * Gi)
    assert [(entry.step_index, entry.do) for entry in plan.taken] == [(2, Do.KILL)]


def test_a_warning_comes_once_an_incident_and_again_after_repeat() -> None:
    """Point 18: not at every reading, again every `repeat`, and again in a new incident."""
    story = Story(policy(rule(step("100%", 0, "warn", repeat_s=30.0))))
    given = [second for second in range(65) if taken(story.see(second, 5 * Gi))]
    assert given == [0, 30, 60]
    story.see(65, 4 * Gi)
    assert taken(story.see(66, 5 * Gi)) == ["warn"]


def test_after_a_kill_the_steps_that_kill_start_over() -> None:
    """Point 18: an account over again after a kill climbs the whole ladder again, without another warning."""
    story = Story(policy(rule(step("100%", 0, "warn"), KILL_10)))
    plan = story.run(range(11), 5 * Gi)
    (kill,) = plan.taken
    story.ledger = story.ledger.note_begun(
        kill.assessment, UnderWay(step=kill.definition.signature, victim="main"), at(10)
    )
    story.ledger = story.ledger.note_ended(kill.account)
    assert taken(story.run(range(12, 22), 5 * Gi)) == []
    assert taken(story.see(22, 5 * Gi)) == ["kill"]


def test_a_failed_step_is_not_tried_at_every_pass() -> None:
    """A failed kill is tried again after 10 s, 20 s, 40 s: an EPERM must not cause a loop."""
    story = Story(policy(rule(step())))
    tried = []
    for second in range(100):
        for entry in story.see(second, 5 * Gi).taken:
            tried.append(second)
            story.ledger = story.ledger.note_failed(entry.account, entry.do, at(second))
    assert tried == [0, 10, 30, 70]


def test_a_failed_step_holds_up_no_later_step() -> None:
    """Point 27: a failed eviction does not hold up the kill after it."""
    story = Story(policy(rule(step("100%", 0, "evict"), step("100%", 3, "kill"))))
    (evict,) = story.see(0, 5 * Gi).taken
    story.ledger = story.ledger.note_failed(evict.account, evict.do, at(0))
    assert taken(story.run(range(1, 3), 5 * Gi)) == []
    assert taken(story.see(3, 5 * Gi)) == ["kill"]


def test_a_failure_without_an_incident_is_forgotten() -> None:
    """An action that fails on an account below its thresholds leaves no wait for the next incident."""
    story = Story(policy(rule(step())))
    (account,) = story.see(0, Gi).ledger.accounts
    story.ledger = story.ledger.note_failed(account, Do.KILL, at(0))
    story.see(1, Gi)
    assert taken(story.see(2, 5 * Gi)) == ["kill"]


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
        ({}, True),
        ({"sha256": "1" * 64, "source": "other.toml", "warnings": ("a warning",)}, True),
        ({"brakes": Brakes(node=Window(count=1, per_s=60.0))}, True),
        ({"protect": Protect(namespaces=("elsewhere",))}, True),
        ({"events": Events(observe=True, contact="the platform team")}, True),
        ({"journal": JournalLimits(max_age_s=60.0)}, True),
        ({"safety": Safety(foreign_pid_namespace=True)}, True),
        ({"capacity": Capacity(resource=MEMORY)}, True),
        ({"pulse": Pulse(), "mps": Draining()}, True),
        ({"schemes": ("veriff",), "declarations": (replace(VERIFF, scheme="veriff"),)}, True),
        ({"stale_after_s": 60.0, "release_timeout_s": 60.0}, True),
        ({"rules": (rule(replace(KILL_10, grace_s=99.0)),)}, False),
        ({"rules": (rule(KILL_10, name="other"),)}, False),
        ({"mode": "observe"}, False),
        ({"interval_s": 2.0}, False),
        ({"allowance": Allowance()}, False),
        ({"pressure": Pressure(free_below=Fraction(1, 2))}, False),
        ({"declarations": (VERIFF, replace(VERIFF, resource="other"))}, False),
    ],
    ids=lambda value: "-".join(value) or "nothing" if isinstance(value, dict) else "",
)
def test_a_reload_keeps_the_stretches_only_if_they_mean_the_same(changed: dict[str, object], keeps: bool) -> None:
    """Point 20: changed brakes, protection or reporting keep what has been counted; anything else starts over."""
    story = Story(policy(rule(KILL_10)))
    story.run(range(10), 5 * Gi)
    after = replace(story.under, **changed)  # type: ignore[arg-type]
    story.ledger, story.under = story.ledger.reloaded(story.under, after), after
    assert (taken(story.see(10, 5 * Gi)) == ["kill"]) is keeps


def test_every_part_of_a_policy_is_known_to_a_reload() -> None:
    """Point 20: a new section of the policy starts all accounts over unless it is listed as an exception."""
    assert {each.name for each in fields(Policy)} == {
        *("sha256", "source", "warnings", "brakes", "protect", "events", "journal", "capacity"),
        *("safety", "stale_after_s", "release_timeout_s", "pulse", "mps", "schemes"),
        *("mode", "interval_s", "declarations", "allowance", "rules", "pressure", "version"),
    }


def test_from_observe_to_enforce_all_ladders_begin_anew() -> None:
    """Point 20: no pod is killed for time in which its owner was not warned."""
    story = Story(policy(rule(KILL_10)))
    story.run(range(10), 5 * Gi)
    story.ledger = story.ledger.reset()
    assert taken(story.run(range(10, 20), 5 * Gi)) == []
    assert taken(story.see(20, 5 * Gi)) == ["kill"]


def test_observe_plans_one_deed_an_incident() -> None:
    """Point 38: what observe mode has planned once is not planned again until the incident has ended."""
    story = Story(policy(rule(step("100%", 0, "kill"))))
    (kill,) = story.see(0, 5 * Gi).taken
    story.ledger = story.ledger.note_observed(kill.assessment, at(0))
    assert [taken(story.see(second, 5 * Gi)) for second in range(1, 5)] == [[]] * 4
    story.see(5, 4 * Gi)
    assert taken(story.see(6, 5 * Gi)) == ["kill"]


def test_over_since_is_the_first_reading_over() -> None:
    """`over_since` is kept through gaps, and cleared once the account is within again."""
    story = Story(policy(rule(KILL_10)))
    story.run(range(3), 5 * Gi)
    story.miss(3)
    (state,) = story.ledger.accounts.values()
    assert state.over_since == at(0)
    story.see(4, Gi)
    (state,) = story.ledger.accounts.values()
    assert state.over_since is None


def test_over_since_is_known_without_a_rule_too() -> None:
    """An account over its limit without a matching rule still has the time since which it is over."""
    story = Story(policy(rule(step(), match=Match(namespaces=("elsewhere",)))))
    assert story.see(0, 5 * Gi).entries == ()
    story.see(1, 5 * Gi)
    (state,) = story.ledger.accounts.values()
    assert state.over_since == at(0)


def test_not_above_is_the_last_sure_reading_before() -> None:
    """The reaction time is counted from the last conclusive reading not above the threshold: an upper bound."""
    story = Story(policy(rule(step())))
    story.see(0, Gi)
    story.see(1, None)
    (kill,) = story.see(2, 5 * Gi).taken
    assert kill.not_above == at(0)


DARK = (
    snapshot([use(5, 5 * Gi)], [process(5, place=UNREADABLE)]),
    snapshot(gpus=[gpu(0, listed=False)]),
    snapshot(unseen=frozenset({"GPU-0"})),
    snapshot(blind=True),
)


@pytest.mark.parametrize("dark", DARK, ids=["unreadable", "unlisted", "unseen", "blind"])
def test_what_is_remembered_of_a_pod_with_a_default_alone_outlasts_a_reading_in_the_dark(dark: Snapshot) -> None:
    """Points 7 and 16: without visible use it has no account, which is no sign that it uses nothing."""
    under, ledger, pods = policy(rule(KILL_10, default=4 * Gi)), Ledger(), [pod("a")]
    for second in range(12):
        seen = replace(dark, at=at(second)) if second == 5 else snapshot([use(5, 5 * Gi)], second=second)
        plan = planned(seen, pods, under, ledger)
        ledger = plan.ledger
    assert taken(plan) == ["kill"]
    assert planned(replace(dark, at=at(12)), [], under, ledger).ledger.accounts == {}
    assert planned(snapshot(second=12), pods, under, ledger).ledger.accounts == {}


@pytest.mark.parametrize("used", [0, 1, None])
def test_a_process_in_a_container_that_the_list_lacks_ends_no_stretch(used: int | None) -> None:
    """Point 13: while the phase is unknown, the largest budget of any phase makes no account `within`."""
    init = container("first", "40Gi", kind=ContainerKind.INIT, running=False)
    under, ledger, pods = policy(rule(KILL_10)), Ledger(), [pod("a", init, container("main", "4Gi"))]
    for second in range(12):
        new = [use(6, used)] if second == 5 else []
        seen = snapshot([use(5, 20 * Gi), *new], [process(6, "a/new")], second=second)
        plan = planned(seen, pods, under, ledger)
        ledger = plan.ledger
    assert taken(plan) == ["kill"]


@pytest.mark.parametrize("dark", DARK, ids=["unreadable", "unlisted", "unseen", "blind"])
def test_a_reading_in_the_dark_does_not_say_that_anybody_was_not_above(dark: Snapshot) -> None:
    """The reaction time would be too short if it were counted from a reading that hid something."""
    ledger = planned(dark, [pod("a")], policy(), Ledger()).ledger
    assert ledger.last_cycle is None


def test_a_new_account_was_not_above_at_the_last_whole_pass() -> None:
    """A pod that appears over its limit was not above it when the whole node was last seen without it."""
    under = policy(rule(step()))
    first = decide((), Ledger(), at(0), inputs(under))
    story = Story(under, first.ledger)
    (kill,) = story.see(1, 5 * Gi).taken
    assert kill.not_above == at(0)


def test_undeclared_accounts_have_no_ladder() -> None:
    """Point 13: without an allowed amount no step is above its threshold, not even an absolute one."""
    under = policy(rule(step(str(Gi))), declarations=())
    assert Story(under).see(0, 70 * Gi).entries == ()


def test_the_declaration_is_the_resource() -> None:
    """The pod of these tests declares what it appears to declare."""
    assert pod("a", container(declared="4Gi")).containers[0].resources == {MEMORY: "4Gi"}


def tiers(a: Step, b: Step, **b_more: object) -> Policy:
    """A policy with a rule for pods of tier a and one for all others."""
    first = rule(a, name="a", match=Match(labels={"tier": "a"}))
    return policy(first, rule(b, name="b", **b_more))


def toggle(story: Story, used: int, *, every: int, until: int) -> int | None:
    """Relabel the pod again and again; returns the second at which it is killed."""
    for second in range(until):
        story.tier = "a" if second // every % 2 == 0 else "b"
        if "kill" in taken(story.see(second, used)):
            return second
    return None


@pytest.mark.parametrize("every", [1, 2, 3, 5, 12, 60])
@pytest.mark.parametrize("account", ["pod", "container"])
def test_toggling_a_label_between_two_rules_puts_nothing_off_for_long(account: str, every: int) -> None:
    """Point 15: however often the label changes, each rule has its full time once both have been in force."""
    killed = toggle(Story(tiers(KILL_10, KILL_10, account=account)), 5 * Gi, every=every, until=200)
    assert killed is not None
    assert killed <= (10 + every if account == "pod" else 2 * (10 + every))


@pytest.mark.parametrize("written", ["3Gi", "4294967297", "garbage", None])
@pytest.mark.parametrize("every", [1, 2, 11])
def test_toggling_what_is_declared_resets_nothing(written: str | None, every: int) -> None:
    """Point 15: changing the declaration, to one byte more or to an invalid one, ends no stretch."""
    story = Story(policy(rule(KILL_10)))
    killed = None
    for second in range(60):
        story.declared = "4Gi" if second // every % 2 == 0 else written  # type: ignore[assignment]
        if taken(story.see(second, 6 * Gi)):
            killed = second
            break
    assert killed is not None
    assert killed <= 2 * (10 + every)


def test_a_relabel_kills_nobody_at_once() -> None:
    """Point 15: a rule that has never been in force for a pod has counted nothing."""
    story = Story(tiers(KILL_10, step("100%", 0, "warn")))
    story.tier = "b"
    story.run(range(30), 7 * Gi)
    story.tier = "a"
    assert taken(story.run(range(30, 40), 7 * Gi)) == []
    assert taken(story.see(40, 7 * Gi)) == ["kill"]


def test_time_within_the_rule_in_force_does_not_count_for_another() -> None:
    """Point 15: while use is below every threshold of the current rule, another rule's stretch is kept unchanged."""
    story = Story(tiers(KILL_10, step("200%", 10, "kill")))
    for second in range(100):
        story.tier = "a" if second < 5 or second == 99 else "b"
        plan = story.see(second, 7 * Gi)
    assert [entry.due_in_s for entry in plan.entries] == [5]


def test_a_recovery_under_another_rule_ends_the_stretch() -> None:
    """Law 8: whatever rule is in force, usage at or below the threshold of a step ends its stretch."""
    story = Story(tiers(KILL_10, step("200%", 10, "kill")))
    story.tier = "a"
    story.run(range(9), 7 * Gi)
    story.tier = "b"
    story.see(9, 4 * Gi)
    story.tier = "a"
    assert [entry.due_in_s for entry in story.see(10, 7 * Gi).entries] == [10]


def test_time_under_a_rule_that_only_observes_does_not_count_for_one_that_enforces() -> None:
    """Point 20: no owner was warned meanwhile, so the change from observing to enforcing kills nothing at once."""
    story = Story(tiers(KILL_10, KILL_10, mode="observe"))
    for second in range(40):
        story.tier = "a" if second < 5 or second == 39 else "b"
        plan = story.see(second, 5 * Gi)
        if story.tier == "b":
            story.ledger = story.ledger.note_observed(plan.entries[0].assessment, at(second))
    assert [entry.due_in_s for entry in plan.entries] == [5]
    assert taken(story.run(range(40, 45), 5 * Gi)) == ["kill"]


def test_who_is_allowed_less_gets_the_full_time_from_then_on() -> None:
    """Point 15: a stretch is above the largest amount allowed within it, or it starts over."""
    story = Story(policy(rule(KILL_10)))
    story.declared = "8Gi"
    story.run(range(20), 5 * Gi)
    story.declared = "4Gi"
    assert taken(story.run(range(20, 30), 5 * Gi)) == []
    assert taken(story.see(30, 5 * Gi)) == ["kill"]
    changed = Story(policy(rule(KILL_10)))
    changed.declared = "8Gi"
    changed.run(range(5), 9 * Gi)
    changed.declared = "4Gi"
    assert [entry.due_in_s for entry in changed.see(5, 9 * Gi).entries] == [5]
    assert [entry.due_in_s for entry in changed.see(6, 5 * Gi).entries] == [10]
    raised = Story(policy(rule(KILL_10)))
    raised.run(range(9), 5 * Gi)
    raised.declared = "8Gi"
    raised.see(9, 5 * Gi)
    raised.declared = "4Gi"
    assert [entry.due_in_s for entry in raised.see(10, 5 * Gi).entries] == [10]


def test_accounts_of_another_kind_are_held_and_not_forgotten() -> None:
    """Point 15: a pod's account continues to count after a rule for containers was in force, however long."""
    story = Story(tiers(KILL_10, step("200%", 99, "kill"), account="container"))
    for second in range(40):
        story.tier = "a" if second < 5 or second == 39 else "b"
        plan = story.see(second, 5 * Gi)
    assert [entry.due_in_s for entry in plan.entries] == [5]


def test_accounts_of_another_kind_end_with_their_usage_and_with_their_pod() -> None:
    """Law 8: a pod's use is known under a rule for containers too, and nothing is kept of a pod that is gone."""
    for recovered in (True, False):
        story = Story(tiers(KILL_10, KILL_10, account="container"))
        story.tier = "a"
        story.run(range(9), 5 * Gi)
        story.tier = "b"
        story.see(9, Gi if recovered else None)
        story.tier = "a"
        assert [entry.due_in_s for entry in story.see(10, 5 * Gi).entries] == [10 if recovered else 1]
    gone = decide((), story.ledger, at(11), inputs(story.under))
    assert gone.ledger.accounts == {}


def test_what_is_remembered_of_an_account_is_bounded_by_the_policy() -> None:
    """Nothing grows with the number of changes that a tenant makes."""
    story = Story(tiers(WARN_5, KILL_10, account="container"))
    for second in range(300):
        story.tier, story.declared = f"{'a' if second % 2 else second}", f"{2**30 + second}"
        story.see(second, None if second % 7 == 0 else 5 * Gi)
        assert len(story.ledger.accounts) <= 2
        assert all(len(state.stretches) <= 2 for state in story.ledger.accounts.values())


def test_a_warning_belongs_to_the_account_and_not_to_the_step() -> None:
    """Point 18: one warning per incident, however many steps warn and whatever rule is in force."""
    warn = step("100%", 0, "warn", repeat_s=30.0)
    story = Story(tiers(warn, replace(warn, above=step("110%").above)))
    given = []
    for second in range(65):
        story.tier = "a" if second % 2 else "b"
        given += [second] * len(taken(story.see(second, 5 * Gi)))
    assert given == [0, 30, 60]


def test_a_back_off_belongs_to_the_account_and_not_to_the_step() -> None:
    """A kill that fails is not tried by every step and rule in turn."""
    story = Story(tiers(step(), step("110%")))
    tried = []
    for second in range(40):
        story.tier = "a" if second % 2 else "b"
        for entry in story.see(second, 5 * Gi).taken:
            tried.append(second)
            story.ledger = story.ledger.note_failed(entry.account, entry.do, at(second))
    assert tried == [0, 10, 30]


def test_a_back_off_outlasts_a_change_between_accounts_for_pods_and_for_containers() -> None:
    """Points 15 and 18: each of the two accounts keeps its own back-off while the other one is in force."""
    story = Story(tiers(step(), step(), account="container"))
    tried = []
    for second in range(40):
        story.tier = "a" if second % 2 else "b"
        for entry in story.see(second, 5 * Gi).taken:
            tried.append(second)
            story.ledger = story.ledger.note_ended(entry.account).note_failed(entry.account, entry.do, at(second))
    assert tried == [0, 1, 10, 11, 30, 31]


def test_after_a_kill_the_steps_of_every_rule_start_over() -> None:
    """Point 18: a pod relabelled after a kill is not killed again by what another rule had counted before."""
    story = Story(tiers(KILL_10, KILL_10))
    assert toggle(story, 5 * Gi, every=1, until=20) == 10
    ((account, _),) = story.ledger.accounts.items()
    story.ledger = story.ledger.note_ended(account)
    for second in range(11, 21):
        story.tier = "a" if second % 2 else "b"
        assert taken(story.see(second, 5 * Gi)) == []


def test_the_end_of_an_incident_forgets_what_belongs_to_it_and_nothing_else() -> None:
    """Points 15, 18 and 24: an action that has not ended, and the rules it has run under, are known afterwards too."""
    story = Story(policy(rule(step("50%", 0, "warn"), step())))
    (kill,) = [entry for entry in story.see(0, 5 * Gi).taken if entry.do is Do.KILL]
    key, under_way = kill.account, UnderWay(step=step().signature, victim="main")
    pending = PendingEviction(step=step(do="evict").signature, tries=1, until_s=9999.0)
    ledger = story.ledger.note_begun(kill.assessment, under_way, at(0)).note_pending_evictions({key: pending})
    story.ledger = ledger.note_observed(kill.assessment, at(0)).note_failed(key, Do.KILL, at(0))
    assert story.ledger.accounts[key].is_in_incident
    story.see(1, Gi)
    state = story.ledger.accounts[key]
    assert (state.ran_under, state.read, state.under_way, state.pending_eviction) == (
        frozenset({"all"}),
        at(1),
        under_way,
        pending,
    )
    assert not state.is_in_incident


def test_a_list_that_is_too_old_ends_no_incident() -> None:
    """Points 15 and 16: a stale list that seems to end the incident does not end the back-off after a failure."""
    story = Story(policy(rule(step())))
    (kill,) = story.see(0, 5 * Gi).taken
    story.ledger = story.ledger.note_ended(kill.account).note_failed(kill.account, Do.KILL, at(0))
    story.see(1, Gi, stale=True)
    assert [taken(story.see(second, 5 * Gi)) for second in (2, 10)] == [[], ["kill"]]


def test_an_incident_ends_at_the_lowest_threshold_of_all_rules_it_ran_under() -> None:
    """Point 15: a relabel to a rule with a higher threshold ends no back-off as long as the use is above the other."""
    story = Story(tiers(step(), step("200%")))
    story.tier = "a"
    (kill,) = story.see(0, 6 * Gi).taken
    story.ledger = story.ledger.note_ended(kill.account).note_failed(kill.account, Do.KILL, at(0))
    story.tier = "b"
    story.see(1, 6 * Gi)
    story.tier = "a"
    assert [taken(story.see(second, 6 * Gi)) for second in (2, 10)] == [[], ["kill"]]


def test_without_an_allowed_amount_no_step_is_compared() -> None:
    """Points 6 and 15: an allowed amount known only by request is nothing to compare an account with."""
    (found,) = assessed(snapshot([use(5, 2 * Gi)]), [pod("a", container(declared="1Gi"))], policy(rule(step())))
    assert len(step_readings(found, stale=False)) == 1
    assert step_readings(replace(found, allowed=None, allowed_by_request=Gi), stale=False) == ()
