"""Kills of real processes that are MPS clients: drained one by one, and signalled only then."""

import math
import signal
from concurrent.futures import Future
from dataclasses import dataclass, replace

import pytest

from tests.daemon.actions.test_mps import Control
from tests.daemon.rig import POLITE, STUBBORN, Group, MemoryRecord, advance, due, no_objection, objecting, shown
from tests.worlds import Gi, at, container, container_id, gpu, inputs, pod, policy, process, rule, snapshot, step, use
from watchdog.core.assess import assess
from watchdog.core.assessment import Attribution, KnownDrains
from watchdog.core.attribute import attribute
from watchdog.core.decide import decide
from watchdog.core.hazards import Hazard, HazardRole
from watchdog.core.ledger import Ledger
from watchdog.core.model import UNREADABLE, Now, Pod, Process, ProcessKey, Use
from watchdog.core.mps import DrainableClient, Drained, DrainResult
from watchdog.core.plan import Outcome, PlanEntry, Result
from watchdog.core.policy import Draining, Safety, Scope, Step
from watchdog.daemon.actions.kills import Kills
from watchdog.daemon.actions.mps import BUSY, Drains
from watchdog.daemon.actions.mps_clients import ClientsOf, SeenClients, clients_seen


class Node:
    """A pod whose processes are clients of one server on the host."""

    def __init__(self, group: Group, *, grace_s: float = 5.0, number: int = 2) -> None:
        self.group, self.second = group, 0.0
        self.begun: list[Outcome] = []
        self.processes = [group.start(POLITE) for _ in range(number)]
        self.keys = [group.key(process) for process in self.processes]
        self.control, self.record = Control(), MemoryRecord()
        self.show(*self.keys)
        self.drains = Drains(self.control)
        self.kills = Kills(group, self.record, lambda: at(self.second), self.drains)
        self.entry = self.of(*self.keys, grace_s=grace_s)
        self.see(*self.keys)

    def of(self, *keys: ProcessKey, grace_s: float = 5.0) -> PlanEntry:
        """A kill of these clients."""
        entry = due(step(grace_s=grace_s), *keys)
        clients = tuple(Hazard(role=HazardRole.CLIENT, container=entry.victim, key=key) for key in keys)
        return replace(entry, assessment=replace(entry.assessment, to_drain=clients))

    def show(self, *keys: ProcessKey) -> None:
        """Let the control daemon list these clients."""
        self.control.drainable = tuple(DrainableClient(key=key, server_pid=9, pipe="/pipe") for key in keys)

    def see(
        self, *drainable: ProcessKey, others: tuple[ProcessKey, ...] = (), accepts: bool = False, beside: bool = False
    ) -> None:
        """A reading that shows these clients."""
        seen = SeenClients(
            asked_s=at(self.second).boottime_s,
            drainable=frozenset(drainable),
            others=frozenset(others),
            has_mps=True,
            accepts_clients=accepts,
            has_others_beside=beside,
        )
        self.drains.is_shown, self.drains.gpus, self.drains.accepts_clients = True, frozenset({"GPU-0"}), accepts
        self.drains.seen_of = lambda _: seen
        self.kills.on_reading(shown(self.now, lambda _: True))

    def begin(
        self, entry: PlanEntry | None = None, fresh_until_s: float = math.inf, objection: str | None = None
    ) -> Outcome | None:
        """Begin the kill; from then on there is this objection to its first signal."""
        asked = iter([None])
        entry = entry or self.entry
        intended = self.kills.intend(entry, Attribution())
        assert isinstance(intended, Future)
        return self.kills.start(entry, intended.result(), 30.0, lambda *_: next(asked, objection), fresh_until_s)

    def answer(self, drained: Drained = Drained.DONE) -> None:
        """Let the control daemon answer its last request; it no longer lists a client that it has drained."""
        request_id, key = self.control.asked[-1]
        if drained is Drained.DONE:
            self.show(*(client.key for client in self.control.drainable if client.key != key))
        self.control.results.append(DrainResult(request_id=request_id, key=key, drained=drained, reason=""))

    def advance(self, seconds: float = 0.3, objection: str | None = None) -> tuple[Outcome, ...]:
        """Let time pass, and the kill go on."""
        self.second += seconds
        self.kills.advance(self.now, objecting(objection))
        return self.take_ended()

    def take_ended(self) -> tuple[Outcome, ...]:
        """The kills that have ended; those that have begun are kept."""
        progress = self.kills.pop_progress()
        self.begun += [begun for begun, _ in progress.begun]
        return progress.ended

    def take_begun(self) -> tuple[Outcome, ...]:
        """The kills that have begun since the last call."""
        begun, self.begun = tuple(self.begun), []
        return begun

    @property
    def now(self) -> Now:
        return at(self.second)

    @property
    def signals(self) -> list[str]:
        """What was sent, in order."""
        return [line[0] for line in self.record.lines if line[0] in ("DRAIN", "SIGTERM", "SIGKILL")]


