"""A container of real processes, found by their session, and a record that remembers."""

import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field

from tests.worlds import Gi, at, container, inputs, planned, pod, policy, process, rule, snapshot, use
from watchdog.core.assessment import Assessment, Attribution
from watchdog.core.errors import RecordError
from watchdog.core.model import Now, Pod, ProcessKey
from watchdog.core.plan import Moment, Objection, Outcome, PlanEntry, Result
from watchdog.core.policy import Step
from watchdog.core.transfers import Windows
from watchdog.daemon.actions.action import ActionReading
from watchdog.daemon.actions.kills import Kills
from watchdog.journal.journal import Journal
from watchdog.node.process import Handle, ReadFailures
from watchdog.node.process_table import hold
from watchdog.node.procfs import Procfs

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(300)"
# Short sleeps: a signal right before a sleep is handled only after it.
SLOW = (
    "import os, signal, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), os._exit(0))); "
    "print(flush=True); [time.sleep(0.1) for _ in range(3000)]"
)
POLITE = "import time; print(flush=True); time.sleep(300)"


@dataclass
class MemoryRecord:
    """A record that fails or never finishes where the test wants it."""

    broken: bool = False
    stalled: bool = False
    slow: bool = False
    lines: list[tuple[str, ...]] = field(default_factory=list)

    def intend(self, entry: PlanEntry, targets: Iterable[ProcessKey], now: Now) -> "Future[int]":
        """Remember an intention."""
        future: Future[int] = Future()
        if self.broken:
            future.set_exception(RecordError("no space left"))
            return future
        self.lines.append(("intend", *(str(key.pid) for key in targets)))
        if not self.stalled:
            future.set_result(7)
        return future

    def took_too_long(self, action: int) -> bool:
        """Whether the test says so."""
        return self.slow

    def withdraw(self, action: int, reason: str, now: Now) -> None:
        """Remember that it came to nothing."""
        self.lines.append(("withdraw", reason))

    def withdraw_once_written(self, intended: "Future[int]", reason: str, now: Now) -> None:
        """Remember the same once it is written."""
        intended.add_done_callback(lambda done: self.withdraw(done.result(), reason, now))

    def signalled(self, action: int, now: Now, signal: str, keys: Iterable[ProcessKey]) -> None:
        """Remember a signal."""
        self.lines.append((signal, *(str(key.pid) for key in sorted(keys))))

    def end(self, action: int, result: Result, reason: str, now: Now) -> None:
        """Remember an end."""
        self.lines.append(("end", result.value))

    def released(self, action: int, now: Now, release_s: float | None, reason: str) -> None:
        """Remember a release."""
        self.lines.append(("released", str(release_s)))

    def breaker(self, opened: Now | None) -> None:
        """Remember a turn of the breaker."""
        self.lines.append(("breaker", "closed" if opened is None else "opened"))

    def transfers(self, windows: Windows) -> None:
        """Remember whose bytes count as unknown."""
        self.lines.append(("transfers", str(len(windows))))


class Direct:
    """A journal as a record that does everything while the caller waits."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.withdraw, self.signalled = journal.withdraw, journal.signalled
        self.end, self.released, self.breaker = journal.end, journal.released, journal.breaker
        self.transfers = journal.transfers

    def intend(self, entry: PlanEntry, targets: Iterable[ProcessKey], now: Now) -> "Future[int]":
        """Commit the intention to disk."""
        future: Future[int] = Future()
        try:
            future.set_result(self.journal.intend(entry, targets, now))
        except RecordError as error:
            future.set_exception(error)
        return future

    def took_too_long(self, action: int) -> bool:
        """Never: the caller waits."""
        return False

    def withdraw_once_written(self, intended: "Future[int]", reason: str, now: Now) -> None:
        """Withdraw what is always written at once."""
        self.journal.withdraw(intended.result(), reason, now)


@dataclass
class Group:
    """Processes that stand for a container; they are what `members` finds, each held by a real pidfd."""

    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    searches: int = 0
    sees_all: bool = True
    is_led: bool = False
    held_as: Callable[[Handle], Handle] = lambda handle: handle

    def start(self, code: str = POLITE) -> subprocess.Popen[bytes]:
        """Start one."""
        made = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
        self.started.append(made)
        assert made.stdout is not None
        made.stdout.readline()
        return made

    def members(self, _pod: Pod, _containers: frozenset[str]) -> tuple[list[Handle], bool]:
        """Those that live."""
        self.searches += 1
        found = []
        for each in self.started:
            try:
                handle = hold(Procfs(), each.pid, lambda _: True, ReadFailures())
            except ProcessLookupError:
                continue
            if handle is not None:
                found.append(self.held_as(handle))
        return found, self.sees_all

    def leads_container(self, _pid: int) -> bool:
        """Whether the end of one may end them all."""
        return self.is_led

    def describe(self, pid: int) -> str:
        """The PID."""
        return str(pid)

    def key(self, process_: subprocess.Popen[bytes]) -> ProcessKey:
        """The identity of one."""
        return ProcessKey(pid=process_.pid, start_ticks=Procfs().stat(process_.pid).start_ticks)

    def close(self) -> None:
        """End them."""
        for each in self.started:
            each.kill()
            each.communicate()


def due(step: Step, *targets: ProcessKey) -> PlanEntry:
    """A plan entry that is due now, on these processes."""
    seen = snapshot([use(key.pid, 2 * Gi) for key in targets], [process(key.pid, "a/main", key=key) for key in targets])
    (entry,) = planned(seen, [pod("a", container(declared="1Gi"))], policy(rule(step))).taken
    return entry


__all__ = ["SLOW", "STUBBORN", "Group", "MemoryRecord", "at", "due"]


def no_objection(_entry: PlanEntry, _moment: Moment) -> str | None:
    """Nothing speaks against an action."""
    return None


def objecting(why: str | None) -> Objection:
    """The same objection at every moment."""
    return lambda _entry, _moment: why


def advance(
    kills: Kills, now: Now, objection: Objection = no_objection, *, policy_unsettled: bool = False
) -> tuple[Outcome, ...]:
    """Let kills go on, and give those that have ended."""
    kills.advance(now, objection, policy_unsettled=policy_unsettled)
    return kills.pop_progress().ended


def shown(
    now: Now, still_listed: Callable[[ProcessKey], bool], assessments: Iterable[Assessment] = ()
) -> ActionReading:
    """A reading that shows this of actions in progress."""
    return ActionReading(
        snapshot=snapshot([]),
        attribution=Attribution(),
        assessments=tuple(assessments),
        inputs=inputs(policy(rule()), []),
        still_listed=still_listed,
        asked=now,
        now=now,
    )
