"""Actions of the oracle: who was acted on, and whether that has truly ended."""

import math
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from tests.soak.driver import TrueReading
from tests.soak.kernel import Task
from tests.soak.standing import Standing
from tests.soak.timers import Timers
from tests.soak.truth import Key, TrueUse
from tests.soak.violation import fail
from watchdog.core.model import Now, ProcessKey
from watchdog.core.plan import Result
from watchdog.core.policy import Step

ENDED: Final = "point 24, the next action waits until the last one has ended"
TIME: Final = "point 23, what gets SIGKILL has time to end before its kill has failed"


@dataclass(slots=True, eq=False, kw_only=True)
class TrackedAction:
    """An action in progress, as the oracle follows it. `names` are the containers that it is about.

    `dated` is the moment that the journal has of it: when it was handed in, and `began` when that was on disk. `drains`
    says that a client was asked to be drained: then a drop in use spares no process any more. `killed_s` is when
    the last SIGKILL was sent, `ends_s` until when the action is waited for: it may be until `latest_s` where the daemon
    came late to the end of its grace.
    """

    number: int
    key: Key
    owner: tuple[str, str, str]
    step: Step
    threshold_bytes: int
    names: frozenset[str]
    boxes: frozenset[str]
    targets: frozenset[ProcessKey]
    dated: Now
    began: Now
    ends_s: float
    life: int
    latest_s: float = -math.inf
    termed: set[Task] = field(default_factory=set)
    killed: set[Task] = field(default_factory=set)
    drains: bool = False
    is_killing: bool = False
    killed_s: float = -math.inf
    is_dead: bool = False
    is_grace_over: bool = False
    chosen: ProcessKey | None = None
    result: Result | None = None

    @property
    def signalled(self) -> set[Task]:
        return self.termed | self.killed


