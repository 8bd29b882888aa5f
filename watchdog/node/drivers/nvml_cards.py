"""Which devices a node has: cards and the MIG instances in them, as NVML enumerates them."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pynvml

from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, MigPlacement
from watchdog.node.drivers.nvml_calls import (
    ABSENT,
    LACKING,
    LOST,
    NO_INSTANCE,
    WHOLE,
    Kind,
    Merged,
    NvmlCallError,
    ask,
    ask_handle,
)

# "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "... MIG 1c.3g.20gb", "... MIG 1g.10gb+me"
_PROFILE: Final = re.compile(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb\S*)")

_TWICE: Final = Problem(
    "NVML reports this UUID for more than one GPU, so what is used on which of them is unknown",
    "report it with the driver's version",
)
_INSTANCES: Final = "MIG instances"
_HOLE: Final = ("nvmlDeviceGetMigDeviceHandleByIndex", pynvml.NVML_ERROR_NOT_FOUND)


@dataclass(slots=True, kw_only=True, eq=False)
class DeviceRow:
    """A schedulable device: a card without MIG, or a MIG instance."""

    uuid: str
    index: int
    name: str = ""
    handle: Any = None
    # The MIG index; None: it is a card.
    slot: int | None = None
    gi: int | None = None
    ci: int | None = None
    profile: str | None = None
    placement: MigPlacement | None = None
    # The last that NVML reported, in bytes, and so is `reserved`; None: it has reported none.
    total: int | None = None
    reserved: int | None = None
    # The PIDs of the last good listing, each with whether it was on the list of clients; None if there has been none
    # since the start.
    known: Mapping[int, bool | None] | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class NvmlCard:
    """A physical GPU and its rows."""

    uuid: str
    index: int
    name: str = ""
    handle: Any = None
    mig: bool = False
    rows: list[DeviceRow] = field(default_factory=list)
    # The process lists that have been read.
    answered: set[Kind] = field(default_factory=set)
    # The process lists that it does not have.
    lacking: set[Kind] = field(default_factory=set)
    # Instances in which processes are listed and which the last enumeration did not find.
    unlisted: frozenset[tuple[int, int]] = frozenset()
    # Whether its last reading had an error.
    failing: bool = False
    # Whether another card has the same UUID.
    doubled: bool = False
    # The bytes of the whole card, of one in MIG mode only; None: not known.
    total: int | None = None
    # Whether it is a virtual GPU of this machine; None: not queried yet.
    vgpu: bool | None = None
    # Whether the driver has reported the memory of some process on it.
    reports_use: bool = False

    def row_of(self, gi: int, ci: int) -> DeviceRow | None:
        """The row of a process with these instance IDs; without a compute instance only a single candidate counts."""
        if not self.mig:
            return self.rows[0] if gi == ci == NO_INSTANCE else None
        candidates = [row for row in self.rows if row.gi == gi and (ci in (row.ci, NO_INSTANCE))]
        return candidates[0] if len(candidates) == 1 else None

    def unlisted_in(self, merged: Merged) -> frozenset[tuple[int, int]]:
        """The instances in which processes are listed and that have no row of this card."""
        instances = {(gi, ci) for _, gi, ci in merged}
        return frozenset(instance for instance in instances if self.row_of(*instance) is None)

    def drop_handles(self) -> None:
        """Forget the handles, so that the next use of the card gets new ones: after an error they may be invalid."""
        self.handle = None
        for row in self.rows:
            row.handle = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The devices found by an enumeration."""

    cards: tuple[NvmlCard, ...] = ()
    gaps: tuple[Gap, ...] = ()
    # They exist, but not even their UUIDs could be read.
    unidentified: frozenset[str] = frozenset()
    # All that NVML counts and that have no row: the unidentified, the lost, and those with a UUID that occurs twice.
    missing: frozenset[str] = frozenset()


def handle_of(device: NvmlCard | DeviceRow) -> object:
    """The handle of a device, a new one by its UUID if necessary; NvmlCallError."""
    if device.handle is None:
        device.handle = ask_handle(pynvml.nvmlDeviceGetHandleByUUID, device.uuid)
    return device.handle


