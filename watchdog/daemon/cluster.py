"""The connection to the cluster: what the daemon watches, evicts, writes and advertises through the API."""

from collections.abc import Iterator
from typing import Any, Final, cast

from watchdog.clock import Bell
from watchdog.core.keys import keys_of
from watchdog.core.model import Node, Snapshot
from watchdog.core.policy import Policy
from watchdog.kube.capacity import CapacityKeeper
from watchdog.kube.claim_requests import ClaimRequests
from watchdog.kube.claims import missing_claims
from watchdog.kube.client import Api
from watchdog.kube.events import EventWriter
from watchdog.kube.evict import ApiEvictor
from watchdog.kube.kinds import PODS, WATCHED_KINDS, InformerT, WatchedKind
from watchdog.kube.messages import ClockMessages, LogMessage
from watchdog.kube.watch import Informer
from watchdog.options import Options

# As long as `scan` waits for the driver.
_CLAIMS_WITHIN_S: Final = 30.0


class Cluster:
    """The watches for this node, and everything that acts through the API; requests start only when needed."""

    def __init__(self, options: Options, bell: Bell) -> None:
        self.api = Api(options.kubeconfig)
        self._options = options
        self._informers: dict[WatchedKind[Any, Any], Informer[Any, Any]] = {
            kind: kind.make_informer(self.api, options.node, bell) for kind in WATCHED_KINDS
        }
        self.pods = self.informer(PODS)
        self.claims = ClaimRequests(self.api, bell)
        self._has_claims = False
        self._policy: Policy | None = None
        self.evictor = ApiEvictor(self.api, bell)
        self.event_writer = EventWriter(self.api, options.node)
        self._clocks = ClockMessages()
        self._capacity = CapacityKeeper(self.api)
        self._watched: list[Informer[Any, Any]] = []

    def informer(self, kind: WatchedKind[Any, InformerT]) -> InformerT:
        """What watches this kind, whether it has been started or not."""
        return cast("InformerT", self._informers[kind])

    def follow(self, policy: Policy) -> None:
        """Watch exactly what this policy needs from now on."""
        self._policy = policy
        self.pods.want(keys_of(policy))
        for kind, informer in self._informers.items():
            is_watched = self._is_watched(kind, policy)
            if is_watched and informer not in self._watched:
                informer.start()
                self._watched.append(informer)
            elif not is_watched and informer in self._watched:
                informer.forget()
                self._watched.remove(informer)

    def _is_watched(self, kind: WatchedKind[Any, Any], policy: Policy) -> bool:
        return kind.is_watched(policy, self._options) and (self._has_claims or not kind.waits_for_claims)

    def follow_claims(self) -> None:
        """Watch what is watched for claims from now on: a pod has one."""
        if not self._has_claims and self._policy is not None:
            self._has_claims = True
            self.follow(self._policy)

    @property
    def defect(self) -> str | None:
        """Why the process has to be restarted, in a sentence; None if it need not be."""
        has_died = self.claims.has_died or any(informer.has_died for informer in self._watched)
        return "a thread that watches the API has died; please report this, with the log" if has_died else None

    def fetch(self, policy: Policy) -> None:
        """List once what this policy needs; a failure becomes a gap when the source is read."""
        self.pods.want(keys_of(policy))
        for kind in self.fetched(policy):
            self.informer(kind).fetch()
        self.fetch_claims(policy)

    def fetched(self, policy: Policy) -> Iterator[WatchedKind[Any, Any]]:
        """What to list once, to be listed before the next is taken: whether there are claims, the pods show."""
        for kind in self._informers:
            self._has_claims = self._has_claims or any(pod.claims for pod in self.pods.view.objects)
            if self._is_watched(kind, policy):
                yield kind

    def fetch_claims(self, policy: Policy) -> None:
        """Read the claims of the pods once, unless there is a file of them."""
        if policy.reads_claims and self._options.claims is None:
            self.claims.fetch(missing_claims(self.pods.view.objects), _CLAIMS_WITHIN_S)

    def keep_capacity(self, node: Node, snapshot: Snapshot, policy: Policy, *, has_lock: bool) -> None:
        """Advertise the policy's capacity on the node; a daemon without the node's lock leaves it alone."""
        if has_lock:
            self._capacity.advertise(node, snapshot, policy)
        else:
            self._capacity.pause()

    def take_messages(self) -> tuple[LogMessage, ...]:
        """New messages about the capacity and clock differences."""
        return (*self._capacity.take_messages(), *self._clocks.take_new(self.api.clock_offset_s))

    def close(self, timeout_s: float) -> None:
        """Write the remaining Events, within this time; stop watching and close the connections."""
        self._capacity.stop()
        self.claims.stop()
        self.event_writer.stop(timeout_s)
        for informer in self._watched:
            informer.stop()
        self._watched.clear()
        self.api.close()
