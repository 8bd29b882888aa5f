"""The table of broken policies: tests/config/broken_policies.txt, read."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("broken_policies.txt")
_MACROS: Final = {
    "%declaration": '[[declaration]]\nresource = "example.com/gpu-memory"\nunit = "1"',
    "%rule": '[[rule]]\nname = "r"\nmatch = {}',
    "%step": '[[rule.step]]\nabove = "110%"\nfor = "10s"\ndo = "kill"',
    "%warn": '[[rule.step]]\nabove = "100%"\nfor = "30s"\ndo = "warn"',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One mistake: its path, or its line where the file itself is at fault, and a part of what is said."""

    path: str
    line: int | None
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A broken policy and all of its mistakes."""

    title: str
    text: str
    expected: tuple[Expected, ...]


def read_broken() -> list[Broken]:
    """Every case of the file."""
    cases = FILE.read_text(encoding="utf-8").split("\n===== ")[1:]
    return [_read_case(case) for case in cases]


def _read_case(case: str) -> Broken:
    title, _, rest = case.partition("\n")
    policy, _, mistakes = rest.partition("\n---\n")
    text = "\n".join(_MACROS.get(line, line) for line in policy.split("\n"))
    return Broken(title=title, text=f"{text}\n", expected=tuple(map(_read_expected, mistakes.strip().split("\n"))))


def _read_expected(line: str) -> Expected:
    place, arrow, what = line.partition("=> ")
    assert arrow, line
    named = re.fullmatch(r"(.*?)(?::(\d+))?", place.strip())
    assert named, line
    return Expected(path=named[1], line=int(named[2]) if named[2] else None, what=what)
