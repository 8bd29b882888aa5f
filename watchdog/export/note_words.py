"""What all notes are made of: the verbs of a step, its rule and mark, and how a note is made to fit."""

from collections.abc import Callable
from typing import Final, NamedTuple

from watchdog.core.plan import PlanEntry
from watchdog.core.policy import Do
from watchdog.core.units import format_duration
from watchdog.export.clauses import mark, victims
from watchdog.export.phrases import LONGEST_NAME, clip, inert

# The API server refuses an Event whose note is longer (k8s.io/kubernetes pkg/apis/core/validation/events.go).
LONGEST_NOTE: Final = 1024


class Verb(NamedTuple):
    """A verb as sentences need it."""

    base: str
    doing: str
    done: str


VERBS: Final = {
    Do.WARN: Verb("warn", "warning", "warned"),
    Do.KILL: Verb("kill", "killing", "killed"),
    Do.EVICT: Verb("evict", "evicting", "evicted"),
}


def acted(verb: str, entry: PlanEntry, processes: int | None, limit: int) -> str:
    """A verb with what it is done to."""
    if entry.do is Do.KILL:
        return f"{verb} {victims(entry, processes, limit)}"
    grace = format_duration(entry.definition.grace_s)
    return f"{verb} the pod with a grace period of {grace}" if entry.do is Do.EVICT else verb


def by(entry: PlanEntry, limit: int) -> str:
    """By which rule and mark, in brackets."""
    return f" (rule {inert(entry.rule.name, limit)}, {mark(entry)})"


def fit(write: Callable[[int], str], size: int = LONGEST_NOTE) -> str:
    """Write with names as long as they are, or shorter where it would not fit the note of an Event, or `size` bytes."""
    for limit in (LONGEST_NAME, 63):
        text = write(limit)
        if len(text.encode("utf-8", errors="replace")) <= size:
            return text
    return clip(write(24), size)
