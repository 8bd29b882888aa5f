"""An Event for the owner of a pod, still to be written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

# Repetitions within this time belong to the same series, as in client-go (finishTime in
# k8s.io/client-go/tools/events/event_broadcaster.go).
SERIES_GAP_S: Final = 360.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent:
    """One occurrence, as an Event on a pod reports it; `at_s` is Unix time.

    `uid` is the one by which `kubectl describe` finds the pod's Events. Occurrences with equal `key`s form a series if
    they are at most `again_within_s` seconds apart. `once`: it is reported once in the pod's lifetime, and not repeated
    by a restarted daemon. `note` has at most 1 kB of UTF-8.
    """

    namespace: str
    pod: str
    uid: str
    reason: str
    action: str
    note: str
    at_s: float
    key: tuple[str, ...]
    is_normal: bool = False
    again_within_s: float = SERIES_GAP_S
    once: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
