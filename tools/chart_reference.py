"""Writes docs/chart.md: docs/templates/chart.md with every value of the chart, from the comments of values.yaml.

`python -m tools.chart_reference` writes it again; a value without a comment is an error.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from tools import ROOT
from tools.chart import CHART

TEMPLATE: Final = ROOT / "docs" / "templates" / "chart.md"
REFERENCE: Final = ROOT / "docs" / "chart.md"
_KEY: Final = re.compile(r"^( *)([A-Za-z]\w*):")


class UndocumentedError(ValueError):
    """A value that no comment explains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value: its path, its default, what it means, and what it may be; a group of values has no default."""

    path: tuple[str, ...]
    default: object
    means: str
    one_of: tuple[str, ...]
    is_group: bool

    @property
    def row(self) -> str:
        """Its line in the table."""
        default = "" if self.is_group else f"`{json.dumps(self.default)}`"
        means = self.means + (f" One of {', '.join(f'`{each}`' for each in self.one_of)}." if self.one_of else "")
        return f"| `{'.'.join(self.path)}` | {default} | {means} |".replace("  ", " ")


def values() -> Iterator[Value]:
    """Every value in the order of values.yaml. Raises UndocumentedError."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    comments = dict(_comments(text))
    yield from _below((), yaml.safe_load(text), schema, comments)


def _below(
    path: tuple[str, ...],
    content: Mapping[str, Any],
    schema: Mapping[str, Any],
    comments: Mapping[tuple[str, ...], str],
) -> Iterator[Value]:
    for key, default in content.items():
        here, own = (*path, key), schema["properties"][key]
        if here not in comments:
            raise UndocumentedError(f"deploy/chart/values.yaml: {'.'.join(here)} has no comment above it")
        # What is a type of Kubernetes is one value, whatever stands in it.
        is_group = isinstance(default, dict) and key != "resources" and "properties" in own
        yield Value(
            path=here,
            default=default,
            means=comments[here],
            one_of=tuple(own.get("enum", ())),
            is_group=is_group,
        )
        if is_group:
            yield from _below(here, default, own, comments)


def _comments(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """The comment right above each key, in one line."""
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        key = _KEY.match(line)
        if line.lstrip().startswith("#"):
            comment.append(line.strip().removeprefix("#").strip())
            continue
        if key is not None:
            path = [*path[: len(key[1]) // 2], key[2]]
            if comment:
                yield tuple(path), " ".join(comment).replace("|", "\\|")
        comment = []


def chart_reference() -> str:
    """The whole text of docs/chart.md. Raises UndocumentedError."""
    table = "\n".join(("| value | default | meaning |", "|---|---|---|", *(each.row for each in values())))
    return TEMPLATE.read_text(encoding="utf-8").replace("{values}", table)


def main() -> None:
    """Write it."""
    REFERENCE.write_text(chart_reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
