"""The clocks of the simulated node: boot time, wall time, and the boot that they belong to."""

from watchdog.core.model import Now

TICKS_PER_S = 100
# All times are multiples of it, a power of two, so that sums and differences of them are exact.
QUANTUM_S = 1 / 64


def whole(seconds: float) -> float:
    """A duration as a multiple of the quantum, at least one."""
    return max(round(seconds / QUANTUM_S), 1) * QUANTUM_S


class Clock:
    """Boot time goes on in suspend and never jumps; wall time jumps; a reboot begins boot time again."""

    def __init__(self, boottime_s: float, wall_s: float) -> None:
        self.boottime_s = boottime_s
        self.wall_s = wall_s
        self.boots = 0

    def now(self) -> Now:
        return Now(boottime_s=self.boottime_s, wall_s=self.wall_s, boot_id=self.boot_id)

    @property
    def boot_id(self) -> str:
        return f"boot-{self.boots}"

    @property
    def ticks(self) -> int:
        """Clock ticks since boot, as a process that starts now carries them."""
        return int(self.boottime_s * TICKS_PER_S)

    def pass_by(self, seconds: float) -> None:
        self.boottime_s += seconds
        self.wall_s += seconds

    def jump(self, seconds: float) -> None:
        self.wall_s = max(self.wall_s + seconds, 0.0)

    def reboot(self, down_s: float) -> None:
        self.boots += 1
        self.boottime_s = whole(20.0)
        self.wall_s += down_s
