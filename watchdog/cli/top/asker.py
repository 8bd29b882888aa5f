"""Asking the daemon on a thread of its own: keys are answered while it hangs."""

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from watchdog.cli.client import AskError, ask_status, help_lines
from watchdog.cli.top.reading import read_view
from watchdog.cli.top.values import NodeView


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusAnswer:
    """What came: a picture, or why there is none, with the remedy, in lines. `at_s` is when (monotonic)."""

    view: NodeView | None
    problem: str
    at_s: float


def ask_view(url: str, *options: str) -> StatusAnswer:
    """Ask once, and wait for it: some seconds at the most. `options` of `top` go into what is advised."""
    try:
        view, problem = read_view(ask_status(url)), ""
    except AskError as error:
        view, problem = None, unreached(error, "top", *options)
    return StatusAnswer(view=view, problem=problem, at_s=time.monotonic())


def unreached(error: AskError, *arguments: str) -> str:
    """Why a daemon can't be shown, and what helps, in lines."""
    return "\n  ".join([str(error), *help_lines(error, *arguments, terminal=arguments == ("top",))])


class Asker:
    """Asks when it is told to, one question at a time. `fileno` becomes readable when an answer has come."""

    def __init__(self, ask: Callable[[], StatusAnswer]) -> None:
        self.is_busy = False
        self._ask = ask
        self._told: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[StatusAnswer] = queue.SimpleQueue()
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # A daemon thread: an end of the program does not wait for an answer that does not come.
        threading.Thread(target=self._serve, name="asker", daemon=True).start()

    def fileno(self) -> int:
        """What to wait for."""
        return self._read

    def ask(self) -> None:
        """Ask, where no question is open."""
        if not self.is_busy:
            self.is_busy = True
            self._told.put(None)

    def take(self) -> StatusAnswer | None:
        """The answer, if it has come."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 64)
        try:
            answer = self._answers.get_nowait()
        except queue.Empty:
            return None
        self.is_busy = False
        return answer

    def _serve(self) -> None:
        while True:
            self._told.get()
            self._answers.put(self._ask())
            with contextlib.suppress(BlockingIOError):
                os.write(self._write, b".")
