"""Mistakes of a document against the schema, each a place and a sentence, and what is left of it to check further."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, NamedTuple, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from watchdog.config.fields import FieldKind, describe, quote
from watchdog.config.schema import PolicyTable, Table

Location = tuple[str | int, ...]
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,60}")


class Mistake(NamedTuple):
    """A mistake in a parsed document: the keys and list indices that lead to it, and what is wrong."""

    location: Location
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One mistake of a file, written as one line: `FILE: rule[1].step[0].for: what is wrong`.

    `path` is empty for what is wrong with the file as a whole. `line` counts from 1 and is set where it is known.
    `rule` is the name of the rule in which it is, for whoever does not want to count to `rule[7]`.
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

    def __init__(self, problems: Iterable[Problem]) -> None:
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


def kind_of(field: FieldInfo) -> FieldKind[Any] | None:
    """The kind of the field's values, of its items where it holds a list; None for tables."""
    metadata = [*field.metadata]
    for argument in get_args(field.annotation):
        metadata += getattr(argument, "__metadata__", ())
    return next((item for item in metadata if isinstance(item, FieldKind)), None)


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


# What stands in for a required key that is missing or wrong while the rest of the file is looked at.
_STAND_INS: Final[dict[str, Any]] = {
    "name": "?",
    "above": "100%",
    "for": "0s",
    "do": "warn",
    "unit": "1",
    "resource": "example.com/unknown",
    "at_least": 1,
}
_TABLE_LISTS: Final = ("declaration", "rule", "step")
_ROUNDS: Final = 4  # one for each level of tables, and one more
_MAX_HINTS: Final = 100  # another program's file may have thousands of unknown keys


class Checked(NamedTuple):
    """What the schema finds: the tables (None if nothing is left), the mistakes, and the places not to be trusted."""

    table: PolicyTable | None
    mistakes: tuple[Mistake, ...]
    spoilt: frozenset[Location]


def check_schema(document: dict[str, Any]) -> Checked:
    """Validate a document; where it has mistakes, cut them out of it and validate what is left."""
    mistakes: list[Mistake] = []
    spoilt: set[Location] = set()
    for _ in range(_ROUNDS):
        try:
            table = PolicyTable.model_validate(document)
        except ValidationError as error:
            errors = [(_location(details), details) for details in error.errors(include_url=False)]
            meant = _meant(document, errors)
            # To say that a misspelt key is missing as well would make two mistakes of one.
            known = frozenset(spoilt | set(meant.values()))
            for location, details in errors:
                if not any(location[:size] in known for size in range(1, len(location) + 1)):
                    mistakes.append(Mistake(location, _say(details, location, meant.get(location))))
                spoilt |= {location, _cut(document, location, unknown=details["type"] == "extra_forbidden")}
            spoilt |= set(meant.values())
        else:
            return Checked(table, tuple(mistakes), frozenset(spoilt))
    return Checked(None, tuple(mistakes), frozenset(spoilt))


def rule_names(document: dict[str, Any]) -> dict[int, str]:
    """The names of a document's rules by their number, as far as it has them; nothing else is looked at."""
    rules = document.get("rule")
    known = enumerate(rules if isinstance(rules, list) else ())
    return {n: rule["name"] for n, rule in known if isinstance(rule, dict) and isinstance(rule.get("name"), str)}


def rule_of(mistake: Mistake, names: dict[int, str]) -> str | None:
    """The name of the rule in which a mistake is; None where it is in none, or in its very name."""
    match mistake.location:
        case ("rule", int(number), first, *_) if first != "name":
            return names.get(number)
    return None


def _location(details: ErrorDetails) -> Location:
    location = details["loc"]
    return location[:-1] if location[-1] == "[key]" else location


def _meant(document: dict[str, Any], errors: list[tuple[Location, ErrorDetails]]) -> dict[Location, Location]:
    """The places of misspelt keys, each with the place that was meant: one of the same table that is not there."""
    unknown = [location for location, details in errors if details["type"] == "extra_forbidden"]
    found = ((location, _closest(location, _at(document, location[:-1]))) for location in unknown[:_MAX_HINTS])
    return {location: (*location[:-1], key) for location, key in found if key}


def _closest(location: Location, present: dict[str, Any]) -> str | None:
    key, table = str(location[-1]), table_at(location[:-1])
    absent = [name for name in fields_of(table) if name not in present] if table else []
    likeness = 0.8 if key in homes() else 0.6  # a key of another table is rather in the wrong place than misspelt
    close = get_close_matches(key, absent, n=1, cutoff=likeness) if len(key) < 60 else []
    return close[0] if close else None


def _at(document: dict[str, Any], location: Location) -> Any:
    value: Any = document
    for part in location:
        value = value[part]
    return value


def _cut(document: dict[str, Any], location: Location, *, unknown: bool) -> Location:
    """Take a place out of the document, or put something harmless in; give the place that has changed."""
    if isinstance(location[-1], int) and location[-2] not in _TABLE_LISTS:
        location = location[:-1]  # a list of names goes as a whole
    target, last = _at(document, location[:-1]), location[-1]
    if isinstance(last, int):
        target[last] = {}
    elif last in _STAND_INS and not unknown and not str(location[-2]).endswith("labels"):
        target[last] = _STAND_INS[last]
    else:
        target.pop(last, None)
    return location


def _say(details: ErrorDetails, location: Location, meant: Location | None) -> str:
    kind = details["type"]
    if kind == "value_error":
        return str(details["ctx"]["error"])
    if kind == "missing":
        return f"is required: {_words(location)}"
    if kind == "extra_forbidden":
        hint = f"did you mean {quote(str(meant[-1]))}?" if meant else _hint(location)
        return f"is not a key of {title(location[:-1])}; {hint}"
    if kind in ("model_type", "dict_type"):
        expected = f"a table, written {_example(location)}"
    elif location[-1] in _TABLE_LISTS:
        expected = f"a list of tables, each written {title((*location, 0))}"
    else:
        expected = 'a list of texts in quotes, like ["a", "b"]'
    return f"must be {expected}, not {describe(details['input'])}"


def _words(location: Location) -> str:
    table = table_at(location[:-1])
    kind = kind_of(fields_of(table)[str(location[-1])]) if table else None
    return kind.words if kind else "a table"


def _example(location: Location) -> str:
    if isinstance(location[-1], int) or len(location) == 1:
        return title(location)
    return f"{location[-1]} = {{ ... }}"


def _hint(location: Location) -> str:
    homes_of_key = homes().get(str(location[-1]))
    if homes_of_key:
        return f"it belongs to {' or '.join(homes_of_key)}"
    table = table_at(location[:-1])
    return f"its keys are {', '.join(fields_of(table) if table else ())}"
