"""Which gaps have begun and which have ended: told once each, and never without end."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from watchdog.core.model import Gap, GapReason, Now
from watchdog.core.plan import CycleReport
from watchdog.export.phrases import elapsed_s, inert, span
from watchdog.export.sums import all_gaps

# A gap that comes and goes with every pass is one gap: its end is told once it has stayed away this long.
_GONE_S: Final = 10.0
# Gaps about processes carry PIDs, so a node with many short-lived ones has a new gap at every pass, and a driver may
# have one each minute: of one reason so many beginnings are told at once, and then one in two minutes, so that with
# their ends there is a line a minute. The counters have them all.
_BURST: Final = 10.0
_EVERY_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GapChange:
    """The beginning or the end of a gap, and the sentence that tells it."""

    gap: Gap
    began: bool
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    gap: Gap
    first: Now
    last: Now


class GapNews:
    """Follows the gaps from report to report."""

    def __init__(self) -> None:
        self._seen: dict[tuple[GapReason, str], _Seen] = {}
        self._left: dict[GapReason, tuple[float, Now]] = {}

    def since(self, report: CycleReport) -> Iterator[GapChange]:
        """What has changed with this report."""
        for gap in all_gaps(report):
            key = (gap.reason, gap.what)
            seen = self._seen.get(key)
            is_explained = seen is not None and _has_remedy(gap) and not _has_remedy(seen.gap)
            if seen is None and not self._may_tell(gap.reason, report.at):
                continue
            if seen is None or is_explained:
                yield GapChange(gap=gap, began=True, sentence=f"{inert(gap.what)}: {inert(gap.why, 600)}")
            told = seen.gap if seen is not None and not is_explained else gap
            self._seen[key] = _Seen(gap=told, first=seen.first if seen else report.at, last=report.at)
        yield from self._ended(report.at)

    def _ended(self, now: Now) -> Iterator[GapChange]:
        for key, seen in list(self._seen.items()):
            if elapsed_s(seen.last, now) >= _GONE_S:
                del self._seen[key]
                lasted = span(elapsed_s(seen.first, seen.last))
                sentence = f"{inert(seen.gap.what)}: known again; it was missing for {lasted}."
                yield GapChange(gap=seen.gap, began=False, sentence=sentence)

    def _may_tell(self, reason: GapReason, now: Now) -> bool:
        """Whether one more beginning of this reason may be told now, which then counts."""
        left, at = self._left.get(reason, (_BURST, now))
        left = min(left + elapsed_s(at, now) / _EVERY_S, _BURST)
        may = left >= 1.0
        self._left[reason] = (left - 1.0 if may else left, now)
        return may


def _has_remedy(gap: Gap) -> bool:
    """Whether it is known what helps; a first answer can be long in coming, and then it is told once more."""
    return "; " in gap.why
