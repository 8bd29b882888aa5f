"""The command `history`: on a terminal, in a pipe, and where there is nothing to report."""

import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from queue import Queue

import pytest
from click.testing import CliRunner

from tests.cli.session import on_a_terminal, session
from tests.journal.rig import begin
from tests.node.support import ENDS_WITH_US
from tests.report.build import climbing, entry, outcome, quiet, record, withheld
from tests.rig.command import COMMAND
from tests.worlds import at
from watchdog import clock
from watchdog.cli.client import inside
from watchdog.cli.main import ACTIONS, main
from watchdog.core.brakes import Brake
from watchdog.core.plan import Result
from watchdog.core.policy import Do, JournalLimits
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


def asked(journal: Path, *arguments: str) -> list[str]:
    """The sentences that `history` prints with these arguments."""
    done = CliRunner().invoke(main, ["history", "--json", "--journal", str(journal), *arguments])
    assert done.exit_code == 0, done.stderr
    return [row["sentence"] for row in json.loads(done.stdout)]


@pytest.mark.parametrize(
    ("since", "found"),
    [
        *(("2026-01-31", 3), ("2026-01-31T00:00", 3), ("2026-01-31 14:05:10 UTC", 2), ("2026-01-31T14:05:11Z", 1)),
        *(("2026-01-31T14:05:10.5", 1), ("2026-01-31T15:05:10+01:00", 2), ("2026-01-31t09:05:10-05:00", 2)),
        *(("2026-01-31T14:05", 2), ("2026-02-01", 1), ("90m", 0), ("0001-01-01", 3), ("999999999d", 3)),
    ],
)
def test_since_a_moment(since: str, found: int, tmp_path: Path) -> None:
    """A date or time is one of UTC unless it has an offset; what the program prints can be given back to it."""
    with closing(Journal.open(tmp_path / "journal.db", JournalLimits(), "n1")) as made:
        for moment in ("2026-01-31T00:00:00Z", "2026-01-31T14:05:10Z", "2026-02-01T00:00:00Z"):
            made.record_event("started", "s", replace(clock.now(), wall_s=datetime.fromisoformat(moment).timestamp()))
    assert len(asked(tmp_path / "journal.db", "--since", since)) == found


@pytest.mark.parametrize("command", ["history", "replay", "recommend"])
@pytest.mark.parametrize(
    "since", ["2026-02-30", "2026-1-31", "2026-01-31T25:00", "yesterday", "20260131", "-1d", "", "90"]
)
def test_since_what_is_no_moment(since: str, command: str) -> None:
    """The refusal names what was given and every form that is accepted."""
    done = CliRunner().invoke(main, [command, "--since", since], terminal_width=1000)
    assert done.exit_code == 2
    for form in (f"'--since': {since!r} is", "90m", "7d", "2026-01-31", "2026-01-31T14:05", "UTC", "+01:00"):
        assert form in done.stderr


def test_since_a_moment_to_come(journal: Path) -> None:
    """A local time given as if it were UTC may be in the future: the refusal has the present time."""
    done = CliRunner().invoke(main, ["history", "--journal", str(journal), "--since", "2999-01-01"])
    assert (done.exit_code, "'2999-01-01' is in the future: it is 20" in done.stderr) == (2, True)


def test_of_some_actions(tmp_path: Path) -> None:
    """`--action` gives every row that is about that action, from the intention to the freed memory, and no other."""
    path = tmp_path / "journal.db"
    with closing(Journal.open(path, JournalLimits(), "n1")) as made:
        action = begin(made)
        made.end(action, Result.DONE, "", at(32))
        made.released(action, at(33), 2.0, "")
        warned, held = outcome(entry(climbing(5), "warn")), withheld(Brake.PROTECTED)
        record(made, replace(quiet(0), outcomes=(warned,), plan=replace(quiet(0).plan, entries=(held,))))
    assert set(ACTIONS) == {do.value for do in Do}
    wanted = {
        name: CliRunner().invoke(main, ["history", "--json", "--journal", str(path), "--action", name])
        for name in ACTIONS
    }
    events = {name: [row["event"] for row in json.loads(done.stdout)] for name, done in wanted.items()}
    assert events["warn"] == ["warned"]
    assert {"intended", "signalled", "kill_ended", "released", "withheld"} <= set(events["kill"])
    assert events["evict"] == []
    both = asked(path, "--action", "warn", "--action", "kill")
    assert len(both) == len(events["warn"]) + len(events["kill"])
    done = CliRunner().invoke(main, ["history", "--journal", str(path), "--action", "evict", "--since", "2026-01-31"])
    assert "Nothing was decided or done with --action evict since 2026-01-31 00:00:00 UTC" in done.stderr


class Follower:
    """`history -f` in a pipe, its messages too; lines are read as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: Queue[str] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def see(self, text: str) -> str:
        """The next line, which has this text."""
        line = self._lines.get(timeout=60)
        assert text in line, line
        return line

    def interrupt(self) -> int:
        """Press Ctrl-C; the exit code, after no further line."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=60)
        assert self._lines.empty()
        return code


