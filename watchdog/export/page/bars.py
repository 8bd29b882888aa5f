"""Bars as inline SVG, whose widths are attributes: a style of its own for each would need a laxer security policy.

A bar is decoration: whatever it shows stands beside it as text, so it is hidden from screen readers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# Beside their colours the kinds differ in their patterns, and everything in its order from left to right.
PATTERNS: Final = (
    '<svg class="defs" width="0" height="0" aria-hidden="true" focusable="false"><defs>'
    '<pattern id="stripes" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="f-over" width="8" height="8"/><rect class="f-gap" width="2.5" height="8"/></pattern>'
    '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">'
    '<rect class="f-track" width="6" height="6"/><rect class="f-unattributed" width="3.5" height="6"/></pattern>'
    '<pattern id="dots" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<rect class="f-track" width="6" height="6"/><circle class="f-residual" cx="3" cy="3" r="2.2"/></pattern>'
    '<pattern id="cross" width="7" height="7" patternUnits="userSpaceOnUse">'
    '<rect class="f-track" width="7" height="7"/><path class="f-unknown" d="M0 0L7 7M7 0L0 7"/></pattern>'
    "</defs></svg>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a bar: the CSS class of its filling, and how many bytes it stands for."""

    css: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BarMark:
    """A mark across a bar, at so many bytes."""

    css: str
    amount: int


def bar(segments: Iterable[Segment], whole: int, marks: Iterable[BarMark] = ()) -> str:
    """A bar of `whole` bytes: its segments one after the other, and marks across it; what lies beyond is cut off."""
    if whole <= 0:
        return ""
    drawn, at = [], 0
    for each in segments:
        width = min(each.amount, whole - at)
        if width > 0:
            drawn.append(
                f'<rect class="{each.css}" x="{_share(at, whole)}" width="{_share(width, whole)}" height="100%"/>'
            )
            at += width
    drawn += [
        f'<line class="{each.css}" x1="{x}" x2="{x}" y1="0" y2="100%"/>'
        for each in marks
        if 0 <= each.amount <= whole
        for x in (_share(each.amount, whole),)
    ]
    return f'<svg class="bar" aria-hidden="true" focusable="false">{"".join(drawn)}</svg>'


def swatch(css: str) -> str:
    """A small square of a filling, to stand before its name."""
    return (
        f'<svg class="key" aria-hidden="true" focusable="false"><rect class="{css}" width="100%" height="100%"/></svg>'
    )


def _share(part: int, whole: int) -> str:
    return f"{round(100 * part / whole, 2):g}%"
