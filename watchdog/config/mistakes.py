"""The mistakes of a document against the schema, all of them, and what is left of it to check further."""

from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from watchdog.config.fields import describe, quote
from watchdog.config.keys import fields_of, homes, kind_of, table_at, title
from watchdog.config.problems import Location, Mistake
from watchdog.config.schema import PolicyTable

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
