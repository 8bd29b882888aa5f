"""Which files below a folder a process has open or mapped, as the kernel shows it from outside."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path


def held(pid: int, folder: Path) -> set[str]:
    """The files that the process holds; none where there is no such process."""
    found = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.add(str(entry.readlink()))
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
        found |= {line.split(maxsplit=5)[-1] for line in maps.splitlines()}
    return {path for path in found if path.startswith(f"{folder}/")}


def seconds_until(pid: int, folder: Path, *, is_held: bool, longest_s: float = 15.0) -> float:
    """Wait until the process holds something there, or nothing any more, and say how long that took."""
    began_s = time.monotonic()
    while bool(held(pid, folder)) is not is_held:
        assert time.monotonic() < began_s + longest_s, held(pid, folder)
        time.sleep(0.005)
    return time.monotonic() - began_s


@contextlib.contextmanager
def watched(pid: int, folder: Path) -> Iterator[list[set[str]]]:
    """Look every few milliseconds, and note whatever the process was seen to hold."""
    seen: list[set[str]] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.005):
            if found := held(pid, folder):
                seen.append(found)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
