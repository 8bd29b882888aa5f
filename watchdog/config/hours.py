"""The hours in which a rule is active: days, a span of the day, and a time zone."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

from watchdog.config.fields import FieldError, Kind, expect_text, quote
from watchdog.core.policy import DAY_MINUTES, DAYS, Hours

_EXAMPLE: Final = "Mon-Fri 08:00-18:00 Europe/Berlin"
_DAY: Final = f"(?:{'|'.join(DAYS)})"
_HOURS: Final = re.compile(
    rf"(?P<days>{_DAY}(?:-{_DAY})?(?:,{_DAY}(?:-{_DAY})?){{0,6}})"
    r" (?P<begin>[0-9]{2}:[0-9]{2})-(?P<end>[0-9]{2}:[0-9]{2}) (?P<zone>[A-Za-z0-9_+/-]{1,64})"
)


def hours() -> Kind[Hours]:
    """Days, a span of the day (over midnight where it ends before it begins) and a time zone."""
    words = f"days, hours and a time zone, like {quote(_EXAMPLE)}"

    def read(value: object) -> Hours:
        text = expect_text(value, _EXAMPLE)
        match = _HOURS.fullmatch(text)
        if match is None:
            raise FieldError(f"{quote(text)} is not {words}")
        begin, end = _minutes(match["begin"]), _minutes(match["end"])
        if begin % DAY_MINUTES == end % DAY_MINUTES and end - begin != DAY_MINUTES:
            raise FieldError(f"{quote(text)} ends when it begins; a whole day is 00:00-24:00")
        days = frozenset(_days(match["days"]))
        return Hours(text=text, days=days, begin=begin, end=end, offset_s=_offset_of(match["zone"]))

    return Kind(words=words, read=read, write=lambda value: value.text)


def _days(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin = DAYS.index(first)
        count = (DAYS.index(last or first) - begin) % len(DAYS) + 1
        yield from ((begin + number) % len(DAYS) for number in range(count))


def _minutes(text: str) -> int:
    minutes = int(text[:2]) * 60 + int(text[3:])
    if int(text[3:]) > 59 or minutes > DAY_MINUTES:
        raise FieldError(f"{text} is not a time of day; write 00:00 to 24:00")
    return minutes


def _offset_of(name: str) -> Callable[[float], int]:
    """How far ahead of UTC the clocks of a time zone are, by the system's time zone data or the package tzdata's."""
    import zoneinfo  # noqa: PLC0415 - for the few policies that have hours

    try:
        zone = zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        if not zoneinfo.available_timezones():
            raise FieldError(
                f"the time zone {quote(name)} can't be checked: there is no time zone data; install the package tzdata"
            ) from None
        raise FieldError(f'there is no time zone {quote(name)}; write it like "Europe/Berlin"') from None

    def offset_s(wall_s: float) -> int:
        offset = datetime.fromtimestamp(wall_s, zone).utcoffset()
        return 0 if offset is None else round(offset.total_seconds())

    return offset_s
