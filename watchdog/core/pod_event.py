"""What is to be told to the owner of a pod: an Event that is still to be written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

# What is told again so soon belongs to the same series, as client-go has it (finishTime in
# k8s.io/client-go/tools/events/event_broadcaster.go).
SERIES_GAP_S: Final = 360.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent:
    """One occurrence, as an Event on a pod tells it; `at_s` is Unix time.

    `uid` is the one by which `kubectl describe` looks for the pod's Events. Equal `key`s are the same thing again: a
    series, if not more than `again_within_s` seconds have passed since the last time. `once` says that it is told once
    in the pod's life, so that a daemon that starts again does not tell it again. `note` has at most 1 kB of UTF-8.
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
