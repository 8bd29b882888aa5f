"""Pods that have left the API server's list while processes of their containers run (point 28)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.worlds import (
    BOOT,
    MEMORY,
    T0,
    Gi,
    assessed,
    at,
    container,
    owner,
    planned,
    pod,
    policy,
    process,
    rule,
    snapshot,
    step,
    use,
)
from watchdog.core.assessment import Attribution, Verdict
from watchdog.core.attribute import attribute
from watchdog.core.brakes import Brake
from watchdog.core.gate import brake_by_state
from watchdog.core.keys import keys_of
from watchdog.core.left import MOST_LEFT, LeftPods, left_gaps
from watchdog.core.model import GapReason, Pod, PodKeys, PodList
from watchdog.core.policy import Protect
from watchdog.core.rules import MOST_TERMINATING_S, TERMINATING, protection

KEYS = PodKeys(annotations=frozenset({"vram"}), labels=frozenset({"tier"}), resources=frozenset({MEMORY}))
OFFENDER = pod("a", container(declared="1Gi"))
OTHER = pod("b", container(declared="1Gi", of="b"))
ENDED = replace(OFFENDER, containers=(container(declared="1Gi", running=False),))
NONE = Attribution()


def listed(*pods: Pod, gone: str = "", second: float = 0.0, by_file: bool = False) -> PodList:
    """A list at this second; `gone` are the UIDs of deleted pods, one letter each."""
    return PodList(pods=pods, synced=at(second), gone=frozenset(gone), by_file=by_file)


def left(pods: PodList) -> dict[str, Pod]:
    """The pods that have left, by UID."""
    return {each.uid: each for each in pods.pods if each.left_since is not None}


def after(first: PodList, *later: PodList, keys: PodKeys = KEYS) -> tuple[LeftPods, PodList]:
    """What is known after these lists, one per second, with what a policy reads of pods."""
    known = LeftPods()
    shown = known.with_left(first, keys, at(0))
    for second, each in enumerate(later, 1):
        shown = known.with_left(each, keys, at(second))
    return known, shown


# The lists -> whether the pod has left, and whether the API server is asked about it.
HISTORIES: dict[str, tuple[list[PodList], bool, bool]] = {
    "deleted": ([listed(OFFENDER, OTHER), listed(OTHER, gone="a")], True, False),
    "absent, then gone": ([listed(OFFENDER, OTHER), listed(OTHER), listed(OTHER, gone="a")], True, False),
    "absent": ([listed(OFFENDER, OTHER), listed(OTHER)], False, True),
    "absent from an empty list": ([listed(OFFENDER), listed()], False, True),
    "absent and back": ([listed(OFFENDER), listed(), listed(OFFENDER)], False, False),
    "gone and back": ([listed(OFFENDER), listed(gone="a"), listed(OFFENDER, gone="a")], False, False),
    "never seen": ([listed(OTHER), listed(OTHER, gone="a")], False, False),
    "its containers have ended": ([listed(ENDED), listed(gone="a")], False, False),
    "completed": ([listed(replace(OFFENDER, is_finished=True)), listed(gone="a")], False, False),
    "a file without it": ([listed(OFFENDER, by_file=True), listed(gone="a", by_file=True)], False, False),
    "a list that never came": ([listed(OFFENDER), PodList(gone=frozenset("a"))], False, False),
}


@pytest.mark.parametrize("history", HISTORIES)
def test_what_shows_that_a_pod_has_left(history: str) -> None:
    """Point 28: a deletion, or absence from a list and from a request for this pod; nothing else proves it."""
    lists, has_left, is_asked = HISTORIES[history]
    known, shown = after(*lists)
    asked = {each.uid for each in known.unproven}
    assert (set(left(shown)), asked) == ({"a"} if has_left else set(), {"a"} if is_asked else set())
    assert len({each.uid for each in shown.pods}) == len(shown.pods)


def test_a_pod_that_has_used_memory_leaves_whatever_its_status_says() -> None:
    """A status that calls its containers ended proves nothing against the driver."""
    known = LeftPods()
    known.with_left(listed(ENDED), KEYS, at(0))
    known.on_reading(attribute(snapshot([use(5, Gi)]), [ENDED]), lambda _: True, at(0))
    assert set(left(known.with_left(listed(gone="a"), KEYS, at(1)))) == {"a"}


# The pod as it was listed -> how long it is left alone after it has left.
DEADLINES: dict[str, tuple[Pod, float]] = {
    "the grace of its spec": (replace(OFFENDER, grace_s=40.0), 40.0),
    "a year": (replace(OFFENDER, grace_s=3e7), MOST_TERMINATING_S),
    "terminating before": (replace(OFFENDER, grace_s=3e7, deletion_deadline_s=T0 + 50.0), 49.0),
    "terminating for a year": (replace(OFFENDER, deletion_deadline_s=T0 + 3e7), MOST_TERMINATING_S - 1),
}


@pytest.mark.parametrize("case", DEADLINES)
def test_how_long_it_is_left_alone(case: str) -> None:
    """Point 28: until its deletion deadline, ten minutes at most from when it was first seen terminating or gone."""
    who, until_s = DEADLINES[case]
    _, shown = after(listed(who), listed(gone="a"))
    found = left(shown)["a"]
    assert protection(found, Protect(), None, at(1 + until_s)) == TERMINATING
    assert protection(found, Protect(), None, at(1 + until_s + 0.1)) is None


def test_the_clock_goes_on_while_a_list_lacks_it() -> None:
    """One clock: neither a partial list nor the deletion starts it again."""
    dies = replace(OFFENDER, deletion_deadline_s=T0 + 3e7)
    _, shown = after(listed(dies), listed(), listed(), listed(gone="a"))
    assert left(shown)["a"].terminating_since == at(0)
    _, shown = after(listed(dies), listed(), listed(dies))
    assert shown.pods[0].terminating_since == at(0)


def test_what_was_known_of_it_applies() -> None:
    """It is over by what it declared, its container is the victim, and only its processes are meant."""
    under = policy(rule(step()))
    first, second = pod("a", container(declared="1Gi"), grace_s=1.0), replace(OTHER, namespace="ns", name="pod-a")
    _, shown = after(listed(first), listed(second, gone="a"), keys=keys_of(under))
    seen = snapshot([use(5, 2 * Gi), use(6, Gi // 2)], [process(5), process(6, "b/main")], second=10)
    (entry,) = planned(seen, shown.pods, under).taken
    assert (entry.account.uid, entry.victim, [key.pid for key in entry.targets]) == ("a", "main", [5])
    one, other = assessed(seen, shown.pods, under)
    assert (one.verdict, one.declared, other.verdict) == (Verdict.OVER, Gi, Verdict.WITHIN)
    (gap,) = left_gaps((one, other))
    assert (gap.reason, gap.what) == (GapReason.LEFT, "pod ns/pod-a")


def test_without_processes_it_counts_for_nothing() -> None:
    """What it declared is free again: it makes no account, and no gap."""
    _, shown = after(listed(OFFENDER), listed(gone="a"))
    assert assessed(snapshot(), shown.pods, policy(rule(step()))) == ()


def test_an_eviction_of_it_is_not_withheld() -> None:
    """Point 28: it is attempted, and reported `gone`; of a pod whose deletion hangs it is withheld."""
    hangs = replace(OFFENDER, deletion_deadline_s=at(-1).wall_s)
    under, seen = policy(rule(step(do="evict"))), snapshot([use(5, 2 * Gi)])
    for who, brake in ((hangs, Brake.PROTECTED), (replace(hangs, left_since=at(-1)), None)):
        (entry,) = planned(seen, [who], under).entries
        assert brake_by_state(entry, at(0)) is brake


def test_it_is_known_as_long_as_its_processes_live() -> None:
    """It is searched for at once and then every ten seconds, while the driver lists none; then it is forgotten."""
    known, shown = after(listed(OFFENDER), listed(gone="a"))
    searched: list[str] = []

    def search(lives: bool) -> Callable[[Pod], bool]:
        def found(each: Pod) -> bool:
            searched.append(each.uid)
            return lives

        return found

    known.on_reading(attribute(snapshot([use(5, Gi)]), shown.pods), search(False), at(2))
    assert (searched, set(left(known.with_left(listed(), KEYS, at(2))))) == ([], {"a"})
    for second in (3, 4, 12):
        known.on_reading(NONE, search(True), at(second))
    assert (searched, set(left(known.with_left(listed(), KEYS, at(12))))) == (["a"], {"a"})
    known.on_reading(NONE, search(False), at(13))
    assert (searched, set(left(known.with_left(listed(), KEYS, at(13))))) == (["a", "a"], set())


def test_one_search_a_cycle() -> None:
    """Point 39: a search reads the cgroup of every process, so a burst of deletions is spread over cycles."""
    known, _ = after(listed(OFFENDER, OTHER), listed(gone="ab"))
    searched: list[Pod] = []

    def search(each: Pod) -> bool:
        searched.append(each)
        return True

    for second in (2, 3, 4):
        known.on_reading(NONE, search, at(second))
    assert [each.uid for each in searched] == ["a", "b"]


def test_no_more_is_kept_than_what_is_read() -> None:
    """Point 39: identity, container IDs, and the keys of the policy; the rest of the object goes."""
    texts = {"vram": "1", "tier": "a", "other": "x" * 1000}
    fat = pod("a", container(declared="1Gi", resources={"x/y": "1"}), labels=texts, annotations=texts, owner=owner())
    _, shown = after(listed(fat), listed(gone="a"))
    kept = left(shown)["a"]
    assert (kept.labels, kept.annotations) == ({"tier": "a"}, {"vram": "1"})
    assert kept.containers[0] == container(declared="1Gi")
    assert (kept.owner, kept.name, kept.namespace, kept.keys) == (owner(), fat.name, fat.namespace, KEYS)


def test_those_that_use_the_most_are_kept() -> None:
    """Point 39: memory is bounded; decoys without memory don't push out an offender, and a gap names the loss."""
    others = [pod(f"d{number}", container(of=f"d{number}")) for number in range(MOST_LEFT + 5)]
    known = LeftPods()
    known.with_left(listed(OFFENDER, *others), KEYS, at(0))
    known.on_reading(attribute(snapshot([use(5, Gi)]), [OFFENDER]), lambda _: True, at(0))
    everyone = frozenset({"a", *(each.uid for each in others)})
    shown = known.with_left(PodList(synced=at(1), gone=everyone), KEYS, at(1))
    assert (len(left(shown)), "a" in left(shown), [gap.reason for gap in shown.gaps]) == (
        MOST_LEFT,
        True,
        [GapReason.LEFT],
    )


