"""The GPUs in the picture: a line each, or several in a line where there are many."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from watchdog.export.phrases import byte_cell, count
from watchdog.top.amounts import amount, card_bar
from watchdog.top.grid import Cell, Column, Piece, grid, plain
from watchdog.top.scene import BAD, DIM, ODD, PLAIN, STYLES, TITLE, Scene
from watchdog.top.values import Card

_COLUMNS = (
    Column(title="GPU"),
    Column(title="MEMORY"),
    Column(title="USED", right=True),
    Column(title="TOTAL", right=True),
    Column(title="UNATTRIBUTED", right=True, rank=1),
    Column(title="RESIDUAL", right=True, rank=2),
    Column(title="RESERVED", right=True, rank=4),
    Column(title="NAME", least=8, rank=3, is_name=True),
)
_BAR = 20
_SMALL_BAR = 8
_BETWEEN = 2


def card_lines(cards: tuple[Card, ...], scene: Scene, room: int) -> list[Text]:
    """The GPUs in at most so many lines."""
    if not cards:
        return [Text("No GPU is known.", style=ODD, end="")]
    if len(cards) <= max(room - 1, 2):
        rows = [_row(card, scene) for card in cards]
        table = grid(_COLUMNS, rows, scene.width)
        return [table.heading(TITLE), *(table.line(row) for row in rows)]
    lines = _close([_cell(card, scene) for card in cards], scene.width)
    if len(lines) <= room:
        return lines
    return _close([_small_cell(card, scene) for card in cards], scene.width, room)


def _row(card: Card, scene: Scene) -> tuple[Cell, ...]:
    wide = min(max(scene.width // 5, _SMALL_BAR), 2 * _BAR)
    return (
        (card.label, TITLE),
        _bar(card, wide, scene),
        (byte_cell(card.used) if card.up else "lost", _tone(card)),
        byte_cell(card.total),
        (amount(card.no_pod, scene.signs), STYLES["no_pod"] if card.no_pod.known != 0 else DIM),
        byte_cell(card.residual),
        byte_cell(card.reserved),
        card.name,
    )


def _tone(card: Card) -> Style:
    return BAD if not card.up or card.short else ODD if card.used is None else PLAIN


def _bar(card: Card, width: int, scene: Scene) -> tuple[Piece, ...]:
    return tuple((text, STYLES.get(kind, ODD)) for kind, text in card_bar(card, width, scene.signs))


def _close(cells: Sequence[tuple[Piece, ...]], width: int, room: int = 1000) -> list[Text]:
    """Several GPUs in a line, as many as fit."""
    size = max(cell_len(plain(cell)) for cell in cells) + _BETWEEN
    across = max((width + _BETWEEN) // size, 1)
    lines = []
    for first in range(0, len(cells), across):
        line = Text(no_wrap=True, end="")
        for cell in cells[first : first + across]:
            for text, style in cell:
                line.append(text, style)
            line.append(" " * (size - cell_len(plain(cell))))
        line.truncate(width)
        lines.append(line)
    if len(lines) > room:
        hidden = len(cells) - across * (room - 1)
        return [*lines[: room - 1], Text(f"and {count(hidden, 'more GPU')}", style=DIM, end="")]
    return lines


def _cell(card: Card, scene: Scene) -> tuple[Piece, ...]:
    told = f"{byte_cell(card.used).rjust(7)} of {byte_cell(card.total)}" if card.up else "does not answer"
    return (_name(card), *_bar(card, _SMALL_BAR, scene), (f" {told}", _tone(card)))


def _small_cell(card: Card, scene: Scene) -> tuple[Piece, ...]:
    told = "lost"
    if card.up:
        told = f"{round(100 * card.used / card.total)}%" if card.used is not None and card.total else "unknown"
    return (_name(card), *_bar(card, _SMALL_BAR, scene), (f" {told.rjust(4)}", _tone(card)))


def _name(card: Card) -> Piece:
    return (f"{card.label.rjust(2)} ", TITLE)
