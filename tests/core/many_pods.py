"""Many pods on one node, cycle after cycle, with one ledger."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tests.worlds import Gi, assessed, at, container, inputs, owner, pod, policy, process, rule, snapshot, step, use
from watchdog.core.decide import decide
from watchdog.core.ledger import Ledger, UnderWay
from watchdog.core.model import Gpu, Pod
from watchdog.core.plan import Plan, PlanEntry
from watchdog.core.policy import Brakes, Policy

AT_ONCE = rule(step())


def under(brakes: Brakes, *rules: object, **more: object) -> Policy:
    """A policy with these brakes and, unless others are given, a rule that kills at once."""
    return policy(*(rules or (AT_ONCE,)), brakes=brakes, **more)  # type: ignore[arg-type]


def over_pod(uid: str, workload: str = "", namespace: str = "ns", **more: object) -> Pod:
    """A pod that declares 1Gi, of a Deployment if one is named."""
    of = owner("Deployment", workload) if workload else None
    return pod(uid, container(declared="1Gi", of=uid), namespace=namespace, owner=of, **more)


@dataclass
class ManyPods:
    """Cycles over many pods; every pod that runs uses 2Gi, which is over, unless set otherwise."""

    policy: Policy
    ledger: Ledger = field(default_factory=Ledger)
    gpus: tuple[Gpu, ...] = ()

    def see(
        self,
        second: float,
        pods: Iterable[Pod],
        used: Mapping[str, int] | None = None,
        *,
        stale: bool = False,
        on: Mapping[str, int] | None = None,
    ) -> Plan:
        """One cycle; `used` has what pods use if it is not 2Gi, `on` the number of their card if it is not 0."""
        pods = tuple(pods)
        uses, processes = [], []
        for number, each in enumerate((each for each in pods if not each.is_finished), 100):
            uses.append(use(number, (used or {}).get(each.uid, 2 * Gi), (on or {}).get(each.uid, 0)))
            processes.append(process(number, f"{each.uid}/main"))
        seen = snapshot(uses, processes, second=second, **({"gpus": self.gpus} if self.gpus else {}))
        found = assessed(seen, pods, self.policy)
        plan = decide(found, self.ledger, at(second), inputs(self.policy, pods, pods_stale=stale))
        self.ledger = plan.ledger
        return plan

    def strike(self, entry: PlanEntry, second: float) -> None:
        """Begin an action and end it at once."""
        under_way = UnderWay(step=entry.definition.signature, victim=entry.victim, cards=entry.cards)
        self.ledger = self.ledger.note_begun(entry.assessment, under_way, at(second))
        self.ledger = self.ledger.note_ended(entry.account)

    def live(self, second: float, pods: Iterable[Pod], used: Mapping[str, int] | None = None) -> list[str]:
        """One cycle whose actions are done; the UIDs of the pods that were hit."""
        plan = self.see(second, pods, used)
        for entry in plan.taken:
            self.strike(entry, second)
        return [entry.account.uid for entry in plan.taken]


def held(plan: Plan) -> dict[str, tuple[str, float | None]]:
    """What withholds each due step, by UID, and for how many more seconds."""
    return {
        entry.account.uid: (entry.withheld_by.value, entry.releases_in_s)
        for entry in plan.entries
        if entry.withheld_by is not None
    }


def renamed(each: Pod, uid: str) -> Pod:
    """The pod with which its owner replaces another."""
    return replace(over_pod(uid), owner=each.owner, namespace=each.namespace)
