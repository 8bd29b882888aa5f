"""Laws about pods that have left, over any history of lists, deletions and readings."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.worlds import Gi, at, container, pod, process, snapshot, use
from watchdog.core.attribute import attribute
from watchdog.core.left import LeftPods
from watchdog.core.model import Now, Pod, PodKeys, PodList
from watchdog.core.policy import Protect
from watchdog.core.rules import MOST_TERMINATING_S, protection

KEYS = PodKeys()
UIDS = ("a", "b")
YEAR_S = 365 * 86400.0
# What happens to one of two pods before the next reading: the API server deletes it, marks it for deletion, or a list
# lacks it or has it again; all its processes end.
WHAT = ("delete", "terminate", "lose", "find", "end", "nothing")
HISTORIES = st.lists(
    st.tuples(st.sampled_from(WHAT), st.sampled_from(UIDS), st.sampled_from([1, 5, 200])), min_size=1, max_size=25
)


@dataclass
class World:
    """Two pods as they truly are, and what is known of them."""

    known: LeftPods = field(default_factory=LeftPods)
    pods: dict[str, Pod] = field(default_factory=lambda: {each: _pod(each) for each in UIDS})
    lost: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    alive: set[str] = field(default_factory=lambda: set(UIDS))
    second: int = 0

    def happen(self, what: str, uid: str) -> None:
        if what == "delete" and uid in self.pods:
            del self.pods[uid]
            self.gone.add(uid)
        elif what == "terminate" and uid in self.pods and self.pods[uid].deletion_deadline_s is None:
            self.pods[uid] = _pod(uid, deletion_deadline_s=at(self.second + YEAR_S).wall_s)
        elif what == "lose":
            self.lost.add(uid)
        elif what == "find":
            self.lost.discard(uid)
        elif what == "end":
            self.alive.discard(uid)

    @property
    def now(self) -> Now:
        return at(self.second)

    def read(self) -> dict[str, Pod]:
        """One cycle: the pods that it goes by, by UID."""
        listed = tuple(each for uid, each in self.pods.items() if uid not in self.lost)
        shown = self.known.with_left(PodList(pods=listed, synced=self.now, gone=frozenset(self.gone)), KEYS, self.now)
        uses = [use(pid, Gi) for pid, uid in enumerate(UIDS, 5) if uid in self.alive]
        processes = [process(pid, f"{uid}/main") for pid, uid in enumerate(UIDS, 5)]
        self.known.on_reading(
            attribute(snapshot(uses, processes), shown.pods), lambda each: each.uid in self.alive, self.now
        )
        found = {each.uid: each for each in shown.pods}
        assert len(found) == len(shown.pods)
        return found


def _pod(uid: str, **more: Any) -> Pod:
    return pod(uid, container(declared="1Gi", of=uid), grace_s=YEAR_S, **more)


@given(HISTORIES)
def test_nobody_is_held_to_have_left_without_proof_and_nobody_is_forgotten(history: list[tuple[str, str, int]]) -> None:
    """Laws 3 and 11, "Unknown input never leads to enforcement" and "Nothing a tenant can delete hides memory".

    A pod has left if the API server has deleted it, and only then. It is known while its processes live.
    """
    world = World()
    world.read()
    for what, uid, seconds in history:
        world.happen(what, uid)
        world.second += seconds
        found = world.read()
        left = {uid for uid, each in found.items() if each.left_since is not None}
        assert left <= world.gone
        assert world.gone & world.alive <= left
        assert all(uid in found for uid in world.pods.keys() - world.lost)


@given(HISTORIES)
def test_one_clock_of_ten_minutes(history: list[tuple[str, str, int]]) -> None:
    """Law 11, "holds enforcement back beyond a stated bound": a deletion spares processes for ten minutes at most.

    A pod without processes may be forgotten while a list lacks it: then its time begins again, and there is nothing to
    spare.
    """
    world, since = World(), dict[str, int]()
    world.read()
    for what, uid, seconds in history:
        world.happen(what, uid)
        world.second += seconds
        for each in world.read().values():
            is_dying = each.deletion_deadline_s is not None
            if is_dying:
                since.setdefault(each.uid, world.second)
            is_spared = protection(each, Protect(), None, world.now) is not None
            if each.uid in world.alive:
                assert is_spared is (is_dying and world.second - since[each.uid] <= MOST_TERMINATING_S)
