"""The node as its parts see it: what the daemon lives in, and what actions on the node may touch."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO, TypeVar

from tests.soak.book import Book
from tests.soak.clock import QUANTUM_S, Clock, whole
from tests.soak.cluster import Cluster, Gi
from tests.soak.control import SimulatedControl
from tests.soak.driver import Cards, SimulatedDriver
from tests.soak.generation import FOCUSED, generate
from tests.soak.kernel import Kernel
from tests.soak.life import Life
from watchdog.core.policy import Policy

T0 = 1_800_000_000.0
T = TypeVar("T")


class KillNine(BaseException):
    """SIGKILL to the daemon: nothing of it runs any more."""


class World:
    """Kernel, cluster, cards and clock, the daemon that lives there, and the book of the oracle.

    `policy` is what the operator means. `swaps` counts how often it came as a ConfigMap does; `half` is what the file
    says while `writer` writes it in place. `slow_s` is how long the driver takes to answer, `stall_s` how long the disk
    takes for a commit, `loss` what happened to the journal since the last daemon ended, and `stirs` counts how often
    the daemon was disturbed. The tenants of the pods in `toggling` rewrite labels and annotations all the time.
    """

    def __init__(self, seed: str, folder: Path) -> None:
        self.dice = dice = random.Random(seed)
        self.clock = Clock(whole(100.0 + dice.random() * 1000), T0)
        self.kernel = Kernel(self.clock, dice)
        self.cluster = Cluster(self.clock)
        self.cards = Cards({f"GPU-{number}": dice.choice([16, 40]) * Gi for number in range(dice.randint(1, 3))})
        focus = seed.partition("/")[0]
        # The stored episodes of other faults go on as they did.
        has_control = focus == "mps" or focus not in ("fault", *FOCUSED)
        self.control = SimulatedControl(self.kernel, self.clock, seed) if has_control else None
        self.kernel.joins = 0.7 if focus in ("mps", "shared") else self.kernel.joins
        self.policy = FOCUSED[focus] if focus in FOCUSED else generate(dice)
        self.half: Policy | None = None
        self.writer: TextIO | None = None
        self.policy_file = folder / "policy.toml"
        self.policy_file.write_text("version = 1\n", encoding="utf-8")
        self.journal = folder / "journal.db"
        self.book = Book(self.policy)
        self.life: Life | None = None
        self.toggling: set[str] = set()
        self.slow_s = self.second_slow_s = self.stall_s = 0.0
        self.disk_full = False
        self.loss = ""
        self.steps = self.stirs = self.swaps = 0

    @property
    def on_disk(self) -> Policy:
        return self.half or self.policy

    def open_driver(self) -> SimulatedDriver:
        self.kernel.forget_listed()
        return SimulatedDriver(self.kernel, self.cards)

    def stir(self, where: str) -> None:
        """The world goes on in the middle of a cycle, now and then."""
        if where == "members":
            self.book.signals.out_of_reach.clear()
        if self.dice.random() > (0.25 if where == "between the looks" else 0.04):
            return
        self.stirs += 1
        self.pass_by(QUANTUM_S)
        if self.dice.random() < 0.1 and where != "look":
            raise KillNine
        self.book.seen[f"race: {where}"] += 1
        self.race()

    def race(self) -> None:
        """Something happens at the worst moment."""

    def say(self, what: str) -> None:
        """Remember what has just happened, for the reader of a failure."""
        self.book.tail.append(f"{self.steps}: {what}")
        self.book.seen[what.partition(":")[0]] += 1

    def pass_by(self, seconds: float) -> None:
        self.clock.pass_by(whole(seconds))
        self.kernel.settle()

    def to_one(self, action: Callable[["World", T], None], of: Sequence[T]) -> None:
        """Let something happen to one of these, if there are any."""
        if of:
            action(self, self.dice.choice(of))

    def alive(self) -> Life:
        """The daemon; a new one where none runs."""
        if self.life is None:
            self.say("daemon started")
            self.life = Life(self)
            self.life.beat()
        return self.life

    def kill_nine(self) -> None:
        life, self.life = self.life, None
        if life is not None:
            life.die()
