"""The live picture, line by line: what gets how much room on a terminal of which size."""

from rich.text import Text

from watchdog.top.cards import card_lines
from watchdog.top.head import foot, head, help_lines, troubles
from watchdog.top.panels import deed_lines, selected_lines
from watchdog.top.scene import Scene
from watchdog.top.table import account_lines

_TALL = 32  # from this height on sections stand apart, and have room
_SHORT = 16  # below it there is room for the table alone


def picture(scene: Scene) -> list[Text]:
    """The lines of a frame: never more than the terminal has, nor wider."""
    return _lines(scene)[: scene.height]


def _lines(scene: Scene) -> list[Text]:
    view, height = scene.view, scene.height
    if scene.state.help:
        return help_lines(scene.width)
    if view is None:
        return [*troubles(scene, height - 1), foot(scene)]
    rows, gap = scene.rows, [Text(end="")] if height >= _TALL else []
    top = [*head(view, scene), *troubles(scene, 1 if height < _SHORT else 3 if height < _TALL else 5)]
    cards = card_lines(view.cards, scene, max(height // 5, 2))
    selected = rows[scene.state.place] if scene.state.place < len(rows) else None
    below = max(height // 5, 4) if height >= _SHORT else 0
    panel = selected_lines(selected, scene, below) if selected is not None and below else []
    done = deed_lines(view.deeds, scene, max(height // 7, 3)) if height >= _SHORT else []
    lower = [*(gap + panel if panel else []), *(gap + done if done else [])]
    above = [*top, *gap, *cards, *gap]
    room = height - len(above) - len(lower) - 1
    if room < 4:  # the table is what people come for
        lower, above = [], [*top[:2], *cards[: max(height - 8, 0)]]
        room = height - len(above) - 1
    return [*above, *account_lines(rows, scene, room), *_fill(room, rows, lower), foot(scene)]


def _fill(room: int, rows: tuple[object, ...], lower: list[Text]) -> list[Text]:
    """Keep the keys on the last line, and the panels above them, however few rows there are."""
    empty = max(room - max(len(rows) + 2, 2), 0)
    return [*lower, *(Text(end="") for _ in range(empty))] if empty else lower
