"""Evictions on their own threads."""

import threading
import time
from pathlib import Path

from watchdog.clock import Bell
from watchdog.core.eviction import EvictionRequest
from watchdog.kube.client import Api
from watchdog.kube.client import ApiResponse as ApiAnswer
from watchdog.kube.evict import MOST_AT_ONCE, ApiEvictor


class Hanging(Api):
    """An API server that answers nothing until it is released."""

    def __init__(self, config: Path) -> None:
        super().__init__(config)
        self.go = threading.Event()

    def call(self, *_: object, **__: object) -> ApiAnswer:
        self.go.wait(10)
        return ApiAnswer(404, b"", {})


def _attempt(ticket: int) -> EvictionRequest:
    return EvictionRequest(
        ticket=ticket,
        number=1,
        namespace="ns",
        name="p",
        uid="u",
        grace_s=30,
        is_unsure=False,
        objection=lambda _: None,
        is_wanted=lambda: True,
    )


def _threads() -> int:
    return sum(each.name == "api-evict" for each in threading.enumerate())


def test_a_bounded_number_of_attempts_at_once(tmp_path: Path) -> None:
    """Law 10: an API server that hangs costs a bounded number of threads, and no attempt is lost."""
    api, bell = Hanging(tmp_path / "config"), Bell()
    evictor = ApiEvictor(api, bell)
    for ticket in range(MOST_AT_ONCE + 2):
        evictor.begin(_attempt(ticket))
    assert _threads() == MOST_AT_ONCE
    api.go.set()
    replies, until_s = [*evictor.take()], time.monotonic() + 10
    while len(replies) < MOST_AT_ONCE + 2 and time.monotonic() < until_s:
        time.sleep(0.01)
        replies += evictor.take()
    assert sorted(each.ticket for each in replies) == list(range(MOST_AT_ONCE + 2))
    while _threads() and time.monotonic() < until_s:
        time.sleep(0.01)
    bell.close()
