"""The one place where the time is read."""

import time
from pathlib import Path

from watchdog.core.model import Now


def boot_id(procfs: Path = Path("/proc")) -> str:
    """The kernel's random name of this boot; empty where it can't be read (ages then come from the wall clock)."""
    try:
        return (procfs / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


_BOOT_ID = boot_id()


def now() -> Now:
    """The present moment; CLOCK_BOOTTIME alone both goes on in suspend and never jumps (clock_gettime(2))."""
    return Now(boottime_s=time.clock_gettime(time.CLOCK_BOOTTIME), wall_s=time.time(), boot_id=_BOOT_ID)
