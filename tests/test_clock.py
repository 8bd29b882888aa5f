"""The bell that other threads ring, on Linux and where there is no eventfd."""

import os
import time

import pytest

from watchdog.clock import Bell, Breather


@pytest.mark.parametrize("system", ["Linux", "macOS"])
def test_a_closed_bell_does_nothing(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that outlives what it reports to may still ring, and an owner may close twice."""
    if system == "macOS":
        monkeypatch.delattr(os, "eventfd")
    bell = Bell()
    assert not bell.silence()
    bell.ring()
    bell.ring()
    assert (bell.silence(), bell.silence()) == (True, False)
    bell.close()
    bell.close()
    bell.ring()
    assert not bell.silence()


def test_a_bell_rung_without_end_blocks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the bell is a pipe, which fills up, it can still be rung, and one call silences it."""
    monkeypatch.delattr(os, "eventfd")
    bell = Bell()
    for _ in range(20_000):
        bell.ring()
    assert (bell.silence(), bell.silence()) == (True, False)
    bell.close()


def test_a_thread_that_takes_breath_works_a_fifth_of_the_time() -> None:
    """However short its parts are: the loop must not wait for what reads the past."""
    breathe, began_s, worked_s = Breather(), time.monotonic(), time.thread_time()
    while time.thread_time() - worked_s < 0.02:
        breathe()
    assert time.monotonic() - began_s > 0.06