def enumerate_cards(before: Sequence[NvmlCard]) -> Layout:
    """Enumerate all devices again, keeping what is remembered of those `before`.

    NvmlCallError if not even their number is known, or NVML as a whole does not answer. A card that was there before
    and is not found is kept without a handle: reading it shows what is wrong with it.
    """
    old = {card.uuid: card for card in before}
    cards: dict[str, NvmlCard] = {}
    failed: dict[int, NvmlCallError] = {}
    gaps: list[Gap] = []
    missing: set[str] = set()
    for index in range(ask(pynvml.nvmlDeviceGetCount)):
        try:
            handle, uuid = _identify(index)
        except NvmlCallError as error:
            failed[index] = error
            continue
        if uuid in cards:
            if not cards[uuid].doubled:
                gaps.append(Gap(reason=GapReason.CONTRADICTION, what=uuid, problem=_TWICE, gpu=uuid))
            cards[uuid].doubled = True
            missing.add(_at(index))
            continue
        card = cards[uuid] = old.get(uuid) or NvmlCard(uuid=uuid, index=index)
        card.index, card.handle, card.doubled = index, handle, False
        hidden = refresh_rows(card)
        gaps.extend(hidden)
        missing |= {gap.what for gap in hidden if gap.what == f"{card.uuid} {_INSTANCES}"}
    if failed and not cards and all(error.code in WHOLE for error in failed.values()):
        raise next(iter(failed.values()))
    absent = [card for uuid, card in old.items() if uuid not in cards]
    for card in absent:
        card.drop_handles()
    unidentified = set()
    for index, failure in failed.items():
        known = next((card.uuid for card in absent if card.index == index), None)
        reason = GapReason.GPU_LOST if failure.code in LOST | ABSENT else GapReason.GPU_ERROR
        gaps.append(Gap(reason=reason, what=known or _at(index), problem=failure.problem, gpu=known))
        if known is None:
            missing.add(_at(index))
            if failure.code not in LOST:
                unidentified.add(_at(index))
    return Layout(
        cards=(*cards.values(), *absent),
        gaps=tuple(gaps),
        unidentified=frozenset(unidentified),
        missing=frozenset(missing),
    )


def _at(index: int) -> str:
    return f"GPU at index {index}"


def refresh_rows(card: NvmlCard) -> list[Gap]:
    """Read again whether a card is in MIG mode and which instances it has, and set its rows; failures become gaps."""
    gaps: list[Gap] = []
    try:
        mig = _is_mig(card)
    except NvmlCallError as error:
        gaps.append(_mig_gap(card, "MIG mode", error))
        mig = card.mig
    if mig != card.mig:  # in the other mode, what is known of its lists no longer applies
        card.answered.clear()
        card.lacking.clear()
    card.mig = mig
    if mig and card.total is None and card.handle is not None:
        with contextlib.suppress(NvmlCallError):  # it only tells which share of a card an instance is
            card.total = ask(pynvml.nvmlDeviceGetMemoryInfo, card.handle).total
    if card.vgpu is None and card.handle is not None:
        card.vgpu = _is_vgpu(card.handle)
    card.unlisted = frozenset()
    _set_name(card, card, gaps)
    card.rows = list(_instances(card, gaps).values()) if mig else [_whole_card(card)]
    return gaps


def _identify(index: int) -> tuple[Any, str]:
    handle = ask_handle(pynvml.nvmlDeviceGetHandleByIndex, index)
    uuid = ask(pynvml.nvmlDeviceGetUUID, handle)
    if not uuid:
        raise NvmlCallError("nvmlDeviceGetUUID", None, "NVML returned an empty UUID")
    return handle, uuid


def _is_mig(card: NvmlCard) -> bool:
    try:
        current, _ = ask(pynvml.nvmlDeviceGetMigMode, handle_of(card))
    except NvmlCallError as error:
        if error.code in LACKING:
            return False
        raise
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def _set_name(card: NvmlCard, device: NvmlCard | DeviceRow, gaps: list[Gap]) -> None:
    if device.name or device.handle is None:
        return
    try:
        device.name = ask(pynvml.nvmlDeviceGetName, device.handle)
    except NvmlCallError as error:
        gaps.append(Gap(reason=GapReason.GPU_ERROR, what=f"{device.uuid} name", problem=error.problem, gpu=card.uuid))


