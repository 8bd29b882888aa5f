"""A driver of one simulated card: its processes are real, what they hold on it follows a curve."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from watchdog.core.model import Gpu, ProcessKey, Use
from watchdog.node.driver import DriverReading
from watchdog.sim.curve import Curve
from watchdog.sim.life import lives


@dataclass(slots=True)
class _Holder:
    key: ProcessKey
    curve: Curve
    since_s: float
    used: int = 0
    died_s: float | None = None


class SimDriver:
    """Reads a card that exists in memory alone; implements `watchdog.node.driver.Driver`.

    Memory is free `release_s` after the process has really died, and listed under its PID until then, as NVML does.
    `clock` gives seconds. The curves are to fit the card: what does not fit is not refused.
    """

    def __init__(self, card: Gpu, clock: Callable[[], float], *, release_s: float = 0.0) -> None:
        self._card = card
        self._clock = clock
        self._release_s = release_s
        self._holders: list[_Holder] = []

    @property
    def needs_new_process(self) -> None:
        """None: nothing can be installed under it."""
        return None

    def allocate(self, key: ProcessKey, curve: Curve) -> None:
        """Let a process hold memory along a curve that begins now; one that holds 0 bytes is not listed."""
        self._holders.append(_Holder(key, curve, self._clock()))

    def read(self, only: frozenset[str] | None = None) -> DriverReading:
        """Read the card as it is now."""
        if only is not None and self._card.uuid not in only:
            return DriverReading(driver="simulated")
        self._follow(self._clock())
        uses = tuple(Use(gpu=self._card.uuid, pid=each.key.pid, used=each.used) for each in self._holders if each.used)
        used = (self._card.reserved or 0) + sum(each.used for each in self._holders)
        return DriverReading(driver="simulated", gpus=(replace(self._card, used=used),), uses=uses)

    def close(self) -> None:
        """Free everything."""
        self._holders.clear()

    def _follow(self, now_s: float) -> None:
        for each in self._holders:
            if lives(each.key):
                each.used = each.curve.at(now_s - each.since_s)
            elif each.died_s is None:
                each.died_s = now_s
        self._holders = [each for each in self._holders if each.died_s is None or now_s - each.died_s < self._release_s]
