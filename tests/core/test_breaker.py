"""The breaker: if most owners are due at once, nothing is killed at first, then one account per `hold`."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.core.many_pods import ManyPods, held, over_pod, under
from tests.worlds import Gi, at, inputs, owner, planned, rule, snapshot, step
from watchdog.core.brakes import Begun
from watchdog.core.ledger import Ledger, PendingEviction
from watchdog.core.model import Pod
from watchdog.core.policy import Brakes, Breaker, Match, Step, Window

BREAKER = Breaker(offenders=Fraction(1, 2), of_at_least=3, hold_s=100)
ALL = Brakes(breaker=BREAKER)
OK = Gi  # within the 1Gi that each pod declares


def many_pods(brakes: Brakes = ALL) -> ManyPods:
    """A node with a breaker at half of at least three owners."""
    return ManyPods(under(brakes))


def one_per_owner(number: int = 4, name: str = "p") -> list[Pod]:
    """Pods of as many owners."""
    return [over_pod(f"{name}{each}", f"{name}{each}") for each in range(number)]


def opened(number: int = 4) -> tuple[ManyPods, list[Pod]]:
    """A node whose breaker has opened at second 0, and its pods."""
    place, pods = many_pods(), one_per_owner(number)
    place.see(0, pods)
    assert place.ledger.brakes.opened is not None
    return place, pods


@pytest.mark.parametrize(
    ("over", "within", "opens"),
    [(2, 2, True), (1, 2, False), (2, 0, False), (3, 0, True), (2, 1, True), (2, 3, False), (1, 0, False)],
)
def test_it_opens_at_the_share_of_enough_owners(over: int, within: int, opens: bool) -> None:
    """Point 30: it opens by the share of distinct owners due, if there are at least `of_at_least` owners."""
    place, pods = many_pods(), one_per_owner(over + within)
    assert len(place.live(0, pods, {each.uid: OK for each in pods[over:]})) == (0 if opens else over)
    assert (place.ledger.brakes.opened is not None) is opens


def test_owners_count_once_however_many_pods_they_have() -> None:
    """Point 30: offenders are distinct owners: twenty pods of one Deployment are one."""
    pods = [over_pod(f"p{number}", "web") for number in range(20)] + [over_pod("a", "a"), over_pod("b", "b")]
    assert len(many_pods().live(0, pods, {"a": OK, "b": OK})) == 20


def test_nothing_is_acted_on_while_it_is_open_and_then_one_per_hold() -> None:
    """Point 30: after `hold` it is half open, one action per `hold`, until the share has fallen."""
    place, pods, hits = many_pods(), one_per_owner(6), []
    for second in range(0, 700, 5):
        gone = place.live(second, pods)
        hits += [second] * len(gone)
        pods = [each for each in pods if each.uid not in gone]
    # The last two as well: fewer owners than `of_at_least` would not open it, and do not close it.
    assert hits == [100, 200, 300, 400, 500, 600]
    assert place.ledger.brakes.opened is not None
    place.see(701, [])
    assert place.ledger.brakes.opened is None


@pytest.mark.parametrize(("comes_s", "goes_s"), [(0, 100), (50, 100), (150, 200), (190, 300), (250, 300)])
def test_an_offender_that_comes_late_waits_for_one_turn_of_those_that_came_before_it(comes_s: int, goes_s: int) -> None:
    """Points 25 and 30: of many slightly over, of lower priority and earlier UIDs, it has every turn of the first kind.

    It has one of the second kind too, once the bytes it is over weigh more than the time that the others have waited.
    """
    place, pods = many_pods(), one_per_owner(9)
    hits: dict[str, int] = {}
    for second in range(0, 500, 5):
        pods += [over_pod("hog", "hog", priority=1)] if second == comes_s else []
        gone = place.live(second, pods, {"hog": 9 * Gi})
        hits |= dict.fromkeys(gone, second)
        pods = [each for each in pods if each.uid not in gone]
    assert hits["hog"] == goes_s
    assert [*hits.values()] == [100, 200, 300, 400]


def test_a_step_that_it_holds_back_has_the_time_of_the_next_action() -> None:
    """A step withheld by the breaker is reported with the time until it may be let through."""
    place, pods = opened()
    assert held(place.see(40, pods))["p3"] == ("breaker", 60.0)
    assert place.live(100, pods) == ["p0"]
    assert held(place.see(130, pods[1:]))["p3"] == ("breaker", 70.0)


def test_it_closes_once_few_are_over_but_not_before_a_hold() -> None:
    """Point 30: a share that has fallen closes it after its hold; then enforcement is as before."""
    place, pods = opened()
    few = {"p1": OK, "p2": OK, "p3": OK}
    assert held(place.see(99, pods, few)) == {"p0": ("breaker", 1.0)}
    assert place.live(100, pods, few) == ["p0"]
    assert place.ledger.brakes.opened is None


def test_ladders_that_start_over_do_not_close_it() -> None:
    """After a restart nothing is due for a while; owners above an enforcing threshold still count against closing."""
    place, pods = ManyPods(under(ALL, rule(step("100%", 10)))), one_per_owner()
    for second in range(12):
        place.see(second, pods)
        assert (place.ledger.brakes.opened is not None) is (second >= 10)  # by those who are due, not above alone
    place.ledger = Ledger(brakes=place.ledger.brakes)
    for second in range(109, 120):
        place.see(second, pods)
    assert place.ledger.brakes.opened is not None


def test_a_stale_list_neither_opens_nor_closes_it() -> None:
    """Point 16: inconclusive readings are no sign of recovery."""
    new = many_pods()
    new.see(0, one_per_owner(), stale=True)
    assert new.ledger.brakes.opened is None
    place, pods = opened()
    place.see(200, pods, stale=True)
    assert place.ledger.brakes.opened is not None


def test_under_maintenance_it_does_not_close() -> None:
    """Point 30: no account above a threshold is a sign of recovery only if accounts could be read."""
    ledger, given = opened()[0].ledger, inputs(maintenance=True)
    dark = planned(snapshot(second=700, gpus=(), blind=True), [], under(ALL), ledger, given).ledger
    assert dark.brakes.opened is not None
    assert planned(snapshot(second=700), [], under(ALL), ledger).ledger.brakes.opened is None


def test_protected_owners_are_not_in_the_base() -> None:
    """Point 30: the base is owners whose verdict is known and who could be acted on."""
    spared = [replace(each, priority=2_000_000_000) for each in one_per_owner(5, "s")]
    used = {each.uid: OK for each in spared}
    assert many_pods().live(0, one_per_owner(3) + spared, {"p2": OK} | used) == []
    assert many_pods().live(0, one_per_owner(2) + spared, used) == ["p0", "p1"]


def test_finished_pods_are_not_in_the_base() -> None:
    """Point 30: nothing can be due on the finished pods of a node's Jobs, which would dilute the share."""
    finished = [replace(each, is_finished=True) for each in one_per_owner(20, "f")]
    assert many_pods().live(0, one_per_owner(3) + finished, {"p2": OK}) == []


