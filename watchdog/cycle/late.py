"""What an answer of the driver that came late is worth: nothing follows from it, and that is said."""

from dataclasses import replace

from watchdog.core.model import Gap, GapReason
from watchdog.cycle.cycle import Pass
from watchdog.node.driver import DriverReading


def without_last_look(opened: Pass, took_s: float) -> Pass:
    """The pass of which the last look took too long: nothing follows from it, and that is reported."""
    why = (
        f"the driver took {took_s:.1f} s for the look right before the first signal, which may be 2 s old at most; "
        "nothing was signalled, and the next pass looks again"
    )
    gap = Gap(reason=GapReason.NVML_TIMEOUT, what="NVML last look", why=why)
    return replace(opened, snapshot=replace(opened.snapshot, gaps=(*opened.snapshot.gaps, gap)))


def outdated(reading: DriverReading, took_s: float) -> DriverReading:
    """What a reading that took too long is worth: nothing is known, and why."""
    why = f"the driver took {took_s:.0f} s to answer; what it said is too old to go by, and the next pass looks again"
    gap = Gap(reason=GapReason.NVML_TIMEOUT, what="NVML", why=why)
    gpus = tuple(replace(gpu, listed=False) for gpu in reading.gpus)
    uses = tuple(replace(use, used=None) for use in reading.uses)
    return replace(reading, gpus=gpus, uses=uses, gaps=(*reading.gaps, gap), blind=True)
