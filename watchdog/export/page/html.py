"""Pieces of HTML: whatever comes from outside goes through `text` or `name`, and is escaped there."""

from collections.abc import Iterable
from html import escape

from watchdog.core.units import format_bytes
from watchdog.report.text import LONGEST_NAME, inert


def text(value: str, limit: int = LONGEST_NAME) -> str:
    """A text as HTML: control characters, direction overrides and surrogates spelled out, markup escaped."""
    return escape(inert(value, limit))


def sentence(value: str) -> str:
    """A sentence as HTML, up to 2,000 characters."""
    return text(value, 2000)


def name(value: str, limit: int = LONGEST_NAME) -> str:
    """A name as HTML, which a right-to-left script in it can't reach beyond."""
    return f"<bdi>{text(value, limit)}</bdi>"


def tag(element: str, content: str, css: str = "") -> str:
    """An element around HTML, of a CSS class of ours."""
    return f'<{element} class="{css}">{content}</{element}>' if css else f"<{element}>{content}</{element}>"


def items(lines: Iterable[str], css: str = "") -> str:
    """A list of lines that are HTML already; nothing where there are none."""
    found = "".join(f"<li>{line}</li>" for line in lines)
    return tag("ul", found, css) if found else ""


def section(identity: str, title: str, body: str, css: str = "") -> str:
    """A part of the page with its heading; `identity` is for links to it."""
    attributes = f' class="{css}"' if css else ""
    heading = f'<h2 id="{identity}">{text(title)}</h2>'
    return f'<section aria-labelledby="{identity}"{attributes}>{heading}{body}</section>'


def at_least(whole: int | None, known: int) -> str:
    """Bytes of which a part may not be known: `at least 4Gi` then, and `unknown` where all of it is."""
    if whole is not None:
        return format_bytes(whole)
    return f"at least {format_bytes(known)}" if known else "unknown"


def amount(value: int | None) -> str:
    """Bytes for people; `unknown` where they are."""
    return "unknown" if value is None else format_bytes(value)
