"""What the daemon lives in, and what outlives it."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.soak.book import Book
from tests.soak.clock import Clock
from tests.soak.cluster import Cluster
from tests.soak.driver import SimulatedDriver
from tests.soak.kernel import Kernel
from tests.soak.policies import PolicyPlan

_NO_LIMIT: Final = resource.getrlimit(resource.RLIMIT_FSIZE)


class KillNine(BaseException):
    """SIGKILL to the daemon: nothing of it runs any more."""


@contextmanager
def full_disk(full: bool) -> Iterator[None]:
    """While it is full no file grows: SQLite gets the kernel's own error (setrlimit(2), RLIMIT_FSIZE)."""
    if not full:
        yield
        return
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, _NO_LIMIT[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, _NO_LIMIT)


@dataclass(slots=True, kw_only=True)
class Around:
    """The node and its oracle. `slow_s` is how long the driver takes to answer, `stirs` how often it was disturbed."""

    clock: Clock
    kernel: Kernel
    cluster: Cluster
    journal: Path
    plan: PolicyPlan
    book: Book
    stir: Callable[[str], None]
    open_driver: Callable[[], SimulatedDriver]
    slow_s: float = 0.0
    second_slow_s: float = 0.0
    disk_full: bool = False
    stirs: int = 0

    def pass_by(self, seconds: float) -> None:
        """Let time pass for everybody."""
        self.clock.pass_by(seconds)
        self.kernel.settle()
