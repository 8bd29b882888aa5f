"""A policy file's data <-> the compiled policy, by the fields of core.policy, and every mistake in it."""

import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

from cattrs import ClassValidationError, Converter, ForbiddenExtraKeysError, IterableValidationError
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from watchdog.config import fields as kinds
from watchdog.config.fields import EntriesError, FieldError, FieldKind, ShapeError, describe, quote
from watchdog.core.hours import Hours
from watchdog.core.policy import Declaration, Do, LimitAnnotation, Match, Policy, Step, Threshold, Window

Location = tuple[str | int, ...]
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,60}")


class Mistake(NamedTuple):
    """A mistake in a parsed document."""

    # The keys and list indices that lead to it.
    location: Location
    # What is wrong.
    what: str


def format_path(location: Location) -> str:
    """A location as the file's own keys: `rule[1].step[0].for`; a key with other characters is quoted."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f"{'.' if path else ''}{part if _BARE_KEY.fullmatch(part) else quote(part)}"
    return path


_BY_TYPE: Final[dict[Any, FieldKind[Any]]] = {
    bool: kinds.flag(),
    Hours: kinds.hours(),
    Threshold: kinds.threshold(),
    Window: kinds.window(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a table: the field of the compiled policy that it sets, and its possible values in the file."""

    name: str
    # The name of the field.
    field: str
    meaning: str
    default: Any
    # Whether it has no default: the field is None if the key is absent.
    is_optional: bool
    is_list: bool
    # That of the value, or of each value of a list; None where `table` is set.
    kind: FieldKind[Any] | None
    # The class of the table, or of each table of a list; None: the values are no tables.
    table: type[Any] | None

    @property
    def is_required(self) -> bool:
        """Whether the key must be there."""
        return self.default is MISSING


