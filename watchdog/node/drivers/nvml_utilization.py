"""The utilisation of cards and of the processes on them, as NVML samples it."""

import ctypes
import struct
from collections.abc import Callable, Iterable, Iterator
from statistics import fmean
from typing import Any, Final, NamedTuple

import pynvml

from watchdog.core.utilization import CardUtilization
from watchdog.node.drivers.nvml_calls import LACKING, MAX_PID, NvmlCallError, ask, function_pointer
from watchdog.node.drivers.nvml_cards import NvmlCard, handle_of

_NEWER: Final = "nvmlDeviceGetProcessesUtilizationInfo"
_OLDER: Final = "nvmlDeviceGetProcessUtilization"
# nvmlProcessUtilizationInfo_v1_t: time stamp, PID, then per cent of SM, memory, encoder, decoder, JPEG, optical flow.
_NEWER_ENTRY: Final = struct.Struct("=QIIIIIII4x")
# nvmlProcessUtilizationSample_t: PID, time stamp, and the first four of those.
_OLDER_ENTRY: Final = struct.Struct("=I4xQIIII")
_SAMPLES: Final = "nvmlDeviceGetSamples"
# nvmlSample_t: time stamp, and a value, which is an unsigned int for utilisation (docs of nvmlDeviceGetSamples).
_SAMPLE_ENTRY: Final = struct.Struct("=QI4x")
# Of a card itself; nvmlDeviceGetUtilizationRates has the same two.
_CARD_TYPES: Final = (pynvml.NVML_GPU_UTILIZATION_SAMPLES, pynvml.NVML_MEMORY_UTILIZATION_SAMPLES)
_ENGINE_TYPES: Final = (pynvml.NVML_ENC_UTILIZATION_SAMPLES, pynvml.NVML_DEC_UTILIZATION_SAMPLES)
_FIRST_US: Final = 10_000_000  # before a card's newest sample
_NO_NEWER: Final = LACKING | {pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH}
_FIRST_CAPACITY: Final = 128
_MAX_CAPACITY: Final = 2**16
_MAX_TRIES: Final = 6
_WHOLE: Final = 100
_MIG: Final = "NVML reports no utilisation of MIG instances"
_VGPU: Final = "NVML reports no utilisation in the guest of a vGPU"
_ABSENT: Final = "the card does not answer"


class _Sample(NamedTuple):
    """How busy a process was since the last query."""

    pid: int
    # Of the driver's own clock, in microseconds.
    at_us: int
    # The per cent of its busiest engine.
    busiest: int


class CardSamples:
    """The driver's samples of cards, in one NVML session, read into one buffer that grows.

    The driver keeps the last 72 of each card, formerly 100, in a ring, which NVML gets as a whole: its request has no
    time stamp (NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2 in ctrl2080perf.h of NVIDIA's open kernel
    modules). So all of them are asked for here too, which shows when the driver's clock was set back. Some drivers take
    no samples while a card is idle, and answer NOT_FOUND then (GB10: polarsignals/gpu-metrics-agent#37).
    """

    def __init__(self) -> None:
        self._loaded = function_pointer(_SAMPLES)
        self._count = ctypes.c_uint()
        self._value_type = ctypes.c_uint()
        # By card and type: the time stamp of the newest sample when it was last asked for, in microseconds.
        self._newest_us: dict[tuple[str, int], int] = {}
        self._allocate(_FIRST_CAPACITY)

    def read(self, card: NvmlCard, kind: int) -> list[int]:
        """The per cent of each sample since a card was last asked for this type; the first time, of ten seconds.

        Empty if there are none, or the driver doesn't give them.
        """
        samples = self._kept(handle_of(card), kind)
        if not samples:
            return []
        newest_us, since_us = max(at_us for at_us, _ in samples), self._newest_us.get((card.uuid, kind))
        if since_us is None or newest_us < since_us:  # the first time, or the driver's clock was set back
            since_us = max(newest_us - _FIRST_US, 0)
        self._newest_us[card.uuid, kind] = newest_us
        return [percent for at_us, percent in samples if at_us > since_us]

    def _kept(self, handle: object, kind: int) -> list[tuple[int, int]]:
        """The time stamp and per cent of all samples that the driver keeps; empty if it can't be learned.

        NVML gives as many as fit, with SUCCESS: a full buffer may not have them all.
        """
        if self._loaded is None:
            return []
        _, function = self._loaded
        arguments = (handle, ctypes.c_uint(kind), ctypes.c_ulonglong(0))
        for _ in range(_MAX_TRIES):
            self._count.value, self._value_type.value = self._capacity, pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
            code = function(*arguments, ctypes.byref(self._value_type), ctypes.byref(self._count), self._buffer)
            count = self._count.value
            if code not in (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_INSUFFICIENT_SIZE):
                break
            if code == pynvml.NVML_SUCCESS and count < self._capacity:
                is_known = self._value_type.value == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
                raw = ctypes.string_at(self._buffer, count * _SAMPLE_ENTRY.size)
                return [*_SAMPLE_ENTRY.iter_unpack(raw)] if is_known else []
            self._allocate(min(2 * max(count, self._capacity), _MAX_CAPACITY))
        return []

    def _allocate(self, capacity: int) -> None:
        self._capacity = capacity
        self._buffer = ctypes.create_string_buffer(capacity * _SAMPLE_ENTRY.size)


