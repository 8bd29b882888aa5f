"""A terminal with a program in it: keys go in, what is drawn is read back from a screen."""

import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.cli.demo.showing import open_terminal
from tests.cli.screen import Screen
from tests.rig.command import COMMAND

_LONGEST_S: Final = 60.0
_FRAME_S: Final = 0.05
# Unbuffered, Python has nothing left to flush at its end, and hides what a terminal that went away leaves there.
_NOT_INHERITED: Final = {"NO_COLOR", "COLUMNS", "LINES", "COLORTERM", "PYTHONUNBUFFERED"}


class Session:
    """A terminal of a size, and the program that controls it."""

    def __init__(self, command: Sequence[str | Path], columns: int, rows: int, environment: dict[str, str]) -> None:
        self.screen = Screen(columns, rows)
        self.written = b""
        self._master, slave = open_terminal(columns, rows)
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        # `setsid --ctty` makes it the terminal's own, so that Ctrl-C there is a signal to it.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "env", "--default-signal=INT,TERM,HUP", *map(str, command)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
        )

    @property
    def after(self) -> list[Any]:
        """The terminal's modes now."""
        return termios.tcgetattr(self._slave)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Let the terminal have another size."""
        self.screen.resize(columns, rows)
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def wait(self, until: Callable[[Screen], object], seconds: float = _LONGEST_S) -> None:
        """Read until something is true of the screen."""
        deadline_s = time.monotonic() + seconds
        while not until(self.screen):
            assert time.monotonic() < deadline_s, f"{self.screen.text}\n--\n{self.screen.usual}"
            self._read(0.05)

    def see(self, *texts: str) -> None:
        """Read until all of these are on the screen."""
        self.wait(lambda screen: all(text in screen.text for text in texts))

    def rest(self, seconds: float) -> None:
        """Read for a while."""
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s:
            self._read(0.05)

    def end(self, seconds: float = _LONGEST_S) -> int:
        """Wait for the program's end, and read the rest of its output; its exit code."""
        deadline_s = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline_s, self.screen.text
            self._read(0.02)
        self._read(0.0)
        return self.process.wait()

    def hang_up(self) -> None:
        """The terminal's window is closed."""
        os.close(self._slave)
        os.close(self._master)
        self._master = self._slave = -1

    def close(self) -> None:
        """Kill the program if it still runs."""
        self.process.kill()
        self.process.wait()
        for descriptor in (self._master, self._slave):
            if descriptor >= 0:
                os.close(descriptor)

    def _read(self, seconds: float) -> None:
        while select.select([self._master], [], [], seconds)[0]:
            data = os.read(self._master, 65536)
            self.written += data
            self.screen.feed(data)
            seconds = _FRAME_S  # a frame comes in several pieces: a terminal's buffer has 4 KiB


@contextlib.contextmanager
def session(
    *arguments: str | Path, columns: int = 100, rows: int = 30, command: Sequence[str | Path] = (), **environment: str
) -> Iterator[Session]:
    """`gpu-watchdog top` with these arguments on a terminal, or another command."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    own = {**kept, "TERM": "xterm-256color", "PYTHONDONTWRITEBYTECODE": "1", **environment}
    made = Session(command or (COMMAND, "top", *arguments), columns, rows, own)
    try:
        yield made
    finally:
        made.close()


def on_a_terminal(*arguments: object, columns: int = 90, cwd: Path = Path(), **environment: str) -> str:
    """The whole output of a command on a terminal of this many columns."""
    command = ("env", "-C", str(cwd), str(COMMAND), *map(str, arguments))
    with session(columns=columns, rows=30, command=command, **environment) as shown:
        shown.end()
    return shown.written.decode().replace("\r\n", "\n")
