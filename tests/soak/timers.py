"""Time of the oracle: every reading of an account is kept, and looked through backwards when a step is asked for."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise

from tests.soak.truth import Fact, Key, TrueUse, threshold_bytes
from watchdog.core.model import Now
from watchdog.core.policy import Policy, Rule, Step


@dataclass(frozen=True, slots=True)
class Read:
    """An account at one reading. `rule` is the one in force, `allowed` what it may use; None: it forms no such account.

    `is_sure`: the reading hid nothing, and the pod list was fresh; `is_stale`: it was not, so that nothing counts.
    """

    at_s: float
    used: int
    allowed: int | None
    rule: Rule | None
    is_sure: bool
    is_stale: bool

    def counts(self, rule: Rule, step: Step) -> bool:
        """Whether it is above a step's threshold, and above some of the rule in force if that is another rule."""
        if (
            self.is_stale
            or self.rule is None
            or self.allowed is None
            or self.used <= threshold_bytes(step, self.allowed)
        ):
            return False
        if self.rule.name == rule.name:
            return True
        counts_here = self.rule.mode != "observe" or rule.mode == "observe"
        return counts_here and any(self.used > threshold_bytes(each, self.allowed) for each in self.rule.steps)

    def ends(self, rule: Rule, step: Step) -> bool:
        """Whether the account was surely at or below the threshold of a step of the rule in force."""
        is_own = self.rule is not None and self.rule.name == rule.name and self.allowed is not None
        return is_own and self.is_sure and self.used <= threshold_bytes(step, self.allowed or 0)


@dataclass(slots=True)
class Dips:
    """The most that a step's second count can be: of one account, or of all accounts of a pod together."""

    most_s: float = 0.0
    # When a reading last said something, and when there was one at all.
    at_s: float | None = None
    read_s: float = float("-inf")
    was_above: bool = False
    top: int = 0

    def says(self, read: Read, rule: Rule, step: Step) -> bool | None:
        """Whether a reading is above the threshold; None: it says nothing."""
        if read.counts(rule, step):
            return True
        surely_below = read.is_sure and not read.is_stale and (read.ends(rule, step) or read.used <= self.top)
        return False if surely_below else None

    def add(self, at_s: float, is_above: bool | None, step: Step, policy: Policy) -> None:
        """One more reading; without any for too long it is 0 again. One that says nothing is as none."""
        if at_s - self.read_s >= reset_after_s(policy):
            self.most_s, self.was_above = 0.0, False
        self.read_s = at_s
        if is_above is None:
            return
        passed_s, self.at_s = 0.0 if self.at_s is None else at_s - self.at_s, at_s
        counted_s = min(passed_s, policy.interval_s)
        lost_s = (
            0.0 if is_above and self.was_above else 1.5 * counted_s if is_above or self.was_above else 3 * counted_s
        )
        self.most_s = min(max(self.most_s + counted_s - lost_s, 0.0), 2 * step.for_s)
        self.was_above = is_above


@dataclass(slots=True)
class Ladder:
    """What is known of one account: its readings since it was calm, and when each rule was in force first.

    `known_s` has the same since it was formed last with a known allowance: the daemon begins an account by that, and
    outside of an incident forgets one that is not formed. It begins none while what an idle pod declares waits to be
    read, but one that there is goes on.
    `acted` says that an action has begun since it was last below all thresholds, `failed` that one could not;
    `enforced_s` is when the last action ended.
    """

    reads: list[Read] = field(default_factory=list)
    rules: dict[str, tuple[Rule, float]] = field(default_factory=dict)
    known_s: dict[str, float] = field(default_factory=dict)
    acted: bool = False
    failed: bool = False
    enforced_s: float = float("-inf")
    dips: dict[tuple[str, Step], Dips] = field(default_factory=dict)

    def backwards(self, rule: Rule, step: Step) -> Iterator[Read]:
        """The readings that a step can have counted, the last one first."""
        since_s = self.rules[rule.name][1] if rule.name in self.rules else float("inf")
        since_s = since_s if step.do == "warn" else max(since_s, self.enforced_s)
        for read in reversed(self.reads):
            if read.at_s < since_s:
                return
            yield read

    def add(self, read: Read, *, begins: bool) -> None:
        """Take one more reading in; once it is surely below every threshold that it has met, all is forgotten.

        `begins` says whether it begins an account for the daemon.
        """
        if read.rule is not None and read.allowed is not None and (begins or self.known_s):
            self.known_s.setdefault(read.rule.name, read.at_s)
        if read.rule is not None:
            self.rules[read.rule.name] = read.rule, self.rules.get(read.rule.name, (read.rule, read.at_s))[1]
        is_calm = read.used <= self._lowest(read)
        if is_calm and read.rule is None:
            self.known_s.clear()
        if is_calm and read.is_sure:
            self.reads.clear()
            if read.allowed is not None:
                self.acted = self.failed = False
        self.reads.append(read)

    def _lowest(self, read: Read) -> int:
        allowed = [each.allowed for each in (*self.reads, read) if each.allowed is not None]
        steps = [step for rule, _ in self.rules.values() for step in rule.steps]
        return min((threshold_bytes(step, min(allowed)) for step in steps), default=-1) if allowed else -1


