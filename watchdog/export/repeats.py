"""What would be said again and again: once in a minute, with how often it was left out meanwhile."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

EVERY_S: Final = 60.0
_MOST: Final = 50


@dataclass(slots=True)
class _Said:
    at_s: float
    left_out: int = 0


class Repeats:
    """Lets each thing be said once a minute. Moments are seconds of a clock that never jumps."""

    def __init__(self) -> None:
        self._said: OrderedDict[str, _Said] = OrderedDict()

    def admit(self, what: str, now_s: float) -> int | None:
        """How often it was left out since it was last said; None: it is left out this time too."""
        said = self._said.get(what)
        if said is not None and now_s - said.at_s < EVERY_S:
            said.left_out += 1
            return None
        self._said[what] = _Said(at_s=now_s)
        self._said.move_to_end(what)
        if len(self._said) > _MOST:
            self._said.popitem(last=False)
        return said.left_out if said is not None else 0
