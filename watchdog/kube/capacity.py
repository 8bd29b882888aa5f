"""A node's advertised capacity: the patch, when it may be made again, and the thread that keeps it in place."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from watchdog import clock
from watchdog.core.capacity import Settling, advertised, offered
from watchdog.core.errors import Problem
from watchdog.core.model import Node, Snapshot
from watchdog.core.policy import Policy
from watchdog.core.units import format_quantity
from watchdog.kube.client import Api
from watchdog.kube.notices import Note, Notices
from watchdog.kube.objects import decode_node
from watchdog.kube.responses import ApiError, ApiResponse, RequestBackoff
from watchdog.kube.wire import DECODE_ERRORS, continue_token, split_items

CONTENT_TYPE: Final = "application/json-patch+json"
_CAPACITY: Final = "/status/capacity"
# Nodes at a time: one takes 10 to 20 KiB, with the images that it has.
_PORTION: Final = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityChange:
    """A change of one entry of a node's capacity, from what was seen there to an `amount`; None takes it away.

    `written` is the entry as the server writes it, None where it is missing; `bare` says that the node has no capacity
    at all. `uid` is that of the node's object: another one of the same name is another node.
    """

    node: str
    uid: str
    resource: str
    written: str | None
    bare: bool
    amount: int | None

    @classmethod
    def of(cls, node: Node, resource: str, amount: int | None) -> "CapacityChange":
        """The change on a node as it is known."""
        written = node.capacity.get(resource)
        return cls(
            node=node.name,
            uid=node.uid,
            resource=resource,
            written=written,
            bare=not node.capacity,
            amount=amount,
        )

    @property
    def before(self) -> str:
        """What was advertised, for people."""
        return "nothing" if self.written is None else quantity(self.written)

    def patch(self) -> list[dict[str, Any]]:
        """The JSON patch (RFC 6902). Where something else is there by now, a test fails, and nothing is done."""
        entry = f"{_CAPACITY}/{self.resource.replace('~', '~0').replace('/', '~1')}"
        tests: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": self.uid}]
        if self.bare:
            # A missing entry equals null for the server (evanphx/json-patch); its parent must be there to test one.
            tests.append({"op": "test", "path": _CAPACITY, "value": None})
            return [*tests, {"op": "add", "path": _CAPACITY, "value": {self.resource: str(self.amount)}}]
        tests.append({"op": "test", "path": entry, "value": self.written})
        if self.amount is None:
            return [*tests, {"op": "remove", "path": entry}]
        return [*tests, {"op": "add", "path": entry, "value": str(self.amount)}]


def read_node(api: Api, name: str) -> tuple[ApiResponse, Node | None]:
    """The node of a name as it is now, None where there is none; ApiError where no answer comes, or no list.

    As a list of one: whoever may follow the node may do that, and needs no right to get it.
    """
    answer = api.call("GET", "/api/v1/nodes", {"fieldSelector": f"metadata.name={name}"})
    if not answer.is_good:
        return answer, None
    try:
        nodes = [decode_node(item) for item in split_items(answer.body, "Node")]
    except (ValueError, *DECODE_ERRORS) as error:
        raise ApiError(Problem(f"node {name} can't be read: {error}", "report it with the server's version")) from error
    return answer, next((node for node in nodes if node.name == name), None)


def list_nodes(api: Api, *, selector: str = "", portion: int = _PORTION) -> Iterator[Node]:
    """Every node of the cluster whose labels a selector matches (empty: all), asked for so many at a time.

    ApiError where a refusal comes, or no list; a selector that is none is refused by the server.
    """
    chosen: dict[str, str | int] = {"labelSelector": selector} if selector else {}
    query = {**chosen, "limit": portion}
    while True:
        answer = api.call("GET", "/api/v1/nodes", query)
        if not answer.is_good:
            raise ApiError(answer.problem("listing the nodes"))
        try:
            yield from [decode_node(item) for item in split_items(answer.body, "Node")]
            more = continue_token(answer.body)
        except (ValueError, *DECODE_ERRORS) as error:
            raise ApiError(
                Problem(f"the nodes can't be read: {error}", "report it with the server's version")
            ) from error
        if not more:
            return
        query = {**chosen, "limit": portion, "continue": more}


def send(api: Api, change: CapacityChange) -> ApiResponse:
    """Ask the API server for a change; ApiError where no answer comes."""
    path = f"/api/v1/nodes/{quote(change.node, safe='')}/status"
    return api.call("PATCH", path, body=change.patch(), content_type=CONTENT_TYPE)


def is_outrun(answer: ApiResponse) -> bool:
    """Whether a change was refused because the node is no longer as it was seen.

    A patch whose tests fail is a 422 as an invalid amount is, but without causes (applyJSPatch in
    k8s.io/apiserver/pkg/endpoints/handlers/patch.go); 404: the node's object is gone.
    """
    return answer.status == 404 or (answer.status == 422 and not answer.causes)


def quantity(written: str) -> str:
    """A quantity as people read it: 85899345920 is 80Gi."""
    amount = advertised(written)
    return written if amount is None else format_quantity(amount)


# A change that was made is seen in the watch within this time; until then what is known of the node is old.
_ECHO_S: Final = 5.0
# What stays this long is not contested.
_QUIET_S: Final = 600.0
# So often in a row an undone change is made again at once: a kubelet may start twice.
PATIENCE: Final = 3


class CapacityPace:
    """Says when the next change may be made; seconds are those of CLOCK_BOOTTIME."""

    def __init__(self) -> None:
        self.not_before_s = 0.0
        self.failures = 0
        self._uid: str | None = None
        self._made: CapacityChange | None = None
        self._made_at_s = 0.0
        self._reverts = 0
        never = threading.Event()  # the keeper waits by itself
        self._contested = RequestBackoff(never, first_s=8.0, longest_s=600.0)
        # A server that does not answer may be up again at any moment; one that refuses waits for a person.
        self._unavailable = RequestBackoff(never)
        self._refused = RequestBackoff(never, first_s=1.0, longest_s=60.0)

    def awaits_echo(self, change: CapacityChange, now_s: float) -> bool:
        """Whether this very change has just been made, and the node is known as it was before."""
        return change == self._made and now_s - self._made_at_s < _ECHO_S

    def consider(self, change: CapacityChange, now_s: float) -> str | None:
        """Look at a change that has become necessary; a sentence if somebody else undoes it again and again."""
        made, self._made = self._made, None
        if change.uid != self._uid:
            # Another object, to which nobody has done anything yet.
            self._uid, self._reverts, self.not_before_s = change.uid, 0, 0.0
            return None
        if made is None or (made.resource, made.amount) != (change.resource, change.amount):
            return None
        if now_s - self._made_at_s >= _QUIET_S:
            self._reverts = 0
            self._contested.reset()
        self._reverts += 1
        if self._reverts < PATIENCE:
            return None
        self.not_before_s = now_s + self._contested.next_s()
        return (
            f"node {change.node}: {change.resource} does not stay at {format_quantity(change.amount or 0)}, something "
            "else sets it to another amount again and again. A device plugin that offers the same resource does so "
            "(the kubelet writes its number at every status sync): name another resource in [capacity], or take it "
            "out of the plugin. It is tried again, less and less often"
        )

    def made(self, change: CapacityChange, now_s: float) -> None:
        """The server has made a change."""
        self.failures = 0
        self._unavailable.reset()
        self._refused.reset()
        self._made, self._made_at_s = change, now_s

    def failed(self, answer: ApiResponse | None, now_s: float) -> None:
        """A change was not made; no answer: none came."""
        self.failures += 1
        is_unavailable = answer is None or answer.status == 429 or answer.status >= 500
        backoff = self._unavailable if is_unavailable else self._refused
        self.not_before_s = now_s + backoff.next_s(answer.retry_after_s if answer is not None else None)


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
        self._wanted: CapacityChange | None = None
        self._pace = CapacityPace()
        self._changes: list[str] = []

    def keep(self, node: Node, snapshot: Snapshot, policy: Policy) -> None:
        """Have the node advertise what it has to offer by this snapshot; returns at once.

        For the loop, after each cycle and whenever the node has changed, and only by the daemon that holds the node's
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

    def _change(self, node: Node, snapshot: Snapshot, policy: Policy) -> CapacityChange | None:
        capacity = policy.capacity
        if capacity is None or not node.known or not node.uid:
            return None
        present = advertised(node.capacity.get(capacity.resource))
        wanted = offered(capacity, snapshot)
        amount = self._settling.settle(wanted, present, snapshot.at, policy.reset_after_s)
        return None if amount is None else CapacityChange.of(node, capacity.resource, amount)

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
            answer: ApiResponse | None = None
            what = f"advertising {change.resource} on node {change.node}"
            problem: Problem | None = None
            try:
                answer = send(self._api, change)
            except ApiError as error:
                problem = error.problem.of(what)
            else:
                problem = None if answer.is_good else answer.problem(what)
            with self._condition:
                self._take(change, answer, problem)

    def _next(self) -> CapacityChange | None:
        """Wait for something to do and the time to do it; None: it is over."""
        with self._condition:
            while not self._stopped:
                wait_s = self._pace.not_before_s - clock.now().boottime_s
                if self._wanted is not None and wait_s <= 0:
                    return self._wanted
                self._condition.wait(wait_s if self._wanted is not None else None)
            return None

    def _take(self, change: CapacityChange, answer: ApiResponse | None, problem: Problem | None) -> None:
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
            self._trouble.note("unreachable" if answer is None else f"{answer.status}", str(problem), now_s)
        elif self._pace.failures > PATIENCE:
            # A node that has changed meanwhile is about to be known as it is; only if it never is, that is said.
            why = "it is no longer as it was last seen, and the watch does not say how it is now"
            self._trouble.note("outrun", f"node {change.node} can't be changed: {why}", now_s)
