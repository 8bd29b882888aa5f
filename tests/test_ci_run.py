"""What `.ci/run` hands to `make`: which targets in which environment, and what it reports of them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.node.support import REPOSITORY

_NEEDED: Final = ("bash", "cat", "dirname", "env", "grep", "sort", "tail")
_MAKE: Final = """
echo "$*" >> calls
env -0 > environment
case "$*" in "$(cat fails)"*) exit 2 ;; esac
"""


class Checkout:
    """A folder with `.ci/run` and with programs of its own: a `make` that notes its calls, and interpreters."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bin = folder / "bin"
        self._bin.mkdir()
        (folder / ".ci").mkdir()
        shutil.copy(REPOSITORY / ".ci" / "run", folder / ".ci" / "run")
        for name in _NEEDED:
            (self._bin / name).symlink_to(shutil.which(name) or name)
        (self._bin / "python3").symlink_to(sys.executable)
        self.add("make", _MAKE)
        self.fail("nothing")

    def add(self, name: str, script: str) -> None:
        """Add a program."""
        program = self._bin / name
        program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        program.chmod(0o755)

    def fail(self, target: str) -> None:
        """Have `make` fail with these arguments, or any that begin with them."""
        (self._folder / "fails").write_text(target, encoding="utf-8")

    def run(self, **environment: str) -> tuple[int, list[str]]:
        """The exit code of `.ci/run`, and its lines."""
        program = self._folder / ".ci" / "run"
        environment |= {"PATH": str(self._bin)}
        done = subprocess.run(
            [program], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False
        )
        return done.returncode, done.stdout.splitlines()

    def calls(self) -> list[str]:
        """The arguments of each `make`."""
        return (self._folder / "calls").read_text(encoding="utf-8").splitlines()

    def environment(self) -> set[str]:
        """What the last `make` found in its environment, besides what every shell sets."""
        names = (self._folder / "environment").read_text(encoding="utf-8").split("\0")[:-1]
        return {each for each in names if each.partition("=")[0] not in ("PATH", "PWD", "OLDPWD", "SHLVL", "_")}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_nothing_that_a_machine_sets_reaches_the_tests(checkout: Checkout) -> None:
    """A test that passes because of a variable of one machine fails on every other; downloads keep what they need."""
    kept = {
        "HOME": "/home/a b",
        "LANG": "C.UTF-8",
        "CI": "true",
        "PIP_CERT": "/a=b",
        "SSL_CERT_FILE": "/c",
        "NODE_EXTRA_CA_CERTS": "/d",
        "REQUESTS_CA_BUNDLE": "/e",
        "https_proxy": "http://127.0.0.1:1",
        "NO_PROXY": "localhost",
    }
    dropped = {"PYTHONUNBUFFERED": "1", "PYTHONPATH": "/x", "TERM": "xterm", "PIP_FIND_LINKS": "/y", "CC": "/z\nCI=no"}
    assert checkout.run(**kept, **dropped)[0] == 0
    assert checkout.environment() == {f"{name}={value}" for name, value in kept.items()}


def test_every_part_runs_and_its_minutes_are_printed(checkout: Checkout) -> None:
    """A run of most of an hour ends with where the time went; failed tests get their second attempt in each part.

    Every fast test runs on the newest interpreter too, and on none between.
    """
    checkout.add("python3.99", "exit 1")  # such as one without a venv module
    checkout.add("python3.98", 'test "$PYENV_VERSION" = 3.98.1 && echo /opt/3.98.1/bin/python3.98')
    checkout.add("python3.96", "echo /usr/bin/python3.96")
    checkout.add("pyenv", 'test "$*" != "whence python3.98" || printf "3.98.0\\n3.98.1\\n"')
    checkout.add("python3.1", "echo /usr/bin/python3.1")
    code, lines = checkout.run()
    packages, *setups = checkout.calls()[:3]
    newest = "PYTHON=/opt/3.98.1/bin/python3.98 VENV=build/python3.98"
    assert (packages, sorted(setups)) == ("packages", ["setup-dev", f"setup-dev {newest}"])
    assert (code, checkout.calls()[3:]) == (
        0,
        [
            "-j2 check compiled",
            "-o check test AGAIN=5",
            f"unit UNIT=tests AGAIN=5 {newest}",
            "deep AGAIN=5",
        ],
    )
    assert [re.sub(r" +\d\.\d min$", "", line) for line in lines] == [
        *("packages", "setup", "check", "test", "python3.98", "deep")
    ]


@pytest.mark.parametrize("has_broken_one", [False, True])
def test_without_a_newer_interpreter_it_says_so(checkout: Checkout, *, has_broken_one: bool) -> None:
    """What was not run is in the report: a green run on one version is no evidence for the others."""
    if has_broken_one:  # as a command of pyenv is whose version is not installed
        checkout.add("python3.99", "exit 127")
    code, lines = checkout.run()
    assert (code, [each for each in checkout.calls() if each.startswith("unit")]) == (0, [])
    version = ".".join(map(str, sys.version_info[:3]))
    reported = f"no interpreter newer than Python {version} was found: the fast tests ran on that alone"
    assert reported in lines


def test_the_minutes_are_printed_after_a_failure_too(checkout: Checkout) -> None:
    """The part that failed ends the run with its exit code, and is the last one reported."""
    checkout.fail("-o check test")
    code, lines = checkout.run()
    assert (code, checkout.calls()[-1]) == (2, "-o check test AGAIN=5")
    assert re.fullmatch(r"test +\d\.\d min, failed", lines[-1])


@pytest.mark.parametrize("which", ["setup-dev", "setup-dev PYTHON"])
def test_an_environment_that_can_not_be_made_ends_the_run(checkout: Checkout, which: str) -> None:
    """Both are made at the same time, and the failure of either counts."""
    checkout.add("python3.99", "echo /usr/bin/python3.99")
    checkout.fail(which)
    code, lines = checkout.run()
    assert (code, len(checkout.calls())) == (2, 3)
    assert re.fullmatch(r"setup +\d\.\d min, failed", lines[-1])
