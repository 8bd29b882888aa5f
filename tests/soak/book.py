"""The oracle: what was read, what was intended and who was signalled, each held against the laws at once."""

import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from tests.soak.actionbook import ENDED, ActionBook, TrackedAction
from tests.soak.brakebook import Begun, BrakeBook, counts, is_ready, perhaps_due
from tests.soak.claims import Given
from tests.soak.cluster import Tenant
from tests.soak.driver import Listed, TrueReading
from tests.soak.signalbook import LAW4, WRITTEN, SignalBook
from tests.soak.standing import Reading, Standing
from tests.soak.timers import Timers
from tests.soak.transferbook import TransferBook
from tests.soak.truth import (
    Fact,
    Key,
    Sight,
    TrueUse,
    comes_first,
    facts_of,
    heirs,
    is_bright,
    is_masked,
    lags,
    protected,
    tenants_uses,
    threshold_bytes,
    victims,
)
from tests.soak.violation import fail
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import PlanEntry, Result
from watchdog.core.policy import Policy, Step, Threshold

_SPEC_GRACE_S: Final = 30.0  # what a spec has if nothing is said
_KEPT_S: Final = 600.0  # a container that is not in the list and was not seen for so long is forgotten
_SETTLES_S: Final = 15.0  # after the end of an action on a pod: until then the daemon may still have its doubts
LAW3: Final = "law 3, unknown or stale input never leads to enforcement"
JOURNAL: Final = "point 31, journal first"
LEFT: Final = "point 28, a pod that has left stays known while its processes live"
LISTED: Final = "point 13, an unknown container counts once the list should have had it for a minute"
COUNTED: Final = "point 29, an action that was begun counts"
FRESH: Final = "point 22, the last look is at most 2 s old, and after the commit of the intention"
TOGETHER: Final = "point 42, of those above a claim together the one that uses the most is acted on"
LAW5: Final = "law 5, nothing is acted on before its time"
OBSERVES: Final = "law 7, a rule that observes takes no action"


