"""What the daemon lives in, and what outlives it."""

import random
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from tests.soak.book import Book
from tests.soak.clock import Clock
from tests.soak.cluster import Cluster
from tests.soak.control import SimulatedControl
from tests.soak.driver import SimulatedDriver
from tests.soak.kernel import Kernel
from watchdog.core.policy import Policy

BOTH: Final = "removed with its lock"  # a loss that leaves a new node
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
    """The node and its oracle.

    `loss` is what happened to the journal since the last daemon ended.

    `slow_s` is how long the driver takes to answer, `stall_s` how long the disk takes for a commit, `stirs` how often
    the daemon was disturbed.

    `policy` is what the operator means. `swaps` counts how often it came as a ConfigMap does; `half` is what
    the file says while `writer` writes it in place.
    """

    dice: random.Random
    clock: Clock
    kernel: Kernel
    cluster: Cluster
    journal: Path
    policy: Policy
    policy_file: Path
    book: Book
    stir: Callable[[str], None]
    open_driver: Callable[[], SimulatedDriver]
    control: SimulatedControl | None = None
    slow_s: float = 0.0
    second_slow_s: float = 0.0
    stall_s: float = 0.0
    disk_full: bool = False
    loss: str = ""
    stirs: int = 0
    swaps: int = 0
    half: Policy | None = None
    writer: TextIO | None = None

    @property
    def on_disk(self) -> Policy:
        """What whoever reads the policy file now takes for the policy."""
        return self.half or self.policy

    def pass_by(self, seconds: float) -> None:
        """Let time pass for everybody."""
        self.clock.pass_by(seconds)
        self.kernel.settle()
