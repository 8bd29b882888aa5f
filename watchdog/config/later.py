"""The settings that this version reads and checks but does not follow yet. While one is set, `run` only observes.

A version that learns to follow a setting deletes its row.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from watchdog.config.problems import Location, format_path


class Later(NamedTuple):
    """A setting: its place ("*" is every item of a list), which values are of a later version, and those in words."""

    place: tuple[str, ...]
    is_later: Callable[[Any], bool] = bool
    values: str = ""


LATER: Final[tuple[Later, ...]] = ()
WARNING: Final = "is read but not followed by this version; while it is set, `run` only observes"


def find_later(document: dict[str, Any]) -> tuple[str, ...]:
    """The paths of the settings of a valid document that this version does not follow."""
    return tuple(
        format_path(location)
        for setting in LATER
        for location, value in _values(document, setting.place, ())
        if setting.is_later(value)
    )


def _values(value: Any, place: tuple[str, ...], location: Location) -> Iterator[tuple[Location, Any]]:
    if not place:
        yield location, value
    elif place[0] == "*":
        for index, item in enumerate(value):
            yield from _values(item, place[1:], (*location, index))
    elif place[0] in value:
        yield from _values(value[place[0]], place[1:], (*location, place[0]))
