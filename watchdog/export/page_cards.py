"""The bars of the status page: each GPU by its users, and each account against its limit.

Bars are decoration: what they show is next to them as text, so they are hidden from screen readers. Widths are SVG
attributes, since inline styles would need a laxer security policy.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from watchdog.core.units import format_bytes
from watchdog.report.figures import Sum
from watchdog.report.sentences.node import gpu_label
from watchdog.report.status import AccountStatus, GpuStatus, Status
from watchdog.report.text import count

_FILLINGS: Final = 4  # distinguishable
_MANY_CARDS: Final = 8
_NAMED_OF_MANY: Final = 2
# Alternating, so that each of the others has a visible end.
_REST: Final = ("rest-a", "rest-b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a bar: the CSS class of its filling, its start and its width as percentages."""

    css: str
    x: str
    width: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line across a bar: its CSS class and its position as a percentage."""

    css: str
    x: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar: its segments from left to right, and the lines across it."""

    segments: tuple[Segment, ...]
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An entry of a GPU's legend: what uses a part of its memory. `note` stands out; `is_pod`: the label is a name."""

    css: str
    amount: str
    label: str
    note: str = ""
    is_pod: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A GPU: its name, or the problem with it, and its memory as a bar and as text."""

    label: str
    uuid: str
    model: str
    is_up: bool
    used: str
    total: str
    share: str
    bar: Bar | None
    legend: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """A part of a GPU before it is drawn; `used` is None if a part of it is unknown."""

    label: str
    used: int | None
    least: int
    css: str
    is_over: bool = False
    is_named: bool = True


def cards(status: Status) -> tuple[Card, ...]:
    """Every GPU of the node, in the order of the status."""
    titles = {each.uid: each.title for each in status.accounts}
    over = frozenset(each.uid for each in status.accounts if each.verdict == "over")
    pods: defaultdict[str, defaultdict[str, Sum]] = defaultdict(lambda: defaultdict(Sum))
    for account in status.accounts:
        for process in account.processes:
            pods[process.gpu][account.uid].add(process.used)
    unattributed: defaultdict[str, Sum] = defaultdict(Sum)
    for process_use in status.unattributed:
        unattributed[process_use.gpu].add(process_use.used)
    named = _FILLINGS if len(status.gpus) <= _MANY_CARDS else _NAMED_OF_MANY
    return tuple(
        _card(gpu, _pods(pods[gpu.uuid], titles, over, named), [*pods[gpu.uuid].values()], unattributed[gpu.uuid])
        for gpu in status.gpus
    )


def account_bar(account: AccountStatus) -> Bar | None:
    """The use of an account, with a line at its limit and one at what it declared; None if either is unknown."""
    used, allowed, declared = account.least, account.allowed, account.declared
    if allowed is None or (account.used is None and not used):
        return None
    # A little room beyond the larger of the two, so that a line stays visible.
    whole = max(used, allowed) * 21 // 20
    lines = [("allowed", allowed), *([("declared", declared)] if declared not in (None, allowed) else [])]
    return _bar([("over" if account.verdict == "over" else "use", used)], whole, lines)


def at_least(whole: int | None, known: int) -> str:
    """Bytes: `at least 4Gi` if a part is unknown, `unknown` if nothing is known."""
    if whole is not None:
        return format_bytes(whole)
    return f"at least {format_bytes(known)}" if known else "unknown"


def amount(value: int | None) -> str:
    """Bytes, or `unknown`."""
    return "unknown" if value is None else format_bytes(value)


def _card(gpu: GpuStatus, pods: Sequence[_Share], known: Sequence[Sum], unattributed: Sum) -> Card:
    memory = gpu.memory
    others = [
        _other("unattributed", gpu.unattributed, "unattributed", unattributed.at_least),
        *_by_unknown(gpu, [*known, unattributed]),
        _other("residual", memory.residual, "residual"),
        _other("reserved by the driver", memory.reserved, "reserved"),
    ]
    drawn = [(each.css, each.least) for each in (*pods, *others) if each.least > 0]
    # The numbers are read one after the other, and may add up to more than the total.
    whole = max(memory.total, sum(least for _, least in drawn)) if memory.total else 0
    free = memory.total - memory.used if memory.total is not None and memory.used is not None else None
    used = [_part(each) for each in others if each.used != 0]
    return Card(
        label=gpu_label(gpu),
        uuid=gpu.uuid,
        model=f"{gpu.name} {gpu.profile or ''}".strip(),
        is_up=gpu.up,
        used=amount(memory.used),
        total=amount(memory.total),
        share=f"{100 * memory.used // memory.total}%" if memory.total and memory.used is not None else "",
        bar=_bar(drawn, whole),
        legend=(*_legend(pods), *used, Part(css="free", amount=amount(free), label="free")),
    )


def _pods(uses: Mapping[str, Sum], titles: Mapping[str, str], over: frozenset[str], named: int) -> tuple[_Share, ...]:
    """The pods of a GPU: those over their limits first, then the largest."""
    ordered = sorted(uses.items(), key=lambda each: (each[0] not in over, -each[1].at_least, each[0]))
    return tuple(
        _Share(
            label=titles[uid],
            used=used.total,
            least=used.at_least,
            css="over" if uid in over else f"pod-{number}" if number < named else _REST[number % 2],
            is_over=uid in over,
            is_named=number < named,
        )
        for number, (uid, used) in enumerate(ordered)
    )


def _by_unknown(gpu: GpuStatus, known: Iterable[Sum]) -> Iterator[_Share]:
    """Memory in use without a known owner, which must not look free; nothing if all of it is known."""
    if gpu.memory.residual is None and gpu.memory.used is not None:
        left = gpu.memory.used - (gpu.memory.reserved or 0) - sum(each.at_least for each in known)
        if left > 0:
            yield _other("in use, owner unknown", left, "unknown")


def _other(label: str, used: int | None, css: str, known: int = 0) -> _Share:
    return _Share(label=label, used=used, least=known if used is None else used, css=css)


def _legend(pods: Sequence[_Share]) -> Iterator[Part]:
    """The named pods, and the sum of the others."""
    hidden, sums = [each for each in pods if not each.is_named], Sum()
    for each in pods:
        if each.is_named:
            yield _part(each, note="over" if each.is_over else "", is_pod=True)
    for each in hidden:
        sums.at_least += each.least
        sums.known = sums.known and each.used is not None
    if hidden:
        over = sum(each.is_over for each in hidden)
        used = at_least(sums.total, sums.at_least)
        note = f"({over} over)" if over else ""
        yield Part(css=_REST[0], amount=used, label=count(len(hidden), "more pod"), note=note)


def _part(share: _Share, note: str = "", *, is_pod: bool = False) -> Part:
    used = at_least(share.used, share.least)
    return Part(css=share.css, amount=used, label=share.label, note=note, is_pod=is_pod)


def _bar(parts: Iterable[tuple[str, int]], whole: int, lines: Iterable[tuple[str, int | None]] = ()) -> Bar | None:
    """A bar of `whole` bytes, cut off beyond; None without a size."""
    if whole <= 0:
        return None
    segments, at = [], 0
    for css, part in parts:
        width = min(part, whole - at)
        if width > 0:
            segments.append(Segment(css=css, x=_percent(at, whole), width=_percent(width, whole)))
            at += width
    drawn = (Line(css=css, x=_percent(at, whole)) for css, at in lines if at is not None and 0 <= at <= whole)
    return Bar(segments=tuple(segments), lines=tuple(drawn))


def _percent(part: int, whole: int) -> str:
    return f"{round(100 * part / whole, 2):g}%"
