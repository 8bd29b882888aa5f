"""What was done lately, and what is under way."""

import re
from collections.abc import Iterator
from typing import Final

from watchdog.export.phrases import inert
from watchdog.export.status_read import Part
from watchdog.top.values import Amount, Deed

_ABOUT: Final = re.compile(r"^(?:Container \S+ of p|P)od [^\s/]+/[^\s:]+:? ")


def deeds_of(status: Part) -> tuple[Deed, ...]:
    """The deeds that a status has, newest first; of a daemon that keeps none, only those that are under way."""
    if "recent" in status.values:
        return tuple(_recent(part) for part in status.parts("recent"))
    return tuple(_under_way(status))


def _recent(part: Part) -> Deed:
    pod = f"{part.text('namespace')}/{part.text('pod')}"
    told = part.text("reason") or part.text("outcome") or part.text("why") or ""
    return Deed(
        at_s=part.moment("at"),
        title=_title(part),
        do=inert(part.text("do") or "", 20),
        result=inert(result, 40) if (result := part.text("result")) is not None else None,
        used=Amount(known=part.whole("used"), least=part.whole("used_at_least") or 0),
        allowed=part.whole("allowed"),
        rule=inert(part.text("rule") or ""),
        # Its pod stands beside it already.
        why=inert(_ABOUT.sub("", told) if f"od {pod}" in told else told, 600),
    )


def _title(part: Part) -> str:
    container = part.text("container")
    pod = f"{inert(part.text('namespace') or '')}/{inert(part.text('pod') or '')}"
    return f"{pod} [{inert(container)}]" if container else pod


def _under_way(status: Part) -> Iterator[Deed]:
    for account in status.parts("accounts"):
        deed = account.part("under_way")
        if deed is not None:
            yield Deed(
                at_s=None,
                title=_title(account),
                do=inert(deed.text("do") or "", 20),
                result=None,
                used=Amount(known=account.whole("used"), least=account.whole("used_at_least") or 0),
                allowed=account.whole("allowed"),
                rule=inert(account.text("rule") or ""),
                why="",
            )
