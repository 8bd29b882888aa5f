"""The sparkline of an account or a GPU on a page: the strokes of a small SVG, and the same in words."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from watchdog.core.policy import Do
from watchdog.report.hour import ABOVE
from watchdog.report.status import AccountStatus, HourStatus
from watchdog.report.text import count

# In units of the drawing: from one level to the next, and the height of the tallest, below the marks.
STEP: Final = 3
TALLEST: Final = 2 * ABOVE
HEIGHT: Final = TALLEST + 5
_MINUTES: Final = 60
_ACTIONS: Final = {do.value[0]: do for do in Do}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """A sparkline: the `d` of a path for each kind of stroke that it has."""

    width: int
    height: int
    # By CSS class: what was within the limit and above it, warnings, and other actions.
    paths: tuple[tuple[str, str], ...]
    # What it shows, for who does not see it.
    label: str


def sparkline(hour: object, limit: str) -> Sparkline | None:
    """The sparkline of an `hour` of the status against a limit by its name (empty: there is none); None without any."""
    if not isinstance(hour, HourStatus) or not hour.levels.strip():
        return None
    levels = [(place, int(level)) for place, level in enumerate(hour.levels) if level != " "]
    marks = [(place, _ACTIONS.get(letter)) for place, letter in enumerate(hour.marks) if letter != " "]
    paths = (
        ("within", _strokes(levels, lambda level: level < ABOVE)),
        ("above", _strokes(levels, lambda level: level >= ABOVE)),
        ("warned", _marks(place for place, do in marks if do is Do.WARN)),
        ("acted", _marks(place for place, do in marks if do is not Do.WARN)),
    )
    return Sparkline(
        width=STEP * len(hour.levels),
        height=HEIGHT,
        paths=tuple((css, strokes) for css, strokes in paths if strokes),
        label="; ".join(filter(None, (_against(hour, limit), _unknown(hour), _done(do for _, do in marks)))),
    )


def account_hour(account: AccountStatus) -> Sparkline | None:
    """The sparkline of an account; None if it has none."""
    return sparkline(account.hour, "its limit" if account.allowed is not None else "")


def _strokes(levels: Iterable[tuple[int, int]], is_wanted: Callable[[int], bool]) -> str:
    """A stroke upwards for each level; of nothing a short one, since a gap has none."""
    return "".join(
        f"M{STEP * place + STEP / 2:g} {HEIGHT}v-{2 * level or 1}" for place, level in levels if is_wanted(level)
    )


def _marks(places: Iterable[int]) -> str:
    """A triangle above each of these places, pointing down."""
    return "".join(f"M{STEP * place + STEP / 2:g} 4l-2.5-4h5z" for place in places)


def _against(hour: HourStatus, limit: str) -> str:
    above = sum(level == str(ABOVE) for level in hour.levels)
    minutes = above * _MINUTES // len(hour.levels)
    if not limit:
        return "use in the last hour"
    return f"above {limit} in {minutes} of the last {_MINUTES} minutes" if above else f"within {limit} in the last hour"


def _unknown(hour: HourStatus) -> str:
    unknown = hour.levels.lstrip().count(" ") * _MINUTES // len(hour.levels)
    return f"unknown in {count(unknown, 'minute')}" if unknown else ""


def _done(actions: Iterable[Do | None]) -> str:
    # Not how many: each stands for all that came within its two minutes.
    return ", ".join(dict.fromkeys(do.verb.done if do is not None else "acted on" for do in actions))
