"""`top` of a daemon whose loop hangs, and of cards without a list of processes: nothing promised, no silent 0."""

from dataclasses import replace

import pytest

from tests.export.build import Story
from tests.top.build import climbing, document, scene, view
from tests.top.session import session
from tests.worlds import Gi, at, gpu, process, snapshot, use
from watchdog.cli.top.plain import once
from watchdog.cli.top.reading import read_view
from watchdog.cli.top.state import Choice, chosen
from watchdog.cli.top.values import BLOCKS, NodeView, left_s, long, short
from watchdog.export.board import Board
from watchdog.export.http_server import HttpServer
from watchdog.export.metrics import Metrics
from watchdog.report.status import Health, health_row
from watchdog.report.text import rfc3339

HANGS = health_row(Health(version="1", started_s=0.0, uptime_s=60.0, ready=False, hangs_since_s=at(28).wall_s))


def hanging(second: int = 28) -> NodeView:
    """A picture of a daemon since whose last cycle none has ended."""
    return view(climbing(second), health=HANGS)


@pytest.mark.parametrize("second", [9, 28])
def test_while_the_loop_hangs_nothing_is_promised(second: int) -> None:
    """No time runs down, each step is put off, and the first thing that is wrong says as of when all is."""
    found = hanging(second)
    assert not found.counts
    assert found.force == "nothing enforced"
    assert found.troubles[0].startswith("The watchdog hangs, no pass has ended since 08:00:28 UTC: all is as of 08:00:")
    (row,) = found.accounts
    assert short(row.next, 0.0) == "kill put off"
    assert long(row, 5.0).startswith("kill container above 110%, put off until a pass ends again")
    assert left_s(row, 0.0) == float("inf")
    assert "kill now" not in once(found, Choice(), BLOCKS)


def test_a_sigkill_that_nobody_sends_is_not_counted_down() -> None:
    """A kill that had begun stays in progress, without a time for what comes next."""
    told = document(climbing(28), health=HANGS)
    begun = {"step": 1, "do": "kill", "container": "main", "grace_s": 10, "sigkill_at": rfc3339(at(35).wall_s)}
    (row,) = read_view({**told, "accounts": [{**told["accounts"][0], "under_way": begun}]}).accounts
    assert short(row.next, 0.0) == "kill under way"


def test_an_eviction_that_nobody_tries_again_is_put_off() -> None:
    """A try that was refused is not told to come again in so many seconds."""
    trying = {"tries": 2, "blocked": True, "refused": None, "next_in_s": 5.0, "gives_up_in_s": 50.0}
    told = document(climbing(28), health=HANGS)
    plan = [{**entry, "do": "evict", "trying": trying} for entry in told["plan"]]
    (row,) = read_view({**told, "plan": plan}).accounts
    assert short(row.next, 0.0) == "evict put off"


def test_a_daemon_that_says_nothing_of_it_turns() -> None:
    """An older daemon has no such key."""
    older = {key: value for key, value in HANGS.items() if key != "hangs_since"}
    found = view(climbing(28), health=older)
    assert (found.counts, found.force) == (True, "enforcing")


@pytest.mark.slow
def test_a_live_picture_stops_counting_when_the_loop_hangs() -> None:
    """On the terminal a step that ran down is put off, and what had been counted on since the cycle is taken back."""
    seconds = [9.0]
    board = Board(Metrics(), 1.0, lambda: at(seconds[0]))
    board.publish(climbing(9))
    server = HttpServer("127.0.0.1:0", board)
    server.start()
    try:
        with session("--url", f"http://127.0.0.1:{server.port}") as shown:
            shown.see("enforcing", "Next: kill container above 110% now", "over for 11s")
            seconds[0] = 60.0
            shown.see("nothing enforced", "The watchdog hangs", "put off until a pass ends again", "over for 9s")
            shown.type("q")
            assert shown.end() == 0
    finally:
        server.close()


def dark() -> NodeView:
    """A card without a list of its processes beside one that has it; one process of no pod is remembered."""
    seen = snapshot([use(5, Gi)], [process(5, None)], (gpu(0, used=60 * Gi, listed=False), gpu(1)))
    return view(Story().see(seen))


def test_a_card_without_a_list_is_not_an_idle_card() -> None:
    """What its processes use is not known, at least what is remembered; the sentence stands among what is wrong."""
    found = dark()
    first, second = found.cards
    assert [(card.no_pod.known, card.no_pod.floor) for card in (first, second)] == [(None, Gi), (0, 0)]
    assert [card.pods.known for card in (first, second)] == [None, 0]
    assert found.no_pod is not None
    assert found.no_pod.used.known is None
    assert "What runs on GPU 0 is not known" in found.troubles
    assert " ≥1.0Gi " in once(found, Choice(), BLOCKS).split("\n\n")[1]
    assert chosen(found, Choice())[-1].is_no_pod


def test_nothing_known_at_all_is_a_word() -> None:
    """Without a process that is remembered, too, `NO_POD` is not 0."""
    card = dark().cards[0]
    empty = view(Story(pods=()).see(snapshot(gpus=(gpu(0, used=60 * Gi, listed=False),))))
    assert (empty.cards[0].no_pod.known, empty.cards[0].no_pod.floor) == (None, 0)
    line = once(empty, Choice(), BLOCKS).split("\n\n")[1].splitlines()[1].split()
    assert line[6] == "unknown"
    assert scene(replace(empty, cards=(card,))).view is not None


def test_a_daemon_that_does_not_say_whether_a_card_is_listed() -> None:
    """With an older one the sum of what is listed stands, as before."""
    told = document(climbing(28))
    gpus = [{key: value for key, value in row.items() if key not in ("listed", "unattributed")} for row in told["gpus"]]
    assert [card.no_pod.known for card in read_view({**told, "gpus": gpus}).cards] == [Gi, 0]
