"""What the demo has to show: the node at one moment, and what has happened on it."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from watchdog.cli.demo.tenants import RunningPod, lives
from watchdog.core.assessment import AccountKey, Assessment, Verdict
from watchdog.core.ledger import Ledger
from watchdog.core.model import Gpu, Now, ProcessKey
from watchdog.core.plan import OpenCycle, Outcome, PlanEntry, Result
from watchdog.core.policy import Do, Step
from watchdog.core.units import format_bytes, format_duration
from watchdog.daemon.kill import at_once
from watchdog.journal.journal import Journal
from watchdog.report.actions import mark, signals
from watchdog.report.text import elapsed_s, span


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """A line of what happened: the second, a word for it, and the rest. `tone` is good, warn, bad or plain."""

    second: float
    word: str
    text: str
    tone: str = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """A kill as its record tells it: of whom, when the first signal went out, who got which."""

    entry: PlanEntry
    begun: Now
    terminated: tuple[ProcessKey, ...] = ()
    killed: tuple[ProcessKey, ...] = ()
    outcome: Outcome | None = None
    told_of_grace: bool = False


@dataclass(slots=True)
class _Standing:
    """What has been told of an account's present incident."""

    over: bool = False
    climbing: bool = False


@dataclass(slots=True)
class Chronicle:
    """Collects occurrences; a `Record` for the actions, which hands everything on to the journal where there is one."""

    journal: Journal | None
    parties: Mapping[str, RunningPod]
    begin: Now
    occurrences: list[Occurrence] = field(default_factory=list)
    blows: dict[int, Blow] = field(default_factory=dict)
    recovered: dict[AccountKey, Now] = field(default_factory=dict)
    _standing: dict[AccountKey, _Standing] = field(default_factory=dict)

    def blow_to(self, account: AccountKey) -> Blow | None:
        """The last kill of an account, if there was one."""
        return next((blow for blow in reversed(self.blows.values()) if blow.entry.account == account), None)

    # ---- as the record of the actions

    def intend(self, entry: PlanEntry, targets: Iterable[ProcessKey], now: Now) -> "Future[int]":
        """Commit the intention, then tell of it."""
        return at_once(lambda: self._intend(entry, tuple(targets), now))

    def _intend(self, entry: PlanEntry, keys: tuple[ProcessKey, ...], now: Now) -> int:
        number = len(self.blows) + 1 if self.journal is None else self.journal.intend(entry, keys, now)
        self.blows[number] = Blow(entry=entry, begun=now)
        where = "" if self.journal is None else "; written down first"
        self._tell(now, "kill", f"{entry.assessment.pod.title}, {mark(entry)}{where}", "bad")
        return number

    def withdraw(self, action: int, reason: str, now: Now) -> None:
        """Tell that it came to nothing."""
        if self.journal is not None:
            self.journal.withdraw(action, reason, now)
        self._tell(now, "withdrawn", f"{self.blows.pop(action).entry.assessment.pod.title}: {reason}")

    def withdraw_once_written(self, intended: "Future[int]", reason: str, now: Now) -> None:
        """Tell the same of an intention, which is always written at once."""
        self.withdraw(intended.result(), reason, now)

    def signalled(self, action: int, now: Now, signal: str, keys: Iterable[ProcessKey]) -> None:
        """Tell who got which signal."""
        sent = tuple(keys)
        if self.journal is not None:
            self.journal.signalled(action, now, signal, sent)
        blow = self.blows[action]
        if signal == "SIGTERM":
            self.blows[action] = replace(blow, terminated=blow.terminated + sent)
        else:
            self.blows[action] = replace(blow, killed=blow.killed + sent)
        grace = format_duration(blow.entry.definition.grace_s)
        why = f", not gone {grace} after SIGTERM" if signal == "SIGKILL" and blow.terminated else ""
        self._tell(now, signal, f"{self.names(sent)}{why}", "bad")

    def end(self, action: int, result: Result, reason: str, now: Now) -> None:
        """Hand on what came of it."""
        if self.journal is not None:
            self.journal.end(action, result, reason, now)

    def released(self, action: int, now: Now, release_s: float | None, reason: str) -> None:
        """Tell that the memory is free."""
        if self.journal is not None:
            self.journal.released(action, now, release_s, reason)
        used = format_bytes(self.blows[action].entry.assessment.used_at_least)
        if release_s is None:
            self._tell(now, "stuck", f"{used} not back on the card: {reason}", "bad")
        else:
            self._tell(now, "freed", f"{used} back on the card, {span(release_s)} after the first signal", "good")

    def breaker(self, opened: Now | None) -> None:
        """Note since when the breaker is open; the demo's policy has none."""
        if self.journal is not None:
            self.journal.breaker(opened)

    # ---- as the witness of the cycles

    def start(self, party: RunningPod, now: Now) -> None:
        """Tell of a tenant's processes."""
        self._tell(now, "started", f"{party.tenant.pod}: {self.names(member.key for member in party.members)}")

    def see(self, assessments: Iterable[Assessment], entries: Iterable[PlanEntry], now: Now) -> None:
        """Tell how accounts have come to stand."""
        pending = {entry.account for entry in entries if entry.do is Do.KILL and not entry.taken}
        for assessment in assessments:
            if self.blow_to(assessment.account) is None:
                self._see(assessment, now, is_climbing=assessment.account in pending)

    def _see(self, assessment: Assessment, now: Now, *, is_climbing: bool) -> None:
        standing = self._standing.setdefault(assessment.account, _Standing())
        title = assessment.pod.title
        allowed = assessment.allowed or 0
        if assessment.used_at_least > allowed and not standing.over:
            standing.over = True
            used, may = format_bytes(assessment.used_at_least), format_bytes(allowed)
            self._tell(now, "over", f"{title} uses {used}, {may} are allowed", "warn")
        if is_climbing and not standing.climbing:
            standing.climbing = True
            self._tell(now, "climbing", f"{title} is above the kill mark: its time runs", "warn")
        if assessment.used is not None and assessment.used <= allowed and standing.over:
            self._tell(now, "within", f"{title} has come down: its ladder begins anew", "good")
            self._standing[assessment.account] = _Standing()
            self.recovered[assessment.account] = now

    def note(self, outcome: Outcome) -> None:
        """Take note of what came of a step."""
        entry = outcome.entry
        if entry.do is Do.WARN:
            self._tell(outcome.at, "warned", f"{entry.assessment.pod.title}, {mark(entry)}", "warn")
        elif outcome.number is not None and outcome.number in self.blows:
            self.blows[outcome.number] = replace(self.blows[outcome.number], outcome=outcome)
        if outcome.result is Result.FAILED:
            self._tell(outcome.at, "failed", f"{entry.assessment.pod.title}: {outcome.reason}", "bad")

    def watch_grace(self, now: Now) -> None:
        """Tell once, a moment after SIGTERM, who has gone by it and who has not."""
        for number, blow in self.blows.items():
            if blow.told_of_grace or not blow.terminated or now.boottime_s - blow.begun.boottime_s < 0.5:
                continue
            self.blows[number] = replace(blow, told_of_grace=True)
            left = [key for key in blow.terminated if lives(key)]
            gone = self.names(key for key in blow.terminated if key not in left)
            stays = f"{self.names(left, with_pid=False)} ignores SIGTERM" if left else ""
            self._tell(now, "ended", "; ".join(filter(None, (gone, stays))))

    def tell_of_neighbours(self, now: Now) -> bool:
        """Tell whether those who were not killed live on; whether all of them do."""
        signalled = {key for blow in self.blows.values() for key in (*blow.terminated, *blow.killed)}
        hit = {blow.entry.assessment.pod.uid for blow in self.blows.values()}
        neighbours = [member.key for uid, each in self.parties.items() if uid not in hit for member in each.members]
        if all(lives(key) and key not in signalled for key in neighbours):
            self._tell(now, "alive", f"{self.names(neighbours)} run on, never signalled", "good")
            return True
        self._tell(now, "lost", f"of {self.names(neighbours)} not all run on", "bad")
        return False

    def names(self, keys: Iterable[ProcessKey], *, with_pid: bool = True) -> str:
        """Processes by name, and by PID if wanted."""
        known = {member.key: member.task.name for party in self.parties.values() for member in party.members}
        return ", ".join(known.get(key, "process") + f" {key.pid}" * with_pid for key in sorted(keys))

    def _tell(self, now: Now, word: str, text: str, tone: str = "plain") -> None:
        second = now.boottime_s - self.begin.boottime_s
        self.occurrences.append(Occurrence(second=second, word=word, text=text, tone=tone))


