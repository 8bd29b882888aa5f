"""What the screen shows at one moment, as values."""

from dataclasses import dataclass

from watchdog.core.assessment import Assessment, Verdict
from watchdog.core.ledger import Ledger
from watchdog.core.model import Gpu, Now
from watchdog.core.plan import Pass, PlanEntry
from watchdog.core.policy import Do, Step
from watchdog.core.units import format_duration
from watchdog.demo.chronicle import Blow, Chronicle, Occurrence
from watchdog.export.clauses import signals
from watchdog.export.phrases import elapsed_s, span
from watchdog.sim.company import Party
from watchdog.sim.life import lives

_RECOVERY_SHOWN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
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
    marks: tuple[Mark, ...]
    ladder: str
    tone: str
    processes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One moment. `lingering` are bytes on the card whose process has ended."""

    second: float
    card: Gpu
    rows: tuple[Row, ...]
    lingering: int
    occurrences: tuple[Occurrence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What a scene is made of: the last pass with its plan as it was carried out, and the time since."""

    opened: Pass
    entries: tuple[PlanEntry, ...]
    ledger: Ledger
    chronicle: Chronicle
    now: Now

    def scene(self) -> Scene:
        """The scene."""
        by_uid = {each.account.uid: each for each in self.opened.assessments}
        parties = self.chronicle.parties.items()
        return Scene(
            second=elapsed_s(self.chronicle.begin, self.now),
            card=self.opened.snapshot.gpus[0],
            rows=tuple(self._row(by_uid[uid], party) for uid, party in parties if uid in by_uid),
            lingering=sum(use.used or 0 for use in self.opened.attribution.unattributed),
            occurrences=tuple(self.chronicle.occurrences),
        )

    def _row(self, assessment: Assessment, party: Party) -> Row:
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


def _mark(step: Step, allowed: int) -> Mark:
    how = f": {signals(step)}" if step.do is Do.KILL else ""
    label = f"{step.do.value} {step.above} for {format_duration(step.for_s)}{how}"
    return Mark(label=label, share=step.above.height(allowed, step.do) / max(allowed, 1))


def _processes(party: Party) -> str:
    alive = sum(1 for member in party.members if lives(member.key))
    if len(party.members) == 1:
        return f"{party.session} {'runs' if alive else 'ended'}"
    return f"{alive} of {len(party.members)} run"
