"""The simulated node on which the demo runs the daemon's own cycle, at a pace that people can follow."""

import contextlib
import json
import signal
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from watchdog import clock
from watchdog.cli.demo.driver import SimDriver, SimProcfs
from watchdog.cli.demo.scene import Chronicle, DemoMoment, DemoScene
from watchdog.cli.demo.tenants import CARD, NODE, POLICY, RELEASE_S, TENANTS, SimNode, pod_list
from watchdog.clock import Waiter
from watchdog.config.load import parse_policy
from watchdog.core.assess import Setting
from watchdog.core.model import Node, Now
from watchdog.core.plan import Conditions, CycleReport, Finish, OpenCycle, Outcome, PlanEntry, Result, View
from watchdog.core.policy import Policy
from watchdog.core.rules import Switches
from watchdog.daemon.cycle import Cycle
from watchdog.daemon.enforcement import REMEDIES, Footing, judge
from watchdog.daemon.evictions import Evictions
from watchdog.daemon.kills import Kills
from watchdog.daemon.main import FRESH_S
from watchdog.daemon.sampler import Pace
from watchdog.daemon.second_look import LastLook
from watchdog.daemon.sources import is_stale
from watchdog.journal.errors import JournalError
from watchdog.journal.journal import Journal
from watchdog.journal.lock import NodeLock
from watchdog.kube.files import PodFile
from watchdog.node.pidfd import pidfd_supported
from watchdog.node.processes import ProcessTable
from watchdog.node.procfs import Procfs
from watchdog.node.scan import Scanner
from watchdog.report.changes import Changes


class StoryClock:
    """A clock that runs `speed` times as fast as the real one, so that every wait of the policy is shorter by that."""

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
        """Seconds since the story began."""
        return self.now().boottime_s - self._begin.boottime_s


# An interval says how seldom a daemon may look; this one looks more often, so that the screen moves.
_LOOK_EVERY_S: Final = 0.25
# The neighbours are watched for this long after the memory has come back.
_CODA_S: Final = 2.0
_TOO_LONG_S: Final = 40.0


