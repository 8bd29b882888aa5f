"""What a run of the tests that was killed leaves behind, and the next one removes: folders and cgroups.

Not processes and mounts: servers end with the process that started them, and a namespace ends what is inside it.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

# Held by flock while a run lives: the kernel releases it however the run ends, and a file that is not held is that
# of a run that could not remove it.
_CLAIM: Final = "in-use"
_NOTES: Final = "cgroups-made"
_SHARED: Final = "shared"
_VARIABLE: Final = "GPU_WATCHDOG_TESTS_FOLDER"
# Whatever runs below a cgroup of this name is a pod of the tests' own node.
OF_A_NODE: Final = "gpu-watchdog-"


def pytest_configure() -> None:
    """Let SIGTERM, by which CI cancels a run, act like Ctrl-C: everything is taken down in order."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Know this run's folder as in use, and remove those of runs that were killed."""
    with claimed(tmp_path_factory.getbasetemp()):
        yield


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Mark pytest's folder as in use, after removing what killed runs left beside it."""
    top = folder.parent if folder.name.startswith("popen-") else folder  # the workers of pytest-xdist share it
    for each in top.parent.glob("pytest-*"):
        if each != top and not each.is_symlink() and _is_abandoned(each):
            _remove(each)
    claim = top / f"{_CLAIM}-{os.getpid()}"
    scratch = claim.with_name(f".{claim.name}")
    with scratch.open("w", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        scratch.rename(claim)  # under this name it has always been held
        before = os.environ.get(_VARIABLE)
        os.environ[_VARIABLE] = str(top)
        try:
            yield
        finally:
            os.environ.pop(_VARIABLE)
            if before is not None:
                os.environ[_VARIABLE] = before
            claim.unlink()
            if not any(_is_held(each) for each in top.glob(f"{_CLAIM}-*")):
                shutil.rmtree(top / _SHARED, ignore_errors=True)


def shared_folder() -> Path:
    """Where the workers of this run keep what they share; the last of them removes it."""
    return Path(os.environ[_VARIABLE], _SHARED)


def note_cgroup(made: Path) -> None:
    """Remember a cgroup of this run, so that the next one can remove it where this one does not come to it."""
    if top := os.environ.get(_VARIABLE):
        with contextlib.suppress(FileNotFoundError), Path(top, _NOTES).open("a", encoding="utf-8") as notes:
            notes.write(f"{made}\n")


def _is_abandoned(folder: Path) -> bool:
    claims = list(folder.glob(f"{_CLAIM}-*"))
    return bool(claims) and not any(_is_held(each) for each in claims)


def _is_held(claim: Path) -> bool:
    with contextlib.suppress(FileNotFoundError), claim.open(encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _remove(folder: Path) -> None:
    notes = folder / _NOTES
    made = notes.read_text(encoding="utf-8").split() if notes.exists() else []
    for each in map(Path, reversed(made)):
        if each.name.startswith(OF_A_NODE):
            _remove_with_all_inside(each)
        # One that has a cgroup or a process in it by now is busy, and stays.
        with contextlib.suppress(OSError):
            each.rmdir()
    shutil.rmtree(folder, ignore_errors=True)


def _remove_with_all_inside(top: Path) -> None:
    for _ in range(40):
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                for pid in Path(folder, "cgroup.procs").read_text(encoding="ascii").split():
                    os.kill(int(pid), signal.SIGKILL)
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        if not top.exists():
            return
        time.sleep(0.05)  # busy until the last of its processes has been reaped
