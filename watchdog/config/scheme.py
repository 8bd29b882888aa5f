"""The schemes: built-in declaration tables, one file per system in `schemes/`, and which of them a policy selects."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

ALL: Final = "*"
FOLDER: Final = Path(__file__).with_name("schemes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """The declaration tables of one system; its file has the same keys."""

    name: str
    # Its place among all.
    order: int
    description: str
    source: str
    unambiguous: bool
    # What to look up before relying on it: never empty for a scheme that is selected by name only.
    note: str
    tables: tuple[dict[str, Any], ...]

    @property
    def by_name_only(self) -> bool:
        """Whether `*` leaves it out: its unit depends on a setting that no pod shows, or tenants write its keys."""
        return not self.unambiguous or any("resource" not in table for table in self.tables)


@cache
def all_schemes() -> Mapping[str, Scheme]:
    """Every scheme by name, in the order in which `*` tries them."""
    made = (_read(file) for file in FOLDER.glob("*.toml"))
    return {each.name: each for each in sorted(made, key=lambda each: each.order)}


def select(names: Iterable[str] | None, *, has_own: bool) -> tuple[Scheme, ...]:
    """The schemes that a policy selects by valid names, each once; None: the key is absent.

    `*` stands for those that are not named, so that a name in front of it is tried first.
    """
    if names is None:
        names = () if has_own else (ALL,)
    names = tuple(names)
    rest = [name for name, each in all_schemes().items() if not each.by_name_only and name not in names]
    return tuple(all_schemes()[name] for given in names for name in (rest if given == ALL else (given,)))


def _read(file: Path) -> Scheme:
    document = tomllib.loads(file.read_text(encoding="utf-8"))
    tables = tuple(document.pop("declaration"))
    return Scheme(tables=tables, note=document.pop("note", ""), **document)
