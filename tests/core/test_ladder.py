"""The ladder: what counts, what resets, what is due."""

from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import pytest

from tests.core.story import Story
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
from watchdog.core.decide import decide
from watchdog.core.ladder import step_readings
from watchdog.core.ledger import Ledger, PendingEviction, UnderWay
from watchdog.core.model import UNREADABLE, ContainerKind, Now, Snapshot
from watchdog.core.plan import Plan
from watchdog.core.policy import (
    Allowance,
    Brakes,
    Capacity,
    Claims,
    Declaration,
    Do,
    Draining,
    Events,
    Idle,
    JournalLimits,
    Maintenance,
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
WARN = step("100%", 0, "warn", repeat_s=30.0)


def taken(plan: Plan) -> list[str]:
    """What a plan acts on."""
    return [entry.do.value for entry in plan.taken]


def first(story: Story, readings: dict[int, object], until: int = 60) -> int | None:
    """The second at which it is first acted on; each second it uses 5Gi, but for readings that differ.

    These are bytes used (None: unknown), "blind", "stale" or "none", which is no cycle at all.
    """
    for second in range(until):
        reading = readings.get(second, 5 * Gi)
        if reading == "none":
            continue
        if reading == "blind":
            plan = story.miss(second)
        else:
            used = 5 * Gi if reading == "stale" else reading
            plan = story.see(second, used, stale=reading == "stale")  # type: ignore[arg-type]
        if plan.taken:
            return second
    return None


@pytest.mark.parametrize(
    ("made", "readings", "acts_s"),
    [
        (step("100%", 10), {}, 10),
        (step("100%", 0), {}, 0),
        (step("100%", 10), {10: 4 * Gi}, 21),  # at the threshold, not above it
        (step("100%", 10), {6: None, 7: "blind"}, 12),  # both count nothing, and the gap one interval
        (step("100%", 10), {10: None, 11: "blind"}, 12),
        (step("100%", 12), {10: "stale", 11: "stale"}, 14),
        (step("100%", 10), dict.fromkeys(range(10, 18), "none"), 18),
        (step("100%", 10), dict.fromkeys(range(10, 19), "none"), 29),  # 10 s: everything starts over
    ],
    ids=["above", "for 0s", "low", "unknown", "unknown when due", "stale", "short gap", "long gap"],
)
def test_a_step_is_due_after_its_time_above_the_threshold(made: Step, readings: dict[int, object], acts_s: int) -> None:
    """Points 15 and 16: the timer runs between consecutive conclusive readings above the threshold.

    Law 3: what is due waits for a conclusive reading. Law 8: use at or below the threshold resets the count.
    """
    assert first(Story(policy(rule(made))), readings) == acts_s


def test_the_longest_gap_is_three_intervals() -> None:
    """Point 16: with an interval of a minute, readings 179 s apart still follow each other."""
    slow = Story(policy(rule(KILL_10), interval_s=60.0))
    slow.see(0, 5 * Gi)
    assert taken(slow.see(179, 5 * Gi)) == ["kill"]


def test_due_in_s_is_the_time_that_each_step_still_takes() -> None:
    """The plan of a first reading has it for each step above its threshold."""
    plan = Story(policy(rule(step("50%", 5, "warn"), KILL_10))).see(0, 5 * Gi)
    assert [(entry.due_in_s, entry.taken) for entry in plan.entries] == [(5, False), (10, False)]


def test_each_step_has_its_own_timer() -> None:
    """Point 15: falling below a higher threshold does not reset the lower one."""
    story = Story(policy(rule(step("100%", 4, "warn"), step("150%", 4, "kill"))))
    story.run(range(3), 7 * Gi)
    story.see(3, 5 * Gi)
    assert taken(story.see(4, 7 * Gi)) == ["warn"]
    assert [e.due_in_s for e in story.see(5, 7 * Gi).entries if e.do is Do.KILL] == [3]


@pytest.mark.parametrize(
    ("moment", "acts"),
    [
        (at(10), True),
        (replace(at(10), boot_id="another"), False),
        (replace(at(10), wall_s=at(10).wall_s - 86_400), True),
        (replace(at(10), wall_s=at(10).wall_s + 86_400), True),
    ],
)
def test_only_the_boot_clock_counts(moment: Now, *, acts: bool) -> None:
    """Point 19: boot times of two boots are never subtracted, and a wall clock that jumps a day changes no wait."""
    story = Story(policy(rule(KILL_10)))
    for second in range(10):
        assert taken(story.see(second, 5 * Gi, now=replace(at(second), wall_s=moment.wall_s * (second % 2)))) == []
    assert (taken(story.see(10, 5 * Gi, now=moment)) == ["kill"]) is acts


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


def test_a_warning_comes_once_per_incident_and_again_after_repeat() -> None:
    """Point 18: not at every reading, again every `repeat`, and again in a new incident."""
    story = Story(policy(rule(WARN)))
    assert [second for second in range(65) if taken(story.see(second, 5 * Gi))] == [0, 30, 60]
    story.see(65, 4 * Gi)
    assert taken(story.see(66, 5 * Gi)) == ["warn"]


def test_a_failure_without_an_incident_is_forgotten() -> None:
    """An action that fails on an account that is below its thresholds leaves no wait for the next incident."""
    story = Story(policy(rule(step())))
    story.see(0, Gi)
    ((account, _),) = story.ledger.accounts.items()
    story.ledger = story.ledger.note_failed(account, Do.KILL, at(1))
    story.see(2, Gi)
    assert not story.ledger.accounts[account].failures


def test_a_failed_step_holds_up_no_later_step() -> None:
    """Point 27: a failed eviction does not hold up the kill after it."""
    story = Story(policy(rule(step("100%", 0, "evict"), step("100%", 3, "kill"))))
    (evict,) = story.see(0, 5 * Gi).taken
    story.ledger = story.ledger.note_failed(evict.account, evict.do, at(0))
    assert taken(story.run(range(1, 3), 5 * Gi)) == []
    assert taken(story.see(3, 5 * Gi)) == ["kill"]


@pytest.mark.parametrize(
    ("changed", "keeps"),
    [
        ({}, True),
        ({"sha256": "1" * 64, "source": "other.toml", "warnings": ("a warning",)}, True),
        ({"brakes": Brakes(node=Window(count=1, per_s=60.0)), "protect": Protect(namespaces=("elsewhere",))}, True),
        ({"events": Events(observe=True, contact="the platform team"), "journal": JournalLimits(max_age_s=60.0)}, True),
        ({"safety": Safety(foreign_pid_namespace=True), "capacity": Capacity(resource=MEMORY)}, True),
        ({"pulse": Pulse(), "mps": Draining(), "stale_after_s": 60.0, "release_timeout_s": 60.0}, True),
        ({"maintenance": Maintenance(alert_after_s=60.0), "idle": Idle(after_s=60.0)}, True),
        ({"schemes": ("veriff",), "declarations": (replace(VERIFF, scheme="veriff"),)}, True),
        ({"rules": (rule(replace(KILL_10, grace_s=99.0)),)}, False),
        ({"rules": (rule(KILL_10, name="other"),)}, False),
        ({"mode": "observe"}, False),
        ({"interval_s": 2.0}, False),
        ({"allowance": Allowance()}, False),
        ({"pressure": Pressure(free_below=Fraction(1, 2))}, False),
        ({"declarations": (VERIFF, replace(VERIFF, resource="other"))}, False),
        ({"schemes": ("veriff",)}, True),
        ({"schemes": ("veriff", "dra")}, False),
        ({"claims": Claims(count_shares=True)}, False),
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
        *("safety", "stale_after_s", "release_timeout_s", "pulse", "mps", "maintenance", "schemes"),
        *("mode", "interval_s", "declarations", "allowance", "rules", "pressure", "version", "claims", "idle"),
    }


def test_from_observe_to_enforce_all_ladders_start_over() -> None:
    """Point 20: no pod is killed for time in which its owner was not warned."""
    story = Story(policy(rule(KILL_10)))
    story.run(range(10), 5 * Gi)
    story.ledger = story.ledger.reset()
    assert [entry.due_in_s for entry in story.see(10, 5 * Gi).entries] == [10]


def test_observe_plans_one_action_per_incident() -> None:
    """Point 38: what observe mode has planned once is not planned again until the incident has ended."""
    story = Story(policy(rule(step("100%", 0, "kill"))))
    (kill,) = story.see(0, 5 * Gi).taken
    story.ledger = story.ledger.note_observed(kill.assessment, at(0))
    assert [taken(story.see(second, 5 * Gi)) for second in range(1, 5)] == [[]] * 4
    story.see(5, 4 * Gi)
    assert taken(story.see(6, 5 * Gi)) == ["kill"]


def test_over_since_is_the_first_reading_over() -> None:
    """`over_since` is kept through gaps, and cleared once the account is within; no step need be above."""
    for made in (rule(KILL_10), rule(KILL_10, match=Match(namespaces=("elsewhere",))), rule(step("200%"))):
        story, since = Story(policy(made)), []
        for second, used in enumerate([5 * Gi, 5 * Gi, None, 5 * Gi, Gi]):
            story.see(second, used)
            since += [state.over_since for state in story.ledger.accounts.values()]
        assert since == [at(0)] * 4 + [None]


def test_not_above_is_the_last_sure_reading_before() -> None:
    """The reaction time is counted from the last conclusive reading not above the threshold: an upper bound.

    For a pod that appears over its limit that is when the whole node was last seen without it.
    """
    story = Story(policy(rule(step())))
    story.see(0, Gi)
    story.see(1, None)
    assert [entry.not_above for entry in story.see(2, 5 * Gi).taken] == [at(0)]
    new = Story(story.under, decide((), Ledger(), at(0), inputs(story.under)).ledger)
    assert [entry.not_above for entry in new.see(1, 5 * Gi).taken] == [at(0)]


DARK = (
    snapshot([use(5, 5 * Gi)], [process(5, place=UNREADABLE)]),
    snapshot(gpus=[gpu(0, listed=False)]),
    snapshot(unseen=frozenset({"GPU-0"})),
    snapshot(blind=True),
)


each_dark = pytest.mark.parametrize("dark", DARK, ids=["unreadable", "unlisted", "unseen", "blind"])


@each_dark
def test_what_is_remembered_of_a_pod_with_a_default_alone_outlasts_an_incomplete_reading(dark: Snapshot) -> None:
    """Points 7 and 16: without visible use it has no account, which is no sign that it uses nothing."""
    under, ledger, pods = policy(rule(KILL_10, default=4 * Gi)), Ledger(), [pod("a")]
    for second in range(12):
        seen = replace(dark, at=at(second)) if second == 5 else snapshot([use(5, 5 * Gi)], second=second)
        plan = planned(seen, pods, under, ledger)
        ledger = plan.ledger
    assert taken(plan) == ["kill"]
    assert planned(replace(dark, at=at(12)), [], under, ledger).ledger.accounts == {}
    (state,) = planned(snapshot(second=12), pods, under, ledger).ledger.accounts.values()
    assert (state.stretches, state.is_in_incident) == ({}, False)


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


@each_dark
def test_an_incomplete_reading_does_not_show_that_an_account_was_not_above(dark: Snapshot) -> None:
    """The reaction time would be too short if it were counted from a reading that hid something."""
    assert planned(dark, [pod("a")], policy(), Ledger()).ledger.last_cycle is None


def tiers(a: Step, b: Step, **b_more: object) -> Policy:
    """A policy with a rule for pods of tier a and one for all others."""
    first = rule(a, name="a", match=Match(labels={"tier": "a"}))
    return policy(first, rule(b, name="b", **b_more))


def tried(story: Story, used: int, until: int, then: str) -> list[int]:
    """When it is acted on while a tenant relabels the pod every second; each "kill" ends, or fails."""
    seconds = []
    for second in range(until):
        story.tier = "a" if second % 2 else "b"
        for entry in story.see(second, used).taken:
            seconds.append(second)
            ledger = story.ledger
            if then == "end":
                ledger = ledger.note_begun(entry.assessment, UnderWay(step=None, victim="main"), at(second))
            if then in ("end", "fail"):
                ledger = ledger.note_ended(entry.account)
            if then == "fail":
                ledger = ledger.note_failed(entry.account, entry.do, at(second))
            story.ledger = ledger
    return seconds


@pytest.mark.parametrize(
    ("made", "more", "used"),
    [
        (step("200%", 10, "kill"), {}, 7 * Gi),
        (KILL_10, {"mode": "observe"}, 5 * Gi),
        (step("200%", 99, "kill"), {"account": "container"}, 5 * Gi),
    ],
    ids=["below every threshold of it", "one that only observes", "one for containers"],
)
def test_a_stretch_is_kept_unchanged_while_another_rule_is_in_force(
    made: Step, more: dict[str, Any], used: int
) -> None:
    """Points 15 and 20: however long that is, it neither counts, nor is forgotten; then it continues."""
    story = Story(tiers(KILL_10, made, **more))
    for second in range(40):
        story.tier = "a" if second < 5 or second == 39 else "b"
        plan = story.see(second, used)
        for entry in plan.entries if story.tier == "b" else ():
            story.ledger = story.ledger.note_observed(entry.assessment, at(second))
    assert [entry.due_in_s for entry in plan.entries] == [5]
    assert taken(story.run(range(40, 45), used)) == ["kill"]


def test_who_is_allowed_less_gets_the_full_time_from_then_on() -> None:
    """Point 15: a stretch is above the largest amount allowed within it, or it starts over."""
    story = Story(policy(rule(KILL_10)), declared="8Gi")
    story.run(range(20), 5 * Gi)
    story.declared = "4Gi"
    assert [entry.due_in_s for entry in story.see(20, 5 * Gi).entries] == [10]
    changed = Story(policy(rule(KILL_10)), declared="8Gi")
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
    assert decide((), story.ledger, at(11), inputs(story.under)).ledger.accounts == {}


def test_what_is_remembered_of_an_account_is_bounded_by_the_policy() -> None:
    """Nothing grows with the number of changes that a tenant makes."""
    story = Story(tiers(step("50%", 5, "warn"), KILL_10, account="container"))
    for second in range(300):
        story.tier, story.declared = f"{'a' if second % 2 else second}", f"{2**30 + second}"
        story.see(second, None if second % 7 == 0 else 5 * Gi)
        assert len(story.ledger.accounts) <= 2
        assert all(len(state.stretches) <= 2 for state in story.ledger.accounts.values())


@pytest.mark.parametrize(
    ("under", "then", "seconds"),
    [
        (tiers(WARN, replace(WARN, above=step("110%").above)), "warned", [0, 30, 60]),
        (tiers(KILL_10, KILL_10), "end", [10, 21, 32, 43, 54, 65, 76]),
        (tiers(step(), step("110%")), "fail", [0, 10, 30, 70]),
        (tiers(step(), step(), account="container"), "fail", [0, 1, 10, 11, 30, 31, 70, 71]),
    ],
    ids=["a warning", "a kill that ended", "a back-off", "a back-off of accounts of two kinds"],
)
def test_what_has_been_done_belongs_to_the_account_and_not_to_the_step(
    under: Policy, then: str, seconds: list[int]
) -> None:
    """Points 15 and 18: one warning per incident, no kill by what another rule had counted before the last one.

    And one that fails is not tried by every step and rule in turn: again after 10 s, 20 s, 40 s.
    Of two accounts, for the pod and for its container, each keeps its own back-off while the other applies.
    """
    assert tried(Story(under), 5 * Gi, 80, then) == seconds


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
    assert (state.ran_under, state.read, state.is_in_incident) == (frozenset({"all"}), at(1), False)
    assert (state.under_way, state.pending_eviction) == (under_way, pending)


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


@pytest.mark.parametrize(("left", "warned"), [(0, [0, 601]), (1, [0, 601]), (8 * Gi, [0])])
def test_an_incident_ends_with_the_last_byte_of_an_account_that_only_its_use_forms(
    left: int, warned: list[int]
) -> None:
    """Point 15: with an amount per GPU a card's account is gone once nothing is used there; then it starts over."""
    per_gpu = Declaration(resource="nvidia.com/gpumem", unit=1, per="gpu")
    ladder = policy(rule(step("100%", 0, "warn"), step("200%", 60)), declarations=(per_gpu,))
    tenant, ledger, seconds = pod("a", container(resources={"nvidia.com/gpumem": "4Gi"})), Ledger(), []
    for second, used in [(0, 5 * Gi), *((each, left) for each in range(1, 600)), (601, 5 * Gi)]:
        elsewhere, there = use(5, Gi, 0), [use(5, used, 1)] if used else []
        plan = planned(snapshot([elsewhere, *there], gpus=[gpu(0), gpu(1)], second=second), [tenant], ladder, ledger)
        ledger = plan.ledger
        seconds += [second for each in plan.taken if each.do is Do.WARN]
    assert seconds == warned
