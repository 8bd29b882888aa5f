"""The frame of the page: its head, its first sentence, its links; and what a browser may do with it."""

import base64
import hashlib
from typing import Final

from watchdog.export.page.bars import PATTERNS
from watchdog.export.page.headline import Headline
from watchdog.export.page.html import sentence, text
from watchdog.export.page.sight import Sight
from watchdog.export.page.steps import Level
from watchdog.export.page.style import STYLE
from watchdog.report.text import clock_time, inert

_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
# No script, no frame, nothing from elsewhere: the style by its hash, and the icon of the tab, which is in the page.
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SOON_S: Final = 5
_CALM_S: Final = 15
_ICONS: Final = {Level.BAD: "b3001b", Level.WATCH: "c07a00", Level.GOOD: "1b8a4a"}
_ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 2 2'%3E"
    "%3Ccircle cx='1' cy='1' r='1' fill='%23{}'/%3E%3C/svg%3E"
)
_LINKS: Final = (
    ("lately", "Recent actions"),
    ("gaps", "Not known"),
    ("unattributed", "Unattributed"),
    ("gpus", "GPUs"),
    ("health", "Watchdog"),
    ("accounts", "Accounts"),
)


def refresh_s(level: Level) -> int:
    """How often the page is loaded again: often while something is going on, seldom while somebody may be reading."""
    return _CALM_S if level is Level.GOOD else _SOON_S


def frame(sight: Sight, head: Headline, body: str) -> str:
    """The whole page around its parts."""
    node = sight.report.node.name if sight.report is not None else ""
    title = f"{_TITLES[head.level]}{' on ' + inert(node, 63) if node else ''}: GPU memory"
    icon = _ICON.format(_ICONS[head.level])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{text(title)}</title><link rel="icon" href="{icon}"><style>{STYLE}</style></head><body>{PATTERNS}'
        f"<header>{_where(sight, head)}{_state(head)}{_links(sight)}</header>"
        f"<main>{body}</main>"
        '<footer><p>As data: <a href="/api/status">/api/status</a>, <a href="/metrics">/metrics</a>, '
        '<a href="/readyz">/readyz</a>, <a href="/healthz">/healthz</a>. Times are in UTC.</p></footer></body></html>\n'
    )


_TITLES: Final = {Level.BAD: "Look now", Level.WATCH: "Watch", Level.GOOD: "Well"}


def _where(sight: Sight, head: Headline) -> str:
    node = f"GPU memory on <bdi>{text(sight.report.node.name)}</bdi>" if sight.report is not None else "GPU memory"
    every = refresh_s(head.level)
    again = '<a href="/">Refresh again</a>' if sight.is_still else f'every {every}s, <a href="/?still">stop that</a>'
    what = "Stands still." if sight.is_still else "Refreshes"
    return f'<p class="where">{node}, {clock_time(sight.now_s, sight.now_s)}. {what} {again}.</p>'


def _state(head: Headline) -> str:
    rest = f'<p class="rest">{sentence(head.rest)}</p>' if head.rest else ""
    remedy = f'<p class="rest"><b>Do:</b> {sentence(head.remedy)}.</p>' if head.remedy else ""
    return f'<div class="state {head.level}"><h1>{sentence(head.state)}</h1>{rest}{remedy}</div>'


def _links(sight: Sight) -> str:
    if sight.report is None:
        return ""
    links = "".join(f'<li><a href="#{identity}">{title}</a></li>' for identity, title in _LINKS)
    return f'<nav aria-label="Parts of this page"><ul>{links}</ul></nav>'
