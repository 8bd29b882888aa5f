"""The hours in which a rule is active: days, a span of the day, and a time zone."""

import re
from typing import Final

from watchdog.config.fields import FieldError, Kind, expect_text, quote

_DAY: Final = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_HOURS: Final = re.compile(
    rf"{_DAY}(?:-{_DAY})?(?:,{_DAY}(?:-{_DAY})?){{0,6}}"
    r" (?P<begin>[0-9]{2}:[0-9]{2})-(?P<end>[0-9]{2}:[0-9]{2}) (?P<zone>[A-Za-z0-9_+/-]{1,64})"
)
_WHOLE_DAY: Final = 24 * 60


def hours() -> Kind[str]:
    """Days, a span of the day (over midnight where it ends before it begins) and a time zone, kept as written."""
    words = 'days, hours and a time zone, like "Mon-Fri 08:00-18:00 Europe/Berlin"'

    def read(value: object) -> str:
        text = expect_text(value, "Mon-Fri 08:00-18:00 Europe/Berlin")
        match = _HOURS.fullmatch(text)
        if match is None:
            raise FieldError(f"{quote(text)} is not {words}")
        begin, end = _minutes(match["begin"]), _minutes(match["end"])
        if begin % _WHOLE_DAY == end % _WHOLE_DAY and end - begin != _WHOLE_DAY:
            raise FieldError(f"{quote(text)} ends when it begins; a whole day is 00:00-24:00")
        _check_zone(match["zone"])
        return text

    return Kind(words=words, read=read, write=str)


def _minutes(text: str) -> int:
    minutes = int(text[:2]) * 60 + int(text[3:])
    if int(text[3:]) > 59 or minutes > _WHOLE_DAY:
        raise FieldError(f"{text} is not a time of day; write 00:00 to 24:00")
    return minutes


def _check_zone(zone: str) -> None:
    import zoneinfo  # noqa: PLC0415 - for the few policies that have hours

    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        if not zoneinfo.available_timezones():
            raise FieldError(
                f"the time zone {quote(zone)} can't be checked: this machine has no time zone data; install tzdata"
            ) from None
        raise FieldError(f'there is no time zone {quote(zone)}; write it like "Europe/Berlin"') from None
