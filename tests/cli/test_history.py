"""The command `history`: on a terminal, in a pipe, and where there is nothing to report."""

import json
import re
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.session import on_a_terminal
from watchdog import clock
from watchdog.cli.client import inside
from watchdog.cli.main import main
from watchdog.core.policy import JournalLimits
from watchdog.journal.journal import Journal
from watchdog.journal.read import HistoryRow, history
from watchdog.report.changes import ChangeKind
from watchdog.report.recent import EVENTS

LONG = "Pod ns/hog uses 9Gi of GPU memory, 709% of the 1.3Gi allowed (1Gi declared by veriff.com/gpu-memory)."
HEAD = "TIME                     EVENT    MESSAGE"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    with closing(Journal.open(path, JournalLimits(), "n1")) as made:
        made.record_event("started", "gpu-watchdog has begun", clock.now())
        made.record_event("warned", f"\x1b[2J{LONG}", clock.now())
    return path


def test_on_a_terminal(journal: Path) -> None:
    """The same table, sentences wrapped in their column, in colour unless NO_COLOR asks for none, and inert."""
    text = on_a_terminal("history", "--journal", journal)
    assert "\x1b[33mwarned\x1b[0m   \\x1b[2JPod" in text
    assert "\x1b[2J" not in text
    text = on_a_terminal("history", "--journal", journal, columns=84, NO_COLOR="1")
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 84
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == " ".join(HEAD.split())
    assert " ".join(lines).endswith(f"warned \\x1b[2J{LONG}")
    assert lines[-1] in LONG


def test_in_a_pipe(journal: Path) -> None:
    """A pipe gets the table with its titles, each occurrence on one line with its whole sentence, however long."""
    with closing(Journal.open(journal, JournalLimits(), "n1")) as made:
        made.record_event("warned", "long " * 800, clock.now())
    done = CliRunner().invoke(main, ["history", "--journal", str(journal)])
    assert (done.exit_code, done.stderr) == (0, "")
    head, *lines = done.stdout.splitlines()
    assert head == HEAD
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC  ", line) for line in lines)
    rest = [line[HEAD.index("EVENT") :] for line in lines]
    assert rest[:2] == ["started  gpu-watchdog has begun", f"warned   \\x1b[2J{LONG}"]
    assert rest[2].split() == ["warned", *["long"] * 800]


def test_events_are_in_words_for_people_and_by_their_names_for_programs(journal: Path) -> None:
    """A person reads "signal sent" and "kill ended"; the names of events stay in the JSON, also those to come."""
    with closing(Journal.open(journal, JournalLimits(), "n1")) as made:
        for name in (*ChangeKind, *EVENTS, "a_later_event"):
            made.record_event(name, "It was so.", clock.now())
    lines = CliRunner().invoke(main, ["history", "--journal", str(journal)]).stdout.splitlines()
    shown = [re.split(r"  +", line)[1] for line in lines[1:]]
    assert {"signal sent", "recorded first", "kill ended", "memory free", "data gap", "a later event"} <= set(shown)
    assert not [words for words in shown if "_" in words or words in ("intended", "signalled", "explained")]
    found = json.loads(CliRunner().invoke(main, ["history", "--json", "--journal", str(journal)]).stdout)
    assert {"intended", "signalled", "kill_ended", "a_later_event"} <= {row["event"] for row in found}


def test_for_other_programs(journal: Path) -> None:
    """As JSON, the columns of the journal."""
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
