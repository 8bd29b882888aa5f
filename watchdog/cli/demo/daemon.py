"""The daemon of the demo: its own cycle, with a simulated driver and /proc, at a pace that people can follow."""

import json
from pathlib import Path
from typing import Final

from watchdog import clock
from watchdog.cli.demo.events import DemoEvents
from watchdog.cli.demo.pods import CARD, NODE, PODS, POLICY, pod_list
from watchdog.cli.demo.screen import DemoView
from watchdog.cli.demo.sim import SimDriver, SimNode, SimProcfs
from watchdog.config.load import load_policy
from watchdog.core.assessment import Inputs
from watchdog.core.model import Node, Now, elapsed_s
from watchdog.core.plan import CycleReport, OpenCycle, Outcome, Result
from watchdog.core.policy import Policy
from watchdog.core.units import format_duration
from watchdog.daemon.cycle import Cycle
from watchdog.daemon.enforcement import REMEDIES
from watchdog.daemon.evictions import Evictions
from watchdog.daemon.kills import Kills
from watchdog.daemon.last_look import FRESH_S, LastLook
from watchdog.daemon.sampler import Pace
from watchdog.journal.journal import Journal
from watchdog.journal.recorder import Recorder
from watchdog.kube.event_objects import PodEvent
from watchdog.kube.files import PodFile
from watchdog.node.process import pidfd_supported
from watchdog.node.process_table import ProcessTable
from watchdog.node.scan import Scanner
from watchdog.report.changes import Changes
from watchdog.report.events import KILLED, RELEASED, pod_events
from watchdog.report.status import Status
from watchdog.report.status_build import status_of


