"""Why a pod was or was not acted on, from the journal: what was done to it, and what was last written of it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from watchdog.core.units import format_bytes
from watchdog.export.journal_read import HistoryRow
from watchdog.export.news_item import Event
from watchdog.export.phrases import clock_time, inert

# What the owner of a pod should read of it: not each signal, and no number of a process.
_TOLD: Final = frozenset(
    {
        *(Event.WARNED, Event.WOULD_ACT, Event.WITHHELD, Event.MISDECLARED, Event.EXPLAINED, Event.RELEASED),
        *(Event.KILL_ENDED, Event.EVICT_BLOCKED, Event.EVICT_DELAYED, Event.EVICT_ENDED),
    }
)
# An explanation says in full what these say in short.
_EXPLAINED: Final = frozenset({Event.KILL_ENDED, Event.EVICT_ENDED, Event.RELEASED})
_DECIDED: Final = frozenset({Event.WARNED, Event.WOULD_ACT, Event.WITHHELD, Event.MISDECLARED, "intended"})


def told(rows: Sequence[HistoryRow], most: int) -> tuple[HistoryRow, ...]:
    """The last occurrences that the owner of a pod should read, oldest first."""
    explained = {row.deed for row in rows if row.event == Event.EXPLAINED and row.deed is not None}
    kept = [row for row in rows if row.event in _TOLD and not (row.event in _EXPLAINED and row.deed in explained)]
    return tuple(kept[-most:])


def last_accounts(rows: Iterable[HistoryRow]) -> tuple[dict[str, Any], ...]:
    """How each account of a pod stood when something was last decided about it, in the order of the first mention."""
    found: dict[tuple[str | None, str | None], dict[str, Any]] = {}
    newest = ""
    for row in rows:
        # What is written later of a deed has the numbers of the moment at which it was decided.
        if row.event not in _DECIDED or row.used_at_least is None or row.uid is None:
            continue
        if row.uid != newest:
            # A pod that came back under its name is another one.
            newest = row.uid
            found.clear()
        container = _container_of_account(row)
        found[container, row.gpu] = _account(row, container)
    return tuple(found.values())


def _container_of_account(row: HistoryRow) -> str | None:
    """The container whose account it is; a kill in the account of a whole pod names its victim in the same column."""
    is_own = row.event == Event.MISDECLARED or row.sentence.startswith(("Container ", "An unknown container "))
    return row.container if is_own else None


def past_sentences(account: Mapping[str, Any], node: str, now_s: float) -> tuple[str, ...]:
    """How an account stood then."""
    name = f"pod {inert(account['namespace'] or '')}/{inert(account['pod'] or '')}"
    if account["container"]:
        name = f"container {inert(account['container'])} of {name}"
    least = "at least " if account["used"] is None else ""
    where = f" on {inert(account['gpu'])}" if account["gpu"] else ""
    at = clock_time(datetime.fromisoformat(account["at"]).timestamp(), now_s)
    used = f"{least}{format_bytes(account['used_at_least'])} of GPU memory{where}"
    rule, mark = account["rule"], account["mark"]
    ruled = f"The rule for it was {inert(rule)}" if rule else "No rule was for it"
    return (
        f"At {at}, when the journal of node {inert(node)} last mentioned it, {name} used {used}{_allowed(account)}.",
        f"{ruled}{f', and this was about its mark {inert(mark)}' if rule and mark else ''}.",
    )


def _allowed(account: Mapping[str, Any]) -> str:
    allowed, declared, by = account["allowed"], account["declared"], account["declared_by"]
    if allowed is None or declared is None:
        return " and declared none in any way that the policy knew"
    origin = "by default of its rule" if by == "default" else f"declared by {inert(by or 'nothing')}"
    top = (
        f", and {format_bytes(allowed - declared)} on top for what the GPU's driver takes" if allowed > declared else ""
    )
    return f" and might use {format_bytes(allowed)}: {format_bytes(declared)} {origin}{top}"


def _account(row: HistoryRow, container: str | None) -> dict[str, Any]:
    return {
        "namespace": row.namespace,
        "pod": row.pod,
        "uid": row.uid,
        "container": container,
        "gpu": row.gpu,
        "used": row.used,
        "used_at_least": row.used_at_least,
        "declared": row.declared,
        "declared_by": row.declared_by,
        "allowed": row.allowed,
        "rule": row.rule,
        "mark": row.mark,
        "at": row.at,
    }
