"""Laws of use that dips: who is above a threshold for more than two thirds of the time is acted on, and no one else."""

from itertools import accumulate, pairwise
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from tests.core.story import Story
from tests.core.test_tally import Parts
from tests.worlds import Gi, policy, rule, step

FOR_S: Final = 4
ABOVE: Final = 5 * Gi

# Seconds above the threshold and below it in turn, none of them `for` without interruption.
_turns = st.lists(st.tuples(st.integers(1, FOR_S), st.integers(1, 3)), min_size=1, max_size=40)


def _readings(turns: list[tuple[int, int]]) -> list[bool]:
    return [is_above for above, below in turns for is_above in (True,) * above + (False,) * below]


def _acted_at(story: Story, readings: list[bool]) -> int | None:
    for second, is_above in enumerate(readings):
        if story.see(second, ABOVE if is_above else Gi).taken:
            return second
    return None


@given(_turns)
def test_what_is_due_by_a_tally_was_above_for_two_thirds_of_some_time(turns: list[tuple[int, int]]) -> None:
    """Point 15: at the first action some time that ends with it has twice `for` more above than twice below."""
    readings = _readings(turns)
    acted = _acted_at(Story(policy(rule(step("100%", FOR_S, "kill")))), readings)
    # Each second between two readings belongs to both of them, half each.
    steps = [(before + after) * 1.5 - 2 for before, after in pairwise(readings)]
    first = next((end for end in range(len(steps)) if _most(steps[: end + 1]) >= 2 * FOR_S and readings[end + 1]), None)
    assert acted == (None if first is None else first + 1)


def _most(steps: list[float]) -> float:
    """The largest sum of a run that ends with the last step."""
    return max(accumulate(reversed(steps)), default=0.0)


@given(st.integers(1, FOR_S), st.integers(1, 3), st.integers(0, 5))
def test_two_thirds_of_the_time_decide(above: int, below: int, shift: int) -> None:
    """Point 15: the same pattern for ever is acted on if it is above for more than two thirds of the time, or never."""
    readings = ([True] * above + [False] * below) * 60
    acted = _acted_at(Story(policy(rule(step("100%", FOR_S, "kill")))), readings[shift:])
    assert (acted is not None) is (above > 2 * below)


@given(st.sampled_from(["container", "gpu"]), st.lists(st.sampled_from(["m", "n", ""]), min_size=60, max_size=60))
def test_parts_of_a_pod_are_together_no_better_than_one(kind: str, holders: list[str]) -> None:
    """Point 15: whichever part holds the memory, the pod is acted on no later than one that always held it there."""
    parts = Parts(kind)
    moved = one = None
    alone = Parts(kind)
    for second, holder in enumerate(holders):
        used = {"m": (20 * Gi, Gi), "n": (Gi, 20 * Gi), "": (Gi, Gi)}[holder]
        if moved is None and parts.see(second, *used).taken:
            moved = second
        if one is None and [e for e in alone.see(second, max(used), Gi).entries if e.tally and e.is_tally_due]:
            one = second
    assert one is None or (moved is not None and moved <= one)
