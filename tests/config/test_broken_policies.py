"""Broken policies: each is refused with exactly its mistakes, on one line each, and never with a traceback."""

import os
import socket
import sys
from pathlib import Path

import pytest

from tests.config.broken import Broken, read_broken
from tests.worlds import parse_policy
from watchdog.config.load import PolicyError, load_policy
from watchdog.core.policy import Policy

BROKEN = read_broken()


def refusal(text: str) -> PolicyError:
    """The error of a policy that must be refused."""
    with pytest.raises(PolicyError) as caught:
        parse_policy(text, "policy.toml")
    return caught.value


def refusal_of_file(path: Path) -> str:
    """The one line that is said of a file that cannot be a policy."""
    with pytest.raises(PolicyError) as caught:
        load_policy(path)
    (problem,) = caught.value.problems
    line = str(problem)
    assert "\n" not in line
    assert line == str(caught.value)
    assert line.startswith(f"{path}:")
    return line


def test_the_table_has_two_hundred_broken_policies() -> None:
    """The table is as large as promised, and no case stands in it twice."""
    assert len({case.title for case in BROKEN}) == len(BROKEN) >= 200
    assert len({case.text for case in BROKEN}) == len(BROKEN)


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.title)
def test_a_broken_policy_is_refused_with_exactly_its_mistakes(case: Broken) -> None:
    """Every mistake is found with its path and its reason, and nothing that is no mistake."""
    problems = refusal(case.text).problems
    found = sorted((problem.path, problem.line or 0) for problem in problems)
    assert found == sorted((expected.path, expected.line or 0) for expected in case.expected), list(map(str, problems))
    for expected in case.expected:
        at_place = [
            problem.what for problem in problems if (problem.path, problem.line) == (expected.path, expected.line)
        ]
        assert any(expected.what in what for what in at_place), (expected, at_place)


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.title)
def test_a_mistake_is_one_line_that_names_file_and_place(case: Broken) -> None:
    """The report of `check` is one line a mistake: file, place, reason; short enough to be read."""
    for problem in refusal(case.text).problems:
        line = str(problem)
        place = f"policy.toml:{problem.line}: " if problem.line else f"policy.toml: {problem.path}: "
        assert line.startswith(place if problem.path or problem.line else "policy.toml: ")
        assert line.isprintable()
        assert problem.what
        assert len(line) < 400


def test_mistakes_stand_in_the_order_of_their_places() -> None:
    """A long report can be read along the file: rule 2 stands before rule 10, and what belongs together together."""
    rules = "".join(f'[[rule]]\nname = "r{number}"\nmatch = {{}}\ndefault = {number}\n' for number in range(12))
    paths = [problem.path for problem in refusal(rules).problems]
    assert paths == [f"rule[{number}].default" for number in range(12)]


def test_no_such_file(tmp_path: Path) -> None:
    """A wrong path gives one line that says how a policy is named."""
    assert "there is no such file" in refusal_of_file(tmp_path / "policy.toml")


def test_a_directory(tmp_path: Path) -> None:
    """A directory (a ConfigMap's mount point) is not taken for a file."""
    assert "is a directory; name the policy file in it" in refusal_of_file(tmp_path)


def test_below_a_file(tmp_path: Path) -> None:
    """A path that goes on below a file says why it cannot be read."""
    (tmp_path / "file").write_text("version = 1\n")
    assert "can't be read: Not a directory" in refusal_of_file(tmp_path / "file" / "policy.toml")


def test_a_symlink_to_itself(tmp_path: Path) -> None:
    """A loop of symlinks says why it cannot be read."""
    (tmp_path / "policy.toml").symlink_to("policy.toml")
    assert "can't be read: Too many levels of symbolic links" in refusal_of_file(tmp_path / "policy.toml")


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    """A file without the right to read it says so; root may read everything, so another user tries."""
    path = tmp_path / "policy.toml"
    path.write_text("version = 1\n")
    path.chmod(0)
    for directory in (tmp_path, *tmp_path.parents[:2]):
        directory.chmod(0o755)
    if os.geteuid() != 0:
        assert "can't be read: Permission denied" in refusal_of_file(path)
        return
    os.seteuid(65534)
    try:
        line = refusal_of_file(path)
    finally:
        os.seteuid(0)
    assert "can't be read: Permission denied" in line


def test_a_pipe_without_a_writer(tmp_path: Path) -> None:
    """A named pipe is refused at once; opening it the usual way would wait for ever."""
    path = tmp_path / "policy.toml"
    os.mkfifo(path)
    assert "is not a regular file" in refusal_of_file(path)


def test_a_device() -> None:
    """A device that never ends is refused and not read."""
    assert "is not a regular file" in refusal_of_file(Path("/dev/zero"))


def test_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket cannot be opened as a file, and that is said."""
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("policy.toml")
        assert "can't be read: " in refusal_of_file(Path("policy.toml"))


def test_a_path_with_a_nul_byte() -> None:
    """A path that no file can have is an error line, not a traceback."""
    assert "can't be read: embedded null byte" in refusal_of_file(Path("policy\0.toml"))


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
    """A text that is no Unicode (a lone surrogate) is refused like a file that is not UTF-8."""
    assert "is not UTF-8" in str(refusal('mode = "\ud800"\n'))


def test_a_file_of_another_program_is_refused_in_bearable_time() -> None:
    """Thousands of unknown keys give a line each, and the hints for them are not sought for ever."""
    assert len(refusal("".join(f"option_{number} = {number}\n" for number in range(20_000))).problems) == 20_000


def test_windows_line_ends_and_a_symlink_are_fine(tmp_path: Path) -> None:
    """What looks odd and is none of a mistake is read: CRLF, and the symlinks of a ConfigMap."""
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "policy.toml").write_bytes(b'mode = "observe"\r\ninterval = "2s"\r\n')
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "policy.toml").symlink_to("..data/policy.toml")
    policy = load_policy(tmp_path / "policy.toml")
    assert isinstance(policy, Policy)
    assert policy.interval_s == 2.0
