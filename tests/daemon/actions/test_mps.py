"""Evictions of MPS clients, cycle by cycle: the dry run, the drain, the eviction, and what ends it in between."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.daemon.eviction_rig import World, planned
from tests.daemon.rig import Direct, due
from tests.worlds import Gi, at, container, gpu, pod, policy, process, rule, snapshot, step, use
from watchdog.core.assessment import AccountKey, Inputs
from watchdog.core.brakes import Brake
from watchdog.core.eviction import EvictionAnswer
from watchdog.core.hazards import Hazard, HazardRole
from watchdog.core.model import Now, ProcessKey
from watchdog.core.mps import DrainableClient, Drained, DrainResult
from watchdog.core.plan import OpenCycle, PlanEntry
from watchdog.core.policy import Brakes, JournalLimits, Protect, Safety, Window
from watchdog.daemon.actions.action import ActionRecord
from watchdog.daemon.actions.mps import Drains
from watchdog.journal.journal import Journal
from watchdog.journal.keeper import restore
from watchdog.journal.lock import NodeLock
from watchdog.journal.read import history
from watchdog.node.drivers.protocol import DriverReading


@dataclass
class Control:
    """Stands where the control daemons are: keeps what it is asked, and answers when the test says.

    A request is sent at once, or when the test calls `send`, if it may be.
    """

    drainable: tuple[DrainableClient, ...] = ()
    servers: frozenset[ProcessKey] = frozenset()
    asked: list[tuple[int, ProcessKey]] = field(default_factory=list)
    results: list[DrainResult] = field(default_factory=list)
    queried: set[str] = field(default_factory=set)
    sends_at_once: bool = True
    send: Callable[[], bool] = lambda: False

    def refresh(self, clients: Mapping[ProcessKey, frozenset[str]], now: Now, *, gpus: int = 0) -> None:
        """Nothing changes but by the test."""

    def is_querying(self, pipe: str) -> bool:
        return pipe in self.queried

    def drain(self, request_id: int, clients: tuple[DrainableClient, ...], may_send: Callable[[], bool]) -> None:
        self.asked += [(request_id, client.key) for client in clients]
        self.send = may_send
        if self.sends_at_once:
            may_send()

    def pop_results(self) -> tuple[DrainResult, ...]:
        results, self.results = tuple(self.results), []
        return results


class Shared(World):
    """The pod's processes 5 and 6 are clients of a server on the host, and use 4Gi each; 1Gi is declared."""

    def __init__(self, journal: ActionRecord | None = None) -> None:
        self.control, self.is_served = Control(), True
        super().__init__(drains=Drains(self.control), used={5: 4 * Gi, 6: 4 * Gi}, journal=journal)
        self.name(5, 6)

    def name(self, *pids: int) -> None:
        """Let the control daemon list these clients."""
        keys = (process(pid).key for pid in pids)
        self.control.drainable = tuple(
            DrainableClient(key=key, server_pid=9, pipe="/run/nvidia/mps/0/pipe") for key in keys if key is not None
        )

    def open(self, second: float, **given: bool) -> OpenCycle:
        self.second = second
        uses = [use(pid, used, mps=True) for pid, used in self.used.items()]
        server = [(use(9, 1), process(9, None, mps_server=True))] if self.is_served else []
        self.seen.now = snapshot(
            [*uses, *(each for each, _ in server)], [*self.processes, *(each for _, each in server)], [gpu()]
        )
        opened = self.cycle.open(
            DriverReading(driver=None, interface="NVML"), self.inputs(**given), at(second), at(second)
        )
        return self.cycle.actions.intend(opened)

    def inputs(self, *, enforcing: bool = True, **given: bool) -> Inputs:
        assert self.drains is not None
        return replace(super().inputs(enforcing=enforcing, **given), drains=self.drains.known)

    def settle(self, drained: Drained = Drained.DONE, reason: str = "") -> None:
        """Let the control daemon answer its last request, and the daemon wake up for it."""
        request_id, key = self.control.asked[-1]
        if drained is Drained.DONE:
            self.control.drainable = tuple(client for client in self.control.drainable if client.key != key)
        self.control.results.append(DrainResult(request_id=request_id, key=key, drained=drained, reason=reason))
        self.wake()

    @property
    def drained(self) -> list[int]:
        """Whom the control daemon was asked to drain, in order."""
        return [key.pid for _, key in self.control.asked]