_RECOVERY_SHOWN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneMark:
    """A mark of the ladder: what follows above it, and its height as a share of allowed."""

    label: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A tenant: its amounts in bytes, the marks of its rule, and where it stands on its ladder.

    `tone` is good, warn or bad.
    """

    title: str
    used: int
    declared: int
    allowed: int
    verdict: str
    marks: tuple[SceneMark, ...]
    ladder: str
    tone: str
    processes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoScene:
    """One moment. `lingering` are bytes on the card whose process has ended."""

    second: float
    card: Gpu
    rows: tuple[Row, ...]
    lingering: int
    occurrences: tuple[Occurrence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoMoment:
    """What a scene is made of: the last cycle with its plan as it was carried out, and the time since."""

    opened: OpenCycle
    entries: tuple[PlanEntry, ...]
    ledger: Ledger
    chronicle: Chronicle
    now: Now

    def scene(self) -> DemoScene:
        """The scene."""
        by_uid = {each.account.uid: each for each in self.opened.assessments}
        parties = self.chronicle.parties.items()
        return DemoScene(
            second=elapsed_s(self.chronicle.begin, self.now),
            card=self.opened.snapshot.gpus[0],
            rows=tuple(self._row(by_uid[uid], party) for uid, party in parties if uid in by_uid),
            lingering=sum(use.used or 0 for use in self.opened.attribution.unattributed),
            occurrences=tuple(self.chronicle.occurrences),
        )

    def _row(self, assessment: Assessment, party: RunningPod) -> Row:
        allowed = assessment.allowed or 0
        steps = assessment.rule.steps if assessment.rule is not None else ()
        blow = self.chronicle.blow_to(assessment.account)
        ladder, tone = self._after_blow(blow) if blow is not None else self._ladder(assessment)
        is_killed = blow is not None and (blow.killed or blow.outcome is not None)
        return Row(
            title=assessment.pod.title,
            used=assessment.used_at_least,
            declared=assessment.declared or 0,
            allowed=allowed,
            verdict="killed" if is_killed else assessment.verdict.value,
            marks=tuple(_mark(step, allowed) for step in steps),
            ladder=ladder,
            tone=tone,
            processes=_processes(party),
        )

    def _ladder(self, assessment: Assessment) -> tuple[str, str]:
        """Where an account stands on its ladder, and what comes next."""
        state = self.ledger.accounts.get(assessment.account)
        warned = "warned, " if state is not None and state.warned_s else ""
        waits = {entry.do: entry.due_in_s for entry in self.entries if entry.account == assessment.account}
        if not warned and Do.WARN in waits:
            warned = f"warning in {self._left(waits[Do.WARN])}, "
        if Do.KILL in waits:
            return f"{warned}kill in {self._left(waits[Do.KILL])}", "bad"
        if warned:
            return warned.removesuffix(", "), "warn"
        recovered = self.chronicle.recovered.get(assessment.account)
        if recovered is not None and elapsed_s(recovered, self.now) < _RECOVERY_SHOWN_S:
            return "recovered: ladder begins anew", "good"
        return "nothing due", "warn" if assessment.verdict is Verdict.OVER else "good"

    def _after_blow(self, blow: Blow) -> tuple[str, str]:
        if blow.outcome is not None:
            release_s = blow.outcome.release_s
            return (f"memory free after {span(release_s)}" if release_s else blow.outcome.reason), "bad"
        if blow.killed:
            return "SIGKILL sent, memory on its way", "bad"
        left_s = blow.entry.definition.grace_s - elapsed_s(blow.begun, self.now)
        return f"SIGTERM sent, SIGKILL in {max(left_s, 0.0):.1f}s", "bad"

    def _left(self, due_in_s: float) -> str:
        return f"{max(due_in_s - elapsed_s(self.opened.snapshot.at, self.now), 0.0):.1f}s"


def _mark(step: Step, allowed: int) -> SceneMark:
    how = f": {signals(step)}" if step.do is Do.KILL else ""
    label = f"{step.do.value} {step.above} for {format_duration(step.for_s)}{how}"
    return SceneMark(label=label, share=step.above.threshold_bytes(allowed, step.do) / max(allowed, 1))


def _processes(party: RunningPod) -> str:
    alive = sum(1 for member in party.members if lives(member.key))
    if len(party.members) == 1:
        return f"{party.session} {'runs' if alive else 'ended'}"
    return f"{alive} of {len(party.members)} run"
