"""The status page: one self-contained page without a script, every name in it escaped."""

from dataclasses import dataclass

from watchdog.export.page.cards import cards
from watchdog.export.page.frame import POLICY, frame, refresh_s
from watchdog.export.page.headline import headline
from watchdog.export.page.html import tag
from watchdog.export.page.lately import lately
from watchdog.export.page.missing import gaps, unattributed
from watchdog.export.page.sight import Sight
from watchdog.export.page.standing import standings
from watchdog.export.page.table import accounts
from watchdog.export.page.told import told
from watchdog.export.page.wellness import wellness

__all__ = ["POLICY", "Sight", "StatusPage", "page"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusPage:
    """The page as HTML, and after how many seconds it is worth to be loaded again."""

    html: str
    refresh_s: int


def page(sight: Sight) -> StatusPage:
    """The page of a moment; before the first cycle it says that there was none yet."""
    report, known = sight.report, standings(sight)
    head = headline(sight, known)
    body = wellness(sight)
    if report is not None:
        beside = tag("div", "".join((lately(sight), gaps(sight, report), unattributed(sight, report))), "beside")
        body = "".join((told(sight, known), beside, cards(report, sight.as_of), body, accounts(sight, known)))
    return StatusPage(html=frame(sight, head, body), refresh_s=refresh_s(head.level))
