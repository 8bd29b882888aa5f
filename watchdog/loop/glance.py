"""A single reading of a driver, for commands that look once: bounded in time, because a call can hang for ever."""

import math

from watchdog import clock
from watchdog.core.model import Gap, GapReason
from watchdog.export.phrases import span
from watchdog.node.driver import Driver, DriverReading
from watchdog.node.driver_thread import DriverThread
from watchdog.waiter import Waiter


def read_once(driver: Driver, patience_s: float) -> DriverReading:
    """Read on a thread of its own; a driver that gives nothing in that time is a reading that is blind.

    Its thread then hangs on, so such a process has to end by `os._exit`.
    """
    thread = DriverThread(driver)
    waiter = Waiter()
    waiter.watch(thread.fileno())
    thread.request()
    deadline_s = clock.now().boottime_s + patience_s
    left_s = patience_s
    while left_s > 0 and math.isfinite(left_s):
        waiter.wait(left_s)
        reading = thread.take()
        if reading is not None:
            return reading
        left_s = deadline_s - clock.now().boottime_s
    why = f"no answer within {span(patience_s)}: a call into the driver hangs; see dmesg for NVRM messages"
    return DriverReading(driver=None, gaps=(Gap(reason=GapReason.NVML_TIMEOUT, what="NVML", why=why),), blind=True)
