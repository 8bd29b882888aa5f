"""The live table: the loop that queries the daemon, listens to keys and draws, until it is told to end."""

import contextlib
import os
import signal
import sys
import time
from dataclasses import replace
from typing import Any, Final

from watchdog.cli.top import TopOptions, prepare
from watchdog.cli.top.asker import Asker, StatusAnswer, ask_view
from watchdog.cli.top.grid import Drawing
from watchdog.cli.top.picture import picture
from watchdog.cli.top.state import Selection, pressed
from watchdog.cli.top.terminal import Terminal, keys_of
from watchdog.cli.top.values import NodeView, Signs
from watchdog.clock import Waiter
from watchdog.core.units import format_duration
from watchdog.report.text import span

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OTHERS: Final = (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)
_ESCAPE_S: Final = 0.05  # the rest of an escape sequence comes in this time, also over a slow line
_FRAME_S: Final = 1.0


class Signals:
    """Notes the signals that end, stop or resize it, and puts back what was there before."""

    def __init__(self, waiter: Waiter) -> None:
        self.has_ended = False
        self.has_stopped = False
        self.is_new = False
        self._waiter = waiter
        self._before: dict[signal.Signals, Any] = {each: signal.getsignal(each) for each in (*_ENDING, *_OTHERS)}
        for each in _ENDING:
            # A program started by nohup(1) or in a shell's background goes on ignoring what it ignores.
            if self._before[each] is not signal.SIG_IGN:
                waiter.on(each, self._end)
        waiter.on(signal.SIGWINCH, _wake)
        waiter.on(signal.SIGCONT, self._renew)
        waiter.on(signal.SIGTSTP, self._stop)

    def close(self) -> None:
        """Put back what was there before."""
        for each, handler in self._before.items():
            if handler is not None:
                signal.signal(each, handler)

    def stop_here(self) -> None:
        """Stop as Ctrl-Z does; goes on when it is continued."""
        self.has_stopped = False
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        self._waiter.on(signal.SIGTSTP, self._stop)

    def _end(self) -> None:
        self.has_ended = True

    def _stop(self) -> None:
        self.has_stopped = True

    def _renew(self) -> None:
        self.is_new = True


def _wake() -> None:
    """Nothing more than to wake up: each frame asks for the size."""


class Live:
    """What is shown at the moment, and what it is made of."""

    def __init__(self, terminal: Terminal, asker: Asker, state: Selection, signs: Signs, interval_s: float) -> None:
        self._terminal = terminal
        self._asker = asker
        self._state = state
        self._signs = signs
        self._interval_s = interval_s
        self._view: NodeView | None = None
        self._problem = ""
        self._answered_s = time.monotonic()
        self._seen_s = 0.0  # when this very cycle was, as far as that is known
        self._counted_s = 0.0
        self._next_s = 0.0
        self._pending = b""

    def run(self, waiter: Waiter, signals: Signals) -> None:
        """Show it until the user or a signal ends it; a terminal that goes away ends it too."""
        waiter.watch(self._asker.fileno())
        if self._terminal.keys is not None:
            waiter.watch(self._terminal.keys)
        with contextlib.suppress(EOFError):
            while not self._state.ended and not signals.has_ended:
                if signals.has_stopped:
                    self._terminal.give_back()
                    signals.stop_here()
                    signals.is_new = True
                if signals.is_new:
                    # Whoever continues it may have changed the terminal meanwhile.
                    signals.is_new = False
                    self._terminal.give_back()
                    self._terminal.take()
                self._turn()
                waiter.wait(self._rest_s())

    def _turn(self) -> None:
        now_s = time.monotonic()
        if not self._state.paused and now_s >= self._next_s and not self._asker.is_busy:
            self._next_s = now_s + self._interval_s
            self._asker.ask()
        answer = self._asker.take()
        if answer is not None:
            self._take(answer)
        self._listen()
        if not self._state.paused and not self._problem and self._view is not None and self._view.counts:
            self._counted_s = now_s - self._seen_s
        width, height = self._terminal.size()
        self._terminal.draw(picture(self._scene(width, height, now_s)), width, height)

    def _take(self, answer: StatusAnswer) -> None:
        self._problem = answer.problem
        if answer.view is None:
            return
        self._answered_s = answer.at_s
        if self._view is None or self._view.at != answer.view.at:
            self._seen_s, self._counted_s = answer.at_s - answer.view.ago_s, 0.0
        if not answer.view.counts:
            self._counted_s = 0.0
        self._view = answer.view

    def _listen(self) -> None:
        data = self._terminal.read()
        keys, self._pending = keys_of(self._pending + data, is_all=not data)
        for key in keys:
            rows = self._scene(*self._terminal.size(), 0.0).rows
            self._state = pressed(self._state.at(rows), key, rows)

    def _scene(self, width: int, height: int, now_s: float) -> Drawing:
        scene = Drawing(
            view=self._view,
            state=self._state,
            elapsed_s=self._counted_s,
            width=width,
            height=height,
            signs=self._signs,
            old=self._old(now_s),
        )
        return replace(scene, state=self._state.at(scene.rows))

    def _old(self, now_s: float) -> str:
        """Why the picture is old or missing, when the daemon is asked again, and what helps, in lines."""
        if not self._problem:
            return "Asking the daemon." if self._view is None else ""
        again = "paused" if self._state.paused else f"asked again every {format_duration(self._interval_s)}"
        problem, *hints = self._problem.splitlines()
        if self._view is None:
            return "\n".join([f"{problem[:1].upper()}{problem[1:]}", f"{again[:1].upper()}{again[1:]}.", *hints])
        age = span(float(round(now_s - self._answered_s)))
        return "\n".join([f"This picture is {age} old, {again}: {problem}", *hints])

    def _rest_s(self) -> float:
        """Until when there is nothing to do, unless a key, an answer or a signal comes."""
        if self._pending:
            return _ESCAPE_S
        if self._state.paused or self._asker.is_busy:
            return _FRAME_S
        return min(max(self._next_s - time.monotonic(), 0.0), _FRAME_S)


def run_live(top_options: TopOptions) -> None:
    """Show the node until the user ends it."""
    keys = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    signs = prepare(sys.stdout)
    with contextlib.closing(Waiter()) as waiter, contextlib.closing(Signals(waiter)) as signals:
        terminal = Terminal(keys, sys.stdout)
        # OSError: the terminal has gone away, and nobody is left to be told so.
        with contextlib.suppress(OSError), terminal:
            live = Live(
                terminal,
                Asker(lambda: ask_view(top_options.url)),
                Selection(choice=top_options.choice),
                signs,
                top_options.interval_s,
            )
            live.run(waiter, signals)
