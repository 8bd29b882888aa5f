"""A pod that nothing is known of: why that may be, and which pods have a name much like it."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watchdog.explain.found import LATELY, NOBODY_ACTS, title
from watchdog.export.journal_errors import JournalError
from watchdog.export.journal_read import pods_in
from watchdog.export.phrases import inert
from watchdog.export.status_read import Part

_MOST_MISSES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked about a pod, and in vain.

    `status` is the daemon's (None: it was not asked, or is `silent`), `why_not` why it says nothing. `no_journal` says
    why the journal can't be read, `before` what its past has of the pod; both may be empty.
    """

    pod: str
    status: Part | None
    silent: bool
    why_not: str
    journal: Path
    no_journal: str
    before: str


def say_unknown(asked: Asked) -> str:
    """Say that nothing is known of a pod, what was asked, what can be done, and which pods may have been meant."""
    pod, status, why_not, no_journal = asked.pod, asked.status, asked.why_not, asked.no_journal
    known = {title(each) for each in status.parts("accounts")} if status is not None else set()
    if not no_journal:
        try:
            known |= set(pods_in(asked.journal))
        except JournalError as error:
            no_journal = str(error)
    lines = [f"nothing {'was decided about' if asked.before else 'is known of'} pod {inert(pod)}"]
    lines += [why_not] if why_not else []
    lines.append(no_journal or f"the journal {asked.journal} has nothing about it in the last {LATELY}")
    lines += [asked.before] if asked.before else []
    lines += [NOBODY_ACTS] if asked.silent else []
    if status is not None:
        lines.append("it may be on another node, or it neither uses GPU memory nor declares any")
        if any(use.text("reason") == "unknown_pod" for use in status.parts("unattributed")):
            lines.append("processes of pods that the pod list does not have use GPU memory here: it may be one of them")
    misses = near_misses(pod, known)
    lines += [f"did you mean {' or '.join(inert(each) for each in misses)}?"] if misses else []
    return "\n  ".join(lines)


def near_misses(pod: str, known: Iterable[str]) -> list[str]:
    """Pods of the same name in another namespace, and then those with a name much like it."""
    _, _, name = pod.partition("/")
    candidates = sorted(known)
    same = [each for each in candidates if each.partition("/")[2] == name]
    alike = difflib.get_close_matches(pod, candidates, n=_MOST_MISSES)
    return list(dict.fromkeys([*same, *alike]))[:_MOST_MISSES]
