"""The clearance of an action that ends MPS clients: they are drained first, so that their neighbours are not broken.

A signal to a client with work outstanding leaves the other clients of its server in an undefined state. docs/adr/0016
has the states. The requests are made on other threads; no method here waits.
"""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol
from weakref import WeakSet

from watchdog.clock import Bell
from watchdog.core.assessment import AccountKey, Attribution, Inputs, KnownDrains
from watchdog.core.model import DRAIN, Now, ProcessKey
from watchdog.core.mps import DrainableClient, Drained, DrainResult, is_client, may_be_client, mps_gpus
from watchdog.core.plan import PlanEntry
from watchdog.core.policy import Policy
from watchdog.daemon.actions.action import ActionReading
from watchdog.daemon.actions.clearance import Clearance, Clearances
from watchdog.daemon.actions.mps_clients import ClientsOf, clients_seen, no_clients
from watchdog.node.mps import MpsControl
from watchdog.node.procfs import Procfs

# An action queued for a control daemon keeps its place until it has asked, or has not come back for this long.
_QUEUED_S: Final = 5.0
# An MPS server has at most 60 clients (docs.nvidia.com/deploy/mps, Volta MPS); a pod that starts more is not followed.
_MOST: Final = 256
BUSY: Final = "the MPS control daemon had not answered another request yet"
TOO_LATE: Final = "the last look had become too old before an MPS client could be drained"


class Drainer(Protocol):
    """Asks MPS control daemons on other threads, and wakes the loop for their answers."""

    @property
    def drainable(self) -> tuple[DrainableClient, ...]:
        """The clients that trusted control daemons list, as far as the driver lists them too."""

    @property
    def servers(self) -> frozenset[ProcessKey]:
        """The MPS servers that trusted control daemons have named."""

    def refresh(self, clients: Mapping[ProcessKey, frozenset[str]], now: Now, *, gpus: int = 0) -> None:
        """Ask for the clients again, if it is time; `clients` are those that the driver lists, with their GPUs."""

    def is_querying(self, pipe: str) -> bool:
        """Whether the control daemon of a pipe is being asked for its clients, so that a request would wait."""

    def drain(self, request_id: int, clients: tuple[DrainableClient, ...], may_send: Callable[[], bool]) -> None:
        """Hand in a request; returns at once. `may_send` is called on another thread right before it is sent."""

    def pop_results(self) -> tuple[DrainResult, ...]:
        """The results since the last call."""


class DrainRequest:
    """A request to drain one client: whether it was sent, and its result once there is one.

    `may_send` is called on another thread. Once `cancel` has returned False, the request is never sent.
    """

    def __init__(self, client: DrainableClient, is_fresh: Callable[[], bool]) -> None:
        self.client = client
        self.result: DrainResult | None = None
        self.was_held_back = False  # when it was about to be sent
        self.was_noted = False  # that it was sent
        self._is_fresh = is_fresh
        self._is_wanted = True
        self._is_sent = False
        self._lock = threading.Lock()

    @property
    def is_sent(self) -> bool:
        """Whether the control daemon may have got it."""
        with self._lock:
            return self._is_sent

    def may_send(self) -> bool:
        """Whether the request is to be sent, which then counts as done."""
        with self._lock:
            self._is_sent = self._is_wanted and self._is_fresh()
            self.was_held_back = not self._is_sent
            return self._is_sent

    def cancel(self) -> bool:
        """Do not send it; whether it was sent before."""
        with self._lock:
            self._is_wanted = False
            return self._is_sent


