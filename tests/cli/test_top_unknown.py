"""`top` with a daemon whose loop hangs, and with cards without a list of processes: no promises, no silent 0."""

from typing import Any, Final

import pytest

from tests.cli.build import climbing, status
from tests.cli.session import session
from tests.export.build import Story
from tests.worlds import Gi, at, gpu, process, snapshot, use
from watchdog.cli.rows import (
    BLOCKS,
    Choice,
    chosen,
    enforcement,
    gpu_rows,
    problems,
    rows_of,
    timers_run,
    unattributed_row,
)
from watchdog.cli.top import status_text
from watchdog.export.endpoints import Endpoints
from watchdog.export.http_server import HttpServer
from watchdog.export.metrics import Metrics
from watchdog.report.sentences.node import hung
from watchdog.report.status import Status
from watchdog.report.text import rfc3339

HANGS: Final[dict[str, Any]] = {"version": "1", "uptime_s": 60.0, "hangs_since": rfc3339(at(28).wall_s)}


@pytest.mark.parametrize("second", [9, 28])
def test_while_the_loop_hangs_nothing_is_promised(second: int) -> None:
    """No time runs down, each step is postponed, and the first problem says how old all data is."""
    found = status(climbing(second), health=HANGS)
    assert not timers_run(found)
    assert enforcement(found) == "daemon hung"
    assert problems(found)[0] == hung(found, found.at).rstrip(".")
    (row,) = rows_of(found)
    assert (row.next_short(), row.left_s) == ("kill postponed", float("inf"))
    assert row.next_full(5.0).startswith("kill container above 110%, postponed ")
    assert "kill now" not in status_text(found, Choice(), BLOCKS)


@pytest.mark.slow
def test_a_live_picture_stops_counting_when_the_loop_hangs() -> None:
    """On the terminal a step that ran down is postponed, and the seconds counted since the cycle are taken back."""
    seconds = [9.0]
    endpoints = Endpoints(Metrics(), 1.0, lambda: at(seconds[0]))
    endpoints.publish(climbing(9))
    server = HttpServer("127.0.0.1:0", endpoints)
    server.start()
    try:
        with session("--url", f"http://127.0.0.1:{server.port}") as shown:
            shown.see("enforcing", "Next: kill container above 110% now", "over for 11s")
            seconds[0] = 60.0
            shown.see("daemon hung", "kill container above 110%, postponed", "over for 9s")
            shown.type("q")
            assert shown.end() == 0
    finally:
        server.close()


def dark() -> Status:
    """A card without a list of its processes beside one that has it; one unattributed process is remembered."""
    seen = snapshot([use(5, Gi)], [process(5, None)], (gpu(0, used=60 * Gi, listed=False), gpu(1)))
    return status(Story().see(seen))


def test_a_card_without_a_list_is_not_an_idle_card() -> None:
    """What its processes use is unknown, at least what is remembered; the sentence is among the problems."""
    found = dark()
    rows = gpu_rows(found)
    assert [(row.unattributed.total, row.unattributed.at_least) for row in rows] == [(None, Gi), (0, 0)]
    assert [row.pods.total for row in rows] == [None, 0]
    last = unattributed_row(found)
    assert last is not None
    assert last.account.used is None
    assert "What runs on GPU 0 is not known" in problems(found)
    assert " ≥1.0Gi " in status_text(found, Choice(), BLOCKS).split("\n\n")[1]
    assert chosen(found, Choice())[-1].is_unattributed


def test_nothing_known_at_all_is_a_word() -> None:
    """Without a process that is remembered, too, `UNATTRIBUTED` is not 0."""
    empty = status(Story(pods=()).see(snapshot(gpus=(gpu(0, used=60 * Gi, listed=False),))))
    (row,) = gpu_rows(empty)
    assert (row.unattributed.total, row.unattributed.at_least) == (None, 0)
    line = status_text(empty, Choice(), BLOCKS).split("\n\n")[1].splitlines()[1].split()
    assert line[6] == "unknown"
