"""What the journal's past had of a pod when it ended: for a pod of which nothing was ever decided."""

from pathlib import Path
from typing import Final

from watchdog.core.units import format_bytes
from watchdog.export.journal_errors import JournalError
from watchdog.export.journal_read import reading
from watchdog.export.phrases import clock_time, inert
from watchdog.past.read import spans
from watchdog.past.scene import Scene

_HAS_PAST: Final = "SELECT count(*) FROM sqlite_schema WHERE name = 'past_span'"
_LAST: Final = "SELECT max(until_wall_s) FROM past_span"


def last_seen(journal: Path, pod: str, now_s: float) -> str:
    """What a pod (`namespace/name`) used at the last recorded pass, as a clause; empty where that is not known."""
    try:
        last_s, scene = _last_scene(journal)
    except JournalError:
        return ""
    for known in scene.pods.values():
        if known.title == pod:
            amounts = [use.used for use in scene.uses_of(known.uid)]
            least = "at least " if None in amounts else ""
            used = f"{least}{format_bytes(sum(amount or 0 for amount in amounts))} of GPU memory"
            return f"when the daemon last recorded the node, at {clock_time(last_s, now_s)}, {inert(pod)} used {used}"
    return ""


def _last_scene(journal: Path) -> tuple[float, Scene]:
    """The node as it stood when the record ends; JournalError where there is none."""
    with reading(journal) as connection:
        has_past = connection.execute(_HAS_PAST).fetchone()[0]
        last_s = connection.execute(_LAST).fetchone()[0] if has_past else None
    if last_s is None:
        raise JournalError(f"journal {journal} holds no past")
    scene = Scene()
    for span in spans(journal, last_s):
        for look in span.looks:
            scene = look.scene
    return last_s, scene