class Drains(Clearances):
    """The requests of all actions, one at a time for each pipe, in turn; remembers which clients are drained.

    So a request waits for no other, and is not sent once its action has ended or its last look is too old.
    """

    def __init__(self, drainer: Drainer | None = None) -> None:
        self._drainer = drainer
        self._last_request_id = 0
        self._requests: dict[int, DrainRequest] = {}
        self._queues: dict[str, dict[AccountKey, float]] = {}  # by pipe: who waits for a turn, in order, and since when
        self._drained: frozenset[ProcessKey] = frozenset()
        self._listed: dict[ProcessKey, frozenset[str]] = {}
        self._gpus = 0
        self._drains_in_use = WeakSet[Drain]()
        self.is_shown = False  # that there are MPS clients or servers, or may be
        self.accepts_clients = False  # by the policy of this moment: that those that can't be drained are ended
        self.gpus: frozenset[str] = frozenset()
        self.seen_of: ClientsOf = no_clients  # by the last reading

    def configure(self, policy: Policy) -> None:
        """Go by this policy from now on."""
        self.accepts_clients = policy.safety.signal_mps_clients

    @property
    def known(self) -> KnownDrains:
        """The clients that can be drained now, and those that have been."""
        if self._drainer is None:
            return KnownDrains(drained=self._drained)
        clients = frozenset(client.key for client in self._drainer.drainable)
        return KnownDrains(drainable=clients, drained=self._drained, servers=self._drainer.servers)

    def on_attribution(self, attribution: Attribution, gpus: int) -> None:
        """Use the clients of a reading: they may be drainable; drained ones not listed as clients are forgotten."""
        self._gpus, self._listed = gpus, {}
        for use in attribution.attributed:
            if is_client(use):
                self._listed[use.key] = self._listed.get(use.key, frozenset()) | {use.gpu}
        if self._drained:
            clients = {use.key for use in attribution.attributed if may_be_client(use)}
            elsewhere = {use.pid for use in attribution.unattributed if may_be_client(use)}
            self._drained = frozenset(key for key in self._drained if key in clients or key.pid in elsewhere)

    def refresh(self, now: Now) -> None:
        """Have the control daemons asked for their clients again, if it is time; returns at once."""
        self.collect_results()
        if self._drainer is not None:
            self._drainer.refresh(self._listed, now, gpus=self._gpus)

    def find(self, key: ProcessKey) -> DrainableClient | None:
        """The client, if it can be drained now."""
        clients = self._drainer.drainable if self._drainer is not None else ()
        return next((client for client in clients if client.key == key), None)

    @property
    def are_needed(self) -> bool:
        """Whether readings matter: there may be MPS on the node, or it is not known yet what became of a drain."""
        return self.is_shown or bool(self._drained or self._requests or self._drains_in_use)

    def on_reading(self, reading: ActionReading) -> None:
        """Use the MPS clients of a reading, of which the clearances ask."""
        if not reading.snapshot.blind:
            self.on_attribution(reading.attribution, len(reading.snapshot.gpus))
        self.accepts_clients = reading.inputs.policy.safety.signal_mps_clients
        self.gpus = frozenset(mps_gpus(reading.attribution))
        self.is_shown = reading.snapshot.blind or bool(self.gpus)
        self.seen_of = clients_seen(
            reading.assessments, reading.attribution, reading.snapshot, reading.inputs.policy, reading.asked
        )

    def why_not(self, entry: PlanEntry, ends_container: Callable[[], bool] = lambda: False) -> str | None:
        """Why the clients among what an action ends can't be drained; None if they can, or if there is none.

        `ends_container`: whether the end of the processes that it ends may end their container.
        """
        seen = self.seen_of(entry)
        if seen.has_others_beside and ends_container():
            return "its end would end its container, in which another process is or may be an MPS client or server"
        lost = next((key for key in entry.to_drain if self.find(key) is None), None)
        is_accepted = seen.accepts_clients and self.accepts_clients
        return None if lost is None or is_accepted else f"MPS client {lost.pid} could no longer be drained"

    def begin(
        self,
        entry: PlanEntry,
        *,
        note: Callable[[str, list[ProcessKey], Now], None],
        may_live: Callable[[ProcessKey], bool] = lambda _: True,
        is_fresh: Callable[[], bool] = lambda: True,
    ) -> Clearance:
        """The drain of an action's clients."""
        drain = Drain(self, entry, note=note, may_live=may_live, is_fresh=is_fresh)
        self._drains_in_use.add(drain)
        return drain

    def queue(self, entry: PlanEntry, now: Now) -> bool:
        """Queue an action whose clients are drained first; whether it has its turn now."""
        self.collect_results()  # an action that was called off has left its answer
        client = next(filter(None, map(self.find, entry.to_drain)), None)
        if client is None or self._drainer is None:
            return True
        is_first = self.queue_for(client, entry.account, now)
        return not self._drainer.is_querying(client.pipe) and is_first

    def queue_for(self, client: DrainableClient, account: AccountKey, now: Now) -> bool:
        """Queue an action for the control daemon of a client; whether it has its turn to drain that client now."""
        queue = self._queues.setdefault(client.pipe, {})
        queue[account] = now.boottime_s  # at the end, unless it is queued already
        for other, came_s in tuple(queue.items()):
            if now.boottime_s - came_s > _QUEUED_S:
                del queue[other]
        is_free = all(request.client.pipe != client.pipe for request in self._requests.values())
        return is_free and next(iter(queue)) == account

    def leave(self, account: AccountKey) -> None:
        """Take an action out of every queue."""
        for queue in self._queues.values():
            queue.pop(account, None)

    def request_drain(
        self, account: AccountKey, client: DrainableClient, is_fresh: Callable[[], bool] = lambda: True
    ) -> DrainRequest:
        """Ask for a client to be drained; it is the action's turn."""
        assert self._drainer is not None
        self.leave(account)
        self._last_request_id += 1
        self._requests[self._last_request_id] = request = DrainRequest(client, is_fresh)
        self._drainer.drain(self._last_request_id, (client,), request.may_send)
        return request

    def collect_results(self) -> None:
        """Take the results that have come."""
        for result in self._drainer.pop_results() if self._drainer is not None else ():
            request = self._requests.pop(result.request_id, None)
            if request is not None:
                request.result = result
                self._drained |= {result.key} if result.drained is Drained.DONE else frozenset()


