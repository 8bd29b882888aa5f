"""Changes to files as the kernel reports them: however a file is changed, the loop wakes."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rig.volume import mount
from watchdog.daemon.file_events import FileEvents


def _append(file: Path) -> None:
    with file.open("a", encoding="utf-8") as opened:
        opened.write("b")


WAYS: dict[str, Callable[[Path], object]] = {
    "written in place": lambda file: file.write_text("b", encoding="utf-8"),
    "appended to": _append,
    "replaced": lambda file: _other(file).replace(file),
    "deleted": lambda file: file.unlink(),
    "moved away": lambda file: file.rename(file.with_name("other")),
    "another mode": lambda file: file.chmod(0o600),
    "another time": lambda file: os.utime(file, (1, 1)),
    "its folder is moved away": lambda file: file.parent.rename(file.parent.with_name("elsewhere")),
}


def _other(file: Path) -> Path:
    made = file.with_name("new")
    made.write_text("b", encoding="utf-8")
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file in a folder of its own."""
    folder = tmp_path / "folder"
    folder.mkdir()
    made = folder / "file"
    made.write_text("a", encoding="utf-8")
    return made


@pytest.fixture
def events(file: Path) -> Iterator[FileEvents]:
    """What is reported of it; nothing yet."""
    found = FileEvents([file])
    assert (found.are_complete, found.silence()) == (True, False)
    yield found
    found.close()
    found.close()


@pytest.mark.parametrize("way", WAYS)
def test_every_change_is_reported(file: Path, events: FileEvents, way: str) -> None:
    """Also the second one, when the path leads to another file than before."""
    WAYS[way](file)
    assert [events.silence(), events.silence()] == [True, False]
    events.renew()
    events.silence()
    if file.exists():
        file.write_text("c", encoding="utf-8")
        assert events.silence()


def test_reading_is_no_change(file: Path, events: FileEvents) -> None:
    """Otherwise the daemon's own reading of a file would wake it again and again."""
    file.read_text(encoding="utf-8")
    file.stat()
    list(file.parent.iterdir())
    assert not events.silence()


def test_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    """The file `stop` works the moment it is there; what is written to other files of its folder does not matter."""
    stop, journal = tmp_path / "stop", tmp_path / "journal.db"
    journal.touch()
    events = FileEvents([stop])
    journal.write_text("x", encoding="utf-8")
    assert (events.are_complete, events.silence()) == (True, False)
    stop.touch()
    found = [events.silence()]
    events.renew()
    stop.unlink()
    found.append(events.silence())
    assert found == [True, True]
    events.close()


def test_a_folder_that_is_not_there_reports_nothing(tmp_path: Path) -> None:
    """So the file has to be looked at now and then, until its folder is there."""
    events = FileEvents([tmp_path / "later" / "file"])
    found = [events.are_complete]
    (tmp_path / "later").mkdir()
    events.renew()
    assert [*found, events.are_complete] == [False, True]
    events.close()


def test_a_config_map_that_is_swapped(tmp_path: Path) -> None:
    """The kubelet renames one link over another, two links away from the file that is read."""
    policy = mount(tmp_path / "policy.toml", "a")
    events = FileEvents([policy])
    assert (events.are_complete, events.silence()) == (True, False)
    for text in ("b", "c"):
        mount(policy, text)
        has_changed: bool = events.silence()
        assert has_changed
        events.renew()
        events.silence()
    events.close()


def test_links_that_lead_through_other_folders(tmp_path: Path, file: Path) -> None:
    """Absolute and relative ones, and `..`; a link that is set again is a change."""
    (tmp_path / "links").mkdir()
    first, second = tmp_path / "links" / "first", tmp_path / "links" / "second"
    first.symlink_to("second")
    second.symlink_to(tmp_path / "links" / ".." / "folder")
    events = FileEvents([first / "file"])
    assert (events.are_complete, events.silence()) == (True, False)
    file.write_text("b", encoding="utf-8")
    found = [events.silence()]
    second.unlink()
    assert [*found, events.silence()] == [True, True]
    events.close()


def test_a_link_to_itself_ends(tmp_path: Path) -> None:
    """It leads nowhere, so nothing of it is reported."""
    (tmp_path / "loop").symlink_to("loop")
    events = FileEvents([tmp_path / "loop" / "file"])
    assert not events.are_complete
    events.close()


def test_changes_from_elsewhere_are_not_reported_everywhere() -> None:
    """The kernel makes the files of /proc up as they are read, so it never says that one has changed."""
    events = FileEvents([Path("/proc/self/status")])
    assert not events.are_complete
    events.close()
