"""`python -m tools.mutation`: which small faults in the daemon's own functions the tests find.

Takes a sample of mutants of the functions of `SCOPE`, tries each in a copy of the package against the tests that call
the function (cheapest first), an episode of the soak and a few real daemons, and keeps in `mutants.json` what killed
it. A run that was interrupted resumes where it stopped. `--again` finds the same mutants by function and line,
wherever these are by now, tries first the test that killed each, and fails where one survives that was killed.

It needs root, for a PID namespace, so that no mutant can signal a process outside its own test; and cosmic-ray, which
is not among the locked dependencies: `pip install cosmic-ray`, best into a folder of its own (`--target`) that
PYTHONPATH names.
"""

import argparse
import ast
import importlib
import json
import os
import random
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from tools import ROOT
from tools.mutation_tests import PRODUCT, Calls, killer, passing, traced

KEPT: Final = Path(__file__).with_name("mutants.json")
SCOPE: Final = ("core/*.py", "daemon/*.py", "daemon/actions/*.py")
_BUILD: Final = ROOT / "build/mutation"
_SEED: Final = 1
_SURVIVED: Final = "survived"
_GONE: Final = "gone"
# Left out: what a type checker finds, what fails on any value, and what is the same for the values that there are.
_LEFT_OUT: Final = re.compile(
    r"Variable|RemoveDecorator|_(Eq|NotEq)_[^EN]|_[LG]tE?_[^LG]|_Is(Not)?_[^I]"
    r"|Binary.*_(Pow|LShift|RShift|Div|Mod|BitXor)$|Binary.*_[^B].*_Bit|Binary.*_Bit.*_[^BS]|Unary.*(Invert|UAdd|USub_)"
)
Span = tuple[tuple[int, int], tuple[int, int]]


@dataclass(kw_only=True, slots=True)
class Mutant:
    """A changed line of a function, wherever that is; `nth` of several alike. `result` says what killed it."""

    function: str
    before: str
    after: str
    nth: int = 0
    result: str | None = None
    again: str | None = None

    def key(self) -> tuple[str, str, str, int]:
        """What it is known by."""
        return self.function, self.before, self.after, self.nth

    @property
    def has_lost(self) -> bool:
        """Whether it survives now, and was killed."""
        return self.again == _SURVIVED and self.result not in {None, _SURVIVED}

    def __str__(self) -> str:
        return f"{self.function}: {self.before} -> {self.after}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a function can be mutated, and each way to: an operator, and which of its occurrences in the file."""

    path: Path
    function: str
    span: Span
    ways: tuple[tuple[str, int], ...]


@cache
def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


@cache
def _functions(path: Path) -> list[tuple[str, Span, list[Span]]]:
    """Each outermost function of a file: its qualified name, its lines, and what in it is no code that runs."""

    def inside(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, Span, list[Span]]]:
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                yield ".".join((*names, each.name)), _span(each), list(_dead(each))
            elif isinstance(each, ast.ClassDef):
                yield from inside(each, (*names, each.name))

    return list(inside(ast.parse(path.read_bytes()), ()))


def _span(node: Any) -> Span:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _dead(function: ast.AST) -> Iterator[Span]:
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.lineno, node.col_offset), _span(node.body[0])[0]
            yield from map(_span, node.decorator_list)
        elif isinstance(node, ast.AnnAssign):
            yield _span(node.annotation)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield _span(node)


@cache
def places(path: Path) -> tuple[Place, ...]:
    """Every place of a file where a function can be mutated, from top to bottom."""
    nodes = list(_library("ast").ast_nodes(_library("ast").get_ast(path.read_text(encoding="utf-8"))))
    functions = _functions(path)
    ways: defaultdict[tuple[str, Span], list[tuple[str, int]]] = defaultdict(list)
    for name in filter(lambda name: not _LEFT_OUT.search(name), _library("plugins").operator_names()):
        operator = _library("plugins").get_operator(name)()
        spans = [span for node in nodes for span in operator.mutation_positions(node)]
        for number, span in enumerate(spans):
            (_, _), (row, column) = span
            if "Binary" in name and not _lines(path)[row - 1].startswith(" ", column):
                continue  # a star that unpacks is no product
            for function, (begin, end), dead in functions:
                if begin <= span[0] <= end and not any(start <= span[0] < stop for start, stop in dead):
                    ways[function, span].append((name, number))
    return tuple(
        Place(path=path, function=function, span=span, ways=tuple(found))
        for (function, span), found in sorted(ways.items(), key=lambda item: (item[0][1], item[0][0]))
    )


def _library(module: str) -> Any:
    try:
        return importlib.import_module(f"cosmic_ray.{module}")
    except ImportError as error:
        sys.exit(f"cosmic-ray is missing ({error}): pip install cosmic-ray, into a folder that PYTHONPATH names")


