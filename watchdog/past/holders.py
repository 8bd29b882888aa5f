"""What each process of a pod holds on each GPU, as it is kept: numbered once, and written again when it has moved."""

from dataclasses import dataclass
from typing import Any, Final

from watchdog.core.assessment import AttributedUse
from watchdog.past.frame import Holder

MOVED: Final = 64 * 2**20  # less than the memory of one context, which the allowance has to cover anyway

# All that a holder says of a process but its number.
_Place = tuple[int, int, str, str, str, str, bool | None, bool, bool]


@dataclass(slots=True)
class _Slot:
    number: int
    used: int | None


class Holders:
    """The processes that are kept, with the bytes that the frames say."""

    def __init__(self) -> None:
        self._slots: dict[_Place, _Slot] = {}
        self._next_number = 0
        self._uses: tuple[AttributedUse, ...] | None = None

    def look(self, uses: tuple[AttributedUse, ...], exact: set[str]) -> dict[str, tuple[Any, ...]]:
        """The fields `gone`, `holders` and `used` of a frame.

        All bytes of a pod are kept together, exactly, where one of its processes has moved, come or gone, and where its
        UID is in `exact`: their sum is then right to the byte.
        """
        if uses is self._uses and not exact:
            return {"gone": ()}  # the very uses of the last time
        self._uses, exact = uses, set(exact)
        seen: dict[_Place, AttributedUse] = {}
        for use in uses:
            place = _place(use)
            seen[place] = use
            slot = self._slots.get(place)
            if slot is None or has_moved(slot.used, use.used):
                exact.add(use.uid)
        gone = self._slots.keys() - seen.keys() if len(seen) != len(self._slots) or exact else set()
        exact.update(place[2] for place in gone)
        numbers = tuple(sorted(self._slots.pop(place).number for place in gone))
        return {"gone": numbers, **(self._written(seen, exact) if exact else {})}

    def _written(self, seen: dict[_Place, AttributedUse], exact: set[str]) -> dict[str, tuple[Any, ...]]:
        holders: list[Holder] = []
        used: list[int | None] = []
        for place, use in seen.items():
            slot = self._slots.get(place)
            if use.uid not in exact or (slot is not None and slot.used == use.used):
                continue
            if slot is None:
                slot = self._slots[place] = _Slot(self._next_number, None)
                self._next_number += 1
                holders.append(Holder(slot.number, *place))
            slot.used = use.used
            used += (slot.number, use.used)
        return {"holders": tuple(holders), "used": tuple(used)}


def _place(use: AttributedUse) -> _Place:
    who = use.key.pid, use.key.start_ticks, use.uid, use.container, use.gpu, use.name
    return (*who, use.mps, use.mps_server, use.serves_others)


def has_moved(kept: int | None, now: int | None) -> bool:
    """Whether an amount is too far from the one that is kept, or has become known or unknown."""
    if kept is None or now is None:
        return kept is not now
    return abs(now - kept) > MOVED
