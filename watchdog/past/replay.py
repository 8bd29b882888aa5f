"""Replay: which actions another policy would have taken on the recorded cycles."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from watchdog.core.assess import Coverage, PodTerms, assess_pod, hidden_pods, short_for
from watchdog.core.assessment import AccountKey, Assessment, Inputs
from watchdog.core.claims import with_sums
from watchdog.core.decide import decide
from watchdog.core.ledger import Ledger
from watchdog.core.listed import ListedResources
from watchdog.core.model import Gpu, Now, Pod, PodList
from watchdog.core.plan import Plan, PlanEntry
from watchdog.core.policy import Policy
from watchdog.core.quiet import JUST_AFTER_S, next_change_s
from watchdog.core.remembered import DeclarationMemory
from watchdog.core.rules import hours_at
from watchdog.journal.playback import RecordedCycle, RecordedNode, RecordKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Withholding:
    """An action withheld from a moment on."""

    # It has the brake, and when that would release.
    entry: PlanEntry
    at: Now

    @property
    def releases_s(self) -> float | None:
        """The Unix time at which the brake would release; None if time alone would not lift it."""
        wait_s = self.entry.releases_in_s
        return None if wait_s is None else self.at.wall_s + wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedAction:
    """The first action of an incident, or its first warning."""

    # The plan entry when it was due.
    entry: PlanEntry
    # When it was first due.
    due: Now
    # When it was let through; None: it was withheld to the end of the incident or of the recording.
    at: Now | None = None
    withheld: tuple[Withholding, ...] = ()
    # Whether the incident lasted until the end of the recording.
    goes_on: bool = False


class Incidents:
    """Collects findings from plans; an incident of an account ends with a conclusive reading below all thresholds."""

    def __init__(self) -> None:
        self._open: dict[AccountKey, ReplayedAction] = {}
        self._warned: set[AccountKey] = set()
        self._closed: list[ReplayedAction] = []

    def add_plan(self, plan: Plan, assessments: Iterable[Assessment], at: Now, *, stale: bool) -> None:
        """Add the plan of one cycle."""
        above = {entry.account for entry in plan.entries}
        if not stale and (self._open or self._warned) and not (self._open.keys() | self._warned) <= above:
            self._close(above, {assessment.account: assessment for assessment in assessments})
        for entry in plan.entries:
            if entry.do.enforces:
                self._take_action(entry, at)
            elif entry.taken and entry.account not in self._warned:
                self._warned.add(entry.account)
                self._closed.append(ReplayedAction(entry=entry, due=at, at=at))

    def all(self) -> tuple[ReplayedAction, ...]:
        """All findings, in the order in which they were due."""
        findings = (*self._closed, *(replace(finding, goes_on=True) for finding in self._open.values()))
        return tuple(sorted(findings, key=lambda f: (f.due.wall_s, f.entry.account.sort_key, f.entry.step_index)))

    def _take_action(self, entry: PlanEntry, at: Now) -> None:
        account = entry.account
        known = self._open.get(account)
        if entry.taken:
            if known is not None and known.at is not None:
                # The ladder has started over, for instance after a new declaration or an absence of the account.
                self._closed.append(known)
                known = None
            self._open[account] = replace(known or ReplayedAction(entry=entry, due=at), entry=entry, at=at)
        elif entry.is_new and (known is None or known.at is None):
            known = known or ReplayedAction(entry=entry, due=at)
            self._open[account] = replace(known, withheld=(*known.withheld, Withholding(entry=entry, at=at)))

    def _close(self, above: set[AccountKey], seen: dict[AccountKey, Assessment]) -> None:
        for account in (self._open.keys() | self._warned) - above:
            assessment = seen.get(account)
            if assessment is not None and assessment.used is None:
                continue  # it is not certain to be below
            self._warned.discard(account)
            if account in self._open:
                self._closed.append(self._open.pop(account))


class NodeAssessor:
    """Assesses the recorded node, as `attribute` and `assess` would have."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._common: tuple[object, ...] = ()
        self._gpus: tuple[Gpu, ...] = ()
        self._cards: tuple[Gpu, ...] = ()
        self._terms: dict[str, tuple[Pod, PodTerms]] = {}
        self._memory = DeclarationMemory()
        self._listed = ListedResources()
        # Each pod by itself, and with what others use of the claims that it shares with them.
        self._alone: dict[str, tuple[Assessment, ...]] = {}
        self._assessed: dict[str, tuple[Assessment, ...]] = {}

    def forget(self, changed: frozenset[str] | None) -> None:
        """Forget the assessments of these changed pods; None: of all."""
        if changed is None:
            self._common = ()
            return
        for uid in changed:
            self._assessed.pop(uid, None)

    def assess(self, node: RecordedNode, at: Now) -> tuple[Assessment, ...]:
        """Every account of the node at a moment; the identical objects for unchanged pods."""
        self.renew(node, at)
        return tuple(assessment for uid in node.pods for assessment in self._assessed[uid])

    def renew(self, node: RecordedNode, at: Now) -> frozenset[str]:
        """Assess what has changed; returns the UIDs of the pods that were assessed again."""
        snapshot = node.snapshot(at)
        common = self._common_inputs(node, at)
        if common != self._common:
            self._common = common
            self._terms.clear()
            self._assessed.clear()
        overdue = frozenset(node.hidden.overdue)
        inputs = Inputs(policy=self._policy, node=node.node, namespaces=node.namespaces, overdue=overdue)
        coverage, short = Coverage.of(snapshot, inputs.node), short_for(self._policy, node.gpus)
        missing = [pod for uid, pod in node.pods.items() if uid not in self._assessed or pod.deletion_deadline_s]
        if missing:
            self._listed.update(tuple(node.pods.values()), node.node, self._policy, at)
        self._memory.begin(self._policy, inputs.node, coverage.cards, self._listed.by_pod)
        for pod in missing:
            known, terms = self._terms.get(pod.uid, (None, None))
            if terms is None or known is not pod:
                terms = PodTerms.of(pod, inputs, self._memory, node.hidden.hazards, short)
                self._terms[pod.uid] = (pod, terms)
            uses = node.uses_of(pod.uid)
            self._alone[pod.uid] = self._assessed[pod.uid] = assess_pod(pod, uses, terms, snapshot, coverage, inputs)
        return frozenset(pod.uid for pod in missing) | self._add_sums()

    def _add_sums(self) -> frozenset[str]:
        """Compare pods that share a claim by what they use of it together; returns the UIDs of those that changed."""
        sharing = [each for uid in self._assessed for each in self._alone[uid] if each.shared]
        now = {each.account: each for each in with_sums(sharing, ())}
        changed = set()
        for uid in {each.pod.uid for each in sharing}:
            after = tuple(now.get(each.account, each) for each in self._alone[uid])
            if after != self._assessed[uid]:
                self._assessed[uid] = after
                changed.add(uid)
        return frozenset(changed)

    def of(self, uid: str) -> tuple[Assessment, ...]:
        """The accounts of one pod."""
        return self._assessed.get(uid, ())

    def _common_inputs(self, node: RecordedNode, at: Now) -> tuple[object, ...]:
        """The inputs on which the assessment of every pod depends."""
        if node.gpus is not self._gpus:
            self._gpus = node.gpus
            self._cards = tuple(replace(gpu, used=None) for gpu in node.gpus)
        active, short = hours_at(self._policy, at), short_for(self._policy, node.gpus)
        return self._cards, node.hidden, node.node, node.namespaces, active, short


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay."""

    findings: tuple[ReplayedAction, ...]
    # How long the node was recorded.
    seen_s: float
    # For how much of that no reading succeeded.
    blind_s: float
    # The number of decisions.
    cycles: int
    # Those with an account, by UID.
    pods: frozenset[str]
    # Those of them that had a limit at some time.
    limited: frozenset[str]


class Replay:
    """Replays spans of cycles under one policy; it finds only the first action of each incident."""

    def __init__(self, policy: Policy, since_s: float = -math.inf) -> None:
        """What lies before `since_s` (Unix time) is replayed, but not counted in `seen_s`."""
        self._policy = self._under = policy
        self._since_s = since_s
        self._ledger = Ledger()
        self._assessor = NodeAssessor(policy)
        self._incidents = Incidents()
        self._axis = _TimeAxis()
        self._node = RecordedNode()
        self._last = Now(boottime_s=0.0, wall_s=0.0, boot_id="")
        self._next_s = math.inf
        self._busy = False
        self._seen_s = self._blind_s = 0.0
        self._cycles = 0
        self._pods: set[str] = set()
        self._limited: set[str] = set()

    def run(self, cycles: Iterable[RecordedCycle]) -> Replayed:
        """Replay these cycles."""
        for cycle in cycles:
            at = self._axis.moment(cycle)
            self._count(cycle, at)
            self._node = cycle.node
            if cycle.kind is RecordKind.SAME:
                self._wait(at)
            else:
                self._assessor.forget(cycle.changed)
                # Two cycles that followed one another count as one interval of the daemon that recorded them.
                self._decide(at, max(cycle.node.interval_s, self._policy.interval_s))
            self._last = at
            if (
                0 < self._next_s - at.boottime_s <= 2 * JUST_AFTER_S
            ):  # it was due: both moments of the wait were rounded
                self._same(self._next_s)
        return Replayed(
            findings=self._incidents.all(),
            seen_s=self._seen_s,
            blind_s=self._blind_s,
            cycles=self._cycles,
            pods=frozenset(self._pods),
            limited=frozenset(self._limited),
        )

    def _count(self, cycle: RecordedCycle, at: Now) -> None:
        passed_s = at.boottime_s - self._last.boottime_s
        if cycle.kind is not RecordKind.FIRST and at.wall_s > self._since_s:
            most_s = math.inf if cycle.kind is RecordKind.SAME else cycle.node.interval_s
            seen_s = min(passed_s, most_s, at.wall_s - self._since_s)
            self._seen_s += seen_s
            self._blind_s += seen_s * self._node.hidden.blind

    def _wait(self, until: Now) -> None:
        """Advance through equal cycles: decide only in those in which something comes due."""
        while self._next_s < until.boottime_s:
            at_s = max(self._next_s, self._last.boottime_s + JUST_AFTER_S)
            if at_s >= until.boottime_s:
                break
            self._same(at_s)
        if self._busy:
            self._same(until.boottime_s)

    def _same(self, at_s: float) -> None:
        """Decide in one of many equal cycles; all the time before it counts."""
        passed_s = at_s - self._last.boottime_s
        at = replace(self._last, boottime_s=at_s, wall_s=self._last.wall_s + passed_s)
        self._decide(at, max(passed_s, self._node.interval_s, self._policy.interval_s))
        self._last = at

    def _decide(self, at: Now, interval_s: float) -> None:
        self._cycles += 1
        if interval_s != self._under.interval_s:
            self._under = replace(self._policy, interval_s=interval_s)
        node, policy = self._node, self._under
        stale_s = self._axis.stale_s(node, policy)
        stale = at.boottime_s > stale_s
        assessments = self._assessor.assess(node, at)
        self._pods.update(each.account.uid for each in assessments)
        self._limited.update(each.account.uid for each in assessments if each.allowed is not None)
        hidden = hidden_pods(node.snapshot(at), node.pods.values())
        pods = PodList(pods=tuple(node.pods.values()))
        inputs = Inputs(policy=policy, node=node.node, pods=pods, pods_stale=stale, hidden=hidden)
        plan = decide(assessments, self._ledger, at, inputs)
        self._ledger = plan.ledger
        for entry in plan.taken:
            if entry.do.enforces:
                self._ledger = self._ledger.note_observed(entry.assessment, at)
        self._incidents.add_plan(plan, assessments, at, stale=stale)
        # An open breaker closes in quiet times and tallies fall, so these have to be decided as well.
        has_tallies = plan.ledger.tallies or any(state.tallies for state in plan.ledger.accounts.values())
        self._busy = bool(plan.entries or has_tallies) or plan.ledger.brakes.opened is not None
        self._next_s = self._next(plan, at, stale_s) if self._busy and not stale else math.inf

    def _next(self, plan: Plan, at: Now, stale_s: float) -> float:
        """The next CLOCK_BOOTTIME at which something comes due without changes."""
        # Of two accounts with the same victim, the second one gets its turn in the next cycle.
        next_s = next_change_s(plan, self._node.pods.values(), self._policy, at, turn_s=self._node.interval_s)
        # Time counts only until the pod list is too old.
        stale = (end_s for end_s in (stale_s, stale_s + JUST_AFTER_S) if end_s > at.boottime_s)
        return min((next_s, *stale))


class _TimeAxis:
    """One time axis for all spans, since the core remembers brakes on the CLOCK_BOOTTIME of one boot.

    Each span appears as a separate boot to the core, so that no ladder continues across unrecorded time.
    """

    def __init__(self) -> None:
        self._shift_s = 0.0
        self._number = 0
        self._boot = ""
        self._last: Now | None = None

    def moment(self, cycle: RecordedCycle) -> Now:
        """The moment of a cycle on the axis."""
        at, last = cycle.at, self._last
        if cycle.kind is RecordKind.FIRST:
            self._number += 1
            if last is not None and at.boot_id != self._boot:
                self._shift_s = last.boottime_s + max(at.wall_s - last.wall_s, 0.0) - at.boottime_s
            self._boot = at.boot_id
        self._last = replace(at, boottime_s=at.boottime_s + self._shift_s, boot_id=f"{at.boot_id}/{self._number}")
        return self._last

    def stale_s(self, node: RecordedNode, policy: Policy) -> float:
        """When the pod list is too old, on the axis."""
        return node.stale_at_s(policy.stale_after_s) + self._shift_s
