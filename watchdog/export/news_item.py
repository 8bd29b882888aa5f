"""What an occurrence is: its name in the log and in the journal, and all that goes with it."""

from dataclasses import dataclass
from enum import StrEnum

from watchdog.core.assessment import Assessment
from watchdog.core.model import Now
from watchdog.core.plan import Outcome, PlanEntry


class Event(StrEnum):
    """The name of an occurrence, in the log and in the journal."""

    WARNED = "warned"
    KILL_BEGUN = "kill_begun"
    KILL_ENDED = "kill_ended"
    EXPLAINED = "explained"
    RELEASED = "released"
    EVICT_BEGUN = "evict_begun"
    EVICT_BLOCKED = "evict_blocked"
    EVICT_DELAYED = "evict_delayed"
    EVICT_ENDED = "evict_ended"
    WOULD_ACT = "would_act"
    WITHHELD = "withheld"
    BREAKER_OPENED = "breaker_opened"
    BREAKER_CLOSED = "breaker_closed"
    JOURNAL_RESTORED = "journal_restored"
    BRAKES_PRESUMED = "brakes_presumed"
    MISDECLARED = "misdeclared"
    GAP_BEGAN = "gap_began"
    GAP_ENDED = "gap_ended"
    PODS_STALE = "pods_stale"
    PODS_FRESH = "pods_fresh"
    POLICY_LOADED = "policy_loaded"
    POLICY_REFUSED = "policy_refused"
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    STARTED = "started"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewsItem:
    """One occurrence, with the sentence that tells it and whatever of the report it is about.

    `detail` is the brake, the reason of a suspension or gap, or the SHA-256 of a policy; `gpu` is of a gap.
    """

    event: Event
    at: Now
    sentence: str
    assessment: Assessment | None = None
    entry: PlanEntry | None = None
    outcome: Outcome | None = None
    detail: str = ""
    gpu: str = ""
