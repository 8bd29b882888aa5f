"""Sinks: a refused policy, what is missing without the lock or the journal, and a sink that is handed in."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import structlog

from tests.export.samples import read, series, value
from tests.node.support import wait_until
from tests.report.build import Story, utilized
from tests.worlds import at, policy, snapshot
from watchdog.config.load import PolicyError, PolicyProblem
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Now
from watchdog.core.plan import CycleReport
from watchdog.core.quiet import Ticks
from watchdog.daemon.sinks import Sinks
from watchdog.export.log import configure
from watchdog.journal.read import history
from watchdog.options import Options
from watchdog.report.changes import Change

MISTAKES = PolicyError(
    (PolicyProblem(source="p.toml", what="must be a duration"), PolicyProblem(source="p.toml", what="is missing"))
)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[tuple[Sinks, Sinks]]:
    """Two daemons' sinks with their journal in one folder, before either has tried to take the lock."""
    options = Options(node="n1", listen="127.0.0.1:0", journal=tmp_path / "journal.db")
    two = Sinks(options, policy(), at(0)), Sinks(options, policy(), at(0))
    yield two
    for each in two:
        each.stop((), at(9))
        assert each._server is not None
        each._server.close()
    structlog.reset_defaults()


def open_journal(sinks: Sinks, now: Now) -> None:
    """Take the lock and open the journal, however long the disk takes."""

    def is_open() -> bool:
        sinks.keeper.maintain(now)
        return sinks.has_journal

    wait_until(is_open)


@pytest.mark.parametrize(
    ("has_settled", "meanwhile"),
    [(True, "the last valid policy stays in effect"), (False, "no action is taken until it is valid")],
)
def test_the_mistakes_of_a_refused_policy_are_one_line(
    made: tuple[Sinks, Sinks], tmp_path: Path, capsys: pytest.CaptureFixture[str], meanwhile: str, *, has_settled: bool
) -> None:
    """Each mistake can be read, in the log and in the journal, without an escaped line break between them."""
    configure()
    open_journal(made[0], at(0))
    capsys.readouterr()
    made[0].policy_refused(MISTAKES, at(1), has_settled=has_settled)
    made[0].stop((), at(2))
    says = f"{meanwhile}: p.toml: must be a duration; p.toml: is missing"
    assert json.loads(capsys.readouterr().err.splitlines()[0])["message"].endswith(says)
    assert [row.sentence.endswith(says) for row in history(tmp_path / "journal.db", None, 0.0)] == [False, True, False]


def test_a_second_daemon_lacks_the_lock_and_nothing_else(made: tuple[Sinks, Sinks]) -> None:
    """Point 32: it does not open the journal, so no step of its plan is held back because that can't be written."""
    first, second = made
    open_journal(first, at(0))
    second.keeper.maintain(at(0))
    assert (second.has_lock, second.has_journal, second.keeper.is_writable) == (False, False, True)
    first.stop((), at(1))
    open_journal(second, at(1))
    assert (second.has_lock, second.has_journal, second.keeper.is_writable) == (True, True, True)


def test_card_seconds_of_a_node_are_exported_by_one_daemon(made: tuple[Sinks, Sinks]) -> None:
    """While a second daemon runs beside the first, sums over all daemons have each card-second once."""
    first, second = made
    open_journal(first, at(0))
    second.keeper.maintain(at(0))
    for each in made:
        each.publish(utilized(), is_stale=False)
    held = [value(read(each._metrics), "namespace_card_seconds_total", namespace="a", state="held") for each in made]
    assert held == [3.0, None]
    first.stop((), at(1))
    open_journal(second, at(1))
    assert len(series(read(second._metrics), "namespace_card_seconds_total")) == 3


def test_without_a_journal_nothing_can_be_written_down(made: tuple[Sinks, Sinks], tmp_path: Path) -> None:
    """Point 31: with the lock and without a journal the brake `journal` holds."""
    (tmp_path / "journal.db").mkdir()
    made[0].keeper.maintain(at(0))
    assert (made[0].has_lock, made[0].has_journal, made[0].keeper.is_writable) == (True, False, False)


