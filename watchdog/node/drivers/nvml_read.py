"""A card's process lists and memory, merged; lists that contradict themselves are rejected, with a gap."""

from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pynvml

from watchdog import clock
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Gpu, Use
from watchdog.node.drivers.nvml_calls import (
    ABSENT,
    CLIENTS,
    KINDS,
    LACKING,
    LOST,
    RETRIED,
    WHOLE,
    ContradictionError,
    Kind,
    Memory,
    MemoryCounter,
    Merged,
    NvmlCallError,
    ProcessLists,
    merge,
)
from watchdog.node.drivers.nvml_cards import DeviceRow, NvmlCard, handle_of, refresh_rows

_REASONS: Final = {
    **dict.fromkeys(LOST, GapReason.GPU_LOST),
    **dict.fromkeys(WHOLE, GapReason.DRIVER_UNAVAILABLE),
    pynvml.NVML_ERROR_UNKNOWN: GapReason.GPU_ERROR,
}


@dataclass(slots=True, kw_only=True, eq=False)
class Sample:
    """What the calls for one card have returned."""

    # By row; None if it has no counter.
    memories: dict[str, Memory | None] = field(default_factory=dict)
    # The raw process lists of the card; None if one was unreadable.
    lists: dict[Kind, bytes] | None = None
    listed_s: float = 0.0  # CLOCK_BOOTTIME right before the lists were requested
    # Each has its gap.
    errors: list[NvmlCallError] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    # Whether the card is gone, so that nothing runs on it.
    lost: bool = False
    # Whether it may have processes that the driver does not list.
    hidden: bool = False

    def add_error(self, gpu: str, what: str, reason: GapReason, error: NvmlCallError) -> None:
        """Record a failed call about something of a GPU (UUID); the error's own reason overrides `reason`."""
        self.errors.append(error)
        self.lost = self.lost or error.code in LOST
        self.add_gap(gpu, what, _REASONS.get(error.code or 0, reason), error.problem)

    def add_gap(self, gpu: str, what: str, reason: GapReason, problem: Problem) -> None:
        """Record a gap about something of a GPU (UUID); `what` is empty for the GPU itself."""
        self.gaps.append(Gap(reason=reason, what=f"{gpu} {what}".rstrip(), problem=problem, gpu=gpu))


class ListedUse(NamedTuple):
    """A process in a listing."""

    # Bytes; None if the driver does not report them.
    used: int | None
    # Whether it is on the list of clients; None if there is no such list.
    is_client: bool | None


UsedByRow = dict[str, dict[int, ListedUse]]
_NO_AMOUNTS: Final = Problem(
    "the driver lists processes without their memory, as always on WSL2 and in some vGPU guests",
    "the use of their pods is unknown; `gpu-watchdog doctor` suggests a fix",
)
_WINDOWS: Final = Problem(
    "this is WSL ({sign}), where the driver may omit processes and does not report their memory",
    "no action is taken; run on Linux itself to get these amounts",
)
_EMPTY_VGPU: Final = Problem(
    "this is a vGPU with memory in use, and its driver lists no process",
    "the owner of this memory is unknown: update this virtual machine's driver, or give it a whole GPU (passthrough)",
)
_IDLE: Final = 512 * 2**20
# After these the card as a whole counts as not answering.
_DOWN: Final = LOST | {pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_GPU_NOT_FOUND}


@dataclass(frozen=True, slots=True, kw_only=True)
class CardReading:
    """The reading of one card."""

    card: str
    # That of all rows, from which it was made.
    layout: tuple[object, ...]
    # What it was made from.
    sample: Sample
    gpus: tuple[Gpu, ...]
    uses: tuple[Use, ...]
    gaps: tuple[Gap, ...]
    unseen: frozenset[str]
    # Whether no call about the card has succeeded.
    silent: bool = False
    # The first error of a silent card; None if the card is not silent, or lost.
    broken: NvmlCallError | None = None

    def is_like(self, rows: Sequence[DeviceRow], sample: Sample) -> bool:
        """Whether a sample of these rows, on a card that does not fail, gives this reading, without gaps, again."""
        before = self.sample
        is_same = before.lists == sample.lists and before.memories == sample.memories
        return is_same and self.layout == _layout(rows) and not self.gaps