def dry_run_passed(world: Shared) -> Shared:
    """The world once the dry run of its eviction was accepted."""
    world.look(0)
    assert [attempt.is_dry_run for attempt in world.tries] == [True]
    assert world.drained == []
    world.answer(EvictionAnswer.DRY_RUN_PASSED)
    return world


def drained(world: Shared) -> Shared:
    """The world once both its clients have been drained as well."""
    dry_run_passed(world).settle()
    world.settle()
    return world


def test_dry_run_then_drain_then_eviction() -> None:
    """Point 36: in this order; that the pod uses less then withdraws nothing, and the eviction is asked for once."""
    world = dry_run_passed(Shared())
    assert world.drained == [5]
    world.settle()
    assert world.drained == [5, 6]
    world.used = {5: 1, 6: 1}
    world.look(1)
    assert len(world.tries) == 1
    world.settle()
    assert len(world.tries) == 1  # until a reading shows that no other client has come
    world.look(2)
    world.wake()
    assert [attempt.is_dry_run for attempt in world.tries] == [True, False]
    assert world.tries[-1].is_fresh()
    world.answer(EvictionAnswer.ACCEPTED)
    world.look(3)
    (begun,) = world.began
    assert [(sent.signal, len(sent.keys)) for sent in begun.sent] == [("DRAIN", 2)]
    assert begun.reaction_s is None or begun.reaction_s <= 1.0
    assert world.results() == []


@pytest.mark.parametrize(
    ("answer", "result"),
    [(EvictionAnswer.BLOCKED, "blocked"), (EvictionAnswer.REFUSED, "failed"), (EvictionAnswer.GONE, "gone")],
)
def test_without_a_dry_run_nobody_is_drained(answer: EvictionAnswer, result: str) -> None:
    """Point 36: a budget, a refusal or a pod that is gone is found out before any work is ended."""
    world = Shared()
    world.look(0)
    world.answer(answer, "no")
    assert (world.results(), world.drained) == ([result], [])


def test_a_dry_run_that_took_too_long_is_repeated() -> None:
    """Point 22: the drain is the first signal, so the reading behind it must be recent."""
    world = Shared()
    world.look(0)
    world.wake(3)
    world.answer(EvictionAnswer.DRY_RUN_PASSED)
    assert world.drained == []
    assert world.pending_eviction is not None
    world.look(9)
    assert [attempt.is_dry_run for attempt in world.tries] == [True, True]


@pytest.mark.parametrize("drained", [Drained.REFUSED, Drained.UNKNOWN])
def test_partly_drained_is_not_evicted(drained: Drained) -> None:
    """Point 36: if one client was not drained, the eviction has failed, and is not begun again at once."""
    world = dry_run_passed(Shared())
    world.settle()
    world.settle(drained, "the control daemon said no")
    assert world.results() == ["failed"]
    assert "the control daemon said no; the pod was not evicted" in world.reason()
    world.look(1)
    assert len(world.tries) == 1


@pytest.mark.parametrize("still_accepts", [True, False])
def test_a_reload_between_a_reading_and_the_eviction(still_accepts: bool) -> None:
    """Point 36: an undrained client ends with its pod only if the policy of that moment accepts it."""
    world = Shared()
    assert world.drains is not None
    accepting = replace(world.policy, safety=Safety(signal_mps_clients=True))
    world.policy, not_accepting = accepting, world.policy
    dry_run_passed(world).settle()
    world.settle(Drained.REFUSED)
    world.look(1)
    world.policy = accepting if still_accepts else not_accepting
    world.drains.configure(world.policy)
    world.wake()
    assert [attempt.is_dry_run for attempt in world.tries] == [True, False][: 1 + still_accepts]
    if not still_accepts:
        world.look(2)
        world.wake()
        assert world.drained == [5, 6, 6]
        world.settle(Drained.REFUSED)
        assert (world.results(), len(world.tries)) == (["failed"], 1)


