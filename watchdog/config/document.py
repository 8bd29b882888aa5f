"""A policy file's data into the compiled policy and back, by the fields of core.policy, and every mistake in it."""

import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, NamedTuple, get_args, get_origin

from cattrs import ClassValidationError, Converter, ForbiddenExtraKeysError, IterableValidationError
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from watchdog.config.fields import EntriesError, FieldError, ShapeError, describe, quote
from watchdog.config.mistakes import Mistake
from watchdog.config.tables import (
    Key,
    Location,
    expect_kind,
    is_table,
    keys_of,
    kind_of,
    table_at,
    title,
    titles_by_key,
)
from watchdog.core.policy import Declaration, Do, Match, Policy, Step

# Tables in which only what says something is written; in the others every value is, except where there is none.
_SPARSE: Final = (Declaration, Match, Step)
_IDLE: Final = {Do.WARN: ("scope", "grace"), Do.KILL: ("repeat",), Do.EVICT: ("scope", "repeat")}
# What stands in for a required key that is missing or wrong while the rest of the file is checked.
_STAND_INS: Final[dict[str, Any]] = {
    "name": "?",
    "above": "100%",
    "for": "0s",
    "do": "warn",
    "unit": "1",
    "resource": "example.com/unknown",
    "at_least": 1,
}
_MAX_HINTS: Final = 100  # another program's file may have thousands of unknown keys


class Checked(NamedTuple):
    """What is found in a document.

    `policy` is None if nothing is left of it; `document` is what is left, with a stand-in for each required key;
    `rejected` has the places whose values say nothing about the rest.
    """

    policy: Policy | None
    document: dict[str, Any]
    mistakes: tuple[Mistake, ...]
    rejected: frozenset[Location]


def check_document(document: dict[str, Any]) -> Checked:
    """Read a document; where it has mistakes, cut them out of it and read what is left."""
    try:
        return Checked(_converter().structure(document, Policy), document, (), frozenset())
    except ClassValidationError as error:
        errors = list(_errors(error, ()))
    meant = _meant(document, [location for location, error in errors if _is_unknown(error)])
    intended = frozenset(meant.values())
    mistakes = [
        Mistake(location, _say(error, location, document, meant.get(location)))
        for location, error in errors
        if location not in intended  # to report that a misspelt key is missing as well would make two mistakes of one
    ]
    rejected = {*intended, *(location for location, _ in errors)}
    rejected |= {_cut(document, location, is_unknown=_is_unknown(error)) for location, error in errors}
    try:
        policy = _converter().structure(document, Policy)
    except ClassValidationError:
        policy = None
    return Checked(policy, document, tuple(mistakes), frozenset(rejected))


def policy_document(policy: Policy) -> dict[str, Any]:
    """Return a policy as TOML or JSON would hold it: every effective value, in texts that read as the same policy."""
    document: dict[str, Any] = _converter().unstructure(policy)
    if not document["brakes"]:
        del document["brakes"]
    return document


@cache
def _converter() -> Converter:
    converter = Converter(detailed_validation=True, forbid_extra_keys=True, unstruct_collection_overrides={tuple: list})
    for known in (bool, Do):  # cattrs' own hooks of these convert, and go before those of a factory
        converter.register_structure_hook(known, _reader(known))
    converter.register_structure_hook_factory(_is_value, _reader)
    converter.register_unstructure_hook_factory(_is_value, _writer)
    converter.register_structure_hook_factory(_is_list, _list_reader)
    converter.register_structure_hook_factory(is_table, _table_reader)
    converter.register_unstructure_hook_factory(is_table, _table_writer)
    return converter


def _is_value(type_: Any) -> bool:
    return kind_of(type_) is not None


def _is_list(type_: Any) -> bool:
    return get_origin(type_) is tuple


def _reader(type_: Any) -> Callable[[Any, Any], Any]:
    read = expect_kind(type_).read
    return lambda value, _: read(value)


def _writer(type_: Any) -> Callable[[Any], Any]:
    write: Callable[[Any], Any] = expect_kind(type_).write
    return write


