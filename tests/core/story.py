"""One pod, cycle after cycle, with one ledger."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tests.worlds import assessed, at, container, inputs, pod, snapshot, use
from watchdog.core.decide import decide
from watchdog.core.ledger import Ledger
from watchdog.core.model import Now, Snapshot
from watchdog.core.plan import Plan
from watchdog.core.policy import Policy


@dataclass
class Story:
    """Cycles over one pod that declares 4Gi, one after the other, the ledger going along; `tier` is a label of it."""

    under: Policy
    ledger: Ledger = field(default_factory=Ledger)
    declared: str = "4Gi"
    tier: str = ""

    def see(self, second: float, used: int | None, *, stale: bool = False, now: Now | None = None) -> Plan:
        """One cycle at a second, with this much used (None: unknown)."""
        seen = replace(snapshot([use(5, used)], second=second), at=now or at(second))
        return self._decide(seen, stale=stale)

    def miss(self, second: float) -> Plan:
        """One cycle in which the driver did not answer; the process is known to live."""
        return self._decide(snapshot([use(5, None)], second=second, blind=True))

    def run(self, seconds: Iterable[float], used: int | None) -> Plan:
        """A cycle at each second; returns the last plan."""
        plan = None
        for second in seconds:
            plan = self.see(second, used)
        assert plan is not None
        return plan

    def _decide(self, seen: Snapshot, *, stale: bool = False) -> Plan:
        pods = [pod("a", container(declared=self.declared), labels={"tier": self.tier})]
        plan = decide(
            assessed(seen, pods, self.under), self.ledger, seen.at, inputs(self.under, pods, pods_stale=stale)
        )
        self.ledger = plan.ledger
        return plan
