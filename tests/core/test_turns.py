"""Turns: whom a slot goes to where a brake lets only some of the accounts that are due through."""

import time
from collections.abc import Callable

import pytest

from tests.core.many_pods import ManyPods, over_pod, under
from tests.worlds import Gi, at, rule, step
from watchdog.core.brakes import Begun, BrakeMemory
from watchdog.core.ledger import Ledger, PendingEviction
from watchdog.core.model import Pod
from watchdog.core.plan import Outcome, Result, settle
from watchdog.core.policy import Backoff, Brakes, Window

OFFENDER = over_pod("hog", "train")
OWNER = ("ns", "Deployment", "train")
SLOT_S = 40
ONE = Window(count=1, per_s=SLOT_S)
SIZES = {"hog": 3 * Gi}


def bait(second: int, workload: str = "train", namespace: str = "ns") -> Pod:
    """A pod that its owner replaces by one with another UID every ten seconds."""
    return over_pod(f"bait-{workload}-{second // 10}", workload, namespace)


def first_hit(brakes: Brakes, baits: Callable[[int], list[Pod]], until_s: int = 1000) -> int | None:
    """When the offender is acted on; it is 2Gi over, and each bait 8Gi."""
    many, gone = ManyPods(under(brakes)), set[str]()
    for second in range(0, until_s, 5):
        pods = [OFFENDER, *(each for each in baits(second) if each.uid not in gone)]
        hits = many.live(second, pods, {each.uid: 9 * Gi for each in pods} | SIZES)
        if "hog" in hits:
            return second
        gone |= {*hits}
    return None


@pytest.mark.parametrize(
    ("brakes", "workload", "namespace"),
    [
        (Brakes(owner=ONE), "train", "ns"),
        (Brakes(owner_backoff=Backoff(first_s=SLOT_S, factor=1, max_s=SLOT_S)), "train", "ns"),
        (Brakes(namespace=ONE), "bait", "ns"),
        (Brakes(node=ONE), "bait", "elsewhere"),
        (Brakes(owner=ONE, namespace=ONE, node=ONE), "train", "ns"),
    ],
)
def test_a_bait_that_is_replaced_takes_every_other_slot_at_most(brakes: Brakes, workload: str, namespace: str) -> None:
    """Point 25, law 11: a pod that is new each time, and over by more, shields an offender for one slot only."""
    assert first_hit(brakes, lambda _: []) == 0
    assert first_hit(brakes, lambda second: [bait(second, workload, namespace)]) == SLOT_S


def test_baits_of_two_namespaces_do_not_keep_each_others_turns() -> None:
    """Point 25: a turn at the node is for every account, even if its namespace's next turn is another's."""
    brakes = Brakes(namespace=ONE, node=Window(count=1, per_s=10))
    found = first_hit(
        brakes, lambda second: [bait(second, "a"), bait(second, "b", "elsewhere"), bait(second, "c", "elsewhere")]
    )
    assert found is not None
    assert found <= 2 * SLOT_S


def test_crash_loops_let_every_smaller_offender_have_its_turn() -> None:
    """Point 25: without malice, two Deployments that crash again and again must not shield the rest of the node."""
    many, hits = ManyPods(under(Brakes(node=Window(count=1, per_s=60)))), []
    small = [over_pod(f"small-{number}", f"small-{number}") for number in range(3)]
    for second in range(0, 400, 10):
        loops = [bait(second, "loop-a"), bait(second, "loop-b")]
        gone = many.live(second, [*loops, *small], {each.uid: 9 * Gi for each in loops})
        hits += [uid.split("-")[0] for uid in gone]
        small = [each for each in small if each.uid not in gone]
    assert hits == ["bait", "small", "bait", "small", "bait", "small", "bait"]


def test_one_offender_alone_is_acted_on_whenever_a_slot_is_free() -> None:
    """Point 25: turns matter only where somebody else waits for the same slot."""
    many = ManyPods(under(Brakes(owner=Window(count=2, per_s=100), node=Window(count=3, per_s=150))))
    hits = [second for second in range(0, 300, 10) if many.live(second, [OFFENDER])]
    assert hits == [0, 10, 100, 150, 200, 250]