def _whole_card(card: NvmlCard) -> DeviceRow:
    row = next((row for row in card.rows if row.uuid == card.uuid), None) or DeviceRow(uuid=card.uuid, index=card.index)
    row.index, row.name, row.handle = card.index, card.name, card.handle
    return row


def _instances(card: NvmlCard, gaps: list[Gap]) -> dict[str, DeviceRow]:
    """Walk the MIG indices: NOT_FOUND is a hole, not the end. An index that fails otherwise keeps its previous row."""
    before = {row.uuid: row for row in card.rows if row.slot is not None}
    try:
        slots = range(ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, card.handle))
    except NvmlCallError as error:
        gaps.append(_mig_gap(card, _INSTANCES, error))
        return before
    rows: dict[str, DeviceRow] = {}
    errors: list[NvmlCallError] = []
    for slot in slots:
        try:
            row = _instance(card, slot, before, gaps)
        except NvmlCallError as error:
            if (error.call, error.code) != _HOLE:
                errors.append(error)
                rows.update({row.uuid: row for row in before.values() if row.slot == slot})
        else:
            rows[row.uuid] = row
    gaps.extend(_mig_gap(card, _INSTANCES, error) for error in errors[:1])
    return rows


def _instance(card: NvmlCard, slot: int, before: dict[str, DeviceRow], gaps: list[Gap]) -> DeviceRow:
    handle = ask_handle(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, card.handle, slot)
    uuid = ask(pynvml.nvmlDeviceGetUUID, handle)
    row = before.get(uuid) or DeviceRow(uuid=uuid, index=card.index)
    row.gi = ask(pynvml.nvmlDeviceGetGpuInstanceId, handle)
    row.ci = ask(pynvml.nvmlDeviceGetComputeInstanceId, handle)
    row.index, row.slot, row.handle = card.index, slot, handle
    _set_name(card, row, gaps)
    if row.profile is None:
        row.profile = _profile(card, row, gaps)
    if row.placement is None:
        row.placement = _placement(card, row)
    return row


def _profile(card: NvmlCard, row: DeviceRow, gaps: list[Gap]) -> str | None:
    """The MIG profile: from the device's name if the driver has written it there, otherwise from its attributes."""
    if match := _PROFILE.search(row.name):
        return match[1]
    try:
        attributes = ask(pynvml.nvmlDeviceGetAttributes, row.handle)
    except NvmlCallError as error:
        gaps.append(_mig_gap(card, "MIG profile", error))
        return None
    gpu_slices, compute_slices = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
    prefix = f"{compute_slices}c." if compute_slices != gpu_slices else ""
    return f"{prefix}{gpu_slices}g.{round(attributes.memorySizeMB / 1024)}gb"


def _placement(card: NvmlCard, row: DeviceRow) -> MigPlacement | None:
    """Where a MIG instance is on its card; None if NVML does not say, for which it may want more rights than we have.

    It only tells instances of one profile apart, for claims.
    """
    try:
        instance = ask_handle(pynvml.nvmlDeviceGetGpuInstanceById, card.handle, row.gi)
        info = ask(pynvml.nvmlGpuInstanceGetInfo, instance)
    except NvmlCallError:
        return None
    return info.profileId, info.placement.start


def _is_vgpu(handle: object) -> bool:
    """Whether the driver reports a card as a vGPU of a virtual machine; a GPU passed through whole is not one."""
    try:
        mode = ask(pynvml.nvmlDeviceGetVirtualizationMode, handle)
    except NvmlCallError:
        return False  # it only improves the explanation of what is missing, and changes no amount
    return bool(mode == pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU)


def find_vgpus() -> tuple[str, ...]:
    """The UUIDs of this machine's vGPUs. Needs an open session; call it on the driver's thread: it can hang."""
    vgpus = []
    with contextlib.suppress(NvmlCallError):
        for index in range(ask(pynvml.nvmlDeviceGetCount)):
            with contextlib.suppress(NvmlCallError):
                handle = ask_handle(pynvml.nvmlDeviceGetHandleByIndex, index)
                if _is_vgpu(handle):
                    vgpus.append(ask(pynvml.nvmlDeviceGetUUID, handle))
    return tuple(vgpus)


def _mig_gap(card: NvmlCard, what: str, error: NvmlCallError) -> Gap:
    return Gap(reason=GapReason.MIG, what=f"{card.uuid} {what}", problem=error.problem, gpu=card.uuid)
