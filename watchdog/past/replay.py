"""The past under another policy: what would have been done, incident by incident."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from watchdog.core.assess import Darkness, PodTerms, Setting, assess_pod, hidden_pods, short_for
from watchdog.core.assessment import AccountKey, Assessment
from watchdog.core.brakes import Brake
from watchdog.core.decide import decide
from watchdog.core.ledger import Ledger
from watchdog.core.model import Gpu, Now, Pod, Snapshot
from watchdog.core.plan import Conditions, Plan, PlanEntry
from watchdog.core.policy import Policy
from watchdog.core.rules import MOST_TERMINATING_S, hours_at
from watchdog.past.read import RecordedCycle, RecordedNode, RecordKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Withholding:
    """An action held back from a moment on: the entry says by which brake, and when that was to let go."""

    entry: PlanEntry
    at: Now

    @property
    def lets_go_s(self) -> float | None:
        """The Unix time at which the brake was to let go; None: that was not a matter of time."""
        wait_s = self.entry.lets_go_in_s
        return None if wait_s is None else self.at.wall_s + wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The first action of an incident, or a warning in it: the entry as it stood when it was due.

    `due` is when it first was due, `at` when nothing held it back any more; None: something did until the incident
    ended, or until the end of the past where it `goes_on`.
    """

    entry: PlanEntry
    due: Now
    at: Now | None = None
    withheld: tuple[Withholding, ...] = ()
    goes_on: bool = False

    @property
    def is_let_through(self) -> bool:
        """Whether nothing held it back in the end."""
        return self.at is not None


class Incidents:
    """Collects what plans come to; an incident of an account lasts until a sure reading below all of its marks."""

    def __init__(self) -> None:
        self._open: dict[AccountKey, Found] = {}
        self._warned: set[AccountKey] = set()
        self._closed: list[Found] = []

    def take(self, plan: Plan, assessments: Iterable[Assessment], at: Now, *, stale: bool) -> None:
        """Take in the plan of one cycle."""
        above = {entry.account for entry in plan.entries}
        if not stale and (self._open or self._warned) and not (self._open.keys() | self._warned) <= above:
            self._close(above, {each.account: each for each in assessments})
        for entry in plan.entries:
            if entry.do.is_force:
                self._take_force(entry, at)
            elif entry.taken and entry.account not in self._warned:
                self._warned.add(entry.account)
                self._closed.append(Found(entry=entry, due=at, at=at))

    def all(self) -> tuple[Found, ...]:
        """Everything that was found, in the order in which it was due."""
        found = (*self._closed, *(replace(each, goes_on=True) for each in self._open.values()))
        return tuple(sorted(found, key=lambda each: (each.due.wall_s, each.entry.account.sort_key, each.entry.step)))

    def _take_force(self, entry: PlanEntry, at: Now) -> None:
        account = entry.account
        known = self._open.get(account)
        if entry.taken:
            if known is not None and known.at is not None:
                # The ladder has started over: another declaration, say, or the account was not there for a while.
                self._closed.append(known)
                known = None
            self._open[account] = replace(known or Found(entry=entry, due=at), entry=entry, at=at)
        elif entry.news and (known is None or known.at is None):
            known = known or Found(entry=entry, due=at)
            self._open[account] = replace(known, withheld=(*known.withheld, Withholding(entry=entry, at=at)))

    def _close(self, above: set[AccountKey], seen: dict[AccountKey, Assessment]) -> None:
        for account in (self._open.keys() | self._warned) - above:
            standing = seen.get(account)
            if standing is not None and standing.used is None:
                continue  # nothing says that it has come down
            self._warned.discard(account)
            if account in self._open:
                self._closed.append(self._open.pop(account))


@dataclass(frozen=True, slots=True)
class _Ground:
    """What the assessment of every pod depends on."""

    cards: object
    dark: object
    labels: object
    hours: tuple[bool, ...]
    short: frozenset[str]