def test_enforcement_turned_off_during_the_drain_of_an_eviction() -> None:
    """Point 33: no other client is drained, and the pod is not evicted."""
    world = dry_run_passed(Shared())
    world.control.sends_at_once = False
    world.settle()
    world.objection = "enforcement was turned off meanwhile"
    world.wake()
    assert not world.control.send()
    world.settle(Drained.REFUSED)
    assert world.results() == ["interrupted"]
    assert (world.drained, len(world.tries)) == ([5, 6], 1)


def test_an_eviction_whose_first_drain_was_not_sent_begins_with_another_dry_run() -> None:
    """Points 22 and 36: nothing was drained, so the pod is neither evicted nor given up, and no drain is recorded."""
    world = Shared()
    world.control.sends_at_once = False
    dry_run_passed(world)
    world.second = 3
    assert not world.control.send()
    world.settle(Drained.REFUSED, "its last look was too old")
    assert (world.results(), len(world.tries)) == ([], 1)
    assert "DRAIN" not in {line[0] for line in world.record.lines}
    world.control.sends_at_once = True
    while len(world.tries) == 1 and world.second < 20:
        world.look(world.second + 1)
    assert [attempt.is_dry_run for attempt in world.tries] == [True, True]
    world.answer(EvictionAnswer.DRY_RUN_PASSED)
    assert "DRAIN" in {line[0] for line in world.record.lines}


def killing(world: Shared) -> Shared:
    """The world with a rule that kills; its owner may lose one pod an hour."""
    world.policy = replace(policy(rule(step(grace_s=5.0))), brakes=Brakes(owner=Window(count=1, per_s=3600.0)))
    return world


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the journal."""
    return tmp_path / "journal.db"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[[], Journal]]:
    """Opens the journal, as often as it is called; all of them are closed at the end."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(Journal.open(path, JournalLimits(), "n1")))


def test_a_kill_whose_first_drain_was_not_sent_has_not_begun(path: Path, opened: Callable[[], Journal]) -> None:
    """Points 22, 29 and 36: it is withdrawn, with neither a drain in the journal nor a place in a brake's window."""
    journal = opened()
    world = killing(Shared(Direct(journal)))
    world.group.start()
    world.control.sends_at_once = False
    world.look(0)
    assert (world.drained, world.began) == ([5], [])
    world.second = 3
    assert not world.control.send()
    world.settle(Drained.REFUSED, "its last look was too old")
    assert world.results() == ["withdrawn"]
    assert (world.state.under_way, world.cycle.ledger.brakes.begun) == (None, {})
    assert journal.kept.memory(at(3)).begun == {}
    reported = [(row.event, row.result) for row in history(path, None, 0.0)]
    assert reported == [("intended", None), ("kill_ended", "withdrawn")]
    world.control.sends_at_once = True
    while len(world.drained) == 1 and world.second < 20:
        world.look(world.second + 1)
    world.look(world.second + 1)
    assert ([outcome.result.value for outcome in world.began], world.drained) == (["done"], [5, 5])
    assert len(world.cycle.ledger.brakes.begun) == 3
    world.group.close()


def test_two_kills_take_turns_at_one_control_daemon() -> None:
    """Point 36: the second one stays due until the first one's request is answered, and then comes before its next."""
    world = killing(Shared())
    world.pods = (*world.pods, pod("b", container(of="b", declared="1Gi")))
    world.policy = replace(world.policy, brakes=Brakes())
    world.processes = (process(7, "b/main"),)
    world.used = {5: 4 * Gi, 6: 4 * Gi, 7: 4 * Gi}
    world.name(5, 6, 7)
    world.group.start()
    for second in (0, 1):
        world.look(second)
        assert world.drained == [5]
    world.settle()
    assert world.drained == [5]  # the other one is next
    world.look(2)
    assert world.drained == [5, 7]
    world.settle()
    world.wake(2.5)
    assert world.drained == [5, 7, 6]
    assert {line[0] for line in world.record.lines} == {"intend", "DRAIN"}
    assert world.results() == []
    world.group.close()


