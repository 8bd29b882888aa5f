"""Since when the GPUs of the node are under maintenance, across restarts of the daemon."""

from collections.abc import Callable
from dataclasses import replace

from watchdog.core.brakes import in_this_boot_s
from watchdog.core.model import MaintenanceStart, Now, began_at_s


class MaintenanceWatch:
    """Remembers when maintenance began; the journal does too, since releasing the driver may take a re-exec.

    `start` is None without maintenance. Another label or value is still the same maintenance, until there is none.
    `write` records the start, or that there is none; it is called only once the journal has been read.
    """

    def __init__(self, write: Callable[[MaintenanceStart | None], None]) -> None:
        self.start: MaintenanceStart | None = None
        self._write = write
        self._earlier: MaintenanceStart | None = None  # what the journal had, until the Node object has been read
        self._was_idle = False
        self._is_restored = False

    def restore(self, earlier: MaintenanceStart | None, now: Now) -> None:
        """Take over what a journal that has just been opened has; later ones of this daemon can have nothing older."""
        if earlier is not None and not self._is_restored:
            boottime_s, wall_s = in_this_boot_s(earlier.at, now), began_at_s(earlier.at, now)
            began = replace(earlier, at=replace(now, boottime_s=boottime_s, wall_s=wall_s))
            if self.start is None and not self._was_idle:
                self._earlier = began
            elif self.start is not None and not self.start.seen:
                self.start = began
        self._is_restored = True
        self._write(self.start or self._earlier)

    def update(self, why: str | None, now: Now, *, is_known: bool) -> None:
        """Note why the GPUs are under maintenance, or that they are not (None); unless `is_known`, that may be old."""
        if why is not None:
            if self.start is None:
                self.start = self._earlier or MaintenanceStart(at=now, seen=self._was_idle)
                self._put()
        elif is_known:
            had, self.start, self._earlier = self.start or self._earlier, None, None
            self._was_idle = True
            if had is not None:
                self._put()

    def _put(self) -> None:
        if self._is_restored:
            self._write(self.start)