class Judge:
    """Gives what `attribute` and `assess` gave, or would have given, of the node as it was."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._ground: _Ground | None = None
        self._gpus: tuple[Gpu, ...] = ()
        self._cards: object = ()
        self._terms: dict[str, tuple[Pod, PodTerms]] = {}
        self._found: dict[str, tuple[Assessment, ...]] = {}

    def forget(self, changed: frozenset[str] | None) -> None:
        """These pods are not as they were; None: all."""
        if changed is None:
            self._ground = None
            return
        for uid in changed:
            self._found.pop(uid, None)

    def assess(self, scene: RecordedNode, at: Now) -> tuple[Assessment, ...]:
        """Every account of the scene at a moment; the very same objects where nothing about a pod has changed."""
        self.renew(scene, at)
        return tuple(each for uid in scene.pods for each in self._found[uid])

    def renew(self, scene: RecordedNode, at: Now) -> frozenset[str]:
        """Work out what has changed; the UIDs of the pods that were assessed again."""
        snapshot = scene.snapshot(at)
        ground = self._ground_of(scene, snapshot)
        if ground != self._ground:
            self._ground = ground
            self._terms.clear()
            self._found.clear()
        setting = Setting(policy=self._policy, node=scene.node, namespaces=scene.namespaces)
        dark = Darkness.of(snapshot, setting.node)
        missing = [pod for uid, pod in scene.pods.items() if uid not in self._found or pod.deletion_deadline_s]
        for pod in missing:
            known, terms = self._terms.get(pod.uid, (None, None))
            if terms is None or known is not pod:
                terms = PodTerms.of(pod, dark.cards, setting, scene.dark.mps)
                self._terms[pod.uid] = (pod, terms)
            self._found[pod.uid] = assess_pod(pod, scene.uses_of(pod.uid), terms, snapshot, dark, setting)
        return frozenset(pod.uid for pod in missing)

    def of(self, uid: str) -> tuple[Assessment, ...]:
        """The accounts of one pod."""
        return self._found.get(uid, ())

    def _ground_of(self, scene: RecordedNode, snapshot: Snapshot) -> _Ground:
        if scene.gpus is not self._gpus:
            self._gpus = scene.gpus
            self._cards = tuple(replace(gpu, used=None) for gpu in scene.gpus)
        return _Ground(
            cards=self._cards,
            dark=scene.dark,
            labels=(scene.node, scene.namespaces),
            hours=hours_at(self._policy, snapshot.at),
            short=short_for(self._policy, scene.gpus),
        )


_LEAST_S = 0.001  # moments are kept to the millisecond


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came of a replay: what it found, how long the node was seen, and in how many passes it was decided."""

    found: tuple[Found, ...]
    seen_s: float
    passes: int