class FastClock:
    """A clock that runs `speed` times as fast as the real one, so that the policy's waits are that much shorter."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self._begin = clock.now()

    def now(self) -> Now:
        """The present moment."""
        begin, real = self._begin, clock.now()
        return Now(
            boottime_s=begin.boottime_s + (real.boottime_s - begin.boottime_s) * self.speed,
            wall_s=begin.wall_s + (real.wall_s - begin.wall_s) * self.speed,
            boot_id=real.boot_id,
        )

    def elapsed_s(self) -> float:
        """Seconds since the demo began."""
        return self.now().boottime_s - self._begin.boottime_s


# More often than a daemon would need, so that the screen moves.
_CYCLE_EVERY_S: Final = 0.25
# How long the other pods are watched after the memory was released.
_AFTERWARDS_S: Final = 2.0
_TOO_LONG_S: Final = 40.0


class DemoDaemon:
    """Runs cycles over the simulated node, with everything of the daemon but its driver, its /proc and its sinks."""

    def __init__(self, folder: Path, journal: Path, sim_node: SimNode, clock: FastClock) -> None:
        self.policy = load_policy(POLICY)
        self._clock = clock
        running = [sim_node.start(pod) for pod in PODS]
        self._journal = Journal.open(journal, self.policy.journal, NODE, REMEDIES)
        self._past = Recorder()
        self._changes = Changes()
        (folder / "pods.json").write_text(json.dumps(pod_list(PODS)), encoding="utf-8")
        self._pods = PodFile(folder / "pods.json", NODE)
        self._begin = clock.now()
        self._events = DemoEvents(self._journal, running, self._begin)
        self._driver = SimDriver(CARD, lambda: clock.now().boottime_s)
        procfs = SimProcfs()
        for pod in running:
            procfs.admit(pod.session, pod.spec.cgroup)
            for process, key in zip(pod.spec.processes, pod.keys, strict=True):
                self._driver.allocate(key, process.curve)
        self._scanner = Scanner(ProcessTable(procfs, pidfds=pidfd_supported() is None))
        kills = Kills(self._scanner, self._events, clock.now)
        evictions = Evictions(None, self._events, clock.now)
        self._cycle = Cycle(self._scanner, kills, evictions, self._events, clock.now)
        self._pace = Pace(_CYCLE_EVERY_S)
        self._ends_s = self._begin.boottime_s + _TOO_LONG_S
        self._is_ending = False
        self.pod_events: tuple[PodEvent, ...] = ()
        self._status, self._cycle_at = self._run_cycle()

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the kill, once it has ended."""
        return self._events.outcome

    @property
    def victim_events(self) -> tuple[PodEvent, ...]:
        """The Events of the kill on the pod that was killed, as a daemon in a cluster writes them."""
        killed = {each.uid for each in self.pod_events if each.reason == KILLED}
        return tuple(each for each in self.pod_events if each.uid in killed and each.reason in (KILLED, RELEASED))

    @property
    def is_over(self) -> bool:
        """Whether the demo has finished, or has taken too long."""
        return self._clock.now().boottime_s >= self._ends_s

    @property
    def next_wake_s(self) -> float:
        """Seconds of the demo's clock until there is something to do."""
        return min(self._pace.next_reading_s, self._cycle.next_wake_s) - self._clock.now().boottime_s

    def advance(self) -> None:
        """Continue the actions in progress, and run a cycle if it is time."""
        self._cycle.advance(self._clock.now(), lambda _entry: None)
        if self._clock.now().boottime_s >= self._pace.next_reading_s:
            self._status, self._cycle_at = self._run_cycle()
        now = self._clock.now()
        self._events.watch_grace(now)
        if self.outcome is not None and not self._is_ending:
            self._is_ending = True
            self._ends_s = now.boottime_s + (_AFTERWARDS_S if self.outcome.result is Result.DONE else 0.0)

    def view(self) -> DemoView:
        """What there is to show now."""
        now = self._clock.now()
        return DemoView(
            second=elapsed_s(self._begin, now),
            status=self._status,
            elapsed_s=elapsed_s(self._cycle_at, now),
            rule=_rule_text(self.policy),
            events=self._events.events,
        )

    def end(self) -> bool:
        """Report on the other pods; whether everything went as expected."""
        others_run = self._events.check_others(self._clock.now())
        return others_run and self.outcome is not None and self.outcome.result is Result.DONE

    def close(self) -> None:
        """Stop what is in progress, and release everything."""
        self._cycle.interrupt("the demo was stopped", self._clock.now())
        self._scanner.close()
        self._past.end(self._journal)
        self._journal.close()

    def _run_cycle(self) -> tuple[Status, Now]:
        """One cycle, as the daemon runs it: the status, and when the node was read."""
        asked = self._clock.now()
        self._pace.begin(asked)
        reading = self._driver.read()
        now = self._clock.now()
        inputs = Inputs(policy=self.policy, node=Node(name=NODE), pods=self._pods.read(now), enforcing=True)
        opened = self._cycle.intend(self._cycle.open(reading, inputs, asked, now))
        closed = self._cycle.close(opened, self._last_look(opened), self._clock.now())
        self._pace.plan(closed.plan, self._clock.now())
        self._events.add_cycle(opened.assessments, closed.outcomes, now)
        report = CycleReport(
            node=inputs.node,
            at=opened.snapshot.at,
            policy=self.policy,
            policy_loaded_at_s=self._begin.wall_s,
            enforcing=True,
            suspended=(),
            snapshot=opened.snapshot,
            pods=inputs.pods,
            attribution=opened.attribution,
            assessments=opened.assessments,
            plan=closed.plan,
            began=closed.began,
            outcomes=closed.outcomes,
        )
        self._past.record(report, self._journal)
        changes = self._changes.since(report)
        self._journal.record(report, changes)
        self.pod_events += tuple(pod_events(changes, report))
        return status_of(report), report.at

    def _last_look(self, opened: OpenCycle) -> LastLook | None:
        if not opened.only:
            return None
        asked = self._clock.now()
        return LastLook(
            reading=self._driver.read(opened.only),
            at=asked,
            fresh_until_s=asked.boottime_s + FRESH_S,
            objection=lambda _entry: None,
            inputs=lambda: opened.inputs,
        )


def _rule_text(policy: Policy) -> str:
    """The demo's rule: `Rule "shared card": warn above 100% for 2s, kill above 120% for 4s`."""
    (rule,) = policy.rules
    steps = (f"{step.do.value} above {step.above} for {format_duration(step.for_s)}" for step in rule.steps)
    return f'Rule "{rule.name}": {", ".join(steps)}'
