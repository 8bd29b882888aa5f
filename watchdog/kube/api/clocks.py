"""The API server's clock beside this node's, by the Date that stands in each of its answers."""

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

from watchdog.kube.api.note import Note

TOLERANCE_S: Final = 60.0  # nothing here breaks by less; NTP keeps it under one


def offset_s(headers: Mapping[str, str], sent_s: float, received_s: float) -> float | None:
    """How many seconds the server's wall clock is ahead of ours; None where the answer has no date.

    `sent_s` and `received_s` are Unix times. It is exact to half a second and half the time that the answer took: a
    Date has whole seconds (RFC 9110, section 6.6.1) and is written in between.
    """
    try:
        server_s = parsedate_to_datetime(headers["Date"]).timestamp()
    except (KeyError, ValueError, TypeError, OverflowError, OSError):
        return None
    offset = server_s + 0.5 - (sent_s + received_s) / 2
    return offset if math.isfinite(offset) else None


def differ(offset: float | None) -> bool:
    """Whether two clocks are further apart than is bearable; unknown is not."""
    return offset is not None and abs(offset) > TOLERANCE_S


class ClockNotes:
    """What the log is to say of the two clocks: once when they come apart, once when they agree again."""

    def __init__(self) -> None:
        self._apart = False

    def take(self, offset: float | None) -> tuple[Note, ...]:
        """What there is to say now, given how far the server's clock was ahead by its last answer."""
        if offset is None:
            return ()
        # Half of it to agree again: otherwise a clock at the border would be told of with each answer.
        apart = abs(offset) > (TOLERANCE_S / 2 if self._apart else TOLERANCE_S)
        if apart is self._apart:
            return ()
        self._apart = apart
        if not apart:
            return (Note(text="this node's clock and the API server's agree again"),)
        # Whole minutes: the server's Date has whole seconds, and the answer was on its way for a while.
        which = "behind" if offset > 0 else "ahead of"
        text = (
            f"this node's clock is {_roughly(abs(offset))} {which} the API server's: certificates may be refused, "
            "`active` hours of rules and deadlines of pods that end come at a wrong time, and so are the times in "
            "the journal and in Events; see which of the two is right (`date -u` on both), and set the other one"
        )
        return (Note(text=text, is_problem=True),)


def _roughly(seconds: float) -> str:
    minutes = round(seconds / 60)
    for size, unit in ((1440, "d"), (60, "h")):
        if minutes >= size:
            return f"about {minutes / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"about {minutes} min"
