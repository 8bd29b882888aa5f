"""The policy with every key, with one change: never a traceback, never accepted with a mistake in it."""

import json
import tomllib
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.config.toml_text import to_toml
from watchdog.config.document import Location, format_path, policy_document
from watchdog.config.load import PolicyError, load_policy
from watchdog.core.policy import Policy

WHOLE: Final = Path(__file__).with_name("whole.toml").read_text(encoding="utf-8")
DATA: Final = to_toml(tomllib.loads(WHOLE)).encode()  # each line is one key with its whole value
HOSTILE: Final = [
    *("", " ", "nan", "inf", "-inf%", "1e999", "1 Gi", "1gi", "--1", "-1", "\u0663Mi", "1Mi ", "9" * 500, "\x1b"),
]
AMOUNTS: Final = [
    *("interval", "stale_after", "release_timeout", "unit", "per_context", "percent", "default", "above", "for"),
    *("grace", "repeat", "node", "namespace", "owner", "first", "max", "offenders", "hold", "free_below", "amount"),
    *("reserve", "max_age", "max_size"),
]
OUT_OF_RANGE: Final[dict[str, list[Any]]] = {
    "version": [0, 2, -1, 10**30],
    "interval": ["999ms", "301s"],
    "stale_after": ["0s", "2d"],
    "unit": ["0", "1m", "100Ei"],
    "max_contexts": [-1, 100_001],
    "percent": ["100.000001%", "200%"],
    "at_least": [0, -3, 10**25],
    "for": ["31d", "999999999d"],
    "grace": ["2d"],
    "repeat": ["0s", "999ms", "31d"],
    "priority_at_least": [2**31, -(2**31) - 1],
    "node": ["0 per 10m", "1 per 0s", "1 per 8d", "9999999 per 1m"],
    "factor": [0, 0.5, 101, float("inf"), float("nan")],
    "of_at_least": [0, 2**70],
    "free_below": ["0%", "100%"],
    "max_size": ["0", "2Ti"],
    "max_age": ["0s", "3651d"],
    "shares": [0, -1, 10**7],
}
REQUIRED: Final = {"name", "above", "for", "do", "unit", "at_least"}
NOT_TOML: Final = [*range(9), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F, 0xC0, 0xFF]
FREE: Final = ("labels", "namespace_labels", "node_labels")  # tables whose keys are the file's own
MISSING: Final = object()
Changes = Iterator[tuple[Location, object]]


def places(value: Any, at: Location = ()) -> Iterator[tuple[Location, Any]]:
    """Every place of a document with its value, tables and lists too."""
    yield at, value
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*at, key))


def wrong_types(at: Location, value: object) -> Changes:
    """A value of another type: no type is turned into another."""
    wrong: list[Any] = [[{}], {"a": 1}, 5, 1.5, True, "text"]
    if at and at[-1] in ("shares", "factor"):
        wrong = [[], {"a": 1}, True, "text"]
    if at and at[-1] == "limit_annotation":  # a text or a list
        wrong.remove("text")
    yield from ((at, each) for each in wrong if at and (type(each) is not type(value) or at[-1] == "shares"))


def unknown_keys(at: Location, value: object) -> Changes:
    """An unknown key in a table."""
    if isinstance(value, dict) and at[-1:] not in [(name,) for name in FREE]:
        yield from (((*at, key), 1) for key in ("zzz", "Mode", "interval ", "x.y", "\u00e9", "rule[0]", "k" * 200))


def invalid_values(at: Location, value: object) -> Changes:
    """A value beyond its range, a text that is no amount where one must be, or none where there must be one."""
    if at and at[-2:-1] not in [(name,) for name in FREE]:
        yield from ((at, each) for each in OUT_OF_RANGE.get(str(at[-1]), []))
        yield from ((at, each) for each in (HOSTILE if at[-1] in AMOUNTS else []))
        if at[-1] in REQUIRED and not {"limit_annotation", "idle"} & {*at}:
            yield at, MISSING


def changed(at: Location, value: object) -> bytes:
    """The file with another value at this place, or without it."""
    document = tomllib.loads(WHOLE)
    target: Any = document
    for part in at[:-1]:
        target = target[part]
    if value is MISSING:
        del target[at[-1]]
    else:
        target[at[-1]] = deepcopy(value)
    return to_toml(document).encode()


def load(path: Path, data: bytes) -> Policy | PolicyError:
    """The policy of a file with these bytes, or its mistakes: each a printable line that names the file."""
    path.write_bytes(data)
    try:
        return load_policy(path)
    except PolicyError as error:
        refused = error
    lines = str(refused).split("\n")
    assert len(lines) == len(refused.problems)
    assert all(line.isprintable() and line.startswith(str(path)) for line in lines), lines
    return refused


@pytest.mark.slow
@pytest.mark.parametrize("kind", [wrong_types, unknown_keys, invalid_values])
def test_a_mistake_is_refused_with_its_path(tmp_path: Path, kind: Callable[[Location, object], Changes]) -> None:
    """Wherever it is in the file, one of the problems has its path."""
    changes = [change for at, value in places(tomllib.loads(WHOLE)) for change in kind(at, value)]
    assert len(changes) > 100
    for at, value in changes:
        refused = load(tmp_path / "policy.toml", changed(at, value))
        assert isinstance(refused, PolicyError), (at, value)
        assert any(problem.path.startswith(format_path(at)) for problem in refused.problems), (at, value, str(refused))


def test_a_line_that_is_cut_off_or_repeated_is_refused(tmp_path: Path) -> None:
    """Half a file, or a key twice, is no policy."""
    lines = DATA.splitlines(keepends=True)
    for number, line in enumerate(lines):
        half = b"".join(lines[:number]) + line[: len(line) // 2]
        for data in (half, DATA + line):
            assert isinstance(load(tmp_path / "policy.toml", data), PolicyError), (number, line)


@given(st.integers(0, len(DATA)), st.sampled_from(NOT_TOML))
def test_a_byte_that_no_toml_file_has_is_refused(tmp_path_factory: pytest.TempPathFactory, at: int, byte: int) -> None:
    """Wherever it is, in a text or a comment too."""
    path = tmp_path_factory.getbasetemp() / "policy.toml"
    assert isinstance(load(path, DATA[:at] + bytes([byte]) + DATA[at:]), PolicyError)


EDITS = st.tuples(st.integers(0, len(DATA)), st.integers(0, 2), st.text('09a"=[]{}.,\n% \\', max_size=2))


@example([(0, 0, "\n")])
@given(st.lists(EDITS, min_size=1, max_size=3) | st.binary(min_size=1))
def test_what_is_accepted_after_any_edit_reads_back(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int, str]] | bytes
) -> None:
    """Any bytes are a policy or have mistakes; what is written of a policy is the same policy."""
    data = bytearray(DATA)
    for at, length, text in edits if isinstance(edits, list) else ():
        data[at : at + length] = text.encode()
    path = tmp_path_factory.getbasetemp() / "policy.toml"
    loaded = load(path, edits if isinstance(edits, bytes) else bytes(data))
    if isinstance(loaded, Policy):
        document = policy_document(loaded)
        assert json.loads(json.dumps(document)) == document
        again = load(path, to_toml(document).encode())
        assert isinstance(again, Policy), str(again)
        assert replace(again, sha256="", warnings=()) == replace(loaded, sha256="", warnings=())
