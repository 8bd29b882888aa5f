"""Card-hours: what memory was held for in a time, by owner, as a node's daemon says it and as nodes add up."""

import json
from collections.abc import Iterable
from typing import Annotated, Final

from msgspec import Meta, Struct, structs

from watchdog.core.utilization import CardSeconds, Spender
from watchdog.report.status import Moment, decoded, decoder_of, encode

HOUR_S: Final = 3600
# Of an answer, by what was held; those beyond it are added up by namespace. A week has some hundreds of owners.
MOST_OWNERS: Final = 2000
# Of the JSON, with the longest names that Kubernetes permits.
MOST_BYTES: Final = 2**21
Hours = Annotated[float, Meta(ge=0, le=1e9)]


class OwnerHours(Struct, frozen=True, kw_only=True):
    """The card-hours of an owner: a controller of pods, or a pod without one."""

    namespace: str
    # Empty: of all owners in the namespace together, or of those that are not named.
    kind: str = ""
    name: str = ""
    held: Hours = 0.0
    # Parts of it; the rest is unknown.
    used: Hours = 0.0
    idle: Hours = 0.0
    # Declared and not held; None: unknown.
    unused: Hours | None = 0.0

    def __add__(self, other: "OwnerHours") -> "OwnerHours":
        unused = None if self.unused is None or other.unused is None else self.unused + other.unused
        return structs.replace(
            self, held=self.held + other.held, used=self.used + other.used, idle=self.idle + other.idle, unused=unused
        )

    @property
    def unknown(self) -> float:
        """What was held while it was unknown whether it was used."""
        return max(self.held - self.used - self.idle, 0.0)


class NodeHours(Struct, frozen=True, kw_only=True):
    """The card-hours of a node: the answer of `/api/report`."""

    node: str
    # The beginning of the first hour that is in it.
    since: Moment
    until: Moment
    # The beginning of the first hour of which the journal has any; None: it has none.
    begins: Moment | None = None
    # Those that held most first, and how many there were.
    owners: tuple[OwnerHours, ...] = ()
    owners_in_all: Annotated[int, Meta(ge=0, le=10**9)] = 0


def owner_hours(spent: Iterable[tuple[Spender, CardSeconds]]) -> list[OwnerHours]:
    """Card-seconds as card-hours."""
    return [
        OwnerHours(
            namespace=namespace,
            kind=owner.kind,
            name=owner.name,
            held=_hours(parts.held),
            used=_hours(parts.computing),
            idle=_hours(parts.idle),
            unused=_hours(parts.unused),
        )
        for (namespace, owner), parts in spent
    ]


def _hours(seconds: float) -> float:
    return round(seconds / HOUR_S, 6)


def added_up(rows: Iterable[OwnerHours], *, by_namespace: bool = False) -> list[OwnerHours]:
    """The rows of the same owner, or of the same namespace, as one; those with the most idle first."""
    sums: dict[tuple[str, str, str], OwnerHours] = {}
    for each in rows:
        row = structs.replace(each, kind="", name="") if by_namespace else each
        key = row.namespace, row.kind, row.name
        sums[key] = sums[key] + row if key in sums else row
    return sorted(sums.values(), key=lambda row: (-row.idle, -row.held, row.namespace, row.kind, row.name))


def bounded(hours: NodeHours) -> NodeHours:
    """The same with a limited number of owners; the others are added up by namespace."""
    ordered = sorted(hours.owners, key=lambda row: -row.held)
    others = added_up(ordered[MOST_OWNERS:], by_namespace=True)
    return structs.replace(hours, owners=(*ordered[:MOST_OWNERS], *others[:MOST_OWNERS]))


def encode_hours(hours: NodeHours) -> bytes:
    """The JSON of `/api/report`."""
    return json.dumps(encode(hours), separators=(",", ":"), ensure_ascii=False).encode("utf-8", errors="replace")


_NODE_HOURS: Final = decoder_of(NodeHours)


def decode_hours(body: bytes) -> NodeHours:
    """The card-hours in a JSON document; StatusError names the first place that does not fit."""
    return decoded(body, _NODE_HOURS)
