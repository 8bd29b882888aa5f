"""What ends an eviction that was not accepted, and what remains of it."""

from dataclasses import replace

import pytest

from tests.daemon.eviction_rig import EVICT_AT_ONCE, Answers, World, begun, blocked
from tests.worlds import Gi, at, container, pod, policy, rule, step
from watchdog.core.eviction import GIVE_UP_AFTER_S, MOST_TRIES, EvictionAnswer
from watchdog.core.model import Owner
from watchdog.core.plan import Result
from watchdog.core.policy import Protect

DELETED = (pod("a", container(declared="1Gi"), deletion_deadline_s=2e9),)
SPARING = policy(rule(EVICT_AT_ONCE), protect=Protect(namespaces=("ns",)))
OFF, MAINTENANCE = {"enforcing": False}, {"maintenance": True}


@pytest.mark.parametrize(
    ("change", "given", "result", "reason"),
    [
        ({"used": {5: Gi}}, {}, "gone", "its use was at or below the threshold again"),
        ({}, OFF, "interrupted", "enforcement was turned off before the eviction was accepted"),
        ({}, MAINTENANCE, "interrupted", "the GPUs came under maintenance before the eviction was accepted"),
        ({"policy": SPARING}, {}, "interrupted", "the pod is protected now: the policy protects namespace ns"),
        (
            {"policy": policy(rule(step(for_s=60.0)))},
            {},
            "interrupted",
            "the rule for the pod now has no step that evicts",
        ),
        ({"pods": ()}, {}, "gone", "the pod is gone"),
        ({"pods": (pod("b", container(declared="1Gi", of="b")),)}, {}, "gone", "the pod is gone"),
        ({"pods": DELETED}, {}, "gone", "the pod is being deleted"),
    ],
    ids=["use", "enforcement", "maintenance", "protected", "no such step", "gone", "another", "terminating"],
)
def test_what_ends_one_that_waits(change: dict[str, object], given: dict[str, bool], result: str, reason: str) -> None:
    """Law 5, points 27, 33 and 34: it is not tried again, whatever comes, and that is recorded with the reason."""
    world = blocked(World())
    for name, value in change.items():
        setattr(world, name, value)
    world.look(5, **given)
    assert (world.results(), world.reason()) == (["blocked", result], reason)
    assert world.record.lines[1:] == [("end", result), *([("released", "None")] if result == "interrupted" else [])]
    world.look(60, **given)
    assert len(world.tries) == 1


def test_a_try_that_is_not_permitted_any_more_is_called_back() -> None:
    """Point 33: between the GET of the pod and the eviction itself the thread sees that it is no longer wanted."""
    world = begun(World())
    assert world.tries[0].is_wanted()
    world.objection = "enforcement was withdrawn"
    world.wake(0.5)
    assert not world.tries[0].is_wanted()
    world.answer(EvictionAnswer.WITHDRAWN)
    assert world.results() == ["interrupted"]
    assert world.reason() == "enforcement was withdrawn"


DYING = pod("a", container(declared="1Gi"), deletion_deadline_s=at(9e6).wall_s, terminating_since=at(-601))


def test_the_eviction_of_a_pod_whose_deletion_takes_long_goes_on() -> None:
    """Point 28: it is there to end the deletion sooner, so that one does not end it; a sooner deadline does."""
    world = blocked(World(pods=(DYING,)), wait_s=5.0)
    (attempt,) = world.tries
    assert attempt.deadline_s == DYING.deletion_deadline_s
    assert attempt.why_spared(replace(DYING, terminating_since=None)) is None  # as the API gives it
    assert attempt.why_spared(replace(DYING, deletion_deadline_s=at(1).wall_s)) is not None
    world.look(6)
    assert (world.results(), len(world.tries)) == (["blocked"], 2)
    world.answer(EvictionAnswer.LATER)
    world.pods = (replace(DYING, deletion_deadline_s=at(-1).wall_s),)
    world.look(7)
    assert (world.results(), world.reason()) == (["blocked", "gone"], "the pod is being deleted")


def test_a_deletion_after_a_lost_answer_is_ours() -> None:
    """No answer came, then the pod is being deleted: the eviction has come about, and its memory is waited for."""
    world = begun(World())
    world.answer(EvictionAnswer.UNKNOWN, "no answer", 5.0)
    assert world.ended == []
    world.look(5)
    assert [attempt.is_unsure for attempt in world.tries] == [False, True]  # the next one knows of it
    world.answer(EvictionAnswer.UNKNOWN, "no answer", 5.0)
    world.pods = DELETED
    world.look(6)
    assert [outcome.result for outcome in world.began] == [Result.DONE]
    assert world.state.under_way is not None
    world.used = {}
    world.look(9)
    assert (world.results(), world.ended[0].release_s) == (["done"], 3.0)