def drained(node: Node) -> Node:
    """The node once all its clients were drained, and before a reading shows it."""
    node.begin()
    for _ in node.keys:
        node.answer()
        node.advance()
    return node


def test_each_client_is_drained_before_any_is_signalled(group: Group) -> None:
    """Point 36: one request at a time, then a reading without other clients, then SIGTERM to all."""
    node = drained(Node(group))
    assert node.signals == ["DRAIN", "DRAIN"]
    node.see()
    node.advance()
    assert node.signals == ["DRAIN", "DRAIN", "SIGTERM"]


def test_how_often_a_drain_is_looked_at(group: Group) -> None:
    """Law 10: the loop does not spin while a control daemon takes its time, and notices the answer soon."""
    node = Node(group)
    node.begin()
    node.advance()
    assert node.kills.next_wake_s == node.now.boottime_s + 0.25


def test_a_control_daemon_that_another_action_asks_first(group: Group) -> None:
    """Point 22: what is withdrawn right before its first signal says why, and frees its place in line."""
    node = Node(group)
    intended = node.kills.intend(node.entry, Attribution())
    assert isinstance(intended, Future)
    other, client = node.entry.account._replace(uid="other"), node.control.drainable[0]
    request = node.drains.request_drain(other, client)
    outcome = node.kills.start(node.entry, intended.result(), 30.0, no_objection)
    assert outcome is not None
    assert (outcome.result, outcome.reason) == (Result.WITHDRAWN, BUSY)
    node.answer(Drained.REFUSED)
    node.drains.collect_results()
    assert (request.result is not None, node.drains.queue_for(client, other, node.now)) == (True, True)
    assert all(process.poll() is None for process in node.processes)


def test_a_drained_process_that_was_no_client_for_a_while(group: Group) -> None:
    """Point 36: once the driver lists it as a client again, it counts as one before a control daemon names it."""
    node = drained(Node(group, number=1))
    (key,) = node.keys
    assert node.drains.known.drained == {key}
    for is_client, known in ((True, {key}), (None, {key}), (False, set()), (True, set())):
        listed = process(key.pid, key=key)
        seen = attribute(snapshot([use(key.pid, 1, mps=is_client)], [listed], [gpu()]), (pod(),))
        node.drains.on_attribution(seen, 1)
        assert node.drains.known.drained == known


def test_a_drain_that_is_late_is_not_sent(group: Group) -> None:
    """Points 22 and 33: a drain is the first signal, so the last look must be recent; later ones need no look."""
    node = Node(group)
    node.control.queried = {"/pipe"}
    assert (node.kills.intend(node.entry, Attribution()), node.record.lines) == (
        None,
        [],
    )  # it stays due, and nothing is on disk
    node.control.queried, node.control.sends_at_once = set(), False
    assert node.begin(fresh_until_s=at(1).boottime_s) is None
    node.second = 1.1
    assert not node.control.send()
    node.answer(Drained.REFUSED)
    (outcome,) = node.advance()
    assert (outcome.result, outcome.sent, node.take_begun()) == (Result.WITHDRAWN, (), ())
    assert [line[0] for line in node.record.lines] == ["intend", "withdraw"]
    assert node.begin(fresh_until_s=at(2.5).boottime_s) is None
    assert node.control.send()
    node.answer()
    node.advance(2.0)
    (begun,) = node.take_begun()
    assert (begun.result, [sent.signal for sent in begun.sent]) == (Result.DONE, ["DRAIN"])
    assert node.control.send()


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_drain_that_is_called_off(group: Group, is_sent: bool) -> None:
    """Point 33: what was not sent is never sent, and the kill is withdrawn; what was sent interrupts it."""
    node = Node(group)
    node.control.sends_at_once = False
    node.begin()
    if is_sent:
        node.control.send()
    (outcome,) = node.advance(objection="enforcement was turned off meanwhile")
    assert outcome.result is (Result.INTERRUPTED if is_sent else Result.WITHDRAWN)
    assert node.signals == ["DRAIN"] * is_sent
    assert len(node.take_begun()) == is_sent
    assert not node.control.send()


