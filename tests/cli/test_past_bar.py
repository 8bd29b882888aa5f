"""The bar of long work: on a terminal alone, by the time covered, and gone when the work is done."""

import json
import re
import sys
from pathlib import Path

import pytest

from tests.cli.session import on_a_terminal, session
from tests.past.runs import HIGH, LOW, recently

# Reads the recording of a journal, once the bar is there; the result goes to stdout.
CODE = """
import sys
from pathlib import Path
from watchdog.cli.past_bar import PastBar
from watchdog.journal.playback import recorded_cycles

def slowly(cycles, bar):
    for number, cycle in enumerate(cycles):
        yield cycle
        while "wait" in sys.argv and cycle.at.boottime_s == 1040 and bar._progress is None:
            yield cycle
    if "fail" in sys.argv:
        sys.exit("Error: so it ends")

with PastBar("Replaying", 0.0) as bar:
    read = len([*bar.over(slowly(recorded_cycles(Path(sys.argv[1]), 0.0, bar.begin), bar))])
print("result")
"""


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    recently(path, (40, LOW), (90, HIGH), (120, LOW))
    return path


def test_on_a_terminal(journal: Path) -> None:
    """The bar has the share of the recorded time, and nothing of it is left when the work is done, or has failed."""
    for how, end in (("wait", "result"), ("wait fail", "Error: so it ends")):
        command = (sys.executable, "-c", CODE, str(journal), *how.split())
        with session(columns=80, command=command) as shown:
            shown.end()
        written = shown.written.decode()
        assert re.search(r"Replaying .* 34%.* of 1m 59s", written), written
        assert "\x1b[?25l" not in written  # a program that is killed leaves no hidden cursor
        assert shown.screen.usual.strip() == end


def test_work_that_is_short_has_no_bar(journal: Path) -> None:
    """What takes no time prints its result alone."""
    with session(columns=80, command=(sys.executable, "-c", CODE, journal)) as shown:
        shown.end()
    assert shown.written == b"result\r\n"


PROBE = "import sys; from watchdog.cli.past_bar import PastBar; print(PastBar('', 0).over([]) != [])"


@pytest.mark.parametrize(
    ("redirected", "term", "is_shown"),
    [
        *(
            ("", "xterm", True),
            ("> out", "xterm", True),
            ("| cat > out", "xterm", False),
            ("2> errors", "xterm", False),
        ),
        *(("", "dumb", False), ("", "", False)),
    ],
)
def test_who_sees_a_bar(redirected: str, term: str, is_shown: bool, tmp_path: Path) -> None:
    """A terminal that can erase it again; not a log, and not beside a pipe, whose reader may use the terminal."""
    command = ("env", "-C", str(tmp_path), "sh", "-c", f'"$0" -c "$1" {redirected}', sys.executable, PROBE)
    with session(command=command, TERM=term) as shown:
        shown.end()
    out = tmp_path / "out"
    assert (out.read_text(encoding="utf-8") if out.exists() else shown.screen.usual).strip() == str(is_shown)


@pytest.mark.parametrize("command", ["replay", "recommend"])
def test_json_on_a_terminal(command: str, journal: Path) -> None:
    """What a terminal gets is the JSON alone, once the bar is gone."""
    policy = journal.with_name("policy.toml")
    policy.write_text('mode = "observe"\n', encoding="utf-8")
    assert json.loads(on_a_terminal(command, "--json", "--policy", policy, "--journal", journal))