class UtilizationReader:
    """Reads the utilisation of cards, in one NVML session.

    The driver averages a process over the time since the time stamp that it is given (nvtop#110), so each card's newest
    one is kept. It has no sample of a process that was idle, and reports NOT_FOUND if it has none at all.
    """

    def __init__(self) -> None:
        self._card_samples = CardSamples()
        self._newer = function_pointer(_NEWER)
        self._older = function_pointer(_OLDER)
        self._capacity = _FIRST_CAPACITY
        # By card.
        self._since_us: dict[str, int] = {}

    def read(self, cards: Iterable[NvmlCard]) -> Iterator[CardUtilization]:
        """The utilisation of each card, or why it is unknown."""
        for card in cards:
            if card.mig:
                yield from (CardUtilization(gpu=row.uuid, why=_MIG) for row in card.rows)
            elif card.vgpu:
                yield CardUtilization(gpu=card.uuid, why=_VGPU)
            elif card.doubled or card.failing:
                yield CardUtilization(gpu=card.uuid, why=_ABSENT)
            else:
                yield self._read(card)

    def _read(self, card: NvmlCard) -> CardUtilization:
        ratio, by_pid, unclear, reasons = None, None, set[int](), list[str]()
        try:
            ratio = self._ratio(card)
        except NvmlCallError as error:
            reasons.append(error.problem.cause)
        try:
            samples = self._samples(card)
        except NvmlCallError as error:
            reasons.append(error.problem.cause)
        else:
            samples.sort(key=lambda sample: sample.at_us)  # of several, a process's newest counts
            by_pid = {sample.pid: sample.busiest / _WHOLE for sample in samples if sample.busiest <= _WHOLE}
            unclear = {sample.pid for sample in samples if sample.busiest > _WHOLE}
        return CardUtilization(
            gpu=card.uuid, ratio=ratio, by_pid=by_pid, unclear=frozenset(unclear), why="; ".join(reasons)
        )

    def _ratio(self, card: NvmlCard) -> float | None:
        """How busy a card was since it was last asked: the mean of its samples, of the type that has the largest.

        Without samples of the card itself, how busy it was in the last sample period, 1/6 s to 1 s (nvmlUtilization_t):
        work that is shorter is mostly missed. None if it would be 0 and a number was impossible; NvmlCallError.
        """
        found = {kind: self._card_samples.read(card, kind) for kind in (*_CARD_TYPES, *_ENGINE_TYPES)}
        if not any(found[kind] for kind in _CARD_TYPES):
            rates = ask(pynvml.nvmlDeviceGetUtilizationRates, handle_of(card))
            found |= dict(zip(_CARD_TYPES, ([rates.gpu], [rates.memory]), strict=True))
        possible = [[percent for percent in percents if percent <= _WHOLE] for percents in found.values()]
        busiest = max((fmean(percents) for percents in possible if percents), default=0.0)
        is_doubtful = any(percent > _WHOLE for percents in found.values() for percent in percents)
        return None if is_doubtful and not busiest else busiest / _WHOLE

    def _samples(self, card: NvmlCard) -> list[_Sample]:
        """The samples of a card's processes since it was last asked; NvmlCallError.

        None may be newer because the driver's clock was set back: so its newest one is asked for, and counted from. It
        is not used itself, since that of a process that has ended may have been newer, and this one read before.
        """
        since_us = self._since_us.get(card.uuid, 0)
        samples = self._samples_since(card, since_us)
        newest = samples
        if since_us and not samples:
            newest = [sample for sample in self._samples_since(card, 0) if sample.at_us < since_us]
        self._since_us[card.uuid] = max((sample.at_us for sample in newest), default=since_us)
        return samples

    def _samples_since(self, card: NvmlCard, since_us: int) -> list[_Sample]:
        """The samples of a card's processes that are newer than this, all that the driver keeps if 0; NvmlCallError."""
        handle = handle_of(card)
        if self._newer is not None:
            try:
                return self._query(_NEWER, lambda room: _ask_newer(self._newer, handle, since_us, room), _NEWER_ENTRY)
            except NvmlCallError as error:
                if error.code not in _NO_NEWER:
                    raise
        if self._older is None:
            raise NvmlCallError(_OLDER, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return self._query(_OLDER, lambda room: _ask_older(self._older, handle, since_us, room), _OLDER_ENTRY)

    def _query(
        self, name: str, ask_with: Callable[[int], tuple[int, int, bytes]], entry: struct.Struct
    ) -> list[_Sample]:
        """Ask with room for some samples, and again with more if there are more."""
        for _ in range(_MAX_TRIES):
            room = self._capacity
            code, count, raw = ask_with(room)
            if code == pynvml.NVML_SUCCESS:
                return [*_parsed(raw[: min(count, room) * entry.size], entry)]
            if code == pynvml.NVML_ERROR_NOT_FOUND:
                return []
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                break
            self._capacity = min(2 * max(count, room), _MAX_CAPACITY)
        raise NvmlCallError(name, code)


def _parsed(raw: bytes, entry: struct.Struct) -> Iterator[_Sample]:
    """The samples; without a possible PID an entry is none: drivers fill their list up with such (nvtop#110)."""
    for fields in entry.iter_unpack(raw):
        pid, at_us = (fields[0], fields[1]) if entry is _OLDER_ENTRY else (fields[1], fields[0])
        if 0 < pid <= MAX_PID:
            yield _Sample(pid, at_us, max(fields[2:]))


def _ask_newer(loaded: Any, handle: object, since_us: int, room: int) -> tuple[int, int, bytes]:
    """Call the newer function with room for `room` samples: its code, how many there are, and their bytes."""
    samples = ctypes.create_string_buffer(room * _NEWER_ENTRY.size)
    info = pynvml.c_nvmlProcessesUtilizationInfo_v1_t()
    info.version, info.processSamplesCount = pynvml.ProcessesUtilizationInfo_v1, room
    info.lastSeenTimeStamp = since_us
    info.procUtilArray = ctypes.cast(samples, ctypes.POINTER(pynvml.c_nvmlProcessUtilizationInfo_v1_t))
    _, function = loaded
    return function(handle, ctypes.byref(info)), info.processSamplesCount, samples.raw


def _ask_older(loaded: Any, handle: object, since_us: int, room: int) -> tuple[int, int, bytes]:
    """The same with the older function."""
    samples, count = ctypes.create_string_buffer(room * _OLDER_ENTRY.size), ctypes.c_uint(room)
    _, function = loaded
    return function(handle, samples, ctypes.byref(count), ctypes.c_ulonglong(since_us)), count.value, samples.raw
