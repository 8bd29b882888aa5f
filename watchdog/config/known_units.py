"""What the schemes know of a key: its unit, compared with a table's, whatever pods write; and which of them read it."""

from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Final, Literal, NamedTuple

from watchdog.config.document import read_declaration
from watchdog.config.fields import quote
from watchdog.config.fields import unit as unit_kind
from watchdog.config.scheme import all_schemes
from watchdog.core.policy import Declaration

# Units of numbers that count devices or shares of them; in bytes, an operator may give each any size.
_COUNTS: Final = frozenset({"share", "cards", "mig", "named"})
_COMPARED: Final = frozenset({"resource", "annotation", "label", "unit", "per", "zero"})
_PARTS: Final = ("percent", "fraction")  # the smaller one first
# No share of a card is smaller: the context of a process alone takes more (docs/policy.md, allowance).
_SMALLEST_SHARE: Final = 64 * 2**20


class UnitDoubt(NamedTuple):
    """Why a table's unit is probably a mistake."""

    # A sentence.
    what: str
    # If it is, every pod would be over.
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


def schemes_of(resource: str) -> tuple[str, ...]:
    """The schemes that read a resource, in their order."""
    readers = (known.scheme for known in _tables() if known.resource and fnmatchcase(resource, known.resource))
    return tuple(dict.fromkeys(readers))


def zero_of(declaration: Declaration) -> Literal["none", "unset"]:
    """What 0 means to the scheme that knows the key of a table; `none` if no scheme does."""
    return "unset" if any(known.zero == "unset" and _same_key(declaration, known) for known in _tables()) else "none"


def per_of(declaration: Declaration) -> Declaration | None:
    """The table of a scheme that knows the key and gives its amount per GPU or in total, unlike this one."""
    alike = (known for known in _tables() if known.unit == declaration.unit and _same_key(declaration, known))
    return next((known for known in alike if known.per != declaration.per), None)


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
            read = replace(read_declaration(kept), scheme=scheme.name)
            yield read
            if "unless" in table:  # a number of cores, `at_least` of which make a card
                yield replace(read, resource=table["unless"]["resource"], unit="cards")


def _same_key(one: Declaration, other: Declaration) -> bool:
    is_alike = fnmatchcase(one.key, other.key) or fnmatchcase(other.key, one.key)
    return one.kind == other.kind and is_alike


def _is_smaller(own: Declaration, known: Declaration) -> bool | None:
    """Whether a unit is smaller than the known one (True) or larger (False); None: neither, or it can't be compared."""
    one, other = own.unit, known.unit
    if one == other or own.of is not None:
        return None
    if isinstance(one, int):
        if isinstance(other, int):
            return one < other
        return True if other in _PARTS or one < _SMALLEST_SHARE else None
    if one in _COUNTS:
        return None if other in _COUNTS or (one == "share" and other in _PARTS) else False
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
            f"{what}: every pod would be over its limit, so the table applies to no pod; write unit = {other}, or "
            "unit_differs = true if this cluster's unit really is smaller"
        )
    return (
        f"{what}: no pod would ever be over its limit; write unit = {other}, or unit_differs = true if this cluster's "
        "unit really is larger"
    )
