"""docs/terminal.md: its one-liners are run as they are printed, and its picture needs nothing from elsewhere."""

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.cli.build import serving
from tests.docs.test_docs import ROOT
from tests.export.build import Story, climbing, entry, trainer_node
from tests.rig.command import COMMAND
from tests.worlds import at
from watchdog.cli.top_view import HELP
from watchdog.core.plan import Result
from watchdog.core.policy import JournalLimits
from watchdog.journal.journal import Journal

PAGE: Final = (ROOT / "docs" / "terminal.md").read_text(encoding="utf-8")
LINES: Final = re.findall(r"^    (gpu-watchdog (?:top|history) .*\|.*)$", PAGE, re.MULTILINE)
TOOLS: Final = {"jq": Path("/usr/bin/jq"), "awk": Path("/usr/bin/awk")}


def shell(line: str, **more: str) -> str:
    """The output of a line in a shell."""
    needed = next(tool for tool in TOOLS if f"| {tool} " in line)
    if not TOOLS[needed].exists():
        assert "CI" not in os.environ, f"{needed} is missing"
        pytest.skip(f"{needed} is missing")
    path = f"{COMMAND.parent}:{os.environ['PATH']}"
    own = {**os.environ, "PATH": path, **more}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, check=False, timeout=60, env=own
    )
    assert done.stderr == ""
    assert done.returncode == 0 or "-e" in line
    return done.stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (LINES[0], "a/trainer 122%\n"),
        (LINES[1], "a\ttrainer\t2405181686\n"),
        (LINES[2], "null\n"),
        (LINES[3], '{\n  "GPU-0": 1073741824\n}\n'),
    ],
)
def test_one_liners_of_top(line: str, expected: str) -> None:
    """Each prints what the page says that it prints, and still runs where a number is unknown."""
    with serving(climbing()) as url:
        assert shell(line, GPU_WATCHDOG_URL=url).replace("true", "null").replace("false", "null") == expected
    with serving(Story().see(trainer_node(None))) as url:
        shell(line, GPU_WATCHDOG_URL=url)


def test_the_one_liner_of_history(tmp_path: Path) -> None:
    """The actions of a day, one a line."""
    path = tmp_path / "journal.db"
    journal = Journal.open(path, JournalLimits(), "n1", {})
    due = entry()
    journal.end(journal.intend(due, due.targets, at(31)), Result.FAILED, "no such process", at(32))
    journal.close()
    line = LINES[4].replace("history", f"history --journal {path} --since 100000d")
    assert shell(line).split("\t")[1:] == ["a/trainer", "kill", "failed\n"]


def test_the_page_has_every_key() -> None:
    """The page names the keys that the help has."""
    (table,) = re.findall(r"\| key \| does \|\n(.*?)\n\n", PAGE, re.DOTALL)
    for keys, _ in HELP:
        for key in keys.split(", "):
            if key != "escape":
                assert f"`{key}`" in table or key in table, key


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "pictures").glob("*.svg")), ids=lambda path: path.name)
def test_pictures_need_nothing_from_elsewhere(picture: Path) -> None:
    """No font and no image is loaded from elsewhere by a reader's browser."""
    text = picture.read_text(encoding="utf-8")
    assert not re.findall(r"@import|@font-face|(?:href|src)=.?(?:https?:)?//|url\((?!#)", text)
