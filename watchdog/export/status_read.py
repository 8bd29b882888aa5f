"""Reading the status of a daemon back: what is missing is None, since another version may have written it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from watchdog.core.errors import WatchdogError

_LARGEST: Final = 2**63 - 1
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
    """Since when no pass has ended (Unix time), so that all else is as old as that; None: the loop turns."""
    health = status.part("health")
    return health.moment("hangs_since") if health is not None else None


@dataclass(frozen=True, slots=True)
class Part:
    """A table of the status, with the path that leads to it. Each reader gives None for what is missing or null."""

    values: Mapping[str, Any]
    path: str = ""

    def text(self, key: str) -> str | None:
        """A text."""
        value = self.values.get(key)
        return value if value is None or isinstance(value, str) else self._refuse(key, "a text")

    def whole(self, key: str) -> int | None:
        """A whole number, like an amount of bytes."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
            self._refuse(key, "a whole number")
        return value

    def number(self, key: str) -> float | None:
        """A span of time in seconds."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LONGEST_S:
            self._refuse(key, "a number of seconds")
        return value

    def flag(self, key: str) -> bool:
        """True or false; false where it is missing."""
        value = self.values.get(key, False)
        return value if isinstance(value, bool) else self._refuse(key, "true or false")

    def moment(self, key: str) -> float | None:
        """A time, as Unix time."""
        text = self.text(key)
        if text is None:
            return None
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self._refuse(key, "a time as RFC 3339 writes it")
        if moment.tzinfo is None or not _EARLIEST < moment < _LATEST:
            self._refuse(key, "a time as RFC 3339 writes it")
        return moment.timestamp()

    def part(self, key: str) -> "Part | None":
        """A table within this one."""
        value = self.values.get(key)
        if value is None:
            return None
        return Part(value, self._at(key)) if isinstance(value, dict) else self._refuse(key, "a table")

    def parts(self, key: str) -> "tuple[Part, ...]":
        """Tables in a list; none where it is missing."""
        found = []
        for number, value in enumerate(self._list(key)):
            if not isinstance(value, dict):
                self._refuse(f"{key}[{number}]", "a table")
            found.append(Part(value, f"{self._at(key)}[{number}]"))
        return tuple(found)

    def texts(self, key: str) -> tuple[str, ...]:
        """Texts in a list; none where it is missing."""
        found = self._list(key)
        return tuple(found) if all(isinstance(each, str) for each in found) else self._refuse(key, "a list of texts")

    def _list(self, key: str) -> list[Any]:
        value = self.values.get(key, [])
        return value if isinstance(value, list) else self._refuse(key, "a list")

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _refuse(self, key: str, wanted: str) -> NoReturn:
        raise StatusError(f"{self._at(key)} of its status is not {wanted}")
