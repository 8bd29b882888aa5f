"""Planted faults: each breaks one rule in a copy of the package, and the soak on that copy must find it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_FAILURE: Final = re.compile(r"seed '[^']+', step ([0-9]+): (.*)")
_STEPS: Final = 4000  # of an episode in which a fault is looked for
_ENOUGH: Final = 3  # episodes that find a fault


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a source file of the package; `old` stands there exactly once."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and the law that the soak must name; `seeds` is what the seeds begin with by which it is looked for."""

    name: str
    law: str
    edits: tuple[Edit, ...]
    seeds: str = "fault"


def broken(fault: Fault) -> dict[str, str]:
    """The texts of the files that a fault changes, changed; ValueError where one is not as the fault knows it."""
    texts: dict[str, str] = {}
    for edit in fault.edits:
        text = texts.get(edit.file) or (ROOT / "watchdog" / edit.file).read_text(encoding="utf-8")
        if text.count(edit.old) != 1:
            raise ValueError(f"{fault.name}: {edit.old!r} stands {text.count(edit.old)} times in {edit.file}, not once")
        texts[edit.file] = text.replace(edit.old, edit.new)
    return texts


def plant(fault: Fault, folder: Path) -> None:
    """Copy the package into a folder, and break it there."""
    shutil.copytree(ROOT / "watchdog", folder / "watchdog", ignore=shutil.ignore_patterns("__pycache__"))
    for file, text in broken(fault).items():
        (folder / "watchdog" / file).write_text(text, encoding="utf-8")


def hunt(folder: Path, seed: str, steps: int) -> str:
    """Run one episode on the package in a folder, in a process of its own; what it found, or empty."""
    command = [sys.executable, "-m", "tests.soak", "--episode", seed, "--steps", str(steps)]
    paths = os.pathsep.join((str(folder), str(ROOT)))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    return done.stdout + done.stderr


def is_found(fault: Fault, said: str) -> bool:
    """Whether an episode has failed with the law that the fault breaks."""
    match = _FAILURE.match(said)
    return match is not None and re.match(rf"{fault.law}\b", match[2]) is not None


def prove(fault: Fault, seeds: int) -> tuple[int, list[tuple[int, str]]]:
    """Try seeds until enough episodes have found the fault: how many were tried, and after how many steps by which."""
    found: list[tuple[int, str]] = []
    tried = 0
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        plant(fault, Path(folder))
        while tried < seeds and len(found) < _ENOUGH:
            seed = f"{fault.seeds}/{tried}"
            said = hunt(Path(folder), seed, _STEPS)
            tried += 1
            match = _FAILURE.match(said)
            if match is not None and is_found(fault, said):
                found.append((int(match[1]), seed))
    return tried, sorted(found)
