"""Limits that tenants name above their requests: room to burst into while the card has it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

from watchdog.core.amount import Amount, Devices, Part, Size, capped, describe, read_size, refuse_beyond_all
from watchdog.core.cards import Cards, shares_of
from watchdog.core.findings import Misdeclaration
from watchdog.core.model import Node
from watchdog.core.policy import Declaration

CONTAINER: Final = "{container}"
Found = Mapping[str, tuple[int, Amount]]
Measure = int | Part


class Limits:
    """Reads the limits that the annotations of a pod name, on a node with these cards."""

    def __init__(self, annotations: Mapping[str, str], node: Node, cards: Cards) -> None:
        self.annotations = annotations
        self.node = node
        self.cards = cards
        self.skipped: list[Misdeclaration] = []

    def apply(self, found: Found, declarations: Sequence[Declaration], active: Collection[str]) -> dict[str, Amount]:
        """Give the amounts of containers (or "", the pod) their limits; `found` has each with its place in the policy.

        A limit that is no number, or below what is requested, is named and left out: the request holds.
        """
        amounts = {name: amount for name, (_, amount) in found.items()}
        for order, declaration in enumerate(declarations):
            own = [name for name, (position, _) in found.items() if position == order]
            for key, names, where in _keys(declaration.limit_annotation, own, active):
                requested = {name: amounts[name].size for name in names}
                for name, limit in self._read(declaration, key, requested, where).items():
                    amounts[name] = replace(amounts[name], limit=limit)
        return amounts

    def _read(
        self, declaration: Declaration, key: str, sizes: Mapping[str, Size | None], where: str
    ) -> Mapping[str, Measure]:
        """The limit of each of the holders that share one annotation, in proportion to what they request."""
        requested = {name: size for name, size in sizes.items() if isinstance(size, int | Part)}
        if key not in self.annotations or not requested:
            return {}
        try:
            limit = read_size(declaration, {key: self.annotations[key]}, shares_of(declaration, self.node))
            refuse_beyond_all(limit)
        except ValueError as error:
            self.skipped.append(Misdeclaration(source=f"{key} of {where}", why=str(error)))
            return {}
        like = next(iter(requested.values()))
        total = sum((_number(size) for size in requested.values()), Fraction(0))
        if limit is None or isinstance(limit, Devices) or _number(limit) < total:
            named = "0" if limit is None or isinstance(limit, Devices) else describe(limit)
            why = f"{named} is below what is requested, {describe(_like(like, total))}"
            self.skipped.append(Misdeclaration(source=f"{key} of {where}", why=why))
            return {}
        # A card that is out of sight may be the one that the limit was meant for.
        most = capped(limit, declaration.per, self.cards) if self.cards.complete else limit
        room = max(total, _number(most))
        return {
            name: _like(like, room * _number(size) / total if total else room / len(requested))
            for name, size in requested.items()
        }


def _keys(annotation: str, own: list[str], active: Collection[str]) -> list[tuple[str, list[str], str]]:
    """The keys of a limit, each with the holders that it is for: each container by itself, or all that run now."""
    if not annotation or not own:
        return []
    if CONTAINER in annotation:
        return [(annotation.replace(CONTAINER, name), [name], f"container {name}") for name in own if name]
    return [(annotation, [name for name in own if name in active], "the pod")]


def _number(size: Measure) -> Fraction:
    return Fraction(size) if isinstance(size, int) else size.cards


def _like(example: Measure, number: Fraction) -> Measure:
    """A number as a size of the same kind; bytes are rounded up."""
    if isinstance(example, int):
        return -(-number.numerator // number.denominator)
    return replace(example, cards=number)
