"""What each workload used over time: the container of all pods of one owner, or its pods where these declare whole."""

from dataclasses import dataclass, field

from watchdog.core.assessment import Assessment
from watchdog.core.policy import NO_ALLOWANCE, Allowance, Declaration


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Workload:
    """Whose use it is: an owner and the name of a container; None: the pods declare as wholes."""

    namespace: str
    kind: str
    name: str
    container: str | None


@dataclass(slots=True, kw_only=True)
class Usage:
    """What one workload used. Times are seconds, amounts bytes.

    `held_s` has the time for which each amount was held by one pod, `unknown_s` the time in which an amount was not
    known, `idle_s` the time without any GPU process, `over_s` the time above what is allowed. `needed` is the least
    declaration that allows the most that was used, and some headroom: on the fullest GPU where `per_gpu`; `contexts`
    and `allowance` are what counted at that moment. `last` is the latest assessment.
    """

    last: Assessment
    declaration: tuple[Declaration, str] | None
    pods: set[str] = field(default_factory=set)
    held_s: dict[int, float] = field(default_factory=dict)
    unknown_s: float = 0.0
    idle_s: float = 0.0
    over_s: float = 0.0
    peak: int = 0
    peak_per_gpu: int = 0
    needed: int = 0
    contexts: int = 0
    allowance: Allowance = NO_ALLOWANCE
    per_gpu: bool = False

    @property
    def seen_s(self) -> float:
        """The time in which it held GPU memory, known how much or not."""
        return self.known_s + self.unknown_s

    @property
    def known_s(self) -> float:
        """The time in which amounts were held and known."""
        return sum(self.held_s.values())

    def percentile(self, percent: float) -> int | None:
        """The least amount that was not exceeded for so many percent of the known time; None: nothing is known."""
        left_s = self.known_s * percent / 100
        for amount in sorted(self.held_s):
            left_s -= self.held_s[amount]
            if left_s <= 1e-6:
                return amount
        return None


def with_headroom(used: int, most: int | None) -> int:
    """What was used and a tenth of it, but not beyond the most that its GPUs have (None: not known)."""
    wanted = -(-used * 11 // 10)
    return wanted if most is None else max(min(wanted, most), used)
