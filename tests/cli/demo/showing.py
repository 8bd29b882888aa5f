"""Runs the demo as a separate process, in a pipe or on a terminal."""

import contextlib
import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.node.support import REPOSITORY, refusing
from watchdog.cli.demo.sim import key_of
from watchdog.core.model import ProcessKey

# A user with no right but to read, since the folders of Python and of the checkout may be closed to others.
UNPRIVILEGED: Final = (
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"),
    *(
        "--bounding-set=-all,+dac_read_search",
        "--inh-caps=-all,+dac_read_search",
        "--ambient-caps=-all,+dac_read_search",
    ),
)
CODE: Final = "import sys; from watchdog.cli.demo import run_demo; sys.exit(run_demo(sys.stdout))"
WITHOUT_PIDFD: Final = f"""{refusing(434, "EPERM")}{refusing(424, "EPERM")}  # pidfd_open and pidfd_send_signal
from watchdog.node.process import pidfd_supported
assert pidfd_supported()
{CODE}
"""
_STARTED: Final = re.compile(r"t= *[0-9.]+s  started +(\S+): (.*)")
_LONGEST_S: Final = 60.0


@dataclass(slots=True)
class Showing:
    """A run of the demo: the lines so far, and the processes that it reported as started, if watched."""

    process: subprocess.Popen[bytes]
    watched: bool = True
    lines: list[str] = field(default_factory=list)
    keys: dict[str, ProcessKey] = field(default_factory=dict)

    def read(self) -> Iterator[str]:
        """The lines as they come, until the end."""
        assert self.process.stdout is not None
        for raw in self.process.stdout:
            line = raw.decode().removesuffix("\n")
            self.lines.append(line)
            if self.watched and (started := _STARTED.fullmatch(line)):
                pairs = (each.split() for each in started[2].split(", "))
                self.keys |= {name: key_of(int(pid)) for name, pid in pairs}
            yield line

    def read_until(self, word: str) -> None:
        """Read until the line of this event."""
        assert any(f"s  {word} " in line for line in self.read()), self.lines

    def read_all(self) -> str:
        """Read to the end; all that was written."""
        for _ in self.read():
            pass
        return "\n".join(self.lines)

    def second(self, text: str) -> float:
        """The second of the only event whose line has this text."""
        (line,) = [line for line in self.lines if text in line and line.startswith("t=")]
        return float(line[2:].partition("s")[0])


@contextlib.contextmanager
def showing(folder: Path, *before: str, code: str = CODE, watched: bool = True) -> Iterator[Showing]:
    """Run the demo in a pipe, with temporary files in `folder`; `before` is put before its command."""
    # A shell in the background may pass on ignored signals, which the demo respects.
    heard = ["env", "--default-signal=INT,TERM,HUP"]
    process = subprocess.Popen(
        [*heard, *before, sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        cwd=REPOSITORY,
        env=_environment(folder),
    )
    try:
        yield Showing(process, watched)
    finally:
        process.kill()
        process.communicate()


def open_terminal(columns: int, rows: int) -> tuple[int, int]:
    """A terminal of this size: the end that reads it, and the one that programs write to."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    return master, slave


def on_terminal(folder: Path) -> tuple[str, int]:
    """Run the whole demo on a terminal of 80 by 24; its output and exit code."""
    master, slave = open_terminal(80, 24)
    process = subprocess.Popen(
        [sys.executable, "-c", CODE], stdin=slave, stdout=slave, stderr=slave, cwd=REPOSITORY, env=_environment(folder)
    )
    os.close(slave)
    written, deadline_s = b"", time.monotonic() + _LONGEST_S
    with contextlib.suppress(OSError):  # EIO: the last process that had it open has ended
        while time.monotonic() < deadline_s and (part := os.read(master, 65536)):
            written += part
    os.close(master)
    return written.decode().replace("\r\n", "\n"), process.wait(timeout=10)


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    return {**kept, "TERM": "xterm-256color", "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
