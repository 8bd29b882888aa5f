"""A disk that stalls: the daemon's own fdatasync(2) and fsync(2) wait for as long as a file is there."""

from pathlib import Path
from typing import Final

from tests.node.support import preloaded

_SHIM: Final = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
static void stall(void) {
    const char *while_there = getenv("STALL_WHILE"), *seen = getenv("STALL_SEEN");
    for (int i = 0; i < 6000 && while_there && access(while_there, F_OK) == 0; i++) {
        if (i == 0) close(open(seen, O_CREAT | O_WRONLY, 0600));
        usleep(10000);
    }
}
int fdatasync(int fd) { stall(); return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd); }
int fsync(int fd) { stall(); return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd); }
"""


class StallingDisk:
    """Stalls every sync of the daemon that runs with `prefix`, from `stall` until `thaw`, a minute at most."""

    def __init__(self, root: Path) -> None:
        self._file, self._seen = root / "stalled", root / "stall-seen"
        self.prefix = ("env", preloaded(root, "stall", _SHIM), f"STALL_WHILE={self._file}", f"STALL_SEEN={self._seen}")

    @property
    def has_stalled(self) -> bool:
        """Whether a sync is waiting, or has waited since `stall`."""
        return self._seen.exists()

    def stall(self) -> None:
        self._seen.unlink(missing_ok=True)
        self._file.touch()

    def thaw(self) -> None:
        self._file.unlink(missing_ok=True)