@cache
def kind_of(annotation: Any) -> FieldKind[Any] | None:
    """The kind of values for a type of core.policy; None for tables, lists and optional types."""
    if get_origin(annotation) is Annotated:
        name, *arguments = annotation.__metadata__
        kind: FieldKind[Any] = getattr(kinds, name)(*arguments)
        return kind
    if get_origin(annotation) is Literal:
        return kinds.choice(get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return kinds.choice(tuple(annotation), annotation)
    return _BY_TYPE.get(annotation)


@cache
def keys_of(table: Any) -> Mapping[str, Key]:
    """The keys of a table in their order; none for a class that is not a table."""
    if not is_dataclass(table):
        return {}
    annotations = get_type_hints(table, include_extras=True)
    keys = [_key(annotations[field.name], field) for field in fields(table) if field.metadata]
    return {key.name: key for key in keys}


def is_table(candidate: Any) -> bool:
    """Whether a type is a table of the file."""
    return isinstance(candidate, type) and bool(keys_of(candidate))


def _key(annotation: Any, field: Field[Any]) -> Key:
    # An optional key is `X | None`; `Annotated[int | None, ...]` is one kind of value.
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
    """The type of the table at a location of the file; None if there is none."""
    table: Any = Policy
    for part in location:
        if isinstance(part, str):
            key = keys_of(table).get(part)
            table = key.table if key is not None else None
    return table


def title(location: Location) -> str:
    """A table as written in the file: `[[rule.step]]`, `[allowance]`, `match` for an inline table, or the top."""
    names = [part for part in location if isinstance(part, str)]
    if not names:
        return "the top of the file"
    if isinstance(location[-1], int):
        return f"[[{'.'.join(names)}]]"
    return f"[{names[0]}]" if len(location) == 1 else f"`{names[-1]}`"


@cache
def titles_by_key() -> Mapping[str, tuple[str, ...]]:
    """For each key, the titles of the tables that have it."""
    titles: dict[str, tuple[str, ...]] = {}
    for location, table in walk():
        for name in keys_of(table):
            titles[name] = (*titles.get(name, ()), title(location))
    return titles


def walk(location: Location = (), table: Any = Policy) -> Iterator[tuple[Location, Any]]:
    """Every table with its location, in which 0 stands for any index of a list."""
    yield location, table
    for name, key in keys_of(table).items():
        if key.table is not None:
            yield from walk((*location, name, 0) if key.is_list else (*location, name), key.table)


# Tables of which only non-empty values are written; of the others every value that is not None.
_SPARSE: Final = (Declaration, LimitAnnotation, Match, Step)
_KEYS_OF_ACTIONS: Final = frozenset().union(*(do.keys for do in Do))
# What replaces a required key that is missing or wrong while the rest of the file is checked.
_STAND_INS: Final[dict[str, Any]] = {
    "name": "?",
    "above": "100%",
    "for": "0s",
    "do": "warn",
    "unit": "1",
    "resource": "example.com/unknown",
    "key": "unknown",
    "at_least": 1,
}
_MAX_HINTS: Final = 100  # another program's file may have thousands of unknown keys


class CheckedDocument(NamedTuple):
    """The result of checking a document."""

    # None if nothing usable is left.
    policy: Policy | None
    # What is left, with a stand-in for each required key.
    document: dict[str, Any]
    mistakes: tuple[Mistake, ...]
    # The locations whose values were removed or replaced.
    rejected: frozenset[Location]


def check_document(document: dict[str, Any]) -> CheckedDocument:
    """Structure a document; if it has mistakes, remove them from it and structure what is left."""
    try:
        return CheckedDocument(_converter().structure(document, Policy), document, (), frozenset())
    except ClassValidationError as error:
        errors = list(_errors(error, ()))
    meant = _meant(document, [location for location, error in errors if _is_unknown(error)])
    intended = frozenset(meant.values())
    mistakes = [
        Mistake(location, _describe(error, location, document, meant.get(location)))
        for location, error in errors
        if location not in intended  # reporting a misspelt key as missing too would turn one mistake into two
    ]
    rejected = {*intended, *(location for location, _ in errors)}
    rejected |= {_cut(document, location, is_unknown=_is_unknown(error)) for location, error in errors}
    try:
        policy = _converter().structure(document, Policy)
    except ClassValidationError:
        policy = None
    return CheckedDocument(policy, document, tuple(mistakes), frozenset(rejected))


def read_declaration(table: dict[str, Any]) -> Declaration:
    """A declaration from a table that is known to be valid."""
    return _converter().structure(table, Declaration)


def declaration_documents(declarations: Iterable[Declaration]) -> list[dict[str, Any]]:
    """Declarations as data, each with the scheme that it comes from; None for the policy's own."""
    return [{**_converter().unstructure(each), "scheme": each.scheme or None} for each in declarations]


def policy_document(policy: Policy) -> dict[str, Any]:
    """A policy as TOML or JSON data: every effective value, written so that it parses to the same policy."""
    own = tuple(each for each in policy.declarations if not each.scheme)
    document: dict[str, Any] = _converter().unstructure(replace(policy, declarations=own))
    if not document["brakes"]:
        del document["brakes"]
    return document


@cache
def _converter() -> Converter:
    converter = Converter(detailed_validation=True, forbid_extra_keys=True, unstruct_collection_overrides={tuple: list})
    for known in (bool, Do):  # cattrs' own hooks for these convert values, and precede those of a factory
        converter.register_structure_hook(known, _value_reader(known))
    converter.register_structure_hook_factory(_is_value, _value_reader)
    converter.register_unstructure_hook_factory(_is_value, _value_writer)
    converter.register_structure_hook_factory(_is_list, _list_reader)
    converter.register_structure_hook_factory(_is_limits, _limits_reader)
    converter.register_unstructure_hook_factory(_is_limits, _limits_writer)
    converter.register_structure_hook_factory(is_table, _table_reader)
    converter.register_unstructure_hook_factory(is_table, _table_writer)
    return converter


def _is_value(type_: Any) -> bool:
    return kind_of(type_) is not None


def _is_list(type_: Any) -> bool:
    return get_origin(type_) is tuple


def _is_limits(type_: Any) -> bool:
    return bool(type_ == tuple[LimitAnnotation, ...])


# Both hooks are for types that have a kind.
def _value_reader(type_: Any) -> Callable[[Any, Any], Any]:
    read = kind_of(type_).read  # type: ignore[union-attr]
    return lambda value, _: read(value)


def _value_writer(type_: Any) -> Callable[[Any], Any]:
    write: Callable[[Any], Any] = kind_of(type_).write  # type: ignore[union-attr]
    return write


def _list_reader(type_: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    items: Any = types.GenericAlias(list, get_args(type_)[:1])
    read = _expecting(list, converter.get_structure_hook(items))
    return lambda value, _: tuple(read(value, items))


def _limits_reader(type_: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    """A list of limits; a text is the key of the only one, empty for none."""
    read, read_key = (
        _list_reader(type_, converter),
        _value_reader(get_type_hints(LimitAnnotation, include_extras=True)["key"]),
    )

    def read_limits(value: Any, _: Any) -> tuple[LimitAnnotation, ...]:
        if isinstance(value, str):
            return (LimitAnnotation(key=read_key(value, str)),) if value else ()
        limits: tuple[LimitAnnotation, ...] = read(value, type_)
        return limits

    return read_limits


def _limits_writer(type_: Any, converter: Converter) -> Callable[[Any], Any]:
    write = converter.get_unstructure_hook(LimitAnnotation)
    return lambda limits: limits[0].key if len(limits) == 1 and limits[0].unit is None else list(map(write, limits))


def _table_reader(table: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    return _expecting(dict, make_dict_structure_fn(table, converter, **_overrides(table)))


def _expecting(expected: type, read: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A hook that rejects other types, which cattrs would iterate over."""

    def read_expected(value: Any, type_: Any) -> Any:
        if not isinstance(value, expected):
            raise ShapeError
        return read(value, type_)

    return read_expected


def _table_writer(table: Any, converter: Converter) -> Callable[[Any], dict[str, Any]]:
    write = make_dict_unstructure_fn(table, converter, **_overrides(table))

    def write_table(value: Any) -> dict[str, Any]:
        omitted = _KEYS_OF_ACTIONS - value.do.keys if table is Step else ()
        return {
            key: written
            for key, written in write(value).items()
            if written is not None and key not in omitted and (written or table not in _SPARSE)
        }

    return write_table


def _overrides(table: Any) -> dict[str, Any]:
    """The names of a table's fields in the file; fields that are not in the file are omitted."""
    names = {key.field: key.name for key in keys_of(table).values()}
    return {
        each.name: override(rename=names[each.name]) if each.name in names else override(omit=True)
        for each in fields(table)
    }


def _errors(error: Exception, at: Location) -> Iterator[tuple[Location, Exception]]:
    """The single errors of a group, with their locations."""
    if isinstance(error, ClassValidationError):
        names = {key.field: key.name for key in keys_of(error.cl).values()}
        of_keys, others = error.group_exceptions()
        for inner, key in of_keys:
            yield from _errors(inner, (*at, names[key.name]))
        for inner in others:
            yield from _errors(inner, at)
    elif isinstance(error, IterableValidationError):
        for inner, item in error.group_exceptions()[0]:
            yield from _errors(inner, (*at, item.index))
    elif isinstance(error, ForbiddenExtraKeysError):
        yield from (((*at, key), error) for key in sorted(error.extra_fields))
    elif isinstance(error, EntriesError):
        yield from (((*at, key), FieldError(reason)) for key, reason in error.entries)
    else:
        yield at, error


def _is_unknown(error: Exception) -> bool:
    return isinstance(error, ForbiddenExtraKeysError)


def _meant(document: dict[str, Any], unknown: list[Location]) -> dict[Location, Location]:
    """The locations of misspelt keys, each with the location meant: that of an absent key of the same table."""
    guesses = ((location, _closest(location, _at(document, location[:-1]))) for location in unknown[:_MAX_HINTS])
    return {location: (*location[:-1], key) for location, key in guesses if key}


def _closest(location: Location, present: dict[str, Any]) -> str | None:
    key = str(location[-1])
    absent = [name for name in keys_of(table_at(location[:-1])) if name not in present]
    likeness = 0.8 if key in titles_by_key() else 0.6  # a key of another table is more likely misplaced than misspelt
    close = get_close_matches(key, absent, n=1, cutoff=likeness) if len(key) < 60 else []
    return close[0] if close else None


def _at(document: dict[str, Any], location: Location) -> Any:
    value: Any = document
    for part in location:
        value = value[part]
    return value


def _cut(document: dict[str, Any], location: Location, *, is_unknown: bool) -> Location:
    """Remove a location from the document, or put in something harmless; return the location that has changed."""
    table = table_at(location)
    if isinstance(location[-1], int) and table is None:
        location = location[:-1]  # a list of names is removed as a whole
    target, last = _at(document, location[:-1]), location[-1]
    key = keys_of(table_at(location[:-1])).get(str(last))
    if isinstance(last, int) and table is not None:
        target[last] = {name: _STAND_INS[name] for name, each in keys_of(table).items() if each.is_required}
    elif key is not None and key.is_required and not is_unknown:
        target[last] = _STAND_INS[key.name]
    else:
        target.pop(last, None)
    return location


def _describe(error: Exception, location: Location, document: dict[str, Any], meant: Location | None) -> str:
    if isinstance(error, KeyError):
        kind = keys_of(table_at(location[:-1]))[str(location[-1])].kind
        return f"is required: {kind.words if kind else 'a table'}"
    if isinstance(error, ForbiddenExtraKeysError):
        hint = f"did you mean {quote(str(meant[-1]))}?" if meant else _hint(location)
        return f"is not a key of {title(location[:-1])}; {hint}"
    if isinstance(error, ShapeError):
        return f"must be {_shape(location)}, not {describe(_at(document, location))}"
    return str(error)


def _shape(location: Location) -> str:
    key = keys_of(table_at(location[:-1])).get(str(location[-1]))
    if key is None or not key.is_list:
        is_own = isinstance(location[-1], int) or len(location) == 1
        return f"a table, written {title(location) if is_own else f'{location[-1]} = {{ ... }}'}"
    if key.table is None:
        return 'a list of texts in quotes, like ["a", "b"]'
    text = "the key of an annotation in quotes, or " if key.table is LimitAnnotation else ""
    return f"{text}a list of tables, each written {title((*location, 0))}"


def _hint(location: Location) -> str:
    titles = titles_by_key().get(str(location[-1]))
    if titles:
        return f"it belongs to {' or '.join(titles)}"
    return f"its keys are {', '.join(keys_of(table_at(location[:-1])))}"
