"""`top` of a daemon whose loop hangs, and of cards without a list of processes: nothing promised, no silent 0."""

from typing import Any, Final

import pytest

from tests.cli.build import climbing, document, status
from tests.cli.session import session
from tests.export.build import Story
from tests.worlds import Gi, at, gpu, process, snapshot, use
from watchdog.cli.rows import (
    BLOCKS,
    Choice,
    TopRow,
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
from watchdog.report.status import Status
from watchdog.report.text import rfc3339

HANGS: Final[dict[str, Any]] = {"version": "1", "uptime_s": 60.0, "hangs_since": rfc3339(at(28).wall_s)}


def only(found: Status) -> TopRow:
    """The row of its only account."""
    (row,) = rows_of(found)
    return row


@pytest.mark.parametrize("second", [9, 28])
def test_while_the_loop_hangs_nothing_is_promised(second: int) -> None:
    """No time runs down, each step is on hold, and the first problem says as of when all data is."""
    found = status(climbing(second), health=HANGS)
    assert not timers_run(found)
    assert enforcement(found) == "daemon hung"
    assert problems(found)[0].startswith(
        "The watchdog on this node is hung: no cycle has completed since 08:00:28 UTC. Its data is as of 08:00:"
    )
    row = only(found)
    assert row.next_short() == "kill postponed"
    assert row.next_full(5.0).startswith("kill container above 110%, postponed until the daemon completes a cycle")
    assert row.left_s == float("inf")
    assert "kill now" not in status_text(found, Choice(), BLOCKS)


def test_a_sigkill_that_nobody_sends_is_not_counted_down() -> None:
    """A kill that had started stays in progress, without a time for what comes next."""
    told = document(climbing(28))
    begun = {"step": 1, "do": "kill", "container": "main", "grace_s": 10, "sigkill_at": rfc3339(at(35).wall_s)}
    found = status(climbing(28), health=HANGS, accounts=[{**told["accounts"][0], "under_way": begun}])
    assert only(found).next_short() == "being killed, SIGKILL postponed"


def test_an_eviction_that_nobody_tries_again_is_on_hold() -> None:
    """An attempt that was refused is not said to come again in so many seconds."""
    trying = {"tries": 2, "blocked": True, "refused": None, "next_in_s": 5.0, "gives_up_in_s": 50.0}
    plan = [{**entry, "do": "evict", "pending": trying} for entry in document(climbing(28))["plan"]]
    assert only(status(climbing(28), health=HANGS, plan=plan)).next_short() == "eviction postponed"


def test_a_daemon_that_says_nothing_of_it_is_not_hung() -> None:
    """An older daemon has no such key."""
    older = {key: value for key, value in HANGS.items() if key != "hangs_since"}
    found = status(climbing(28), health=older)
    assert (timers_run(found), enforcement(found)) == (True, "enforcing")


@pytest.mark.slow
def test_a_live_picture_stops_counting_when_the_loop_hangs() -> None:
    """On the terminal a step that ran down is on hold, and what had been counted on since the cycle is taken back."""
    seconds = [9.0]
    endpoints = Endpoints(Metrics(), 1.0, lambda: at(seconds[0]))
    endpoints.publish(climbing(9))
    server = HttpServer("127.0.0.1:0", endpoints)
    server.start()
    try:
        with session("--url", f"http://127.0.0.1:{server.port}") as shown:
            shown.see("enforcing", "Next: kill container above 110% now", "over for 11s")
            seconds[0] = 60.0
            shown.see(
                "daemon hung",
                "The watchdog on this node is hung",
                "postponed until the daemon completes",
                "over for 9s",
            )
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


def test_a_daemon_that_does_not_say_whether_a_card_is_listed() -> None:
    """With an older one the sum of what is listed stands, as before."""
    told = document(climbing(28))
    gpus = [{key: value for key, value in row.items() if key not in ("listed", "unattributed")} for row in told["gpus"]]
    found = status(climbing(28), gpus=gpus)
    assert [row.unattributed.total for row in gpu_rows(found)] == [Gi, 0]