class CardReader:
    """Reads cards, in one NVML session: only one counter per row and one list per kind, unless something fails."""

    def __init__(self, windows: str = "") -> None:
        """`windows` is the evidence for the Windows driver, as from `windows_sign`; empty if there is none."""
        self._lists = ProcessLists()
        self._memory = MemoryCounter()
        self._windows = windows

    def used(self, rows: Iterable[DeviceRow]) -> dict[str, int]:
        """The memory counters of those rows that can be read, in bytes."""
        return self._memory.used([(row.uuid, row.handle) for row in rows if row.handle is not None])

    def read(self, card: NvmlCard, only: Collection[str] | None = None, like: CardReading | None = None) -> CardReading:
        """Read the rows of a card, or those of `only`; failures become gaps.

        A row that cannot be listed now keeps the processes of its last good listing, with unknown amounts. If NVML's
        raw answers are those of `like`, that is returned: comparing them costs a sixth of reading them.
        """
        if card.doubled:
            return _conclude(card, _chosen(card, only), Sample(hidden=True), None)
        sample = self._sample(card, _chosen(card, only))
        if like is not None and not card.failing and like.is_like(card.rows, sample):
            return like
        used = self._used_by_row(card, sample, only)
        card.failing = bool(sample.errors)
        if card.failing:
            card.drop_handles()  # they may be invalid: the next sample gets new ones
        return _conclude(card, _chosen(card, only), sample, used)

    def _sample(self, card: NvmlCard, rows: Sequence[DeviceRow]) -> Sample:
        """Read the memory of these rows of a card and its process lists; failures are recorded in the sample."""
        sample = Sample()
        try:
            handle_of(card)
        except NvmlCallError as error:
            is_absent = error.code in ABSENT
            sample.add_error(card.uuid, "", GapReason.GPU_LOST if is_absent else GapReason.GPU_ERROR, error)
            sample.lost = sample.lost or is_absent
            return sample
        self._measure(rows, sample)
        if sample.lost:
            return sample
        sample.listed_s = clock.now().boottime_s
        try:
            sample.lists = {kind: raw for kind in KINDS if (raw := self._list(card, kind)) is not None}
        except NvmlCallError as error:
            is_denied = card.mig and error.code == pynvml.NVML_ERROR_NO_PERMISSION
            sample.add_error(card.uuid, "processes", GapReason.MIG if is_denied else GapReason.PROCESSES, error)
        return sample

    def _measure(self, rows: Sequence[DeviceRow], sample: Sample) -> None:
        """Read the memory of rows into the sample; a row remembers its size."""
        for row in rows:
            try:
                memory = self._memory.read(handle_of(row))
            except NvmlCallError as error:
                sample.add_error(row.uuid, "memory", GapReason.MEMORY, error)
                continue
            sample.memories[row.uuid] = memory
            if memory is not None:
                row.total, row.reserved = memory.total, memory.reserved
            elif row.total is not None:
                problem = Problem("the driver reported it before and no longer does", RETRIED)
                sample.add_gap(row.uuid, "memory", GapReason.MEMORY, problem)

    def _list(self, card: NvmlCard, kind: Kind) -> bytes | None:
        """Read one list; None for one that the card does not have.

        Neither the compute list, without which nothing is known, nor a list that was read before ever counts as absent.
        """
        if kind in card.lacking:
            return None
        try:
            raw = self._lists.read(card.handle, kind)
        except NvmlCallError as error:
            if error.code not in LACKING or kind == "Compute" or kind in card.answered:
                raise
            card.lacking.add(kind)
            return None
        card.answered.add(kind)
        return raw

    def _used_by_row(self, card: NvmlCard, sample: Sample, only: Collection[str] | None) -> UsedByRow | None:
        """What each process uses on each row of the card; None if that is not known."""
        if sample.lists is None:
            return None
        try:
            merged = merge(entry for raw in sample.lists.values() for entry in self._lists.parse(raw))
            if card.unlisted_in(merged) - card.unlisted:  # the layout has changed since the last enumeration
                sample.gaps += refresh_rows(card)
                card.unlisted = card.unlisted_in(merged)
                self._measure(_chosen(card, only), sample)
            listed = sample.lists.get(CLIENTS)
            used = _place(card, merged, None if listed is None else merge(self._lists.parse(listed)).keys())
        except ContradictionError as error:
            problem = Problem(f"the list contradicts itself and is rejected as a whole: {error}", RETRIED)
            sample.add_gap(card.uuid, "processes", GapReason.CONTRADICTION, problem)
            return None
        card.unlisted = card.unlisted_in(merged)
        for gi, ci in sorted(card.unlisted):
            cause = f"processes are listed in GPU instance {gi}, compute instance {ci}, which NVML does not enumerate"
            sample.add_gap(
                card.uuid, "processes", GapReason.MIG, Problem(cause, "run with NVIDIA_MIG_MONITOR_DEVICES=all")
            )
        amounts = [listed.used for pids in used.values() for listed in pids.values()]
        card.reports_use = card.reports_use or any(amount is not None for amount in amounts)
        if not self._is_hidden(card, sample, is_empty=not amounts) and None in amounts:
            sample.add_gap(card.uuid, "memory of processes", GapReason.PROCESS_MEMORY, _NO_AMOUNTS)
        return used

    def _is_hidden(self, card: NvmlCard, sample: Sample, *, is_empty: bool) -> bool:
        """Whether a card may have processes that the driver does not list; the gap has the reason.

        An empty list would read as "no memory is used". A driver that has reported a process's memory is trusted.
        """
        if card.reports_use:
            return False
        if self._windows:
            problem = Problem(_WINDOWS.cause.format(sign=self._windows), _WINDOWS.remedy)
            sample.add_gap(card.uuid, "memory of processes", GapReason.PROCESS_MEMORY, problem)
            sample.hidden = True
        elif card.vgpu and is_empty and any(_is_in_use(memory) for memory in sample.memories.values()):
            sample.add_gap(card.uuid, "processes", GapReason.PROCESSES, _EMPTY_VGPU)
            sample.hidden = True
        return sample.hidden


