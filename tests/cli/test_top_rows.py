"""The rows of `top`: which accounts, in which order, what comes next for each, and nothing promised that is unknown."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from tests.cli.build import account, node, row, status, step
from tests.cli.session import session
from tests.report.build import Story, climbing, serving
from tests.worlds import Gi, at, gpu, process, snapshot, use
from watchdog.cli.main import SORTS
from watchdog.cli.rows import (
    KEYS,
    TopRow,
    chosen,
    enforcement,
    gpu_rows,
    problems,
    rows_of,
    timers_run,
    unattributed_row,
)
from watchdog.cli.status_text import status_text
from watchdog.cli.views import BLOCKS, Choice
from watchdog.core.policy import Do
from watchdog.export.endpoints import Endpoints
from watchdog.export.metrics import Metrics
from watchdog.report.sentences.node import hung
from watchdog.report.status import HealthStatus, Moment, PendingStatus, PlanStatus, Status, UnderWayStatus
from watchdog.report.text import rfc3339


def kinds() -> Status:
    """Six accounts, each of another kind, and unattributed processes."""
    assert status().unattributed
    begun = UnderWayStatus(do=Do.KILL)
    return node(
        account("calm", used=2 * Gi),
        (account("over", used=9 * Gi, verdict="over"), step(due_in_s=5.0)),
        (account("held", used=12 * Gi, verdict="over"), step(withheld_by="protected")),
        account("blind", used=None, least=7 * Gi, verdict="unknown"),
        account("free", used=20 * Gi, verdict="undeclared", declared=None, allowed=None),
        account("forbidden", used=Gi, verdict="over", declared=0, allowed=0, under_way=begun),
    )


def names(rows: tuple[TopRow, ...]) -> list[str]:
    """Their pods; the row of the unattributed processes is `-`."""
    return [row.account.pod or "-" for row in rows]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        # At least 7Gi of 8Gi, and something where nothing is allowed, have their place; without a limit there is none.
        ("percent", ["forbidden", "held", "over", "blind", "calm", "free"]),
        ("used", ["free", "held", "over", "blind", "calm", "forbidden"]),
        ("name", ["blind", "calm", "forbidden", "free", "held", "over"]),
        # What is in progress, what comes, what a brake holds for ever, what has nothing to come.
        ("time", ["forbidden", "over", "held", "free", "blind", "calm"]),
        ("declared", ["blind", "calm", "held", "over", "forbidden", "free"]),
        ("verdict", ["forbidden", "held", "over", "blind", "calm", "free"]),
    ],
)
def test_order(sort: str, expected: list[str]) -> None:
    """Each way to sort, with what is not known or does not apply at the end, and unattributed memory last."""
    assert names(chosen(kinds(), Choice(sort=sort))) == [*expected, "-"]


@pytest.mark.parametrize("sort", sorted(KEYS))
def test_reversed(sort: str) -> None:
    """Reversed, the known ones are the other way about; what is not known stays at the end."""
    forwards, backwards = (names(chosen(kinds(), Choice(sort=sort, backwards=each)))[:-1] for each in (False, True))
    unknown = [each.account.pod for each in chosen(kinds(), Choice()) if KEYS[sort](each) is None]
    known = [name for name in forwards if name not in unknown]
    assert backwards == [*reversed(known), *forwards[len(known) :]]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (Choice(sort="name", over=True), ["forbidden", "held", "over"]),
        (Choice(sort="name", text="NS/C"), ["calm"]),
        (Choice(sort="name", text="undeclared"), ["free"]),
        (Choice(sort="name", text="over held"), ["held"]),
        (Choice(sort="name", text="notebooks", over=True), ["forbidden", "held", "over"]),
        (Choice(sort="name", text="unattributed"), ["-"]),
        (Choice(sort="name", text="missing"), []),
    ],
)
def test_filter(choice: Choice, expected: list[str]) -> None:
    """A filter takes words of the name, the rule and the verdict, in any case; all of them must be there."""
    assert names(chosen(kinds(), choice)) == expected


def test_the_command_offers_every_order() -> None:
    """What the option offers is what there is."""
    assert sorted(SORTS) == sorted(KEYS)


KILL: Final = step(due_in_s=12.0, container="main", scope="container", above="110%")
HELD: Final = replace(
    KILL, due_in_s=0.0, withheld_by="owner", held_because="it was the third of its Job", releases_in_s=250.0
)
EVICT: Final = step(Do.EVICT, pending=PendingStatus(tries=3, blocked=True, next_in_s=10.0))

HUNG: Final = HealthStatus(hangs_since=Moment(status().at))


def next_of(*steps: PlanStatus, begun: UnderWayStatus | None = None, **more: object) -> TopRow:
    """The row of an account with these steps; `more` is of the status."""
    return row(account(under_way=begun), *steps, **more)


def begun(do: Do = Do.KILL, sigkill_in_s: float | None = None) -> UnderWayStatus:
    """An action in progress."""
    at = None if sigkill_in_s is None else Moment(status().at + sigkill_in_s)
    return UnderWayStatus(do=do, sigkill_at=at)


@pytest.mark.parametrize(
    ("shown", "elapsed_s", "expected"),
    [
        (next_of(), 0.0, "-"),
        (next_of(KILL), 7.4, "kill in 5s"),
        (next_of(KILL), 99.0, "kill now"),
        (row(account(observes=True), KILL), 0.0, "would kill in 12s"),
        (next_of(HELD), 0.0, "kill withheld: owner, 4m10s"),
        (next_of(HELD), 249.5, "kill withheld: owner, 1s"),
        (next_of(HELD), 300.0, "kill withheld: owner"),
        (next_of(begun=begun(sigkill_in_s=8.2)), 0.0, "being killed, SIGKILL in 9s"),
        (next_of(KILL, health=HUNG), 5.0, "kill withheld: hung"),
        (next_of(EVICT, health=HUNG), 5.0, "eviction withheld: hung"),
        (next_of(begun=begun(sigkill_in_s=8.0), health=HUNG), 5.0, "being killed, SIGKILL may follow"),
        (next_of(EVICT), 4.0, "eviction blocked, attempt 3, next in 6s"),
    ],
)
def test_in_short(shown: TopRow, elapsed_s: float, expected: str) -> None:
    """A step in few words counts down to `now` and no further, and not at all while the daemon's loop hangs."""
    assert shown.next_short(elapsed_s) == expected


