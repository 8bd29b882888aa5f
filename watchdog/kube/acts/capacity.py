"""The keeper of a node's capacity: what `[capacity]` advertises is there again whenever it is not.

A kubelet that starts, a node object that was created anew and a card that is lost or has come back: each makes what the
node advertises differ from what it has to offer. While nothing differs nothing is asked of the API.
"""

import threading

from watchdog import clock
from watchdog.core.capacity import Settling, advertised, offered
from watchdog.core.model import Node, Snapshot
from watchdog.core.policy import Policy
from watchdog.kube.acts.capacity_pace import PATIENCE, CapacityPace
from watchdog.kube.acts.capacity_patch import Change, is_outrun, quantity, send
from watchdog.kube.api.answers import Answer, ApiError
from watchdog.kube.api.client import Api
from watchdog.kube.api.note import Note
from watchdog.kube.api.notices import Notices


class CapacityKeeper:
    """Advertises on the own node what the policy says; the requests are made on a thread `api-capacity`."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._trouble = Notices()
        self._settling = Settling()
        self._kept: str | None = None
        self._thread: threading.Thread | None = None
        # What follows is shared with the thread.
        self._condition = threading.Condition()
        self._stopped = False
        self._wanted: Change | None = None
        self._pace = CapacityPace()
        self._changes: list[str] = []

    def keep(self, node: Node, snapshot: Snapshot, policy: Policy) -> None:
        """Have the node advertise what it has to offer by this snapshot; returns at once.

        For the loop, after each pass and whenever the node has changed, and only by the daemon that holds the node's
        lock: two with different policies would undo each other's work.
        """
        dropped = self._dropped(node, policy)
        change = self._change(node, snapshot, policy)
        now_s = clock.now().boottime_s
        with self._condition:
            if dropped is not None:
                self._trouble.note(dropped, dropped, now_s)
            if change is None or self._pace.awaits_echo(change, now_s):
                self._wanted = None
                return
            contest = self._pace.consider(change, now_s)
            if contest is not None:
                self._trouble.note("contest", contest, now_s)
            self._wanted = change
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="api-capacity", daemon=True)
                self._thread.start()
            self._condition.notify()

    def take_notes(self) -> tuple[Note, ...]:
        """What there is to say since the last time."""
        with self._condition:
            changes, self._changes = self._changes, []
        trouble = (Note(text=text, is_problem=True) for text in self._trouble.take())
        return (*(Note(text=text) for text in changes), *trouble)

    def rest(self) -> None:
        """Ask for nothing until `keep` is called again: another daemon may be at it."""
        with self._condition:
            self._wanted = None

    def stop(self) -> None:
        """Ask for nothing any more. What is advertised stays: `gpu-watchdog withdraw` takes it back."""
        with self._condition:
            self._stopped = True
            self._condition.notify()

    def _change(self, node: Node, snapshot: Snapshot, policy: Policy) -> Change | None:
        capacity = policy.capacity
        if capacity is None or not node.known or not node.uid:
            return None
        present = advertised(node.capacity.get(capacity.resource))
        wanted = offered(capacity, snapshot)
        amount = self._settling.settle(wanted, present, snapshot.at, policy.reset_after_s)
        return None if amount is None else Change.of(node, capacity.resource, amount)

    def _dropped(self, node: Node, policy: Policy) -> str | None:
        """After a reload, a sentence: what an earlier policy advertised stays until somebody takes it back."""
        resource = policy.capacity.resource if policy.capacity is not None else None
        dropped, self._kept = self._kept, resource
        if dropped in (None, resource):
            return None
        self._settling = Settling()
        return (
            f"the policy no longer advertises {dropped}, and node {node.name} still does: "
            f"`gpu-watchdog withdraw --node {node.name} --resource {dropped}` takes it back"
        )

    def _run(self) -> None:
        while (change := self._next()) is not None:
            answer: Answer | None = None
            what = f"advertising {change.resource} on node {change.node}"
            problem = ""
            try:
                answer = send(self._api, change)
            except ApiError as error:
                problem = f"{what}: {error}"
            else:
                problem = "" if answer.is_good else answer.sentence(what)
            with self._condition:
                self._take(change, answer, problem)

    def _next(self) -> Change | None:
        """Wait for something to do and the time to do it; None: it is over."""
        with self._condition:
            while not self._stopped:
                wait_s = self._pace.not_before_s - clock.now().boottime_s
                if self._wanted is not None and wait_s <= 0:
                    return self._wanted
                self._condition.wait(wait_s if self._wanted is not None else None)
            return None

    def _take(self, change: Change, answer: Answer | None, problem: str) -> None:
        now_s = clock.now().boottime_s
        if answer is not None and answer.is_good:
            self._pace.made(change, now_s)
            if self._wanted == change:
                self._wanted = None
            after = quantity(str(change.amount))
            now = f"node {change.node} advertises {after} of {change.resource} now"
            self._changes.append(f"{now}, before it was {change.before}")
            return
        self._pace.failed(answer, now_s)
        if answer is None or not is_outrun(answer):
            self._trouble.note("unreachable" if answer is None else f"{answer.status}", problem, now_s)
        elif self._pace.failures > PATIENCE:
            # A node that has changed meanwhile is about to be known as it is; only if it never is, that is said.
            why = "it is no longer as it was last seen, and the watch does not say how it is now"
            self._trouble.note("outrun", f"node {change.node} can't be changed: {why}", now_s)
