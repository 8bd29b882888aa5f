"""Deeds of the oracle: who was acted on, and whether that has truly ended."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.soak.driver import Told
from tests.soak.kernel import Task
from tests.soak.policies import StepPlan
from tests.soak.standing import Standing
from tests.soak.timers import Timers
from tests.soak.truth import Key, TrueUse
from tests.soak.violation import fail
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import Result

ENDED: Final = "point 24, the next deed waits until the last one has ended"


@dataclass(slots=True, eq=False, kw_only=True)
class Deed:
    """A deed under way, as the oracle follows it. `names` are the containers that it is about.

    `dated` is the moment that the journal has of it: when it was handed in, and `began` when that was on disk.
    """

    number: int
    key: Key
    owner: tuple[str, str, str]
    step: StepPlan
    height: int
    names: frozenset[str]
    boxes: frozenset[str]
    targets: frozenset[ProcessKey]
    dated: Now
    began: Now
    ends_s: float
    life: int
    termed: set[Task] = field(default_factory=set)
    killed: set[Task] = field(default_factory=set)
    is_killing: bool = False
    is_dead: bool = False
    is_grace_over: bool = False
    chosen: ProcessKey | None = None
    result: Result | None = None

    @property
    def signalled(self) -> set[Task]:
        """Every process that got a signal."""
        return self.termed | self.killed


class DeedBook:
    """Follows each deed from its intention to the last of its memory."""

    def __init__(self, standing: Standing, timers: Timers) -> None:
        self._standing = standing
        self._timers = timers
        self.open: dict[int, Deed] = {}
        self._lingering: dict[int, Deed] = {}  # truly ended, and the daemon does not know that yet
        self.closed_s: dict[str, float] = {}
        self._seen_alive: set[tuple[str, ProcessKey]] = set()
        self._told: Told | None = None
        self._asked_s = 0.0

    def daemon_starts(self, now: Now) -> None:
        """A daemon starts: what earlier ones began it waits for as long as for memory."""
        self._lingering.clear()
        self._seen_alive.clear()
        for deed in self.open.values():
            deed.ends_s = now.boottime_s + self._standing.plan.release_timeout_s

    def forget(self) -> None:
        """The journal was lost while no daemon ran: nobody knows any more what is under way."""
        self.open.clear()
        self._lingering.clear()

    def saw(self, uses: Iterable[TrueUse], told: Told) -> None:
        """Whom the daemon has seen alive, and on which card."""
        self._seen_alive |= {(use.gpu, use.task.key) for use in uses if use.gpu not in told.dark}

    def given(self, told: Told, asked: Now) -> None:
        """A reading is about to be taken: deeds whose victims are listed no more, or waited for enough, have ended."""
        self._told, self._asked_s = told, asked.boottime_s
        listed = {line.task for line in told.lines}
        for number, deed in list(self.open.items()):
            is_over = deed.life != self._standing.life and asked.boottime_s >= deed.ends_s
            if is_over or not self._may_hold(deed, listed, told):
                self.close(number)

    def _may_hold(self, deed: Deed, listed: set[Task | None], told: Told) -> bool:
        """Whether memory of a victim may still be taken, or a victim of this daemon's own still lives.

        Of an earlier daemon's deed the journal tells whom it was meant for, and not the forks that it met.
        """
        if deed.life != self._standing.life:
            return told.reading.blind or any(task is not None and task.key in deed.targets for task in listed)
        if told.reading.blind or not deed.signalled:
            return True
        # As long as the daemon does not call its processes dead, those that have joined are its victims, too.
        joined = any(task is not None and task.pod == deed.key[0] and task.container in deed.boxes for task in listed)
        return (joined and not deed.is_dead) or any(task.lives or task in listed for task in deed.signalled)

    def close(self, number: int) -> None:
        """A deed has ended, by its own end or by the oracle's."""
        deed = self.open.pop(number, None)
        if deed is not None:
            self._lingering[number] = deed
            self._timers.end_force(deed.key, self._asked_s)
            self.closed_s[deed.key[0]] = self._asked_s

    def _forget(self, number: int) -> None:
        self.close(number)
        self._lingering.pop(number, None)

    def of(self, task: Task) -> Deed | None:
        for deed in (*self.open.values(), *self._lingering.values()):
            if deed.life == self._standing.life and deed.key[0] == task.pod and task.container in deed.boxes:
                return deed
        return None

    def may_seem_to_live(self, uid: str, now: Now) -> bool:
        """Whether the daemon may still look for processes of a deed that has ended: it can't read the place of some."""
        here = self._standing
        mine = (deed for deed in self._lingering.values() if deed.key[0] == uid and deed.life == here.life)
        return any(not deed.is_dead and now.boottime_s < deed.ends_s for deed in mine)

    def advanced(self, now: Now) -> None:
        """The daemon has let its deeds go on: those whose grace was over then are past it for good."""
        for deed in (*self.open.values(), *self._lingering.values()):
            over = now.boottime_s >= deed.began.boottime_s + deed.step.grace_s
            if over or self.hastened(deed):
                deed.is_grace_over = True

    def before_reload(self) -> None:
        """What a stronger step has cut short stays so, whatever the next policy says."""
        for deed in self.open.values():
            deed.is_grace_over = deed.is_grace_over or self.hastened(deed)

    def hastened(self, deed: Deed) -> bool:
        """Whether a stronger step can have come due: one that stands after the deed's own in the rule as it is now."""
        reading = self._standing.reading
        fact = reading.facts.get(deed.key) if reading is not None else None
        if fact is None:
            return False
        names = [step.name for step in fact.rule.steps]
        own = names.index(deed.step.name) if deed.step.name in names else len(names)
        return any(step.do == "kill" and self._timers.due(fact, step) for step in fact.rule.steps[own + 1 :])

    def ended(self, number: int, result: Result, now: Now) -> None:
        """The daemon says that a deed has ended, or that its processes are dead."""
        deed = self.open.get(number) or self._lingering.get(number)
        if deed is None:
            return
        if result is Result.FAILED:
            self._timers.note_failed(deed.key)
            self._standing.seen["failed"] += 1
            self._forget(number)
        elif result is Result.DONE:
            deed.is_dead = True
        elif result is Result.GONE:
            if deed.step.scope != "process" or deed.is_killing:
                fail(ENDED, f"deed {number} is called not needed any more")
            self._standing.seen["spared SIGKILL"] += 1
            self._forget(number)
        elif result is Result.INTERRUPTED:
            deed.result = result
            self._timers.end_force(deed.key, now.boottime_s)
            self._standing.seen["interrupted"] += 1

    def _demand_unlisted(self, deed: Deed, told: Told) -> None:
        for line in told.lines:
            said = self._standing.answers.get(line.pid)
            is_another = said is None or line.task is None or said.key not in (None, line.task.key)
            if line.gpu in told.dark and line.task is not None:
                # Whom the daemon never saw alive on a card it can't tie to it while the card is not listed.
                is_tied = (line.gpu, line.task.key) in self._seen_alive and line.pid not in self._standing.recycled
                is_another = is_another or not is_tied
            is_meant = line.task is not None and line.task.key in deed.targets
            if not is_another and (is_meant if deed.life != self._standing.life else line.task in deed.signalled):
                fail(ENDED, f"deed {deed.number} is called released, and {line} is listed")

    def released(self, number: int, now: Now, release_s: float | None) -> None:
        """The daemon says that the memory of a deed is free, or that it waits no longer."""
        self._lingering.pop(number, None)
        deed = self.open.get(number)
        if deed is None:
            return
        is_early = now.boottime_s < deed.ends_s
        if deed.life == self._standing.life and release_s is None:
            # It gave up waiting, or was told to stop.
            if is_early and deed.result is not Result.INTERRUPTED:
                fail(ENDED, f"deed {number} is given up {deed.ends_s - now.boottime_s} s too early")
        elif is_early and self._told is not None:
            self._demand_unlisted(deed, self._told)
        self._standing.seen["not released"] += now.boottime_s >= deed.ends_s
        self._forget(number)
