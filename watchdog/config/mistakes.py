"""A mistake of a policy file: its place, what is wrong, and the line that says so."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from watchdog.config.fields import quote
from watchdog.config.tables import Location

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,60}")


class Mistake(NamedTuple):
    """A mistake in a parsed document: the keys and list indices that lead to it, and what is wrong."""

    location: Location
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyProblem:
    """One mistake of a file, written as one line: `FILE: rule[1].step[0].for: what is wrong`.

    `path` is empty for what is wrong with the file as a whole. `line` counts from 1 and is set where it is known.
    `rule` is the name of the rule it is in, for readers who do not want to count to `rule[7]`.
    """

    source: str
    what: str
    path: str = ""
    line: int | None = None
    rule: str | None = None

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        within = "" if self.rule is None else f" (rule {quote(self.rule)})"
        return f"{place}: {self.path}: {self.what}{within}" if self.path else f"{place}: {self.what}"


class PolicyError(Exception):
    """A policy that cannot be used; `problems` has every mistake that was found, in the order of their places."""

    def __init__(self, problems: Iterable[PolicyProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def format_path(location: Location) -> str:
    """Write a place as the file's own keys: `rule[1].step[0].for`; a key with other characters stands in quotes."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f"{'.' if path else ''}{part if _BARE_KEY.fullmatch(part) else quote(part)}"
    return path


def sort_key(mistake: Mistake) -> list[tuple[int, int, str]]:
    """An order of places in which list items stand by number, and what belongs together stands together."""
    return [(0, part, "") if isinstance(part, int) else (1, 0, part) for part in mistake.location]
