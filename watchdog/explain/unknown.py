"""A pod that nothing is known of: why that may be, and which pods have a name much like it."""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from watchdog.explain.found import LATELY, title
from watchdog.export.journal_errors import JournalError
from watchdog.export.journal_read import pods_in
from watchdog.export.phrases import inert
from watchdog.export.status_read import Part

_MOST_MISSES: Final = 3


def say_unknown(pod: str, status: Part | None, why_not: str, journal: Path, no_journal: str) -> str:
    """Say that nothing is known of a pod, what was asked, and which pods may have been meant.

    `status` is the daemon's (None: it was not asked, or did not answer), `no_journal` why the journal can't be read.
    """
    known = {title(each) for each in status.parts("accounts")} if status is not None else set()
    if not no_journal:
        try:
            known |= set(pods_in(journal))
        except JournalError as error:
            no_journal = str(error)
    lines = [f"nothing is known of pod {inert(pod)}"]
    lines += [why_not] if why_not else []
    lines.append(no_journal or f"the journal {journal} has nothing about it in the last {LATELY}")
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
