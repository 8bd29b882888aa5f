"""The bars of the status page: each GPU by its users, and each account against its limit.

Bars are decoration: what they show is next to them as text, so they are hidden from screen readers. Widths are SVG
attributes, since inline styles would need a laxer security policy.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from watchdog.core.residual import Sum
from watchdog.core.units import format_bytes
from watchdog.export.names import PodName, gpu_names
from watchdog.export.page_hour import Sparkline, sparkline
from watchdog.report.sentences.node import card_label, gpu_label, utilization_gaps
from watchdog.report.status import AccountStatus, GpuStatus, Status
from watchdog.report.summary import mean
from watchdog.report.text import busy, capital, count, inert

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
# What the parts of an account's bar and the lines across it mean, by CSS class; "use" explains itself.
_BAR_TERMS: Final = {
    "allowed": "limit",
    "declared": "declared amount",
    "over": "use of a pod over its limit",
    "unknown": "perhaps in use (unknown)",
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

    @property
    def kinds(self) -> frozenset[str]:
        """The CSS classes of what it shows."""
        return frozenset(each[0] for each in (*self.parts, *self.lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What uses a part of a GPU's memory."""

    css: str
    label: str = ""
    # Bytes; None if some of it is unknown.
    used: int | None
    # The bytes that it uses at least.
    least: int
    # It is highlighted.
    note: str = ""
    # The pod that uses it, instead of a label.
    pod: PodName | None = None

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

    # `GPU 3`; of a MIG instance its profile.
    label: str
    # The model, unless all GPUs of the node have the same one; where a MIG instance is on its card.
    more: str
    uuid: str
    # That of its page; empty: it has none.
    path: str
    is_up: bool
    used: str
    # It follows `used` without a blank.
    whole: str
    # How much of the time it computed; empty: unknown.
    busy: str
    # None: its memory is not known.
    bar: Bar | None
    # The last hour; None: nothing is known of it.
    hour: Sparkline | None
    legend: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigCard:
    """A card in MIG mode: what its instances have in common."""

    label: str
    # Empty if all GPUs of the node have the same one.
    model: str
    uuid: str
    instances: tuple[Card, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSection:
    """The GPUs of a node."""

    # Their sum, in a line.
    total: str
    cards: tuple[Card | MigCard, ...]
    # How many bars they have.
    bars: int
    # What the words below the GPUs mean.
    terms: tuple[str, ...]
    # Why it isn't known how busy some are, in sentences.
    unread: tuple[str, ...]
    # Whether any of them has its last hour.
    have_hours: bool

    @property
    def bars_in_order(self) -> Iterator[Card]:
        """The GPUs that have a bar: cards, and the instances of others."""
        for card in self.cards:
            yield from card.instances if isinstance(card, MigCard) else (card,)

    @property
    def are_many(self) -> bool:
        """Whether the cards need the whole width."""
        return self.bars > _FEW_CARDS

    @property
    def are_dense(self) -> bool:
        """Whether the cards must be small."""
        return self.bars > _MANY_CARDS


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
    models = {_model(gpu) for gpu in status.gpus}
    names = {account.uid: PodName(account.namespace, account.pod) for account in status.accounts}
    paths = gpu_names(status.gpus)
    over = frozenset(account.uid for account in status.accounts if account.verdict == "over")
    made = tuple(
        _card(
            gpu,
            paths[gpu.uuid].path,
            own := _pods(names, over, pods[gpu.uuid], fillings),
            unattributed[gpu.uuid].at_least,
            most_named=len(own) if names_all else _named(own, fillings, len(status.gpus)),
            has_model=len(models) > 1,
        )
        for gpu in status.gpus
    )
    shown = {part.css for card in made if card.is_up for part in card.legend}
    return CardSection(
        total=_total(status.gpus, "" if len(models) > 1 else next(iter(models), "")),
        cards=tuple(_by_card(status.gpus, made, has_model=len(models) > 1)),
        bars=len(made),
        terms=tuple(text for css, text in _TERMS.items() if css in shown),
        unread=tuple(utilization_gaps(status.gpus)),
        have_hours=any(card.hour is not None for card in made),
    )


def _model(gpu: GpuStatus) -> str:
    """The model of a card; the driver writes a profile behind that of an instance."""
    return gpu.name if gpu.parent is None else gpu.name.partition(" MIG ")[0]


def _by_card(gpus: Sequence[GpuStatus], made: Sequence[Card], *, has_model: bool) -> Iterator[Card | MigCard]:
    """The cards; the MIG instances of one are together."""
    for parent, group in groupby(zip(gpus, made, strict=True), lambda each: each[0].parent):
        first, *others = group
        if parent is None:
            yield from (card for _, card in (first, *others))
        else:
            yield MigCard(
                label=card_label(first[0]),
                model=_model(first[0]) if has_model else "",
                uuid=parent,
                instances=tuple(card for _, card in (first, *others)),
            )


def _place(gpu: GpuStatus) -> str:
    """Where a MIG instance is on its card: `instance 3, slice 4`."""
    parts = [f"instance {gpu.gi}"]
    if "c." in (gpu.profile or ""):  # several may share one GPU instance
        parts.append(f"compute instance {gpu.ci}")
    return ", ".join([*parts, *([] if gpu.first_slice is None else [f"slice {gpu.first_slice}"])])


def _named(pods: Sequence[Part], fillings: int, cards: int) -> int:
    """How many of a card's pods are named."""
    return min(fillings, sum(bool(pod.note) for pod in pods)) if cards > _MANY_CARDS else fillings


def _total(gpus: Sequence[GpuStatus], model: str) -> str:
    """All GPUs in a line: `8 NVIDIA H100 80GB HBM3, 210Gi of 640Gi in use (32%)`; the model alone if there is one."""
    cards, instances = len({gpu.parent or gpu.uuid for gpu in gpus}), sum(gpu.parent is not None for gpu in gpus)
    if len(gpus) <= 1:
        return inert(model, _LONGEST_MODEL)
    used, total = Sum(), Sum()
    for gpu in gpus:
        used.add(gpu.memory.used)
        total.add(gpu.memory.total)
    amounts = amount(used.total, used.at_least), amount(total.total, total.at_least)
    in_use = "".join(_use(*amounts, f" in use{_share(used.total, total.total)}"))
    parts = f" with {count(instances, 'MIG instance')}" if instances else ""
    how_busy = busy(mean(gpu.utilization for gpu in gpus))
    what = inert(model, _LONGEST_MODEL) or ("GPU" if cards == 1 else "GPUs")
    return ", ".join(filter(None, (f"{cards} {what}{parts}", in_use, how_busy)))


def _use(used: str, total: str, rest: str) -> tuple[str, str]:
    """How much of a memory is in use: (`5Gi`, ` of 80Gi` and the rest), (`use unknown`, `, 80Gi in total`)."""
    if _UNKNOWN not in (used, total):
        return used, f" of {total}{rest}"
    whole = "total unknown" if total == _UNKNOWN else f"{total} in total"
    return "use unknown" if used == _UNKNOWN else f"{used} in use", f", {whole}"


def _share(part: int | None, whole: int | None) -> str:
    return f" ({100 * part // whole}%)" if whole and part is not None else ""


def account_bar(account: AccountStatus) -> Bar | None:
    """The use of an account, with a line at its limit and one at what it declared; None if nothing is known of either.

    What it may use besides is a part of its own.
    """
    used, allowed, declared, most = account.least, account.allowed, account.declared, account.used_at_most
    if allowed is None or (account.used is None and not used and most is None):
        return None
    # A little room beyond the larger of the two, so that a line stays visible.
    whole = max(used, allowed) * 21 // 20
    lines = [("allowed", allowed), *([("declared", declared)] if declared not in (None, allowed) else [])]
    parts = [("over" if account.verdict == "over" else "use", used)]
    if account.used is None:
        parts.append(("unknown", (whole if most is None else most) - used))
    return _bar(parts, whole, lines)


def bar_terms(bars: Iterable[Bar | None], known: Iterable[str] = ()) -> tuple[tuple[str, str], ...]:
    """What the parts and lines of these accounts' bars mean, as (CSS class, text), but for those that are `known`."""
    kinds = frozenset().union(*(bar.kinds for bar in bars if bar is not None)).difference(known)
    return tuple((css, text) for css, text in _BAR_TERMS.items() if css in kinds)


def amount(used: int | None, least: int = 0, text: Callable[[int], str] = format_bytes) -> str:
    """Bytes: `at least 4Gi` if a part is unknown, `unknown` if nothing is known."""
    if used is not None:
        return text(used)
    return f"at least {text(least)}" if least else _UNKNOWN


def _pods(names: Mapping[str, PodName], over: frozenset[str], uses: Mapping[str, Sum], most_named: int) -> list[Part]:
    """The pods of a GPU: those over their limits first, then the largest."""
    ordered = sorted(uses.items(), key=lambda item: (item[0] not in over, -item[1].at_least, item[0]))
    return [
        Part(
            css="over" if uid in over else f"pod-{number}" if number < most_named else _REST[number % 2],
            pod=names[uid],
            used=used.total,
            least=used.at_least,
            note="over" if uid in over else "",
        )
        for number, (uid, used) in enumerate(ordered)
    ]


def _card(
    gpu: GpuStatus, path: str, pods: Sequence[Part], least_unattributed: int, *, most_named: int, has_model: bool
) -> Card:
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
    is_instance = gpu.parent is not None
    return Card(
        label=gpu.profile or "MIG instance" if is_instance else gpu_label(gpu),
        more=_place(gpu) if is_instance else gpu.name if has_model else "",
        uuid=gpu.uuid,
        path=path,
        is_up=gpu.up,
        used=capital(used),
        whole=of_whole,
        busy=busy(gpu.utilization),
        bar=_bar(drawn, whole),
        hour=sparkline(gpu.hour, "its size"),
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
