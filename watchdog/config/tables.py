"""The tables of a policy file and their keys, as the fields of core.policy describe them."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

from watchdog.config import amounts
from watchdog.config import fields as kinds
from watchdog.config.fields import FieldKind
from watchdog.core.hours import Hours
from watchdog.core.policy import Policy, Threshold, Window

Location = tuple[str | int, ...]

_BY_NAME: Final[dict[str, Any]] = {
    make.__name__: make
    for make in (
        *(amounts.cards_or_quantity, amounts.duration, amounts.percent, amounts.quantity, amounts.shares, amounts.unit),
        *(kinds.key, kinds.kind_pattern, kinds.labels, kinds.line, kinds.number, kinds.pattern, kinds.pod_pattern),
        *(kinds.resource, kinds.whole),
    )
}
_BY_TYPE: Final[dict[Any, FieldKind[Any]]] = {
    bool: kinds.flag(),
    Hours: kinds.hours(),
    Threshold: amounts.threshold(),
    Window: amounts.window(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a table: the field of the compiled policy that it sets, and what the file can have there.

    `kind` is that of the value, or of each of a list; it is None where `table` is a table, or a list of them. What
    `is_optional` has no default: the field is None where the key is absent.
    """

    name: str
    field: str
    meaning: str
    default: Any
    is_optional: bool
    is_list: bool
    kind: FieldKind[Any] | None
    table: type[Any] | None

    @property
    def is_required(self) -> bool:
        """Whether the key must be there."""
        return self.default is MISSING


@cache
def kind_of(annotation: Any) -> FieldKind[Any] | None:
    """The kind of values that a type of core.policy stands for; None for tables, lists and what is optional."""
    if get_origin(annotation) is Annotated:
        name, *arguments = annotation.__metadata__
        kind: FieldKind[Any] = _BY_NAME[name](*arguments)
        return kind
    if get_origin(annotation) is Literal:
        return kinds.choice(get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return kinds.choice(tuple(annotation), annotation)
    return _BY_TYPE.get(annotation)


def expect_kind(annotation: Any) -> FieldKind[Any]:
    """The kind of values that a type of core.policy stands for; TypeError if it has none."""
    kind = kind_of(annotation)
    if kind is None:
        raise TypeError(f"no kind of value is known for {annotation}")
    return kind


@cache
def keys_of(table: Any) -> Mapping[str, Key]:
    """The keys of a table in their order; none for a class that is not a table."""
    if not is_dataclass(table):
        return {}
    types = get_type_hints(table, include_extras=True)
    keys = [_key(types[each.name], each) for each in fields(table) if each.metadata]
    return {key.name: key for key in keys}


def is_table(candidate: Any) -> bool:
    """Whether a type is a table of the file."""
    return isinstance(candidate, type) and bool(keys_of(candidate))


def _key(annotation: Any, field: Field[Any]) -> Key:
    # What may be left out is `X | None`; `Annotated[int | None, ...]` is one kind of value.
    options = get_args(annotation)
    is_optional = NoneType in options
    if is_optional:
        annotation = next(option for option in options if option is not NoneType)
    is_list = get_origin(annotation) is tuple
    item = get_args(annotation)[0] if is_list else annotation
    kind = kind_of(item)
    return Key(
        name=field.metadata["key"] or field.name,
        field=field.name,
        meaning=field.metadata["meaning"],
        default=field.default if field.default_factory is MISSING else field.default_factory(),
        is_optional=is_optional,
        is_list=is_list,
        kind=kind,
        table=item if kind is None else None,
    )


def table_at(location: Location) -> Any:
    """The table that stands at a place of the file; None where there is none."""
    table: Any = Policy
    for part in location:
        if isinstance(part, str):
            key = keys_of(table).get(part) if table else None
            table = key.table if key else None
    return table


def title(location: Location) -> str:
    """A table as the file has it: `[[rule.step]]`, `[allowance]`, `match` of a table in braces, or the top."""
    names = [part for part in location if isinstance(part, str)]
    if not names:
        return "the top of the file"
    if isinstance(location[-1], int):
        return f"[[{'.'.join(names)}]]"
    return f"[{names[0]}]" if len(location) == 1 else f"`{names[-1]}`"


@cache
def titles_by_key() -> Mapping[str, tuple[str, ...]]:
    """The titles of the tables that have a key, by the key."""
    found: dict[str, tuple[str, ...]] = {}
    for location, table in walk():
        for name in keys_of(table):
            found[name] = (*found.get(name, ()), title(location))
    return found


def walk(location: Location = (), table: Any = Policy) -> Iterator[tuple[Location, Any]]:
    """Every table with its place, in which 0 stands for any number in a list."""
    yield location, table
    for name, key in keys_of(table).items():
        if key.table is not None:
            yield from walk((*location, name, 0) if key.is_list else (*location, name), key.table)
