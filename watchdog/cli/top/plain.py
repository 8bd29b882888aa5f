"""The picture of `--once`: tables for eyes, pipes and scripts, without a control code in them."""

from collections.abc import Iterator
from typing import Final

from watchdog.cli.top import values
from watchdog.cli.top.state import Choice, chosen
from watchdog.cli.top.values import AccountView, ActionView, CardView, NodeView, ProcessView, Signs, long
from watchdog.export.table import Cell, Column, table
from watchdog.report.text import byte_cell, clock_time, date_time

# What may have spaces in it stands at the end of a line.
_CARDS: Final = ("GPU", "STATE", "USED", "TOTAL", "RESERVED", "RESIDUAL", "UNATTRIBUTED", "UUID", "NAME")
_ACCOUNTS: Final = ("POD", "CONTAINER", "GPU", "USED", "DECLARED", "ALLOWED", "PERCENT", "VERDICT", "RULE", "NEXT")
_PROCESSES: Final = ("PID", "POD", "CONTAINER", "GPU", "USED", "NAME")
_DEEDS: Final = ("TIME", "DEED", "RESULT", "POD", "USED", "ALLOWED", "RULE", "WHY")
_RIGHT: Final = ("USED", "TOTAL", "RESERVED", "RESIDUAL", "UNATTRIBUTED", "DECLARED", "ALLOWED", "PERCENT", "PID")


def once(view: NodeView, choice: Choice, signs: Signs) -> str:
    """A whole picture as text; each table has a line of titles, and a blank line before it."""
    rows = chosen(view, choice)
    cards = [_card(card, signs) for card in view.cards]
    accounts = [_account(row, signs) for row in rows if not row.is_no_pod]
    uses = [_process(row, use) for row in rows for use in row.processes]
    actions = [_action(each, view, signs) for each in view.actions]
    tables = ((_CARDS, cards), (_ACCOUNTS, accounts), (_PROCESSES, uses), (_DEEDS, actions))
    lines = list(_head(view))
    for titles, body in tables:
        if body:
            lines += ["", *_table(titles, body)]
    return "".join(f"{line}\n" for line in lines)


def _table(titles: tuple[str, ...], body: list[tuple[str, ...]]) -> list[str]:
    # None of them gives way: a script must find each name whole, on its line and in its column.
    columns = [Column(title=title, right=title in _RIGHT) for title in titles]
    return table(columns, [[Cell(text or "-") for text in row] for row in body])


def _head(view: NodeView) -> Iterator[str]:
    at = date_time(view.at_s) if view.at_s is not None else "unknown"
    health = f", {view.health}" if view.health else ""
    yield f"node {view.node}, {at}, mode {view.mode or 'unknown'}, {view.force}{health}"
    yield from (f"! {trouble}" for trouble in view.troubles)


def _card(card: CardView, signs: Signs) -> tuple[str, ...]:
    return (
        card.label,
        "up" if card.up else "lost",
        byte_cell(card.used),
        byte_cell(card.total),
        byte_cell(card.reserved),
        byte_cell(card.residual),
        values.amount(card.no_pod, signs),
        card.uuid,
        card.name,
    )


def _account(account: AccountView, signs: Signs) -> tuple[str, ...]:
    return (
        f"{account.namespace}/{account.pod}",
        account.container.replace(" ", "_"),
        account.card.removeprefix("GPU "),
        values.amount(account.used, signs),
        values.declared(account),
        values.allowed(account),
        values.percent(account, signs),
        account.verdict,
        account.rule,
        long(account, 0.0),
    )


def _process(account: AccountView, use: ProcessView) -> tuple[str, ...]:
    pod = "-" if account.is_no_pod else f"{account.namespace}/{account.pod}"
    return str(use.pid), pod, use.where, use.card, byte_cell(use.used), use.name


def _action(action: ActionView, view: NodeView, signs: Signs) -> tuple[str, ...]:
    when = "" if action.at_s is None else clock_time(action.at_s, view.at_s if view.at_s is not None else action.at_s)
    return (
        when.removesuffix(" UTC").replace(" ", "T"),
        action.do,
        action.result or "under_way",
        action.title.replace(" ", ""),
        values.amount(action.used, signs),
        byte_cell(action.allowed),
        action.rule,
        action.why,
    )