class Timers:
    """The ladders of all accounts."""

    def __init__(self) -> None:
        self.ladders: dict[Key, Ladder] = {}
        self.pods: dict[str, dict[tuple[str, Step], Dips]] = {}
        self._ended: set[str] = set()  # pods with an action whose end has become known since the last reading
        self._policy: Policy | None = None

    def reset(self) -> None:
        self.ladders.clear()
        self.pods.clear()
        self._ended.clear()

    def reload(self, before: Policy, after: Policy) -> None:
        """Another policy: all starts over unless it differs in brakes, protection and the times that are no step's."""
        if _counted_by(before) != _counted_by(after):
            self.reset()

    def end_enforcement(self, key: Key, now_s: float) -> None:
        """An action on the account has ended: its steps of enforcement start over."""
        if key in self.ladders:
            self.ladders[key].enforced_s = now_s
            self.ladders[key].dips = _of_warnings(self.ladders[key].dips)

    def end_of_pod(self, uid: str) -> None:
        """The daemon knows that an action on one of the pod's accounts has ended: their common counts start over.

        What the others are due for by the last reading stays due until the next one.
        """
        self._ended.add(uid)

    def note_acted(self, key: Key) -> None:
        if key in self.ladders:
            self.ladders[key].acted = True

    def note_failed(self, key: Key, *, had_begun: bool = False) -> None:
        """A step on the account has failed: it is tried again later.

        One that had begun was remembered although the account may have started over since.
        """
        if had_begun:
            self.ladders.setdefault(key, Ladder())
        if key in self.ladders:
            self.ladders[key].failed = True

    def due(self, fact: Fact, step: Step, *, looked: bool = False) -> bool:
        """Whether the time of a step can have passed: in the longest run of readings that may have been one stretch.

        `looked` says that the fact is from the last look: one more reading, which adds no time of its own.
        """
        ladder, policy = self.ladders.get(fact.key), self._policy
        if ladder is None or policy is None:
            return False
        counted_s, later_s, seen_s = 0.0, None, None
        least, top, has_counted = float("inf"), 0, looked
        if looked:
            least, top = fact.used, threshold_bytes(step, fact.allowed or 0)
        for read in ladder.backwards(fact.rule, step):
            counts = read.counts(fact.rule, step)
            if counts:
                top = max(top, threshold_bytes(step, read.allowed or 0))
            if counts or (read.is_sure and not read.is_stale):
                least = min(least, read.used)
            if least <= top or read.ends(fact.rule, step):
                break
            if seen_s is not None and seen_s - read.at_s >= reset_after_s(policy):
                break
            if not read.is_stale and read.used > top:
                seen_s = read.at_s
            if counts:
                counted_s += 0.0 if later_s is None else min(later_s - read.at_s, policy.interval_s)
                later_s, has_counted = read.at_s, True
        return has_counted and (counted_s >= step.for_s or self._dips_are_due(ladder, fact, step))

    def _dips_are_due(self, ladder: Ladder, fact: Fact, step: Step) -> bool:
        """Whether the second count of the account, or of its pod, can have come to twice the time."""
        if step.under_pressure or not step.for_s:
            return False
        key = fact.rule.name, step
        counts = (ladder.dips.get(key), self.pods.get(fact.key[0], {}).get(key))
        return any(dips is not None and dips.most_s >= 2 * step.for_s - 1e-6 for dips in counts)

    def surely_due(self, fact: Fact, step: Step) -> bool:
        """Whether the time of a step has passed in readings that hid nothing, whatever was before them."""
        ladder, policy = self.ladders.get(fact.key), self._policy
        if ladder is None or policy is None:
            return False
        least, top, run, is_running = float("inf"), 0, list[float](), True
        known_s = ladder.known_s.get(fact.rule.name, float("inf"))
        for read in ladder.backwards(fact.rule, step):
            # The action may have ended after a reading of the same moment.
            if read.ends(fact.rule, step) or (step.do != "warn" and read.at_s <= ladder.enforced_s):
                break
            bound = threshold_bytes(step, read.allowed or 0)
            top, least = max(top, bound), min(least, read.used) if read.used > bound else least
            is_running = is_running and read.at_s >= known_s and read.is_sure and read.counts(fact.rule, step)
            if is_running:
                run.append(read.at_s)
        gaps = [later - earlier for later, earlier in pairwise(run)]
        if least <= top or not run or any(gap >= reset_after_s(policy) for gap in gaps):
            return False
        return sum(min(gap, policy.interval_s) for gap in gaps) >= step.for_s

    def is_rewritten(self, key: Key) -> bool:
        """Whether a tenant has changed the rule or the amount of an account since it was calm."""
        ladder = self.ladders.get(key)
        met = {(read.rule and read.rule.name, read.allowed) for read in ladder.reads} if ladder is not None else set()
        return len(met) > 1

    def read(
        self,
        facts: Mapping[Key, Fact],
        uses: Mapping[str, list[TrueUse]],
        tenants: Mapping[str, object],
        policy: Policy,
        now: Now,
        *,
        stale: bool,
        bright: bool,
        unread: AbstractSet[str],
    ) -> None:
        """Take one reading in. An account that is not formed, while its pod is there, is read by what the pod uses.

        `unread` are the pods whose declaration waits to be read; those that use memory come first (docs/sizing.md).
        """
        self._policy = policy
        self.ladders = {key: ladder for key, ladder in self.ladders.items() if key[0] in tenants}
        of_pod: dict[str, list[tuple[Ladder, Read]]] = {}
        for key in {**self.ladders, **facts}:
            fact = facts.get(key)
            if fact is None:
                used, allowed, rule, is_known = _used(key, uses), None, None, bright
            else:
                used, allowed, rule, is_known = fact.used, fact.allowed, fact.rule, fact.is_known
            read = Read(now.boottime_s, used, allowed, rule, is_known and not stale, stale)
            self.ladders.setdefault(key, Ladder()).add(read, begins=key[0] not in unread or key[0] in uses)
            of_pod.setdefault(key[0], []).append((self.ladders[key], read))
        self.pods = {
            uid: _of_warnings(dips) if uid in self._ended else dips for uid, dips in self.pods.items() if uid in tenants
        }
        self._ended.clear()
        for uid, reads in of_pod.items():
            self._note_dips(uid, reads, policy)

    def _note_dips(self, uid: str, reads: list[tuple[Ladder, Read]], policy: Policy) -> None:
        """The second counts of a pod's accounts, and of all of them together, after a reading."""
        rules = {name: rule for ladder, _ in reads for name, (rule, _) in ladder.rules.items()}
        of_pod = self.pods.setdefault(uid, {})
        for rule, step in [(each, step) for each in rules.values() for step in each.steps]:
            together = of_pod.setdefault((rule.name, step), Dips())
            found: set[bool | None] = set()
            for ladder, read in reads:
                dips = ladder.dips.setdefault((rule.name, step), Dips())
                dips.top = threshold_bytes(step, read.allowed or 0) if read.counts(rule, step) else dips.top
                says = dips.says(read, rule, step)
                is_own = rule.name in ladder.rules
                dips.add(read.at_s, says if is_own else None, step, policy)
                found.add(says if is_own or says else None)  # a pod has run under the rules of all its accounts
            is_above = True if True in found else None if None in found else False
            together.add(reads[0][1].at_s, is_above, step, policy)


def reset_after_s(policy: Policy) -> float:
    """After how long without a reading that says something every stretch has ended."""
    return max(3 * policy.interval_s, 10.0)


def _of_warnings(dips: Mapping[tuple[str, Step], Dips]) -> dict[tuple[str, Step], Dips]:
    return {key: each for key, each in dips.items() if key[1].do == "warn"}


def _used(key: Key, uses: Mapping[str, list[TrueUse]]) -> int:
    uid, name, gpu = key
    own = (use for use in uses.get(uid, []) if name in (None, use.container) and gpu in (None, use.gpu))
    return sum(use.used or 0 for use in own)


def _counted_by(policy: Policy) -> tuple[object, ...]:
    """All of a policy that time above a threshold depends on."""
    return policy.mode, policy.interval_s, policy.allowance, policy.rules
