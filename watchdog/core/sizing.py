"""Sizing: what an amount comes to in bytes, on the cards that its holder uses."""

from fractions import Fraction
from typing import NamedTuple

from watchdog.core.amount import Amount, Devices, Part, Size
from watchdog.core.cards import Cards


class Holder(NamedTuple):
    """On which GPUs a container (or pod) uses memory, those with the most first, and which of them is asked about.

    `gpu` None: all of them.
    """

    most_used: list[str]
    gpu: str | None
    cards: Cards


def bytes_of(amount: Amount, holder: Holder, *, by_request: bool = False) -> int | None:
    """What an amount comes to, by its limit where it has one; None where a size is needed and not known."""
    requested = _bytes_of(amount.size, amount, holder)
    if by_request or amount.limit is None or requested is None:
        return requested
    limit = _bytes_of(amount.limit, amount, holder)
    room = holder.cards.size(holder.gpu) if holder.gpu is not None else None
    # A tenant names the limit, so it never exceeds the card that is asked about.
    return None if limit is None else max(requested, limit if room is None else min(limit, room))


def _bytes_of(size: Size | None, amount: Amount, holder: Holder) -> int | None:
    if size is None:
        return None
    if isinstance(size, Devices):
        return _whole(size, holder)
    if amount.per == "total":
        return size if isinstance(size, int) else _spread(size, holder)
    if holder.gpu is None:
        one = size if isinstance(size, int) else _part_of(size.cards, holder.cards.smallest(size.profile))
        return None if one is None else one * (amount.count or 1)
    if amount.count is not None and holder.gpu not in holder.most_used[: amount.count]:
        return 0
    return size if isinstance(size, int) else _part_of(size.cards, holder.cards.size(holder.gpu))


def _spread(part: Part, holder: Holder) -> int | None:
    """So many cards' worth over the cards that are used, each counting alike; what they can't hold is of the smallest.

    Where none is used yet all of it is of the smallest: the one that is least in the tenant's favour.
    """
    if not holder.cards.are_alike:
        return None  # it may be on a card that is out of sight and has another size
    used = [holder.cards.size(gpu) for gpu in holder.most_used]
    sizes = [size for size in used if size is not None]
    if len(sizes) < len(used):
        return None
    if sizes and part.cards <= len(sizes):
        return _part_of(part.cards / len(sizes), sum(sizes))
    rest = _part_of(part.cards - len(sizes), holder.cards.smallest(part.profile))
    return None if rest is None else sum(sizes) + rest


def _whole(devices: Devices, holder: Holder) -> int | None:
    """The sizes of the devices that are used, and of the smallest of their kind for those that are not used yet."""
    left, total, mine = list(holder.most_used), 0, set[str]()
    for profile, count in sorted(devices.counts, key=lambda each: (each[0] is None, each[0] or "")):
        fitting = holder.cards.fit(left, profile)
        if len(fitting) > count and not holder.cards.are_alike and holder.gpu is None:
            return None  # its own may be one that is out of sight and has another size
        own = fitting[:count]
        left = [gpu for gpu in left if gpu not in own]
        mine.update(own)
        sizes = [holder.cards.size(gpu) for gpu in own]
        missing = count - len(own)  # a tenant's number: it must not become as many values
        smallest = holder.cards.smallest(profile) if missing else 0
        if holder.gpu is None and (smallest is None or any(size is None for size in sizes)):
            return None
        total += sum(size or 0 for size in sizes) + (smallest or 0) * missing
    if holder.gpu is None:
        return total
    return holder.cards.size(holder.gpu) if holder.gpu in mine else 0


def _part_of(share: Fraction, size: int | None) -> int | None:
    if size is None:
        return None
    exact = share * size
    return -(-exact.numerator // exact.denominator)
