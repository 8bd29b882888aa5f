"""The policy file, read, checked and compiled: every mistake in one report, or the whole policy."""

import hashlib
from pathlib import Path
from typing import BinaryIO, Final

from watchdog.config.advice import find_warnings
from watchdog.config.checks import find_mistakes
from watchdog.config.compile import compile_policy
from watchdog.config.mistakes import check_schema, rule_names, rule_of
from watchdog.config.problems import PolicyError, Problem, format_path, sort_key
from watchdog.config.source import parse_document, read_bytes, read_stream
from watchdog.core.policy import Policy

BUILT_IN_FILE: Final = Path(__file__).with_name("built_in.toml")
BUILT_IN_SOURCE: Final = "built-in policy"


def load_policy(path: Path) -> Policy:
    """Read a policy file; PolicyError with all of its mistakes, or with the one reason why it cannot be read."""
    return _compile(read_bytes(path), str(path))


def parse_policy(text: str, source: str) -> Policy:
    """Read a policy from a text; `source` stands for the file's name in the problems of a PolicyError."""
    return _compile(text.encode("utf-8", "surrogatepass"), source)


def read_policy(stream: BinaryIO, source: str) -> Policy:
    """Read a policy from a stream; `source` stands for the file's name in the problems of a PolicyError."""
    return _compile(read_stream(stream, source), source)


def built_in_policy() -> Policy:
    """The policy of `scan` where none is given: it observes, and knows the declarations that have one meaning only."""
    return _compile(read_bytes(BUILT_IN_FILE), BUILT_IN_SOURCE)


def _compile(data: bytes, source: str) -> Policy:
    document = parse_document(data, source)
    names = rule_names(document)
    checked = check_schema(document)
    mistakes = list(checked.mistakes)
    if checked.table is not None:
        mistakes += find_mistakes(checked.table, checked.spoilt)
    if mistakes or checked.table is None:
        raise PolicyError(
            Problem(source=source, path=format_path(mistake.location), what=mistake.what, rule=rule_of(mistake, names))
            for mistake in sorted(mistakes, key=sort_key)
        )
    warnings = tuple(
        f"{format_path(location)}: {what}" if location else what for location, what in find_warnings(checked.table)
    )
    return compile_policy(checked.table, sha256=hashlib.sha256(data).hexdigest(), source=source, warnings=warnings)
