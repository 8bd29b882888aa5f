"""Tries a mutant: runs on a copy of the package, in order of cost, the tests that call the function it changes.

Also the plugin of pytest for that, and for the run before it that notes which tests call which functions.
"""

import atexit
import hashlib
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NoReturn

import pytest

from tools import ROOT

PRODUCT: Final = ROOT / "watchdog"
_FIRST: Final = ("tests/core/", "tests/laws/", "tests/daemon/")  # likely to kill a mutant, and quick
_LAST: Final = "tests/world"  # real daemons
_ELSEWHERE: Final = (
    "browser",
    "cluster",
    "deploy",
    "docs",
    "gpu",
    "image",
    "monitoring",
    "pictures",
    "release",
)
_FAST: Final = "not slow and not node and not gpu and not cluster"
_EPISODE: Final = ("-m", "tests.soak", "--episode", "fault/0", "--steps", "1500")
_PYTEST: Final = ("-m", "pytest", "-q", "--tb=short", "--import-mode=append", "-p", "tools.mutation_tests")
# No mutant is to reach a process outside its own test, or to take all the memory.
_CAGE: Final = ("prlimit", f"--as={6 << 30}", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
_LONGEST_S: Final = (60.0, 30.0, 25.0)  # of tests that call a function: the first ones, the others, real daemons
_TRACE: Final = "MUTATION_TRACE"
_ORDER: Final = "MUTATION_ORDER"
_COPY: Final = "/mutation-copy-"
_SUMMARY: Final = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_ON_SOURCE: Final = "the tests would run on the source, not on its copy"
# Inside the cage a daemon must take its PID namespace for the host's, or it never enforces.
_SITE: Final = """
import os
_readlink = os.readlink
def readlink(path, **more):
    return "pid:[4026531836]" if str(path) == "/proc/self/ns/pid" else _readlink(path, **more)
os.readlink = readlink
if "MUTATION_TRACE" in os.environ and "PYTEST_CURRENT_TEST" in os.environ:
    from tools import mutation_tests
    mutation_tests.trace()
"""
Calls = dict[str, tuple[float, list[str]]]


def _names(codes: Iterable[CodeType]) -> set[str]:
    called = {
        (code.co_filename.rpartition("/watchdog/")[2], code.co_qualname) for code in codes if _COPY in code.co_filename
    }
    return {f"{file}:{name.partition('.<locals>')[0]}" for file, name in called}


_CODES: Final = set[CodeType]()
_TRACED: Final[Calls] = {}
_PASSED: Final = set[str]()


def note(frame: FrameType, event: str, _: object) -> None:
    """Keep in mind what is called, as a profile function."""
    if event == "call":
        _CODES.add(frame.f_code)


def trace() -> None:
    """Write down what this process, a child of a test, calls: `sitecustomize` of the copy has this run."""
    threading.setprofile(note)
    sys.setprofile(note)

    def write() -> None:
        with Path(os.environ[_TRACE], str(os.getpid())).open("a", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in _names(tuple(_CODES)))

    def after_writing(leave: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
        def write_and_leave(*arguments: Any) -> NoReturn:
            write()
            leave(*arguments)

        return write_and_leave

    atexit.register(write)
    os._exit, os.execv = after_writing(os._exit), after_writing(os.execv)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """In the run that traces: which functions of the product a test calls, and how long it takes."""
    if _TRACE not in os.environ:
        return (yield)
    _CODES.clear()
    began_s = time.monotonic()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        return (yield)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        names = _names(tuple(_CODES))
        for file in Path(os.environ[_TRACE]).iterdir():
            names.update(file.read_text(encoding="utf-8").splitlines())
            file.unlink()
        _TRACED[item.nodeid] = time.monotonic() - began_s, sorted(names)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In the run that traces: a test that does not pass there says nothing of a mutant."""
    if report.when == "call" and report.passed:
        _PASSED.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """In the run that traces: write all of it."""
    if _TRACE in os.environ:
        kept = {name: found for name, found in _TRACED.items() if name in _PASSED}
        Path(f"{os.environ[_TRACE]}.json").write_text(json.dumps(kept), encoding="utf-8")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Only the tests that are asked for, in that order, on the copy and not on the source itself."""
    if Path(importlib.import_module("watchdog").__file__ or "").is_relative_to(ROOT):
        raise pytest.UsageError(_ON_SOURCE)
    if _ORDER in os.environ:
        order = {
            name: number
            for number, name in enumerate(Path(os.environ[_ORDER]).read_text(encoding="utf-8").splitlines())
        }
        items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])