@pytest.mark.parametrize("ladder", [(), (step("100%", 0, "warn"),), (replace(step(), under_pressure=True),), None])
def test_owners_that_no_enforcement_can_reach_are_not_in_the_base(ladder: tuple[Step, ...] | None) -> None:
    """Point 30: the base needs a rule that enforces, not under pressure; others would dilute the share."""
    others = [] if ladder is None else [replace(rule(*ladder), name="others", match=Match(namespaces=("idle",)))]
    place = ManyPods(under(ALL, *others, replace(rule(step()), match=Match(namespaces=("ns",)))))
    idle = [replace(each, namespace="idle") for each in one_per_owner(5, "i")]
    assert place.live(0, one_per_owner(3) + idle, {each.uid: OK for each in idle}) == []


def test_an_owner_that_was_let_through_counts_for_a_hold_and_counts_once() -> None:
    """An owner that is gone because of our action counts against closing, as one owner of the base."""
    place, pods = opened(5)
    assert place.live(100, pods) == ["p0"]
    three = {"p3": OK, "p4": OK}
    place.see(101, pods[1:], three)
    assert place.ledger.brakes.opened is not None
    # One of four is over; with the one that was let through it is two of five.
    place.see(102, pods[1:], {"p2": OK, **three})
    assert place.ledger.brakes.opened is None


def test_a_policy_without_a_breaker_closes_it() -> None:
    """A breaker removed from the policy no longer withholds anything."""
    place, pods = opened()
    place.policy = under(Brakes())
    assert len(place.live(1, pods)) == 4
    assert place.ledger.brakes.opened is None