def _is_in_use(memory: Memory | None) -> bool:
    """Whether more of a vGPU is in use than a driver keeps for itself.

    An idle vGPU has tens of MiB in use beyond what is reserved (48 MiB of 8119 in NVIDIA/k8s-device-plugin#288). Where
    the driver does not report what is reserved, as before 510, that is included too.
    """
    if memory is None:
        return False
    if memory.reserved is None:
        return memory.used > memory.total // 4
    return memory.used - memory.reserved > _IDLE


def _chosen(card: NvmlCard, only: Collection[str] | None) -> Sequence[DeviceRow]:
    return card.rows if only is None else [row for row in card.rows if row.uuid in only]


def _place(card: NvmlCard, merged: Merged, clients: AbstractSet[tuple[int, int, int]] | None) -> UsedByRow:
    """Assign a listing to the rows of a card, leaving out instances without a row; ContradictionError.

    `clients` are the keys of the list of clients; None if the card has no such list.
    """
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
        before = pids.get(pid, ListedUse(None, is_client=False))
        is_client = before.is_client or (None if clients is None else (pid, gi, ci) in clients)
        pids[pid] = ListedUse(amount if before.used is None or (amount or 0) > before.used else before.used, is_client)
    return used


def _layout(rows: Sequence[DeviceRow]) -> tuple[object, ...]:
    """What an enumeration, every ten seconds, may change about the rows of a card."""
    return tuple((row.uuid, row.index, row.name, row.gi, row.ci, row.slot, row.profile, row.placement) for row in rows)


def _conclude(card: NvmlCard, rows: Sequence[DeviceRow], sample: Sample, used: UsedByRow | None) -> CardReading:
    """Make the reading of the rows, and remember which processes a good listing had."""
    if used is not None:
        for row in card.rows:
            row.known = {pid: listed.is_client for pid, listed in used[row.uuid].items()}
    unseen: set[str] = set()
    if not sample.lost and (used is None or sample.hidden):
        unseen = {row.uuid for row in rows if sample.hidden or row.known is None}
        unseen |= {card.uuid} if card.mig and not card.rows else set()
    elif not sample.lost and card.unlisted:
        unseen = {card.uuid}  # whatever runs in an instance that is not enumerated
    silent = used is None and all(memory is None for memory in sample.memories.values())
    return CardReading(
        card=card.uuid,
        layout=_layout(card.rows),
        sample=sample,
        gpus=tuple(_gpu(card, row, sample, listed=used is not None) for row in rows),
        uses=tuple(use for row in rows for use in _uses(row, used)),
        gaps=tuple(sample.gaps),
        unseen=frozenset(unseen),
        silent=silent,
        broken=sample.errors[0] if silent and sample.errors and not sample.lost else None,
    )


def _gpu(card: NvmlCard, row: DeviceRow, sample: Sample, *, listed: bool) -> Gpu:
    memory = sample.memories.get(row.uuid)
    down = sample.lost or any(error.code in _DOWN for error in sample.errors)
    up = not down and (listed or memory is not None)
    return gpu_of(card, row, up=up, listed=listed, used=None if memory is None else memory.used)


def _uses(row: DeviceRow, used: UsedByRow | None) -> list[Use]:
    if used is None:
        return carried_uses(row)
    return [
        Use(gpu=row.uuid, pid=pid, used=listed.used, client=listed.is_client) for pid, listed in used[row.uuid].items()
    ]


def carried_uses(row: DeviceRow) -> list[Use]:
    """The processes of a row's last good listing, with unknown amounts; a client then still counts as a client."""
    known = row.known or {}
    return [Use(gpu=row.uuid, pid=pid, used=None, client=known[pid] or None) for pid in sorted(known)]


def gpu_of(card: NvmlCard, row: DeviceRow, *, up: bool, listed: bool, used: int | None) -> Gpu:
    """A row as a `Gpu` of the core; its size is the last that NVML reported, which does not change."""
    return Gpu(
        uuid=row.uuid,
        index=row.index,
        name=row.name,
        parent=card.uuid if row.slot is not None else None,
        gi=row.gi,
        ci=row.ci,
        profile=row.profile,
        placement=row.placement,
        up=up,
        listed=listed,
        total=row.total,
        used=used,
        reserved=row.reserved,
    )
