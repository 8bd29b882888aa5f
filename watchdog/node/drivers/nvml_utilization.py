"""The utilisation of cards and of the processes on them, as NVML samples it."""

import ctypes
import struct
from collections.abc import Callable, Iterable, Iterator
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


class UtilizationReader:
    """Reads the utilisation of cards, in one NVML session.

    The driver averages a process over the time since the time stamp that it is given (nvtop#110), so each card's newest
    one is kept. It has no sample of a process that was idle, and reports NOT_FOUND if it has none at all.
    """

    def __init__(self) -> None:
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
            rates = ask(pynvml.nvmlDeviceGetUtilizationRates, handle_of(card))
            if rates.gpu <= _WHOLE and rates.memory <= _WHOLE:
                ratio = max(rates.gpu, rates.memory) / _WHOLE
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
            self._since_us[card.uuid] = max((sample.at_us for sample in samples), default=self._since(card))
            if ratio and not samples:  # the driver's clock may have been set back
                self._since_us[card.uuid] = 0
        return CardUtilization(
            gpu=card.uuid, ratio=ratio, by_pid=by_pid, unclear=frozenset(unclear), why="; ".join(reasons)
        )

    def _since(self, card: NvmlCard) -> int:
        return self._since_us.get(card.uuid, 0)

    def _samples(self, card: NvmlCard) -> list[_Sample]:
        """The samples of a card's processes since it was last asked; NvmlCallError."""
        handle, since_us = handle_of(card), self._since(card)
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