def test_a_policy_file_that_changes_right_before_a_drain(group: Group) -> None:
    """Point 20: no first signal is sent then, not even to clients that the policy accepts are ended undrained."""
    node = Node(group, number=1)
    node.see(*node.keys, accepts=True)
    node.control.sends_at_once = False
    node.begin()
    assert advance(node.kills, node.now, policy_unsettled=True) == ()
    assert not node.control.send()
    node.answer(Drained.REFUSED)
    (outcome,) = node.advance()
    assert (outcome.result, node.signals) == (Result.WITHDRAWN, [])


def test_clients_that_end_before_any_is_drained(group: Group) -> None:
    """Point 22: the kill goes on by its last look, or is withdrawn once that is too old or something is against it."""
    node = Node(group)
    node.control.sends_at_once = False
    for second, objection, expected in (
        (5.0, None, ["SIGTERM"]),
        (5.0, "the pod had become protected", []),
        (0.1, None, []),
    ):
        helper = group.start(POLITE)
        node.record.lines.clear()
        node.show(*node.keys)
        node.entry = node.of(node.keys[0])
        assert node.begin(fresh_until_s=at(node.second + second).boottime_s, objection=objection) is None
        node.answer()
        node.advance()
        assert node.signals == expected
        helper.kill()
        node.advance(objection="over")


def test_a_process_that_has_become_a_client_again_is_drained_again(group: Group) -> None:
    """Point 36: after execve or a new CUDA context the same process is a client like any other."""
    node = drained(Node(group, number=1))
    node.show(*node.keys)
    node.see(*node.keys)
    node.advance()
    assert node.signals == ["DRAIN", "DRAIN"]
    node.answer()
    node.advance()
    node.see()
    node.advance()
    assert node.signals == ["DRAIN", "DRAIN", "SIGTERM"]


def test_a_reload_that_no_longer_accepts_the_risk(group: Group) -> None:
    """Point 36: a client that could not be drained is then signalled no more."""
    node = Node(group, number=1)
    node.see(*node.keys, accepts=True)
    node.begin()
    node.answer(Drained.REFUSED)
    node.advance()
    node.see(others=tuple(node.keys))
    node.advance()
    assert node.signals == ["DRAIN"]
    (outcome,) = node.advance(61.0)
    assert (outcome.result, node.signals) == (Result.FAILED, ["DRAIN"])


@pytest.mark.parametrize("answered", ["before", "after"])
@pytest.mark.parametrize("is_drained", [False, True])
def test_a_reload_between_a_reading_and_the_signal(group: Group, answered: str, is_drained: bool) -> None:
    """Point 36: once the risk is no longer accepted, no signal is sent by what an earlier reading accepted."""
    node, not_accepting = Node(group, number=1), policy(rule(step()))
    node.see(*node.keys, accepts=True)
    node.begin()
    if answered == "after":
        node.drains.configure(not_accepting)
    node.answer(Drained.DONE if is_drained else Drained.REFUSED)
    ended = node.advance()
    if answered == "before":
        node.see(*(() if is_drained else node.keys), accepts=True)
        node.drains.configure(not_accepting)
        ended = node.advance()
    assert node.signals == ["DRAIN"]
    assert [outcome.result for outcome in ended] == [Result.FAILED] * (answered == "after" and not is_drained)
    if is_drained:
        node.see()
        node.advance()
        assert node.signals == ["DRAIN", "SIGTERM"]