def test_in_full() -> None:
    """With the threshold, with what holds it and why, and with the action that follows a warning."""
    held = next_of(replace(HELD, due_in_s=3.0))
    assert held.next_full() == (
        "kill all processes of container main above 110% in 3s, will be withheld (owner, 4m 10s): it was the third of "
        "its Job"
    )
    assert "now, withheld (owner, 4m 7s)" in held.next_full(3.0)
    warned = next_of(step(Do.WARN, due_in_s=2.0, above="100%"), KILL)
    assert warned.next_full() == "warn above 100% in 2s; then kill all processes of container main above 110% in 12s"
    protected = row(account(protected="it is a system pod"))
    assert protected.next_full() == "protected, no action is taken: it is a system pod"
    assert next_of().next_full() == "-"
    unknown = row(account(verdict="unknown", limit_unknown="claims are not read"))
    assert unknown.next_full() == "limit unknown: claims are not read"
    for idle in (next_of(KILL, enforcing=False), row(account(observes=True), KILL)):
        assert idle.next_full() == "would kill all processes of container main above 110% in 12s"
        assert idle.is_waiting


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (next_of(), None),
        (next_of(KILL), 12.0),
        (next_of(replace(KILL, due_in_s=-8.0)), 0.0),
        (next_of(HELD), 250.0),
        (next_of(replace(HELD, releases_in_s=None)), float("inf")),
        (next_of(begun=begun(sigkill_in_s=8.0)), 0.0),
        (next_of(KILL, health=HUNG), float("inf")),
    ],
)
def test_time_left(shown: TopRow, expected: float | None) -> None:
    """What sorts by time: when something happens, which with a brake is when that releases it."""
    assert shown.left_s == expected


HANGS: Final[dict[str, Any]] = {"version": "1", "uptime_s": 60.0, "hangs_since": rfc3339(at(28).wall_s)}


@pytest.mark.parametrize("second", [9, 28])
def test_while_the_loop_hangs_nothing_is_promised(second: int) -> None:
    """No time runs down, each step is withheld, and the first problem says how old all data is."""
    found = status(climbing(second), health=HANGS)
    assert not timers_run(found)
    assert enforcement(found) == "daemon hung"
    assert problems(found)[0] == hung(found, found.at).rstrip(".")
    (row,) = rows_of(found)
    assert (row.next_short(), row.left_s) == ("kill withheld: hung", float("inf"))
    assert row.next_full(5.0).startswith("kill all processes of container main above 110%, withheld ")
    assert "kill now" not in status_text(found, Choice(), BLOCKS)


@pytest.mark.slow
def test_a_live_picture_stops_counting_when_the_loop_hangs() -> None:
    """On the terminal a step that ran down is withheld, and the seconds counted since the cycle are taken back."""
    seconds = [9.0]
    endpoints = Endpoints(Metrics(), 1.0, lambda: at(seconds[0]))
    endpoints.publish(climbing(9))
    with serving(endpoints) as server, session("--url", f"http://127.0.0.1:{server.port}") as shown:
        shown.see("enforcing", "Next: kill all processes of container main above 110% now", "over for 11s")
        seconds[0] = 60.0
        shown.see("daemon hung", "kill all processes of container main above 110%, withheld", "over for 9s")
        shown.type("q")
        assert shown.end() == 0


def test_a_card_without_a_list_is_not_an_idle_card() -> None:
    """What its processes use is unknown, at least what is remembered; the sentence is among the problems."""
    seen = snapshot([use(5, Gi)], [process(5, None)], (gpu(0, used=60 * Gi, listed=False), gpu(1)))
    found = status(Story().see(seen))
    rows = gpu_rows(found)
    assert [(row.unattributed.total, row.unattributed.at_least) for row in rows] == [(None, Gi), (0, 0)]
    assert [row.pods.total for row in rows] == [None, 0]
    last = unattributed_row(found)
    assert last is not None
    assert last.account.used is None
    assert "What runs on GPU 0 is not known" in problems(found)
    assert " ≥1Gi " in status_text(found, Choice(), BLOCKS).split("\n\n")[1]
    assert chosen(found, Choice())[-1].is_unattributed