class NodeDrains(Drains):
    """The drains of the node on which the daemon runs: by its control daemons, as the policy says."""

    def __init__(self, bell: Bell, procfs: Procfs, policy: Policy) -> None:
        self._control = MpsControl(bell, procfs, policy.mps)
        super().__init__(self._control)

    def configure(self, policy: Policy) -> None:
        """Go by this policy from now on."""
        super().configure(policy)
        self._control.configure(policy.mps)

    def restore(self, drained: frozenset[ProcessKey]) -> None:
        """Take over what an earlier daemon has had drained, or may have."""
        self._control.asked.assume_asked(drained)

    def complete(self, inputs: Inputs) -> Inputs:
        """The inputs of a cycle with what is known of MPS clients, and what could not be determined."""
        gaps, pods = self._control.gaps, inputs.pods
        pods = replace(pods, gaps=(*pods.gaps, *gaps)) if gaps else pods
        return replace(inputs, pods=pods, drains=self.known, pinned=self._control.limits)

    def close(self) -> None:
        """Ask for nothing more."""
        self._control.close()


class Drain(Clearance):
    """The clients of one action: each is drained in turn, then a reading must show that there are no others.

    A program often replaces a process whose client was drained, and the new one is a client too. `is_clear`: signals
    may be sent, as far as MPS is concerned.
    """

    why_not_begun = BUSY
    in_words = "its MPS clients were drained"
    why_late = "an MPS client among its processes was not drained in time"

    def __init__(
        self,
        drains: Drains,
        entry: PlanEntry,
        *,
        note: Callable[[str, list[ProcessKey], Now], None],
        may_live: Callable[[ProcessKey], bool],
        is_fresh: Callable[[], bool],
    ) -> None:
        seen = drains.seen_of(entry)
        self._drains = drains
        self._entry = entry
        self._waiting = list(entry.to_drain)
        self._seen = seen  # by the last reading
        self._note = note
        self._may_live = may_live
        self._is_fresh = is_fresh
        self._request: DrainRequest | None = None
        self._has_sent = False
        self._settled: set[ProcessKey] = set()
        self._accepted: set[ProcessKey] = set()  # that can't be drained, and that the policy accepts are ended
        self._others: frozenset[ProcessKey] = frozenset()  # that the last reading showed and that can't be drained
        self._requests = 0
        self._last_drained_s = -1.0
        self._progress_s = math.inf  # it has not begun
        self.seen_s = seen.asked_s
        # When the last conclusive reading was requested; None: there is no MPS on the node.
        self._read_s = seen.asked_s if seen.has_mps else None
        self._is_confirmed = not self._waiting

    @property
    def has_asked(self) -> bool:
        """Whether a request was made, sent or not."""
        return self._requests > 0

    @property
    def has_sent(self) -> bool:
        """Whether a control daemon may have got a request."""
        return self._has_sent or (self._request is not None and self._request.is_sent)

    @property
    def is_asking(self) -> bool:
        """Whether a request has no answer yet."""
        return self._request is not None

    @property
    def is_clear(self) -> bool:
        """Whether every client is drained or accepted as it is, and a reading since then shows no other.

        What a reading showed by a policy that accepted clients counts only as long as the policy still does.
        """
        has_lapsed = self._seen.accepts_clients and not self._accepts_clients
        is_settled = self._request is None and not self._waiting and not self._others
        return self._is_confirmed and is_settled and not has_lapsed

    @property
    def _accepts_clients(self) -> bool:
        """Whether the policy accepts that clients that can't be drained are ended, and did at the last reading."""
        return self._seen.accepts_clients and self._drains.accepts_clients

    def permits(self, found_s: float) -> bool:
        """Whether a process may be signalled: a reading has shown since it was found whether it is a client.

        None is needed if there is no MPS on the node.
        """
        return self.is_clear and (self._read_s is None or self._read_s >= found_s)

    def advance(self, now: Now, *, may_ask: bool = True, has_begun: bool = False) -> str | None:
        """Take the answer to a request, and make the next one if it may; the reason if this action must end.

        `has_begun`: a process was signalled, so the last look, which counts for the first signal, is no longer needed.
        """
        has_begun = has_begun or self.has_sent
        self._drains.collect_results()
        self._progress_s = min(self._progress_s, now.boottime_s)
        self._note_sent(now)
        if self._request is not None:
            why = self._take_result(self._request, now)
            if why is not None or self._request is not None:
                return why
        if may_ask:
            self._ask_next(now, has_begun=has_begun)
            self._note_sent(now)
        if not self._waiting:
            self._drains.leave(self._entry.account)
        if not has_begun and self._request is None:
            if not self._waiting and self._settled:
                self._is_confirmed = True  # all had ended before any was drained, so the last look still counts
            if (self._waiting or self._settled) and not self._is_fresh():
                return TOO_LATE
        return self._overdue(now)

    def _ask_next(self, now: Now, *, has_begun: bool) -> None:
        """Ask for the next client to be drained, if it is this action's turn."""
        while self._waiting and self._requests < _MOST:
            key = self._waiting[0]
            if not self._may_live(key):
                self._settled.add(self._waiting.pop(0))
                continue
            client = self._drains.find(key)
            if client is None and self._accepts_clients:
                self._settled.add(key)
                self._accepted.add(self._waiting.pop(0))
                continue
            if client is not None and self._drains.queue_for(client, self._entry.account, now):
                self._waiting.pop(0)
                self._requests += 1
                self._progress_s = now.boottime_s
                is_fresh = (lambda: True) if has_begun else self._is_fresh
                self._request = self._drains.request_drain(self._entry.account, client, is_fresh)
            return

    def _note_sent(self, now: Now) -> None:
        """Note that the request in progress was sent, once it was."""
        if self._request is not None and self._request.is_sent and not self._request.was_noted:
            self._request.was_noted = self._has_sent = True
            self._progress_s = now.boottime_s
            self._note(DRAIN, [self._request.client.key], now)

    def cancel(self, now: Now) -> bool:
        """Send no request that has not been sent yet; whether any has been. One that was sent is noted."""
        self._drains.leave(self._entry.account)
        has_sent = (self._request is not None and self._request.cancel()) or self._has_sent
        self._note_sent(now)
        return has_sent

    def postpone(self, now: Now) -> None:
        """Note that it may not continue for the moment; what has not begun by now does not begin."""
        self._progress_s = now.boottime_s
        if not self.has_sent:
            self.cancel(now)

    def on_reading(self) -> None:
        """Take what the last reading shows: its clients are drained too, and a signal waits for one after that."""
        seen, was_clear = self._drains.seen_of(self._entry), self.is_clear
        self._seen = seen
        if not seen.accepts_clients:
            self._accepted.clear()
        if not seen.is_hidden:  # a client that it does not show has ended, or is none any more
            self.seen_s = seen.asked_s
            self._waiting = [key for key in self._waiting if key in seen.drainable or key in seen.others]
        # A client that has been drained can be drained again only once its process has become a client once more.
        known = {*self._accepted, *self._waiting, *([self._request.client.key] if self._request is not None else ())}
        self._waiting += sorted(key for key in seen.drainable - known if self._may_live(key))
        others = frozenset(key for key in seen.others - known if self._may_live(key))
        self._others = self._others | others if seen.is_hidden else others
        if not seen.is_hidden:
            self._read_s = seen.asked_s if seen.has_mps else None
        if self._waiting or self._others:
            self._is_confirmed = False
        elif not seen.is_hidden and seen.asked_s >= self._last_drained_s:
            self._is_confirmed = True
        if was_clear:
            self._progress_s = max(self._progress_s, seen.asked_s)

    def _take_result(self, request: DrainRequest, now: Now) -> str | None:
        result, key = request.result, request.client.key
        if result is None:
            if now.boottime_s < self._progress_s + self._seen.give_up_after_s:
                return None
            if not request.cancel():
                return f"MPS client {key.pid} was not drained: the request could not be sent"
            return f"it is not known whether MPS client {key.pid} was drained: no answer came"
        self._request = None
        self._progress_s = self._last_drained_s = now.boottime_s
        self._is_confirmed = False
        if request.was_held_back:
            return f"MPS client {key.pid} was not drained: {result.reason}"
        is_done = result.drained is Drained.DONE or not self._may_live(key)
        if not is_done and not self._accepts_clients:
            what = f"MPS client {key.pid} was not drained"
            if result.drained is Drained.UNKNOWN:
                what = f"it is not known whether MPS client {key.pid} was drained"
            return f"{what}: {result.reason}" if result.reason else what
        self._settled.add(key)
        self._accepted |= set() if is_done else {key}
        return None

    def _overdue(self, now: Now) -> str | None:
        """Why this action must end, since it has waited too long."""
        if self._waiting and self._requests >= _MOST:
            return f"its pod kept starting MPS clients, and had another after {_MOST} requests to drain one"
        if self.is_clear or now.boottime_s < self._progress_s + self._seen.give_up_after_s:
            return None
        left = (*self._waiting, *sorted(self._others))
        if left:
            return f"process {left[0].pid} is an MPS client that can't be drained"
        return "no reading has shown since then that all its MPS clients are drained"
