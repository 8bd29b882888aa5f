"""Steps under pressure: they count while a card is short, and each card gets one victim at a time."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.core.many_pods import ManyPods, held, over_pod, under
from tests.worlds import (
    VERIFF,
    Gi,
    assessed,
    at,
    container,
    gpu,
    planned,
    pod,
    policy,
    process,
    rule,
    snapshot,
    step,
    use,
)
from watchdog.core.assess import rank, short_cards
from watchdog.core.gate import urgency
from watchdog.core.ledger import Ledger, UnderWay
from watchdog.core.model import Gpu, Pod
from watchdog.core.policy import Brakes, LimitAnnotation, Match, Scope, Step
from watchdog.core.victims import card_of


def pressed(above: str = "100%", for_s: float = 0.0, scope: Scope = "container") -> Step:
    """A step that kills under pressure."""
    return step(above, for_s, "kill", scope, under_pressure=True)


def card(number: int = 0, used: int | None = 79 * Gi, total: int | None = 80 * Gi) -> Gpu:
    """A card of 80Gi with this much in use."""
    return replace(gpu(number), used=used, total=total)


def many(*steps: Step, gpus: tuple[Gpu, ...] = (card(),)) -> ManyPods:
    """Many pods under a ladder with these steps."""
    return ManyPods(under(Brakes(), rule(*(steps or (pressed(),)))), gpus=gpus)


@pytest.mark.parametrize(
    ("used", "total", "short"),
    [
        (76 * Gi, 80 * Gi, False),
        (76 * Gi + 1, 80 * Gi, True),
        (80 * Gi, 80 * Gi, True),
        (0, 80 * Gi, False),
        (None, 80 * Gi, False),
        (79 * Gi, None, False),  # GB10 reports no memory at all
    ],
)
def test_a_card_is_short_when_less_than_the_share_is_free(used: int | None, total: int | None, short: bool) -> None:
    """Point 37: short is total minus used strictly below `free_below`; unknown is never short."""
    assert bool(short_cards([card(used=used, total=total)], Fraction(5, 100))) is short


@pytest.mark.parametrize(
    ("room", "unknown", "due_in_s"),
    [([], [], 0), ([2], [], 3), ([2], [2], 3), ([], [2], 1)],
    ids=["short", "room", "room, and use unknown", "short, and use unknown"],
)
def test_the_step_counts_only_while_the_card_is_short(room: list[int], unknown: list[int], due_in_s: float) -> None:
    """Points 10 and 37: room ends the stretch, whatever is used; a reading with unknown use does not count."""
    under_pressure, ledger = policy(rule(pressed(for_s=3))), Ledger()
    for second in range(4):
        cards = [card(used=10 * Gi) if second in room else card()]
        seen = snapshot([use(5, None if second in unknown else 2 * Gi)], gpus=cards, second=second)
        plan = planned(seen, [pod("a", container(declared="1Gi"))], under_pressure, ledger)
        ledger = plan.ledger
    assert [entry.due_in_s for entry in plan.entries] == [due_in_s]


@pytest.mark.parametrize("other", [step("100%", 0, "warn"), step("100%", 60)], ids=["warning", "not due yet"])
def test_other_steps_do_not_change_which_pod_gives_way(other: Step) -> None:
    """Point 37: of the other steps only a kill that is due, and not under pressure, comes before the rank."""
    place = many(other, pressed("110%"))
    plan = place.see(0, [over_pod("much", priority=1000), over_pod("little")], {"much": 5 * Gi, "little": 2 * Gi})
    assert [entry.account.uid for entry in plan.taken if entry.do.enforces] == ["little"]


@pytest.mark.parametrize(("is_short", "steps"), [(True, [1]), (False, [])])
def test_it_compares_with_the_request_and_the_others_with_the_limit(*, is_short: bool, steps: list[int]) -> None:
    """Point 8: within a limit above its request a pod is hit only when its card is short."""
    cards = [card() if is_short else card(used=10 * Gi)]
    burst = pod("a", container(declared="1Gi"), annotations={"limit": "4Gi"})
    under_policy = policy(
        rule(step(), pressed()), declarations=(replace(VERIFF, limits=(LimitAnnotation(key="limit"),)),)
    )
    plan = planned(snapshot([use(5, 3 * Gi)], gpus=cards), [burst], under_policy)
    assert [entry.step_index for entry in plan.entries] == steps


def test_one_victim_per_card_and_the_next_after_its_memory_is_free() -> None:
    """Point 37: one victim per card; the next only after the release, and none once there is room."""
    place = many()
    pods = [over_pod("a", "a"), over_pod("b", "b")]
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


def test_what_is_only_observed_keeps_no_card_for_itself() -> None:
    """Point 38: a pod under a rule on trial frees no memory, so that it never shields the others on its card."""
    trial = rule(pressed(), name="trial", mode="observe", match=Match(namespaces=("trial",)))
    place = ManyPods(under(Brakes(), trial, rule(pressed())), gpus=(card(),))
    pods = [over_pod("a", "a", "trial"), over_pod("b", "b")]
    used = {"a": 5 * Gi, "b": 3 * Gi}
    first = place.see(0, pods, used).taken
    assert [each.account.uid for each in first] == ["a", "b"]
    place.ledger = place.ledger.note_observed(first[0].assessment, at(0))
    assert [each.account.uid for each in place.see(86400, pods, used).taken] == ["b"]
    # A rule on trial waits for an action that is real, as it would if it enforced.
    (real,) = place.see(90000, pods[1:], used).taken
    under_way = UnderWay(step=real.definition.signature, victim=real.victim, cards=real.cards)
    place.ledger = place.ledger.note_begun(real.assessment, under_way, at(90000))
    other = [*pods[1:], over_pod("c", "c", "trial")]
    assert held(place.see(90001, other, used | {"c": 4 * Gi}))["c"] == ("pending", None)


def test_each_short_card_has_its_own_victim() -> None:
    """Point 37: cards do not wait for each other."""
    place = many(gpus=(card(), card(1)))
    plan = place.see(0, [over_pod("a", "a"), over_pod("b", "b")], on={"b": 1})
    assert sorted((entry.account.uid, entry.gpu) for entry in plan.taken) == [("a", "GPU-0"), ("b", "GPU-1")]


@pytest.mark.parametrize(
    ("steps", "used", "taken"),
    [
        # The step under pressure of a is the last that is due; b waits for it.
        ((step("400%"), pressed()), {"a": 5 * Gi, "b": 2 * Gi}, [("a", 1)]),
        # b's own step is taken, since its one under pressure waits for a's.
        ((step("150%"), pressed("160%")), {"a": 5 * Gi, "b": 4 * Gi}, [("a", 1), ("b", 0)]),
    ],
)
def test_any_action_on_the_card_is_waited_for_by_steps_under_pressure_alone(
    steps: tuple[Step, ...], used: dict[str, int], taken: list[tuple[str, int]]
) -> None:
    """The memory that it frees may be enough; a step under pressure that is held back holds back no other."""
    plan = many(*steps).see(0, [over_pod("a", "a"), over_pod("b", "b")], used)
    assert sorted((entry.account.uid, entry.step_index) for entry in plan.taken) == taken
    assert held(plan) == {"b": ("pending", 40.0)}


def _ranked(*pods: tuple[Pod, int]) -> list[str]:
    uses = [use(number, used) for number, (_, used) in enumerate(pods, 1)]
    processes = [process(number, f"{each.uid}/main") for number, (each, _) in enumerate(pods, 1)]
    found = assessed(snapshot(uses, processes, gpus=[card()]), [each for each, _ in pods], policy(rule(pressed())))
    return [each.account.uid for each in sorted(found, key=lambda each: rank(each, "GPU-0"))]


def test_the_rank_is_over_the_request_then_priority_then_excess() -> None:
    """Point 37: over its declaration first, then lower priority, then larger excess on that card."""
    important = replace(over_pod("important"), priority=1000)
    assert _ranked(
        (over_pod("within"), Gi // 2), (important, 9 * Gi), (over_pod("little"), 2 * Gi), (over_pod("much"), 3 * Gi)
    ) == ["much", "little", "important", "within"]
    assert _ranked((over_pod("within"), Gi), (important, Gi + 1)) == ["important", "within"]


def test_the_excess_is_that_on_the_card() -> None:
    """Point 37: what a pod uses elsewhere frees no room on this card."""
    elsewhere = over_pod("elsewhere")
    uses = [use(1, 2 * Gi), use(1, 20 * Gi, 1), use(2, 5 * Gi)]
    processes = [process(1, "elsewhere/main"), process(2, "here/main")]
    seen = snapshot(uses, processes, gpus=[card(), card(1, used=0)])
    found = assessed(seen, [elsewhere, over_pod("here")], policy(rule(pressed())))
    assert min(found, key=lambda each: rank(each, "GPU-0")).account.uid == "here"
    assert min(found, key=urgency).account.uid == "elsewhere"
    assert {card_of(each) for each in found} == {"GPU-0"}


def test_the_victim_is_a_container_on_the_short_card_and_the_process_too() -> None:
    """A kill that frees memory of another card would not help."""
    two = pod("a", container("big", "1Gi"), container("small", "1Gi"))
    uses = [use(1, 30 * Gi, 1), use(2, 4 * Gi, 1), use(2, Gi), use(3, 3 * Gi)]
    processes = [process(1, "a/big"), process(2, "a/small"), process(3, "a/small")]
    seen = snapshot(uses, processes, gpus=[card(), card(1, used=0)])
    (kill,) = planned(seen, [two], policy(rule(pressed(scope="process")))).taken
    assert (kill.victim, [key.pid for key in kill.targets], kill.gpu) == ("small", [3], "GPU-0")


@pytest.mark.parametrize("steps", [(pressed(),), (step("400%"), pressed())])
def test_observe_plans_one_victim_per_short_card_and_incident(steps: tuple[Step, ...]) -> None:
    """Points 37 and 38: enforcement would choose one victim; it and the others wait while nothing is freed."""
    place, pods = many(*steps), [over_pod(uid, uid) for uid in "abc"]
    observed: list[str] = []
    for second in range(5):
        for entry in place.see(second, pods).taken:
            observed.append(entry.account.uid)
            place.ledger = place.ledger.note_observed(entry.assessment, at(second))
    assert observed == ["a"]
    assert {uid: brake for uid, (brake, _) in held(place.see(5, pods)).items()} == {"b": "pending", "c": "pending"}


def test_a_stale_list_holds_it() -> None:
    """Point 27: no enforcement on a pod list that is too old, not even under pressure."""
    plan = many().see(0, [over_pod("a")], stale=True)
    assert [(entry.taken, entry.gpu) for entry in plan.entries] == [(False, "GPU-0")]
