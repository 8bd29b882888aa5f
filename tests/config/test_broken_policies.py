"""Broken policies: each is refused with exactly its mistakes, on one line each, and never with a traceback."""

import contextlib
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.node.support import open_files
from tests.worlds import parse_policy
from watchdog.config.load import PolicyError, load_policy

FILE: Final = Path(__file__).with_name("broken_policies.txt")
MACROS: Final = {
    "%declaration": '[[declaration]]\nresource = "example.com/gpu-memory"\nunit = "1"',
    "%rule": '[[rule]]\nname = "r"\nmatch = {}',
    "%step": '[[rule.step]]\nabove = "110%"\nfor = "10s"\ndo = "kill"',
    "%warn": '[[rule.step]]\nabove = "100%"\nfor = "30s"\ndo = "warn"',
}
Mistake = tuple[str, int, str]  # its path, its line (0: it has none), and a part of its text


def read_broken() -> Iterator[tuple[str, str, list[Mistake]]]:
    """Every case of the file: its title, the policy, and all of its mistakes."""
    for case in FILE.read_text(encoding="utf-8").split("\n===== ")[1:]:
        title, _, rest = case.partition("\n")
        policy, mistakes = (part.strip("\n").split("\n") for part in f"\n{rest}".split("\n---\n"))
        lines = [MACROS.get(line, line) for line in policy]
        if not title.startswith("each:"):
            yield title, "\n".join([*lines, ""]), [read_mistake(each) for each in mistakes]
            continue
        for line, *where, what in (each.split(" => ") for each in mistakes):
            path = ".".join(filter(None, (title.removeprefix("each:").strip(), *(where or [line.split(" = ")[0]]))))
            yield f"{path}: {line}", "\n".join([*lines, line, ""]), [(path, 0, what)]


def read_mistake(text: str) -> Mistake:
    """One mistake of a longer case."""
    place, _, what = text.rpartition("=> ")
    path, _, line = re.fullmatch(r"(.*?)(:(\d+))? ?", place).groups()  # type: ignore[union-attr]
    return path, int(line or 0), what


def refusal(text: str) -> PolicyError:
    """The error of a policy that must be refused."""
    with pytest.raises(PolicyError) as caught:
        parse_policy(text)
    return caught.value


def refusal_of_file(path: Path) -> str:
    """The one line about a file that cannot be a policy."""
    with pytest.raises(PolicyError) as caught:
        load_policy(path)
    (problem,) = caught.value.problems
    line = str(problem)
    assert "\n" not in line
    assert line == str(caught.value)
    assert line.startswith(f"{path}:")
    return line


@pytest.mark.parametrize(("text", "expected"), [pytest.param(*case, id=title) for title, *case in read_broken()])
def test_a_broken_policy_is_refused_with_exactly_its_mistakes(text: str, expected: list[Mistake]) -> None:
    """Every mistake is found with its path and its reason, in one readable line, and nothing that is no mistake."""
    problems = refusal(text).problems
    found = [(problem.path, problem.line or 0, problem.what) for problem in problems]
    assert sorted(each[:2] for each in found) == sorted(each[:2] for each in expected), list(map(str, problems))
    for *at, what in expected:
        assert any(what in reported for *where, reported in found if where == at), (at, what, found)
    for problem in problems:
        line = str(problem)
        place = f"policy.toml:{problem.line}: " if problem.line else f"policy.toml: {problem.path}: "
        assert line.startswith(place if problem.path or problem.line else "policy.toml: ")
        assert line.isprintable()
        assert problem.what
        assert len(line) < 400


def test_mistakes_are_in_the_order_of_their_places() -> None:
    """A long report follows the file: rule 2 comes before rule 10."""
    rules = "".join(f'[[rule]]\nname = "r{number}"\nmatch = {{}}\ndefault = {number}\n' for number in range(12))
    paths = [problem.path for problem in refusal(rules).problems]
    assert paths == [f"rule[{number}].default" for number in range(12)]


def in_folder(path: Path) -> Path:
    """A path that continues below a file."""
    path.write_text("version = 1\n")
    return path / "policy.toml"


def linked_to_itself(path: Path) -> Path:
    """A loop of symlinks."""
    path.symlink_to(path.name)
    return path


def pipe(path: Path) -> Path:
    """A named pipe without a writer."""
    os.mkfifo(path)
    return path