class ActionBook:
    """Follows each action from its intention to the last of its memory."""

    def __init__(self, standing: Standing, timers: Timers) -> None:
        self._standing = standing
        self._timers = timers
        self.open: dict[int, TrackedAction] = {}
        self._lingering: dict[int, TrackedAction] = {}  # truly ended, and the daemon does not know that yet
        self._past: dict[int, TrackedAction] = {}  # over, which the journal may not have: the disk was full, or it died
        self.closed_s: dict[str, float] = {}
        self._seen_alive: set[tuple[str, ProcessKey]] = set()
        self._last: TrueReading | None = None
        self._asked_s = 0.0

    def daemon_starts(self, now: Now) -> None:
        """A daemon starts: what earlier ones began it waits for as long as for memory."""
        self._past |= self._lingering
        self._lingering.clear()
        self._seen_alive.clear()
        for action in self.open.values():
            action.ends_s = now.boottime_s + self._standing.policy.release_timeout_s

    def journal_opens(self, unfinished: AbstractSet[int], now: Now) -> None:
        """The daemon waits once more for what it finds unfinished in the journal."""
        again = {number: action for number, action in self._past.items() if number in unfinished}
        for number, action in again.items():
            action.ends_s = now.boottime_s + self._standing.policy.release_timeout_s
            self.open[number] = action
        self._past.clear()

    def forget(self) -> None:
        """The journal was lost while no daemon ran: what is in progress is no longer known."""
        self.open.clear()
        self._lingering.clear()
        self._past.clear()

    def saw(self, uses: Iterable[TrueUse], truth: TrueReading) -> None:
        """What the daemon has seen alive, and on which card."""
        self._seen_alive |= {(use.gpu, use.task.key) for use in uses if use.gpu not in truth.dark}

    def given(self, truth: TrueReading, asked: Now) -> None:
        """A reading is about to be taken: actions whose victims are no longer listed, or overdue, have ended."""
        self._last, self._asked_s = truth, asked.boottime_s
        listed = {line.task for line in truth.lines}
        for number, action in list(self.open.items()):
            is_over = action.life != self._standing.life and asked.boottime_s >= action.ends_s
            if is_over or not self._may_hold(action, listed, truth):
                self.close(number)

    def _may_hold(self, action: TrackedAction, listed: set[Task | None], truth: TrueReading) -> bool:
        """Whether memory of a victim may still be taken, or a victim of this daemon's own still lives.

        Of an earlier daemon's action the journal tells whom it was meant for, and not the forks that it met.
        """
        if action.life != self._standing.life:
            return truth.reading.blind or any(task is not None and task.key in action.targets for task in listed)
        if truth.reading.blind or not action.signalled:
            return True
        theirs = [
            task for task in listed if task is not None and task.pod == action.key[0] and task.container in action.boxes
        ]
        # As long as the daemon does not call its processes dead, those that have joined are its victims, too.
        if theirs and not action.is_dead:
            return True
        # It waits for the memory of what had ended before, if a victim seemed to keep it.
        is_awaited = self._asked_s < max(action.ends_s, action.latest_s) and not all(task.lives for task in theirs)
        return is_awaited or any(task.lives or task in listed for task in action.signalled)

    def close(self, number: int) -> None:
        """An action has ended, by its own end or by the oracle's."""
        action = self.open.pop(number, None)
        if action is not None:
            self._lingering[number] = action
            self._timers.end_enforcement(action.key, self._asked_s)
            self.closed_s[action.key[0]] = self._asked_s

    def _forget(self, number: int) -> None:
        self.close(number)
        self._note_known(number)

    def _note_known(self, number: int) -> None:
        """The daemon knows by now that an action has ended."""
        action = self._lingering.pop(number, None)
        if action is not None:
            self._timers.end_of_pod(action.key[0])

    def of(self, task: Task) -> TrackedAction | None:
        for action in (*self.open.values(), *self._lingering.values()):
            if action.life == self._standing.life and action.key[0] == task.pod and task.container in action.boxes:
                return action
        return None

    def may_seem_to_live(self, uid: str, now: Now) -> bool:
        """Whether the daemon may still look for processes of an ended action: it can't read the place of some."""
        here = self._standing
        mine = (action for action in self._lingering.values() if action.key[0] == uid)
        # Of an earlier daemon's it does not know whether a process that has the PID of another is its victim.
        unsure = (action for action in mine if action.life != here.life or not action.is_dead)
        return any(now.boottime_s < max(action.ends_s, action.latest_s) for action in unsure)

    def advanced(self, now: Now) -> None:
        """The daemon has let its actions go on: those whose grace was over then are past it for good."""
        for action in (*self.open.values(), *self._lingering.values()):
            over = now.boottime_s >= action.began.boottime_s + action.step.grace_s
            if (over or self.hastened(action)) and not action.is_grace_over:
                action.is_grace_over = True
                action.latest_s = now.boottime_s + self._standing.policy.release_timeout_s

    def before_reload(self) -> None:
        """What a stronger step has cut short stays so, whatever the next policy says."""
        for action in self.open.values():
            action.is_grace_over = action.is_grace_over or self.hastened(action)

    def hastened(self, action: TrackedAction) -> bool:
        """Whether a stronger step can have come due: one after the action's own in the rule as it is now."""
        reading = self._standing.reading
        fact = reading.facts.get(action.key) if reading is not None else None
        if fact is None:
            return False
        names = [step.signature for step in fact.rule.steps]
        own = names.index(action.step.signature) if action.step.signature in names else len(names)
        return any(step.do == "kill" and self._timers.due(fact, step) for step in fact.rule.steps[own + 1 :])

    def ended(self, number: int, result: Result, now: Now) -> None:
        """The daemon says that an action has ended, or that its processes are dead."""
        action = self.open.get(number) or self._lingering.get(number)
        if action is None:
            return
        if result is Result.FAILED:
            if action.killed_s == now.boottime_s and not action.drains and not any(t.aloof for t in action.signalled):
                fail(TIME, f"action {number} fails in the moment of a SIGKILL")
            self._timers.note_failed(action.key, had_begun=True)
            self._standing.seen["failed"] += 1
            self._forget(number)
        elif result is Result.DONE:
            action.is_dead = True
        elif result is Result.GONE:
            if action.chosen is None or action.is_killing:
                fail(ENDED, f"action {number} is called no longer needed")
            self._standing.seen["spared SIGKILL"] += 1
            self._forget(number)
        elif result is Result.INTERRUPTED:
            action.result = result
            self._timers.end_enforcement(action.key, now.boottime_s)
            self._timers.end_of_pod(action.key[0])
            self._standing.seen["interrupted"] += 1

    def _demand_unlisted(self, action: TrackedAction, truth: TrueReading) -> None:
        for line in truth.lines:
            answer = self._standing.answers.get(line.pid)
            is_another = answer is None or line.task is None or answer.key not in (None, line.task.key)
            if line.gpu in truth.dark and line.task is not None:
                # What the daemon never saw alive on a card it can't tie to it while the card is not listed.
                is_tied = (line.gpu, line.task.key) in self._seen_alive and line.pid not in self._standing.recycled
                is_another = is_another or not is_tied
            is_meant = line.task is not None and line.task.key in action.targets
            if not is_another and (is_meant if action.life != self._standing.life else line.task in action.signalled):
                fail(ENDED, f"action {action.number} is called released, and {line} is listed")

    def released(self, number: int, now: Now, release_s: float | None) -> None:
        """The daemon says that the memory of an action is free, or that it waits no longer."""
        lingering = self._lingering.get(number)
        if lingering is not None and lingering.life != self._standing.life:
            self._timers.end_enforcement(lingering.key, self._asked_s)
        self._note_known(number)
        action = self.open.get(number)
        if action is None:
            return
        is_early = now.boottime_s < action.ends_s
        if action.life == self._standing.life and release_s is None:
            # It gave up waiting, or was stopped.
            if is_early and action.result is not Result.INTERRUPTED:
                fail(ENDED, f"action {number} is given up {action.ends_s - now.boottime_s} s too early")
        elif is_early and self._last is not None:
            self._demand_unlisted(action, self._last)
        self._standing.seen["not released"] += now.boottime_s >= action.ends_s
        self._past[number] = action
        self._forget(number)
