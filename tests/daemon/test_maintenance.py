"""Since when the GPUs are under maintenance, by what the journal had and what the Node object says."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.worlds import at
from watchdog.core.model import MaintenanceStart, Now
from watchdog.core.policy import JournalLimits
from watchdog.daemon.maintenance import MaintenanceWatch
from watchdog.journal.journal import Journal

WHY: Final = "the node's label nvidia.com/mig.config.state is pending"
LATER: Final = "the node's label nvidia.com/mig.config.state is rebooting"
EARLIER: Final = MaintenanceStart(at=at(-500), seen=True)


class Watch(MaintenanceWatch):
    """One whose writes are kept, the latest last."""

    def __init__(self) -> None:
        self.written: list[MaintenanceStart | None] = []
        super().__init__(self.written.append)

    def sees(self, second: float, why: str | None, *, is_known: bool = True) -> MaintenanceStart | None:
        """What the node is like; when the maintenance has begun by then."""
        self.update(why, at(second), is_known=is_known)
        return self.start


def _opened(earlier: MaintenanceStart | None) -> Watch:
    watch = Watch()
    watch.restore(earlier, at(0))
    return watch


def test_it_begins_when_it_is_seen_to_begin_and_ends_with_the_last_label() -> None:
    """Point 41: another value is the same maintenance, and a Node object that can't be read ends nothing."""
    watch = _opened(None)
    assert watch.sees(1, None) is None
    began = MaintenanceStart(at=at(5), seen=True)
    assert [watch.sees(5, WHY), watch.sees(9, LATER), watch.sees(20, None, is_known=False)] == [began] * 3
    assert watch.sees(30, None) is None
    assert watch.written == [None, began, None]
    assert watch.sees(40, WHY) == MaintenanceStart(at=at(40), seen=True)


def test_the_journals_is_kept_while_the_label_is_there() -> None:
    """Point 41: a restarted daemon goes on with the date of the one before, whichever it reads first."""
    for watch in (_opened(EARLIER), Watch()):
        watch.sees(1, WHY)
        watch.restore(EARLIER, at(2))
        assert (watch.start, watch.written[-1]) == (EARLIER, EARLIER)


def test_the_journals_is_dropped_once_the_label_is_not_there() -> None:
    """Point 41: a maintenance that ended while no daemon ran does not date the next one."""
    for watch in (_opened(EARLIER), Watch()):
        watch.sees(1, None)
        watch.restore(EARLIER, at(2))
        assert watch.written[-1] is None
        assert watch.sees(9, WHY) == MaintenanceStart(at=at(9), seen=True)


def test_a_node_that_was_not_read_leaves_the_journal_alone() -> None:
    """Point 41: until the Node object is there, the maintenance may go on, as the re-exec's own reason says it does."""
    watch = _opened(EARLIER)
    assert watch.sees(1, None, is_known=False) is None
    assert watch.written == [EARLIER]
    assert watch.sees(2, "the node was under maintenance", is_known=False) == EARLIER


def test_without_a_journal_it_is_dated_by_what_this_daemon_saw() -> None:
    """Point 41: a label that was there first may be older; nothing is written before the journal has been read."""
    watch = Watch()
    assert watch.sees(1, WHY) == MaintenanceStart(at=at(1), seen=False)
    assert watch.written == []
    watch.restore(None, at(3))
    assert watch.written == [MaintenanceStart(at=at(1), seen=False)]


@pytest.mark.parametrize(
    ("then", "age_s"),
    [
        (at(-500), 500.0),
        (replace(at(-500), wall_s=at(0).wall_s + 9e6), 500.0),  # the clock was set
        (Now(boottime_s=9e6, wall_s=at(-700).wall_s, boot_id="another"), 700.0),
        (Now(boottime_s=9e6, wall_s=at(700).wall_s, boot_id="another"), 0.0),
    ],
    ids=["this boot", "this boot, another clock", "an earlier boot", "in the future"],
)
def test_its_age_is_that_of_the_boot_clock_and_across_boots_of_the_wall_clock(then: Now, age_s: float) -> None:
    """Point 19: and a negative age counts as 0."""
    watch = _opened(MaintenanceStart(at=then, seen=True))
    start = watch.sees(0, WHY)
    assert start is not None
    assert (at(0).boottime_s - start.at.boottime_s, at(0).wall_s - start.at.wall_s) == (age_s, age_s)
    assert start.at.boot_id == at(0).boot_id


def test_the_journal_has_it_over_daemons_and_other_files(tmp_path: Path) -> None:
    """Point 41: the file keeps it; one that takes its place gets it from the daemon, until there is none."""
    path, start = tmp_path / "journal.db", MaintenanceStart(at=at(7), seen=False)
    first = Journal.open(path, JournalLimits(), "n1")
    assert first.kept.maintenance is None
    first.maintenance(start)
    first.close()
    second = Journal.open(path, JournalLimits(), "n1")
    assert second.kept.maintenance == start
    path.unlink()
    second.probe()
    third = Journal.open(path, JournalLimits(), "n1")
    assert third.kept.maintenance == start
    third.maintenance(None)
    third.close()
    second.close()
    fourth = Journal.open(path, JournalLimits(), "n1")
    assert fourth.kept.maintenance is None
    fourth.close()
