"""Changes to files as the kernel reports them: however a file is changed, the loop wakes."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def watched(file: Path, *, is_complete: bool = True) -> Iterator[FileEvents]:
    """What is reported of a file; nothing yet."""
    found = FileEvents([file])
    assert (found.are_complete, found.silence()) == (is_complete, False)
    yield found
    found.close()
    found.close()


@pytest.fixture
def events(file: Path) -> Iterator[FileEvents]:
    """What is reported of that file."""
    with watched(file) as found:
        yield found


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
    with watched(stop) as events:
        for change, is_reported in ((lambda: journal.write_text("x"), False), (stop.touch, True), (stop.unlink, True)):
            change()
            assert events.silence() is is_reported
            events.renew()


def test_a_folder_that_is_not_there_reports_nothing(tmp_path: Path) -> None:
    """So the file has to be looked at now and then, until its folder is there."""
    with watched(tmp_path / "later" / "file", is_complete=False) as events:
        (tmp_path / "later").mkdir()
        events.renew()
        assert events.are_complete


def test_a_config_map_that_is_swapped(tmp_path: Path) -> None:
    """The kubelet renames one link over another, two links away from the file that is read."""
    policy = mount(tmp_path / "policy.toml", "a")
    with watched(policy) as events:
        for text in ("b", "c"):
            mount(policy, text)
            assert events.silence() is True
            events.renew()
            events.silence()


def test_links_that_lead_through_other_folders(tmp_path: Path, file: Path) -> None:
    """Absolute and relative ones, and `..`; a link that is set again is a change."""
    (tmp_path / "links").mkdir()
    first, second = tmp_path / "links" / "first", tmp_path / "links" / "second"
    first.symlink_to("second")
    second.symlink_to(tmp_path / "links" / ".." / "folder")
    with watched(first / "file") as events:
        for change in (lambda: file.write_text("b"), second.unlink):
            change()
            assert events.silence()


def test_where_nothing_is_reported(tmp_path: Path) -> None:
    """A link to itself leads nowhere, and the files of /proc are made up by the kernel as they are read."""
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path / "loop" / "file", Path("/proc/self/status")):
        with watched(path, is_complete=False):
            pass
