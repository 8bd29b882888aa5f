"""What the daemon may go by at a moment, as the oracle sees it: its input, and the truth behind that."""

import math
from collections import Counter, deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from tests.soak.claims import Given
from tests.soak.cluster import Tenant
from tests.soak.driver import TrueReading
from tests.soak.truth import Fact, Key, hides_clients, is_needed
from watchdog.core.model import Now, Process
from watchdog.core.policy import Policy

HELD_S: Final = 55.0  # of the 60 s, since an earlier change may not have been loaded yet


@dataclass(slots=True)
class Reading:
    """The last reading and what it truly said, and the last look where there was one.

    `answers` are what /proc said for the reading; the last look may have asked again.
    """

    truth: TrueReading
    answers: Mapping[int, Process]
    asked: Now
    facts: Mapping[Key, Fact]
    bright: bool
    second: TrueReading | None = None
    looked_s: float = 0.0  # boot time at which the last look was asked for
    only: frozenset[str] = frozenset()


@dataclass(slots=True)
class Standing:
    """The daemon's input of this moment. `life` counts daemons, `seen` what was met, `tail` what has just happened.

    `waiting_s` is since when a policy that is being written was to be seen, `is_half` says that it started by one.
    `overdue` are the containers (pod, ID) that the list should have by now. `opened_s` is when the daemon got to read
    its journal: it waits then for what an earlier one has left, once and as long as for any release. `given` is what it
    knows of claims, by pod and name.
    """

    policy: Policy
    enforcing: bool = False
    stale: bool = True
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    answers: Mapping[int, Process] = field(default_factory=dict)
    recycled: AbstractSet[int] = frozenset()
    reading: Reading | None = None
    waiting_s: float | None = None
    opened_s: float = -math.inf
    is_half: bool = False
    life: int = 0
    labelled: bool = True
    given: Mapping[tuple[str, str], Given] = field(default_factory=dict)
    synced: Now | None = None
    overdue: frozenset[tuple[str, str]] = frozenset()
    seen: Counter[str] = field(default_factory=Counter)
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=40))

    def waits(self, now: Now) -> bool:
        """Whether no first signal and no SIGKILL may be sent, because the policy is being written."""
        return self.is_half or (self.waiting_s is not None and now.boottime_s - self.waiting_s < HELD_S)

    def is_withheld_for_mps(self, fact: Fact) -> bool:
        """Whether the end of any process of the pod may be that of an MPS server, or of a client, that others need."""
        reading = self.reading
        if reading is None:
            return False
        looks = [(reading.truth, reading.answers)]
        looks += [(reading.second, self.answers)] if reading.second is not None else []
        ends_more = any(step.do.enforces and step.scope != "process" for step in fact.rule.steps)
        if (
            ends_more
            and not self.policy.safety.signal_mps_clients
            and any(hides_clients(truth, answers, self.tenants) for truth, answers in looks)
        ):
            return True
        return any(is_needed(*look, fact.key[0], self.tenants, self.policy) for look in looks)