class Book:
    """Knows the truth, remembers everything, and fails at the first step that should not have been taken."""

    def __init__(self, policy: Policy) -> None:
        self.standing = Standing(policy)
        self.seen, self.tail = self.standing.seen, self.standing.tail
        self.timers = Timers()
        self.transfers = TransferBook(self.standing.seen)
        self.brakes = BrakeBook()
        self.actions = ActionBook(self.standing, self.timers)
        self.signals = SignalBook(self.standing, self.actions)
        self.begun_now: set[Key] = set()
        self.put_off: dict[Key, int] = {}
        self._is_written = True
        self._dying_s: dict[str, float] = {}
        self._listed: dict[str, Tenant] = {}  # as they were listed last
        self._departed: dict[str, Tenant] = {}  # as they left, also while a new daemon does not know of them
        self._left_under: dict[str, Policy] = {}  # what of a pod is kept once it has left
        self._intended: dict[int, TrackedAction] = {}  # on disk, and no signal yet
        self._withdrawn: dict[int, TrackedAction] = {}
        # When the daemon saw a container first at the earliest, and at the latest; when it did last at the latest, and
        # at the earliest.
        self._unlisted: dict[tuple[str, str], tuple[float, float, float, float]] = {}

    def daemon_starts(self, now: Now) -> None:
        """Nothing is known to the new one but what the journal holds."""
        self._dying_s.clear()
        self._unlisted.clear()
        self.standing.life += 1
        self.standing.reading = None
        self.timers.reset()
        self.transfers.daemon_starts()
        self.actions.daemon_starts(now)

    def forget(self, now: Now, *, lost: bool) -> None:
        """The journal was lost while no daemon ran: a new one can't know what was begun, and whether anything was."""
        self.brakes.forget(now, lost=lost)
        self.transfers.forget()
        self.actions.forget()
        self._intended.clear()
        self._withdrawn.clear()

    def journal_opens(self, now: Now, counted: set[int], unfinished: set[int]) -> None:
        """The daemon learns what earlier ones left; a breaker that turned while the disk was full may not be in it.

        What was on disk, and not withdrawn there, counts for the new daemon as if it had begun; what is `unfinished`
        there, it waits for.
        """
        self.actions.journal_opens(unfinished, now)
        for number, action in {**self._withdrawn, **self._intended}.items():
            if number in counted:
                self.brakes.begun.append(Begun(action.owner, action.dated, action.dated.boottime_s))
                action.ends_s = now.boottime_s + self.standing.policy.release_timeout_s
                self.actions.open[number] = action
        self._intended.clear()
        self._withdrawn.clear()
        self.standing.opened_s = now.boottime_s
        self.brakes.daemon_starts(now)
        if not self._is_written:
            self.brakes.doubt(now)
        self._is_written = True

    def see_pods(
        self,
        tenants: Mapping[str, Tenant],
        synced: Now | None,
        now: Now,
        *,
        left: AbstractSet[str] = frozenset(),
        gone: AbstractSet[str] = frozenset(),
        given: Mapping[tuple[str, str], Given] = MappingProxyType({}),
    ) -> None:
        """The pod list as the daemon reads it at this moment; `left` are those that it holds to have left.

        `gone` are all that were deleted, as far as a daemon can know; `given` is what it knows of claims.
        """
        here = self.standing
        # A daemon that has just started knows of them once it has read its journal: as of when they left.
        self._departed = {uid: each for uid, each in self._departed.items() if uid not in tenants}
        departed = {uid: self._departed.get(uid) or self._departs(uid, gone, now) for uid in left}
        self._departed |= departed
        self._left_under = {uid: self._left_under.get(uid, here.policy) for uid in self._departed}
        self._listed |= tenants
        self._dying_s = {uid: at_s for uid, at_s in self._dying_s.items() if uid in tenants or uid not in gone}
        for uid, tenant in tenants.items():
            if tenant.deadline_s is not None:
                self._dying_s.setdefault(uid, now.boottime_s)
        here.tenants = {uid: replace(t, dying_s=self._dying_s.get(uid)) for uid, t in tenants.items()} | departed
        here.synced, here.given = synced, given
        is_of_this_boot = synced is not None and synced.boot_id == now.boot_id
        age_s = now.boottime_s - (synced.boottime_s if synced is not None else 0.0)
        here.stale = not is_of_this_boot or age_s > here.policy.stale_after_s

    def _departs(self, uid: str, gone: AbstractSet[str], now: Now) -> Tenant:
        """Point 28: a pod that has left is as it was listed last, with the time of its spec if it had no deadline."""
        if uid not in gone or uid not in self._listed:
            fail(LEFT, f"{uid} is held to have left")
        last = self._listed[uid]
        deadline_s = now.wall_s + _SPEC_GRACE_S if last.deadline_s is None else last.deadline_s
        return replace(last, deadline_s=deadline_s, dying_s=self._dying_s.get(uid, now.boottime_s))

    def may_lack_keys(self, uid: str) -> bool:
        """Whether a pod has left, and the policy has changed since: it may read what is not kept."""
        return self._left_under.get(uid, self.standing.policy) is not self.standing.policy

    def boxes_of(self, uid: str) -> frozenset[str]:
        """The containers of a pod whose IDs the list had when the daemon saw it last."""
        tenant = self._listed.get(uid)
        return frozenset(box.cid for box in tenant.boxes if box.known) if tenant is not None else frozenset()

    def enforcement(self, *, enforcing: bool) -> None:
        """Whether enforcement is permitted from now on."""
        if enforcing and not self.standing.enforcing:
            self.timers.reset()
            self.brakes.turns.reset()
            self.seen["enforcement began"] += 1
        self.standing.enforcing = enforcing

    def policy_is_written(self, now: Now) -> None:
        """The daemon can see that its policy is being written."""
        if self.standing.waiting_s is None:
            self.standing.waiting_s = now.boottime_s

    def policy(self, policy: Policy, half: Policy | None, *, starts: bool) -> None:
        """The daemon goes by this policy from now on; only at its start may it be `half` of one."""
        if policy is half and not starts:
            fail(WRITTEN, "half a policy is loaded")
        self.seen["policy written slowly"] += not starts and self.standing.waiting_s is not None
        self.standing.policy, self.standing.is_half, self.standing.waiting_s = policy, policy is half, None
        self.seen["started by half a policy"] += policy is half

    def read(
        self,
        truth: TrueReading,
        asked: Now,
        overdue: frozenset[tuple[str, str]],
        unread: frozenset[str],
        *,
        written: bool,
    ) -> None:
        """A reading has been taken as far as its plan; nothing has been done about it yet.

        `overdue` are the containers (pod, ID) of which the daemon holds that the list should have them by now, `unread`
        the pods whose declaration it has left for a later cycle.
        """
        here = self.standing
        bright = is_bright(truth, here.answers)
        uses = tenants_uses(truth.lines, here.answers, here.tenants)
        self.actions.saw((use for each in uses.values() for use in each), truth)
        perhaps, surely = self._overdue(asked)
        if not surely <= overdue <= perhaps:
            fail(LISTED, f"overdue are {set(overdue)}; surely {set(surely)}, perhaps {set(perhaps)}")
        here.overdue = overdue
        sight = self._sight(truth)
        self._note_unlisted(uses, truth, asked)
        bright = bright and not any(lags(use, uid, sight) for uid, each in uses.items() for use in each)
        facts = facts_of(uses, here.tenants, here.policy, sight, bright=bright)
        here.reading = Reading(truth, dict(here.answers), asked, facts, bright)
        self.timers.read(facts, uses, here.tenants, here.policy, asked, stale=here.stale, bright=bright, unread=unread)
        sure = bright and not here.stale
        # What is never let through does not count for the breaker.
        free = {key for key, fact in facts.items() if not here.is_withheld_for_mps(fact) and self.is_on_its_own(fact)}
        opened = self.brakes.look(
            facts, self.timers, here.policy, asked, sure=sure, enforcing=here.enforcing, free=free
        )
        self.seen["breaker opened"] += opened
        self._note_withheld(facts, asked)
        self.seen["bright reading"] += bright
        self._is_written = self._is_written and written

    def _sight(self, truth: TrueReading) -> Sight:
        here, reading = self.standing, truth.reading
        masked = is_masked((line for line in truth.lines if line.used != 0), here.answers)
        hidden = reading.blind or reading.missing or reading.unseen or masked
        return Sight(
            sizes={gpu.uuid: gpu.total or 0 for gpu in reading.gpus},
            answer=not reading.blind and all(gpu.up for gpu in reading.gpus),
            hidden=bool(reading.missing),
            labelled=here.labelled,
            given=here.given,
            lit=not hidden and all(gpu.listed for gpu in reading.gpus),
            overdue=here.overdue,
            heirs=heirs(truth, here.answers, here.tenants),
        )

    def _overdue(self, asked: Now) -> list[frozenset[tuple[str, str]]]:
        """The containers that were first seen a minute ago and are still not in the list, although it was synced.

        Those of which that can be, and those of which it is sure.
        """
        synced = self.standing.synced
        if synced is None or synced.boot_id != asked.boot_id:
            return [frozenset(), frozenset()]
        return [
            frozenset(
                key
                for key, seen in self._unlisted.items()
                if asked.boottime_s - seen[place] >= 60.0 and synced.boottime_s > seen[place]
            )
            for place in (0, 1)
        ]

    def _note_unlisted(self, uses: Mapping[str, list[TrueUse]], truth: TrueReading, asked: Now) -> None:
        here, now_s = self.standing, asked.boottime_s
        listed = {(uid, box.cid) for uid, t in here.tenants.items() for box in t.boxes if box.known}
        kept = {
            # One that was surely seen last so long ago may have been forgotten.
            key: (first_s, sure_s if now_s - last_s <= _KEPT_S else math.inf, seen_s, last_s)
            for key, (first_s, sure_s, seen_s, last_s) in self._unlisted.items()
            if key not in listed and now_s - seen_s <= _KEPT_S
        }
        new = [(uid, use) for uid, each in uses.items() for use in each if not use.container]
        sure = {(uid, use.task.container or "") for uid, use in new if use.gpu not in truth.dark}
        for key in {(uid, use.task.container or "") for uid, use in new} | (self._of_another(truth) - listed):
            first_s, sure_s, _, last_s = kept.get(key, (now_s, math.inf, now_s, now_s))
            if key in sure:
                sure_s, last_s = min(sure_s, now_s), now_s
            kept[key] = first_s, sure_s, now_s, last_s
            self.seen["container not in the list"] += 1
            self.seen["container overdue"] += key in here.overdue
        self._unlisted = kept

    def _of_another(self, truth: TrueReading) -> set[tuple[str, str]]:
        """The containers of processes that have the PID of a listed one, and are seen because of it."""
        here = self.standing
        found = heirs(truth, here.answers, here.tenants)
        return {(uid, container) for uid, container, _, _ in found if uid in here.tenants}

    def intended(self, number: int, entry: PlanEntry, keys: Iterable[ProcessKey], dated: Now, now: Now) -> None:
        """The daemon has written down what it is about to do, with the moment at which it handed that in."""
        here, account, pod, meant = self.standing, entry.account, entry.assessment.pod, entry.definition
        boxes = [box for box in pod.containers if meant.scope == "pod" or box.name == entry.victim]
        self._intended[number] = TrackedAction(
            number=number,
            key=(account.uid, account.container, account.gpu),
            owner=(pod.namespace, pod.workload.kind, pod.workload.name),
            step=replace(meant, above=Threshold(amount=entry.threshold_bytes), for_s=0.0),
            threshold_bytes=entry.threshold_bytes,
            names=frozenset(box.name for box in boxes),
            boxes=frozenset[str]().union(*(box.ids for box in boxes)),
            targets=frozenset(keys),
            dated=dated,
            began=now,
            ends_s=now.boottime_s + meant.grace_s + here.policy.release_timeout_s,
            life=here.life,
        )
        reading = here.reading
        if reading is not None and reading.asked.boottime_s <= dated.boottime_s:  # otherwise the disk was slow
            self._check_its_victim(self._intended[number], entry)
            self._check_its_turn(self._intended[number])
        self.seen["intended"] += 1

    def _check_its_victim(self, chosen: TrackedAction, entry: PlanEntry) -> None:
        """Point 21: whether another container is farther above its own declaration in the plan's reading."""
        reading = self.standing.reading
        fact = reading.facts.get(chosen.key) if reading is not None else None
        found = victims(fact) if fact is not None and chosen.step.scope != "pod" else []
        if found and entry.victim != found[0]:
            fail(LAW4, f"{chosen.key}: the plan is about {entry.victim!r}, and farthest over is {found[0]!r}")

    def _ready(self, facts: Mapping[Key, Fact], asked: Now) -> list[Fact]:
        """The accounts on which a kill is surely due, and that nothing but a brake that counts actions can withhold."""
        here = self.standing
        busy = {each.key[0] for each in (*self._intended.values(), *self.actions.open.values())}
        busy |= {uid for uid, at_s in self.actions.closed_s.items() if asked.boottime_s - at_s <= _SETTLES_S}
        return [
            fact
            for fact in facts.values()
            if fact.key[0] not in busy
            and counts(fact, here.policy, asked)
            and is_ready(fact, self.timers)
            and victims(fact)
            and self.is_on_its_own(fact)
            and not here.is_withheld_for_mps(fact)
        ]

    def is_on_its_own(self, fact: Fact) -> bool:
        """Whether an account is above the thresholds of its due kills whatever others use of a claim."""
        if fact.part is None:
            return True
        due = (step for step in fact.rule.steps if step.do != "warn" and self.timers.surely_due(fact, step))
        return all(fact.own > threshold_bytes(step, fact.allowed or 0) for step in due)

    def _note_withheld(self, facts: Mapping[Key, Fact], asked: Now) -> None:
        """Note which accounts the brakes surely withhold, and how far over the lowest threshold of a due kill."""
        here, withheld = self.standing, list[tuple[Fact, int]]()
        is_sure = here.enforcing and not here.stale and self._is_written
        for fact in self._ready(facts, asked) if is_sure else ():
            if self.brakes.forbids(fact.tenant.workload, here.policy.brakes, asked.boottime_s):
                due = (step for step in fact.rule.steps if self.timers.surely_due(fact, step))
                bound = min(threshold_bytes(step, fact.allowed or 0) for step in due if step.do != "warn")
                withheld.append((fact, fact.used - bound))
        self.brakes.turns.read(facts, withheld, asked.boottime_s)

    def _check_its_turn(self, chosen: TrackedAction) -> None:
        """Point 25: whether another account should have had its place under the brakes."""
        here = self.standing
        if here.reading is None:
            return
        asked, others = here.reading.asked, [each for each in self._intended.values() if each is not chosen]
        facts = here.reading.facts
        waiting = [fact for fact in facts.values() if perhaps_due(fact, self.timers)]
        begun = [Begun(each.owner, each.dated, each.dated.boottime_s) for each in others]
        if chosen.key in facts:
            ready = self._ready(facts, asked)
            self.brakes.in_its_turn(facts[chosen.key], begun, ready, waiting, here.policy.brakes, asked)

    @property
    def meant(self) -> list[str]:
        """The pods that the daemon has written down, and has not acted on yet."""
        return sorted({action.key[0] for action in self._intended.values()} & self.standing.tenants.keys())

    def ended(self, number: int, result: Result, now: Now) -> None:
        """An action has ended; one without a signal, since a process was out of reach, may count, and has failed."""
        intended = self._intended.pop(number, None)
        if intended is not None:
            self.brakes.ends_unseen(intended.owner, now)
            if result is Result.FAILED:
                self.timers.note_failed(intended.key)
        self.actions.ended(number, result, now)

    def withdrawn(self, number: int) -> None:
        """The daemon must not do what it has written down, or finds no process left to signal."""
        action = self._intended.pop(number, None) or self._take_back(number)
        self.seen["withdrawn"] += 1
        if action is not None:
            self._withdrawn[number] = action
            self.brakes.ends_unused(action.owner)
            self.timers.note_failed(action.key)

    def _take_back(self, number: int) -> TrackedAction | None:
        """The action that had begun, but for a signal."""
        action = self.actions.open.pop(number, None)
        if action is not None:
            if action.signalled:
                fail(COUNTED, f"{action.key} was signalled, and its action is withdrawn")
            latest = max(place for place, each in enumerate(self.brakes.begun) if each.owner == action.owner)
            del self.brakes.begun[latest]
            self.begun_now.discard(action.key)
        return action

    def begins(self, entry: PlanEntry, now: Now) -> None:
        """The daemon is about to send the first signal of what it has written down: no law may be against it."""
        here = self.standing
        if here.waits(now):
            fail(WRITTEN, f"{entry.account} is acted on")
        fact = self._account(entry)
        number = next((number for number, action in self._intended.items() if action.key == fact.key), None)
        if number is None or here.reading is None:
            fail(JOURNAL, f"{fact.key} is acted on, and the journal does not say so")
        if not self._intended[number].began.boottime_s <= here.reading.looked_s >= now.boottime_s - 2:
            fail(FRESH, f"{fact.key}: on disk {self._intended[number].began}, looked at {here.reading.looked_s}, {now}")
        action = self._intended.pop(number)
        step = fact.rule.steps[entry.step_index]
        self._judge(fact, step, now)
        victim = self._victim(fact, entry.victim, step)
        for other in self.actions.open.values():
            if other.key == fact.key or (
                other.key[0] == fact.key[0] and (victim in other.names or step.scope == "pod")
            ):
                fail(ENDED, f"{fact.key}: action {other.number} on {other.key} has not ended")
        self.brakes.begin(fact.tenant.workload, here.policy.brakes, action.dated, now)
        boxes = [box for box in fact.tenant.boxes if step.scope == "pod" or box.name == victim]
        self.actions.open[number] = replace(
            action,
            step=step,
            threshold_bytes=threshold_bytes(step, fact.allowed or 0),
            names=frozenset(box.name for box in boxes),
            boxes=frozenset(box.cid for box in boxes if box.known),
            began=now,
            ends_s=now.boottime_s + step.grace_s + here.policy.release_timeout_s,
            chosen=_chosen(fact, victim, entry.targets, here) if step.scope == "process" else None,
        )
        self.begun_now.add(fact.key)
        self.brakes.turns.forget(fact.key)
        self.timers.note_acted(fact.key)
        self.seen["action"] += 1
        self.seen["killed after it left"] += fact.key[0] in self._departed
        self.seen["killed before its deadline"] += now.wall_s <= (fact.tenant.deadline_s or 0.0)
        self.seen[f"scope {step.scope}"] += 1

    def _account(self, entry: PlanEntry) -> Fact:
        """How the account truly stood at the last look."""
        here, account = self.standing, entry.account
        key: Key = (account.uid, account.container, account.gpu)
        if not here.enforcing:
            fail(OBSERVES, f"{key} is acted on while enforcement is not permitted")
        if here.stale:
            fail(LAW3, f"{key} is acted on by a stale list")
        if account.uid not in here.tenants:
            fail(LAW4, f"pod {account.uid} is not in the list")
        if here.reading is None or here.reading.second is None:
            fail(LAW4, f"{key} is acted on without a last look")
        fact = self._second_facts(here.reading, here.reading.second, entry).get(key)
        if fact is None:
            fail(LAW4, f"{key} is no account of any rule")
        return fact

    def _second_facts(self, reading: Reading, second: TrueReading, entry: PlanEntry) -> dict[Key, Fact]:
        """How all accounts stood; bytes under a PID that was given twice may count as unknown."""
        here = self.standing
        unknown = [use for use in entry.assessment.uses if use.used is None]
        doubted = {(u.gpu, u.key.pid) for u in unknown if not u.surely and u.key.pid in here.recycled}
        lines: list[Listed] = [line for line in reading.truth.lines if line.gpu not in reading.only]
        lines += [line for line in second.lines if line.gpu in reading.only]
        lines = [replace(line, used=None) if (line.gpu, line.pid) in doubted else line for line in lines]
        surely = {(u.gpu, u.key.pid): u.surely for u in unknown}
        lines = [
            replace(line, used=surely[line.gpu, line.pid]) if (line.gpu, line.pid) in surely and line.used else line
            for line in lines
        ]
        uses = tenants_uses(lines, here.answers, here.tenants)
        return facts_of(uses, here.tenants, here.policy, self._sight(reading.truth), bright=False)

    def _judge(self, fact: Fact, step: Step, now: Now) -> None:
        here, key = self.standing, fact.key
        if fact.rule.mode == "observe":
            fail(OBSERVES, f"rule {fact.rule.name} only observes")
        if step.do != "kill" or fact.allowed is None:
            fail(LAW4, f"{key} is killed by {step}, allowed {fact.allowed}")
        if fact.used <= threshold_bytes(step, fact.allowed):
            bound = threshold_bytes(step, fact.allowed)
            fail(LAW4, f"{key} uses {fact.used}, its threshold is {bound}, allowed {fact.allowed}")
        if protected(fact.tenant, here.policy, now):
            fail(LAW4, f"pod {key[0]} is protected")
        if fact.own <= threshold_bytes(step, fact.allowed):
            self._judge_together(fact, now)
        if not self.timers.due(fact, step, looked=True):
            fail(LAW5, f"{key} by {step} of {fact.rule.name}: {self.timers.ladders.get(key)}")

    def _judge_together(self, fact: Fact, now: Now) -> None:
        """Point 42: of those that are above a claim together, the one that uses the most of it is acted on."""
        here = self.standing
        if fact.part is None or not comes_first(fact, here.policy, now, here.is_withheld_for_mps):
            fail(TOGETHER, f"{fact.key} is acted on, and is not the first of {fact.part}")
        others = {each.key for each in fact.part.beside}
        for action in self.actions.open.values():
            if action.key in others:
                fail(TOGETHER, f"{fact.key}: action {action.number} on {action.key} has not ended")
        self.seen["acted on by a sum"] += 1

    def _victim(self, fact: Fact, named: str, step: Step) -> str:
        found = victims(fact)  # another one may have come to be farthest since the plan was made
        if named not in found and not (step.scope == "pod" and found):
            fail(LAW4, f"{fact.key}: {named!r} is none of {found}")
        return named


def _chosen(fact: Fact, victim: str, keys: Iterable[ProcessKey], standing: Standing) -> ProcessKey | None:
    """The one process that scope `process` is about: no other of the container may use more.

    None: the largest has ended, so it is about the whole container, with those that a card listed before it was silent.
    """
    used: dict[ProcessKey, int] = {}
    for use in fact.uses:
        if use.container == victim:
            used[use.task.key] = used.get(use.task.key, 0) + (use.used or 0)
    keys = tuple(keys)
    ended = [key for key in used if (answer := standing.answers.get(key.pid)) is not None and answer.ended]
    if ended and max(used[key] for key in ended) == max(used.values()) and used.keys() <= {*keys}:
        standing.seen["scope process of one that ended"] += 1
        return None
    (chosen,) = keys
    if used.get(chosen, 0) < max(used.values(), default=0):
        fail(LAW4, f"{fact.key}: {chosen} is not its largest process: {used}")
    return chosen
