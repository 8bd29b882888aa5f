"""Steps under pressure: they count while a card is short, and each card gets one victim at a time."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.core.town import Town, held, resident, under
from tests.worlds import (
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
from watchdog.core.assess import card_of, rank, short_cards
from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.decide import decide
from watchdog.core.gate import urgency
from watchdog.core.ledger import Ledger, UnderWay
from watchdog.core.model import Gpu, Pod
from watchdog.core.plan import PlanEntry
from watchdog.core.policy import Brakes, Policy, Scope, Step


def pressed(above: str = "100%", for_s: float = 0.0, scope: Scope = "container") -> Step:
    """A step that kills under pressure."""
    return step(above, for_s, "kill", scope, under_pressure=True)


def card(number: int = 0, used: int | None = 79 * Gi, total: int | None = 80 * Gi) -> Gpu:
    """A card of 80Gi with this much in use."""
    return replace(gpu(number), used=used, total=total)


def town(*steps: Step, gpus: tuple[Gpu, ...] = (card(),)) -> Town:
    """A town under a ladder with these steps."""
    return Town(under(Brakes(), rule(*(steps or (pressed(),)))), gpus=gpus)


@pytest.mark.parametrize(
    ("used", "short"), [(76 * Gi, False), (76 * Gi + 1, True), (80 * Gi, True), (0, False), (None, False)]
)
def test_a_card_is_short_when_less_than_the_share_is_free(used: int | None, short: bool) -> None:
    """Point 37: short is total minus used strictly below `free_below`; unknown is never short."""
    assert bool(short_cards([card(used=used)], Fraction(5, 100))) is short


def test_an_unknown_total_is_never_short() -> None:
    """Point 37: a card of unknown size is never short (GB10 reports no memory at all)."""
    assert short_cards([card(total=None)], Fraction(5, 100)) == frozenset()


def test_the_step_counts_only_while_the_card_is_short() -> None:
    """Point 37: `for` runs only while the card is short; room resets it."""
    place = town(pressed(for_s=3))
    pods = [resident("a")]
    full, room = (card(),), (card(used=10 * Gi),)
    hits = []
    for second, cards in enumerate([full, full, room, full, full, full, full]):
        place.gpus = cards
        hits += [second] * len(place.see(second, pods).taken)
    assert hits == [6]


@pytest.mark.parametrize(("has_room", "due_in_s"), [(True, 3), (False, 1)], ids=["room", "short"])
def test_room_ends_the_stretch_though_not_all_use_is_known(*, has_room: bool, due_in_s: float) -> None:
    """Points 10 and 37: with room on the card it does not matter what is used; while it is short that is unknown."""
    under_pressure, ledger = policy(rule(pressed(for_s=3))), Ledger()
    for second, used in enumerate([2 * Gi, 2 * Gi, None, 2 * Gi]):
        cards = [card(used=10 * Gi) if second == 2 and has_room else card()]
        seen = snapshot([use(5, used)], gpus=cards, second=second)
        plan = planned(seen, [pod("a", container(declared="1Gi"))], under_pressure, ledger)
        ledger = plan.ledger
    assert [entry.due_in_s for entry in plan.entries] == [due_in_s]


@pytest.mark.parametrize("other", [step("100%", 0, "warn"), step("100%", 60)], ids=["warning", "not due yet"])
def test_a_step_besides_changes_nothing_of_who_gives_way(other: Step) -> None:
    """Point 37: of the other steps only a kill that is due, and not under pressure, comes before the rank."""
    place = town(other, pressed("110%"))
    plan = place.see(0, [resident("much", priority=1000), resident("little")], {"much": 5 * Gi, "little": 2 * Gi})
    assert [entry.account.uid for entry in plan.taken if entry.do.enforces] == ["little"]


def test_it_compares_with_the_request_and_the_others_with_the_limit() -> None:
    """Point 8: within a limit above its request a pod is hit only when its card is short."""
    seen = snapshot([use(5, 3 * Gi)], gpus=[card()])
    burst = policy(rule(step("100%"), pressed()))
    (found,) = assessed(seen, [pod("a", container(declared="1Gi"))], burst)
    within = replace(found, declared=4 * Gi, allowed=4 * Gi, verdict=Verdict.WITHIN)
    allowed = replace(within, requested=Gi, allowed_by_request=Gi)
    assert [entry.step_index for entry in _plan(allowed, burst)] == [1]
    roomy = replace(allowed, short=frozenset())
    assert _plan(roomy, burst) == []


def _plan(assessment: Assessment, under_policy: Policy) -> list[PlanEntry]:
    return list(decide([assessment], Ledger(), at(0), inputs(under_policy)).entries)


def test_one_victim_a_card_and_the_next_after_its_memory_is_free() -> None:
    """Point 37: one victim per card; the next only after the release, and none once there is room."""
    place = town()
    pods = [resident("a", "a"), resident("b", "b")]
    plan = place.see(0, pods, {"a": 5 * Gi, "b": 3 * Gi})
    (kill,) = plan.taken
    assert kill.account.uid == "a"
    assert held(plan) == {"b": ("pending", 40.0)}  # grace and release_timeout, at most
    under_way = UnderWay(step=kill.definition.signature, victim=kill.victim, cards=kill.cards)
    place.ledger = place.ledger.note_begun(kill.assessment, under_way, at(0))
    assert held(place.see(1, pods, {"a": 5 * Gi, "b": 3 * Gi}))["b"] == ("pending", None)
    place.ledger = place.ledger.note_ended(kill.account)
    assert [entry.account.uid for entry in place.see(2, pods[1:], {"b": 3 * Gi}).taken] == ["b"]
    place.gpus = (card(used=10 * Gi),)
    assert place.see(3, pods[1:], {"b": 3 * Gi}).entries == ()


def test_each_short_card_has_its_own_victim() -> None:
    """Point 37: cards do not wait for each other."""
    place = town(gpus=(card(), card(1)))
    plan = place.see(0, [resident("a", "a"), resident("b", "b")], on={"b": 1})
    assert sorted((entry.account.uid, entry.gpu) for entry in plan.taken) == [("a", "GPU-0"), ("b", "GPU-1")]


def test_a_deed_of_another_step_on_the_card_is_waited_for() -> None:
    """Any action that frees memory on the card may be enough, so there is no second victim meanwhile."""
    place = Town(under(Brakes(), rule(step("400%"), pressed())), gpus=(card(),))
    plan = place.see(0, [resident("a", "a"), resident("b", "b")], {"a": 5 * Gi, "b": 2 * Gi})
    # a's own step under pressure is the last that is due; b waits for it
    assert [entry.account.uid for entry in plan.taken] == ["a"]
    assert held(plan) == {"b": ("pending", 40.0)}


def test_a_step_under_pressure_that_is_held_back_holds_back_no_other() -> None:
    """The ladder's own step is taken if the one under pressure has to wait for its card."""
    place = Town(under(Brakes(), rule(step("150%"), pressed("160%"))), gpus=(card(),))
    plan = place.see(0, [resident("a", "a"), resident("b", "b")], {"a": 5 * Gi, "b": 4 * Gi})
    assert sorted((entry.account.uid, entry.step_index) for entry in plan.taken) == [("a", 1), ("b", 0)]