@pytest.mark.parametrize("accepts", [True, False])
def test_a_reload_in_the_grace_period_of_a_client(group: Group, accepts: bool) -> None:
    """Point 36: an undrained client that outlives SIGTERM gets SIGKILL only while the policy accepts that."""
    node = Node(group, number=1)
    stubborn = group.start(STUBBORN)
    node.show()
    node.see(others=(), accepts=True)
    node.begin(due(step(grace_s=5.0), *node.keys, group.key(stubborn)))
    assert node.signals == ["SIGTERM"]
    node.drains.configure(replace(policy(rule(step())), safety=Safety(signal_mps_clients=accepts)))
    node.advance(6.0)
    assert node.signals == ["SIGTERM", "SIGKILL"][: 1 + accepts]


def test_memory_that_stays_listed_after_the_drain_ended_all(group: Group) -> None:
    """Point 24: the account is free again after release_timeout, whatever the driver goes on listing."""
    node = Node(group, number=1)
    node.begin()
    node.processes[0].kill()
    node.processes[0].wait(5)
    assert node.advance(objection="enforcement was turned off") == ()
    node.second += 36.0
    node.kills.on_reading(shown(node.now, lambda _: True))
    (outcome,) = node.take_ended()
    assert (outcome.release_s, node.kills.needs_readings) == (None, False)


def test_a_program_that_always_starts_another_client(group: Group) -> None:
    """Law 11 and point 36: after 256 requests the kill has failed, and nothing was signalled undrained."""
    node = Node(group, number=1)
    node.begin()
    for pid in range(4_000_000, 4_000_300):
        node.answer()
        node.advance(1.0)
        successor = ProcessKey(pid=pid, start_ticks=pid)
        node.show(successor)
        node.see(successor)
        ended = node.advance(1.0)
        if ended:
            break
    (outcome,) = ended
    assert (outcome.result, outcome.signalled, node.signals) == (Result.FAILED, (), ["DRAIN"] * 256)
    assert outcome.reason.startswith("its pod kept starting MPS clients")
    assert outcome.reason.endswith("no process was signalled")
    assert node.processes[0].poll() is None


@pytest.mark.parametrize(("timeout_s", "expected_s"), [(5.0, 60.0), (60.0, 420.0)])
def test_an_answer_may_take_as_long_as_the_policy_lets_it(timeout_s: float, expected_s: float) -> None:
    """An action is not given up while a control daemon may still answer within its timeout."""
    under = replace(policy(rule(step())), mps=Draining(timeout_s=timeout_s))
    seen = snapshot([use(1, 9 * Gi, mps=True)], [process(1, "a/main")])
    attribution = attribute(seen, [pod("a")])
    clients_of = clients_seen((), attribution, seen, under, seen.at)
    assert clients_of(due(step(), ProcessKey(pid=1, start_ticks=10))).give_up_after_s == expected_s


@pytest.mark.parametrize(("is_led", "beside"), [(True, True), (True, False), (False, True)])
def test_a_process_whose_end_would_end_other_clients(group: Group, is_led: bool, beside: bool) -> None:
    """Point 36: the kernel ends a PID namespace with its first process, undrained clients of the container included."""
    node = Node(group)
    group.is_led = is_led
    node.see(*node.keys, beside=beside)
    outcome = node.begin(node.of(node.keys[0]))
    assert outcome is not None
    assert outcome.result is (Result.WITHDRAWN if is_led and beside else Result.DONE)
    assert node.signals == ([] if is_led and beside else ["DRAIN"])


def test_how_long_a_drain_takes_is_not_known(group: Group) -> None:
    """What waits for such a kill is not promised a time."""
    node = Node(group)
    assert node.entry.under_way(node.now, 30.0).until_s is None
    assert due(step(grace_s=5.0), *node.keys).under_way(node.now, 30.0).until_s == at(35.0).boottime_s


