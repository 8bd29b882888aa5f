"""How much memory MPS lets a client pin: by its server, and by its own environment."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from watchdog.core.model import PinnedLimit, ProcessKey
from watchdog.core.units import LARGEST
from watchdog.node.procfs import Procfs

_VARIABLE: Final = b"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="
_LIMIT: Final = re.compile(r"(?P<number>[0-9]{1,15})(?P<unit>[KMGT]?)(?:i?B)?", re.IGNORECASE)
_LONGEST: Final = 16 * 1024  # 128 devices by UUID need less
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}  # binary: 10G are 10737418240 bytes


def parse_limit(text: str) -> int | None:
    """A memory limit as MPS writes it, such as `20350M` or `512MB`, in bytes; None if it is not one."""
    match = _LIMIT.fullmatch(text.strip())
    limit = None if match is None else int(match["number"]) * _UNITS[match["unit"].upper()]
    return limit if limit is None or limit <= LARGEST else None


def parse_limits(text: str) -> dict[str, int] | None:
    """The limit of each device in a value of `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`; None if it can't be understood.

    Devices are numbers or UUIDs: `0=1G,1=512MB` (MPS, appendix on environment variables). A value that names more
    devices than a node has is not read, since it would only use up memory.
    """
    if len(text) > _LONGEST:
        return None
    limits: dict[str, int] = {}
    for entry in text.split(","):
        device, _, amount = entry.partition("=")
        limit = parse_limit(amount)
        if not device.strip() or limit is None:
            return None
        limits[device.strip()] = limit
    return limits


def own_limits(procfs: Procfs, key: ProcessKey) -> Mapping[str, int] | None:
    """The limits in a process's environment, by device as written there; empty if it has none, None if unknown.

    Reading it needs CAP_SYS_PTRACE, unless the process has no more rights than this one (ptrace(2)). It is what the
    process started with: later changes are not visible (proc_pid_environ(5)).
    """
    try:
        environ = procfs.environ(key.pid)
        if procfs.stat(key.pid).start_ticks != key.start_ticks:
            return None
    except OSError:
        return None
    values = [entry.removeprefix(_VARIABLE) for entry in environ.split(b"\0") if entry.startswith(_VARIABLE)]
    return parse_limits(values[0].decode("utf-8", "replace")) if values else {}


def limits_of(
    key: ProcessKey,
    gpus: Collection[str],
    own: Mapping[str, int] | None,
    server_pid: int,
    by_server: Mapping[tuple[int, str], int | None],
) -> Iterator[PinnedLimit]:
    """The limit of a client on each GPU that it uses."""
    for gpu in sorted(gpus):
        on_server = by_server.get((server_pid, gpu))
        on_own = None if own is None else _limit_on(gpu, own, is_only=len(gpus) == 1)
        is_complete = on_server is not None and (own == {} or on_own is not None)
        yield PinnedLimit(key=key, gpu=gpu, by_server=on_server, by_client=on_own, is_complete=is_complete)


def _limit_on(gpu: str, limits: Mapping[str, int], *, is_only: bool) -> int | None:
    """The limit on a GPU: by its UUID or the beginning of it, or by number if client and variable have only one."""
    for device, limit in limits.items():
        if gpu.startswith(device) and device.startswith(("GPU-", "MIG-")):
            return limit
    return limits.get("0") if is_only and len(limits) == 1 else None
