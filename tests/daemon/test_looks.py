"""Whose looks there are: bounded for the node, and shared out so that one card can't take all of them."""

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from watchdog.core.policy import Window
from watchdog.daemon.looks import Looks

WINDOW = Window(count=12, per_s=60.0)


def take(looks: Looks, card: str, now_s: float, *, window: Window = WINDOW, cards: int = 3) -> bool:
    """Take a look for a card if it has one now."""
    free_s, chosen = looks.free_s([card], window, cards)
    assert chosen == card
    if free_s <= now_s:
        looks.plan(now_s, card, window, cards)
    looks.begin(now_s)
    return free_s <= now_s


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 30)), max_size=120),
    st.integers(1, 15),
)
def test_the_bound_holds_and_each_card_has_its_share(demand: list[tuple[str, float]], count: int) -> None:
    """In no window are there more looks than the policy has, and a card that has had few of them gets one."""
    looks, window, now_s = Looks(), Window(count=count, per_s=60.0), 0.0
    taken: list[tuple[float, str]] = []
    for card, wait_s in demand:
        now_s += wait_s
        recent = Counter(other for at_s, other in taken if at_s > now_s - window.per_s)
        if take(looks, card, now_s, window=window):
            taken.append((now_s, card))
            assert recent.total() < count
        else:
            assert recent.total() >= count or recent[card] >= max(count // 6, 1)


def test_one_busy_card_has_the_common_half_too() -> None:
    """Three cards with 12 looks have two each, and six in common; the busy one leaves the others theirs."""
    looks = Looks()
    assert [take(looks, "a", float(second)) for second in range(9)] == [True] * 8 + [False]
    assert [take(looks, "b", 20.0) for _ in range(3)] == [True, True, False]
    assert looks.free_s(["b"], WINDOW, 3)[0] == 62.0, "when a common one is free again"
    assert [take(looks, "c", 21.0) for _ in range(3)] == [True, True, False]


def test_with_fewer_looks_than_cards_none_gets_two() -> None:
    """Two looks for three cards are for the two that come first, whatever the first one does."""
    looks, window = Looks(), Window(count=2, per_s=60.0)
    assert [take(looks, card, 1.0, window=window) for card in "aabc"] == [True, False, True, False]


def test_a_rise_of_several_cards_is_charged_to_the_one_that_has_looks_left() -> None:
    """A card without looks rises all the time: what rises with it must not wait for it."""
    looks = Looks()
    for second in range(8):
        take(looks, "a", float(second))
    assert looks.free_s(["a", "b"], WINDOW, 3) == (-math.inf, "b")


def test_a_look_that_another_reading_comes_before_is_not_spent() -> None:
    """What was planned for later counts only once it is taken."""
    looks, window = Looks(), Window(count=1, per_s=60.0)
    looks.plan(50.0, "a", window, 1)
    looks.plan(60.0, "a", window, 1)
    looks.begin(40.0)
    assert looks.free_s(["a"], window, 1)[0] == -math.inf
    looks.plan(50.0, "a", window, 1)
    looks.begin(50.0)
    assert looks.free_s(["a"], window, 1)[0] == 110.0


def test_a_card_is_reported_again_only_after_ten_minutes_without_shortage() -> None:
    """A pod that allocates for hours is one line of the log, and every rise that waits is counted."""
    looks = Looks()
    found = [looks.note_spent(cards, at_s) for cards, at_s in (("ba", 0), ("a", 599), ("ab", 1000), ("a", 1600))]
    assert found == [("a", "b"), (), ("b",), ("a",)]
    assert looks.spent == 4
