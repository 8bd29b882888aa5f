"""What is made once per run of the tests and used by all its workers: it goes with the last of them."""

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.leftovers import shared_folder


def once(name: str, make: Callable[[Path], object]) -> Path:
    """A folder of the run's own. The first worker that asks for it makes what is in it; the others wait for that."""
    folder = shared_folder() / name
    folder.parent.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel frees it when its holder ends
        done = folder.with_suffix(".done")
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # half made, by one that failed
            folder.mkdir()
            make(folder)
            done.touch()
    return folder