def asked() -> Shared:
    """The world once its clients have been drained, have ended, and the eviction has been requested."""
    world = drained(Shared())
    world.used = {}
    world.look(1)
    world.wake()
    assert [attempt.is_dry_run for attempt in world.tries] == [True, False]
    return world


@pytest.mark.parametrize("answer", [EvictionAnswer.BLOCKED, EvictionAnswer.LATER, EvictionAnswer.UNKNOWN])
def test_a_drain_permits_one_attempt(answer: EvictionAnswer) -> None:
    """Point 36: a drained program often starts again; a new decision drains its new client before the next attempt."""
    world = asked()
    world.used = {8: 4 * Gi}
    world.name(8)
    world.answer(answer, "the budget", wait_s=3.0)
    for second in range(2, 10):
        world.look(second)
        world.wake()
    assert (len(world.tries), world.results()) == (2, ["failed"])
    assert "after its MPS clients were drained: the budget" in world.reason()
    while len(world.tries) == 2 and world.second < 16:
        world.look(world.second + 1)
        world.wake()
    assert [attempt.is_dry_run for attempt in world.tries] == [True, False, True]
    world.answer(EvictionAnswer.DRY_RUN_PASSED)
    assert world.drained == [5, 6, 8]
    assert len(world.tries) == 3


def test_an_eviction_after_a_drain_whose_answer_was_lost_is_recognized() -> None:
    """Promise 2: if the pod list shows that the pod is being deleted, the eviction was carried out, not failed."""
    world = asked()
    world.used = {6: 1}  # its memory is still listed
    world.answer(EvictionAnswer.UNKNOWN, "no answer", wait_s=3.0)
    world.pods = (replace(world.pods[0], deletion_deadline_s=at(10).wall_s),)
    world.look(2)
    world.wake(10)
    assert (len(world.tries), world.results()) == (2, [])
    assert world.state.under_way is not None


def test_the_attempt_after_a_drain_is_judged_by_that_moment() -> None:
    """Points 22, 33: not by an old reading, and by the policy that is in force when the pod is evicted."""
    world = asked()
    assert world.tries[-1].is_fresh()
    world.policy = replace(world.policy, protect=Protect(namespaces=("ns",)))
    world.look(2)
    assert "the policy protects namespace ns" in str(world.tries[-1].why_spared(world.pods[0]))
    world.second = 4
    assert not world.tries[-1].is_fresh()


def test_a_reading_without_the_pod_does_not_show_that_its_clients_are_drained() -> None:
    """Law 3: whose processes they are is not known while the pod is missing from the list; new ones may be there."""
    world = drained(Shared())
    for second, pods in ((1, ()), (2, world.pods)):
        world.pods = pods
        world.look(second, pods_stale=not pods)
        world.wake()
        assert len(world.tries) == second


def test_a_drain_whose_server_ended_before_it_answered() -> None:
    """Law 10: a reading without MPS shows too that nothing is left to drain, and the eviction goes on."""
    world = dry_run_passed(Shared())
    world.used, world.is_served = {}, False
    world.look(1)
    world.second = 1.5
    world.settle()
    assert len(world.tries) == 1  # that reading was requested before the answer
    world.look(2)
    world.wake()
    assert (len(world.tries), world.tries[-1].is_dry_run) == (2, False)


def test_what_was_drained_is_forgotten_on_a_node_without_mps() -> None:
    """Point 36: a process that becomes a client again, of a server started later, counts as one at once."""
    world = dry_run_passed(Shared())
    used, world.used, world.is_served = world.used, {}, False
    world.look(1)
    world.settle()
    world.look(2)
    assert world.drains is not None
    assert world.drains.known.drained == frozenset()
    world.used, world.is_served = used, True
    world.look(3)
    assert world.drains.known.drained == frozenset()


def test_enforcement_turned_off_after_the_drain() -> None:
    """Point 33: the attempt that a drain permits is not made, although nothing else is in its way."""
    world = drained(Shared())
    world.look(1)
    world.objection = "enforcement was turned off meanwhile"
    world.wake()
    assert (len(world.tries), world.results()) == (1, ["interrupted"])


