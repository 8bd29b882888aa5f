"""The command `history`: on a terminal, in a pipe, and where there is nothing to report."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli.session import on_a_terminal
from tests.worlds import at
from watchdog import clock
from watchdog.cli.client import inside
from watchdog.cli.history import timeline
from watchdog.cli.main import main
from watchdog.core.policy import JournalLimits
from watchdog.journal.journal import Journal
from watchdog.journal.read import HistoryRow, history

LONG = "Pod ns/hog uses 9Gi of GPU memory, 709% of the 1.3Gi allowed (1Gi declared by veriff.com/gpu-memory)."
WIDE = """\
Friday 2027-01-15, times in UTC
TIME      EVENT    MESSAGE
08:00:00  warned   Pod ns/hog uses 9Gi of GPU memory, 709% of the 1.3Gi allowed
                   (1Gi declared by veriff.com/gpu-memory).
08:00:02  stopped  it has stopped

Saturday 2027-01-16, times in UTC
TIME      EVENT    MESSAGE
08:00:00  started  it has begun
"""


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    with closing(Journal.open(path, JournalLimits(), "n1")) as made:
        made.note("started", "gpu-watchdog has begun", clock.now())
        made.note("warning", f"\x1b[2J{LONG}", clock.now())
    return path


def row(event: str, sentence: str, second: float) -> HistoryRow:
    """An occurrence this many seconds after the test began."""
    values: dict[str, Any] = dict.fromkeys(HistoryRow.__slots__)
    moment = {"wall_s": at(second).wall_s, "boottime_s": second, "boot_id": "b", "node": "n1"}
    return HistoryRow(**{**values, **moment, "event": event, "sentence": sentence})


ROWS = (row("warned", LONG, 0), row("stopped", "it has stopped", 2), row("started", "it has begun", 86400))


def test_a_timeline() -> None:
    """One heading per day, then the time, the event, and the sentence beside it, in lines that fit."""
    assert timeline(ROWS, 80) == WIDE


@pytest.mark.parametrize("width", [1, 20, 79, 80, 200])
def test_lines_fit_and_nothing_is_lost(width: int) -> None:
    """At any width every word is there, and from 60 columns on no line is longer than the terminal."""
    lines = timeline(ROWS, width).splitlines()
    assert LONG.split() == [word for word in " ".join(lines).split() if word in LONG.split()]
    assert width < 60 or max(map(len, lines)) <= width


def test_a_timeline_in_colour() -> None:
    """Enforcement and what is withheld stand out; colour takes no room, and a sentence can bring none of its own."""
    plain = timeline(ROWS, 100)
    coloured = timeline((*ROWS[:1], replace(ROWS[1], sentence="\x1b[31mred")), 100, colour=True)
    assert "\x1b[33mwarned\x1b[0m   Pod" in coloured
    assert "\x1b[31mred" not in coloured
    assert "\x1b" not in plain


def test_on_a_terminal(journal: Path) -> None:
    """Wrapped at the terminal's width, in colour unless NO_COLOR asks for none, and inert."""
    text = on_a_terminal("history", "--journal", journal)
    assert ", times in UTC\x1b[0m\n" in text
    assert "\\x1b[2JPod ns/hog" in text
    text = on_a_terminal("history", "--journal", journal, columns=84, NO_COLOR="1")
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 84


def test_for_other_programs(journal: Path) -> None:
    """In a pipe one line has the moment, the event and the whole sentence; as JSON, the columns of the journal."""
    done = CliRunner().invoke(main, ["history", "--journal", str(journal)])
    assert (done.exit_code, done.stderr) == (0, "")
    lines = [line.split(" ", 1)[1] for line in done.stdout.splitlines()]
    assert lines == ["started: gpu-watchdog has begun", f"warning: \\x1b[2J{LONG}"]
    done = CliRunner().invoke(main, ["history", "--json", "--journal", str(journal)])
    rows = history(journal, None, 0)
    assert [set(each) for each in json.loads(done.stdout)] == [{"at", *HistoryRow.__slots__}] * 2
    assert [each["sentence"] for each in json.loads(done.stdout)] == [each.sentence for each in rows]


def test_where_there_is_nothing(journal: Path, tmp_path: Path) -> None:
    """No rows in that time is an answer; a missing journal or another file is exit code 1 with the remedy."""
    done = CliRunner().invoke(main, ["history", "--journal", str(journal), "--pod", "a/b", "--since", "90m"])
    assert (done.exit_code, done.stdout) == (0, "")
    assert "about pod a/b in the last 90m" in done.stderr
    done = CliRunner().invoke(main, ["history", "--pod", "a/b", "--journal", str(tmp_path / "nowhere.db")])
    assert (done.exit_code, f"there is no journal {tmp_path / 'nowhere.db'}" in done.stderr) == (1, True)
    assert inside("history", "--pod", "a/b") in done.stderr
    text = tmp_path / "policy.toml"
    text.write_text('mode = "observe"\n', encoding="utf-8")
    done = CliRunner().invoke(main, ["history", "--journal", str(text)])
    assert (done.exit_code, "check that --journal names the journal" in done.stderr) == (1, True)
