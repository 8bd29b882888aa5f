"""A limit on how often the same message is logged."""

import math
from collections import OrderedDict
from typing import Final

_MOST: Final = 50


class Repeats:
    """Limits each message to once in `every_s`. Times are seconds of a clock that never jumps."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._logged: OrderedDict[str, tuple[float, int]] = OrderedDict()  # when, and how often suppressed since

    def admit(self, what: str, now_s: float) -> int | None:
        """How often a message was suppressed since it was last logged; None if it is to be suppressed now."""
        at_s, suppressed = self._logged.get(what, (-math.inf, 0))
        if now_s - at_s < self._every_s:
            self._logged[what] = at_s, suppressed + 1
            return None
        self._logged[what] = now_s, 0
        self._logged.move_to_end(what)
        if len(self._logged) > _MOST:
            self._logged.popitem(last=False)
        return suppressed


def count_repeats(suppressed: int) -> str:
    """What is appended to a message that was suppressed since it was last logged."""
    return f" ({suppressed + 1} times since this was last logged)" if suppressed else ""
