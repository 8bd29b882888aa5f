"""A machine that is suspended: for the daemon alone, and without the wait."""

import mmap
from pathlib import Path
from typing import Final

from tests.node.support import preloaded

# CLOCK_MONOTONIC stands still in suspend, the other two do not (clock_gettime(2)).
_SHIM: Final = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile long long *seconds;
__attribute__((constructor)) static void begin(void) {
    int fd = open(getenv("SUSPENDED_S"), O_RDONLY);
    void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *seconds, PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) abort();
    seconds = page;
    close(fd);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    int code = (int)syscall(SYS_clock_gettime, clock, now);
    if (code == 0 && seconds != NULL && (clock == CLOCK_BOOTTIME || clock == CLOCK_REALTIME)) now->tv_sec += *seconds;
    return code;
}
"""


class Suspension:
    """Suspends the machine of the daemon that runs with `prefix`, as its clocks tell it."""

    def __init__(self, root: Path) -> None:
        self._file = root / "suspended-s"
        self._file.write_bytes(bytes(8))
        self.prefix = ("env", preloaded(root, "suspend", _SHIM), f"SUSPENDED_S={self._file}")

    def let_pass(self, seconds: int) -> None:
        """Let the machine have been suspended for so long altogether."""
        with self._file.open("r+b") as file, mmap.mmap(file.fileno(), 8) as page:
            page[:] = seconds.to_bytes(8, "little")
