"""The last hour as a plot, with one of utilisation: the coordinates of SVGs, and the same as sentences and a table.

Positions are thousandths of the plot's width from its left, and of its height from its top, so that a template can draw
it at any size. What is unknown is part of no shape.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final, Literal, NamedTuple

from watchdog.core.policy import Do
from watchdog.core.units import format_bytes
from watchdog.report.hour import HOUR_S, POINT_S, Mark, Point
from watchdog.report.text import byte_cell, capital, clock_time, count, date_time, percent

FULL: Final = 1000
_TICK_S: Final = 600
_MOST_TICKS: Final = 5  # of the axis of amounts
_LEAST: Final = 2**20  # what the axis of amounts ends above
# The room above all shapes, for the letters of actions.
_HEADROOM: Final = 190
_FLOOR: Final = 60  # below those of utilisation, which is often 0
# Labels and letters closer than this would touch each other.
_BETWEEN_LABELS: Final = 80
# How far a text is from its line, by its own line on which the letters stand.
_OFF_LINE: Final = 15
_BELOW_LINE: Final = 65
_BETWEEN_LETTERS: Final = 30
_MOST_LEVELS: Final = 8
# A threshold so many times above all that was used or allowed would press the rest down.
_FAR: Final = 2
_ROW_S: Final = 300
_MOST_NAMED: Final = 4
# Of a crash loop there can be a hundred.
_MOST_BEGINS: Final = 3
# Lines of utilisation that can be told apart; of more only the mean is drawn, and how far they are apart.
_MOST_BUSY: Final = 4


class Moment(NamedTuple):
    """The moment at which the plot ends, on both clocks."""

    boottime_s: float
    wall_s: float

    def wall(self, at_s: float) -> float:
        """A CLOCK_BOOTTIME as Unix time."""
        return self.wall_s - (self.boottime_s - at_s)

    def text(self, at_s: float) -> str:
        """A CLOCK_BOOTTIME as a time of day."""
        return clock_time(self.wall(at_s), self.wall_s)


class Level(NamedTuple):
    """An amount that has a name: the limit, or the threshold of a step."""

    css: str
    name: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A text at a place."""

    at: int
    text: str
    css: str = ""
    # Where the letters of its text stand.
    text_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """Actions at about the same time: the first letter of the gravest, and all of them in words."""

    at: int
    css: str
    letter: str
    # The action that it stands for.
    noun: str
    title: str


class BusyPart(NamedTuple):
    """The utilisation of a container on a card."""

    # What sets it apart from others.
    name: str
    # From 0 to 1, by the CLOCK_BOOTTIME at which its point begins; unknown at other times.
    ratios: Mapping[float, float]


class Gap(NamedTuple):
    """A part of the width in which nothing is known."""

    at: int
    width: int