def listening(path: Path) -> Path:
    """A socket."""
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)
    return path


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda path: path, "there is no such file"),
        (lambda path: path.parent, "is a directory; name the policy file in it"),
        (in_folder, "can't be read: Not a directory"),
        (linked_to_itself, "can't be read: Too many levels of symbolic links"),
        (pipe, "is not a regular file"),
        (lambda _: Path("/dev/zero"), "is not a regular file"),
        (listening, "can't be read: "),
        (lambda _: Path("policy\0.toml"), "can't be read: "),
    ],
    ids=["missing", "a directory", "below a file", "symlink loop", "pipe", "endless device", "socket", "NUL byte"],
)
def test_what_is_not_a_file_is_refused_at_once(tmp_path: Path, make: Callable[[Path], Path], what: str) -> None:
    """One line says what is there, at once, even for a pipe or a device; a daemon that tries often leaves none open."""
    path = make(tmp_path / "policy.toml")
    before = open_files()
    assert what in refusal_of_file(path)
    assert open_files() == before


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    """A file without the right to read it says so; root may read everything, so another user tries."""
    path = tmp_path / "policy.toml"
    path.write_text("version = 1\n")
    path.chmod(0)
    for directory in (tmp_path, *tmp_path.parents[:2]):
        directory.chmod(0o755)
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        assert "can't be read: Permission denied" in refusal_of_file(path)
    finally:
        os.seteuid(user)


NO_POLICY: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", ": is empty; the smallest valid policy is mode"),
    "blanks": (b"\n \t\n", ": is empty"),
    "byte order mark": (b"\xef\xbb\xbfversion = 1\n", ":1: begins with a byte order mark"),
    "a NUL byte": (b"version = 1\n\0", ":2: contains NUL bytes"),
    "UTF-16": ('mode = "observe"\n'.encode("utf-16"), ":1: contains NUL bytes"),
    "a byte of no encoding": (b'mode = "observe"\ninterval = "\xff"\n', ":2: the byte 0xff is not UTF-8"),
    "Latin-1": (b"# \xe4\n", ":1: the byte 0xe4 is not UTF-8"),
    "half a character": (b'[events]\n\n\ncontact = "\xed\xa0\x80"\n', ":4: the byte 0xed is not UTF-8"),
    "more than 1 MiB": (b"version = 1\n#" + b"x" * 2**20, ": is larger than 1 MiB"),
    "a long line": (b"version = 1\n#" + b"x" * 5000 + b"\n", ":2: the line is longer than 4096 characters"),
    "a long dotted key": (b"a." * 2000 + b"a = 1\n", ": is nested too deeply"),
    "deep lists": (b"a = " + b"[" * 4000 + b"]" * 90 + b"\n", ": is nested too deeply"),
    "deep lists over many lines": (b"a = " + b"[\n" * 200_000, ": is nested too deeply"),
    "deep tables": (b"a = " + b"{a=" * 1000 + b"\n", ": is nested too deeply"),
    "4000 digits": (b"version = " + b"9" * 4000 + b"\n", ": version: must be the number 1, not a huge number"),
    "16000 bits": (b"version = 0x" + b"f" * 4000 + b"\n", ": version: must be the number 1, not a huge number"),
    "a bare carriage return": (b"version = 1\rmode = 2\n", ":1: not TOML"),
    "a control character": (b"version = 1\x07\n", ":1: not TOML"),
    "a control character in a comment": (b"version = 1 # \x7f\n", ":1: not TOML"),
    "an open text of many lines": (b"mode = '''\nobserve\n", ":2: not TOML"),
    "30 February": (b"version = 2026-02-30\n", ":1: not TOML"),
}


@pytest.mark.parametrize("name", NO_POLICY)
def test_bytes_that_are_no_policy(tmp_path: Path, name: str) -> None:
    """Whatever bytes a file has, the answer is one line with the place."""
    data, line = NO_POLICY[name]
    path = tmp_path / "policy.toml"
    path.write_bytes(data)
    assert refusal_of_file(path).startswith(f"{path}{line}")


def test_a_number_of_more_digits_than_python_converts() -> None:
    """A number that Python refuses to read at all is an error line too."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        (problem,) = refusal(f"version = {'9' * 1000}\n").problems
    finally:
        sys.set_int_max_str_digits(before)
    assert str(problem).startswith("policy.toml: not TOML: Exceeds the limit")


def test_a_text_with_half_a_character() -> None:
    """A lone surrogate is refused like a file that is not UTF-8."""
    assert "is not UTF-8" in str(refusal('mode = "\ud800"\n'))


def test_a_file_of_another_program_is_refused_in_bearable_time() -> None:
    """Thousands of unknown keys give a line each, and finding hints for them does not take for ever."""
    assert len(refusal("".join(f"option_{number} = {number}\n" for number in range(20_000))).problems) == 20_000


def test_windows_line_ends_and_a_symlink_are_fine(tmp_path: Path) -> None:
    """CRLF, and the symlinks of a ConfigMap, are no mistake."""
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "policy.toml").write_bytes(b'mode = "observe"\r\ninterval = "2s"\r\n')
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "policy.toml").symlink_to("..data/policy.toml")
    assert load_policy(tmp_path / "policy.toml").interval_s == 2.0
