"""A node whose cycles a test runs one by one, and a stand-in for the API server that answers when the test says."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tests.daemon.rig import Group, MemoryRecord, no_objection, objecting
from tests.worlds import NODE, Gi, at, container, gpu, pod, policy, process, rule, snapshot, step, use
from watchdog.core.assessment import Inputs
from watchdog.core.eviction import EvictionAnswer, EvictionRequest, EvictionResult
from watchdog.core.ledger import AccountState, PendingEviction
from watchdog.core.model import Node, Now, Pod, PodList, Process, Snapshot
from watchdog.core.plan import ClosedCycle, Objection, OpenCycle, Outcome, PlanEntry
from watchdog.core.policy import Do, Policy
from watchdog.daemon.actions.action import Action, ActionRecord
from watchdog.daemon.actions.actions import Actions
from watchdog.daemon.actions.evictions import Evictions, Evictor
from watchdog.daemon.actions.kills import Kills
from watchdog.daemon.actions.last_look import LastLook
from watchdog.daemon.actions.mps import Drains
from watchdog.daemon.cycle import Cycle
from watchdog.node.drivers.protocol import DriverReading
from watchdog.node.scan import Scanner

EVICT_AT_ONCE = step("100%", 0, "evict", grace_s=10.0)


class Seen(Scanner):
    """A scanner that gives the snapshot which the test has made."""

    def __init__(self) -> None:
        self.now: Snapshot = snapshot()
        self.again: Snapshot | None = None

    def snapshot(self, reading: DriverReading, now: Now) -> Snapshot:
        return replace(self.now, at=now)

    def rescan(
        self, first: Snapshot, reading: DriverReading, only: frozenset[str], now: Now, *, asked: Now
    ) -> Snapshot:
        return replace(self.again or self.now, at=now)

    def may_be_listed(self, key: object, snapshot: Snapshot) -> bool:
        return False


@dataclass
class Answers:
    """Stands where the API is: keeps what it is handed, and gives what the test says."""

    tries: list[EvictionRequest] = field(default_factory=list)
    replies: list[EvictionResult] = field(default_factory=list)

    def begin(self, attempt: EvictionRequest) -> None:
        self.tries.append(attempt)

    def pop_results(self) -> tuple[EvictionResult, ...]:
        replies, self.replies = tuple(self.replies), []
        return replies


@dataclass
class World:
    """A node with one pod `a` (4Gi used, 1Gi declared, PID 5) and whatever else a test puts on it."""

    policy: Policy = field(default_factory=lambda: policy(rule(EVICT_AT_ONCE)))
    pods: tuple[Pod, ...] = (pod("a", container(declared="1Gi")),)
    used: Mapping[int, int | None] = field(default_factory=lambda: {5: 4 * Gi})
    processes: tuple[Process, ...] = ()
    record: MemoryRecord = field(default_factory=MemoryRecord)
    api: Evictor | None = field(default_factory=Answers)
    group: Group = field(default_factory=Group)
    free: int | None = None  # of the card, in bytes
    journal: ActionRecord | None = None  # in place of `record`
    node: Node = NODE
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    drains: Drains | None = None

    def __post_init__(self) -> None:
        record = self.journal or self.record
        self.second = 0.0
        self.objection: str | None = None
        self.began: list[Outcome] = []
        self.ended: list[Outcome] = []
        self.seen = Seen()

        def clock() -> Now:
            return at(self.second)

        drains = self.drains or Drains()
        self.evictions = Evictions(self.api, record, clock, drains)
        by_do: dict[Do, Action] = {Do.KILL: Kills(self.group, record, clock, drains), Do.EVICT: self.evictions}
        self.cycle = Cycle(self.seen, Actions(by_do, record, clock, drains), record)

    @property
    def tries(self) -> list[EvictionRequest]:
        """Every try that was handed in."""
        assert isinstance(self.api, Answers)
        return self.api.tries

    @property
    def pending_eviction(self) -> PendingEviction | None:
        """The eviction of pod a in the ledger."""
        return self.state.pending_eviction

    @property
    def state(self) -> AccountState:
        """What is remembered of the account of pod a."""
        return next(state for key, state in self.cycle.ledger.accounts.items() if key.uid == "a")

    def open(self, second: float, **given: bool) -> OpenCycle:
        """A cycle as far as its plan; `enforcing`, `policy_unsettled` and other inputs can be given."""
        self.second = second
        total = 80 * Gi
        card = gpu(total=total, used=total - self.free) if self.free is not None else gpu()
        self.seen.now = snapshot([use(pid, used) for pid, used in self.used.items()], self.processes, [card])
        opened = self.cycle.open(
            DriverReading(driver=None, interface="NVML"), self.inputs(**given), at(second), at(second)
        )
        return self.cycle.actions.intend(opened)

    def close(self, opened: OpenCycle, *, answers: bool = True, objection: Objection = no_objection) -> ClosedCycle:
        """The rest of a cycle; `answers` says that the driver gives a last look, `objection` what is against a signal.

        What the test puts in `pods`, `node` or `namespaces` after `open` is in the store right before the signal.
        """
        last = LastLook(
            reading=DriverReading(driver=None, interface="NVML"),
            asked=at(self.second),
            at=at(self.second),
            objection=objection,
            inputs=lambda: replace(
                opened.inputs,
                pods=replace(opened.inputs.pods, pods=self.pods),
                node=self.node,
                namespaces=self.namespaces,
            ),
        )
        finish = self.cycle.close(opened, last if answers else None, at(self.second))
        self.began += finish.began
        self.ended += finish.outcomes
        return finish

    def look(self, second: float, **given: bool) -> ClosedCycle:
        """A whole cycle."""
        return self.close(self.open(second, **given))

    def answer(
        self, answer: EvictionAnswer, reason: str = "", wait_s: float = 5.0, *, number: int = -1, for_owner: str = ""
    ) -> None:
        """Let the API answer a try (the last one), and the daemon wake up for it."""
        assert isinstance(self.api, Answers)
        request_id = self.tries[number].request_id
        reply = EvictionResult(request_id=request_id, answer=answer, reason=reason, wait_s=wait_s, for_owner=for_owner)
        self.api.replies.append(reply)
        self.wake()

    def wake(self, second: float | None = None) -> None:
        """What the daemon does between cycles."""
        self.second = self.second if second is None else second
        self.cycle.actions.advance(at(self.second), objecting(self.objection))
        self.ended += self.cycle.actions.take_ended()

    def inputs(self, *, enforcing: bool = True, **given: bool) -> Inputs:
        """What a cycle takes as given."""
        made = Inputs(
            policy=self.policy,
            node=self.node,
            pods=PodList(pods=self.pods, synced=at(self.second)),
            namespaces=self.namespaces,
            enforcing=enforcing,
        )
        return replace(made, **given)  # type: ignore[arg-type]

    def results(self) -> list[str]:
        """What was reported, in order, and has not only begun."""
        return [outcome.result.value for outcome in self.ended]

    def reason(self) -> str:
        """Why the last thing ended as it did."""
        return self.ended[-1].reason


def planned(finish: ClosedCycle, do: str = "evict") -> PlanEntry:
    """The plan's entry of a step that does this."""
    return next(entry for entry in finish.plan.entries if entry.do.value == do)


def begun(world: World) -> World:
    """A world in which an eviction has just been begun."""
    world.look(0)
    assert len(world.tries) == 1
    return world


def blocked(world: World, wait_s: float = 5.0) -> World:
    """A world in which the first try was blocked."""
    begun(world).answer(
        EvictionAnswer.BLOCKED, "the disruption budget b needs 2 healthy pods and has 2 currently", wait_s
    )
    return world


__all__ = ["EVICT_AT_ONCE", "Answers", "Gi", "World", "begun", "blocked", "planned", "process"]
