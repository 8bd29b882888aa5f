"""The node as its parts see it: what actions on it may touch."""

import random
from pathlib import Path

from tests.soak.around import Around, KillNine
from tests.soak.book import Book
from tests.soak.clock import QUANTUM_S, Clock, whole
from tests.soak.cluster import Cluster, Gi
from tests.soak.control import SimulatedControl
from tests.soak.driver import Cards, SimulatedDriver
from tests.soak.generation import FOCUSED, generate
from tests.soak.kernel import Kernel
from tests.soak.life import Life

T0 = 1_800_000_000.0


class World:
    """Kernel, cluster, cards and clock, the daemon that lives there, and the book of the oracle."""

    def __init__(self, seed: str, folder: Path) -> None:
        self.dice = dice = random.Random(seed)
        self.clock = Clock(whole(100.0 + dice.random() * 1000), T0)
        self.kernel = Kernel(self.clock, dice)
        self.cluster = Cluster(self.clock)
        sizes = {f"GPU-{number}": dice.choice([16, 40]) * Gi for number in range(dice.randint(1, 3))}
        self.cards = Cards(sizes)
        focus = seed.partition("/")[0]
        # The stored episodes of other faults go on as they did.
        has_control = focus == "mps" or focus not in ("fault", *FOCUSED)
        self.control = SimulatedControl(self.kernel, self.clock, seed) if has_control else None
        self.kernel.joins = 0.7 if focus in ("mps", "shared") else self.kernel.joins
        self.toggling: set[str] = set()  # pods whose tenants rewrite labels and annotations all the time
        policy = FOCUSED[focus] if focus in FOCUSED else generate(dice)
        self.book = Book(policy)
        self.around = Around(
            dice=dice,
            clock=self.clock,
            kernel=self.kernel,
            cluster=self.cluster,
            journal=folder / "journal.db",
            policy=policy,
            policy_file=folder / "policy.toml",
            book=self.book,
            stir=self.stir,
            open_driver=self._open_driver,
            control=self.control,
        )
        self.around.policy_file.write_text("version = 1\n", encoding="utf-8")
        self.life: Life | None = None
        self.steps = 0

    def _open_driver(self) -> SimulatedDriver:
        self.kernel.be_listed_anew()
        return SimulatedDriver(self.kernel, self.cards)

    def stir(self, where: str) -> None:
        """The world goes on in the middle of a cycle, now and then."""
        if where == "members":
            self.book.signals.out_of_reach.clear()
        if self.dice.random() > (0.25 if where == "between the looks" else 0.04):
            return
        self.around.stirs += 1
        self.around.pass_by(QUANTUM_S)
        if self.dice.random() < 0.1 and where != "look":
            raise KillNine
        self.book.seen[f"race: {where}"] += 1
        self.race()

    def race(self) -> None:
        """Something happens at the worst moment."""

    def say(self, what: str) -> None:
        """Remember what has just happened, for whoever reads a failure."""
        self.book.tail.append(f"{self.steps}: {what}")
        self.book.seen[what.partition(":")[0]] += 1

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self.around.pass_by(whole(seconds))

    def alive(self) -> Life:
        """The daemon; a new one where none runs."""
        if self.life is None:
            self.say("daemon started")
            self.life = Life(self.around)
            self.life.beat()
        return self.life

    def kill_nine(self) -> None:
        """SIGKILL to the daemon."""
        life, self.life = self.life, None
        if life is not None:
            life.die()