class Stage:
    """Runs passes over the simulated node, with everything of the daemon but its driver, its /proc and its outlets."""

    def __init__(self, folder: Path, company: SimNode, clock: StoryClock, contact: str = "") -> None:
        self.policy = _policy(contact)
        self._clock = clock
        parties = {tenant.uid: company.start(tenant) for tenant in TENANTS}
        procfs = SimProcfs(folder / "proc")
        missing = pidfd_supported()
        self._footing = Footing(in_host_pid_namespace=Procfs().in_host_pid_namespace(), pidfd_missing=missing)
        self._journal_path = folder / "journal.db"
        self._lock = NodeLock(self._journal_path)
        self._lock.acquire()
        self._journal = _open_journal(self._journal_path, self.policy)
        self._changes = Changes()
        self._pods = PodFile(folder / "pods.json", NODE)
        (folder / "pods.json").write_text(json.dumps(pod_list(TENANTS, NODE)), encoding="utf-8")
        self._begin = clock.now()
        self._driver = SimDriver(CARD, lambda: clock.now().boottime_s, release_s=RELEASE_S)
        self.chronicle = Chronicle(self._journal, parties, self._begin)
        for party in parties.values():
            procfs.admit(party.session, party.tenant.cgroup)
            self.chronicle.start(party, self._begin)
            for member in party.members:
                self._driver.allocate(member.key, member.task.curve)
        self._scanner = Scanner(ProcessTable(procfs, pidfds=missing is None))
        actions = Kills(self._scanner, self.chronicle, clock.now)
        self._cycle = Cycle(self._scanner, actions, Evictions(None, self.chronicle, clock.now))
        self._pace = Pace(_LOOK_EVERY_S)
        self._over_s = self._begin.boottime_s + _TOO_LONG_S
        self._is_ending = False
        self._last = self._pass()

    @property
    def killing(self) -> Outcome | None:
        """How the kill ended, once it has."""
        return next((blow.outcome for blow in self.chronicle.blows.values() if blow.outcome is not None), None)

    @property
    def is_over(self) -> bool:
        """Whether the story has been told, or will not come to its end."""
        now_s, killing = self._clock.now().boottime_s, self.killing
        if killing is not None and not self._is_ending:
            self._is_ending = True
            self._over_s = now_s + (_CODA_S if killing.result is Result.DONE else 0.0)
        return now_s >= self._over_s

    @property
    def next_wake_s(self) -> float:
        """Seconds of the story until there is something to do."""
        return min(self._pace.next_look_s, self._cycle.next_wake_s) - self._clock.now().boottime_s

    def turn(self) -> None:
        """Let actions go on; look, decide and act if it is time."""
        self._cycle.advance(self._clock.now(), lambda _entry: None)
        if self._clock.now().boottime_s >= self._pace.next_look_s:
            self._last = self._pass()
        self.chronicle.watch_grace(self._clock.now())

    def scene(self) -> DemoScene:
        """What is to be seen now."""
        opened, entries = self._last
        return DemoMoment(
            opened=opened,
            entries=entries,
            ledger=self._cycle.ledger,
            chronicle=self.chronicle,
            now=self._clock.now(),
        ).scene()

    def end(self) -> bool:
        """Tell of the neighbours; whether all has gone as it should."""
        neighbours_live = self.chronicle.tell_of_neighbours(self._clock.now())
        return neighbours_live and self.killing is not None and self.killing.result is Result.DONE

    def close(self) -> None:
        """Stop what is in progress, and let everything go."""
        self._cycle.interrupt("the demo was stopped", self._clock.now())
        self._scanner.close()
        self._driver.close()
        if self._journal is not None:
            self._journal.close()
        self._lock.release()

    def _pass(self) -> tuple[OpenCycle, tuple[PlanEntry, ...]]:
        """One cycle, as the daemon makes it, and the plan as it was carried out."""
        asked = self._clock.now()
        self._pace.begin(asked)
        reading = self._driver.read()
        now = self._clock.now()
        view = self._view(now)
        opened = self._cycle.intend(self._cycle.open(reading, view, asked, now))
        finish = self._cycle.close(opened, self._look_again(opened), self._clock.now())
        self._pace.plan(finish.plan, self._clock.now())
        self.chronicle.see(opened.assessments, finish.plan.entries, now)
        for outcome in finish.outcomes:
            self.chronicle.note(outcome)
        if self._journal is not None:
            report = self._report(opened, finish)
            self._journal.record(report, self._changes.since(report))
        return opened, finish.plan.entries

    def _look_again(self, opened: OpenCycle) -> LastLook | None:
        if not opened.only:
            return None
        asked = self._clock.now()
        reading = self._driver.read(opened.only)
        return LastLook(
            reading=reading,
            at=asked,
            fresh_until_s=asked.boottime_s + FRESH_S,
            refusal=lambda _entry: None,
            view=lambda: opened.view,
        )

    def _view(self, now: Now) -> View:
        pods = self._pods.read(now)
        enforcement = judge(
            self.policy,
            self._footing,
            self._journal_path,
            Switches(),
            has_lock=self._lock.held,
            # Where SQLite is too old for the journal, the chronicle alone is the record of these processes of our own.
            has_journal=True,
        )
        return View(
            pods=pods,
            setting=Setting(policy=self.policy, node=Node(name=NODE)),
            conditions=Conditions(pods_stale=is_stale(pods, self.policy, now)),
            enforcing=enforcement.enforcing,
        )

    def _report(self, opened: OpenCycle, finish: Finish) -> CycleReport:
        return CycleReport(
            node=opened.view.setting.node,
            at=opened.snapshot.at,
            policy=self.policy,
            policy_loaded_at_s=self._begin.wall_s,
            enforcing=opened.view.enforcing,
            suspended=(),
            snapshot=opened.snapshot,
            pods=opened.view.pods,
            attribution=opened.attribution,
            assessments=opened.assessments,
            plan=finish.plan,
            began=finish.began,
            outcomes=finish.outcomes,
        )


def _policy(contact: str) -> Policy:
    text = POLICY.read_text(encoding="utf-8")
    if contact:
        text += f"\n[events]\ncontact = {json.dumps(contact)}\n"
    return parse_policy(text, POLICY.name)


def _open_journal(path: Path, policy: Policy) -> Journal | None:
    with contextlib.suppress(JournalError):
        return Journal.open(path, policy.journal, NODE, REMEDIES)
    return None


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ending:
    """Takes SIGINT, SIGTERM and SIGHUP until it is left, and wakes whoever waits."""

    def __init__(self) -> None:
        self.is_wanted = False

    def __enter__(self) -> Self:
        self._before: dict[signal.Signals, Any] = {number: signal.getsignal(number) for number in _SIGNALS}
        self._waiter = Waiter()
        for number in _SIGNALS:
            # A program started by nohup(1) or in a shell's background is to go on ignoring what it ignores.
            if self._before[number] is not signal.SIG_IGN:
                self._waiter.on(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            if handler is not None:
                signal.signal(number, handler)
        self._waiter.close()

    def wait(self, seconds: float) -> None:
        """Sleep at most so long, less if a signal comes."""
        if not self.is_wanted:
            self._waiter.wait(seconds)

    def _note(self) -> None:
        self.is_wanted = True