def test_a_scope_with_room_for_all_has_no_turns() -> None:
    """Point 25: a node with room for everyone does not decide whose turn it is in a namespace without."""
    many = ManyPods(under(Brakes(namespace=Window(count=2, per_s=SLOT_S), node=Window(count=10, per_s=SLOT_S))))
    small, big = over_pod("small", "small"), over_pod("big", "big")
    assert many.live(0, [over_pod("first", "first")]) == ["first"]
    assert many.live(20, [over_pod("second", "second")]) == ["second"]  # so the next turn goes by bytes
    assert many.live(25, [small, over_pod("else", "else", "elsewhere")]) == ["else"]  # at the node by byte-seconds
    assert many.live(41, [small, big], {"big": 9 * Gi}) == ["big"]


def test_bytes_and_byte_seconds_within_one_cycle() -> None:
    """Point 25: of three slots in one cycle, the second goes to the account with the most byte-seconds withheld."""
    window = Window(count=3, per_s=100)
    many = ManyPods(under(Brakes(node=window)))
    for number in range(3):
        assert many.live(number, [over_pod(f"first-{number}", "first")])
    old = [over_pod("old", "old")]
    for second in range(10, 100, 5):
        assert many.live(second, old) == []
    new = [over_pod(f"new-{size}", f"new-{size}") for size in (3, 4, 5)]
    sizes = {f"new-{size}": size * Gi for size in (3, 4, 5)}
    assert many.live(103, [*new, *old], sizes) == ["new-5", "new-4", "old"]  # and not the third of the new ones


def test_the_second_turn_weighs_bytes_by_time() -> None:
    """Point 25: 1Gi over for 60 s comes after 8Gi over for 10 s, and before 8Gi over for 5 s."""
    for came_s, hit in ((50, "large"), (55, "small")):
        many = ManyPods(under(Brakes(node=Window(count=1, per_s=60))))
        assert many.live(0, [over_pod("first", "first")])
        pods = [over_pod("small", "small")]
        for second in range(5, 60, 5):
            pods += [over_pod("large", "large")] if second == came_s else []
            assert many.live(second, pods, {"large": 9 * Gi}) == []
        assert many.live(60, pods, {"large": 9 * Gi}) == [hit]


def test_byte_seconds_count_only_while_a_brake_withholds() -> None:
    """Point 25: neither the time before a step is due, nor a stale list, nor the time after an action counts."""
    many = ManyPods(under(Brakes(owner=Window(count=1, per_s=60)), rule(step("100%", 20)), interval_s=5.0))
    account = many.see(0, [OFFENDER]).entries[0].account

    def withheld(second: float) -> float:
        return many.ledger.accounts[account].withheld_byte_s(at(second)) / Gi

    for second in range(5, 20, 5):
        many.see(second, [OFFENDER])
    assert withheld(15) == 0.0
    assert many.live(20, [OFFENDER]) == ["hog"]
    for second in range(25, 60, 5):
        many.see(second, [OFFENDER])
    assert withheld(55) == 55 - 45  # due again 20 s after the first reading past its action
    many.see(60, [OFFENDER], stale=True)
    assert withheld(75) == 15.0
    for second in (65, 70, 75):
        many.see(second, [OFFENDER])
    assert many.live(80, [OFFENDER]) == ["hog"]
    assert withheld(80) == 0.0


def test_a_moment_below_costs_no_turn_and_recovery_does() -> None:
    """Point 25, laws 8 and 11: a dip does not set byte-seconds to zero, but they fall twice as fast as they grew."""
    many = ManyPods(under(Brakes(owner=Window(count=1, per_s=1000))))
    account = many.see(0, [OFFENDER]).entries[0].account
    assert many.live(0, [OFFENDER]) == ["hog"]
    found = []
    for second, used in ((10, 3), (20, 3), (30, 1), (32, 3), (40, 1), (45, 1), (70, 1), (80, 3), (90, 3)):
        many.see(second, [OFFENDER], {"hog": used * Gi})
        found.append(many.ledger.accounts[account].withheld_byte_s(at(second)) / Gi)
    assert found == [0, 20, 40, 32, 48, 28, 0, 0, 20]


