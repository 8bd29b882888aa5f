"""The rules of docs/rules.md and where they are cited: each citation names a rule, and each rule has a test."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.docs.test_docs import ROOT

RULES: Final = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
# Where rules are cited: text that people write. What is generated from it cites nothing else.
_FOLDERS: Final = (".github", "bench", "config", "deploy", "docs", "examples", "tests", "tools", "watchdog")
_SUFFIXES: Final = frozenset({".c", ".md", ".py", ".toml", ".yaml", ".yml"})

_HEADING: Final = re.compile(r"^### ((?:Promise|Law|Point) \d+): (?=\S)", re.MULTILINE)
# "Point 3", "law 10", "Points 15 and 18", "points 4 to 6", "Points 20, 27, 28, 33".
_ONE: Final = re.compile(r"\b(point|law|promise)\s+(\d+)\b", re.IGNORECASE)
_SEVERAL: Final = re.compile(r"\b(point|law|promise)s\s+(\d+(?:(?:,\s+|\s+and\s+|\s+to\s+)\d+)*)", re.IGNORECASE)
_DOCSTRING: Final = re.compile(r'^ *def test_.*?:\n +"""(.*?)"""', re.MULTILINE | re.DOTALL)
_QUOTED: Final = re.compile(r'\b([Ll]aw \d+)[,:] "([^"]+)"')

# Rules that no test cites, each with its reason.
_UNTESTED: Final = {
    "Law 12": "the program names no pod as the cause of another's harm, so there is nothing to test yet"
}


def _sections() -> dict[str, str]:
    """The text of each rule, on one line."""
    parts = _HEADING.split(RULES)[1:]
    texts = (" ".join(re.split(r"^## ", text, maxsplit=1, flags=re.MULTILINE)[0].split()) for text in parts[1::2])
    return dict(zip(parts[::2], texts, strict=True))


def _cited(text: str) -> Iterator[str]:
    """The rules that a text cites, each as `Point 3`."""
    for kind, number in _ONE.findall(text):
        yield f"{kind.capitalize()} {number}"
    for kind, listed in _SEVERAL.findall(text):
        numbers = [int(number) for number in re.findall(r"\d+", listed)]
        for first, last in re.findall(r"(\d+)\s+to\s+(\d+)", listed):
            numbers += range(int(first), int(last))
        yield from (f"{kind.capitalize()} {number}" for number in numbers)


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _files() -> Iterator[Path]:
    yield from ROOT.glob("*.md")
    for folder in _FOLDERS:
        yield from (path for path in (ROOT / folder).rglob("*") if path.suffix in _SUFFIXES)


def test_the_rules_are_numbered() -> None:
    """Each rule has one heading, in the order of its numbers, so that a citation leads to one place."""
    numbers = {"Promise": 4, "Law": 12, "Point": 45}
    wanted = [f"{kind} {number}" for kind, last in numbers.items() for number in range(1, last + 1)]
    assert _HEADING.findall(RULES) == wanted


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("Law 10 and point 39: ...", {"Law 10", "Point 39"}),
        ("Points 4 to 6: ...", {"Point 4", "Point 5", "Point 6"}),
        ("Points 20, 27,\n28 and 33", {"Point 20", "Point 27", "Point 28", "Point 33"}),
        ("laws 8 and 11, Promise 2", {"Law 8", "Law 11", "Promise 2"}),
        ("a point, and 3 more; the endpoint 4", set()),
    ],
)
def test_citations_are_found(text: str, cited: set[str]) -> None:
    """Rules are cited alone, in lists and in ranges."""
    assert set(_cited(text)) == cited


def test_every_cited_rule_exists() -> None:
    """Code, tests and docs cite no rule that docs/rules.md lacks."""
    known = _sections().keys()
    unknown = {
        f"{path.relative_to(ROOT)}: {rule}" for path in _files() for rule in _cited(_text(path)) if rule not in known
    }
    assert unknown == set()


def test_every_rule_is_cited_by_a_test() -> None:
    """Who changes a rule finds a test that protects it; the exceptions are those that are listed, and no others."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    tested = {rule for path in files for text in _DOCSTRING.findall(_text(path)) for rule in _cited(text)}
    assert _sections().keys() - tested == _UNTESTED.keys()


def test_laws_are_quoted_as_they_are_written() -> None:
    """What a test of a law quotes is in that law, word for word."""
    sections = _sections()
    texts = (_text(path) for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__))
    quotes = [(law.capitalize(), " ".join(quote.split())) for text in texts for law, quote in _QUOTED.findall(text)]
    assert len(quotes) >= 10
    assert [(law, quote) for law, quote in quotes if quote.casefold() not in sections[law].casefold()] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/index.md", "docs/architecture.md"])
def test_the_rules_are_found(page: str) -> None:
    """The pages that a newcomer reads first lead to the rules."""
    link = "rules.md" if page.startswith("docs/") else "docs/rules.md"
    assert f"]({link})" in (ROOT / page).read_text(encoding="utf-8")