def _list_reader(type_: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    items: Any = types.GenericAlias(list, get_args(type_)[:1])
    read = _expecting(list, converter.get_structure_hook(items))
    return lambda value, _: tuple(read(value, items))


def _table_reader(table: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    return _expecting(dict, make_dict_structure_fn(table, converter, **_overrides(table)))


def _expecting(expected: type, read: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A hook that refuses what cattrs would take apart or iterate over, whatever it is."""

    def read_expected(value: Any, type_: Any) -> Any:
        if not isinstance(value, expected):
            raise ShapeError
        return read(value, type_)

    return read_expected


def _table_writer(table: Any, converter: Converter) -> Callable[[Any], dict[str, Any]]:
    write = make_dict_unstructure_fn(table, converter, **_overrides(table))

    def write_table(value: Any) -> dict[str, Any]:
        unsaid = _IDLE[value.do] if table is Step else ()
        return {
            key: written
            for key, written in write(value).items()
            if written is not None and key not in unsaid and (written or table not in _SPARSE)
        }

    return write_table


def _overrides(table: Any) -> dict[str, Any]:
    """The names that the fields of a table have in the file; what is not in the file is passed over."""
    names = {key.field: key.name for key in keys_of(table).values()}
    return {
        each.name: override(rename=names[each.name]) if each.name in names else override(omit=True)
        for each in fields(table)
    }


def _errors(error: Exception, at: Location) -> Iterator[tuple[Location, Exception]]:
    """The single errors of a group with their places."""
    if isinstance(error, ClassValidationError):
        names = {key.field: key.name for key in keys_of(error.cl).values()}
        of_keys, others = error.group_exceptions()
        for each, of_key in of_keys:
            yield from _errors(each, (*at, names[of_key.name]))
        for each in others:
            yield from _errors(each, at)
    elif isinstance(error, IterableValidationError):
        for each, of_item in error.group_exceptions()[0]:
            yield from _errors(each, (*at, of_item.index))
    elif isinstance(error, ForbiddenExtraKeysError):
        yield from (((*at, key), error) for key in sorted(error.extra_fields))
    elif isinstance(error, EntriesError):
        yield from (((*at, key), FieldError(reason)) for key, reason in error.entries)
    else:
        yield at, error


def _is_unknown(error: Exception) -> bool:
    return isinstance(error, ForbiddenExtraKeysError)


def _meant(document: dict[str, Any], unknown: list[Location]) -> dict[Location, Location]:
    """The places of misspelt keys, each with the place that was meant: one of the same table that is not there."""
    found = ((location, _closest(location, _at(document, location[:-1]))) for location in unknown[:_MAX_HINTS])
    return {location: (*location[:-1], key) for location, key in found if key}


def _closest(location: Location, present: dict[str, Any]) -> str | None:
    key = str(location[-1])
    absent = [name for name in _keys_at(location[:-1]) if name not in present]
    likeness = 0.8 if key in titles_by_key() else 0.6  # a key of another table is rather misplaced than misspelt
    close = get_close_matches(key, absent, n=1, cutoff=likeness) if len(key) < 60 else []
    return close[0] if close else None


def _keys_at(location: Location) -> Mapping[str, Key]:
    table = table_at(location)
    return keys_of(table) if table else {}


def _at(document: dict[str, Any], location: Location) -> Any:
    value: Any = document
    for part in location:
        value = value[part]
    return value


def _cut(document: dict[str, Any], location: Location, *, is_unknown: bool) -> Location:
    """Take a place out of the document, or put something harmless in; return the place that has changed."""
    table = table_at(location)
    if isinstance(location[-1], int) and table is None:
        location = location[:-1]  # a list of names goes as a whole
    target, last = _at(document, location[:-1]), location[-1]
    key = _keys_at(location[:-1]).get(str(last))
    if isinstance(last, int) and table is not None:
        target[last] = {name: _STAND_INS[name] for name, each in keys_of(table).items() if each.is_required}
    elif key is not None and key.is_required and not is_unknown:
        target[last] = _STAND_INS[key.name]
    else:
        target.pop(last, None)
    return location


def _say(error: Exception, location: Location, document: dict[str, Any], meant: Location | None) -> str:
    if isinstance(error, KeyError):
        kind = _keys_at(location[:-1])[str(location[-1])].kind
        return f"is required: {kind.words if kind else 'a table'}"
    if isinstance(error, ForbiddenExtraKeysError):
        hint = f"did you mean {quote(str(meant[-1]))}?" if meant else _hint(location)
        return f"is not a key of {title(location[:-1])}; {hint}"
    if isinstance(error, ShapeError):
        return f"must be {_shape(location)}, not {describe(_at(document, location))}"
    return str(error)


def _shape(location: Location) -> str:
    key = _keys_at(location[:-1]).get(str(location[-1]))
    if key is None or not key.is_list:
        is_own = isinstance(location[-1], int) or len(location) == 1
        return f"a table, written {title(location) if is_own else f'{location[-1]} = {{ ... }}'}"
    if key.table is None:
        return 'a list of texts in quotes, like ["a", "b"]'
    return f"a list of tables, each written {title((*location, 0))}"


def _hint(location: Location) -> str:
    titles = titles_by_key().get(str(location[-1]))
    if titles:
        return f"it belongs to {' or '.join(titles)}"
    return f"its keys are {', '.join(_keys_at(location[:-1]))}"
