"""Planted faults: each breaks one rule in a copy of the package, and the soak on that copy must find it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
_FAILURE: Final = re.compile(r"seed '[^']+', step ([0-9]+): (.*)")
_STEPS: Final = 4000  # of an episode in which a fault is looked for
_ENOUGH: Final = 3  # episodes that find a fault


class Edit(NamedTuple):
    """A change of a source file of the package; `old` occurs there exactly once."""

    file: str
    old: str
    new: str


class Fault:
    """Edits that break a rule, the law that the soak must name then, and the episode (seed, steps) that finds it."""

    def __init__(self, law: str, episode: tuple[str, int], *edits: Edit) -> None:
        self.law, self.episode, self.edits = law, episode, edits

    def broken(self) -> dict[str, str]:
        """The texts of the files that it changes, changed; ValueError if one is not as expected."""
        texts: dict[str, str] = {}
        for edit in self.edits:
            text = texts.get(edit.file) or (ROOT / "watchdog" / edit.file).read_text(encoding="utf-8")
            if text.count(edit.old) != 1:
                raise ValueError(f"{edit.old!r} occurs {text.count(edit.old)} times in {edit.file}, not once")
            texts[edit.file] = text.replace(edit.old, edit.new)
        return texts

    def plant(self, folder: Path) -> None:
        """Copy the package, with its bytecode for what stays as it is, and break the rule there."""
        shutil.copytree(ROOT / "watchdog", folder / "watchdog")
        for file, text in self.broken().items():
            (folder / "watchdog" / file).write_text(text, encoding="utf-8")

    def found_at(self, failure: str) -> int | None:
        """The step at which an episode failed with the law that the fault breaks; None if it did not."""
        match = _FAILURE.match(failure)
        return int(match[1]) if match is not None and re.match(rf"{self.law}\b", match[2]) else None

    def other_seeds(self, count: int) -> list[str]:
        """Seeds for histories of the kind in which the fault shows."""
        kind = self.episode[0].partition("/")[0]
        return [f"{kind}/{number}" for number in range(count)]


def hunt(folder: Path, seed: str, steps: int = _STEPS) -> str:
    """Run one episode on the package in a folder, in a process of its own; its failure, or empty."""
    command = [sys.executable, "-m", "tests.soak", "--episode", seed, "--steps", str(steps)]
    paths = os.pathsep.join((str(folder), str(ROOT)))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


def prove(fault: Fault, seeds: int) -> tuple[int, list[tuple[int, str]]]:
    """Try seeds until enough episodes have found the fault: how many were tried, and after how many steps by which."""
    found: list[tuple[int, str]] = []
    tried = 0
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        fault.plant(Path(folder))
        for seed in fault.other_seeds(seeds):
            step = fault.found_at(hunt(Path(folder), seed))
            found += [] if step is None else [(step, seed)]
            tried += 1
            if len(found) == _ENOUGH:
                break
    return tried, sorted(found)
