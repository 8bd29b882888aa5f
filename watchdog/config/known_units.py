"""A table's unit, compared with that of the scheme that knows its key; nothing that a pod wrote counts."""

from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Final, NamedTuple

from watchdog.config.document import read_declaration
from watchdog.config.fields import quote
from watchdog.config.fields import unit as unit_kind
from watchdog.config.scheme import all_schemes
from watchdog.core.policy import Declaration

# Units of numbers that count devices or shares of them; in bytes, an operator may give each any size.
_COUNTS: Final = frozenset({"share", "cards", "mig"})
_COMPARED: Final = frozenset({"resource", "annotation", "label", "unit"})
_PARTS: Final = ("percent", "fraction")  # the smaller one first
# No share of a card is smaller: the context of a process alone takes more (docs/policy.md, allowance).
_SMALLEST_SHARE: Final = 64 * 2**20


class UnitDoubt(NamedTuple):
    """Why a table's unit is probably a mistake, as a sentence; if it `is_smaller`, every pod would be over."""

    what: str
    is_smaller: bool


def doubt_of(declaration: Declaration) -> UnitDoubt | None:
    """What is wrong with the unit of a table of the policy; None: nothing, or the operator says that it is right."""
    if declaration.unit_differs:
        return None
    doubts = [
        UnitDoubt(_sentence(declaration, known, is_smaller=is_smaller), is_smaller)
        for known in _tables()
        if _same_key(declaration, known) and (is_smaller := _is_smaller(declaration, known)) is not None
    ]
    return min(doubts, key=lambda doubt: not doubt.is_smaller, default=None)


def is_known(declaration: Declaration) -> bool:
    """Whether some scheme knows the key of a table."""
    return any(_same_key(declaration, known) for known in _tables())


@cache
def _tables() -> tuple[Declaration, ...]:
    """Every table of every scheme."""
    return tuple(_read_all())


def _read_all() -> Iterator[Declaration]:
    for scheme in all_schemes().values():
        for table in scheme.tables:
            # Only key and unit are compared.
            kept = {key: value for key, value in table.items() if key in _COMPARED}
            yield replace(read_declaration(kept), scheme=scheme.name)


def _same_key(one: Declaration, other: Declaration) -> bool:
    is_alike = fnmatchcase(one.key, other.key) or fnmatchcase(other.key, one.key)
    return one.kind == other.kind and is_alike


def _is_smaller(own: Declaration, known: Declaration) -> bool | None:
    """Whether a unit is smaller than the known one (True) or larger (False); None: neither, or it can't be compared."""
    one, other = own.unit, known.unit
    if other in (one, "named") or own.of is not None:
        return None
    if isinstance(one, int):
        if isinstance(other, int):
            return one < other
        return True if other in _PARTS or one < _SMALLEST_SHARE else None
    if one in _COUNTS:
        return None if other in _COUNTS else False
    if isinstance(other, int):
        return False
    # A percentage of a card is less than any share of one; a fraction of 1 is a whole card.
    return None if (one, other) == ("fraction", "cards") else one == "percent"


def _sentence(own: Declaration, known: Declaration, *, is_smaller: bool) -> str:
    write = unit_kind().write
    one, other = (f'"{write(each.unit)}"' for each in (own, known))
    differs = "smaller" if is_smaller else "larger"
    what = f"{one} is {differs} than {other}, the unit of {quote(own.key)} in scheme {known.scheme}"
    if is_smaller:
        return (
            f"{what}: every pod would be over its limit, so the table applies to nobody; write unit = {other}, or "
            "unit_differs = true if this cluster's unit really is smaller"
        )
    return (
        f"{what}: no pod would ever be over its limit; write unit = {other}, or unit_differs = true if this cluster's "
        "unit really is larger"
    )
