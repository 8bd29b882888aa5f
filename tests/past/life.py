"""A simulated daemon's life: cycles through the real core, recorded in a real journal, as observe mode has them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.report.build import record
from tests.worlds import NODE, Gi, at, container, gpu, opened, pod, process, snapshot, use
from watchdog.core.assessment import Inputs
from watchdog.core.ledger import Ledger
from watchdog.core.model import Gpu, Node, Now, Pod, PodList, Snapshot
from watchdog.core.plan import ClosedCycle, CycleReport, PlanEntry
from watchdog.core.policy import JournalLimits, Policy, longest_step_s
from watchdog.core.quiet import Resting, Ticks, is_quiet, next_change_s, repeated
from watchdog.daemon.cycle_report import report_of
from watchdog.daemon.enforcement import Enforcement
from watchdog.daemon.sources import is_stale
from watchdog.journal.journal import Journal
from watchdog.journal.playback import recorded_cycles
from watchdog.journal.recorder import Recorder
from watchdog.past.replay import Replay, Replayed

Kill = tuple[float, str, str | None, str | None, str, int, str, str]
LIMITS = JournalLimits()


@dataclass(frozen=True, kw_only=True)
class State:
    """A node for a while: bytes by container (`uid/name`) and card, the pods, and what could not be learned."""

    used: Mapping[tuple[str, int], int | None] = field(default_factory=dict)
    pods: tuple[Pod, ...] = ()
    clients: frozenset[str] = frozenset()  # the containers whose processes are MPS clients
    gpus: tuple[Gpu, ...] = (gpu(0), gpu(1))
    node: Node = NODE
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    dark: Mapping[str, object] = field(default_factory=dict)
    overdue: frozenset[tuple[str, str]] = frozenset()
    synced_s: float | None = None  # the pod list was true then; None: it is true now

    def seen(self, now: Now) -> Snapshot:
        """What a scan gives of it; the process of a container has a PID of its own."""
        pids = {where: 1000 + number for number, where in enumerate(sorted({where for where, _ in self.used}))}
        uses = [use(pids[where], used, card, mps=where in self.clients) for (where, card), used in self.used.items()]
        made = snapshot(uses, [process(pid, where) for where, pid in pids.items()], self.gpus)
        return replace(made, at=now, **self.dark)  # type: ignore[arg-type]


class Life:
    """One daemon: every cycle is decided under its policy and recorded; with `rests`, ticks repeat a quiet one."""

    def __init__(self, path: Path, under: Policy, ledger: Ledger | None = None, *, rests: bool = False) -> None:
        self.under = under
        self._rests = rests
        self._quiet: Resting | None = None
        self._ticks: Ticks | None = None
        self.ticks = 0
        self.actions: list[Kill] = []
        self.warnings: list[Kill] = []
        self.recorder = Recorder()
        self.journal = Journal.open(path, LIMITS, "n1")
        self.ledger = ledger or Ledger()
        self._state = State()
        self._seen = self._state.seen(at(0))

    def see(self, state: State, now: Now) -> CycleReport:
        self._settle()
        # A scanner gives the very same values as long as the driver and /proc do.
        if state is not self._state:
            self._state, self._seen = state, state.seen(now)
        seen = replace(self._seen, at=now)
        synced = now if state.synced_s is None else at(state.synced_s)
        pods = PodList(pods=state.pods, synced=synced)
        inputs = Inputs(
            policy=self.under,
            node=state.node,
            pods=pods,
            namespaces=state.namespaces,
            overdue=state.overdue,
            pods_stale=is_stale(pods, self.under, now),
        )
        made = opened(seen, inputs, self.ledger)
        self.ledger = made.plan.ledger
        for entry in made.plan.taken:
            if entry.do.enforces:
                self.ledger = self.ledger.note_observed(entry.assessment, now)
            (self.actions if entry.do.enforces else self.warnings).append(action(entry, now))
        closed, observing = (
            ClosedCycle(plan=made.plan, began=(), outcomes=()),
            Enforcement(enforcing=False, suspended=()),
        )
        report = report_of(made, closed, observing, policy_loaded_s=now.wall_s, maintenance=None, ended=now)
        self.recorder.record(report, self.journal)
        record(self.journal, report)
        if self._rests and is_quiet(made, closed):
            self._quiet = Resting(report=report, inputs=inputs, ticks=lambda: self._ticks)
        return report

    def _repeats(self, state: State, now: Now) -> bool:
        """Whether this tick only repeats the last cycle, as the driver's thread has it."""
        quiet, interval_s = self._quiet, self.under.interval_s
        if quiet is None or state is not self._state:
            return False
        before, at = self._ticks, quiet.report.at
        passed_s = now.boottime_s - (before.last if before is not None else at).boottime_s
        synced_s = now.boottime_s if state.synced_s is None else 1000.0 + state.synced_s
        until_s = min(next_change_s(quiet.report.plan, state.pods, self.under, at), synced_s + self.under.stale_after_s)
        if not (0 < passed_s <= longest_step_s(interval_s) and now.boottime_s < until_s):
            return False
        self._ticks = Ticks(
            last=now,
            counted_s=min(passed_s, interval_s) + (before.counted_s if before is not None else 0.0),
            took_s=(*(before.took_s if before is not None else ()), 0.0),
        )
        self.ticks += 1
        if len(self._ticks.took_s) == 10:
            self._settle(goes_on=True)
        return True

    def _settle(self, *, goes_on: bool = False) -> None:
        """Record the last of the ticks, and what they come to."""
        quiet, ticks = self._quiet, self._ticks
        self._quiet = self._ticks = None
        if quiet is not None and ticks is not None:
            report = repeated(quiet.report, quiet.inputs, ticks)
            self.ledger = report.plan.ledger
            self.recorder.record(report, self.journal, is_repeated=True)
            self._quiet = replace(quiet, report=report) if goes_on else None

    def run(self, states: Iterable[tuple[float, State]]) -> "Life":
        """Cycles at these seconds, and a clean end."""
        for second, state in states:
            if not self._repeats(state, at(second)):
                self.see(state, at(second))
        return self.end()

    def end(self) -> "Life":
        """Stop cleanly."""
        self._settle()
        self.recorder.end(self.journal)
        self.journal.close()
        return self

    def kill(self) -> None:
        """End as kill -9 does: what was not written is lost."""
        self.journal._queue._waiting.clear()
        self.journal.close()


def action(entry: PlanEntry, now: Now) -> Kill:
    """What two runs are compared by: when, whose, by which rule and step, what, on which container."""
    whose = (entry.account.uid, entry.account.container, entry.account.gpu)
    return (round(now.wall_s, 2), *whose, entry.rule.name, entry.step_index, entry.do.value, entry.victim)


def replayed(path: Path, under: Policy, since_s: float = 0.0) -> Replayed:
    return Replay(under).run(recorded_cycles(path, since_s))


def actions_of(found: Replayed) -> list[Kill]:
    """The actions of a replay that nothing held back any more."""
    return [action(each.entry, each.at) for each in found.findings if each.at is not None and each.entry.do.enforces]


def tenant(uid: str = "a", declared: str | None = "8Gi", namespace: str = "ns", **more: object) -> Pod:
    """A pod with one container, `main`."""
    return pod(uid, container("main", declared, of=uid), namespace=namespace, **more)


def holding(gib: float | None, uid: str = "a", card: int = 0) -> dict[tuple[str, int], int | None]:
    """What the container of a tenant holds on a card."""
    return {(f"{uid}/main", card): None if gib is None else int(gib * Gi)}
