"""Writes docs/policy.md: docs/templates/policy.md with the reference of every key, from the schema that is checked."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic.fields import FieldInfo

from watchdog.config.mistakes import Location, fields_of, is_list, kind_of, table_of, title, walk
from watchdog.config.schema import Table

ROOT: Final = Path(__file__).parents[2]
TEMPLATE: Final = ROOT / "docs" / "templates" / "policy.md"
REFERENCE: Final = ROOT / "docs" / "policy.md"
EXAMPLE: Final = """\
    mode = "enforce"

    [[declaration]]
    resource = "veriff.com/gpu-memory"
    unit = "1"

    [allowance]
    per_context = "512Mi"
    percent = "2%"

    [[rule]]
    name = "everything"
    match = {}

    [[rule.step]]
    above = "100%"
    for = "5s"
    do = "warn"

    [[rule.step]]
    above = "110%"
    for = "30s"
    do = "kill"
    grace = "10s"

    [[rule.step]]
    above = "150%"
    for = "10s"
    do = "kill"
    grace = "0s"

    [brakes]
    node = "10 per 10m"
    owner = "3 per 10m\""""


def policy_reference() -> str:
    """The whole text of docs/policy.md."""
    text = TEMPLATE.read_text(encoding="utf-8")
    text = text.replace("{example}", EXAMPLE)
    return text.replace("{reference}", "\n".join(_tables()).rstrip())


def _tables() -> Iterator[str]:
    for location, table in walk():
        yield f"## {_heading(location)}"
        yield ""
        yield _meaning_of(table)
        yield ""
        yield "| key | value | default | meaning |"
        yield "|---|---|---|---|"
        for key, field in fields_of(table).items():
            if not (location == () and table_of(field)):
                yield _row((*location, key), key, field)
        yield ""


def _heading(location: Location) -> str:
    if not location:
        return "The top of the file"
    name = title(location)
    return f"`{name}`" if name.startswith("[") else f"{name} of {_heading(location[:-1])}"


def _meaning_of(table: type[Table]) -> str:
    text = " ".join((table.__doc__ or "").split())
    _, colon, meaning = text.partition(": ")
    text = meaning if colon and text.startswith("`[") else text
    return text[0].upper() + text[1:]


def _row(location: Location, key: str, field: FieldInfo) -> str:
    texts = [_as_code(text) for text in (_value(location, field), field.description or "")]
    return f"| `{key}` | {texts[0]} | {_default(field)} | {texts[1]} |"


def _as_code(text: str) -> str:
    """Put what stands in quotes in code, so that its asterisks stay what they are."""
    parts = text.split("`")
    return "`".join(part if index % 2 else re.sub(r'"[^"]*"', r"`\g<0>`", part) for index, part in enumerate(parts))


def _value(location: Location, field: FieldInfo) -> str:
    if table_of(field) is not None:
        return f"tables, see `{title((*location, 0))}`" if is_list(field) else "a table, see below"
    kind = kind_of(field)
    words = kind.words if kind else ""
    if is_list(field):
        return f"a list; each is {words}"
    return "a table of labels and their values" if "labels" in str(location[-1]) else words


def _default(field: FieldInfo) -> str:
    kind = kind_of(field)
    if field.is_required():
        return "required"
    if kind is None or field.default in (None, {}, []):
        return ""
    written = (
        [kind.write(each) for each in field.default] if isinstance(field.default, list) else kind.write(field.default)
    )
    return f"`{json.dumps(written)}`"


def main() -> int:
    """Write the file, or with `--check` say whether it is as it would be written."""
    text = policy_reference()
    if "--check" in sys.argv[1:]:
        return 0 if REFERENCE.read_text(encoding="utf-8") == text else 1
    REFERENCE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
