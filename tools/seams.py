"""`python -m tools.seams`: how many files name a feature that has a place of its own, and which classes are large.

With `--files` it lists them. An addition should touch few existing files: those that name a feature without need are
the ones that the next addition would have to touch too.
"""

import argparse
import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools import ROOT

PRODUCT: Final = ROOT / "watchdog"
# A class above either of these says in its docstring why.
MOST_LINES: Final = 280
MOST_ATTRIBUTES: Final = 18


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature: how its name is written, and the files that are its own place (globs below the package)."""

    name: str
    written: re.Pattern[str]
    place: tuple[str, ...]


FEATURES: Final = (
    Feature("NVML", re.compile(r"nvml", re.IGNORECASE), ("node/**/*",)),
    Feature(
        "MPS",
        re.compile(r"\bMPS\b|Mps|(?<![A-Za-z])mps(?![a-z])"),
        (
            "node/mps*",
            "node/mps/*",
            "core/mps.py",
            "core/hazards.py",
            "daemon/actions/mps*",
            "report/sentences/draining.py",
            "cli/doctor/mps.py",
        ),
    ),
    Feature(
        "quiet ticks", re.compile(r"core\.quiet|QuietTicks|quiet.tick"), ("core/quiet.py", "daemon/quiet_ticks.py")
    ),
)


@dataclass(frozen=True, slots=True)
class LargeClass:
    """A class with more lines, or more attributes that its `__init__` sets, than a reader keeps in mind."""

    name: str
    path: Path
    lines: int
    attributes: int


def outside(feature: Feature, product: Path = PRODUCT) -> list[Path]:
    """The files that name a feature, but for those of its own place, by name."""
    own = {path for place in feature.place for path in product.glob(place)}
    named = (path for path in product.rglob("*") if path.suffix in {".py", ".html", ".toml"} and path not in own)
    return sorted(path for path in named if feature.written.search(path.read_text(encoding="utf-8")))


def large_classes(product: Path = PRODUCT) -> list[LargeClass]:
    """The classes that are above `MOST_LINES` or `MOST_ATTRIBUTES`, by file."""
    found = (each for path in sorted(product.rglob("*.py")) for each in _classes(path))
    return [each for each in found if each.lines > MOST_LINES or each.attributes > MOST_ATTRIBUTES]


def _classes(path: Path) -> Iterator[LargeClass]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield LargeClass(name=node.name, path=path, lines=lines, attributes=len(_attributes(node)))


def _attributes(of: ast.ClassDef) -> set[str]:
    """The attributes that `__init__` sets; a dataclass has fields instead, and none of these."""
    begun = [each for each in of.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    return {
        node.attr
        for function in begun
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", action="store_true", help="list the files too")
    arguments = parser.parse_args()
    for feature in FEATURES:
        files = outside(feature)
        print(f"{feature.name}: named in {len(files)} files outside its own place")
        for path in files if arguments.files else ():
            print(f"  {path.relative_to(ROOT)}")
    large = large_classes()
    print(f"classes above {MOST_LINES} lines, or {MOST_ATTRIBUTES} attributes that __init__ sets: {len(large)}")
    for each in large:
        print(f"  {each.path.relative_to(ROOT)}: {each.name}, {each.lines} lines, {each.attributes} attributes")


if __name__ == "__main__":
    main()