@contextmanager
def following(journal: Path, *arguments: str) -> Iterator[Follower]:
    # A job in the background of a shell ignores Ctrl-C, and so would what it starts.
    follow = ["env", "--default-signal=INT", str(COMMAND), "history", "--follow"]
    command = [*ENDS_WITH_US, *follow, "--journal", str(journal), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield Follower(process)
        finally:
            process.kill()


def write(journal: Path, *sentences: str) -> None:
    """A daemon that starts, and records these."""
    with closing(Journal.open(journal, JournalLimits(), "n1")) as made:
        for sentence in sentences:
            made.record_event("warned", sentence, clock.now())


def test_following(journal: Path) -> None:
    """`-f` prints what is there, then each row as it is written and in the same columns, and Ctrl-C ends it quietly."""
    with following(journal) as shown:
        head = shown.see("TIME")
        at = head.index("MESSAGE")
        assert shown.see("gpu-watchdog has begun").index("gpu-watchdog") == at
        shown.see(LONG)
        with closing(Journal.open(journal, JournalLimits(), "n1")) as made:
            for number in range(20):
                made.record_event("transferred", f"row {number}.", clock.now())
                assert shown.see(f"row {number}.").index("row") == at
        assert shown.interrupt() == 0


def test_following_for_other_programs(journal: Path) -> None:
    """With `--json` each row is one line of JSON, with the keys that the list without `-f` has."""
    with following(journal, "--json", "--pod", "a/trainer", "--action", "kill") as shown:
        with closing(Journal.open(journal, JournalLimits(), "n1")) as made:
            made.record_event("stopped", "about no pod", clock.now())
            begin(made)
        assert set(json.loads(shown.see("intended"))) == {"at", *HistoryRow.__slots__}
        assert json.loads(shown.see("signalled"))["do"] == "kill"
        assert shown.interrupt() == 0


def test_following_a_journal_that_comes_and_goes(tmp_path: Path) -> None:
    """One that does not exist yet, is replaced, deleted or damaged is waited for and read again, and it says so."""
    path = tmp_path / "journal.db"
    with following(path) as shown:
        shown.see("TIME")
        shown.see(f"there is no journal {path}")
        for text in ("this does not show", "get pods", "history"):
            shown.see(text)
        shown.see("Waiting for it.")
        write(path, "one", "two")
        shown.see("one")
        shown.see("two")
        for file in tmp_path.iterdir():
            file.rename(file.with_name(f"old-{file.name}"))
        shown.see(f"there is no journal {path}")
        shown.see("Waiting for it.")
        write(path, "three")
        shown.see("Another file is in place of journal")
        shown.see("three")
        aside = path.rename(tmp_path / "aside.db")
        shown.see(f"there is no journal {path}")
        shown.see("Waiting for it.")
        write(tmp_path / "new.db", "four")
        aside.write_bytes((tmp_path / "new.db").read_bytes())
        aside.rename(path)  # as when a new file gets the inode of a deleted one
        shown.see("Another file is in place of journal")
        shown.see("four")
        path.write_bytes(b"damaged" * 1000)
        shown.see("is damaged")
        shown.see("Waiting for it.")
        path.unlink()
        shown.see(f"there is no journal {path}")
        shown.see("Waiting for it.")
        assert shown.interrupt() == 0


def test_following_what_is_no_journal(tmp_path: Path) -> None:
    """A file that will never be a journal is an error at once, as without `-f`."""
    text = tmp_path / "policy.toml"
    text.write_text('mode = "observe"\n', encoding="utf-8")
    done = CliRunner().invoke(main, ["history", "--json", "-f", "--journal", str(text)])
    assert (done.exit_code, "check that --journal names the journal" in done.stderr) == (1, True)


def test_following_until_nobody_reads(journal: Path) -> None:
    """`history -f | head -1` ends with its reader, although nothing more is written."""
    command = f"{COMMAND} history -f --action evict --journal {journal} | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.split()[0], done.stderr) == ("TIME", "")


def test_following_until_its_input_ends(journal: Path) -> None:
    """In a pod nothing else tells the command that its caller has gone; what is typed ends nothing."""
    command = [COMMAND, "history", "--follow", "--until-eof", "--journal", journal]
    with subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("x")
        process.stdin.flush()
        assert process.stdout.readline().startswith("TIME")
        with closing(Journal.open(journal, JournalLimits(), "n1")) as made:
            made.record_event("transferred", "a later row.", clock.now())
        assert any("a later row." in line for line in iter(process.stdout.readline, ""))
        process.stdin.close()
        assert process.wait(60) == 0


def test_following_on_a_terminal(journal: Path) -> None:
    """In colour, within the terminal's width, and Ctrl-C leaves the terminal as it was."""
    with session(columns=80, command=(COMMAND, "history", "-f", "--journal", journal)) as shown:
        shown.wait(lambda screen: "veriff.com/gpu-memory" in screen.usual)
        write(journal, f"later {LONG}")
        shown.wait(lambda screen: screen.usual.count("veriff.com/gpu-memory") == 2)
        shown.type("\x03")
        assert shown.end() == 0
        assert shown.after == shown.before
    assert max(map(len, shown.screen.usual.splitlines())) <= 80
    assert "later" in shown.screen.usual


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_it_fits_a_terminal(journal: Path, columns: int) -> None:
    """Sentences are beside the other columns if there is room for words, and else below their row, titles too."""
    with closing(Journal.open(journal, JournalLimits(), "n1")) as made:
        made.record_event("transferred", LONG, clock.now())
    lines = on_a_terminal("history", "--journal", journal, columns=columns, NO_COLOR="1").splitlines()
    assert max(map(len, lines)) <= columns
    assert (lines[0].split(), lines[1].split()[0]) == (
        (["TIME", "EVENT"], "MESSAGE") if columns < 80 else (["TIME", "EVENT", "MESSAGE"], lines[1].split()[0])
    )
    assert " ".join(" ".join(lines).split()).count(LONG) == 2
    # In the pod that a person outside has it run in, there is no terminal.
    there = CliRunner().invoke(main, ["history", "--journal", str(journal), "--width", str(columns)])
    assert there.stdout.splitlines() == lines
