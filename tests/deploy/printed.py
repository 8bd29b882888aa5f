"""What the pages print for a shell: blocks of commands, and the files that they write; and helm run as printed."""

import re
import shlex
import subprocess
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tools import ROOT, kustomize
from tools.programs import helm

PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "deploy" / "chart" / "README.md")
_BLOCK: Final = re.compile(r"(?:^ {4,}\S.*\n)+", re.MULTILINE)
_FILE: Final = re.compile(r"^cat > (\S+) <<EOF\n(.*?)^EOF\n", re.MULTILINE | re.DOTALL)
_FENCE: Final = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
Objects = dict[tuple[str, str, str], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a page: the files that it writes, and its other commands in their order."""

    page: str
    files: Mapping[str, str]
    commands: tuple[str, ...]

    def __str__(self) -> str:
        """Name it in a test's name."""
        return f"{self.page}: {self.commands[-1][:50]}"


def blocks(page: Path) -> Iterator[Block]:
    """Every indented block of a page; continued lines are joined."""
    for found in _BLOCK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        text = textwrap.dedent(found)
        rest = _FILE.sub("", text).replace("\\\n", " ")
        lines = tuple(line.strip() for line in rest.splitlines() if line.strip())
        if lines:
            yield Block(page=str(page.relative_to(ROOT)), files=dict(_FILE.findall(text)), commands=lines)


def all_blocks() -> list[Block]:
    """Those of every page."""
    return [block for page in PAGES if "templates" not in page.parts for block in blocks(page)]


def rendered(command: str, folder: Path, platform: str) -> Objects:
    """What a printed `helm install` or `helm upgrade` comes to, its own files read from `folder`.

    By kind, namespace and name, without the labels of the release. Raises CalledProcessError where helm refuses it.
    """
    words = shlex.split(re.split(r" [>|] ", command)[0].replace("PLATFORM", platform))
    flags = [_there(word, folder) for word in words[2:] if word != "--install"]
    done = subprocess.run(
        [str(helm()), "template", *flags], check=True, capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    found = [each for each in yaml.safe_load_all(kustomize.OF_HELM.sub("", done.stdout)) if each is not None]
    return {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in found}


def _there(word: str, folder: Path) -> str:
    """A file of the reader's own is in their folder, those of the chart in the checkout."""
    name = word.removeprefix("policy=")
    return word.removesuffix(name) + str(folder / name) if (folder / name).is_file() else word


def daemonset(objects: Objects) -> Mapping[str, Any]:
    """The one DaemonSet among them."""
    ((_, found),) = ((key, each) for key, each in objects.items() if key[0] == "DaemonSet")
    return found
