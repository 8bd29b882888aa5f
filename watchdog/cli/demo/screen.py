"""The demo on a terminal, with the tables of `top` above its events; elsewhere as lines."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from rich.text import Text

from watchdog.cli.rows import TopRow, chosen
from watchdog.cli.tables import Cell, cut, printed, text, wrapped
from watchdog.cli.terminal import size_of
from watchdog.cli.top_keys import Selection
from watchdog.cli.top_view import ScreenFrame, account_lines, gpu_lines
from watchdog.cli.views import ASCII, Choice, Signs, prepare
from watchdog.report.status import Status
from watchdog.report.text import byte_cell, has_colour

NOTICE: Final = "The GPU is simulated. The processes, the decisions and the signals are real."
_TITLE: Final = "gpu-watchdog demo: a shared card, three pods, about 20 s"
_CHOICE: Final = Choice(sort="name")
_NONE_SELECTED: Final = Selection(choice=_CHOICE, place=-1)
_LEAST_COLUMNS: Final = 72
_LEAST_ROWS: Final = 20
_WIDEST: Final = 120
_UNBOUNDED: Final = 10_000
_PIPE_WIDTH: Final = 79
_LINE_EVERY_S: Final = 1.0


class OutputError(OSError):
    """The screen's output can't be written, such as to a full disk or to a pipe whose reader has gone."""


def _write(out: TextIO, text: str) -> None:
    """Write a text at once; OutputError."""
    try:
        out.write(text)
        out.flush()
    except OSError as error:
        raise OutputError(error.errno, error.strerror) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoEvent:
    """A line: the second of the demo, a word for what happened with its style, and the rest."""

    second: float
    word: str
    text: str
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoView:
    """What there is to show."""

    # Of the demo.
    second: float
    # That of the last cycle.
    status: Status
    # The age of that cycle.
    elapsed_s: float
    # That of the policy.
    rule: str
    events: Sequence[DemoEvent]


def frame(view: DemoView, signs: Signs, width: int, height: int) -> list[Text]:
    """The lines of a frame, none wider than `width`; of the events the newest for which there is room."""
    rows = chosen(view.status, _CHOICE)
    shown = ScreenFrame(
        status=view.status,
        rows=rows,
        selection=_NONE_SELECTED,
        elapsed_s=view.elapsed_s,
        width=width,
        height=height,
        signs=signs,
    )
    second = f"t ={view.second:5.1f}s"
    lines = [
        text(f"{_TITLE:<{width - len(second)}}{second}", "bold"),
        text(NOTICE),
        text(""),
        *gpu_lines(view.status, shown, 2),
        text(""),
        *account_lines(shown, len(rows) + 2),
        text(view.rule, "dim"),
        text(""),
    ]
    room = max(height - len(lines), 0)
    lines += [event_line(event) for event in view.events[-room:]] if room else []
    return [cut(line, width) for line in lines]


def event_line(event: DemoEvent) -> Text:
    """An event: its second, its word in its style, the rest."""
    return Text.assemble(
        (f"t={event.second:4.1f}s  ", "dim"), (f"{event.word:<9} ", event.style), text(event.text), end=""
    )


def plain_line(view: DemoView) -> str:
    """The node in one line without control codes."""
    gpu = view.status.gpus[0].memory
    pods = " | ".join(_plain_row(row, view.elapsed_s) for row in chosen(view.status, _CHOICE) if row.account.pod)
    return f"t={view.second:4.1f}s  card {byte_cell(gpu.used)} of {byte_cell(gpu.total)} | {pods}"


def _plain_row(row: TopRow, elapsed_s: float) -> str:
    following = row.next_short(elapsed_s)
    rest = f", {following}" if following != "-" else ""
    return f"{row.account.pod} {row.used(ASCII)}/{row.allowed} {row.account.verdict}{rest}"


class LineScreen:
    """Writes a line per event and one per second for the whole node, without control codes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._written = 0
        self._next_s = 0.0
        self._write([NOTICE])

    def show(self, view: DemoView) -> None:
        """Write what is new."""
        self._write(str(event_line(event)) for event in view.events[self._written :])
        self._written = len(view.events)
        if view.second >= self._next_s:
            self._next_s = view.second + _LINE_EVERY_S
            self._write([plain_line(view)])

    def finish(self, view: DemoView) -> None:
        """Write how it ended."""
        self._next_s = view.second
        self.show(view)

    def say(self, title: str, body: str) -> None:
        """Write a text in lines of 79 characters."""
        self._write(["", title, *wrapped(body, _PIPE_WIDTH, "  ", "  ")])

    def close(self) -> None:
        """Nothing to restore."""

    def _write(self, lines: Iterable[Cell]) -> None:
        _write(self._out, printed(lines))


class FrameScreen:
    """Draws each view over the previous one."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._drawn = 0
        self._signs = prepare(out)

    def show(self, view: DemoView) -> None:
        """Draw as much of a view as fits the terminal."""
        self._draw(view, size_of(self._out)[1] - 1)

    def finish(self, view: DemoView) -> None:
        """Draw the last view whole; it may scroll."""
        self._draw(view, _UNBOUNDED)

    def say(self, title: str, body: str) -> None:
        """Write a text below the last view."""
        lines = [text(""), text(title, "bold"), *wrapped(body, self._width, "  ", "  ")]
        _write(self._out, printed(lines, colour=True))

    def close(self) -> None:
        """Show the cursor again."""
        if self._drawn:
            _write(self._out, "\x1b[?25h")

    @property
    def _width(self) -> int:
        return min(size_of(self._out)[0], _WIDEST) - 1

    def _draw(self, view: DemoView, height: int) -> None:
        lines = printed(frame(view, self._signs, self._width, height), colour=True).splitlines()
        up = f"\x1b[{self._drawn}F" if self._drawn else "\x1b[?25l"
        # Line by line over the old ones; clearing the screen first would flicker.
        _write(self._out, up + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
        self._drawn = len(lines)


Screen = FrameScreen | LineScreen


def screen_for(out: TextIO) -> Screen:
    """Frames on a terminal that is large enough and has colour, otherwise lines."""
    columns, rows = size_of(out)
    if has_colour(out) and columns >= _LEAST_COLUMNS and rows >= _LEAST_ROWS:
        return FrameScreen(out)
    return LineScreen(out)
