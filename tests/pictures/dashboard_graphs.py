"""The curves of a panel as SVG: lines, stacked areas, stacked bars, with the marks of what was done."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from math import ceil, log10
from typing import Final

from tests.pictures.dashboard_values import written

WIDTH: Final = 760
HEIGHT: Final = 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 12, 12, 26
# Without the colours that panels give: red, orange, purple, grey.
PALETTE: Final = ("#1f5fae", "#2b7a3d", "#7a7a2b", "#00707a", "#c9a227", "#a0307a", "#7a4b2a", "#5fa8d3", "#94b447")
_DASHES: Final = {"solid": "", "dashed": ' stroke-dasharray="7 5"', "dotted": ' stroke-dasharray="2 5"'}


def ticks(highest: float, unit: str) -> list[float]:
    """Some five round numbers from 0 on to mark an axis by; counts are marked by whole ones."""
    base = next((1024.0**power for power in (4, 3, 2, 1) if highest >= 1024.0**power), 1.0) if unit == "bytes" else 1.0
    rough = highest / base / 4
    ten = 10.0 ** ceil(log10(rough) - 1e-9) / 10
    step = next(ten * each for each in (1, 2, 2.5, 5, 10) if ten * each >= rough * 0.999)
    step = base * (max(ceil(step), 1) if unit == "short" else step)
    return [step * number for number in range(int(highest / step) + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A series: its name, its points, and how it is drawn. `stacked`: as an area upon those before it."""

    name: str
    points: Sequence[tuple[float, float]]
    color: str
    stacked: bool = False
    line: str = "solid"  # or dashed, dotted
    bars: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Curves over a time range (Unix seconds), with marks: a time and a colour each. `step_s` parts the points."""

    curves: Sequence[Curve]
    start: float
    end: float
    unit: str
    step_s: float
    marks: Sequence[tuple[float, str]] = ()

    def svg(self) -> str:
        """Draw it."""
        highest = self._highest()
        parts = [*self._axes(highest), *self._filled(highest), *self._lines(highest)]
        for at, color in self.marks:
            x = self._x(at)
            parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}" stroke="{color}" '
                f'stroke-dasharray="3 3"/><path d="M{x - 5:.1f} {HEIGHT - _BOTTOM + 7}l5 -7l5 7z" fill="{color}"/>'
            )
        return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'

    def _x(self, at: float) -> float:
        return _LEFT + (at - self.start) / (self.end - self.start) * (WIDTH - _LEFT - _RIGHT)

    def _y(self, value: float, highest: float) -> float:
        return HEIGHT - _BOTTOM - value / highest * (HEIGHT - _TOP - _BOTTOM)

    def _highest(self) -> float:
        stacks: dict[int, float] = {}
        alone = [0.0]
        for curve in self.curves:
            for at, value in curve.points:
                if curve.stacked or curve.bars:
                    stacks[round(at / self.step_s)] = stacks.get(round(at / self.step_s), 0.0) + value
                else:
                    alone.append(value)
        return max([*alone, *stacks.values()]) * 1.08 or 1.0

    def _axes(self, highest: float) -> list[str]:
        parts = []
        for value in ticks(highest, self.unit):
            y = self._y(value, highest)
            parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{written(value, self.unit)}</text>')
        for part in range(5):
            at = self.start + (self.end - self.start) * part / 4
            anchor = {0: "start", 4: "end"}.get(part, "middle")
            clock = f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}"
            parts.append(f'<text x="{self._x(at):.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{clock}</text>')
        return parts

    def _filled(self, highest: float) -> list[str]:
        """Stacks: a slice for each point, so that a gap in a series is a gap in the picture."""
        below: dict[int, float] = {}
        width = self._x(self.start + self.step_s) - self._x(self.start)
        parts = []
        for curve in self.curves:
            if not (curve.stacked or curve.bars):
                continue
            for at, value in curve.points:
                slot = round(at / self.step_s)
                bottom = below.get(slot, 0.0)
                below[slot] = bottom + value
                top, low = self._y(bottom + value, highest), self._y(bottom, highest)
                parts.append(
                    f'<rect x="{self._x(at) - width / 2:.2f}" y="{top:.2f}" width="{width + 0.2:.2f}" '
                    f'height="{max(low - top, 0):.2f}" fill="{curve.color}" opacity="{0.9 if curve.bars else 0.65}" '
                    f'shape-rendering="crispEdges"/>'
                )
        return parts

    def _lines(self, highest: float) -> list[str]:
        parts = []
        for curve in self.curves:
            if curve.stacked or curve.bars:
                continue
            path, last = "", -1.0
            for at, value in curve.points:
                pen = "L" if at - last < self.step_s * 1.5 else "M"
                path, last = f"{path}{pen}{self._x(at):.1f} {self._y(value, highest):.1f}", at
            dashes = _DASHES[curve.line]
            parts.append(f'<path d="{path}" fill="none" stroke="{curve.color}" stroke-width="2"{dashes}/>')
        return parts

    def _last(self, curve: Curve) -> str:
        at, value = curve.points[-1]
        return written(value, self.unit) if at > self.end - 2 * self.step_s else "ended"

    def legend(self) -> str:
        """Say which colour is whose, and its last value."""
        items = []
        for curve in self.curves:
            last = "" if curve.bars else self._last(curve)
            items.append(
                f'<li><i style="border-top: 4px {curve.line} {curve.color}"></i>{escape(curve.name)} <b>{last}</b></li>'
            )
        return f'<ul class="legend">{"".join(items)}</ul>'
