"""Commands of the docs, run as they are printed: to stop and resume any node, and the one-liners of terminal.md."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tests.cli.build import serving
from tests.docs.test_docs import ROOT
from tests.node.support import cannot_run
from tests.report.build import Story, climbing, entry, trainer_node
from tests.rig.command import COMMAND
from tests.worlds import at
from watchdog.cli.top_view import HELP
from watchdog.core.plan import Result
from watchdog.core.policy import JournalLimits
from watchdog.journal.journal import Journal

_TEXTS: Final = ("README.md", "docs/**/*.md", "deploy/**/*.y*ml", "deploy/**/*.txt", "watchdog/**/*.py")
_STOPS: Final = re.compile(r"kubectl\s+annotate\s+nodes?\s[^`|;]{0,120}?mode=observe(\s+--overwrite)?", re.DOTALL)
_FREES: Final = re.compile(r"kubectl\s+annotate\s+nodes\s+--all\s+gpu-memory-watchdog/mode-", re.DOTALL)
# What an operator's kubectl says of four nodes, of which one was stopped before; and its arguments.
_KUBECTL: Final = """#!/bin/sh
case "$1 $2 $3" in
"get nodes --no-headers") printf 'n1 <none>\\nn2 observe\\nn3 <none>\\nn10 <none>\\n' ;;
"get nodes -o") printf 'node/n1\\nnode/n2\\nnode/n3\\nnode/n10\\n' ;;
"annotate "*) echo "$@" >> calls ;;
*) exit 1 ;;
esac
"""


def _texts() -> Iterator[Path]:
    for pattern in _TEXTS:
        yield from sorted(ROOT.glob(pattern))


def test_every_command_to_stop_a_node_works() -> None:
    """Without --overwrite kubectl changes nothing on a node whose annotation has another value, and ends with 1."""
    found = {path: _STOPS.findall(path.read_text(encoding="utf-8")) for path in _texts()}
    assert sum(map(len, found.values())) > 12
    assert [str(path.relative_to(ROOT)) for path, flags in found.items() if not all(flags)] == []


def test_no_page_resumes_all_nodes() -> None:
    """`--all` would resume nodes that others have stopped; only the table of what an uninstallation leaves names it."""
    found = [(path, line) for path in _texts() for line in _FREES.findall(path.read_text(encoding="utf-8"))]
    assert [str(path.relative_to(ROOT)) for path, _ in found] in ([], ["docs/upgrade.md"])


@pytest.fixture
def section() -> str:
    """How to switch it off, of operations.md."""
    _, _, rest = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").partition("## Switch it off at once\n")
    return rest.partition("\n## ")[0]


def _block(section: str, word: str) -> str:
    """The one command, over several lines, in which this word is."""
    lines = "\n".join(line[4:] if line.startswith("    ") else "" for line in section.splitlines())
    commands = re.findall(r"^(?:.*\\\n)*.+$", lines, re.MULTILINE)
    (found,) = [command for command in commands if word in command]
    return str(found)


def test_a_node_that_was_stopped_before_stays_stopped(section: str, tmp_path: Path) -> None:
    """The commands of the page, in their order: the node that was stopped before keeps its annotation."""
    (tmp_path / "kubectl").write_text(_KUBECTL, encoding="utf-8")
    (tmp_path / "kubectl").chmod(0o755)
    script = "\n".join((_block(section, "> stopped-before.txt"), _block(section, "grep -vxFf stopped-before.txt")))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["sh", "-ec", script], cwd=tmp_path, env=environment, check=True, timeout=60)
    assert (tmp_path / "stopped-before.txt").read_text(encoding="utf-8") == "node/n2\n"
    calls = (tmp_path / "calls").read_text(encoding="utf-8")
    assert calls == "annotate node/n1 node/n3 node/n10 gpu-memory-watchdog/mode- gpu-memory-watchdog/reason-\n"
    assert section.index("> stopped-before.txt") < section.index("annotate nodes --all")


PAGE: Final = (ROOT / "docs" / "terminal.md").read_text(encoding="utf-8")
LINES: Final = re.findall(r"^    (gpu-watchdog (?:top(?! --cluster)|history) .*\|.*)$", PAGE, re.MULTILINE)


def shell(line: str, **more: str) -> str:
    """The output of a line in a shell."""
    needed = next(tool for tool in ("jq", "awk") if f"| {tool} " in line)
    if shutil.which(needed) is None:
        cannot_run(f"{needed} is missing")
    path = f"{COMMAND.parent}:{os.environ['PATH']}"
    own = {**os.environ, "PATH": path, **more}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, check=False, timeout=60, env=own
    )
    assert done.stderr == ""
    assert done.returncode == 0 or "-e" in line
    return done.stdout


@pytest.mark.slow
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
    path, due = tmp_path / "journal.db", entry()
    with closing(Journal.open(path, JournalLimits(), "n1")) as journal:
        journal.end(journal.intend(due, due.targets, at(31)), Result.FAILED, "no such process", at(32))
    line = LINES[4].replace("history", f"history --journal {path} --since 100000d")
    assert shell(line).split("\t")[1:] == ["a/trainer", "kill", "failed\n"]


def test_the_page_has_every_key() -> None:
    """The page names the keys that the help has, in its first table of keys."""
    table, *_ = re.findall(r"\| key \| does \|\n(.*?)\n\n", PAGE, re.DOTALL)
    for keys, _ in HELP:
        for key in keys.split(", "):
            if key != "escape":
                assert f"`{key}`" in table or key in table, key


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "pictures").glob("*.svg")), ids=lambda path: path.name)
def test_pictures_need_nothing_from_elsewhere(picture: Path) -> None:
    """No font and no image is loaded from elsewhere by a reader's browser."""
    text = picture.read_text(encoding="utf-8")
    assert not re.findall(r"@import|@font-face|(?:href|src)=.?(?:https?:)?//|url\((?!#)", text)
