"""The lower part of the picture: the selected account with its processes, and what was done lately."""

from rich.style import Style
from rich.text import Text

from watchdog.core.units import format_bytes
from watchdog.export.phrases import byte_cell, clock_time, span
from watchdog.top import amounts
from watchdog.top.grid import Cell, Column, cut, grid
from watchdog.top.scene import BAD, DIM, ODD, PLAIN, TITLE, Scene
from watchdog.top.steps import long
from watchdog.top.values import Account, Deed

_PROCESSES = (
    Column(title="PID", right=True),
    Column(title="NAME", least=12, is_name=True),
    Column(title="CONTAINER", least=9, rank=1, is_name=True),
    Column(title="GPU", right=True),
    Column(title="USED", right=True),
)
_DEEDS = (
    Column(title="TIME"),
    Column(title="DEED"),
    Column(title="RESULT"),
    Column(title="POD", least=24, is_name=True),
    Column(title="USED", right=True, rank=1),
    Column(title="ALLOWED", right=True, rank=2),
    Column(title="RULE", least=8, rank=3, is_name=True),
    Column(title="WHY", least=30, rank=4),
)
_LIGHT = Style(bold=False)
_RESULTS = {"failed": BAD, "blocked": ODD, "interrupted": ODD, "withdrawn": ODD, "observed": ODD}


def selected_lines(account: Account, scene: Scene, room: int) -> list[Text]:
    """What is known of an account in words, and its processes, the largest first."""
    first = Text(account.title, style=TITLE, no_wrap=True, end="")
    first.append(f": {_standing(account, scene)}", _LIGHT)
    lines = [cut(first, scene.width)]
    if not account.is_no_pod:
        lines.append(cut(Text(f"Next: {long(account, scene.elapsed_s)}", no_wrap=True, end=""), scene.width))
    uses = sorted(account.processes, key=lambda use: -(use.used or 0))
    space = room - len(lines) - 1
    if uses and space > 0:
        cells = [_process(use.pid, use.name, use.where, use.card, use.used) for use in uses]
        table = grid(_PROCESSES, cells, scene.width)
        lines.append(table.heading(DIM))
        hidden = len(uses) - space if len(uses) > space else 0
        lines += [table.line(row) for row in cells[: space - (1 if hidden else 0)]]
        if hidden:
            lines.append(Text(f"and {hidden + 1} more", style=DIM, end=""))
    return lines[:room]


def _process(pid: int, name: str, where: str, card: str, used: int | None) -> tuple[Cell, ...]:
    return str(pid), name or "-", where or "-", card, byte_cell(used)


def _standing(account: Account, scene: Scene) -> str:
    if account.is_no_pod:
        return f"{amounts.amount(account.used, scene.signs)} in use: held against no limit, and never acted on"
    parts = []
    if account.declared is not None:
        by = f" by {account.declared_by}" if account.declared_by else ""
        parts.append(f"declares {format_bytes(account.declared)}{by}")
    if account.allowed is not None:
        parts.append(f"may use {format_bytes(account.allowed)}")
    parts.append(f"rule {account.rule}" if account.rule else "no rule")
    at_s = scene.view.at_s if scene.view is not None else None
    if account.over_since_s is not None and at_s is not None:
        parts.append(f"over for {span(float(round(at_s - account.over_since_s + scene.elapsed_s)))}")
    return ", ".join(parts)


def deed_lines(deeds: tuple[Deed, ...], scene: Scene, room: int) -> list[Text]:
    """What was done lately, newest first."""
    if not deeds or room < 2:
        return []
    at_s = scene.view.at_s if scene.view is not None else None
    cells = [_deed(each, at_s, scene) for each in deeds]
    table = grid(_DEEDS, cells, scene.width)
    title = Text(f"Recent actions: {len(deeds)}", style=TITLE, end="")
    return [title, *(table.line(row) for row in cells[: room - 1])]


def _deed(deed: Deed, at_s: float | None, scene: Scene) -> tuple[Cell, ...]:
    when = "" if deed.at_s is None else clock_time(deed.at_s, at_s if at_s is not None else deed.at_s)
    result = deed.result or "under way"
    tone = _RESULTS.get(result, ODD if deed.result is None else PLAIN)
    return (
        when.removesuffix(" UTC") or "now",
        deed.do,
        (result, tone),
        deed.title,
        amounts.amount(deed.used, scene.signs),
        byte_cell(deed.allowed),
        deed.rule or "-",
        deed.why or "-",
    )