def test_steps_under_pressure_do_not_open_it() -> None:
    """Point 30: a short card is no sign of a wrong policy."""
    place = ManyPods(under(ALL, rule(replace(step(), under_pressure=True))))
    place.live(0, one_per_owner(), {"p0": 79 * Gi})
    assert place.ledger.brakes.opened is None


def test_the_second_action_of_an_incident_does_not_open_it() -> None:
    """Point 30: offenders are due for the *first* kill of an incident; a later step of it does not count."""
    place, pods = many_pods(), one_per_owner()
    for number in range(4):
        assert place.live(number, pods, {each.uid: OK for each in pods[number + 1 :]})[-1] == f"p{number}"
    assert len(place.live(10, pods)) == 4


def test_the_windows_come_before_the_breaker() -> None:
    """Point 29: the order of brakes: a window is named even if the breaker would withhold the step too."""
    place = many_pods(Brakes(owner=Window(count=1, per_s=1000), breaker=BREAKER))
    place.live(0, [over_pod("x", "p0")])
    found = held(place.see(1, one_per_owner()))
    assert (found["p0"], found["p1"]) == (("owner", 999.0), ("breaker", 100.0))


def test_a_breaker_on_trial_is_forgotten_when_enforcement_begins() -> None:
    """Point 38: a breaker that opened in observe mode is dropped; one that really opened stays open."""
    place, _ = opened()
    assert place.ledger.reset().brakes.opened is not None
    observed = replace(place.ledger.brakes, opened=Begun(at(0).boottime_s, observed=True))
    assert replace(place.ledger, brakes=observed).reset().brakes.opened is None


def test_a_rule_that_only_observes_has_a_breaker_of_its_own() -> None:
    """Owners that are only observed neither open the breaker for enforcing rules nor count in it."""
    trial = replace(rule(step()), name="trial", mode="observe", match=Match(namespaces=("trial",)))
    place = ManyPods(under(ALL, trial, rule(step())))
    one = over_pod("a", "a")
    assert place.live(0, [*(replace(each, namespace="trial") for each in one_per_owner()), one]) == ["a"]
    assert (place.ledger.brakes.opened, place.ledger.trial.opened is not None) == (None, True)
    place.see(200, [one], {"a": OK})
    assert place.ledger.trial.opened is None


def test_what_is_never_let_through_does_not_count_as_an_offender() -> None:
    """Point 30: owners whose only steps a permanent brake withholds neither open the breaker nor keep it open."""
    place = ManyPods(under(ALL, rule(step(do="evict"))))
    agents = [replace(each, owner=owner("DaemonSet", each.uid)) for each in one_per_owner(3)]
    others = one_per_owner(3, "q")
    within = {each.uid: OK for each in others}
    assert place.live(0, [*agents, *others], within) == []
    assert place.ledger.brakes.opened is None
    assert sorted(place.live(1, [*agents, *others], {**within, "q0": 3 * Gi})) == ["q0"]


def test_an_action_that_always_fails_takes_only_every_other_turn() -> None:
    """Point 30: while the breaker is half open, the others wait for an offender that can't be ended one `hold` each."""
    place, pods, hits = ManyPods(under(ALL, rule(step(do="evict")))), one_per_owner(3), []
    for second in range(0, 700, 5):
        for entry in place.see(second, pods, {"p0": 9 * Gi, "p1": 3 * Gi, "p2": 3 * Gi}).taken:
            hits.append(entry.account.uid)
            if entry.account.uid != "p0":
                place.strike(entry, second)
                continue
            begun = PendingEviction(step=entry.definition.signature, tries=1, until_s=0.0)
            place.ledger = place.ledger.note_begun(entry.assessment, begun, at(second)).note_pending_evictions({})
            place.ledger = place.ledger.note_failed(entry.account, entry.do, at(second))
    assert hits[:5] == ["p0", "p1", "p0", "p2", "p0"]


def test_the_hold_goes_on_while_it_is_stopped() -> None:
    """Stopping the daemon until the hold is over lets one owner through, not all of them, without a second hold."""
    place, pods = opened()
    for second, acted in ((50, 0), (101, 1)):
        place.ledger = place.ledger.reset()
        assert len(place.live(second, pods)) == acted
