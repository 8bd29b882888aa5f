"""Writes docs/policy.md: docs/templates/policy.md with the reference of every key, from the fields of core.policy."""

import inspect
import json
import re
import sys
from collections.abc import Iterator
from typing import Any, Final

from tools import ROOT
from watchdog.config.document import Key, Location, keys_of, title, walk
from watchdog.core.policy import Allowance

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

    [protect]
    priority_namespaces = ["kube-system", "gpu-operator"]

    [brakes]
    node = "10 per 10m"
    owner = "3 per 10m"
    breaker = { offenders = "50%", of_at_least = 3, hold = "10m" }"""


def policy_reference() -> str:
    """The whole text of docs/policy.md."""
    text = TEMPLATE.read_text(encoding="utf-8")
    text = text.replace("{example}", EXAMPLE)
    return text.replace("{reference}", "\n".join(_tables()).rstrip())


def _tables() -> Iterator[str]:
    for location, table in walk():
        if table is Allowance and len(location) > 1:
            continue  # a declaration's own: its keys are those of [allowance], and its defaults are what that has
        yield f"## {_heading(location)}"
        yield ""
        yield _meaning_of(table)
        yield ""
        yield "| key | value | default | meaning |"
        yield "|---|---|---|---|"
        for key in keys_of(table).values():
            if location or not key.table:
                yield _row((*location, key.name), key)
        yield ""


def _heading(location: Location) -> str:
    if not location:
        return "Top-level keys"
    name = title(location)
    return f"`{name}`" if name.startswith("[") else f"{name} of {_heading(location[:-1])}"


def _meaning_of(table: Any) -> str:
    return " ".join(str(inspect.getdoc(table)).split("\n\n")[0].split())


def _row(location: Location, key: Key) -> str:
    texts = [_as_code(text) for text in (_value(location, key), key.meaning)]
    return f"| `{key.name}` | {texts[0]} | {_default(key)} | {texts[1]} |"


def _as_code(text: str) -> str:
    """Put what stands in quotes in code, so that its asterisks stay what they are."""
    parts = text.split("`")
    return "`".join(part if index % 2 else re.sub(r'"[^"]*"', r"`\g<0>`", part) for index, part in enumerate(parts))


def _value(location: Location, key: Key) -> str:
    if key.table is Allowance:
        return "a table, see `[allowance]`"
    if key.kind is None:
        return f"tables, see `{title((*location, 0))}`" if key.is_list else "a table, see below"
    return f"a list; each is {key.kind.words}" if key.is_list else key.kind.words


def _default(key: Key) -> str:
    if key.is_required:
        return "required"
    if key.kind is None or key.is_optional or key.default in ((), {}):
        return ""
    written = [key.kind.write(each) for each in key.default] if key.is_list else key.kind.write(key.default)
    return f"`{written:g}`" if isinstance(written, float) else f"`{json.dumps(written)}`"


def main() -> int:
    """Write the file, or with `--check` say whether it is as it would be written."""
    text = policy_reference()
    if "--check" in sys.argv[1:]:
        return 0 if REFERENCE.read_text(encoding="utf-8") == text else 1
    REFERENCE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
