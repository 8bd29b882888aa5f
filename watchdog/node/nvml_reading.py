"""From what the calls about a card gave to what is known of its rows: merged and checked, or rejected with a gap."""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, NamedTuple

import pynvml

from watchdog.core.model import Gap, GapReason, Gpu, Use
from watchdog.node.nvml_cards import Card, Row, look_into
from watchdog.node.nvml_errors import LOST, NvmlCallError
from watchdog.node.nvml_lists import MPS, ContradictionError, Kind, Merged, merge
from watchdog.node.nvml_memory import Memory
from watchdog.node.nvml_sample import Sample, Sampler


class Listed(NamedTuple):
    """What a listing says of a process: its bytes, and whether it is an MPS client (None: there is no such list)."""

    used: int | None
    mps: bool | None


UsedByRow = dict[str, dict[int, Listed]]
Clients = AbstractSet[tuple[int, int, int]] | None  # as the keys of `Merged`
_UNTOLD: Final = (
    "the driver lists processes and does not say how much memory they use, as it never does on WSL2 and in some vGPU "
    "guests; what their pods use is unknown, and `gpu-watchdog doctor` says what helps"
)
_WINDOWS: Final = (
    "this is WSL ({sign}), where the driver need not list every process and does not say how much memory one uses; "
    "nobody is acted on: run on Linux itself to have numbers"
)
_EMPTY_VGPU: Final = (
    "this is a vGPU with memory in use, and its driver lists no process; whose that is, is unknown: update the driver "
    "of this virtual machine, or give it a whole GPU (passthrough)"
)
_NEVER_TOLD: Final = frozenset({GapReason.PROCESSES, GapReason.PROCESS_MEMORY})
_IDLE: Final = 512 * 2**20
# After these the card as a whole counts as not answering.
_DOWN: Final = LOST | {pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_GPU_NOT_FOUND}


@dataclass(frozen=True, slots=True, kw_only=True)
class CardReading:
    """What one card gave.

    `silent` says that no call about it has succeeded; `broken` then is the first error, unless the card is lost.
    """

    gpus: tuple[Gpu, ...]
    uses: tuple[Use, ...]
    gaps: tuple[Gap, ...]
    unseen: frozenset[str]
    silent: bool = False
    broken: NvmlCallError | None = None
    listed_s: float = 0.0


class CardReader:
    """Reads cards, in one NVML session.

    What NVML says is compared, as it came, with what it said the last time: of a card on which nothing has changed the
    last reading is given again, so that a steady pass costs the calls and little more.
    """

    def __init__(self, windows: str = "") -> None:
        """`windows` says by what it can be told that the driver is that of Windows; empty: it is not."""
        self._sampler = Sampler()
        self._windows = windows
        self._steady: dict[str, tuple[Sequence[Row], Sample, CardReading]] = {}

    def read(self, card: Card, only: Collection[str] | None = None) -> CardReading:
        """Read the rows of a card, or those of `only`; what fails is a gap.

        A row that cannot be listed now keeps the processes of its last good listing, with unknown amounts.
        """
        if card.doubled:
            return _conclude(card, _chosen(card, only), Sample(hidden=True), None)
        sample = self._sampler.sample(card, _chosen(card, only))
        if card.uuid in self._steady:
            rows, before, reading = self._steady[card.uuid]
            if rows is card.rows and before.is_equal(sample):
                return reading
        used = self._list(card, sample, only)
        card.failing = bool(sample.errors)
        if card.failing:
            card.drop_handles()  # they may be void: the next sample gets new ones
        reading = _conclude(card, _chosen(card, only), sample, used)
        self._steady.pop(card.uuid, None)
        # What a driver never tells is missing in every reading, and is no reason to work it out anew each time.
        if not sample.errors and all(gap.reason in _NEVER_TOLD for gap in reading.gaps):
            self._steady[card.uuid] = card.rows, sample, reading
        return reading

    def _list(self, card: Card, sample: Sample, only: Collection[str] | None) -> UsedByRow | None:
        """Learn what each process uses on each row of the card; None if that is not known."""
        what = f"{card.uuid} processes"
        if sample.lists is None:
            return None
        try:
            merged = merge(self._sampler.parse(sample.lists.values()))
            if card.strangers_in(merged) - card.strangers:  # the layout has changed since the last look: look again
                sample.gaps += look_into(card)
                card.strangers = card.strangers_in(merged)
                self._sampler.measure(_chosen(card, only), sample)
            used = _place(card, merged, self._clients(sample.lists))
        except ContradictionError as error:
            why = f"the list contradicts itself and is rejected whole: {error}; it is tried again with every pass"
            sample.note(what, GapReason.CONTRADICTION, why)
            return None
        card.strangers = card.strangers_in(merged)
        for gi, ci in sorted(card.strangers):
            why = f"processes are listed in GPU instance {gi}, compute instance {ci}, which NVML does not enumerate"
            sample.note(what, GapReason.MIG, f"{why}; run with NVIDIA_MIG_MONITOR_DEVICES=all")
        amounts = [listed.used for pids in used.values() for listed in pids.values()]
        card.told = card.told or any(amount is not None for amount in amounts)
        if not self._is_hidden(card, sample, is_empty=not amounts) and None in amounts:
            sample.note(f"{card.uuid} memory of processes", GapReason.PROCESS_MEMORY, _UNTOLD)
        return used

    def _clients(self, lists: Mapping[Kind, bytes]) -> Clients:
        """The MPS clients; None where the card has no such list."""
        raw = lists.get(MPS)
        return None if raw is None else merge(self._sampler.parse([raw])).keys()

    def _is_hidden(self, card: Card, sample: Sample, *, is_empty: bool) -> bool:
        """Whether there may be processes on a card that the driver does not list; noted with the reason.

        An empty list would read as "nobody uses anything". A driver that has told what a process uses is believed.
        """
        if card.told:
            return False
        if self._windows:
            why = _WINDOWS.format(sign=self._windows)
            sample.note(f"{card.uuid} memory of processes", GapReason.PROCESS_MEMORY, why)
            sample.hidden = True
        elif card.vgpu and is_empty and any(_is_in_use(memory) for memory in sample.memories.values()):
            sample.note(f"{card.uuid} processes", GapReason.PROCESSES, _EMPTY_VGPU)
            sample.hidden = True
        return sample.hidden


