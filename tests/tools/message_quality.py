"""What can be said by rule of a message that people should understand without the code."""

import ast
import builtins
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from tests.tools.message_code import Module
from watchdog.config.keys import fields_of, walk

_LONGEST: Final = 900
_CAMEL: Final = re.compile(r"\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+\b")
_SNAKE: Final = re.compile(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")
_ERRORS: Final = frozenset(name for name, value in vars(builtins).items() if isinstance(value, type))
_FORBIDDEN: Final = re.compile(r"\b(?:NoneType|[Ee]rrno|Traceback|TODO|FIXME|XXX|self\.|repr|lambda)\b")
# What is written so outside of the code: calls of the kernel, files of /proc and SQLite, words of the status.
_KNOWN: Final = frozenset({"pidfd_open", "pidfd_send_signal", "boot_id", "unknown_pod", "release_timeout"})
REMEDY: Final = re.compile(
    r"\b(?:write|give|leave|must|needs?|use|run|look|see|install|save|choose|name|mount|raise|reboot|drain|update|load"
    r"|add|free|remove|put|make|stop|goes only|did you mean|like|at most|at least|tried again|trying again|looks again"
    r"|report|is required|belongs to|its keys are|anew|break it up|ask|try|end|take it|is needed)\b"
)


def class_names(modules: Mapping[str, Module]) -> frozenset[str]:
    """The classes of the program and of Python."""
    return _ERRORS | {name for module in modules.values() for name in module.classes}


def complaints(written: str, classes: frozenset[str]) -> Iterator[str]:
    """What is wrong with a template as the page has it."""
    fixed = re.sub(r"<[A-Za-z][^<>«»|]*>", "", written)
    bare = re.sub(r"`[^`]*`|\"[^\"]*\"", "", fixed)
    yield from (f"names a class: {name}" for name in _CAMEL.findall(bare) if name in classes)
    yield from (f"names what is inside: {name}" for name in _SNAKE.findall(bare) if name not in known_words())
    yield from (f"speaks of the code: {name}" for name in _FORBIDDEN.findall(bare))
    if "  " in written.strip() and "|" not in written:
        yield "has a double blank"
    for sign in ('"', "`"):
        if written.count(sign) % 2:
            yield f"has an unbalanced {sign}"
    for opens, closes in ("()", "[]", "«»"):
        if fixed.count(opens) != fixed.count(closes):
            yield f"has an unbalanced {opens}"
    if len(written) > _LONGEST:
        yield f"is {len(written)} characters long"


@cache
def known_words() -> frozenset[str]:
    """Words with underscores that people write themselves: the keys of a policy, and what the kernel calls so."""
    return _KNOWN | {key for _, table in walk() for key in fields_of(table)}


def shown_errors(modules: Mapping[str, Module]) -> Iterator[str]:
    """Places where an error is shown as Python writes it, `KeyError('x')`: only what asks to report it may do so."""
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.JoinedStr) and "report" not in ast.unparse(node):
                for part in node.values:
                    match part:
                        case ast.FormattedValue(value=ast.Name(id="error" | "exc"), conversion=114):
                            yield f"{module.name}:{node.lineno}"