def test_an_earlier_daemon_hands_on_what_has_left() -> None:
    """What is written after each change is all that the next one needs; after a reboot no container is left."""
    written: list[tuple[Pod, ...]] = []
    known = LeftPods(written.append)
    known.with_left(listed(replace(OFFENDER, deletion_deadline_s=T0 + 3e7)), KEYS, at(0))
    known.with_left(listed(gone="a"), KEYS, at(1))
    (kept,) = written[-1]
    assert (kept.terminating_since, kept.left_since) == (at(0), at(1))
    following = LeftPods(written.append)
    following.restore([kept], at(5))
    assert left(following.with_left(listed(OTHER), KEYS, at(6)))["a"] == kept
    following.on_reading(NONE, lambda _: False, at(7))
    assert written[-1] == ()
    rebooted = LeftPods()
    rebooted.restore([kept], replace(at(5), boot_id=f"not {BOOT}"))
    assert left(rebooted.with_left(listed(), KEYS, at(6))) == {}


def test_a_pod_in_the_list_is_no_longer_restored() -> None:
    """An API server restored from a backup may have it again: then the list counts."""
    known = LeftPods()
    known.restore([replace(OFFENDER, left_since=at(0), is_finished=True)], at(1))
    assert left(known.with_left(listed(OFFENDER), KEYS, at(2))) == {}


def test_it_keeps_its_protection() -> None:
    """What protected it, other than its deletion, goes on to do so."""
    spared, under = replace(OFFENDER, grace_s=1.0, namespace="kube-system"), policy(rule(step()))
    _, shown = after(listed(spared), listed(gone="a"), keys=keys_of(under))
    (entry,) = assessed(snapshot([use(5, 2 * Gi)], second=100), shown.pods, under)
    assert (entry.verdict, entry.protected) == (Verdict.OVER, "it is in kube-system")