class Replay:
    """Lives through spans of looks under one policy; gives the first action of each incident and claims no more."""

    def __init__(self, policy: Policy, since_s: float = -math.inf) -> None:
        """What lies before `since_s` (Unix time) is lived through, and does not count as seen."""
        self._policy = self._under = policy
        self._since_s = since_s
        self._ledger = Ledger()
        self._judge = Judge(policy)
        self._incidents = Incidents()
        self._axis = _Axis()
        self._scene = RecordedNode()
        self._last = Now(boottime_s=0.0, wall_s=0.0, boot_id="")
        self._next_s = math.inf
        self._busy = False
        self._seen_s = 0.0
        self._passes = 0

    def run(self, span: Iterable[RecordedCycle]) -> None:
        """Live through one span."""
        for look in span:
            at = self._axis.moment(look)
            self._scene = look.scene
            self._count(look, at)
            if look.kind is RecordKind.SAME:
                self._wait(at)
            else:
                self._judge.forget(look.changed)
                # Two passes that followed one another count as one interval of whoever made them.
                self._pass(at, max(look.scene.interval_s, self._policy.interval_s))
            self._last = at

    def result(self) -> Replayed:
        """What has been found so far."""
        return Replayed(found=self._incidents.all(), seen_s=self._seen_s, passes=self._passes)

    def _count(self, look: RecordedCycle, at: Now) -> None:
        passed_s = at.boottime_s - self._last.boottime_s
        if look.kind is not RecordKind.FIRST and at.wall_s > self._since_s:
            most_s = math.inf if look.kind is RecordKind.SAME else look.scene.interval_s
            self._seen_s += min(passed_s, most_s, at.wall_s - self._since_s)

    def _wait(self, until: Now) -> None:
        """Every cycle until then read the same: only those count in which something comes due."""
        while self._next_s < until.boottime_s:
            at_s = max(self._next_s, self._last.boottime_s + _LEAST_S)
            if at_s >= until.boottime_s:
                break
            self._same(at_s)
        if self._busy:
            self._same(until.boottime_s)

    def _same(self, at_s: float) -> None:
        """A cycle in the middle of many, all the time before which counts."""
        passed_s = at_s - self._last.boottime_s
        at = replace(self._last, boottime_s=at_s, wall_s=self._last.wall_s + passed_s)
        self._pass(at, max(passed_s, self._scene.interval_s, self._policy.interval_s))
        self._last = at

    def _pass(self, at: Now, interval_s: float) -> None:
        self._passes += 1
        if interval_s != self._under.interval_s:
            self._under = replace(self._policy, interval_s=interval_s)
        scene, policy = self._scene, self._under
        stale_s = self._axis.stale_s(scene, policy)
        stale = at.boottime_s > stale_s
        assessments = self._judge.assess(scene, at)
        hidden = hidden_pods(scene.snapshot(at), scene.pods.values())
        plan = decide(assessments, policy, self._ledger, at, Conditions(pods_stale=stale, hidden=hidden))
        self._ledger = plan.ledger
        for entry in plan.actions:
            if entry.do.is_force:
                self._ledger = self._ledger.note_observed(entry.assessment, at)
        self._incidents.take(plan, assessments, at, stale=stale)
        # A breaker that is open closes in quiet times, and has to see them.
        self._busy = bool(plan.entries) or plan.ledger.brakes.opened is not None
        self._next_s = self._next(plan, at, stale_s) if self._busy and not stale else math.inf

    def _next(self, plan: Plan, at: Now, stale_s: float) -> float:
        """When, if nothing changes, a step comes due, a brake or a protection lets go, or the hours of a rule end."""
        waits = [self._wait_of(entry) for entry in plan.entries]
        for pod in self._scene.pods.values():
            since_s = pod.terminating_since.wall_s + MOST_TERMINATING_S if pod.terminating_since else None
            ends = (end_s for end_s in (pod.deletion_deadline_s, since_s) if end_s is not None)
            waits += [end_s - at.wall_s + _LEAST_S for end_s in ends]
        hours = (rule.active for rule in self._policy.rules if rule.active is not None)
        waits += [each.next_change_s(at.wall_s) - at.wall_s for each in hours]
        # Until the pod list is too old the time counts, and then it does not.
        waits += [stale_s - at.boottime_s, stale_s - at.boottime_s + _LEAST_S]
        return at.boottime_s + min((wait for wait in waits if wait > 0), default=math.inf)

    def _wait_of(self, entry: PlanEntry) -> float:
        if entry.due_in_s > 0:
            return entry.due_in_s
        # Of two accounts with the same victim the second one comes to its turn with the next cycle.
        return self._scene.interval_s if entry.withheld_by is Brake.PENDING else entry.lets_go_in_s or 0.0


class _Axis:
    """One axis of time for all spans: the core remembers brakes in the boot time of one boot.

    Each span is a boot of its own to the core, so that no ladder goes on over the time that nobody saw.
    """

    def __init__(self) -> None:
        self._shift_s = 0.0
        self._number = 0
        self._boot = ""
        self._last: Now | None = None

    def moment(self, look: RecordedCycle) -> Now:
        """The moment of a look on the axis."""
        at, last = look.at, self._last
        if look.kind is RecordKind.FIRST:
            self._number += 1
            if last is not None and at.boot_id != self._boot:
                self._shift_s = last.boottime_s + max(at.wall_s - last.wall_s, 0.0) - at.boottime_s
            self._boot = at.boot_id
        self._last = replace(at, boottime_s=at.boottime_s + self._shift_s, boot_id=f"{at.boot_id}/{self._number}")
        return self._last

    def stale_s(self, scene: RecordedNode, policy: Policy) -> float:
        """When the pod list is too old, on the axis."""
        return scene.stale_at_s(policy.stale_after_s) + self._shift_s