def _ranked(*pods: tuple[Pod, int]) -> list[str]:
    uses = [use(number, used) for number, (_, used) in enumerate(pods, 1)]
    processes = [process(number, f"{each.uid}/main") for number, (each, _) in enumerate(pods, 1)]
    found = assessed(snapshot(uses, processes, gpus=[card()]), [each for each, _ in pods], policy(rule(pressed())))
    return [each.account.uid for each in sorted(found, key=lambda each: rank(each, "GPU-0"))]


def test_the_rank_is_over_the_request_then_priority_then_excess() -> None:
    """Point 37: over its declaration first, then lower priority, then larger excess on that card."""
    important = replace(resident("important"), priority=1000)
    assert _ranked(
        (resident("within"), Gi // 2), (important, 9 * Gi), (resident("little"), 2 * Gi), (resident("much"), 3 * Gi)
    ) == ["much", "little", "important", "within"]
    assert _ranked((resident("within"), Gi), (important, Gi + 1)) == ["important", "within"]


def test_the_excess_is_that_on_the_card() -> None:
    """Point 37: what a pod uses elsewhere frees no room on this card."""
    elsewhere = resident("elsewhere")
    uses = [use(1, 2 * Gi), use(1, 20 * Gi, 1), use(2, 5 * Gi)]
    processes = [process(1, "elsewhere/main"), process(2, "here/main")]
    seen = snapshot(uses, processes, gpus=[card(), card(1, used=0)])
    found = assessed(seen, [elsewhere, resident("here")], policy(rule(pressed())))
    assert min(found, key=lambda each: rank(each, "GPU-0")).account.uid == "here"
    assert min(found, key=urgency).account.uid == "elsewhere"
    assert {card_of(each) for each in found} == {"GPU-0"}


def test_the_victim_is_a_container_on_the_short_card_and_the_process_too() -> None:
    """A kill that frees another card would be in vain."""
    two = pod("a", container("big", "1Gi"), container("small", "1Gi"))
    uses = [use(1, 30 * Gi, 1), use(2, 4 * Gi, 1), use(2, Gi), use(3, 3 * Gi)]
    processes = [process(1, "a/big"), process(2, "a/small"), process(3, "a/small")]
    seen = snapshot(uses, processes, gpus=[card(), card(1, used=0)])
    (kill,) = planned(seen, [two], policy(rule(pressed(scope="process")))).taken
    assert (kill.victim, [key.pid for key in kill.targets], kill.gpu) == ("small", [3], "GPU-0")


def test_a_lasting_shortage_is_one_incident() -> None:
    """Point 38: observe mode plans one action per incident, even if no other step is above its threshold."""
    place = town(step("400%"), pressed())
    pods = [resident("a", "a")]
    (planned_,) = place.see(0, pods).taken
    place.ledger = place.ledger.note_observed(planned_.assessment, at(0))
    assert [place.see(second, pods).taken for second in range(1, 4)] == [(), (), ()]


def test_observe_plans_one_victim_a_short_card() -> None:
    """Points 37 and 38: enforcement would choose one victim; the others wait while nothing is freed."""
    place = town()
    pods = [resident(uid, uid) for uid in "abc"]
    planned_: list[str] = []
    for second in range(5):
        for entry in place.see(second, pods).taken:
            planned_.append(entry.account.uid)
            place.ledger = place.ledger.note_observed(entry.assessment, at(second))
    assert planned_ == ["a"]
    assert {uid: brake for uid, (brake, _) in held(place.see(5, pods)).items()} == {"b": "pending", "c": "pending"}


def test_a_stale_list_holds_it() -> None:
    """Point 27: no enforcement on a pod list that is too old, not even under pressure."""
    plan = town().see(0, [resident("a")], stale=True)
    assert [(entry.taken, entry.gpu) for entry in plan.entries] == [(False, "GPU-0")]
