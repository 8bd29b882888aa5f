"""The demo in the terminal: one frame, and a screen that shows one after the other."""

import os
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol, TextIO

from watchdog.cli.demo.scene import DemoScene, Occurrence, Row
from watchdog.core.units import format_bytes
from watchdog.export.colour import has_colour

NOTICE: Final = "The GPU is simulated. The processes, the decisions and the signals are real."
_TITLE: Final = "gpu-watchdog demo: a shared card, three pods, about 20 s"
_TONES: Final = {"good": "32", "warn": "33", "bad": "31", "plain": "", "bold": "1", "dim": "2"}
_TENANTS: Final = ("34", "36", "35")
_INDENT: Final = 2
_GAUGE: Final = 36
_GAUGE_TOP: Final = 1.8  # of allowed
_CARD: Final = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSigns:
    """The characters that bars are made of: one for each tenant, one for what nobody's process holds, and so on."""

    tenants: tuple[str, str, str]
    lingering: str
    free: str
    mark: str


BLOCKS: Final = DemoSigns(tenants=("█", "▓", "▒"), lingering="×", free="·", mark="│")
ASCII: Final = DemoSigns(tenants=("#", "=", "%"), lingering="x", free=".", mark="|")

Part = tuple[str, str]
"""A text with its colour (an SGR parameter, or nothing)."""


def frame(scene: DemoScene, signs: DemoSigns, width: int, height: int) -> list[str]:
    """The lines of a frame, coloured, none wider than `width`; the newest occurrences as far as `height` allows."""
    lines = [*_head(scene, width), *_card(scene, signs), [], *_table(scene, signs), []]
    room = max(height - len(lines), 0)
    shown = scene.occurrences[-room:] if room else ()
    lines += [occurrence_parts(occurrence) for occurrence in shown]
    return [_join(line, width) for line in lines]


def plain_line(scene: DemoScene) -> str:
    """A scene in one line without control codes."""
    tenants = " | ".join(_plain_row(row) for row in scene.rows)
    return f"{_second(scene.second)}  card {_amount(scene.card.used)} of {_amount(scene.card.total)} | {tenants}"


def plain_occurrence(occurrence: Occurrence) -> str:
    """An occurrence in one line without control codes."""
    return "".join(text for text, _ in occurrence_parts(occurrence))


def occurrence_parts(occurrence: Occurrence) -> list[Part]:
    """An occurrence: its second, its word in its colour, the rest."""
    word = (f"{occurrence.word:<9} ", _TONES[occurrence.tone])
    return [(f"{_second(occurrence.second)}  ", _TONES["dim"]), word, (occurrence.text, "")]


def _plain_row(row: Row) -> str:
    ladder = "" if row.verdict == "within" else f", {row.ladder}"
    name = row.title.rpartition("/")[2]
    return f"{name} {_amount(row.used)}/{_amount(row.allowed)} {row.verdict}{ladder}"


def _head(scene: DemoScene, width: int) -> list[list[Part]]:
    clock = f"t ={scene.second:5.1f}s"
    return [[(f"{_TITLE:<{width - len(clock)}}", _TONES["bold"]), (clock, "")], [(NOTICE, "")], []]


def _card(scene: DemoScene, signs: DemoSigns) -> list[list[Part]]:
    total = scene.card.total or 1
    holders = [
        *((row.used, signs.tenants[i], _TENANTS[i]) for i, row in enumerate(scene.rows)),
        (scene.lingering, signs.lingering, _TONES["dim"]),
        (scene.card.reserved or 0, signs.mark, _TONES["dim"]),
    ]
    parts: list[Part] = []
    upto, filled = 0, 0
    for used, sign, colour in holders:
        upto += used
        cells = round(_CARD * upto / total) - filled
        filled += cells
        parts.append((sign * cells, colour))
    parts.append((signs.free * (_CARD - filled), _TONES["dim"]))
    tail = f"  {_amount(scene.card.used)} of {_amount(total)} used"
    return [[("GPU 0  ", _TONES["bold"]), *parts, (tail, "")]]


def _table(scene: DemoScene, signs: DemoSigns) -> Iterable[list[Part]]:
    titles = f"  {'POD':<22}{'USED':>8}{'DECLARED':>10}{'ALLOWED':>9}  {'VERDICT':<9}PROCESSES"
    yield [(titles, _TONES["bold"])]
    for i, row in enumerate(scene.rows):
        amounts = f"{_amount(row.used):>8}{_amount(row.declared):>10}{_amount(row.allowed):>9}  "
        tone = _TONES["bad" if row.verdict == "killed" else "warn" if row.verdict == "over" else "good"]
        name = (f"{row.title:<22}"[:22], _TONES["bold"])
        yield [
            (f"{signs.tenants[i]} ", _TENANTS[i]),
            name,
            (amounts, ""),
            (f"{row.verdict:<9}", tone),
            (row.processes, ""),
        ]
        yield [(" " * _INDENT, ""), *_gauge(row, i, signs), (f" {row.ladder}", _TONES[row.tone])]
    yield [(_ruler(scene.rows), _TONES["dim"])]