def _is_in_use(memory: Memory | None) -> bool:
    """Whether more of a vGPU is in use than a driver keeps for itself.

    An idle one has tens of MiB in use beyond what is reserved (48 MiB of 8119 in NVIDIA/k8s-device-plugin#288). Where
    the driver does not tell what is reserved, as before 510, that is in it too.
    """
    if memory is None:
        return False
    if memory.reserved is None:
        return memory.used > memory.total // 4
    return memory.used - memory.reserved > _IDLE


def _chosen(card: Card, only: Collection[str] | None) -> Sequence[Row]:
    return card.rows if only is None else [row for row in card.rows if row.uuid in only]


def _place(card: Card, merged: Merged, clients: Clients) -> UsedByRow:
    """Put a listing onto the rows of a card, without what is in an instance that is no row; ContradictionError."""
    used: UsedByRow = {row.uuid: {} for row in card.rows}
    places = {instance: card.row_of(*instance) for instance in {(gi, ci) for _, gi, ci in merged}}
    if not card.mig and None in places.values():
        raise ContradictionError("it names MIG instances, and the card is not in MIG mode")
    for (pid, gi, ci), amount in merged.items():
        row = places[gi, ci]
        if row is None:
            continue
        if amount is not None and row.total is not None and amount > row.total:
            raise ContradictionError(f"it has {amount} bytes for PID {pid}, more than the {row.total} of {row.uuid}")
        pids = used[row.uuid]
        before = pids.get(pid, Listed(None, mps=False))
        mps = before.mps or (None if clients is None else (pid, gi, ci) in clients)
        pids[pid] = Listed(amount if before.used is None or (amount or 0) > before.used else before.used, mps)
    return used


def _conclude(card: Card, rows: Sequence[Row], sample: Sample, used: UsedByRow | None) -> CardReading:
    """Make the reading of the rows, and remember which processes a good listing had."""
    if used is not None:
        for row in card.rows:
            row.known = {pid: listed.mps for pid, listed in used[row.uuid].items()}
    unseen = {row.uuid for row in rows if sample.hidden or row.known is None}
    if card.mig and not card.rows:
        unseen.add(card.uuid)
    silent = used is None and all(memory is None for memory in sample.memories.values())
    return CardReading(
        gpus=tuple(_gpu(card, row, sample, listed=used is not None) for row in rows),
        uses=tuple(use for row in rows for use in (carried_uses(row) if used is None else _uses(row, used[row.uuid]))),
        gaps=tuple(sample.gaps),
        unseen=frozenset() if sample.lost or (used is not None and not sample.hidden) else frozenset(unseen),
        silent=silent,
        broken=sample.errors[0] if silent and sample.errors and not sample.lost else None,
        listed_s=sample.listed_s,
    )


def _gpu(card: Card, row: Row, sample: Sample, *, listed: bool) -> Gpu:
    memory = sample.memories.get(row.uuid)
    down = sample.lost or any(error.code in _DOWN for error in sample.errors)
    up = not down and (listed or memory is not None)
    return gpu_of(card, row, up=up, listed=listed, used=None if memory is None else memory.used)


def _uses(row: Row, used: dict[int, Listed]) -> list[Use]:
    return [Use(gpu=row.uuid, pid=pid, used=listed.used, mps=listed.mps) for pid, listed in used.items()]


def carried_uses(row: Row) -> list[Use]:
    """The processes of a row's last good listing, with unknown amounts; who was a client then counts as one still."""
    known = row.known or {}
    return [Use(gpu=row.uuid, pid=pid, used=None, mps=known[pid] or None) for pid in sorted(known)]


def gpu_of(card: Card, row: Row, *, up: bool, listed: bool, used: int | None) -> Gpu:
    """Show a row as the core knows it; its size is the last one that NVML gave, which does not change."""
    return Gpu(
        uuid=row.uuid,
        index=row.index,
        name=row.name,
        parent=card.uuid if row.slot is not None else None,
        gi=row.gi,
        ci=row.ci,
        profile=row.profile,
        up=up,
        listed=listed,
        total=row.total,
        used=used,
        reserved=row.reserved,
    )
