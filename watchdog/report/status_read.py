"""Reading the status of a daemon back: what is missing is None, since another version may have written it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from watchdog.core.errors import WatchdogError
from watchdog.core.units import LARGEST, parse_percent
from watchdog.report.text import inert

_MOST_NAMED: Final = 3
_LONGEST_S: Final = 1e9
# Spans are added to moments, and the calendar of Python ends with the year 9999.
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)


class StatusError(WatchdogError):
    """The status of a daemon is not as a gpu-watchdog writes it; the text names the place."""


def is_of(entry: "Part", account: "Part") -> bool:
    """Whether an entry of the plan is about this account."""
    own = entry.part("account")
    return (
        own is not None
        and entry.text("uid") == account.text("uid")
        and own.text("container") == account.text("container")
        and own.text("gpu") == account.text("gpu")
    )


def hangs_since(status: "Part") -> float | None:
    """Since when no cycle has ended (Unix time), so that all else is as old as that; None: the loop turns."""
    health = status.part("health")
    return health.moment("hangs_since") if health is not None else None


@dataclass(frozen=True, slots=True)
class Part:
    """A table of the status, with the path that leads to it. Each reader gives None for what is missing or null.

    What is not as it should be is an error. Where there are `doubts` it is noted there instead, once, and counts as
    missing: one value, which a tenant may have written, must not take the view of everything else.
    """

    values: Mapping[str, Any]
    path: str = ""
    doubts: list[str] | None = None

    def text(self, key: str) -> str | None:
        """A text."""
        value = self.values.get(key)
        if value is None or isinstance(value, str):
            return value
        self._doubt(key, "a text")
        return None

    def whole(self, key: str) -> int | None:
        """A whole number, like an amount of bytes."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > LARGEST:
            self._doubt(key, "a whole number")
            return None
        return value

    def number(self, key: str) -> float | None:
        """A span of time in seconds."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LONGEST_S:
            self._doubt(key, "a number of seconds")
            return None
        return value

    def flag(self, key: str) -> bool:
        """True or false; false where it is missing."""
        value = self.values.get(key, False)
        if isinstance(value, bool):
            return value
        self._doubt(key, "true or false")
        return False

    def moment(self, key: str) -> float | None:
        """A time, as Unix time."""
        text = self.text(key)
        if text is None:
            return None
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self._doubt(key, "a time as RFC 3339 writes it")
            return None
        if moment.tzinfo is None or not _EARLIEST < moment < _LATEST:
            self._doubt(key, "a time as RFC 3339 writes it")
            return None
        return moment.timestamp()

    def percent(self, key: str) -> float | None:
        """A share of a whole, written as a percentage."""
        text = self.text(key)
        try:
            return float(parse_percent(text)) if text is not None else None
        except ValueError:
            self._doubt(key, "a percentage")
            return None

    def part(self, key: str) -> "Part | None":
        """A table within this one."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, dict):
            return self._within(value, key)
        self._doubt(key, "a table")
        return None

    def parts(self, key: str) -> "tuple[Part, ...]":
        """Tables in a list; none where it is missing."""
        found = []
        for number, value in enumerate(self._list(key)):
            place = f"{key}[{number}]"
            if isinstance(value, dict):
                found.append(self._within(value, place))
            else:
                self._doubt(place, "a table")
        return tuple(found)

    def texts(self, key: str) -> tuple[str, ...]:
        """Texts in a list; none where it is missing."""
        found = [each for each in self._list(key) if isinstance(each, str)]
        if len(found) < len(self._list(key)):
            self._doubt(key, "a list of texts")
        return tuple(found)

    def _list(self, key: str) -> list[Any]:
        value = self.values.get(key, [])
        if isinstance(value, list):
            return value
        if not self.path:  # not one value among others: this is the status of something else
            raise StatusError(f"{key} of its status is not a list")
        self._doubt(key, "a list")
        return []

    def _within(self, values: Mapping[str, Any], key: str) -> "Part":
        return Part(values, self._at(key), self.doubts)

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _doubt(self, key: str, wanted: str) -> None:
        said = f"{self._at(key)} of its status is not {wanted}"
        if self.doubts is None:
            raise StatusError(said)
        if said not in self.doubts:
            self.doubts.append(said)


def doubts_of(status: Part) -> str:
    """Say which values could not be read, the first few by their place; empty where all could."""
    doubts = status.doubts or []
    more = f", and {len(doubts) - _MOST_NAMED} more" if len(doubts) > _MOST_NAMED else ""
    said = "; ".join(inert(each) for each in doubts[:_MOST_NAMED])
    return f"Some of what the daemon says can't be read and counts as unknown: {said}{more}" if doubts else ""