def _gauge(row: Row, number: int, signs: DemoSigns) -> Iterable[Part]:
    """A bar of what is used against what is allowed, with the marks of the ladder in it."""
    share = row.used / row.allowed if row.allowed else 0.0
    filled = min(round(_GAUGE * share / _GAUGE_TOP), _GAUGE)
    marks = {_place(mark.share) for mark in row.marks}
    bar = "".join(signs.mark if i in marks else signs.tenants[number] if i < filled else " " for i in range(_GAUGE))
    yield bar[:filled], _TENANTS[number]
    yield bar[filled:], _TONES["dim"]
    yield f" {round(100 * share):>4}%", ""


def _ruler(rows: tuple[Row, ...]) -> str:
    """Names the marks, which stand at one place in all gauges: the first to the left of it, the last to the right."""
    marks = rows[0].marks if rows else ()
    if not marks:
        return ""
    first, last = marks[0], marks[-1]
    return (
        f"{first.label + '^':>{_INDENT + _place(first.share) + 1}}".ljust(_INDENT + _place(last.share))
        + f"^{last.label}"
    )


def _place(share: float) -> int:
    return round(_GAUGE * share / _GAUGE_TOP)


def _amount(amount: int | None) -> str:
    return "?" if amount is None else format_bytes(amount)


def _second(second: float) -> str:
    return f"t={second:4.1f}s"


def _join(line: Iterable[Part], width: int) -> str:
    """Write a line's parts in their colours, cut to a width."""
    left, written = width, []
    for text, colour in line:
        shown = text[:left]
        left -= len(shown)
        written.append(f"\x1b[{colour}m{shown}\x1b[0m" if colour and shown else shown)
    return "".join(written).rstrip()


_LEAST_COLUMNS: Final = 72
_LEAST_ROWS: Final = 20
_WIDEST: Final = 100
_LONG: Final = 10_000
_PLAIN_EVERY_S: Final = 1.0


class Screen(Protocol):
    """Shows scenes one after the other, the last of them to stay, and then texts."""

    def show(self, scene: DemoScene) -> None:
        """Show a scene."""

    def finish(self, scene: DemoScene) -> None:
        """Show the last scene, with all that happened."""

    def say(self, title: str, text: str) -> None:
        """Write a text below."""

    def close(self) -> None:
        """Give the terminal back as it was."""


def screen_for(out: TextIO) -> Screen:
    """Frames on a terminal that is large enough and knows colour, else lines."""
    columns, rows = _size(out)
    if has_colour(out) and columns >= _LEAST_COLUMNS and rows >= _LEAST_ROWS:
        return FrameScreen(out)
    return LineScreen(out)


class LineScreen:
    """Writes a line for each occurrence, and about every second one for the whole node; no control codes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._told = 0
        self._next_s = 0.0
        self._write((NOTICE,))

    def show(self, scene: DemoScene) -> None:
        """Write what is new."""
        self._tell(scene)
        if scene.second >= self._next_s:
            self._next_s = scene.second + _PLAIN_EVERY_S
            self._write((plain_line(scene),))

    def finish(self, scene: DemoScene) -> None:
        """Write how it ended."""
        self._tell(scene)
        self._write((plain_line(scene),))

    def say(self, title: str, text: str) -> None:
        """Write a text in lines of 79 characters."""
        self._write(("", title, *_wrapped(text, 79)))

    def close(self) -> None:
        """Nothing is to be given back."""

    def _tell(self, scene: DemoScene) -> None:
        self._write(plain_occurrence(each) for each in scene.occurrences[self._told :])
        self._told = len(scene.occurrences)

    def _write(self, lines: Iterable[str]) -> None:
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()


class FrameScreen:
    """Draws each scene over the one before it."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._drawn = 0
        encoding = (out.encoding or "").lower().replace("-", "")
        self._signs = BLOCKS if encoding == "utf8" else ASCII
        self._hidden = False

    def show(self, scene: DemoScene) -> None:
        """Draw a scene as far as it fits the terminal."""
        columns, rows = _size(self._out)
        self._draw(frame(scene, self._signs, min(columns, _WIDEST) - 1, rows - 1))

    def finish(self, scene: DemoScene) -> None:
        """Draw the last scene whole; it may scroll."""
        self._draw(frame(scene, self._signs, min(_size(self._out)[0], _WIDEST) - 1, _LONG))

    def say(self, title: str, text: str) -> None:
        """Write a text below the last scene."""
        width = min(_size(self._out)[0], _WIDEST) - 1
        lines = ("", f"\x1b[1m{title}\x1b[0m", *_wrapped(text, width))
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()

    def close(self) -> None:
        """Show the cursor again."""
        if self._hidden:
            self._out.write("\x1b[?25h")
            self._out.flush()

    def _draw(self, lines: list[str]) -> None:
        up = f"\x1b[{self._drawn}F" if self._drawn else "\x1b[?25l"
        self._hidden = True
        # Line by line over the old ones, not a clearing first: that would flicker.
        self._out.write(up + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
        self._out.flush()
        self._drawn = len(lines)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _size(out: TextIO) -> tuple[int, int]:
    """Columns and rows; 80 x 24 where the terminal does not say."""
    try:
        size = os.get_terminal_size(out.fileno())
    except (OSError, ValueError):
        return 80, 24
    return size.columns or 80, size.lines or 24