def test_what_has_failed_has_no_second_turn_and_leaves_no_slot_empty() -> None:
    """Point 25: an account whose last attempt failed goes by its bytes alone; with nobody else it goes in any turn."""
    many, hits = ManyPods(under(Brakes(node=Window(count=1, per_s=100)), rule(step(do="evict")))), []
    pods = [over_pod("fails", "fails"), over_pod("a", "a"), over_pod("b", "b")]
    for second in range(0, 600, 5):
        for entry in many.see(second, pods, {"fails": 9 * Gi}).taken:
            hits.append(entry.account.uid)
            begun = PendingEviction(step=entry.definition.signature, tries=1, until_s=0.0)
            many.ledger = many.ledger.note_begun(entry.assessment, begun, at(second)).note_pending_evictions({})
            if entry.account.uid == "fails":
                many.ledger = many.ledger.note_failed(entry.account, entry.do, at(second))
            pods = [each for each in pods if each.uid in ("fails", *{"a", "b"} - {entry.account.uid})]
    assert hits == ["fails", "a", "fails", "b", "fails", "fails"]


@pytest.mark.parametrize("result", [Result.WITHDRAWN, Result.GONE, Result.FAILED])
def test_a_turn_in_which_nothing_begins_goes_to_the_next(result: Result) -> None:
    """Points 22 and 25: new baits whose use falls at each last look, or that end before it, do not keep a slot."""
    many, hits = ManyPods(under(Brakes(node=ONE))), []
    for second in range(0, 100, 10):
        pods = [OFFENDER, bait(second)]
        for entry in many.see(second, pods, {each.uid: 9 * Gi for each in pods} | SIZES).taken:
            hits.append(entry.account.uid)
            many.ledger = settle(many.ledger, Outcome(entry=entry, result=result, at=at(second)))
    assert hits[:2] == ["bait-train-0", "hog"]


@pytest.mark.parametrize(("actions", "hit"), [(0, "bait-train-20"), (1, "hog"), (2, "bait-train-20"), (3, "hog")])
def test_turns_follow_from_the_journal(actions: int, hit: str) -> None:
    """Point 25: whose turn a slot is follows from the actions that the journal has, so a restart repeats none."""
    memory = BrakeMemory.of([(OWNER, Begun(at(second).boottime_s)) for second in range(actions)])
    many = ManyPods(under(Brakes(owner=ONE)), Ledger(brakes=memory))
    if actions:
        assert many.live(20, [OFFENDER], SIZES) == []
    assert many.live(200, [OFFENDER, bait(200)], {bait(200).uid: 9 * Gi} | SIZES) == [hit]


def test_turns_do_not_depend_on_the_number_of_actions_remembered() -> None:
    """Point 25: neither forgetting old actions nor the bound of what is remembered makes one turn the rule."""
    memory, turns = BrakeMemory(), []
    for second in range(10_004):
        memory = memory.add_begun(OWNER, Begun(float(second)))
        turns.append(OWNER in memory.second_next)
    assert turns[-4:] == [True, False, True, False]
    later = memory.add_begun(("other", "Deployment", "web"), Begun(1e9))
    assert OWNER not in later.second_next


def test_five_hundred_due_accounts_are_planned_in_time() -> None:
    """Point 39: turns take no more than a fraction of the 250 ms that a cycle may take, however many are due."""
    brakes = Brakes(
        owner=Window(count=1, per_s=100), namespace=Window(count=20, per_s=100), node=Window(count=250, per_s=100)
    )
    braked, free = ManyPods(under(brakes)), ManyPods(under(Brakes()))
    pods = [over_pod(f"p{number}", f"w{number // 2}", f"ns{number % 20}") for number in range(500)]
    took_s = []
    for many in (free, braked):
        began_s = time.thread_time()
        many.see(0, pods)
        took_s.append(time.thread_time() - began_s)
    assert took_s[1] < took_s[0] + 0.25