class Row(NamedTuple):
    """Five minutes as text."""

    time: str
    lowest: str
    highest: str
    last: str
    allowed: str
    actions: str
    # The lowest and the highest utilisation.
    busy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyPlot:
    """A plot of utilisation below that of amounts, with the same axis of time."""

    # Each with its name; empty: of all of the account, or of the card.
    lines: tuple[tuple[str, str], ...]
    # Of how many containers on cards the only line is the mean, and from the least busy of them to the busiest.
    parts: int
    band: str
    levels: tuple[Label, ...]
    gaps: tuple[Gap, ...]
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot; its shapes are paths."""

    # From the lowest to the highest amount.
    band: str
    # The last amount of each point.
    line: str
    allowed: str
    levels: tuple[Label, ...]
    # Those that are too far above to be drawn.
    beyond: tuple[str, ...]
    amounts: tuple[Label, ...]
    times: tuple[Label, ...]
    gaps: tuple[Gap, ...]
    letters: tuple[Letter, ...]
    # Where a later pod of the same name begins.
    begins: tuple[Label, ...]
    # What these lines are; of many, the first few and how many more there are.
    begin_words: tuple[str, ...]
    summary: str
    rows: tuple[Row, ...]
    # When something is known for the first time, if that is within the hour; else empty.
    first: str
    # None: no utilisation is known.
    busy: BusyPlot | None = None

    @property
    def kinds(self) -> tuple[tuple[str, str], ...]:
        """What the letters stand for: each letter with its action."""
        return tuple(dict.fromkeys((each.letter, each.noun) for each in self.letters))


class _Scale(NamedTuple):
    start_s: float
    end_s: float
    # Bytes, or per cent.
    top: int
    # The room below 0, so that a line there is seen.
    floor: int = 0

    def across(self, at_s: float) -> int:
        share = (min(max(at_s, self.start_s), self.end_s) - self.start_s) / HOUR_S
        return min(round(share * FULL), FULL)

    def down(self, amount: int) -> int:
        room = FULL - _HEADROOM - self.floor
        return FULL - self.floor - min(max(amount, 0) * room // self.top, FULL - self.floor)


def plot(
    lives: Sequence[Sequence[Point]],
    marks: Iterable[Mark],
    levels: Iterable[Level],
    now: Moment,
    *,
    begins: Iterable[float] = (),
    is_whole: bool = True,
) -> Plot:
    """The plot of the lives of a pod, or of the only one of a card, the oldest first; with amounts that have a name.

    `begins`: when each life but the oldest began, as CLOCK_BOOTTIME. `is_whole`: no life or action had to be forgotten.
    """
    start_s = now.boottime_s - HOUR_S
    points = _joined(lives, start_s)
    known = [each for each in points if each.last is not None]
    most = max((max(each.high or 0, each.allowed or 0) for each in points), default=0)
    named = sorted((each for each in levels if each.amount > 0), key=lambda each: each.amount)
    near = [each for each in named if not most or each.amount <= _FAR * most][:_MOST_LEVELS]
    scale = _Scale(start_s, now.boottime_s, max([_LEAST, most, *(each.amount for each in near)]))
    runs = list(_runs(points, lambda each: each.last is not None))
    limited = _runs(points, lambda each: each.allowed is not None)
    recent = sorted(mark for mark in marks if start_s <= mark.at_s <= now.boottime_s)
    later = tuple(
        Label(at=scale.across(at_s), text=f"a new pod of this name, {now.text(at_s)}")
        for at_s in begins
        if start_s <= at_s <= now.boottime_s
    )
    return Plot(
        band=" ".join(_band(run, scale) for run in runs),
        line=" ".join(_line(run, [each.last or 0 for each in run], scale) for run in runs),
        allowed=" ".join(_line(run, [each.allowed or 0 for each in run], scale) for run in limited),
        levels=tuple(_labels(near, scale)),
        beyond=tuple(f"{each.name} {format_bytes(each.amount)}" for each in named if each not in near),
        amounts=tuple(_amounts(scale)),
        times=tuple(_times(scale, now)),
        gaps=tuple(_gaps(points, scale)),
        letters=tuple(_letters(recent, scale, now)),
        begins=later,
        begin_words=tuple(_begin_words(later, is_whole=is_whole)),
        summary=_summary(known, recent, now, is_whole=is_whole),
        rows=tuple(_rows(points, recent, now, is_whole=is_whole)),
        first=now.text(known[0].at_s) if known and known[0].at_s >= start_s + POINT_S else "",
    )


def _begin_words(labels: Sequence[Label], *, is_whole: bool) -> Iterator[str]:
    yield from (f"Dotted line: {label.text}" for label in labels[:_MOST_BEGINS])
    if (more := len(labels) - _MOST_BEGINS) > 0:
        yield f"And {'' if is_whole else 'at least '}{more} more"


def _joined(lives: Sequence[Sequence[Point]], start_s: float) -> list[Point]:
    """The points of all lives in the order of time; at the same time what is known counts, of the later one last."""
    found: dict[float, Point] = {}
    for life in lives:
        if not found:  # nearly always the only one
            found = {point.at_s: point for point in life}
            continue
        for point in life:
            before = found.get(point.at_s)
            if before is None or before.low is None or before.high is None:
                found[point.at_s] = point
            elif point.low is not None and point.high is not None:
                low, high = min(before.low, point.low), max(before.high, point.high)
                busy = before.utilization if point.utilization is None else point.utilization
                found[point.at_s] = Point(point.at_s, low, high, point.last, point.allowed, busy)
    return [found[at_s] for at_s in sorted(found) if at_s + POINT_S > start_s]


def _runs(points: Iterable[Point], is_in: Callable[[Point], bool]) -> Iterator[list[Point]]:
    """The points that are in, in runs without a break."""
    run: list[Point] = []
    for point in points:
        if run and (not is_in(point) or point.at_s > run[-1].at_s + POINT_S):
            yield run
            run = []
        if is_in(point):
            run.append(point)
    if run:
        yield run


def _line(run: Sequence[Point], amounts: Sequence[int], scale: _Scale) -> str:
    """A path of steps: each amount holds until the next point."""
    path, at = [], -1
    for point, amount in zip(run, amounts, strict=True):
        down = scale.down(amount)
        if down != at:
            across = scale.across(point.at_s)
            path.append(f"M{across} {down}" if at < 0 else f"H{across}V{down}")
            at = down
    path.append(f"H{scale.across(run[-1].at_s + POINT_S)}")
    return "".join(path)


def _band(run: Sequence[Point], scale: _Scale) -> str:
    """A path around what lies between the lowest and the highest amounts."""
    path, at = [_line(run, [each.high or 0 for each in run], scale)], -1
    for point in reversed(run):
        down = scale.down(point.low or 0)
        if down != at:
            path.append(f"V{down}" if at < 0 else f"H{scale.across(point.at_s + POINT_S)}V{down}")
            at = down
    path.append(f"H{scale.across(run[0].at_s)}Z")
    return "".join(path)


def _gaps(points: Iterable[Point], scale: _Scale) -> Iterator[Gap]:
    for run in _runs(points, lambda each: each.last is None):
        begin, end = scale.across(run[0].at_s), scale.across(run[-1].at_s + POINT_S)
        if end > begin:
            yield Gap(begin, end - begin)


def _labels(levels: Iterable[Level], scale: _Scale) -> list[Label]:
    """The lines of these levels, those of the same height as one, and their texts so that none touches another."""
    by_amount: dict[int, list[Level]] = {}
    for level in levels:
        by_amount.setdefault(level.amount, []).append(level)
    labels = [
        Label(
            at=scale.down(amount),
            text=f"{capital(', '.join(dict.fromkeys(each.name for each in own)))} {format_bytes(amount)}",
            css=own[-1].css,
        )
        for amount, own in by_amount.items()
    ]
    labels.sort(key=lambda label: label.at)
    places: list[int] = []
    for label in labels:
        above = label.at - _OFF_LINE
        # Above its line, or if another text is there, below it.
        lower = label.at + _BELOW_LINE if places and above < places[-1] + _BETWEEN_LABELS else above
        places.append(max(lower, places[-1] + _BETWEEN_LABELS) if places else lower)
    lowest = FULL
    for number in reversed(range(len(places))):
        places[number] = min(places[number], lowest)
        lowest = places[number] - _BETWEEN_LABELS
    return [replace(label, text_at=max(place, 0)) for label, place in zip(labels, places, strict=True)]


def _amounts(scale: _Scale) -> Iterator[Label]:
    step = 1 << max(-(-scale.top // _MOST_TICKS) - 1, 0).bit_length()
    for amount in range(step, scale.top + 1, step):
        yield Label(at=scale.down(amount), text=format_bytes(amount))


def _times(scale: _Scale, now: Moment) -> Iterator[Label]:
    start_s = now.wall(scale.start_s)
    first = ceil(start_s / _TICK_S)
    for number in range(first, first + int(HOUR_S // _TICK_S) + 1):
        wall_s = float(number * _TICK_S)
        if wall_s <= now.wall_s:
            # Where there is little room only every second one is shown.
            css = "minor" if number % 2 else ""
            text = date_time(wall_s)[11:16]
            yield Label(at=scale.across(scale.start_s + wall_s - start_s), text=text, css=css)


def _letters(marks: Iterable[Mark], scale: _Scale, now: Moment) -> Iterator[Letter]:
    """The letters, of which none touches another."""
    groups: list[list[Mark]] = []
    for mark in marks:
        if not groups or scale.across(mark.at_s) - scale.across(groups[-1][0].at_s) >= _BETWEEN_LETTERS:
            groups.append([])
        groups[-1].append(mark)
    for group in groups:
        at_s, do, _ = next((mark for mark in group if mark.do.enforces), group[0])
        words = [f"{mark.do.verb.noun} at {now.text(mark.at_s)}" for mark in group[:_MOST_NAMED]]
        words += [f"{len(group) - _MOST_NAMED} more"] * (len(group) > _MOST_NAMED)
        yield Letter(
            at=scale.across(at_s),
            css=do.value,
            letter=do.value[0].upper(),
            noun=do.verb.noun,
            title=capital(", ".join(words)),
        )


def counted(marks: Iterable[Mark], *, are_all: bool = True) -> str:
    """Actions in words: `2 warnings, 1 kill`, or if some are no longer known, `at least 1 kill`."""
    by_do = Counter(mark.do for mark in marks)
    words = ", ".join(count(by_do[do], do.verb.noun) for do in Do if by_do[do])
    return words if are_all or not words else f"at least {words}"


def _summary(known: Sequence[Point], marks: Sequence[Mark], now: Moment, *, is_whole: bool) -> str:
    if not known:
        return "Nothing is known of the last hour."
    lowest, highest = (pick(each) for pick, each in ((min, _all(known, "low")), (max, _all(known, "high"))))
    used = format_bytes(lowest) if lowest == highest else f"{format_bytes(lowest)} to {format_bytes(highest)}"
    begin, end = now.text(known[0].at_s), now.text(min(known[-1].at_s + POINT_S, now.boottime_s))
    last = known[-1]
    of = f", of {format_bytes(last.allowed)} allowed" if last.allowed is not None else ""
    actions = f" {capital(counted(marks, are_all=is_whole))}." if marks else ""
    return f"From {begin} to {end}: {used} used, at the end {format_bytes(last.last or 0)}{of}.{actions}"


def _all(points: Iterable[Point], side: Literal["low", "high"]) -> list[int]:
    return [getattr(point, side) or 0 for point in points]


def _rows(points: Sequence[Point], marks: Sequence[Mark], now: Moment, *, is_whole: bool) -> Iterator[Row]:
    by_time: dict[int, list[Point]] = {}
    for point in points:
        by_time.setdefault(int(now.wall(point.at_s) // _ROW_S), []).append(point)
    acted: dict[int, list[Mark]] = {}
    for mark in marks:
        acted.setdefault(int(now.wall(mark.at_s) // _ROW_S), []).append(mark)
    for number in sorted(by_time.keys() | acted.keys()):
        own = by_time.get(number, [])
        known = [point for point in own if point.last is not None]
        allowed = next((point.allowed for point in reversed(known) if point.allowed is not None), None)
        yield Row(
            time=date_time(float(number * _ROW_S))[11:16],
            lowest=byte_cell(min(_all(known, "low"), default=None)),
            highest=byte_cell(max(_all(known, "high"), default=None)),
            last=byte_cell(known[-1].last if known else None),
            allowed=format_bytes(allowed) if allowed is not None else "",
            actions=counted(acted.get(number, ()), are_all=is_whole),
            busy=_range((point.utilization for point in own), "-"),
        )


def busy_plot(lives: Sequence[Sequence[Point]], parts: Sequence[BusyPart], now: Moment) -> BusyPlot | None:
    """The plot of utilisation in these lives: of each of a few parts, or of all together; None: nothing is known."""
    scale = _Scale(now.boottime_s - HOUR_S, now.boottime_s, 100, _FLOOR)
    points = _joined(lives, scale.start_s)
    whole = BusyPart("", {each.at_s: each.utilization for each in points if each.utilization is not None})
    of_parts = [part for part in parts if any(each.at_s in part.ratios for each in points)]
    drawn = of_parts if 1 < len(of_parts) <= _MOST_BUSY else [whole]
    is_mean = len(of_parts) > _MOST_BUSY
    spread = _spread(points, of_parts if is_mean else drawn)
    runs = list(_runs(spread, lambda each: each.last is not None))
    if not runs:
        return None
    idle = {each.at_s for each in points if each.last == 0}
    begin, end = now.text(runs[0][0].at_s), now.text(min(runs[-1][-1].at_s + POINT_S, now.boottime_s))
    said = [f"{f'{part.name} ' if part.name else ''}{_course(points, part)}" for part in drawn]
    mean = f", the mean of {len(of_parts)} containers on GPUs" if is_mean else ""
    return BusyPlot(
        lines=tuple((part.name, " ".join(_busy_lines(points, part, scale))) for part in drawn),
        parts=len(of_parts) if is_mean else 0,
        band=" ".join(_band(run, scale) for run in runs) if is_mean else "",
        levels=tuple(Label(at=scale.down(level), text=f"{level}%") for level in (50, 100)),
        gaps=tuple(_gaps((each for each in spread if each.at_s not in idle), scale)),
        summary=f"From {begin} to {end}{mean}: {'; '.join(said)}.",
    )


def _spread(points: Iterable[Point], parts: Sequence[BusyPart]) -> list[Point]:
    """The least and the most busy of these parts at each point, in per cent."""
    found = []
    for point in points:
        known = [_per_cent(part.ratios[point.at_s]) for part in parts if point.at_s in part.ratios]
        found.append(Point(point.at_s, min(known), max(known), max(known)) if known else Point(point.at_s))
    return found


def _busy_lines(points: Sequence[Point], part: BusyPart, scale: _Scale) -> Iterator[str]:
    for run in _runs(points, lambda each: each.at_s in part.ratios):
        yield _line(run, [_per_cent(part.ratios[each.at_s]) for each in run], scale)


def _per_cent(ratio: float) -> int:
    return round(100 * ratio)


def _course(points: Iterable[Point], part: BusyPart) -> str:
    """How busy a part was: `0% to 60% busy, 34% at the end`."""
    known = [part.ratios[each.at_s] for each in points if each.at_s in part.ratios]
    if not known:
        return "not known"
    return f"{_range(known, ' to ')} busy" + (f", {percent(known[-1])} at the end" if min(known) != max(known) else "")


def _range(ratios: Iterable[float | None], between: str) -> str:
    """From the lowest to the highest ratio that is known: `12% to 60%`; empty: none is."""
    known = [ratio for ratio in ratios if ratio is not None]
    least, most = (percent(pick(known)) for pick in (min, max)) if known else ("", "")
    return most if least == most else f"{least.removesuffix('%') if between == '-' else least}{between}{most}"
