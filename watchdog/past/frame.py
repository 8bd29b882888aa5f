"""The shape in which the past is kept: what one pass changed, as compressed MessagePack.

Names on disk are single letters and whatever did not change is left out; what an older version did not write has its
default, and what a newer one adds is ignored.
"""

import zlib
from collections.abc import Iterable
from typing import Final

import msgspec

from watchdog.core.model import Gpu, Node, Pod
from watchdog.core.mps import Mps

LIVE: Final = -1  # the pod list is as old as the pass itself
NEVER: Final = -2  # there is no pod list
_LARGEST: Final = 64 * 2**20  # of one body, unpacked; the recorder writes some kilobytes


class Holder(msgspec.Struct, array_like=True, frozen=True):
    """A process of a pod on one GPU, and the number by which the frames that follow call it."""

    number: int
    pid: int
    start_ticks: int
    uid: str
    container: str
    gpu: str
    name: str
    mps: bool | None = False
    mps_server: bool = False
    serves_others: bool = False


class Dark(msgspec.Struct, array_like=True, frozen=True):
    """What makes readings inconclusive: NVML is silent, a process that may be anybody's, GPUs never listed or read.

    And what holds back the end of processes: the MPS servers and clients.
    """

    blind: bool = False
    unreadable: bool = False
    unseen: tuple[str, ...] = ()
    mps: Mps = msgspec.field(default_factory=Mps)
    missing: tuple[str, ...] = ()


class Frame(msgspec.Struct, omit_defaults=True, kw_only=True, frozen=True):
    """What one pass changed; None and empty: nothing. Times are milliseconds.

    `at_ms` counts from the beginning of the body that the frame is in, `held_ms` back from `at_ms` to the pass before,
    which still read the old state. `wall_ms` is what the wall clock has gone ahead of the boot clock since the body
    began. In `memory` and `used` a number (of the GPU in its list, of the holder) stands before each amount of bytes.
    `synced_ms` is a moment of CLOCK_BOOTTIME, LIVE or NEVER. A `full` frame begins with an empty node.
    """

    at_ms: int = msgspec.field(name="t")
    held_ms: int = msgspec.field(name="h", default=1000)
    wall_ms: int = msgspec.field(name="w", default=0)
    full: bool = msgspec.field(name="f", default=False)
    interval_ms: int | None = msgspec.field(name="i", default=None)
    node: Node | None = msgspec.field(name="n", default=None)
    namespaces: dict[str, dict[str, str]] | None = msgspec.field(name="l", default=None)
    gpus: tuple[Gpu, ...] | None = msgspec.field(name="g", default=None)
    memory: tuple[int | None, ...] = msgspec.field(name="m", default=())
    pods: tuple[Pod, ...] = msgspec.field(name="p", default=())
    gone_pods: tuple[str, ...] = msgspec.field(name="q", default=())
    holders: tuple[Holder, ...] = msgspec.field(name="k", default=())
    used: tuple[int | None, ...] = msgspec.field(name="u", default=())
    gone: tuple[int, ...] = msgspec.field(name="x", default=())
    dark: Dark | None = msgspec.field(name="d", default=None)
    synced_ms: int | None = msgspec.field(name="s", default=None)


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(tuple[Frame, ...])


def pack(frames: Iterable[Frame]) -> bytes:
    """Frames as one body; UnicodeEncodeError or OverflowError for what MessagePack cannot hold."""
    return zlib.compress(_ENCODER.encode(tuple(frames)), 6)


def unpack(body: bytes) -> tuple[Frame, ...]:
    """The frames of a body; ValueError if it is none."""
    try:
        unpacker = zlib.decompressobj()
        return _DECODER.decode(unpacker.decompress(body, _LARGEST))
    except (zlib.error, msgspec.MsgspecError) as error:
        raise ValueError(str(error)) from error