@pytest.mark.parametrize("ended", [True, False])
def test_a_client_that_ends_by_itself_during_the_drain_is_not_waited_for(ended: bool) -> None:
    """Law 11: the second client ends with the first; a reading shows neither, and the pod is evicted."""
    world = dry_run_passed(Shared())
    if ended:
        world.used = {5: 4 * Gi}
        world.name(5)
    world.look(1)
    world.settle()
    world.look(2)
    world.wake()
    assert (world.drained, len(world.tries)) == (([5], 2) if ended else ([5, 6], 1))


@pytest.mark.parametrize("drained", [1, 2])
def test_killed_between_the_drain_and_the_eviction(drained: int, path: Path, opened: Callable[[], Journal]) -> None:
    """Points 31 and 36: after `kill -9`, the next daemon drains and evicts nothing because of it, and counts it."""
    first = dry_run_passed(Shared(Direct(opened())))
    for _ in range(drained):
        first.settle()
    assert len(first.tries) == 1
    lock, journal = NodeLock(path), opened()
    assert lock.acquire()
    found = restore(journal, lock, at(1), None)
    assert found.drained == {key for action in found.unfinished for key in action.targets}
    assert {key.pid for key in found.drained} >= {5, 6}
    assert restore(journal, lock, at(2), None).drained == found.drained
    world = Shared(Direct(journal))
    world.policy = replace(world.policy, brakes=Brakes(owner=Window(count=1, per_s=3600.0)))
    world.cycle.actions.take_over(found.unfinished, at(31).boottime_s, found.brakes)
    withheld = [planned(world.look(second)).withheld_by for second in (2, 32)]
    assert (withheld, world.tries, world.drained) == ([Brake.PENDING, Brake.OWNER], [], [])
    reported = [(row.event, row.result, row.reason) for row in history(path, None, 0.0)]
    assert ("evict_ended", "interrupted", "the watchdog ended before it was over") in reported
    assert [event for event, *_ in reported].count("released") == 1


@pytest.mark.parametrize("boot_id", [None, "22222222-2222-3333-4444-555555555555"])
def test_a_drain_whose_row_never_reached_the_disk_is_remembered_over_restarts(
    boot_id: str | None, path: Path, opened: Callable[[], Journal]
) -> None:
    """Point 36: whoever may have been drained is not asked again by any later daemon of this boot."""
    dry_run_passed(Shared(Direct(opened()))).settle()
    with closing(sqlite3.connect(path)) as disk, disk:
        assert disk.execute("DELETE FROM occurrence WHERE event = 'signalled'").rowcount > 0
    lock, journal = NodeLock(path), opened()
    assert lock.acquire()
    assert {key.pid for key in restore(journal, lock, at(1), None).drained} >= {5, 6}
    for second in (2, 3):
        now = at(second) if boot_id is None else replace(at(second), boot_id=boot_id)
        found = restore(opened(), lock, now, None)
        assert ({key.pid for key in found.drained} >= {5, 6}) is (boot_id is None)


def test_the_answer_to_an_action_that_was_called_off_frees_its_control_daemon() -> None:
    """Law 10: nobody waits for that answer any more, and the next action does not wait either."""
    control = Shared().control
    drains, (client, other) = Drains(control), control.drainable
    first, second = AccountKey(uid="a"), draining(other.key)
    drains.request_drain(first, client)
    assert not drains.queue(second, at(0))
    control.results.append(DrainResult(request_id=1, key=client.key, drained=Drained.DONE, reason=""))
    assert drains.queue(second, at(1))
    assert drains.known.drained == {client.key}


def draining(*keys: ProcessKey) -> PlanEntry:
    """A kill in pod b that drains these clients first."""
    entry = due(step(), *keys)
    clients = tuple(Hazard(role=HazardRole.CLIENT, container=entry.victim, key=key) for key in keys)
    account = entry.account._replace(uid="b")
    return replace(entry, assessment=replace(entry.assessment, account=account, to_drain=clients))
