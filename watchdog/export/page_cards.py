"""The bars of the status page: each GPU by its users, and each account against its limit.

Bars are decoration: what they show is next to them as text, so they are hidden from screen readers. Widths are SVG
attributes, since inline styles would need a laxer security policy.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
class Bar:
    """A bar: parts from left to right as (CSS class, start, width), and lines across it as (CSS class, position)."""

    parts: tuple[tuple[str, str, str], ...]
    lines: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What uses a part of a GPU's memory, at least `least` bytes; `used` is None if some of it is unknown.

    `note` is highlighted; `is_pod`: the label is a name.
    """

    css: str
    label: str
    used: int | None
    least: int
    note: str = ""
    is_pod: bool = False

    @property
    def amount(self) -> str:
        """The bytes as text."""
        return amount(self.used, self.least)


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


def cards(status: Status) -> tuple[Card, ...]:
    """Every GPU of the node, in the order of the status."""
    pods: defaultdict[str, defaultdict[str, Sum]] = defaultdict(lambda: defaultdict(Sum))
    for account in status.accounts:
        for process in account.processes:
            pods[process.gpu][account.uid].add(process.used)
    unattributed: defaultdict[str, Sum] = defaultdict(Sum)
    for use in status.unattributed:
        unattributed[use.gpu].add(use.used)
    most_named = _FILLINGS if len(status.gpus) <= _MANY_CARDS else _NAMED_OF_MANY
    return tuple(
        _card(gpu, _pods(status, pods[gpu.uuid], most_named), unattributed[gpu.uuid].at_least, most_named)
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


def amount(used: int | None, least: int = 0) -> str:
    """Bytes: `at least 4Gi` if a part is unknown, `unknown` if nothing is known."""
    if used is not None:
        return format_bytes(used)
    return f"at least {format_bytes(least)}" if least else "unknown"


def _pods(status: Status, uses: Mapping[str, Sum], most_named: int) -> list[Part]:
    """The pods of a GPU: those over their limits first, then the largest."""
    titles = {account.uid: account.title for account in status.accounts}
    over = {account.uid for account in status.accounts if account.verdict == "over"}
    ordered = sorted(uses.items(), key=lambda item: (item[0] not in over, -item[1].at_least, item[0]))
    return [
        Part(
            css="over" if uid in over else f"pod-{number}" if number < most_named else _REST[number % 2],
            label=titles[uid],
            used=used.total,
            least=used.at_least,
            note="over" if uid in over else "",
            is_pod=True,
        )
        for number, (uid, used) in enumerate(ordered)
    ]


def _card(gpu: GpuStatus, pods: Sequence[Part], least_unattributed: int, most_named: int) -> Card:
    memory = gpu.memory
    others = [_other("unattributed", gpu.unattributed, "unattributed", least_unattributed)]
    if memory.residual is None and memory.used is not None:  # memory without a known owner must not look free
        left = memory.used - (memory.reserved or 0) - sum(pod.least for pod in pods) - least_unattributed
        others += [_other("in use, owner unknown", left, "unknown")] if left > 0 else []
    others.append(_other("residual", memory.residual, "residual"))
    others.append(_other("reserved by the driver", memory.reserved, "reserved"))
    drawn = [(part.css, part.least) for part in (*pods, *others) if part.least > 0]
    # The numbers are read one after the other, and may add up to more than the total.
    whole = max(memory.total, sum(least for _, least in drawn)) if memory.total else 0
    free = memory.total - memory.used if memory.total is not None and memory.used is not None else None
    return Card(
        label=gpu_label(gpu),
        uuid=gpu.uuid,
        model=gpu.model,
        is_up=gpu.up,
        used=amount(memory.used),
        total=amount(memory.total),
        share=f"{100 * memory.used // memory.total}%" if memory.total and memory.used is not None else "",
        bar=_bar(drawn, whole),
        legend=(
            *pods[:most_named],
            *_summed(pods[most_named:]),
            *(part for part in others if part.used != 0),
            _other("free", free, "free"),
        ),
    )


def _other(label: str, used: int | None, css: str, least: int = 0) -> Part:
    return Part(css=css, label=label, used=used, least=least if used is None else used)


def _summed(pods: Sequence[Part]) -> list[Part]:
    """The pods that are not named, as one entry of the legend."""
    if not pods:
        return []
    least, is_known = sum(pod.least for pod in pods), all(pod.used is not None for pod in pods)
    over = sum(bool(pod.note) for pod in pods)
    label, note = count(len(pods), "more pod"), f"({over} over)" if over else ""
    return [Part(css=_REST[0], label=label, used=least if is_known else None, least=least, note=note)]


def _bar(parts: Iterable[tuple[str, int]], whole: int, lines: Iterable[tuple[str, int | None]] = ()) -> Bar | None:
    """A bar of `whole` bytes, cut off beyond; None without a size."""
    if whole <= 0:
        return None
    drawn, at = [], 0
    for css, part in parts:
        width = min(part, whole - at)
        if width > 0:
            drawn.append((css, _percent(at, whole), _percent(width, whole)))
            at += width
    crossing = ((css, _percent(at, whole)) for css, at in lines if at is not None and 0 <= at <= whole)
    return Bar(parts=tuple(drawn), lines=tuple(crossing))


def _percent(part: int, whole: int) -> str:
    return f"{round(100 * part / whole, 2):g}%"