def test_it_is_given_up_in_time() -> None:
    """Ten minutes, or this many tries: then it has failed, with the last reason, and the step backs off."""
    world = blocked(World())
    second = 0.0
    while not {"failed"} & set(world.results()):
        second += 30.0
        world.look(second)
        assert second <= GIVE_UP_AFTER_S
        world.answer(EvictionAnswer.BLOCKED, "the disruption budget b needs 2 healthy pods", 29.0)
    assert world.results() == ["blocked", "failed"]
    assert world.reason() == "given up, tried 21 times in 10m: the disruption budget b needs 2 healthy pods"
    assert world.pending_eviction is None


def test_so_many_tries_are_enough() -> None:
    """A server that asks for short pauses does not make it more."""
    world = blocked(World(), wait_s=1.0)
    for second in range(1, MOST_TRIES):
        world.look(second)
        world.answer(EvictionAnswer.LATER, "busy", 0.5)
    assert len(world.tries) == MOST_TRIES
    assert world.results() == ["blocked", "failed"]
    assert world.reason() == f"given up, tried {MOST_TRIES} times in 24s: busy"


def test_a_try_that_can_not_be_made_in_time_is_given_up() -> None:
    """Where no cycle lets it be tried, as on a blind node, it ends all the same."""
    world = blocked(World())
    world.used = {5: None}
    assert world.cycle.actions.next_wake_s == at(GIVE_UP_AFTER_S).boottime_s
    world.wake(GIVE_UP_AFTER_S)
    assert (world.results(), world.reason()) == (["blocked", "failed"], "given up: it could not be tried again in time")


def test_an_answer_that_never_comes_does_not_keep_the_loop_awake() -> None:
    """A moment to wake at that has passed, and that nothing changes, would be a loop without a pause."""
    world = begun(World())
    assert world.cycle.actions.next_wake_s == at(GIVE_UP_AFTER_S).boottime_s
    world.wake(GIVE_UP_AFTER_S + 1)
    assert world.cycle.actions.next_wake_s == float("inf")
    world.answer(EvictionAnswer.LATER, "too busy")
    assert world.results() == ["failed"]


def test_a_pause_beyond_the_bound_is_not_waited_for() -> None:
    """A Retry-After longer than what is left: failed now, not later."""
    world = begun(World())
    world.answer(EvictionAnswer.LATER, "come back later", GIVE_UP_AFTER_S + 1)
    assert world.results() == ["failed"]


@pytest.mark.parametrize(
    ("answer", "lines", "printed"),
    [
        (EvictionAnswer.BLOCKED, [("end", "interrupted"), ("released", "None")], ["blocked", "interrupted"]),
        (None, [("intend", "5"), ("end", "interrupted")], ["interrupted"]),
        (EvictionAnswer.ACCEPTED, [("intend", "5"), ("end", "done")], ["done"]),
    ],
    ids=["waits", "no answer yet", "accepted"],
)
def test_stopping_leaves_to_the_next_daemon_what_may_come_about(
    answer: EvictionAnswer | None, lines: list[tuple[str, ...]], printed: list[str]
) -> None:
    """Point 26: one that was refused is closed; the next daemon waits for the memory of any other."""
    world = begun(World())
    if answer is not None:
        world.answer(answer)
    world.cycle.actions.interrupt(at(1))
    world.ended += world.cycle.actions.take_ended()
    assert (world.record.lines[-2:], world.results()) == (lines, printed)
    assert not world.tries[0].is_wanted()


def test_a_card_that_has_room_again_ends_it() -> None:
    """Point 37: none once there is room again."""
    pressed = replace(EVICT_AT_ONCE, under_pressure=True)
    world = blocked(World(policy=policy(rule(pressed)), used={5: 78 * Gi}, free=Gi))
    world.free = 20 * Gi
    world.look(5)
    assert (world.results(), world.reason()) == (["blocked", "gone"], "its GPU was no longer short of memory")


DAEMON = Owner(kind="DaemonSet", name="d")


@pytest.mark.parametrize(
    ("fresh", "why"),
    [
        (pod("a"), None),
        (pod("a", owner=DAEMON), "its DaemonSet would recreate the pod"),
        (pod("a", static=True), "it is a static pod"),
        (pod("a", namespace="kube-system"), "it is in kube-system"),
        (pod("a", priority=2_000_000_000), "its priority is system-critical"),
        (pod("a", annotations={"spare": ""}), "it carries the annotation spare"),
        (pod("a", namespace="elsewhere"), "no step that evicts"),
    ],
)
def test_the_pod_as_the_api_has_it_is_checked_again(fresh: object, why: str | None) -> None:
    """The pod as the API has it at that very moment is held against the rule and every protection again."""
    spared = Protect(annotation="spare")
    here = rule(EVICT_AT_ONCE, match=replace(rule().match, namespaces=("ns", "kube-system")))
    world = begun(World(policy=policy(here, protect=spared)))
    reported = world.tries[0].why_spared(fresh)  # type: ignore[arg-type]
    assert reported is None if why is None else why in (reported or "")


def test_a_late_reply_to_something_over_is_dropped() -> None:
    """A reply whose eviction is not known any more changes nothing."""
    world = begun(World(api=Answers()))
    world.answer(EvictionAnswer.REFUSED, "403")
    world.answer(EvictionAnswer.ACCEPTED)
    assert world.results() == ["failed"]
    assert world.state.under_way is None
