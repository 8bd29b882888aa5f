"""What was done in the last day, and why."""

from typing import Final

from watchdog.core.plan import Result
from watchdog.export.page.html import items, name, section, sentence, tag, text
from watchdog.export.page.sight import Sight
from watchdog.report.recent import RecentDeed
from watchdog.report.text import clock_time, span

_WHOLE: Final = 5  # with their sentences; the others in a line each
_DONE: Final = {"warn": "warned", "kill": "killed", "evict": "evicted"}
_DOING: Final = {"warn": "warning", "kill": "kill", "evict": "eviction"}
_ENDS: Final = {
    Result.FAILED.value: "failed",
    Result.BLOCKED.value: "is blocked",
    Result.GONE.value: "was not needed any more",
    Result.INTERRUPTED.value: "was interrupted",
    Result.WITHDRAWN.value: "was withdrawn",
}


def lately(sight: Sight) -> str:
    """The section of what was done."""
    if not sight.recent:
        return section("lately", "Recent actions", tag("p", "Nothing in the last day."))
    whole = items((_whole(deed, sight.now_s) for deed in sight.recent[:_WHOLE]), "deeds")
    others = items((_line(deed, sight.now_s) for deed in sight.recent[_WHOLE:]), "deeds")
    more = tag("p", "More, and what was withheld: <code>gpu-watchdog history</code>.", "later")
    return section("lately", "Recent actions", whole + others + more)


def _line(deed: RecentDeed, now_s: float) -> str:
    pod = name(f"{deed.namespace}/{deed.pod}")
    place = f" <small>container {name(deed.container)}</small>" if deed.container else ""
    when = f"{clock_time(deed.wall_s, now_s)}, {span(now_s - deed.wall_s)} ago"
    css = "bad" if deed.is_deed else "watch"
    return f"<b>{pod}</b>{place} {tag('b', text(became(deed)), css)} <small>{when}</small>"


def _whole(deed: RecentDeed, now_s: float) -> str:
    outcome = tag("p", sentence(deed.outcome)) if deed.outcome else ""
    return _line(deed, now_s) + tag("p", sentence(deed.why)) + outcome


def became(deed: RecentDeed) -> str:
    """What became of it: `was killed`, `kill is under way`, `would have been killed`."""
    done, doing = _DONE.get(deed.do, "acted on"), _DOING.get(deed.do, "deed")
    if deed.result is None:
        return f"{doing} is under way"
    if deed.result == Result.OBSERVED.value:
        return f"would have been {done}"
    return f"was {done}" if deed.result == Result.DONE.value else f"{doing} {_ENDS.get(deed.result, 'has ended')}"
