"""`gpu-watchdog top`: the GPUs of a node, its pods and what comes next, live in a terminal or once."""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

import click

from watchdog.cli.client import QueryError, help_lines, query_json, query_status
from watchdog.cli.rows import TopRow, chosen, is_gpu, timers_run
from watchdog.cli.status_text import status_text
from watchdog.cli.terminal import Terminal, size_of
from watchdog.cli.top_keys import NODE_KEYS, Bindings, Selection, keys_of, pressed
from watchdog.cli.top_view import ScreenFrame, draw
from watchdog.cli.views import Choice, prepare
from watchdog.clock import Bell, Waiter
from watchdog.core.units import format_duration
from watchdog.report.status import Status
from watchdog.report.text import capital, span


def print_top(url: str, choice: Choice, *, as_json: bool) -> None:
    """Print the status once."""
    try:
        if as_json:
            click.echo(json.dumps(query_json(url), indent=1))
        else:
            status = query_status(url)
            if choice.gpu and not any(is_gpu(gpu, choice.gpu) for gpu in status.gpus):
                known = ", ".join(gpu.number for gpu in status.gpus) or "none"
                raise click.BadParameter(f"{choice.gpu!r} is no GPU of this node; it has: {known}", param_hint="--gpu")
            click.echo(status_text(status, choice, prepare(sys.stdout)), nl=False)
    except QueryError as error:
        raise click.ClickException(_unreached(error, "top", "--json" if as_json else "--once")) from error


def _unreached(error: QueryError, *arguments: str) -> str:
    """Why a daemon could not be queried by a command with these arguments, and what to do about it; in lines."""
    return "\n  ".join([str(error), *help_lines(error, *arguments, terminal=arguments == ("top",))])


_ENDING: Final = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
_ESCAPE_S: Final = 0.05  # the rest of an escape sequence arrives within this time, even over a slow line
_FRAME_S: Final = 1.0


Answer = TypeVar("Answer")


class Poller(Generic[Answer]):
    """Asks on a thread, so that keys work while a daemon hangs; one question at a time."""

    def __init__(self, ask: Callable[[], Answer], bell: Bell) -> None:
        """`ask` never raises; the bell is rung when an answer has arrived."""
        self.is_busy = False
        self._ask = ask
        self._bell = bell
        self._answers: deque[tuple[Answer, float]] = deque(maxlen=1)

    def send_query(self) -> None:
        """Ask; no question may be in progress."""
        self.is_busy = True
        # A daemon thread: exiting must not wait for an answer that never comes.
        threading.Thread(target=self._query, name="poller", daemon=True).start()

    def pop_answer(self) -> tuple[Answer, float] | None:
        """An answer that has arrived, and when (monotonic)."""
        if not self._answers:
            return None
        self.is_busy = False
        return self._answers.pop()

    def _query(self) -> None:
        self._answers.append((self._ask(), time.monotonic()))
        self._bell.ring()


# A status, or why there is none and what to do, in lines.
Asked = tuple[Status | None, str]


def ask_at(url: str) -> Asked:
    """What the daemon at an address answers."""
    try:
        return query_status(url), ""
    except QueryError as error:
        return None, _unreached(error, "top")


class View(Protocol):
    """What is on the screen, until it has ended."""

    @property
    def ended(self) -> bool:
        """Whether the user has left it."""

    def update(self) -> None:
        """Take what has arrived, and draw."""

    def sleep_s(self) -> float:
        """Seconds until there is something to do, unless a key, an answer or a signal arrives."""


class Signals:
    """Records the signals that end, stop or resize the view; `close` restores the previous handlers."""

    def __init__(self, waiter: Waiter) -> None:
        self.received: set[signal.Signals] = set()
        self._waiter = waiter
        handled = (*_ENDING, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)
        self._before: dict[signal.Signals, Any] = {number: signal.getsignal(number) for number in handled}
        for number, handler in self._before.items():
            # A program started by nohup(1) or in a shell's background keeps ignoring what it ignores.
            if handler is not signal.SIG_IGN or number not in _ENDING:
                waiter.on(number, partial(self.received.add, number))

    def close(self) -> None:
        """Restore the previous handlers."""
        for number, handler in self._before.items():
            if handler is not None:
                signal.signal(number, handler)

    def stop_here(self) -> None:
        """Stop as Ctrl-Z does; returns when the process is continued."""
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        self._waiter.on(signal.SIGTSTP, partial(self.received.add, signal.SIGTSTP))


