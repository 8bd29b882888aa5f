"""What each process of a pod holds on each GPU, as it is kept: numbered once, and written again when it has moved."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from watchdog.core.findings import AttributedUse
from watchdog.past.frame import Holder

MOVED: Final = 64 * 2**20  # less than the memory of one context, which the allowance has to cover anyway

_Place = tuple[int, int, str, str, str]


@dataclass(slots=True)
class _Slot:
    number: int
    used: int | None


class Holders:
    """The processes that are kept, with the bytes that the frames say."""

    def __init__(self) -> None:
        self._slots: dict[_Place, _Slot] = {}
        self._next_number = 0

    def look(self, uses: Iterable[AttributedUse], exact: set[str]) -> dict[str, tuple[Any, ...]]:
        """The fields `gone`, `holders` and `used` of a frame.

        All bytes of a pod are kept together, exactly, where one of its processes has moved, come or gone, and where its
        UID is in `exact`: their sum is then right to the byte.
        """
        exact = set(exact)
        seen: dict[_Place, AttributedUse] = {}
        for use in uses:
            place = (use.key.pid, use.key.start_ticks, use.uid, use.container, use.gpu)
            seen[place] = use
            slot = self._slots.get(place)
            if slot is None or has_moved(slot.used, use.used):
                exact.add(use.uid)
        gone = self._slots.keys() - seen.keys() if len(seen) != len(self._slots) or exact else set()
        exact.update(uid for _, _, uid, _, _ in gone)
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
                holders.append(Holder(slot.number, *place, use.name))
            slot.used = use.used
            used += (slot.number, use.used)
        return {"holders": tuple(holders), "used": tuple(used)}


def has_moved(kept: int | None, now: int | None) -> bool:
    """Whether an amount is too far from the one that is kept, or has become known or unknown."""
    if kept is None or now is None:
        return kept is not now
    return abs(now - kept) > MOVED
