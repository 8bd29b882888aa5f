"""The accounts in the picture: what each uses against what it may, and what comes next."""

from rich.style import Style
from rich.text import Text

from watchdog.export.phrases import count, span
from watchdog.top import amounts
from watchdog.top.grid import Cell, Column, cut, grid, plain
from watchdog.top.scene import BAD, DIM, MARKED, ODD, PLAIN, STYLES, TITLE, Scene
from watchdog.top.steps import short
from watchdog.top.values import Account

_COLUMNS = (
    Column(title=""),
    Column(title="POD", least=24, is_name=True),
    Column(title="USED", right=True),
    Column(title="DECLARED", right=True, rank=5),
    Column(title="ALLOWED", right=True, rank=3),
    Column(title="", rank=4),
    Column(title="%", right=True),
    Column(title="VERDICT", rank=1),
    Column(title="OVER FOR", right=True, rank=6),
    Column(title="RULE", least=8, rank=7, is_name=True),
    Column(title="NEXT", least=19, rank=2),
)


def account_lines(rows: tuple[Account, ...], scene: Scene, room: int) -> list[Text]:
    """What is shown and how it is sorted, the titles, and as many rows as there is room for around the selected one."""
    cells: list[tuple[Cell, ...]] = [(" ", *_row(row, scene)) for row in rows]
    table = grid(_COLUMNS, cells, scene.width)
    space = max(room - 2, 1)
    first = max(min(scene.state.place - space // 2, len(rows) - space), 0)
    shown = range(first, min(first + space, len(rows)))
    lines = [_title(rows, shown, scene), table.heading(TITLE)]
    for number in shown:
        is_selected = number == scene.state.place
        lines.append(table.line((">", *_marked(cells[number][1:])) if is_selected else cells[number]))
    if not rows:
        lines[1:] = [Text(_nothing(scene), style=DIM, end="")]
    return lines[: max(room, 1)]


def _marked(row: tuple[Cell, ...]) -> tuple[Cell, ...]:
    """The row of the selected account: its name stands out, and the colours of the others keep their meaning."""
    return ((plain(row[0]), MARKED), *row[1:])


def _title(rows: tuple[Account, ...], shown: range, scene: Scene) -> Text:
    choice = scene.state.choice
    whole = len(rows)
    which = f"{shown.start + 1}-{shown.stop} of {whole}" if len(shown) < whole else str(whole)
    line = Text(f"Pods: {which}", style=TITLE, no_wrap=True, end="")
    line.append(f", by {choice.sort}{', turned round' if choice.backwards else ''}", DIM)
    if choice.over:
        line.append(", only those that are over", ODD)
    if choice.text:
        line.append(f', only with "{choice.text}"', ODD)
    return cut(line, scene.width)


def _nothing(scene: Scene) -> str:
    view, choice = scene.view, scene.state.choice
    if view is not None and view.accounts and (choice.text or choice.over):
        return f"None of {count(len(view.accounts), 'account')} is such a one; Esc shows all."
    return "No pod uses GPU memory here or declares any."


def _row(account: Account, scene: Scene) -> tuple[Cell, ...]:
    signs, verdict = scene.signs, account.verdict
    tone = STYLES.get(verdict, PLAIN)
    wide = 5 if scene.width < 100 else 10 if scene.width < 160 else 20
    return (
        (account.title, TITLE if verdict == "over" else DIM if account.is_no_pod else PLAIN),
        amounts.amount(account.used, signs),
        amounts.declared(account),
        amounts.allowed(account),
        (amounts.share_bar(account, wide, signs), tone),
        (amounts.percent(account, signs), tone),
        (verdict or "-", tone),
        _over_for(account, scene),
        account.rule or "-",
        (short(account.next, scene.elapsed_s), _urgency(account)),
    )


def _over_for(account: Account, scene: Scene) -> str:
    at_s = scene.view.at_s if scene.view is not None else None
    if account.over_since_s is None or at_s is None:
        return "-"
    return span(float(round(max(at_s - account.over_since_s, 0.0) + scene.elapsed_s)))


def _urgency(account: Account) -> Style:
    step = account.next
    if step is None:
        return DIM
    if step.held or step.would or step.put_off:
        return ODD
    return BAD if step.begun or step.do != "warn" else PLAIN
