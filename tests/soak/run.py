"""Runs the soak: one episode a seed, each on a node of its own."""

import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.simulation import Simulation
from tests.soak.violation import Violation

_SHM = Path("/dev/shm")  # where fsync costs nothing


@dataclass(slots=True)
class Tally:
    """What a run has come to. `failure` tells what was found, and how to find it again."""

    steps: int = 0
    episodes: int = 0
    seconds: float = 0.0
    seen: Counter[str] = field(default_factory=Counter)
    failure: str = ""

    def add(self, other: "Tally") -> None:
        """Take another run in."""
        self.steps += other.steps
        self.episodes += other.episodes
        self.seconds += other.seconds
        self.seen.update(other.seen)
        self.failure = self.failure or other.failure


def episode(seed: str, steps: int) -> Tally:
    """One node from a seed; any other error is a failure too."""
    began = time.process_time()
    tally = Tally(episodes=1)
    with tempfile.TemporaryDirectory(prefix="soak-", dir=_SHM if _SHM.is_dir() else None) as folder:
        node = Simulation(seed, Path(folder))
        try:
            for _ in range(steps):
                node.step()
        except Exception as error:
            kind = "" if isinstance(error, Violation) else f"{type(error).__name__}: "
            last = "\n  ".join(node.book.tail)
            tally.failure = f"seed {seed!r}, step {node.steps}: {kind}{error}\n  {last}"
            if not isinstance(error, Violation):
                raise
        finally:
            node.close()
    tally.steps, tally.seen = node.steps, node.book.seen
    tally.seconds = time.process_time() - began
    return tally


def soak(seed: str, steps: int) -> Tally:
    """Episodes of many lengths until there are this many steps, or one has failed."""
    total = Tally()
    dice = random.Random(seed)
    while total.steps < steps and not total.failure:
        length = min(dice.choice([500, 1000, 2000, 4000, 10_000]), steps - total.steps)
        total.add(episode(f"{seed}/{total.episodes}", length))
    return total
