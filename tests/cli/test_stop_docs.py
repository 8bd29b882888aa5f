"""The documented commands to stop and resume work on any node, and resume none that others have stopped."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
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
    assert calls == "annotate node/n1 node/n3 node/n10 gpu-memory-watchdog/mode-\n"
    assert section.index("> stopped-before.txt") < section.index("annotate nodes --all")
