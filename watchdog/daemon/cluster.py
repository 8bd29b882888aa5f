"""The cluster as this daemon uses it: what is watched, evicted, written and advertised by the API."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from watchdog.clock import Bell
from watchdog.core.model import Node, Snapshot
from watchdog.core.needs import Needs, needs
from watchdog.core.plan import CycleReport, Outcome
from watchdog.core.policy import Policy
from watchdog.kube.capacity import CapacityKeeper
from watchdog.kube.client import Api
from watchdog.kube.credentials import ClockNotes
from watchdog.kube.events import EventWriter
from watchdog.kube.evict import ApiEvictor
from watchdog.kube.feeds import NamespaceInformer, NodeInformer, PodInformer
from watchdog.kube.notices import Note
from watchdog.options import Options
from watchdog.report.events import Tidings


class EventRecorder:
    """Hands what each report has for owners of pods to the writer of Events. Nothing here waits for anything."""

    def __init__(self, writer: EventWriter) -> None:
        self._writer = writer
        self._pod_events = Tidings()
        self._last: CycleReport | None = None

    def counts(self) -> Mapping[str, int]:
        """How many Events had which fate; to be asked from any thread."""
        return self._writer.counts()

    def announce(self, report: CycleReport, say: Callable[[str], None]) -> None:
        """Tell what is new in a report, and say in the log what the writer of Events has met meanwhile."""
        self._last = report
        self._writer.offer(self._pod_events.since(report))
        for notice in self._writer.notices.take():
            say(notice)

    def announce_end(self, outcomes: tuple[Outcome, ...], say: Callable[[str], None]) -> None:
        """Tell what ended after the last cycle: kills that the end of the daemon interrupts."""
        if self._last is not None and outcomes:
            plan = replace(self._last.plan, entries=())
            self.announce(replace(self._last, plan=plan, began=(), outcomes=outcomes), say)

    def close(self, timeout_s: float) -> None:
        """Write in so many seconds what is still to be written, and end."""
        self._writer.stop(timeout_s)


class _Feed(Protocol):
    """One kind of object that is followed."""

    def start(self) -> None:
        """Begin to follow, on a thread of its own."""

    def stop(self) -> None:
        """Stop following, at once."""

    def forget(self) -> None:
        """Stop following, and know nothing any more."""

    def fetch(self) -> None:
        """List once, in this thread."""

    @property
    def has_died(self) -> bool:
        """Whether its thread has ended although nobody stopped it."""


class Cluster:
    """The feeds of this node, and those who act by the API. Nothing is asked of it before it is needed."""

    def __init__(self, options: Options, bell: Bell) -> None:
        self.api = Api(options.kubeconfig)
        self.pods = PodInformer(self.api, options.node, bell)
        self.node = NodeInformer(self.api, options.node, bell)
        self.namespaces = NamespaceInformer(self.api, bell)
        self.evictor = ApiEvictor(self.api, bell)
        self.event_recorder = EventRecorder(EventWriter(self.api, options.node))
        self._clocks = ClockNotes()
        self._keeper = CapacityKeeper(self.api)
        self._kinds: tuple[tuple[_Feed, Callable[[Needs], bool]], ...] = (
            (self.pods, lambda _: True),
            (self.node, lambda _: options.node_object is None),
            (self.namespaces, lambda need: need.namespaces and options.namespaces is None),
        )
        self._followed: list[_Feed] = []

    def follow(self, policy: Policy) -> None:
        """Follow what this policy needs from now on, and nothing else."""
        need = needs(policy)
        for feed, is_needed in self._kinds:
            if is_needed(need) and feed not in self._followed:
                feed.start()
                self._followed.append(feed)
            elif not is_needed(need) and feed in self._followed:
                feed.forget()
                self._followed.remove(feed)

    @property
    def defect(self) -> str | None:
        """Why only a new process can help, in a sentence; None: nothing of the kind."""
        died = any(feed.has_died for feed in self._followed)
        return (
            "a thread that follows the API has ended, which is a defect; report what the log has of it"
            if died
            else None
        )

    def fetch(self, policy: Policy) -> None:
        """List once what this policy needs; what does not come is a gap where it is read."""
        need = needs(policy)
        for feed, is_needed in self._kinds:
            if is_needed(need):
                feed.fetch()

    def keep_capacity(self, node: Node, snapshot: Snapshot, policy: Policy, *, has_lock: bool) -> None:
        """Have the node advertise what the policy says; the daemon that does not hold the node's lock leaves it."""
        if has_lock:
            self._keeper.keep(node, snapshot, policy)
        else:
            self._keeper.rest()

    def take_notes(self) -> tuple[Note, ...]:
        """What there is to say of the capacity and of the clocks since the last time, in sentences."""
        return (*self._keeper.take_notes(), *self._clocks.take(self.api.clock_offset_s))

    def close(self, timeout_s: float) -> None:
        """Write in so many seconds the Events that are still to be written, stop following, let the connections go."""
        self._keeper.stop()
        self.event_recorder.close(timeout_s)
        for feed in self._followed:
            feed.stop()
        self._followed.clear()
        self.api.close()
