"""The bars of the status page: each GPU by its users, and each account against its limit.

Bars are decoration: what they show is next to them as text, so they are hidden from screen readers. Widths are SVG
attributes, since inline styles would need a laxer security policy.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from watchdog.core.residual import Sum
from watchdog.core.units import format_bytes
from watchdog.report.sentences.node import gpu_label
from watchdog.report.status import AccountStatus, GpuStatus, Status
from watchdog.report.text import capital, count, inert

_UNKNOWN: Final = "unknown"
_FILLINGS: Final = 4  # distinguishable
_FEW_CARDS: Final = 2  # fit beside other sections
_SOME_CARDS: Final = 4
_MANY_CARDS: Final = 8  # of more than these only pods over their limits are named
_NAMED_OF_MANY: Final = 2
_LONGEST_MODEL: Final = 60
# What the parts of a bar mean, by CSS class; "free" and "in use, owner unknown" explain themselves.
_TERMS: Final = {
    "unattributed": "Unattributed: used by processes of no listed pod.",
    "residual": "Residual: in use, but by no process that the driver lists.",
    "reserved": "Reserved: by the driver itself.",
}
# Alternating, so that each of the others has a visible end.
_REST: Final = ("rest-a", "rest-b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar."""

    # From left to right, as (CSS class, start, width).
    parts: tuple[tuple[str, str, str], ...]
    # Across it, as (CSS class, position).
    lines: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What uses a part of a GPU's memory."""

    css: str
    label: str
    # Bytes; None if some of it is unknown.
    used: int | None
    # The bytes that it uses at least.
    least: int
    # It is highlighted.
    note: str = ""
    # Whether the label is a name.
    is_pod: bool = False

    @property
    def amount(self) -> str:
        """The bytes as text."""
        return amount(self.used, self.least)

    @property
    def is_usual(self) -> bool:
        """Whether the part needs no attention."""
        return not self.note and self.css not in ("unattributed", "unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A GPU: its name, or the problem with it, and its memory as a bar and as text."""

    label: str
    uuid: str
    # Empty if all GPUs of the node have the same one.
    model: str
    is_up: bool
    used: str
    # It follows `used` without a blank.
    whole: str
    bar: Bar | None
    legend: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSection:
    """The GPUs of a node."""

    # Their sum, in a line.
    total: str
    cards: tuple[Card, ...]
    # What the words below the GPUs mean.
    terms: tuple[str, ...]

    @property
    def are_many(self) -> bool:
        """Whether the cards need the whole width."""
        return len(self.cards) > _FEW_CARDS

    @property
    def are_dense(self) -> bool:
        """Whether the cards must be small."""
        return len(self.cards) > _MANY_CARDS


def cards(status: Status, *, names_all: bool) -> CardSection:
    """Every GPU of the node, in the order of the status, with its largest pods, or all of them, by name."""
    pods: defaultdict[str, defaultdict[str, Sum]] = defaultdict(lambda: defaultdict(Sum))
    for account in status.accounts:
        for process in account.processes:
            pods[process.gpu][account.uid].add(process.used)
    unattributed: defaultdict[str, Sum] = defaultdict(Sum)
    for use in status.unattributed:
        unattributed[use.gpu].add(use.used)
    fillings = _FILLINGS if len(status.gpus) <= _SOME_CARDS else _NAMED_OF_MANY
    models = {gpu.model for gpu in status.gpus}
    made = tuple(
        _card(
            gpu,
            own := _pods(status, pods[gpu.uuid], fillings),
            unattributed[gpu.uuid].at_least,
            most_named=len(own) if names_all else _named(own, fillings, len(status.gpus)),
            has_model=len(models) > 1,
        )
        for gpu in status.gpus
    )
    shown = {part.css for card in made if card.is_up for part in card.legend}
    return CardSection(
        total=_total(status.gpus, models.pop() if len(models) == 1 else ""),
        cards=made,
        terms=tuple(text for css, text in _TERMS.items() if css in shown),
    )


def _named(pods: Sequence[Part], fillings: int, cards: int) -> int:
    """How many of a card's pods are named."""
    return min(fillings, sum(bool(pod.note) for pod in pods)) if cards > _MANY_CARDS else fillings


def _total(gpus: Sequence[GpuStatus], model: str) -> str:
    """All GPUs in a line: `8 NVIDIA H100 80GB HBM3, 210Gi of 640Gi in use (32%)`."""
    if len(gpus) <= 1:
        return inert(model, _LONGEST_MODEL)
    used, total = Sum(), Sum()
    for gpu in gpus:
        used.add(gpu.memory.used)
        total.add(gpu.memory.total)
    amounts = amount(used.total, used.at_least), amount(total.total, total.at_least)
    in_use = "".join(_use(*amounts, f" in use{_share(used.total, total.total)}"))
    return f"{len(gpus)} {inert(model, _LONGEST_MODEL) or 'GPUs'}, {in_use}"


def _use(used: str, total: str, rest: str) -> tuple[str, str]:
    """How much of a memory is in use: (`5Gi`, ` of 80Gi` and the rest), (`use unknown`, `, 80Gi in total`)."""
    if _UNKNOWN not in (used, total):
        return used, f" of {total}{rest}"
    whole = "total unknown" if total == _UNKNOWN else f"{total} in total"
    return "use unknown" if used == _UNKNOWN else f"{used} in use", f", {whole}"


def _share(part: int | None, whole: int | None) -> str:
    return f" ({100 * part // whole}%)" if whole and part is not None else ""


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
    return f"at least {format_bytes(least)}" if least else _UNKNOWN


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


def _card(gpu: GpuStatus, pods: Sequence[Part], least_unattributed: int, *, most_named: int, has_model: bool) -> Card:
    memory = gpu.memory
    others = [_other("unattributed", gpu.unattributed, "unattributed", least_unattributed)]
    if memory.residual is None and memory.used is not None:  # memory without a known owner must not look free
        left = memory.used - (memory.reserved or 0) - sum(pod.least for pod in pods) - least_unattributed
        others += [_other("in use, owner unknown", left, "unknown")] if left > 0 else []
    others.append(_other("residual", memory.residual, "residual"))
    others.append(_other("reserved", memory.reserved, "reserved"))
    drawn = [(part.css, part.least) for part in (*pods, *others) if part.least > 0]
    # The numbers are read one after the other, and may add up to more than the total.
    whole = max(memory.total, sum(least for _, least in drawn)) if memory.total else 0
    free = memory.total - memory.used if memory.total is not None and memory.used is not None else None
    used, of_whole = _use(amount(memory.used), amount(memory.total), _share(memory.used, memory.total))
    return Card(
        label=gpu_label(gpu),
        uuid=gpu.uuid,
        model=gpu.model if has_model else "",
        is_up=gpu.up,
        used=capital(used),
        whole=of_whole,
        bar=_bar(drawn, whole),
        legend=(
            *pods[:most_named],
            *_summed(pods[most_named:], are_more=most_named > 0),
            *(part for part in others if part.used != 0),
            _other("free", free, "free"),
        ),
    )


def _other(label: str, used: int | None, css: str, least: int = 0) -> Part:
    return Part(css=css, label=label, used=used, least=least if used is None else used)


def _summed(pods: Sequence[Part], *, are_more: bool) -> list[Part]:
    """The pods that are not named, as one entry of the legend."""
    if not pods:
        return []
    least, is_known = sum(pod.least for pod in pods), all(pod.used is not None for pod in pods)
    over = sum(bool(pod.note) for pod in pods)
    label, note = count(len(pods), "more pod" if are_more else "pod"), f"({over} over)" if over else ""
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
    return f"{round(100 * part / whole, 1):g}%"
