"""Writes docs/doctor.md: docs/templates/doctor.md with every problem that doctor can find, from its code."""

import ast
import inspect
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pynvml

from tools import ROOT
from watchdog.cli.doctor import CHECKS
from watchdog.cli.doctor.finding import Check, Purpose
from watchdog.node.drivers.nvml_calls import REMEDIES

TEMPLATE: Final = ROOT / "docs" / "templates" / "doctor.md"
REFERENCE: Final = ROOT / "docs" / "doctor.md"
STATES: Final = ("ok", "warning", "missing")


@dataclass(frozen=True)
class Case:
    """One result that a check can have, as it stands in its code: `{NAMES}` in braces stand for what varies."""

    state: str
    what: str
    remedy: str = ""


def cases(check: Check) -> list[Case]:
    """Every result in the code of a check and of the functions that it calls, those that are ok first."""
    return sorted(dict.fromkeys(_Reader(check.judge, {}).cases()), key=lambda case: STATES.index(case.state))


class _Reader:
    """Reads the calls of `ok`, `warning` and `missing` in the source of a function."""

    def __init__(self, function: Callable[..., object], arguments: Mapping[str, ast.expr]) -> None:
        """`arguments` are what its caller passes, by the names of the parameters."""
        self._globals: dict[str, Any] = getattr(function, "__globals__", {})
        self._body = ast.parse(textwrap.dedent(inspect.getsource(function)))
        assigned = [
            (target.id, node.value)
            for node in ast.walk(self._body)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        ]
        times = Counter(name for name, _ in assigned)
        # A text that several results share, such as a remedy.
        self._known = {**arguments, **{name: value for name, value in assigned if times[name] == 1}}

    def cases(self) -> Iterator[Case]:
        calls = [
            node for node in ast.walk(self._body) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        ]
        for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
            assert isinstance(call.func, ast.Name)
            argument = self._known.get(call.func.id)
            name = argument.id if isinstance(argument, ast.Name) else call.func.id
            called = self._globals.get(name)
            if name in STATES:
                yield Case(name, *map(self._text, call.args))
            elif inspect.isfunction(called) and called.__module__ == self._globals["__name__"]:
                arguments = dict(zip(inspect.signature(called).parameters, call.args, strict=False))
                yield from _Reader(called, arguments).cases()

    def _text(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value):
                text = str(value)
            case ast.JoinedStr(values):
                text = "".join(map(self._text, values))
            case ast.FormattedValue(value):
                text = self._text(value)
            case ast.BoolOp(values=[first, *_]):  # `problem.remedy or "..."`
                text = self._text(first)
            case ast.Attribute(attr=name):
                text = f"{{{name.upper()}}}"
            case ast.Name(name) if isinstance(value := self._known.get(name), (ast.Constant, ast.JoinedStr)):
                text = self._text(value)
            case ast.Name(name):
                constant = self._globals.get(name)
                text = constant if isinstance(constant, str) else f"{{{name.upper()}}}"
            case _:
                raise AssertionError(f"give a name to what is in the result: {ast.unparse(node)}")
        return text


def doctor_reference() -> str:
    """The whole text of docs/doctor.md."""
    text = TEMPLATE.read_text(encoding="utf-8")
    text = text.replace("{errors}", "\n".join(_errors()))
    return text.replace("{reference}", "\n".join(_checks()).rstrip())


def _checks() -> Iterator[str]:
    for check in CHECKS:
        yield f"## `{check.name}`"
        yield ""
        needed = "" if Purpose.OBSERVE in check.purposes else " Only needed for enforcing."
        yield f"{' '.join((check.judge.__doc__ or '').split())}{needed}"
        yield ""
        problems = [case for case in cases(check) if case.state != "ok"]
        if problems:
            yield "| status | what | remedy |"
            yield "|---|---|---|"
        for case in problems:
            yield f"| {case.state} | {_cell(case.what)} | {_cell(case.remedy)} |"
        if problems:
            yield ""


def _errors() -> Iterator[str]:
    # The words of pynvml for a code depend on whether a library has been loaded before; the names of nvml.h do not.
    names = {getattr(pynvml, name): name for name in sorted(dir(pynvml)) if name.startswith("NVML_ERROR_")}
    for code in sorted(REMEDIES):
        yield f"| {code} | `{names[code]}` | {_cell(REMEDIES[code])} |"


def _cell(text: str) -> str:
    """Drop the braces, separate names from the word before them, and keep a pipe from ending the table's cell."""
    return re.sub(r"\{([A-Z_]+)\}", r"\1", re.sub(r"(?:(?<=[\w)}])|(?<=-`))(?=\{)", " ", text)).replace("|", "\\|")


def main() -> int:
    """Write the file, or with `--check` say whether it is as it would be written."""
    text = doctor_reference()
    if "--check" in sys.argv[1:]:
        return 0 if REFERENCE.read_text(encoding="utf-8") == text else 1
    REFERENCE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