def test_a_cycle_is_in_the_journal(made: tuple[Sinks, Sinks], tmp_path: Path) -> None:
    """What was new in a cycle can be read afterwards, as soon as the journal is open."""

    def is_open() -> bool:
        made[0].keeper.maintain(at(0))
        return made[0].has_journal

    wait_until(is_open)
    gap = Gap(reason=GapReason.MEMORY, what="GPU-0 memory", problem=Problem("call 1 failed"))
    made[0].publish(Story(pods=()).see(snapshot(gaps=(gap,))), is_stale=False)
    made[0].stop((), at(2))
    assert [row.event for row in history(tmp_path / "journal.db", None, 0.0)].count("gap_began") == 1


class Kept:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[tuple[CycleReport, Sequence[Change]]] = []
        self.has_stopped = False

    def publish(self, report: CycleReport, changes: Sequence[Change], ticks: Ticks | None) -> None:
        """Keep the cycle."""
        self.got.append((report, changes))

    def stop(self, changes: Sequence[Change], now: Now) -> None:
        """Note the end."""
        self.has_stopped = True


class Broken(Kept):
    """A sink with a bug: the first thing that each method does is to fail."""

    def publish(self, report: CycleReport, changes: Sequence[Change], ticks: Ticks | None) -> None:
        """Fail."""
        raise ZeroDivisionError("a bug")

    def stop(self, changes: Sequence[Change], now: Now) -> None:
        """Fail."""
        raise ZeroDivisionError("another bug")


def test_a_sink_that_fails_withholds_nothing_from_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By then actions have begun: the journal and every other sink get each cycle and the end, the log says it once."""
    configure()
    first, kept = Broken(), Kept()
    options = Options(node="n1", listen="127.0.0.1:0", journal=tmp_path / "journal.db", serves=False)
    sinks = Sinks(options, policy(), at(0), further=(first, kept))
    sinks._sinks.insert(0, sinks._sinks.pop(-2))  # before all others, the journal among them
    open_journal(sinks, at(0))
    gap = Gap(reason=GapReason.MEMORY, what="GPU-0 memory", problem=Problem("call 1 failed"))
    reports = [Story(pods=()).see(snapshot(gaps=(gap,), second=second)) for second in (0, 1)]
    assert [sinks.publish(report, is_stale=False) for report in reports] == [False, False]
    assert [report for report, _ in kept.got] == reports
    assert sinks._unready == ()
    sinks.stop((), at(2))
    assert kept.has_stopped
    assert not sinks.has_lock
    assert [row.event for row in history(tmp_path / "journal.db", None, 0.0)].count("gap_began") == 1
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    crashes = [line for line in lines if "traceback" in line]
    assert [line["message"].split(" ")[0] for line in crashes] == ["Broken", "Broken"], "each place once"
    assert "ZeroDivisionError('a bug')" in crashes[0]["message"]
    assert "test_sinks.py" in crashes[0]["traceback"]
    structlog.reset_defaults()


def test_a_further_sink_gets_what_the_others_get(tmp_path: Path) -> None:
    """A sink that is handed in gets each cycle with its changes, and the end; without a server no address is bound."""
    kept = Kept()
    options = Options(node="n1", listen="203.0.113.1:9837", journal=tmp_path / "journal.db", serves=False)
    sinks = Sinks(options, policy(), at(0), further=(kept,))
    gap = Gap(reason=GapReason.MEMORY, what="GPU-0 memory", problem=Problem("call 1 failed"))
    report = Story(pods=()).see(snapshot(gaps=(gap,)))
    assert sinks.publish(report, is_stale=False)
    (((got, changes),), has_stopped) = kept.got, kept.has_stopped
    assert (got, has_stopped) == (report, False)
    assert "gap_began" in {change.event for change in changes}
    sinks.stop((), at(2))
    assert kept.has_stopped
