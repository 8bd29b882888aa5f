"""A node's GPUs as the stub of NVML shall show them: values that are written to the file that steers it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tests.stub.library import NoCompilerError, Read, Variant, build, build_or_skip, environment, preload, read_calls

__all__ = [
    "GIB", "LISTS", "MIB", "ListName", "NoCompilerError", "Read", "Stub", "StubDelay", "StubGpu", "StubMig",
    "StubProcess", "StubReturn", "StubSamples", "Variant", "build", "build_or_skip", "environment", "preload",
    "read_calls",
]  # fmt: skip

MIB: Final = 2**20
GIB: Final = 2**30
ListName = Literal["compute", "graphics", "mps"]
SampleType = Literal["gpu", "memory", "encoder", "decoder"]
LISTS: Final = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StubProcess:
    """A process that a GPU lists, as long as it lives; a `ghost` is listed whether it lives or not.

    `used` is bytes or None for not available. `holds` is what it really holds, where that differs. `gi` and `ci` are
    for a card in MIG mode. `protected` fills the field that only 32-byte entries have. `utilization` and
    `encoder` are the per cent of its sample; `utilization` None: it has none.
    """

    pid: int
    used: int | None = GIB
    lists: tuple[ListName, ...] = ("compute",)
    gi: int | None = None
    ci: int | None = None
    ghost: bool = False
    holds: int | None = None
    protected: int = 0
    utilization: int | None = None
    encoder: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StubMig:
    """A MIG device of a card: `slot` is its MIG index; slots that no device has are the holes.

    `placement` is the ID of its profile, and the first memory slice of its GPU instance; None: no right to read it.
    """

    uuid: str
    slot: int = 0
    gi: int = 1
    ci: int = 0
    profile: str = "1g.5gb"
    placement: tuple[int, int] | None = None
    total: int = 5 * GIB
    reserved: int = 0
    base: int = 0
    null_handle: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StubSamples:
    """What the driver has sampled of a card, in per cent, six times a second up to now, the oldest first.

    An empty list is answered by NOT_FOUND. `value_type` is what the driver says the values are; 1: an unsigned int.
    """

    of: SampleType = "gpu"
    percents: tuple[int, ...] = ()
    value_type: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StubGpu:
    """A card. Its used bytes are `base` + `reserved` + what its processes hold, or `used` where that is given.

    A `unified` chip has no memory information. `mig_mode` None: on where it has `migs`, otherwise not capable of it.
    `virtualization` is the mode that the driver tells: 0 none, 1 passed through, 2 a vGPU; None: it does not tell.
    `utilization` and `moved` are what the card itself reports, in per cent; None: it reports none. One that `varies`
    finds other figures at every call. `samples` are those that the driver keeps of it, of no other types; None: of each
    type one, of the same per cent, or of 0.
    `says` is the UUID that the driver gives it, where that is another card's; here each card has its own.
    """

    uuid: str
    says: str | None = None
    name: str = "NVIDIA Stub"
    total: int = 40 * GIB
    reserved: int = 512 * MIB
    base: int = 0
    used: int | None = None
    unified: bool = False
    null_handle: bool = False
    mig_mode: bool | None = None
    virtualization: int | None = None
    max_migs: int = 7
    utilization: int | None = None
    moved: int = 0
    varies: bool = False
    samples: tuple[StubSamples, ...] | None = None
    migs: tuple[StubMig, ...] = ()
    processes: tuple[StubProcess, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StubReturn:
    """The return code of an NVML function by its C name, or of all but nvmlShutdown (`*`), for one device or any."""

    call: str
    code: int
    gpu: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StubDelay:
    """How long an NVML function takes; no signal cuts it short."""

    call: str
    ms: float
    gpu: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stub:
    """All that the stub shows.

    `size_query_succeeds`: a list asked for its size answers SUCCESS and 0. `sampled_s` is the time
    of the newest sample of utilisation by the driver's clock; None: the time of day. `pad_samples`: entries that are
    none fill their list. `grow_by`: every list is so much longer at each call than at the one before, `grow_calls`
    times. `free_delay_ms`: a process stays listed and its memory used for so long after its death was noticed.
    `handle_epoch`: handles of another epoch are invalid. `device` is a file that a session opens and its end closes, as
    the real library does with /dev/nvidiactl; `keep`: it stays open or mapped.
    """

    gpus: tuple[StubGpu, ...] = ()
    driver: str = "550.54.15"
    returns: tuple[StubReturn, ...] = ()
    delays: tuple[StubDelay, ...] = ()
    size_query_succeeds: bool = False
    sampled_s: float | None = None
    pad_samples: bool = False
    grow_by: int = 0
    grow_calls: int = 1
    free_delay_ms: float = 0.0
    handle_epoch: int = 0
    device: Path | None = None
    keep: Literal["no", "open", "mapped"] = "no"

    def write(self, path: Path) -> Path:
        """Put it into a file at once (by renaming), and give the path."""
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        scratch.write_text("\n".join(self.lines()) + "\n", encoding="utf-8")
        scratch.replace(path)
        return path

    def lines(self) -> Iterator[str]:
        yield f"driver version={self.driver}"
        for gpu in self.gpus:
            yield from _gpu_lines(gpu)
        for rule in self.returns:
            yield _line("return", call=rule.call, code=rule.code, gpu=rule.gpu or None)
        for delay in self.delays:
            yield _line("delay", call=delay.call, ms=delay.ms, gpu=delay.gpu or None)
        if self.size_query_succeeds:
            yield "size_query_succeeds"
        if self.sampled_s is not None:
            yield _line("sampled", at_us=int(1e6 * self.sampled_s))
        if self.pad_samples:
            yield "pad_samples"
        if self.grow_by:
            yield _line("grow", by=self.grow_by, calls=self.grow_calls)
        yield _line("free_delay", ms=self.free_delay_ms)
        yield _line("handles", epoch=self.handle_epoch)
        if self.device is not None:
            yield _line("device", keep=self.keep, name=self.device)


def _gpu_lines(gpu: StubGpu) -> Iterator[str]:
    mig = gpu.mig_mode if gpu.mig_mode is not None else (True if gpu.migs else None)
    sizes = {"total": gpu.total, "reserved": gpu.reserved, "base": gpu.base, "used": gpu.used}
    kind = {"unified": int(gpu.unified), "null": int(gpu.null_handle), "mig": mig if mig is None else int(mig)}
    virtual = {"virtual": gpu.virtualization}
    busy = {"util": gpu.utilization, "moved": gpu.moved, "vary": int(gpu.varies)}
    yield _line(
        "gpu", uuid=gpu.uuid, says=gpu.says, **sizes, **kind, **virtual, **busy, max_migs=gpu.max_migs, name=gpu.name
    )
    if gpu.samples is not None:
        yield _line("samples", gpu=gpu.uuid)
    for each in gpu.samples or ():
        percents = ",".join(map(str, each.percents))
        yield _line("samples", gpu=gpu.uuid, of=each.of, type=each.value_type, percents=percents)
    for one in gpu.migs:
        place = {"slot": one.slot, "gi": one.gi, "ci": one.ci, "profile": one.profile}
        place |= {} if one.placement is None else dict(zip(("profile_id", "start"), one.placement, strict=True))
        size = {"total": one.total, "reserved": one.reserved, "base": one.base, "null": int(one.null_handle)}
        yield _line("mig", parent=gpu.uuid, uuid=one.uuid, **place, **size)
    for process in gpu.processes:
        used = "na" if process.used is None else process.used
        place = {"gi": process.gi, "ci": process.ci, "holds": process.holds, "protected": process.protected}
        place |= {"util": process.utilization, "encoder": process.encoder}
        for name in process.lists:
            yield _line(
                "process", gpu=gpu.uuid, list=name, pid=process.pid, used=used, ghost=int(process.ghost), **place
            )


def _line(statement: str, **values: object) -> str:
    return " ".join([statement, *(f"{key}={value}" for key, value in values.items() if value is not None)])
