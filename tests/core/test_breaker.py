"""The breaker: if most owners are due at once, nothing is killed at first, then one account per `hold`."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.core.town import Town, held, resident, under
from tests.worlds import Gi, rule, step
from watchdog.core.ledger import Ledger
from watchdog.core.policy import Brakes, Breaker, Match, Window

BREAKER = Breaker(offenders=Fraction(1, 2), of_at_least=3, hold_s=100)
ALL = Brakes(breaker=BREAKER)
OK = Gi  # within the 1Gi that each pod declares


def town(brakes: Brakes = ALL) -> Town:
    """A town with a breaker at half of at least three owners."""
    return Town(under(brakes))


@pytest.mark.parametrize(
    ("over", "within", "opens"),
    [(2, 2, True), (1, 2, False), (2, 0, False), (3, 0, True), (2, 1, True), (2, 3, False), (1, 0, False)],
)
def test_it_opens_at_the_share_of_at_least_so_many_owners(over: int, within: int, opens: bool) -> None:
    """Point 30: it opens by the share of distinct owners due, if there are at least `of_at_least` owners."""
    pods = [resident(f"p{number}", f"w{number}") for number in range(over + within)]
    used = {each.uid: OK for each in pods[over:]}
    place = town()
    assert len(place.live(0, pods, used)) == (0 if opens else over)
    assert (place.ledger.brakes.opened is not None) is opens


def test_owners_count_once_however_many_pods_they_have() -> None:
    """Point 30: offenders are distinct owners: twenty pods of one Deployment are one."""
    pods = [resident(f"p{number}", "web") for number in range(20)] + [resident("a", "a"), resident("b", "b")]
    assert len(town().live(0, pods, {"a": OK, "b": OK})) == 20


def test_nobody_is_hit_while_it_is_open_and_then_one_a_hold() -> None:
    """Point 30: after `hold` it is half open, one action a `hold`, until the share has fallen."""
    place = town()
    pods = {f"p{number}": resident(f"p{number}", f"w{number}") for number in range(6)}
    hits = []
    for second in range(0, 700, 5):
        for uid in place.live(second, list(pods.values())):
            hits.append(second)
            del pods[uid]
    # The last two as well: fewer owners than `of_at_least` would not open it, and do not close it.
    assert hits == [100, 200, 300, 400, 500, 600]
    assert place.ledger.brakes.opened is not None
    place.see(701, [])
    assert place.ledger.brakes.opened is None


def test_the_account_most_bytes_over_goes_first_through_a_half_open_breaker() -> None:
    """Points 25 and 30: decoys slightly over, with earlier UIDs and lower priority, do not precede an offender."""
    place = town()
    pods = [resident(f"p{number}", f"w{number}", priority=number) for number in range(4)]
    used = {"p2": 3 * Gi, "p3": 9 * Gi}
    hits = []
    for second in range(0, 500, 10):
        hits += (gone := place.live(second, pods, used))
        pods = [each for each in pods if each.uid not in gone]
    assert hits == ["p3", "p2", "p0", "p1"]


def test_pods_started_later_do_not_go_before_an_offender_however_much_they_use() -> None:
    """Point 30, law 11: larger decoys that replace each killed one come after the offender."""
    place, started = town(), 3
    pods, used = [resident("hog", "hog"), *(resident(f"d{n}", f"d{n}") for n in range(3))], {"hog": 9 * Gi}
    hits: list[str] = []
    for second in range(0, 600, 5):
        used |= {each.uid: 20 * Gi for each in pods if each.uid != "hog"}
        gone = place.live(second, pods, used)
        hits += gone
        pods = [each for each in pods if each.uid not in gone]
        pods += [resident(f"d{started + n}", f"d{started + n}") for n in range(len(gone))]
        started += len(gone)
    assert hits == ["d0", "d1", "d2", "hog", "d3"]


@pytest.mark.parametrize(("comes_s", "goes_s"), [(50, 100), (150, 300), (250, 300)])
def test_an_offender_that_comes_late_waits_for_one_turn_of_those_that_came_before_it(comes_s: int, goes_s: int) -> None:
    """Points 25 and 30: however many are slightly over already, every other turn goes to the most bytes over."""
    place, pods = town(), [resident(f"p{number}", f"w{number}") for number in range(9)]
    hits: dict[str, int] = {}
    for second in range(0, 500, 5):
        pods += [resident("hog", "hog")] if second == comes_s else []
        gone = place.live(second, pods, {"hog": 9 * Gi})
        hits |= dict.fromkeys(gone, second)
        pods = [each for each in pods if each.uid not in gone]
    assert hits["hog"] == goes_s
    assert [*hits.values()] == [100, 200, 300, 400]


def test_what_holds_says_when_the_next_one_may_go() -> None:
    """A step withheld by the breaker is reported with the time until it may be let through."""
    place = town()
    pods = [resident(f"p{number}", f"w{number}") for number in range(4)]
    place.see(0, pods)
    assert held(place.see(40, pods))["p3"] == ("breaker", 60.0)
    assert place.live(100, pods) == ["p0"]
    assert held(place.see(130, pods[1:]))["p3"] == ("breaker", 70.0)


def test_it_closes_once_few_are_over_but_not_before_a_hold() -> None:
    """Point 30: a share that has fallen closes it after its hold; then enforcement is as before."""
    place = town()
    pods = [resident(f"p{number}", f"w{number}") for number in range(4)]
    place.see(0, pods)
    few = {"p1": OK, "p2": OK, "p3": OK}
    assert held(place.see(99, pods, few)) == {"p0": ("breaker", 1.0)}
    assert place.live(100, pods, few) == ["p0"]
    assert place.ledger.brakes.opened is None


def test_ladders_that_start_over_do_not_close_it() -> None:
    """After a restart nothing is due for a while; owners above an enforcing threshold still count against closing."""
    pods = [resident(f"p{number}", f"w{number}") for number in range(4)]
    place = Town(under(ALL, rule(step("100%", 10))))
    for second in range(12):
        place.see(second, pods)
        assert (place.ledger.brakes.opened is not None) is (second >= 10)  # by those who are due, not above alone
    place.ledger = Ledger(brakes=place.ledger.brakes)
    for second in range(109, 120):
        place.see(second, pods)
    assert place.ledger.brakes.opened is not None


def test_a_stale_list_neither_opens_nor_closes_it() -> None:
    """Point 16: inconclusive readings are no sign of recovery."""
    place = town()
    pods = [resident(f"p{number}", f"w{number}") for number in range(4)]
    place.see(0, pods, stale=True)
    assert place.ledger.brakes.opened is None
    place.see(1, pods)
    place.see(200, pods, stale=True)
    assert place.ledger.brakes.opened is not None


def test_protected_and_undeclared_owners_are_not_in_the_base() -> None:
    """Point 30: the base is owners whose verdict is known and who could be acted on."""
    spared = [replace(resident(f"s{number}", f"s{number}"), priority=2_000_000_000) for number in range(5)]
    pods = [resident("a", "a"), resident("b", "b"), resident("c", "c"), *spared]
    used = {"c": OK, **{each.uid: OK for each in spared}}
    assert town().live(0, pods, used) == []
    assert town().live(0, pods[:2] + spared, used) == ["a", "b"]


def test_owners_that_no_force_can_reach_are_not_in_the_base() -> None:
    """Point 30: the base needs a rule that enforces, not under pressure; others would dilute the share."""
    pods = [resident("a", "a"), resident("b", "b"), resident("c", "c")]
    idle = [resident(f"i{number}", f"i{number}", "idle") for number in range(5)]
    for ladder in ((), (step("100%", 0, "warn"),), (replace(step(), under_pressure=True),)):
        others = replace(rule(*ladder), name="others", match=Match(namespaces=("idle",)))
        place = Town(under(ALL, others, replace(rule(step()), match=Match(namespaces=("ns",)))))
        assert place.live(0, [*pods, *idle], {each.uid: OK for each in idle}) == []
    place = Town(under(ALL, replace(rule(step()), match=Match(namespaces=("ns",)))))
    assert place.live(0, [*pods, *idle], {each.uid: OK for each in idle}) == []


def test_who_was_let_through_counts_for_a_hold_and_counts_once() -> None:
    """An owner that is gone because of our action counts against closing, as one owner of the base."""
    place = town()
    pods = [resident(f"p{number}", f"w{number}") for number in range(5)]
    place.see(0, pods)
    assert place.live(100, pods) == ["p0"]
    three = {"p3": OK, "p4": OK}
    place.see(101, pods[1:], three)
    assert place.ledger.brakes.opened is not None
    # One of four is over; with the one that was let through it is two of five.
    place.see(102, pods[1:], {"p2": OK, **three})
    assert place.ledger.brakes.opened is None


def test_a_policy_without_a_breaker_closes_it() -> None:
    """A breaker removed from the policy no longer withholds anything."""
    place = town()
    pods = [resident(f"p{number}", f"w{number}") for number in range(4)]
    place.see(0, pods)
    place.policy = under(Brakes())
    assert len(place.live(1, pods)) == 4
    assert place.ledger.brakes.opened is None


def test_steps_under_pressure_do_not_open_it() -> None:
    """Point 30: a short card is no sign of a wrong policy."""
    pressed = rule(replace(step(), under_pressure=True))
    place = Town(under(ALL, pressed))
    place.live(0, [resident(f"p{number}", f"w{number}") for number in range(4)], {"p0": 79 * Gi})
    assert place.ledger.brakes.opened is None


def test_the_second_deed_of_an_incident_does_not_open_it() -> None:
    """Point 30: offenders are due for the *first* kill of an incident; a later step of it does not count."""
    place = Town(under(ALL))
    pods = [resident(f"p{number}", f"w{number}") for number in range(4)]
    for number in range(4):
        assert place.live(number, pods, {each.uid: OK for each in pods[number + 1 :]})[-1] == f"p{number}"
    assert len(place.live(10, pods)) == 4


def test_the_windows_come_before_the_breaker() -> None:
    """Point 29: the order of brakes: a window is named even if the breaker would withhold the step too."""
    brakes = Brakes(owner=Window(count=1, per_s=1000), breaker=BREAKER)
    place = Town(under(brakes))
    place.live(0, [resident("x", "w0")])
    pods = [resident(f"p{number}", f"w{number}") for number in range(4)]
    found = held(place.see(1, pods))
    assert found["p0"] == ("owner", 999.0)
    assert found["p1"] == ("breaker", 100.0)


def test_a_breaker_on_trial_is_forgotten_when_enforcement_begins() -> None:
    """Point 38: a breaker that opened in observe mode is dropped; one that really opened stays open."""
    place = town()
    pods = [resident(f"p{number}", f"w{number}") for number in range(4)]
    place.see(0, pods)
    opened = place.ledger.brakes.opened
    assert opened is not None
    place.ledger = replace(
        place.ledger, brakes=replace(place.ledger.brakes, opened=replace(opened, observed=True))
    ).reset()
    assert place.ledger.brakes.opened is None
    place.see(1, pods)
    assert place.ledger.reset().brakes.opened is not None


def test_a_rule_that_only_observes_has_a_breaker_of_its_own() -> None:
    """Owners that are only observed neither open the breaker for enforcing rules nor count in it."""
    trial = replace(rule(step()), name="trial", mode="observe", match=Match(namespaces=("trial",)))
    place = Town(under(ALL, trial, rule(step())))
    crowd = [replace(resident(f"p{number}", f"w{number}"), namespace="trial") for number in range(4)]
    one = resident("a", "a")
    assert place.live(0, [*crowd, one]) == ["a"]
    assert (place.ledger.brakes.opened, place.ledger.trial.opened is not None) == (None, True)
    place.see(200, [one], {"a": OK})
    assert place.ledger.trial.opened is None


def test_the_hold_goes_on_while_it_is_stopped() -> None:
    """Stopping the daemon until the hold is over lets one owner through, not all of them, without a second hold."""
    place = town()
    pods = [resident(f"p{number}", f"w{number}") for number in range(4)]
    assert place.live(0, pods) == []
    place.ledger = place.ledger.reset()
    assert len(place.live(50, pods)) == 0
    place.ledger = place.ledger.reset()
    assert len(place.live(101, pods)) == 1
