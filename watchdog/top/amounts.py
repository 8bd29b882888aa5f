"""Amounts in cells: what is not known is `unknown`, or at least so much (`≥`), and never 0."""

from typing import Final, NamedTuple

from watchdog.export.phrases import byte_cell
from watchdog.top.values import Account, Amount, Card

_MOST_PERCENT: Final = 9999


class Signs(NamedTuple):
    """The characters that bars are made of, in the order in which they stand; `least` is `at least`."""

    pods: str
    no_pod: str
    rest: str
    free: str
    least: str
    cut: str


BLOCKS: Final = Signs("█", "▓", "▒", "░", "≥", "│")
ASCII: Final = Signs("#", "=", "-", ".", ">=", "|")


def amount(value: Amount, signs: Signs) -> str:
    """Bytes: `7.0Gi`, `≥7.0Gi`, or `unknown`."""
    if value.known is not None or not value.least:
        return byte_cell(value.known)
    return f"{signs.least}{byte_cell(value.least)}"


def declared(account: Account) -> str:
    """What an account declares; `-` where that is nothing, rather than not known."""
    if account.declared is None and account.verdict in ("undeclared", "misdeclared", ""):
        return "-"
    return byte_cell(account.declared)


def allowed(account: Account) -> str:
    """What it may use; `-` where no limit holds for it."""
    if account.allowed is None and account.verdict in ("undeclared", "misdeclared", ""):
        return "-"
    return byte_cell(account.allowed)


def percent(account: Account, signs: Signs) -> str:
    """What it uses of what it is allowed: `87%`, `≥87%`, `unknown`, or `-` where there is no limit."""
    if account.allowed is None:
        return allowed(account)
    if account.used.known is None and not account.used.least:
        return "unknown"
    least = "" if account.used.known is not None else signs.least
    ratio = account.used.floor / account.allowed if account.allowed else float(_MOST_PERCENT) * account.used.floor
    exact = 100 * min(ratio, float(_MOST_PERCENT))
    whole = int(exact) if least else round(exact)
    if whole > _MOST_PERCENT:
        return f">{_MOST_PERCENT}%"
    # What is a hair above the limit is not shown as 100%, nor what is a hair below it.
    if whole == 100 and ratio != 1:
        whole = 101 if ratio > 1 else 99
    return f"{least}{whole}%"


def card_bar(card: Card, width: int, signs: Signs) -> tuple[tuple[str, str], ...]:
    """A bar of a card's memory: the processes of pods, those of no pod, the rest of what is used, what is free.

    Pairs of what a piece is (`pods`, `no_pod`, `rest`, `free`, `unknown`) and its characters.
    """
    if not card.up or not card.total or card.used is None:
        return (("unknown", "?" * width),)
    pieces, filled, upto = [], 0, 0
    # What is known of the parts may exceed the whole: the lists and the sum are read one after the other.
    for kind, part in (("pods", card.pods.floor), ("no_pod", card.no_pod.floor), ("rest", card.used)):
        upto = min(part if kind == "rest" else upto + part, card.used)
        cells = max(min(round(width * upto / card.total), width) - filled, 0)
        filled += cells
        pieces.append((kind, getattr(signs, kind) * cells))
    return (*pieces, ("free", signs.free * (width - filled)))


def share_bar(account: Account, width: int, signs: Signs) -> str:
    """A bar that is full where an account uses all that it is allowed; empty of marks where that is not known."""
    if account.share is None:
        return (" " if account.allowed is None else signs.pods if account.used.floor else signs.free) * width
    if account.used.known is None and not account.used.least:
        return "?" * width
    filled = min(max(int(width * account.share), 1 if account.used.floor else 0), width)
    return signs.pods * filled + signs.free * (width - filled)
