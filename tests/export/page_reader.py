"""Reads the status page back, as a browser without a style would show it."""

import re
from collections import defaultdict
from html.parser import HTMLParser
from typing import Any, Final

from msgspec.structs import replace

from tests.report.build import quiet
from tests.worlds import at
from watchdog.core.plan import CycleReport
from watchdog.core.policy import Do
from watchdog.export.page import page
from watchdog.export.page_headline import PageInput
from watchdog.report.status import HealthStatus, Moment, RecentStatus
from watchdog.report.status_build import status_of

_VOID: Final = frozenset({"meta", "link", "br", "rect", "circle", "input"})
_CELLS: Final = frozenset({"td", "th"})
_BLOCKS: Final = frozenset(
    {"p", "li", "h1", "h2", "h3", "h4", "summary", "td", "th", "dt", "dd", "caption", "div", "tr", "br"}
)


class Read(HTMLParser):
    """A page taken apart: its text by section (by the ID of the heading), its elements, and what is wrong with it.

    `rows` has the cells of each row of a section's tables; `texts` each text with the elements around it and the
    address of its link, which is empty without one.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.sections: defaultdict[str, list[str]] = defaultdict(list)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.rows: defaultdict[str, list[list[str]]] = defaultdict(list)
        self.texts: list[tuple[str, tuple[str, ...], str]] = []
        self.ids: list[str] = []
        self._open: list[str] = []
        self._link = ""
        self._section = ""
        self.feed(html)
        self.close()
        assert self._open == [], "every element is closed"
        assert len(self.ids) == len(set(self.ids)), "an ID stands for one element"

    def text(self, section: str = "") -> str:
        """The text of a section, or of what comes before all sections, with single blanks."""
        return re.sub(r"\s+", " ", "".join(self.sections[section])).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.elements.append((tag, values))
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "a":
            self._link = values["href"]
        if tag == "section":
            self._section = values["aria-labelledby"]
        if tag == "tr":
            self.rows[self._section].append([])
        if tag in _CELLS:
            self.rows[self._section][-1].append("")
        if tag in _BLOCKS:
            self.handle_blank()
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, "elements are closed in their order"
        if tag == "a":
            self._link = ""
        if tag == "section":
            self._section = "after"
        if tag in _BLOCKS:
            self.handle_blank()

    def handle_blank(self) -> None:
        """The end of a block, which is no text of its own."""
        self.sections[self._section].append(" ")

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "title"):
            self.sections[self._section].append(data)
            self.texts.append((data, tuple(self._open), self._link))
            if _CELLS & set(self._open):
                self.rows[self._section][-1][-1] += data


WELL: Final = HealthStatus(
    version="0.1.0", started_at=Moment(quiet().at.wall_s - 3600), uptime_s=3600, ready=True, cycles=3600, journal="ok"
)


def seen(report: CycleReport | None, **more: Any) -> PageInput:
    """What the page shows of a daemon that is well, at the moment of the cycle."""
    health, recent = more.pop("health", WELL), more.pop("recent", ())
    if report is None:
        return PageInput(status=None, health=health, now_s=0.0, **more)
    if report.snapshot.blind and health.blind_since is None and report.maintenance is None:
        health = replace(health, blind_since=Moment(report.at.wall_s))
    status = status_of(report, recent, health)
    return PageInput(**{"status": status, "health": health, "now_s": report.at.wall_s, **more})


def read(report: CycleReport | None, **more: Any) -> Read:
    """The page of a report, read back."""
    return Read(page(seen(report, **more))[0])


def action(**more: Any) -> RecentStatus:
    """A kill of a/trainer at the beginning of the test."""
    made = RecentStatus(
        at=Moment(at(0).wall_s), namespace="a", pod="trainer", uid="u1", container="main", do=Do.KILL,
        scope="container", rule="notebooks", step=1, used=1, used_at_least=1, allowed=1, declared=1, why="It was over.",
        result="done", outcome="It is gone.",
    )  # fmt: skip
    if "do" in more:
        more["do"] = Do(more["do"])
    return replace(made, **more)
