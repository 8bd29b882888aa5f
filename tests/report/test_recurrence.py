"""Warnings of accounts that go over and back again and again: bounded, and none takes the first of another."""

from dataclasses import replace

import pytest

from tests.report.build import entry, quiet
from tests.worlds import at
from watchdog.core.assessment import AccountKey
from watchdog.core.plan import CycleReport, Outcome, Result
from watchdog.report.changes import ChangeKind, Changes


def warned(second: float, *uids: str) -> CycleReport:
    """A cycle in which a new incident of each of these accounts is warned of."""
    due = entry()
    warning = replace(due, step_index=next(n for n, step in enumerate(due.rule.steps) if step.do.value == "warn"))
    entries = [replace(warning, assessment=replace(warning.assessment, account=AccountKey(uid=uid))) for uid in uids]
    outcomes = tuple(Outcome(entry=each, result=Result.DONE, at=at(second)) for each in entries)
    return replace(quiet(second), outcomes=outcomes)


@pytest.mark.slow
def test_accounts_that_oscillate_are_bounded_and_silence_no_other() -> None:
    """Law 11: 200 accounts with an incident every 8 s write a line in three seconds, and a first warning is kept."""
    changes = Changes()

    def lines(second: float, *uids: str) -> int:
        return sum(each.event is ChangeKind.WARNED for each in changes.since(warned(second, *uids)))

    uids = [f"u{number}" for number in range(200)]
    written = [lines(second, *uids) for second in range(0, 1200, 8)]
    assert written[:4] == [200, 200, 200, 0]
    assert sum(written[4:]) <= 200 * 1200 / 600
    assert lines(1200, *uids[:9], "innocent") == 1
    assert "and 195 more" not in changes.take_left_out(at(1200))  # they are pods of one name here
    assert changes.take_left_out(at(1201)) == ""
    assert lines(6600, "u0") == 1
