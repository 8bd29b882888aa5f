"""What the daemon may go by at a moment, as the oracle sees it: its input, and the truth behind that."""

from collections import Counter, deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from tests.soak.cluster import Tenant
from tests.soak.driver import Told
from tests.soak.policies import PolicyPlan
from tests.soak.truth import Fact, Key
from watchdog.core.model import Now, Process


@dataclass(slots=True)
class Reading:
    """The last reading and what it truly said, and the second look where there was one."""

    told: Told
    asked: Now
    facts: Mapping[Key, Fact]
    bright: bool
    second: Told | None = None
    only: frozenset[str] = frozenset()


@dataclass(slots=True)
class Standing:
    """The daemon's input of this moment. `life` counts daemons, `seen` what was met, `tail` what has just happened."""

    plan: PolicyPlan
    enforcing: bool = False
    stale: bool = True
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    answers: Mapping[int, Process] = field(default_factory=dict)
    recycled: AbstractSet[int] = frozenset()
    reading: Reading | None = None
    life: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=40))