class Live:
    """The view of a node: what is on the screen, and the status and choices behind it."""

    def __init__(
        self,
        terminal: Terminal,
        bell: Bell,
        ask: Callable[[], Asked],
        selection: Selection,
        interval_s: float,
        bindings: Bindings = NODE_KEYS,
    ) -> None:
        self._terminal = terminal
        self._poller = Poller(ask, bell)
        self._selection = selection
        self._bindings = bindings
        self._signs = prepare(sys.stdout)
        self._interval_s = interval_s
        self._status: Status | None = None
        self._problem = ""
        self._answered_s = time.monotonic()
        self._cycle_s = 0.0  # when the shown cycle was, as far as that is known
        self._elapsed_s = 0.0  # how far its timers have run since
        self._next_s = 0.0
        self._pending = b""

    @property
    def ended(self) -> bool:
        """Whether the user has left it."""
        return self._selection.ended

    def update(self) -> None:
        """Take what has arrived, and draw."""
        now_s, is_paused = time.monotonic(), self._selection.paused
        if not is_paused and now_s >= self._next_s and not self._poller.is_busy:
            self._next_s = now_s + self._interval_s
            self._poller.send_query()
        self._take_answer()
        self._take_keys()
        if not self._selection.paused and not self._problem and self._status is not None and timers_run(self._status):
            self._elapsed_s = now_s - self._cycle_s
        width, height = size_of(sys.stdout)
        rows = self._rows()
        frame = ScreenFrame(
            status=self._status,
            rows=rows,
            selection=self._selection.at(rows),
            elapsed_s=self._elapsed_s,
            width=width,
            height=height,
            signs=self._signs,
            problem=self._staleness(now_s),
            is_inner=self._bindings is not NODE_KEYS,
        )
        self._terminal.draw(draw(frame), width, height)

    def _take_answer(self) -> None:
        answer = self._poller.pop_answer()
        # What was asked for before a pause is not shown during it.
        if answer is None or (self._selection.paused and self._status is not None):
            return
        (status, self._problem), at_s = answer
        if status is None:
            return
        self._answered_s = at_s
        if self._status is None or self._status.at != status.at:
            ago_s = status.health.last_cycle_ago_s if status.health is not None else None
            self._cycle_s, self._elapsed_s = at_s - max(ago_s or 0.0, 0.0), 0.0
        if not timers_run(status):
            self._elapsed_s = 0.0
        self._status = status

    def _take_keys(self) -> None:
        data = self._terminal.read()
        keys, self._pending = keys_of(self._pending + data, is_all=not data)
        for key in keys:
            rows = self._rows()
            self._selection = pressed(self._selection.at(rows), key, rows, self._bindings)

    def _rows(self) -> tuple[TopRow, ...]:
        return chosen(self._status, self._selection.choice) if self._status is not None else ()

    def _staleness(self, now_s: float) -> str:
        """Why the status is old or missing, when the daemon is queried again, and what to do about it; in lines."""
        if not self._problem:
            return "Waiting for the daemon." if self._status is None else ""
        again = "paused" if self._selection.paused else f"retrying every {format_duration(self._interval_s)}"
        problem, *hints = self._problem.splitlines()
        if self._status is None:
            return "\n".join([capital(problem), f"{capital(again)}.", *hints])
        age = span(float(round(now_s - self._answered_s)))
        return "\n".join([f"This data is {age} old, {again}: {problem}", *hints])

    def sleep_s(self) -> float:
        """Seconds until there is something to do, unless a key, an answer or a signal arrives."""
        if self._pending:
            return _ESCAPE_S
        if self._selection.paused or self._poller.is_busy:
            return _FRAME_S
        return min(max(self._next_s - time.monotonic(), 0.0), _FRAME_S)


def run_live(url: str, choice: Choice, interval_s: float) -> None:
    """Show a node live until the user quits."""
    show(lambda terminal, bell: Live(terminal, bell, partial(ask_at, url), Selection(choice=choice), interval_s))


def show(make: Callable[[Terminal, Bell], View]) -> None:
    """Show a view until the user leaves it, a signal ends it or the terminal goes away."""
    keys = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    with (
        contextlib.closing(Bell()) as bell,
        contextlib.closing(Waiter()) as waiter,
        contextlib.closing(Signals(waiter)) as signals,
        contextlib.suppress(OSError),  # the terminal has gone away, so there is nowhere to report it
        Terminal(keys, sys.stdout) as terminal,
    ):
        waiter.watch(bell.fileno())
        if keys is not None:
            waiter.watch(keys)
        _run(make(terminal, bell), terminal, waiter, signals, bell)


def _run(view: View, terminal: Terminal, waiter: Waiter, signals: Signals, bell: Bell) -> None:
    with contextlib.suppress(EOFError):
        while not view.ended and not signals.received & _ENDING:
            if signal.SIGTSTP in signals.received:
                signals.received.discard(signal.SIGTSTP)
                terminal.give_back()
                signals.stop_here()
                signals.received.add(signal.SIGCONT)
            if signal.SIGCONT in signals.received:
                # The shell may have changed the terminal meanwhile.
                signals.received.discard(signal.SIGCONT)
                terminal.give_back()
                terminal.take_over()
            bell.silence()
            view.update()
            waiter.wait(view.sleep_s())