@pytest.mark.parametrize(
    ("scope", "other", "accepts", "expected"),
    [
        ("process", "a/main", False, True),
        ("process", "a/main", True, False),
        ("process", "a/side", False, False),
        ("container", "a/main", False, False),
    ],
)
def test_who_is_beside_a_process(scope: Scope, other: str, accepts: bool, expected: bool) -> None:
    """Only clients of the victim's container, and only where the policy does not accept that they are ended."""
    offender = pod("a", container("main", declared="1Gi"), container("side", declared="1Gi"))
    uses = [use(1, 9 * Gi, mps=True), use(2, 1, mps=True)]
    places = [process(1, "a/main"), process(2, other)]
    planned = see_clients(step(scope=scope), offender, uses, places, accepts=accepts)
    assert planned.clients_of(planned.entry).has_others_beside is expected


@pytest.mark.parametrize("scope", ["container", "process"])
@pytest.mark.parametrize("accepts", [False, True])
def test_a_client_whose_container_can_not_be_read(scope: Scope, accepts: bool) -> None:
    """Law 3: it may be one of this pod, so the reading does not show that all clients are drained or elsewhere."""
    known, unknown = process(1, "a/main"), process(2, place=UNREADABLE)
    for places, expected in (([known], False), ([known, unknown], True)):
        uses = [use(each.pid, 9 * Gi, mps=True) for each in places]
        due = step(scope=scope)
        planned = see_clients(due, pod("a", container("main", declared="1Gi")), uses, places, accepts=accepts)
        seen = planned.clients_of(planned.entry)
        assert seen.is_hidden is expected
        assert seen.has_others_beside is (expected and scope == "process" and not accepts)


@dataclass
class Seen:
    """A planned kill, and what a reading shows of its clients."""

    entry: PlanEntry
    clients_of: ClientsOf


def see_clients(due: Step, offender: Pod, uses: list[Use], places: list[Process], *, accepts: bool = False) -> Seen:
    """What a reading plans and shows on a node with a server on the host."""
    seen = snapshot([*uses, use(9, 1)], [*places, process(9, None, mps_server=True)])
    under = replace(policy(rule(due)), safety=Safety(signal_mps_clients=accepts))
    keys = frozenset(each.key for each in places if each.key is not None)
    given = replace(inputs(under, [offender]), drains=KnownDrains(drainable=keys))
    attribution = attribute(seen, [offender])
    assessments = assess(attribution, seen, given)
    (entry,) = decide(assessments, Ledger(), seen.at, given).entries
    return Seen(entry, clients_seen(assessments, attribution, seen, under, seen.at))


@pytest.mark.parametrize(("do", "scope"), [("kill", "pod"), ("kill", "container"), ("evict", "container")])
def test_a_container_that_was_started_again_since_the_last_look(do: str, scope: Scope) -> None:
    """Point 22: a kill drains no client that its last look did not cover; an eviction ends the whole pod."""
    main = container("main", declared="1Gi")
    again = replace(main, ids=main.ids | {container_id("a/again")})
    old, new = process(1, "a/main"), process(2, "a/again")
    fork = process(3, "a/main")
    due = step(do=do, scope=scope)
    before = see_clients(due, pod("a", main), [use(1, 9 * Gi, mps=True)], [old])
    uses = [use(each.pid, 9 * Gi, mps=True) for each in (old, new, fork)]
    found = see_clients(due, pod("a", again), uses, [old, new, fork]).clients_of(before.entry)
    assert {key.pid for key in found.drainable} == ({1, 2, 3} if do == "evict" else {1, 3})


def test_a_silent_driver_protects_no_process_that_joins(group: Group) -> None:
    """Point 23: on a node without MPS, what starts while the driver is silent is ended like the others."""
    main = group.start(STUBBORN)
    drains, second = Drains(), 0.0
    kills = Kills(group, MemoryRecord(), lambda: at(second), drains)
    entry = due(step(grace_s=5.0), group.key(main))
    intended = kills.intend(entry, Attribution())
    assert isinstance(intended, Future)
    kills.start(entry, intended.result(), 30.0, no_objection)
    silent = replace(shown(at(1.0), lambda _: True), snapshot=replace(snapshot([]), blind=True))
    drains.on_reading(silent)
    kills.on_reading(silent)
    joined = group.start(STUBBORN)
    for second in (2.0, 5.0, 5.1):
        advance(kills, at(second))
    assert [process.wait(5) for process in (main, joined)] == [-signal.SIGKILL, -signal.SIGKILL]
