"""A pod that nothing is known of: why that may be, and which pods have a name much like it."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watchdog.explain.blind import out_of_sight
from watchdog.explain.found import LATELY, title
from watchdog.export.journal_errors import JournalError
from watchdog.export.journal_read import pods_in
from watchdog.export.phrases import inert
from watchdog.export.status_read import Part

_MOST_MISSES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked about a pod, and in vain.

    `status` is the daemon's (None: it was not asked, or could not be), `why_not` why it says nothing, `hints` what
    helps. `no_journal` says why the journal can't be read, `before` what its past has of the pod; they may be empty.
    """

    pod: str
    status: Part | None
    why_not: str
    hints: tuple[str, ...]
    journal: Path
    no_journal: str
    before: str


def say_unknown(asked: Asked) -> str:
    """Say that nothing is known of a pod, what was asked, what can be done, and which pods may have been meant."""
    pod, status, no_journal = asked.pod, asked.status, asked.no_journal
    known = {title(each) for each in status.parts("accounts")} if status is not None else set()
    if not no_journal:
        try:
            known |= set(pods_in(asked.journal))
        except JournalError as error:
            no_journal = str(error)
    lines = [f"nothing {'was decided about' if asked.before else 'is known of'} pod {inert(pod)}"]
    lines += [asked.why_not] if asked.why_not else []
    lines += asked.hints
    lines.append(no_journal or f"the journal {asked.journal} has nothing about it in the last {LATELY}")
    lines += [asked.before] if asked.before else []
    lines += _places(status) if status is not None else []
    misses = near_misses(pod, known)
    lines += [f"did you mean {' or '.join(inert(each) for each in misses)}?"] if misses else []
    return "\n  ".join(lines)


def _places(status: Part) -> list[str]:
    """Where a pod may be of which the daemon knows nothing."""
    if out_of_sight(status):
        places = [
            "so it may be here and use GPU memory all the same, or be on another node: ask again when that is over"
        ]
    else:
        places = ["it may be on another node, or it neither uses GPU memory nor declares any"]
    if any(use.text("reason") == "unknown_pod" for use in status.parts("unattributed")):
        places.append("processes of pods that the pod list does not have use GPU memory here: it may be one of them")
    return places


def near_misses(pod: str, known: Iterable[str]) -> list[str]:
    """Pods of the same name in another namespace, and then those with a name much like it."""
    _, _, name = pod.partition("/")
    candidates = sorted(known)
    same = [each for each in candidates if each.partition("/")[2] == name]
    alike = difflib.get_close_matches(pod, candidates, n=_MOST_MISSES)
    return list(dict.fromkeys([*same, *alike]))[:_MOST_MISSES]
