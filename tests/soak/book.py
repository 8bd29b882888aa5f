"""The oracle: what was read, what was intended and who was signalled, each held against the laws at once."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from tests.soak.brakebook import BrakeBook
from tests.soak.cluster import Tenant
from tests.soak.deedbook import ENDED, Deed, DeedBook
from tests.soak.driver import Listed, Told
from tests.soak.policies import PolicyPlan, StepPlan
from tests.soak.signalbook import LAW4, SignalBook
from tests.soak.standing import Reading, Standing
from tests.soak.timers import Timers
from tests.soak.truth import Fact, Key, facts_of, is_bright, protected, tenants_uses, victim_container
from tests.soak.violation import fail
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import PlanEntry

LAW3: Final = "law 3, unknown or stale input never leads to force"
LAW5: Final = "law 5, nothing is acted on before its time"
OBSERVES: Final = "law 7, what observes does nothing"


class Book:
    """Knows the truth, remembers everything, and fails at the first step that should not have been taken."""

    def __init__(self, plan: PolicyPlan) -> None:
        self.standing = Standing(plan)
        self.seen, self.tail = self.standing.seen, self.standing.tail
        self.timers = Timers()
        self.brakes = BrakeBook()
        self.deeds = DeedBook(self.standing, self.timers)
        self.signals = SignalBook(self.standing, self.deeds)
        self.begun_now: set[Key] = set()
        self.put_off: dict[Key, int] = {}
        self._is_written = True

    def daemon_starts(self, now: Now) -> None:
        """Nothing is known to the new one but what the journal holds."""
        self.standing.life += 1
        self.standing.reading = None
        self.timers.begin_anew()
        self.deeds.daemon_starts(now)

    def journal_opens(self, now: Now) -> None:
        """The daemon learns what earlier ones left; a breaker that turned while the disk was full may not be in it."""
        self.brakes.daemon_starts(now)
        if not self._is_written:
            self.brakes.doubt(now)
        self._is_written = True

    def see_pods(self, tenants: Mapping[str, Tenant], synced: Now | None, now: Now) -> None:
        """The pod list as the daemon reads it at this moment."""
        here = self.standing
        here.tenants = tenants
        is_of_this_boot = synced is not None and synced.boot_id == now.boot_id
        age_s = now.boottime_s - (synced.boottime_s if synced is not None else 0.0)
        here.stale = not is_of_this_boot or age_s > here.plan.stale_after_s

    def enforcement(self, *, enforcing: bool) -> None:
        """Whether force may be used from now on."""
        if enforcing and not self.standing.enforcing:
            self.timers.begin_anew()
            self.seen["enforcement began"] += 1
        self.standing.enforcing = enforcing

    def read(self, told: Told, asked: Now, *, written: bool) -> None:
        """A reading has been taken as far as its plan; nothing has been done about it yet."""
        here = self.standing
        bright = is_bright(told, here.answers)
        uses = tenants_uses(told.lines, here.answers, here.tenants)
        self.deeds.saw((use for each in uses.values() for use in each), told)
        facts = facts_of(uses, here.tenants, here.plan, bright=bright)
        here.reading = Reading(told, asked, facts, bright)
        self.timers.read(facts, here.plan, asked, stale=here.stale, bright=bright)
        sure = bright and not here.stale
        opened = self.brakes.look(facts, self.timers, here.plan, asked, sure=sure, enforcing=here.enforcing)
        self.seen["breaker opened"] += opened
        self.seen["bright reading"] += bright
        self._is_written = self._is_written and written

    def intended(self, number: int, entry: PlanEntry, keys: Iterable[ProcessKey], now: Now) -> None:
        """The daemon has written down what it is about to do: no law may be against it."""
        here = self.standing
        fact = self._account(entry)
        step = fact.rule.steps[entry.step]
        self._judge(fact, step, now)
        victim = self._victim(fact, entry.victim)
        for deed in self.deeds.open.values():
            if deed.key == fact.key or (deed.key[0] == fact.key[0] and (victim in deed.names or step.scope == "pod")):
                fail(ENDED, f"{fact.key}: deed {deed.number} on {deed.key} has not ended")
        chosen = _chosen(fact, victim, keys) if step.scope == "process" else None
        self.brakes.begin(fact.tenant.workload, here.plan.brakes, now)
        boxes = [box for box in fact.tenant.boxes if step.scope == "pod" or box.name == victim]
        self.deeds.open[number] = Deed(
            number=number,
            key=fact.key,
            step=step,
            height=step.height(fact.allowed or 0),
            names=frozenset(box.name for box in boxes),
            boxes=frozenset(box.cid for box in boxes if box.known),
            targets=frozenset(keys),
            began=now,
            ends_s=now.boottime_s + step.grace_s + here.plan.release_timeout_s,
            life=here.life,
            chosen=chosen,
        )
        self.begun_now.add(fact.key)
        self.timers.note_acted(fact.key)
        self.seen["deed"] += 1
        self.seen[f"scope {step.scope}"] += 1

    def _account(self, entry: PlanEntry) -> Fact:
        """How the account truly stood at the second look."""
        here, account = self.standing, entry.account
        key: Key = (account.uid, account.container, account.gpu)
        if not here.enforcing:
            fail(OBSERVES, f"{key} is acted on while force is not permitted")
        if here.stale:
            fail(LAW3, f"{key} is acted on by a stale list")
        if account.uid not in here.tenants:
            fail(LAW4, f"pod {account.uid} is not in the list")
        if here.reading is None or here.reading.second is None:
            fail(LAW4, f"{key} is acted on without a second look")
        fact = self._second_facts(here.reading, here.reading.second, entry).get(key)
        if fact is None:
            fail(LAW4, f"{key} is no account of any rule")
        return fact

    def _second_facts(self, reading: Reading, second: Told, entry: PlanEntry) -> dict[Key, Fact]:
        """How all accounts stood; bytes under a PID that was given twice may count as unknown."""
        here = self.standing
        doubted = {(u.gpu, u.key.pid) for u in entry.assessment.uses if u.used is None and u.key.pid in here.recycled}
        lines: list[Listed] = [line for line in reading.told.lines if line.gpu not in reading.only]
        lines += [line for line in second.lines if line.gpu in reading.only]
        lines = [replace(line, used=None) if (line.gpu, line.pid) in doubted else line for line in lines]
        uses = tenants_uses(lines, here.answers, here.tenants)
        return facts_of(uses, here.tenants, here.plan, bright=False)

    def _judge(self, fact: Fact, step: StepPlan, now: Now) -> None:
        here, key = self.standing, fact.key
        if fact.rule.mode == "observe":
            fail(OBSERVES, f"rule {fact.rule.name} only observes")
        if step.do != "kill" or fact.allowed is None:
            fail(LAW4, f"{key} is killed by {step}, allowed {fact.allowed}")
        if fact.used <= step.height(fact.allowed):
            fail(LAW4, f"{key} uses {fact.used}, its mark is {step.height(fact.allowed)}, allowed {fact.allowed}")
        if protected(fact.tenant, here.plan, now.wall_s):
            fail(LAW4, f"pod {key[0]} is protected")
        if not self.timers.due(key, step):
            fail(LAW5, f"{key} by {step}: {self.timers.ladders.get(key)}")

    def _victim(self, fact: Fact, named: str) -> str:
        victim = victim_container(fact)
        if victim != named:
            fail(LAW4, f"{fact.key}: {named!r} instead of {victim!r}")
        return named


def _chosen(fact: Fact, victim: str, keys: Iterable[ProcessKey]) -> ProcessKey:
    """The one process that scope `process` is about: no other of the container may use more."""
    used: dict[ProcessKey, int] = {}
    for use in fact.uses:
        if use.container == victim:
            used[use.task.key] = used.get(use.task.key, 0) + (use.used or 0)
    (chosen,) = keys
    if used.get(chosen, 0) < max(used.values(), default=0):
        fail(LAW4, f"{fact.key}: {chosen} is not its largest process: {used}")
    return chosen
