"""What people read of a step that is due although use has dipped."""

import pytest

from tests.core.story import Story
from tests.core.test_tally import KILL_10, Parts, moved, pattern
from tests.worlds import at, policy, rule
from watchdog.report.sentences.following import forecast, note
from watchdog.report.text import whole_intervals


def test_an_event_says_for_how_much_of_which_time_it_was_above() -> None:
    """Law 2: an owner who sees ten seconds in the rule, and no ten seconds in a graph, learns what has counted."""
    story = Story(policy(rule(KILL_10)))
    for second, used in enumerate(pattern(9, 1)[:27]):
        plan = story.see(second, used)
    (entry,) = plan.taken
    text = note(entry, at(26))
    assert ", for 24s of the last 26s. " in text
    assert "above 100% for 10s (or for twice that, with dips counting double against it)." in text
    assert "with dips counting double" in forecast(entry, at(26)).detail


@pytest.mark.parametrize(("kind", "part"), [("container", "container"), ("gpu", "GPU")])
def test_an_event_says_that_memory_has_moved(kind: str, part: str) -> None:
    """The account was above its threshold only briefly, its pod all the time."""
    found = moved(Parts(kind), 0)
    assert found is not None
    second, entry = found
    expected = f", for 1s; the pod was above the threshold in one {part} or another for 10s of the last 10s."
    assert expected in note(entry, at(second))


def test_a_wait_is_rounded_up_to_whole_intervals() -> None:
    """Point 15: whatever is left, nobody can time a dip by it; what is due stays due."""
    assert [whole_intervals(each, 2.0) for each in (-1.0, 0.0, 0.1, 2.0, 2.1)] == [-1.0, 0.0, 2.0, 2.0, 4.0]
