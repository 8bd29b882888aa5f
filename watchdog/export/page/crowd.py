"""Who is over, and what was done last, in a sentence or two."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.plan import Result
from watchdog.export.page.lately import became
from watchdog.export.page.sight import Sight
from watchdog.export.page.standing import Standing
from watchdog.report.recent import is_action
from watchdog.report.text import count, inert, span

_LONGEST_NAME: Final = 63
_FRESH_S: Final = 900.0  # so long a kill stands in the first sentence


def crowd(told: Sequence[Standing], sight: Sight) -> str:
    """Who is over, the most urgent by name, with what comes next; that nobody is."""
    if not told:
        return _calm(sight.report.assessments if sight.report is not None else (), is_dark=bool(sight.unlisted))
    pods: dict[str, str] = {}
    for standing in told:
        gravest = standing.gravest
        short = gravest.short if gravest is not None else "nothing follows"
        pods.setdefault(inert(standing.assessment.pod.title, _LONGEST_NAME), short)
    # There are marks below what an account may use, too: of warnings, and of steps while a card is short.
    are_over = all(each.assessment.verdict is Verdict.OVER for each in told)
    first, short = next(iter(pods.items()))
    if len(pods) == 1:
        return f"1 pod {'over its limit' if are_over else 'above a mark'}: {first}; {short}."
    return f"{len(pods)} pods {'over their limits' if are_over else 'above a mark'}, first {first}: {short}."


def _calm(assessments: Sequence[Assessment], *, is_dark: bool) -> str:
    unknown = sum(each.verdict in (Verdict.UNKNOWN, Verdict.MISDECLARED) for each in assessments)
    if unknown:
        return f"Nobody is known to be over; of {count(unknown, 'account')} it can't be said."
    if is_dark:
        return "Nobody is known to be over." if assessments else "No pod declares GPU memory or is known to use it."
    return "Nobody is over." if assessments else "No pod uses GPU memory or declares it."


def lately(told: Iterable[Standing], sight: Sight) -> Iterator[str]:
    """The last kill or eviction, as long as it is news and its pod is not told of already."""
    named = {each.assessment.account.uid for each in told}
    fresh = [each for each in sight.recent if is_action(each) and sight.now_s - (each.at or 0.0) < _FRESH_S]
    for action in [each for each in fresh if each.uid not in named][:1]:
        pod = inert(f"{action.namespace}/{action.pod}", _LONGEST_NAME)
        more = f" ({len(fresh)} in the last 15 minutes)" if len(fresh) > 1 else ""
        ago = f"{span(sight.now_s - (action.at or 0.0))} ago{more}"
        is_done = action.result == Result.DONE.value
        yield f"{pod} {became(action)} {ago}." if is_done else f"{pod}: {became(action)}, begun {ago}."
