"""The time of the demo: the real clock, or one that runs faster."""

from watchdog import clock
from watchdog.core.model import Now


class StoryClock:
    """A clock that runs `speed` times as fast as the real one, so that every wait of the policy is shorter by that."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self._begin = clock.now()

    def now(self) -> Now:
        """The present moment."""
        begin, real = self._begin, clock.now()
        return Now(
            boottime_s=begin.boottime_s + (real.boottime_s - begin.boottime_s) * self.speed,
            wall_s=begin.wall_s + (real.wall_s - begin.wall_s) * self.speed,
            boot_id=real.boot_id,
        )

    def elapsed_s(self) -> float:
        """Seconds since the story began."""
        return self.now().boottime_s - self._begin.boottime_s
