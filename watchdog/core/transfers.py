"""Memory that changes hands: when the exporter of CUDA IPC memory ends, the driver charges a process that opened it.

Its pod may have done nothing but map what another pod offered, so for some time these bytes count as unknown.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final

from watchdog.core.assess import short_cards
from watchdog.core.assessment import AttributedUse, Attribution, Inputs
from watchdog.core.brakes import BrakeScope, owner_of
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Now, Pod, ProcessKey, Snapshot, elapsed_s
from watchdog.core.rules import rule_of
from watchdog.core.units import format_bytes, format_duration

# How long bytes count as unknown, once in this time for each owner.
UNKNOWN_S: Final = 300.0
ONCE_IN_S: Final = 3600.0
# What the card's use may differ from the sum of its processes' changes: they are not read at the same moment.
_SLACK: Final = 64 * 2**20
_LEAST: Final = Fraction(3, 4)  # of what the ended processes used
# Owners that are remembered, in all and of one namespace; beyond them no bytes count as unknown. A tenant must not take
# the places of others.
_MOST_OWNERS: Final = 1000
_MOST_OF_NAMESPACE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Bytes of a process on a GPU that may have been charged to it when processes of other pods ended."""

    gpu: str
    key: ProcessKey
    # Those of its bytes that count as unknown.
    unknown: int
    # The bytes that it used at the last reading.
    used: int
    # The title of its pod.
    target: str
    # The titles of the pods of the processes that ended.
    source: str

    def after(self, used: int) -> "Transfer":
        """The transfer once its process uses this much: what it gives back first is what it was charged."""
        unknown = max(self.unknown - max(self.used - used, 0), 0)
        return self if (unknown, used) == (self.unknown, self.used) else replace(self, unknown=unknown, used=used)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTransfer:
    """A transfer when it was found."""

    transfer: Transfer
    # The pod of the process.
    target: Pod
    # The listed pods whose processes ended.
    sources: tuple[Pod, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferWindow:
    """The time in which bytes of one owner's pods count as unknown, at most once an hour."""

    # Its first moment.
    began: Now
    transfers: tuple[Transfer, ...] = ()

    def is_open(self, at: Now) -> bool:
        """Whether its bytes count as unknown at this moment; a process of an earlier boot has ended."""
        return self.began.boot_id == at.boot_id and elapsed_s(self.began, at) < UNKNOWN_S


Windows = Mapping[BrakeScope, TransferWindow]  # by owner


@dataclass(frozen=True, slots=True)
class _Listed:
    """What a process used on a card when it was last listed."""

    # Bytes; None if unknown.
    used: int | None
    container: str
    # None if it belonged to none of the list.
    pod: Pod | None
    title: str

    @property
    def uid(self) -> str:
        return "" if self.pod is None else self.pod.uid


@dataclass(frozen=True, slots=True)
class _Listing:
    """The last listing of a card, and its memory counter then."""

    # Bytes; None if unknown.
    used: int | None
    processes: Mapping[ProcessKey, _Listed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """What is remembered of transfers."""

    # The last one of each owner.
    windows: Windows = field(default_factory=dict)
    # The transfers found in the last reading.
    begun: tuple[FoundTransfer, ...] = ()
    # The last listing of each card, by its UUID.
    cards: Mapping[str, _Listing] = field(default_factory=dict)

    def inheriting(self, earlier: Windows, at: Now) -> "Transfers":
        """The memory with the windows of the last hour that a journal has, of each owner the one that began first.

        A journal has a window as it began: of one that is known already, the memory has what was given back since.
        """
        recent = {owner: each for owner, each in earlier.items() if elapsed_s(each.began, at) < ONCE_IN_S}
        own = self.windows
        older = {
            owner: each
            for owner, each in recent.items()
            if owner not in own or elapsed_s(each.began, at) > elapsed_s(own[owner].began, at)
        }
        return replace(self, windows={**own, **older})

    def after(self, attribution: Attribution, snapshot: Snapshot, inputs: Inputs) -> "Transfers":
        """The memory after one more reading."""
        at, cards = snapshot.at, _listings(attribution, snapshot, inputs.pods.pods)
        windows = dict(_renewed(self.windows, cards, at))
        short = short_cards(snapshot.gpus, inputs.policy.pressure.free_below)
        begun: list[FoundTransfer] = []
        for gpu, now in cards.items():
            before = self.cards.get(gpu)
            if before is None or gpu in short or before.processes.keys() <= now.processes.keys():
                continue
            for found in _Comparison(gpu, before, now, inputs).transfers():
                owner = owner_of(found.target)
                window = windows.get(owner)
                if window is None and _has_room(windows, owner):
                    window = TransferWindow(began=at)
                if window is not None and window.is_open(at):
                    windows[owner] = replace(window, transfers=(*window.transfers, found.transfer))
                    begun.append(found)
        return Transfers(windows=windows, begun=tuple(begun), cards={**self.cards, **cards})

    def hide(self, attribution: Attribution, snapshot: Snapshot, inputs: Inputs) -> Attribution:
        """The attribution with transferred bytes as unknown, but for those on a card that is short of memory."""
        at = snapshot.at
        unknown: defaultdict[tuple[str, ProcessKey], int] = defaultdict(int)
        for window in self.windows.values():
            for transfer in window.transfers if window.is_open(at) else ():
                unknown[transfer.gpu, transfer.key] += transfer.unknown
        if not unknown:
            return attribution
        short = short_cards(snapshot.gpus, inputs.policy.pressure.free_below)
        hidden = (_hidden(use, 0 if use.gpu in short else unknown[use.gpu, use.key]) for use in attribution.attributed)
        return replace(attribution, attributed=tuple(hidden))

    def gaps(self, at: Now) -> tuple[Gap, ...]:
        """One gap for each transfer whose bytes count as unknown."""
        open_windows = (window for window in self.windows.values() if window.is_open(at))
        return tuple(_gap(transfer) for window in open_windows for transfer in window.transfers if transfer.unknown)


def _has_room(windows: Windows, owner: BrakeScope) -> bool:
    of_namespace = sum(each[0] == owner[0] for each in windows)
    return len(windows) < _MOST_OWNERS and of_namespace < _MOST_OF_NAMESPACE


def _hidden(use: AttributedUse, unknown: int) -> AttributedUse:
    if not unknown or use.used is None:
        return use
    return replace(use, used=None, surely=max(use.used - unknown, 0))


def _gap(transfer: Transfer) -> Gap:
    cause = (
        f"{format_bytes(transfer.unknown)} more than before were charged to process {transfer.key.pid} as processes of "
        f"{transfer.source} ended: memory shared by CUDA IPC goes to a process that has opened it. These bytes count "
        f"as unknown for up to {format_duration(UNKNOWN_S)}, once in {format_duration(ONCE_IN_S)} for each owner"
    )
    remedy = f"if {transfer.target} has not opened memory of {transfer.source}, look into both"
    what = f"pod {transfer.target} on {transfer.gpu}"
    return Gap(reason=GapReason.TRANSFER, what=what, problem=Problem(cause, remedy), gpu=transfer.gpu)


def _listings(attribution: Attribution, snapshot: Snapshot, pods: Iterable[Pod]) -> dict[str, _Listing]:
    """The listings of a reading, of those cards that were listed; amounts of a process known by several PIDs add up."""
    by_uid = {pod.uid: pod for pod in pods}
    found: dict[str, dict[ProcessKey, _Listed]] = {gpu.uuid: {} for gpu in snapshot.gpus if gpu.listed}
    for use in attribution.attributed:
        if use.gpu in found:
            pod = by_uid.get(use.uid)
            found[use.gpu][use.key] = _Listed(use.used, use.container, pod, pod.title if pod is not None else use.uid)
    for other in attribution.unattributed:
        process = snapshot.processes.get(other.pid)
        if other.gpu in found and process is not None and process.key is not None:
            found[other.gpu][process.key] = _Listed(other.used, "", None, f"process {other.pid}, of no known pod")
    counters = {gpu.uuid: gpu.used for gpu in snapshot.gpus}
    return {gpu: _Listing(counters[gpu], processes) for gpu, processes in found.items()}


def _renewed(windows: Windows, cards: Mapping[str, _Listing], at: Now) -> Iterator[tuple[BrakeScope, TransferWindow]]:
    """The windows of the last hour, with what their processes use now."""
    for owner, window in windows.items():
        if elapsed_s(window.began, at) >= ONCE_IN_S:
            continue
        kept = tuple(_kept(window.transfers, cards)) if window.is_open(at) else ()
        yield owner, window if kept == window.transfers else replace(window, transfers=kept)


def _kept(transfers: Iterable[Transfer], cards: Mapping[str, _Listing]) -> Iterator[Transfer]:
    for transfer in transfers:
        card = cards.get(transfer.gpu)
        listed = None if card is None else card.processes.get(transfer.key)
        if card is None or (listed is not None and listed.used is None):
            yield transfer  # not known now
        elif listed is not None and listed.used is not None and (after := transfer.after(listed.used)).unknown:
            yield after


class _Comparison:
    """Two successive listings of a card."""

    def __init__(self, gpu: str, before: _Listing, now: _Listing, inputs: Inputs) -> None:
        self._gpu = gpu
        self._before = before
        self._now = now
        self._inputs = inputs

    def transfers(self) -> Iterator[FoundTransfer]:
        """The processes that may have been charged what others used that have ended."""
        ended = self._ended()
        if not ended or not self._adds_up():
            return
        for key, listed in self._now.processes.items():
            before, pod = self._before.processes.get(key), listed.pod
            if before is None or before.used is None or listed.used is None or pod is None:
                continue
            risen = listed.used - before.used
            source = self._source(before, ended, risen) if risen > 0 else ()
            if source:
                titles = ", ".join(sorted({each.title for each in source}))
                pods = {each.uid: each.pod for each in source if each.pod is not None}
                transfer = Transfer(
                    gpu=self._gpu, key=key, unknown=risen, used=listed.used, target=pod.title, source=titles
                )
                yield FoundTransfer(transfer=transfer, target=pod, sources=tuple(pods[uid] for uid in sorted(pods)))

    def _ended(self) -> list[_Listed]:
        """What the processes used that are no longer listed, but for those that this daemon has ended."""
        listed = {key.pid for key in self._now.processes}
        acting = {key.uid for key in self._inputs.acting}
        return [
            each
            for key, each in self._before.processes.items()
            if key.pid not in listed and each.used and each.uid not in acting
        ]

    def _adds_up(self) -> bool:
        """Whether the card's use has changed by as much as that of its processes together."""
        if self._before.used is None or self._now.used is None:
            return False
        before, now, changed = self._before.processes, self._now.processes, 0
        for key in before.keys() | now.keys():
            was = before[key].used if key in before else 0
            used = now[key].used if key in now else 0
            changed += used - was if used is not None and was is not None else 0
        return abs(self._now.used - self._before.used - changed) <= _SLACK

    def _source(self, target: _Listed, ended: Iterable[_Listed], risen: int) -> tuple[_Listed, ...]:
        """The ended processes whose memory it may have been charged: those of one container, of one pod, or all."""
        groups: defaultdict[tuple[str, ...], list[_Listed]] = defaultdict(list)
        for each in ended:
            if self._is_apart(target, each):
                pod = each.uid or each.title
                for group in ((pod, each.container), (pod,), ()):
                    groups[group].append(each)
        for _, own in sorted(groups.items(), key=lambda group: -len(group[0])):
            used = sum(each.used or 0 for each in own)
            if _LEAST * used <= risen <= used > _SLACK:
                return tuple(own)
        return ()

    def _is_apart(self, one: _Listed, other: _Listed) -> bool:
        """Whether two processes count for different accounts."""
        if one.pod is None or one.uid != other.uid:
            return True
        rule = rule_of(one.pod, self._inputs.policy, self._inputs.node, self._inputs.namespaces)
        is_split = rule is not None and not isinstance(rule, Gap) and rule.account == "container"
        return is_split and one.container != other.container