def _copied(folder: Path) -> dict[str, str]:
    """Copy the package to a folder; the environment in which it is imported from there, by children too."""
    shutil.copytree(PRODUCT, folder / "watchdog", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "sitecustomize.py").write_text(_SITE, encoding="utf-8")
    paths = os.pathsep.join((str(folder), str(ROOT)))
    return {
        **os.environ,
        "PYTHONPATH": paths,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONSAFEPATH": "1",
        "CI": "true",
        "HYPOTHESIS_PROFILE": "quick",
    }


def _run(arguments: Sequence[str], environment: dict[str, str], limit_s: float) -> str:
    """Run Python on a copy in the cage: empty where it succeeds, else what failed."""
    begun = subprocess.Popen(
        [*_CAGE, sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        text=True,
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = begun.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(begun.pid, signal.SIGKILL)
        begun.communicate()
        return f"no end within {limit_s:.0f} s"
    if _ON_SOURCE in output:
        sys.exit(output)
    if begun.returncode in {0, 5}:  # 5: pytest had nothing to run
        return ""
    return next(
        iter(_SUMMARY.findall(output)), output.strip().rpartition("\n")[2][:200] or f"exit status {begun.returncode}"
    )


def traced(build: Path) -> Calls:
    """What each test that passes calls, and how many seconds it takes: as noted before, or by a run of all of them."""
    files = [file for top in (PRODUCT, ROOT / "tests") for file in sorted(top.rglob("*.py"))]
    source = b"".join(file.read_bytes() for file in files)
    kept = build / f"calls-{hashlib.sha256(source).hexdigest()[:16]}.json"
    if not kept.exists():
        print("noting which tests call which functions: half an hour or more", flush=True)
        ignored = (f"--ignore=tests/{name}" for name in (*_ELSEWHERE, "world"))
        found = _noted("-m", _FAST, *ignored, "tests") | _noted(_LAST)
        build.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(found), encoding="utf-8")
    calls: Calls = json.loads(kept.read_text(encoding="utf-8"))
    return calls


def passing(tests: Iterable[str]) -> Calls:
    """What `traced` has of these tests, as far as they are there and pass: in minutes."""
    wanted = sorted(set(tests))
    files = dict.fromkeys(file for test in wanted if Path(ROOT, file := test.partition("::")[0]).exists())
    return _noted(*files, order=wanted) if files else {}


def _noted(*chosen: str, order: Sequence[str] = ()) -> Calls:
    """What the tests that pass call, of those that are chosen."""
    with tempfile.TemporaryDirectory(prefix=_COPY[1:]) as folder:
        environment, notes, names = _copied(Path(folder)), Path(folder, "notes"), Path(folder, "order")
        notes.mkdir()
        environment[_TRACE] = str(notes)
        if order:
            names.write_text("\n".join(order), encoding="utf-8")
            environment[_ORDER] = str(names)
        output = _run((*_PYTEST, *_cache(folder), *chosen), environment, 3600)
        if not notes.with_suffix(".json").exists():
            sys.exit(f"the tests do not run on a copy of the package, as root: {output}")
        found: Calls = json.loads(notes.with_suffix(".json").read_text(encoding="utf-8"))
        return found


def _cache(folder: str) -> tuple[str, str]:
    return "-o", f"cache_dir={folder}/cache"


def killer(file: Path, text: str, function: str, calls: Calls) -> str:
    """What fails where a file of the product has this text, which changes this function; empty: nothing does."""
    name = f"{file.relative_to(PRODUCT)}:{function}"
    callers = sorted((seconds, test) for test, (seconds, called) in calls.items() if name in called)
    groups: dict[int, list[tuple[float, str]]] = {0: [], 1: [], 2: []}
    for seconds, test in callers:
        groups[0 if test.startswith(_FIRST) else 2 if test.startswith(_LAST) else 1].append((seconds, test))
    with tempfile.TemporaryDirectory(prefix=_COPY[1:]) as folder:
        environment = _copied(Path(folder))
        (Path(folder, "watchdog") / file.relative_to(PRODUCT)).write_text(text, encoding="utf-8")
        for number, group in groups.items():
            if number == 2 and (found := _run(_EPISODE, environment, 60)):
                return f"{' '.join(_EPISODE[1:])}: {found}"
            tests, whole_s = list[str](), 0.0
            for seconds, test in group:
                whole_s += seconds
                if whole_s <= _LONGEST_S[number] or not tests:
                    tests.append(test)
            if tests:
                order = Path(folder, "order")
                order.write_text("\n".join(tests), encoding="utf-8")
                files = dict.fromkeys(test.partition("::")[0] for test in tests)
                arguments = (*_PYTEST, "-x", *_cache(folder), *files)
                if found := _run(
                    arguments, {**environment, _ORDER: str(order)}, 40 + 4 * min(whole_s, _LONGEST_S[number])
                ):
                    return found
    return ""
