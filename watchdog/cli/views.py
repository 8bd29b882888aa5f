"""What the views of a node and of many nodes share: which accounts are shown, in which characters, and cells."""

import io
import re
from dataclasses import dataclass
from typing import Final, NamedTuple, TextIO

from watchdog.core.policy import Do
from watchdog.report.status import HourStatus
from watchdog.report.text import byte_cell, percent

VERDICTS: Final = ("over", "unknown", "misdeclared", "within", "undeclared")  # the most urgent first
# The blank in a span.
_SPAN: Final = re.compile(r"(?<=[0-9][dhm]) (?=[0-9])")


class Signs(NamedTuple):
    """The characters of bars, from left to right."""

    pods: str
    unattributed: str
    rest: str
    free: str
    # Marks 100%.
    limit: str
    # Means `at least`.
    least: str
    # Of sparklines, the levels from nothing to above the limit.
    levels: str


BLOCKS: Final = Signs("█", "▓", "▒", "░", "│", "≥", "▁▁▂▃▄▅▆▇█")
ASCII: Final = Signs("#", "=", "-", ".", "|", ">=", "012345678")


_SPARK: Final = 15  # cells of a sparkline
HOUR: Final = "HOUR"  # the title of a column of sparklines
BUSY: Final = "BUSY"  # that of a column of shares of the time
IDLE: Final = "IDLE"  # that of a column of times for which memory has been held idle
WARNED: Final = Do.WARN.value[0]


def spark(hour: object, signs: Signs) -> str:
    """The `hour` of an account or a GPU as a sparkline, a character for each four minutes; empty if it has none.

    An action's letter takes the place of the level, rather that of one that is no warning; `.` is unknown.
    """
    if not isinstance(hour, HourStatus):
        return ""
    size = max(len(hour.levels) // _SPARK, 1)
    parts = range(0, len(hour.levels), size)
    return "".join(_spark(hour.levels[at : at + size], hour.marks[at : at + size], signs) for at in parts)


def _spark(levels: str, marks: str, signs: Signs) -> str:
    letters = sorted(marks.replace(" ", ""), key=lambda letter: letter == WARNED)
    if letters:
        return letters[0]
    highest = max(levels)
    return "." if highest == " " else signs.levels[int(highest)]


def busy_cell(ratio: float | None) -> str:
    """A share of the time in a column: `35%`, or `-` if it is unknown."""
    return "-" if ratio is None else percent(ratio)


def prepare(out: TextIO) -> Signs:
    """Make a stream replace characters that its encoding lacks; return the bar characters that it can print."""
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="replace")
    encoding = (out.encoding or "").lower().replace("-", "")
    return BLOCKS if encoding == "utf8" else ASCII


def amount(used: int | None, least: int | None, signs: Signs) -> str:
    """Bytes: `7Gi`, `≥7Gi` if a part is unknown, or `unknown`."""
    return byte_cell(used) if used is not None or not least else f"{signs.least}{byte_cell(least)}"


def narrow(words: str) -> str:
    """A text with its spans in one word, such as `4m10s`, for a column."""
    return _SPAN.sub("", words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which accounts are shown."""

    sort: str = "percent"
    backwards: bool = False
    # It occurs in `namespace/name`, the rule or the verdict, ignoring case; empty: no such filter.
    text: str = ""
    # The number or UUID of a GPU that they use; empty: no such filter.
    gpu: str = ""
    over: bool = False
    # Only those that hold memory idle.
    idle: bool = False

    @property
    def is_filtered(self) -> bool:
        """Whether some may be left out."""
        return bool(self.text or self.gpu or self.over or self.idle)
