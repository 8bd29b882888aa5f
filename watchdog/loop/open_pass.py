"""A pass between its plan and its end: what it intends goes to disk, and then the driver is asked once more."""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from watchdog.core.model import Now
from watchdog.core.plan import Pass
from watchdog.export.journal_writer import COMMIT_WITHIN_S
from watchdog.loop.looking import Look

# What the first signal goes by is at most so old when it is sent: what is older says what was, not what is.
FRESH_S: Final = 2.0
# An answer of the driver that comes too late to act by is asked for once more.
_MOST_LOOKS: Final = 2


class Next(Enum):
    """What a pass that is open needs next."""

    WAIT = auto()  # for the disk, or for the driver
    LOOK = auto()
    CLOSE = auto()


@dataclass(slots=True, kw_only=True)
class OpenPass:
    """A pass that has a plan and is not closed. `look` is the last look, once it has come in time."""

    opened: Pass
    since: Now
    look: Look | None = None
    late_s: float | None = field(default=None, init=False)
    _looks: int = field(default=0, init=False)
    _is_asked: bool = field(default=False, init=False)

    @property
    def write_until_s(self) -> float:
        """Boot time until which the disk may take what is intended."""
        return self.since.boottime_s + COMMIT_WITHIN_S

    @property
    def waits_for_disk(self) -> bool:
        """Whether nothing but the disk is waited for."""
        return not self._is_asked

    def next(self, now: Now, *, maintenance: bool) -> Next:
        """What to do now: first everything is on disk that can be, then the driver is asked, then it is closed."""
        if self._is_asked:
            return Next.WAIT
        if maintenance:
            return Next.CLOSE
        if not self.opened.is_written and now.boottime_s < self.write_until_s:
            return Next.WAIT
        is_looked_at = self.look is not None or self._looks >= _MOST_LOOKS or self._is_over(now)
        return Next.CLOSE if is_looked_at or not self.opened.wants_last_look else Next.LOOK

    def _is_over(self, now: Now) -> bool:
        """Whether the reading that the plan is made of is so long ago that no stretch lasts until a look now."""
        age_s = now.boottime_s - self.opened.snapshot.at.boottime_s
        return age_s >= self.opened.view.setting.policy.reset_after_s

    def ask(self) -> None:
        """The driver has been asked."""
        self._is_asked = True
        self._looks += 1

    def take(self, look: Look) -> None:
        """The driver has answered; what comes too late is good for nothing."""
        self._is_asked = False
        self.look, self.late_s = (look, None) if look.took_s <= FRESH_S else (None, look.took_s)
