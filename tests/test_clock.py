"""The bell that other threads ring."""

from watchdog.clock import Bell


def test_a_closed_bell_does_nothing() -> None:
    """A thread that outlives what it reports to may still ring, and an owner may close twice."""
    bell = Bell()
    bell.ring()
    bell.ring()
    assert (bell.silence(), bell.silence()) == (True, False)
    bell.close()
    bell.close()
    bell.ring()
    assert not bell.silence()
