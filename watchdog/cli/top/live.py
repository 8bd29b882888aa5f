"""The live view's loop: queries the daemon, reads keys and draws until the user quits."""

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from watchdog.cli.client import QueryError, query_status
from watchdog.cli.top import TopOptions, prepare, unreached
from watchdog.cli.top.rows import Signs, TopRow, timers_run
from watchdog.cli.top.state import Selection, chosen, pressed
from watchdog.cli.top.terminal import Terminal, keys_of
from watchdog.cli.top.view import ScreenFrame, draw
from watchdog.clock import Waiter
from watchdog.core.units import format_duration
from watchdog.report.status import Status
from watchdog.report.text import span

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OTHERS: Final = (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)
_ESCAPE_S: Final = 0.05  # the rest of an escape sequence arrives within this time, even over a slow line
_FRAME_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A status, or why there is none and what to do about it, in lines. `at_s` is when it arrived (monotonic)."""

    status: Status | None
    problem: str
    at_s: float


def query(url: str) -> Answer:
    """Query a daemon once and wait for its answer, for a few seconds at most."""
    try:
        status, problem = query_status(url), ""
    except QueryError as error:
        status, problem = None, unreached(error, "top")
    return Answer(status=status, problem=problem, at_s=time.monotonic())


class Poller:
    """Queries the daemon on its own thread, so that keys work while the daemon hangs; one query at a time.

    `fileno` becomes readable when an answer has arrived.
    """

    def __init__(self, query: Callable[[], Answer]) -> None:
        self.is_busy = False
        self._query = query
        self._wanted: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # A daemon thread: exiting must not wait for an answer that never comes.
        threading.Thread(target=self._serve, name="poller", daemon=True).start()

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._read

    def ask(self) -> None:
        """Query the daemon, unless a query is in progress."""
        if not self.is_busy:
            self.is_busy = True
            self._wanted.put(None)

    def take(self) -> Answer | None:
        """The answer, if it has arrived."""
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
            self._wanted.get()
            self._answers.put(self._query())
            with contextlib.suppress(BlockingIOError):
                os.write(self._write, b".")


class Signals:
    """Records the signals that end, stop or resize the view; `close` restores the previous handlers."""

    def __init__(self, waiter: Waiter) -> None:
        self.has_ended = False
        self.has_stopped = False
        self.is_continued = False
        self._waiter = waiter
        self._before: dict[signal.Signals, Any] = {each: signal.getsignal(each) for each in (*_ENDING, *_OTHERS)}
        for each in _ENDING:
            # A program started by nohup(1) or in a shell's background keeps ignoring what it ignores.
            if self._before[each] is not signal.SIG_IGN:
                waiter.on(each, self._end)
        waiter.on(signal.SIGWINCH, _wake)
        waiter.on(signal.SIGCONT, self._continue)
        waiter.on(signal.SIGTSTP, self._stop)

    def close(self) -> None:
        """Restore the previous handlers."""
        for each, handler in self._before.items():
            if handler is not None:
                signal.signal(each, handler)

    def stop_here(self) -> None:
        """Stop as Ctrl-Z does; returns when the process is continued."""
        self.has_stopped = False
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        self._waiter.on(signal.SIGTSTP, self._stop)

    def _end(self) -> None:
        self.has_ended = True

    def _stop(self) -> None:
        self.has_stopped = True

    def _continue(self) -> None:
        self.is_continued = True


def _wake() -> None:
    """Wake the loop, nothing more: each frame queries the size."""


class Live:
    """The view: what is on the screen, and the status and choices it is made of."""

    def __init__(
        self, terminal: Terminal, poller: Poller, selection: Selection, signs: Signs, interval_s: float
    ) -> None:
        self._terminal = terminal
        self._poller = poller
        self._selection = selection
        self._signs = signs
        self._interval_s = interval_s
        self._status: Status | None = None
        self._problem = ""
        self._answered_s = time.monotonic()
        self._seen_s = 0.0  # when the shown cycle was, as far as that is known
        self._counted_s = 0.0
        self._next_s = 0.0
        self._pending = b""

    def run(self, waiter: Waiter, signals: Signals) -> None:
        """Run until the user quits, a signal ends it or the terminal goes away."""
        waiter.watch(self._poller.fileno())
        if self._terminal.keys is not None:
            waiter.watch(self._terminal.keys)
        with contextlib.suppress(EOFError):
            while not self._selection.ended and not signals.has_ended:
                if signals.has_stopped:
                    self._terminal.give_back()
                    signals.stop_here()
                    signals.is_continued = True
                if signals.is_continued:
                    # The shell may have changed the terminal meanwhile.
                    signals.is_continued = False
                    self._terminal.give_back()
                    self._terminal.take()
                self._update()
                waiter.wait(self._sleep_s())

    def _update(self) -> None:
        now_s = time.monotonic()
        if not self._selection.paused and now_s >= self._next_s and not self._poller.is_busy:
            self._next_s = now_s + self._interval_s
            self._poller.ask()
        answer = self._poller.take()
        if answer is not None:
            self._take(answer)
        self._listen()
        status = self._status
        if not self._selection.paused and not self._problem and status is not None and timers_run(status):
            self._counted_s = now_s - self._seen_s
        width, height = self._terminal.size()
        self._terminal.draw(draw(self._frame(width, height, now_s)), width, height)

    def _take(self, answer: Answer) -> None:
        self._problem, status = answer.problem, answer.status
        if status is None:
            return
        self._answered_s = answer.at_s
        if self._status is None or self._status.at != status.at:
            ago_s = status.health.last_pass_ago_s if status.health is not None else None
            self._seen_s, self._counted_s = answer.at_s - max(ago_s or 0.0, 0.0), 0.0
        if not timers_run(status):
            self._counted_s = 0.0
        self._status = status

    def _listen(self) -> None:
        data = self._terminal.read()
        keys, self._pending = keys_of(self._pending + data, is_all=not data)
        for key in keys:
            rows = self._rows()
            self._selection = pressed(self._selection.at(rows), key, rows)

    def _frame(self, width: int, height: int, now_s: float) -> ScreenFrame:
        rows = self._rows()
        return ScreenFrame(
            status=self._status,
            rows=rows,
            selection=self._selection.at(rows),
            elapsed_s=self._counted_s,
            width=width,
            height=height,
            signs=self._signs,
            problem=self._staleness(now_s),
        )

    def _rows(self) -> tuple[TopRow, ...]:
        return chosen(self._status, self._selection.choice) if self._status is not None else ()

    def _staleness(self, now_s: float) -> str:
        """Why the status is old or missing, when the daemon is queried again, and what to do about it; in lines."""
        if not self._problem:
            return "Waiting for the daemon." if self._status is None else ""
        again = "paused" if self._selection.paused else f"retrying every {format_duration(self._interval_s)}"
        problem, *hints = self._problem.splitlines()
        if self._status is None:
            return "\n".join([f"{problem[:1].upper()}{problem[1:]}", f"{again[:1].upper()}{again[1:]}.", *hints])
        age = span(float(round(now_s - self._answered_s)))
        return "\n".join([f"This data is {age} old, {again}: {problem}", *hints])

    def _sleep_s(self) -> float:
        """Seconds until there is something to do, unless a key, an answer or a signal arrives."""
        if self._pending:
            return _ESCAPE_S
        if self._selection.paused or self._poller.is_busy:
            return _FRAME_S
        return min(max(self._next_s - time.monotonic(), 0.0), _FRAME_S)


def run_live(top_options: TopOptions) -> None:
    """Show the node live until the user quits."""
    keys = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    signs = prepare(sys.stdout)
    with contextlib.closing(Waiter()) as waiter, contextlib.closing(Signals(waiter)) as signals:
        terminal = Terminal(keys, sys.stdout)
        # OSError: the terminal has gone away, so there is nowhere to report it.
        with contextlib.suppress(OSError), terminal:
            live = Live(
                terminal,
                Poller(lambda: query(top_options.url)),
                Selection(choice=top_options.choice),
                signs,
                top_options.interval_s,
            )
            live.run(waiter, signals)
