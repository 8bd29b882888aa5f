"""Signals of the oracle: each is held against the laws before it goes out."""

import signal
from dataclasses import replace
from typing import Final

from tests.soak.actionbook import ActionBook, TrackedAction
from tests.soak.kernel import Task
from tests.soak.standing import Standing
from tests.soak.truth import protected, true_to_claim
from tests.soak.violation import fail
from watchdog.core.model import Now

LAW4: Final = "law 4, only unprotected processes of an account over its limit are signalled"
GRACE: Final = "point 23, SIGTERM, then the grace period, then SIGKILL"
WITHDRAWN: Final = "point 20, no SIGKILL is sent once the pod is protected or the policy observes"
WRITTEN: Final = "point 20, no signal is sent while the policy is being written"
ENOUGH: Final = "point 22, scope process stops once use is at or below the threshold"
NEIGHBOURS: Final = "point 36, another client of the MPS server broke"
SERVER: Final = "point 35, an MPS server that other pods need is never signalled"
ALOOF: Final = "point 23, no process is signalled if one is out of reach"


class SignalBook:
    """Hears of every signal. `out_of_reach` are the containers (pod, ID) with a process that could not be tested."""

    def __init__(self, standing: Standing, actions: ActionBook) -> None:
        self._standing = standing
        self._actions = actions
        self.out_of_reach: set[tuple[str, str | None]] = set()

    def signalled(self, task: Task, number: int, now: Now) -> None:
        if not task.lives:
            return
        if number == 0:
            if task.aloof and task.pod is not None:
                self.out_of_reach.add((task.pod, task.container))
            return
        self._standing.tail.append(f"signal {number} to {task.key.pid}/{task.key.start_ticks} of {task.pod}")
        action = self._action_on(task)
        if task.serves_others:
            fail(SERVER, f"{task.key} of {task.pod}")
        self._demand_no_work(task)
        if not action.signalled:
            self._demand_no_client(action)
        self._standing.seen["own client signalled"] += task.server is not None and not task.server.serves_others
        if number == signal.SIGTERM:
            self._term(action, task)
        elif number == signal.SIGKILL:
            self._kill(action, task, now)
        else:
            fail(LAW4, f"signal {number}")

    def drained(self, task: Task, now: Now) -> None:
        """A client is about to be drained, which only a begun action may do, and no more than it may signal.

        Once SIGKILL has been sent, what is left is completed.
        """
        here = self._standing
        here.tail.append(f"drain of {task.key.pid}/{task.key.start_ticks} of {task.pod}")
        if not task.lives:
            return
        action = self._action_on(task)
        if not (here.enforcing or action.is_killing):
            fail(WITHDRAWN, f"{task.key} is drained")
        if here.waits(now) and not action.is_killing:
            fail(WRITTEN, f"{task.key} is drained")
        action.drains = True
        here.seen["client drained"] += 1

    def _demand_no_work(self, task: Task) -> None:
        """No process that the last reading showed as a client gets any signal as long as others would break by it."""
        here, reading = self._standing, self._standing.reading
        if reading is None or here.policy.safety.signal_mps_clients or not task.is_served_from_outside:
            here.seen["drained client signalled"] += task.drained
            return
        if any(line.task is task and line.mps for line in reading.truth.lines):
            fail(NEIGHBOURS, f"{task.key} of {task.pod} is not drained, and is a client of {task.server}")

    def _action_on(self, task: Task) -> TrackedAction:
        """The action that this signal is part of; none may be sent without."""
        if task.pod is None or task.key.pid <= 1:
            fail(LAW4, f"{task} is signalled")
        action = self._actions.of(task)
        if action is None:
            fail(LAW4, f"process {task.key} of pod {task.pod} is signalled, and no action is about it")
        if action.chosen not in (None, task.key):
            fail(LAW4, f"{task.key} is signalled, its action is about {action.chosen} alone")
        if (task.pod, task.container) in self.out_of_reach:
            fail(ALOOF, f"{task.key} of {task.pod}")
        return action

    def _demand_no_client(self, action: TrackedAction) -> None:
        """Before the first signal: none that is to be ended was a client of a server outside its pod by the last look.

        The other clients of that server break by its end. A server of its own pod serves that pod alone. While other
        clients are drained, a process that becomes one is noticed by a reading, not by a last look at others' cards.
        """
        here, reading = self._standing, self._standing.reading
        truth = None if reading is None else reading.truth
        if reading is not None and reading.asked.boottime_s <= action.dated.boottime_s:
            truth = reading.second or truth
        for line in () if truth is None or here.policy.safety.signal_mps_clients else truth.lines:
            task = line.task
            is_meant = task is not None and task.lives and task.pod == action.key[0] and task.container in action.boxes
            # One whose cgroup text lies is not found in the container, and so not signalled.
            is_found = task is not None and true_to_claim(task) and action.chosen in (None, task.key)
            if is_meant and line.mps and is_found and task is not None and task.is_served_from_outside:
                fail(NEIGHBOURS, f"{task.key} of {task.pod} is a client of {task.server}")

    def _term(self, action: TrackedAction, task: Task) -> None:
        if action.is_killing or action.step.grace_s <= 0 or task in action.termed:
            fail(GRACE, f"SIGTERM to {task.key} too late, or twice")
        action.termed.add(task)
        self._standing.seen["saver forked"] += task.saves and not task.stubborn
        self._standing.seen["SIGTERM"] += 1
        self._standing.seen["SIGTERM to one that joined"] += task.key not in action.targets

    def _kill(self, action: TrackedAction, task: Task, now: Now) -> None:
        if not action.is_killing:
            action.is_killing = True
            if action.step.grace_s > 0:
                self._end_grace(action, now)
        action.killed.add(task)
        action.killed_s = now.boottime_s
        self._standing.seen["SIGKILL"] += 1

    def _end_grace(self, action: TrackedAction, now: Now) -> None:
        """The first SIGKILL of an action: the grace must be over, and nothing may have withdrawn it meanwhile."""
        here = self._standing
        here.seen["grace ran out"] += 1
        if here.waits(now):
            fail(WRITTEN, f"SIGKILL for {action.key}")
        waited_s = now.boottime_s - action.began.boottime_s
        over = waited_s >= action.step.grace_s
        # Whichever of its processes have ended by then: those that came later have the rest of it, too.
        if not (over or action.is_grace_over or self._actions.hastened(action)):
            fail(GRACE, f"{waited_s} s of {action.step}")
        here.seen["hastened"] += not over
        if action.is_grace_over:
            return  # it was over before anything could be withdrawn: what is left is completed
        tenant = here.tenants.get(action.key[0])
        # Point 28: a deletion after the first signal changes nothing, be it of the pod's object, be it only begun.
        is_spared = tenant is not None and protected(replace(tenant, deadline_s=None), here.policy, now)
        if not here.enforcing or is_spared:
            fail(WITHDRAWN, f"{action.key}: enforcing {here.enforcing}, {tenant}")
        if action.chosen is not None and not action.drains:
            self._demand_need(action)

    def _demand_need(self, action: TrackedAction) -> None:
        reading = self._standing.reading
        if reading is None or not reading.bright or reading.asked.boottime_s <= action.began.boottime_s:
            return
        fact = reading.facts.get(action.key)
        if fact is not None and fact.used <= action.threshold_bytes:
            fail(ENOUGH, f"{action.key} uses {fact.used} of {action.threshold_bytes}")
