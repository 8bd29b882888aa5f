"""A process that hides its living thread behind zombies: `traced.c`, compiled where it is wanted."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.node.support import ENDS_WITH_US, compiled

_SOURCE = Path(__file__).with_name("traced.c")


@contextlib.contextmanager
def traced(folder: Path, count: int, enter: Callable[[int], None]) -> Iterator[int]:
    """The PID of one with this many zombies; `enter` puts its tracer where both are to be, before it is made."""
    program = compiled(_SOURCE, folder / "traced", "-pthread")
    process = subprocess.Popen(
        [*ENDS_WITH_US, program, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        enter(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()
