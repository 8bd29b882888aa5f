"""What was done in the last day, and why."""

from typing import Final

from watchdog.core.plan import Result
from watchdog.export.page.html import items, name, section, sentence, tag, text
from watchdog.export.page.sight import Sight
from watchdog.report.recent import is_action
from watchdog.report.status import RecentStatus
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
    whole = items((_whole(action, sight.now_s) for action in sight.recent[:_WHOLE]), "deeds")
    others = items((_line(action, sight.now_s) for action in sight.recent[_WHOLE:]), "deeds")
    more = tag("p", "More, and what was withheld: <code>gpu-watchdog history</code>.", "later")
    return section("lately", "Recent actions", whole + others + more)


def _line(action: RecentStatus, now_s: float) -> str:
    pod = name(f"{action.namespace}/{action.pod}")
    place = f" <small>container {name(action.container)}</small>" if action.container else ""
    when = f"{clock_time((action.at or 0.0), now_s)}, {span(now_s - (action.at or 0.0))} ago"
    css = "bad" if is_action(action) else "watch"
    return f"<b>{pod}</b>{place} {tag('b', text(became(action)), css)} <small>{when}</small>"


def _whole(action: RecentStatus, now_s: float) -> str:
    outcome = tag("p", sentence(action.outcome)) if action.outcome else ""
    return _line(action, now_s) + tag("p", sentence(action.why)) + outcome


def became(action: RecentStatus) -> str:
    """What became of it: `was killed`, `kill is in progress`, `would have been killed`."""
    done, doing = _DONE.get(action.do, "acted on"), _DOING.get(action.do, "deed")
    if action.result is None:
        return f"{doing} is under way"
    if action.result == Result.OBSERVED.value:
        return f"would have been {done}"
    return f"was {done}" if action.result == Result.DONE.value else f"{doing} {_ENDS.get(action.result, 'has ended')}"