@cache
def mutated(path: Path, operator: str, number: int) -> tuple[str, str, str] | None:
    """The line before, the line after, and the text of the file; None where nothing changes or nothing compiles."""
    text = path.read_text(encoding="utf-8")
    changed = _library("mutating").mutate_code(text, _library("plugins").get_operator(operator)(), number)
    pairs = zip(text.splitlines(), (changed or text).splitlines(), strict=False)
    before, after = next(((old.strip(), new.strip()) for old, new in pairs if old != new), ("", ""))
    try:
        compile(changed or "", str(path), "exec")
    except SyntaxError:
        return None
    return (before, after, changed) if before != after else None


def located(function: str, before: str, after: str) -> list[tuple[Path, str]]:
    """The files of the product that have this line in this function, with the text of each, mutated so."""
    found = []
    for path in sorted(PRODUCT.rglob("*.py")):
        lines = [line.strip() for line in _lines(path)]
        is_there = before in lines and function in {name for name, *_ in _functions(path)}
        for place in places(path) if is_there else ():
            if place.function == function and before in lines[place.span[0][0] - 1 : place.span[1][0]]:
                texts = filter(None, (mutated(path, *way) for way in place.ways))
                found += [(path, text) for old, new, text in texts if (old, new) == (before, after)]
    return found


def sample(number: int, known: list[Mutant]) -> list[Mutant]:
    """Draw `number` mutants, evenly over all places of the scope and none twice; the same ones from the same source."""
    choice = random.Random(f"{_SEED} {len(known)}")
    there = [place for glob in SCOPE for path in sorted(PRODUCT.glob(glob)) for place in places(path)]
    first = choice.random()
    drawn = [there[int((turn + first) * len(there) / number)] for turn in range(number)]
    taken, found = {mutant.key() for mutant in known}, list[Mutant]()
    for place in drawn + choice.sample(there, len(there)):
        for way in choice.sample(place.ways, len(place.ways)):
            if (change := mutated(place.path, *way)) and len(found) < number:
                before, after, text = change
                nth = located(place.function, before, after).index((place.path, text))
                mutant = Mutant(function=place.function, before=before, after=after, nth=nth)
                if mutant.key() not in taken:
                    taken.add(mutant.key())
                    found.append(mutant)
                    break
    return found


def _store(mutants: list[Mutant]) -> None:
    lines = ",\n".join(json.dumps(asdict(mutant), ensure_ascii=False) for mutant in mutants)
    scratch = KEPT.with_suffix(".new")
    scratch.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    scratch.replace(KEPT)


def _result(mutant: Mutant, calls: Calls) -> str:
    found = located(mutant.function, mutant.before, mutant.after)
    return (killer(*found[mutant.nth], mutant.function, calls) or _SURVIVED) if mutant.nth < len(found) else _GONE


def _try_what_killed(mutants: list[Mutant]) -> None:
    """Try each mutant against the test alone that killed it; one that survives that is left to the others."""
    untried = [mutant for mutant in mutants if mutant.again is None and mutant.result != _SURVIVED]
    known = passing(mutant.result for mutant in untried if mutant.result and "::" in mutant.result)
    for mutant in _shuffled([each for each in untried if each.result in known]):
        result = _result(mutant, {mutant.result or "": known[mutant.result or ""]})
        if result != _SURVIVED:
            mutant.again = result
            _store(mutants)
            print(f"{mutant}: {result}", flush=True)


def _say(title: str, mutants: list[Mutant]) -> None:
    print(f"{title}: {len(mutants)}", *map(str, mutants), sep="\n  ")


def main() -> int:
    """Try the mutants that were not tried; with `--again` all of them, and 1 where one survives that was killed."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    parser.add_argument("--again", action="store_true", help="try every mutant again, wherever its line is now")
    parser.add_argument("--number", type=int, default=300, help="how many to sample (default: %(default)s)")
    chosen = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("this needs root: every mutant runs in a PID namespace, where it can signal nothing but its own test")
    mutants = [Mutant(**each) for each in json.loads(KEPT.read_text(encoding="utf-8"))] if KEPT.exists() else []
    mutants = mutants or sample(chosen.number, [])
    if chosen.again:
        _try_what_killed(mutants)
    calls = traced(_BUILD)
    if chosen.again:
        for mutant in _shuffled([each for each in mutants if each.again is None or each.has_lost]):
            mutant.again = _result(mutant, calls)
            _store(mutants)
            print(f"{mutant}: {mutant.again}", flush=True)
        lost = [mutant for mutant in mutants if mutant.has_lost]
        gone = [mutant for mutant in mutants if mutant.again == _GONE]
        _say("gone", gone)
        _say("killed before, and surviving now", lost)
        if lost:
            return 1
        fresh = sample(len(gone), mutants)
        mutants = [replace(each, result=each.again, again=None) for each in mutants if each.again != _GONE] + fresh
    for mutant in _shuffled([each for each in mutants if each.result is None]):
        mutant.result = _result(mutant, calls)
        _store(mutants)
        print(f"{mutant}: {mutant.result}", flush=True)
    _say(_SURVIVED, [mutant for mutant in mutants if mutant.result == _SURVIVED])
    return 0


def _shuffled(mutants: list[Mutant]) -> list[Mutant]:
    return random.Random(_SEED).sample(mutants, len(mutants))  # so that the first of them say something about all


if __name__ == "__main__":
    sys.exit(main())
