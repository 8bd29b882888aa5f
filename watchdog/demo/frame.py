"""A scene as lines of text: a frame for a terminal, a single line for a pipe."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from watchdog.core.units import format_bytes
from watchdog.demo.chronicle import Occurrence
from watchdog.demo.scene import Row, Scene

NOTICE: Final = "The GPU is simulated. The processes, the decisions and the signals are real."
_TITLE: Final = "gpu-watchdog demo: a shared card, three pods, about 20 s"
_TONES: Final = {"good": "32", "warn": "33", "bad": "31", "plain": "", "bold": "1", "dim": "2"}
_TENANTS: Final = ("34", "36", "35")
_INDENT: Final = 2
_GAUGE: Final = 36
_GAUGE_TOP: Final = 1.8  # of allowed
_CARD: Final = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """The characters that bars are made of: one for each tenant, one for what nobody's process holds, and so on."""

    tenants: tuple[str, str, str]
    lingering: str
    free: str
    mark: str


BLOCKS: Final = Signs(tenants=("█", "▓", "▒"), lingering="×", free="·", mark="│")
ASCII: Final = Signs(tenants=("#", "=", "%"), lingering="x", free=".", mark="|")

Part = tuple[str, str]
"""A text with its colour (an SGR parameter, or nothing)."""


def frame(scene: Scene, signs: Signs, width: int, height: int) -> list[str]:
    """The lines of a frame, coloured, none wider than `width`; the newest occurrences as far as `height` allows."""
    lines = [*_head(scene, width), *_card(scene, signs), [], *_table(scene, signs), []]
    room = max(height - len(lines), 0)
    shown = scene.occurrences[-room:] if room else ()
    lines += [occurrence_parts(occurrence) for occurrence in shown]
    return [_join(line, width) for line in lines]


def plain_line(scene: Scene) -> str:
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


def _head(scene: Scene, width: int) -> list[list[Part]]:
    clock = f"t ={scene.second:5.1f}s"
    return [[(f"{_TITLE:<{width - len(clock)}}", _TONES["bold"]), (clock, "")], [(NOTICE, "")], []]


def _card(scene: Scene, signs: Signs) -> list[list[Part]]:
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


def _table(scene: Scene, signs: Signs) -> Iterable[list[Part]]:
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


def _gauge(row: Row, number: int, signs: Signs) -> Iterable[Part]:
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
