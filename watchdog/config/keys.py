"""What the schema says of itself: the keys of each table, for error lines and for the policy reference."""

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from watchdog.config.declaration_schema import Table
from watchdog.config.fields import Kind
from watchdog.config.problems import Location
from watchdog.config.schema import PolicyTable


def fields_of(table: type[Table]) -> dict[str, FieldInfo]:
    """The fields of a table by the keys that the file has for them."""
    return {field.alias or name: field for name, field in table.model_fields.items()}


def table_of(field: FieldInfo) -> type[Table] | None:
    """The table that a field holds, or a list of them; None where it holds a value."""
    annotation = field.annotation
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, Table):
            return candidate
    return None


def is_list(field: FieldInfo) -> bool:
    """Whether the file has a list there."""
    return get_origin(field.annotation) is list


def kind_of(field: FieldInfo) -> Kind[Any] | None:
    """The kind of the field's values, of its items where it holds a list; None for tables."""
    metadata = [*field.metadata]
    for argument in get_args(field.annotation):
        metadata += getattr(argument, "__metadata__", ())
    return next((item for item in metadata if isinstance(item, Kind)), None)


def table_at(location: Location) -> type[Table] | None:
    """The table that stands at a place of the file; None where the schema has none."""
    table: type[Table] | None = PolicyTable
    for part in location:
        if isinstance(part, str):
            field = fields_of(table).get(part) if table else None
            table = table_of(field) if field else None
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
def homes() -> dict[str, tuple[str, ...]]:
    """Every key of the schema with the titles of the tables that have it."""
    found: dict[str, tuple[str, ...]] = {}
    for location, table in walk():
        for key in fields_of(table):
            found[key] = (*found.get(key, ()), title(location))
    return found


def walk(location: Location = (), table: type[Table] = PolicyTable) -> Iterator[tuple[Location, type[Table]]]:
    """Every table of the schema with its place, in which 0 stands for any number in a list."""
    yield location, table
    for key, field in fields_of(table).items():
        inner = table_of(field)
        if inner is not None:
            yield from walk((*location, key, 0) if is_list(field) else (*location, key), inner)
