"""Reports made from worlds: the real core runs over a hand-made node, and what it gives is wrapped as one cycle."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from tests.worlds import NODE, VERIFF, Gi, Mi, at, claimant, container, gpu, pod, process, rule, snapshot, step, use
from watchdog.core.assess import assess
from watchdog.core.assessment import AccountKey, Inputs
from watchdog.core.attribute import attribute
from watchdog.core.brakes import Begun, Brake
from watchdog.core.decide import decide
from watchdog.core.ledger import Ledger, UnderWay
from watchdog.core.model import Node, Now, Owner, Pod, PodList, ProcessKey, Snapshot
from watchdog.core.plan import CycleReport, Outcome, PlanEntry, Result, Sent
from watchdog.core.policy import Allowance, Brakes, Breaker, Events, Policy
from watchdog.core.utilization import CardSeconds, CardUtilization, Holder, Utilization
from watchdog.export.endpoints import Endpoints
from watchdog.export.http_server import HttpServer
from watchdog.export.log import Log
from watchdog.journal.journal import Journal
from watchdog.report.changes import Changes
from watchdog.report.status import HealthStatus, encode
from watchdog.report.status_build import changes_status, status_of

WARN = step("100%", 5, "warn")
KILL = step("110%", 10, "kill")
AT_ONCE = step("150%", 0, "kill", grace_s=0.0)
NOTEBOOKS = rule(WARN, KILL, AT_ONCE, name="notebooks")


def policy(
    *rules: object,
    contact: str = "gpu-team@example.org",
    page_url: str = "",
    events_in_observe: bool = False,
    **more: object,
) -> Policy:
    """The policy of most tests here: rule `notebooks`, the allowance as it ships."""
    made = Policy(
        sha256="ab" * 32,
        source="/etc/gpu-watchdog/policy.toml",
        mode="enforce",
        declarations=(VERIFF,),
        allowance=Allowance(per_context=512 * Mi, max_contexts=4, percent=Fraction(2, 100)),
        rules=(NOTEBOOKS,),
        events=Events(contact=contact, page_url=page_url, observe=events_in_observe),
    )
    made = replace(made, rules=rules) if rules else made  # type: ignore[arg-type]
    return replace(made, **more)  # type: ignore[arg-type]


def trainer(**more: object) -> Pod:
    """Pod a/trainer, which declares 8Gi in its one container."""
    made = Pod(
        namespace="a",
        name="trainer",
        uid="u1",
        containers=(container("main", "8Gi", of="u1"),),
        owner=Owner(kind="Job", name="train"),
    )
    return replace(made, **more)  # type: ignore[arg-type]


def claiming(uid: str = "a") -> Pod:
    """A pod that has 4Gi of card 0 by a claim, and declares 2Gi beside it."""
    main = replace(container("main", "2Gi", of=uid), claims=("gpu",))
    return replace(claimant(uid), containers=(main,))


def trainer_node(used: float | None = 12.4, second: float = 0.0, **more: object) -> Snapshot:
    """Two cards; a/trainer's three processes use `used` GiB on four (process, GPU) pairs, a host process 1 GiB."""
    part = None if used is None else int(used * Gi) - 3 * Gi
    host = process(9, None, name="Xorg")
    ours = [process(pid, "u1/main") for pid in (101, 102, 103)]
    uses = [use(101, part), use(102, Gi), use(103, Gi), use(103, Gi, 1), use(9, Gi)]
    cards = (gpu(0, used=int((used or 0) * Gi) + Gi // 2, reserved=Gi // 4), gpu(1, used=2 * Gi, reserved=Gi // 4))
    return replace(snapshot(uses, [*ours, host], cards, second), **more)  # type: ignore[arg-type]


@dataclass(kw_only=True)
class Story:
    """Cycles over one node, one after the other, the ledger going along."""

    under: Policy = field(default_factory=policy)
    pods: tuple[Pod, ...] = field(default_factory=lambda: (trainer(),))
    ledger: Ledger = field(default_factory=Ledger)
    node: Node = NODE
    pods_stale: bool = False
    journal_writable: bool = True
    maintenance: bool = False

    def see(self, seen: Snapshot, **more: object) -> CycleReport:
        """One cycle."""
        attribution = attribute(seen, self.pods)
        pods = PodList(pods=self.pods, synced=seen.at)
        inputs = Inputs(
            policy=self.under,
            node=self.node,
            pods=pods,
            pods_stale=self.pods_stale,
            journal_writable=self.journal_writable,
            maintenance=self.maintenance,
        )
        assessments = assess(attribution, seen, inputs)
        plan = decide(assessments, self.ledger, seen.at, inputs)
        self.ledger = plan.ledger
        made = CycleReport(
            node=self.node,
            at=seen.at,
            policy=self.under,
            policy_loaded_at_s=at(-60).wall_s,
            enforcing=self.under.mode == "enforce",
            suspended=(),
            snapshot=seen,
            pods=pods,
            attribution=attribution,
            assessments=assessments,
            plan=plan,
            scan_s=0.004,
            duration_s=0.006,
        )
        return replace(made, **more)  # type: ignore[arg-type]

    def run(self, used: float | None, until: int, since: int = 0) -> CycleReport:
        """A cycle each second from `since` to `until` over the trainer's node; gives the last report."""
        return [self.see(trainer_node(used, second)) for second in range(since, until + 1)][-1]


def quiet(second: float = 0.0, **more: object) -> CycleReport:
    """A cycle in which everybody is within the limit."""
    return Story().see(trainer_node(4.0, second), **more)


def activity(ratio: float | None, idle_s: float | None = None, card: CardUtilization | None = None) -> Utilization:
    """How busy a/trainer is and for how long it has been idle; its two cards are busy for half of the time."""
    key, gpus = AccountKey(uid="u1"), ("GPU-0", "GPU-1")
    holders = [Holder("u1", name, uuid) for name in ("main", "side") for uuid in gpus]
    return Utilization(
        cards={uuid: replace(card or CardUtilization(gpu=uuid, ratio=0.5), gpu=uuid) for uuid in gpus},
        by_account={key: ratio},
        by_holder=dict.fromkeys(holders, ratio),
        holders={key: holders},
        idle_s={} if idle_s is None else {key: idle_s},
    )


def climbing(until: int = 31, **story: object) -> CycleReport:
    """The report after this many seconds in which a/trainer used 12.4Gi."""
    return Story(**story).run(12.4, until) if story else _climbed(until)  # type: ignore[arg-type]


@cache  # tables of hundreds of tests begin with this report
def _climbed(until: int) -> CycleReport:
    return Story().run(12.4, until)


def many_over(*used: float, declared: str = "1Gi", **story: object) -> CycleReport:
    """A cycle over pods ns/pod-u0, ns/pod-u1 and so on, which use this many GiB each."""
    numbers = range(len(used))
    pods = tuple(pod(f"u{n}", container("main", declared, of=f"u{n}")) for n in numbers)
    seen = snapshot(
        [use(100 + n, int(used[n] * Gi)) for n in numbers], [process(100 + n, f"u{n}/main") for n in numbers]
    )
    return Story(pods=pods, **story).see(seen)  # type: ignore[arg-type]


def acting(report: CycleReport, under_way: UnderWay) -> CycleReport:
    """The report, with this action in progress on its one account."""
    ledger = report.plan.ledger
    ((key, state),) = ledger.accounts.items()
    ledger = replace(ledger, accounts={key: replace(state, under_way=under_way)})
    return replace(report, plan=replace(report.plan, ledger=ledger))


def busy(second: float, until_s: float, **more: object) -> CycleReport:
    """A cycle in which a kill of a/trainer is in progress, whose memory is waited for until this many seconds."""
    report = climbing(int(second))
    under_way = UnderWay(step=KILL.signature, victim="main", until_s=at(until_s).boottime_s, **more)  # type: ignore[arg-type]
    return acting(replace(report, plan=replace(report.plan, entries=())), under_way)


def with_breaker(second: float, opened: float | None) -> CycleReport:
    """A quiet cycle with a breaker that was opened at this second and holds for ten minutes."""
    report = quiet(second, policy=policy(brakes=Brakes(breaker=Breaker(hold_s=600))))
    begun = Begun(at(opened).boottime_s) if opened is not None else None
    ledger = replace(report.plan.ledger, brakes=replace(report.plan.ledger.brakes, opened=begun))
    return replace(report, plan=replace(report.plan, ledger=ledger))


class Clock:
    """A clock that only a test moves."""

    def __init__(self, second: float = 0.0) -> None:
        self.second = second

    def __call__(self) -> Now:
        return at(self.second)


def entry(report: CycleReport | None = None, do: str = "kill", **more: object) -> PlanEntry:
    """The first plan entry that does this; after 31 s of 12.4Gi where no report is given."""
    entries = (report or climbing()).plan.entries
    return replace(next(each for each in entries if each.do.value == do), **more)  # type: ignore[arg-type]


def outcome(of: PlanEntry | None = None, result: Result = Result.DONE, **more: object) -> Outcome:
    """An outcome of an entry, 31 s after the beginning."""
    return replace(Outcome(entry=of or entry(), result=result, at=at(31)), **more)  # type: ignore[arg-type]


def killed(number: int = 1, **more: object) -> Outcome:
    """A kill of a/trainer's three processes that went well: they ended on SIGTERM."""
    keys = tuple(ProcessKey(pid=pid, start_ticks=pid * 10) for pid in (101, 102, 103))
    sent = (Sent(signal="SIGTERM", keys=frozenset(keys), after_s=0.0),)
    return replace(outcome(signalled=keys, sent=sent, number=number), **more)  # type: ignore[arg-type]


def withheld(brake: Brake, **more: object) -> PlanEntry:
    """A kill that is due and held back for the first time in its incident."""
    return replace(entry(), withheld_by=brake, taken=False, is_new=True, **more)  # type: ignore[arg-type]


def hostile_pod(uid: str = "evil", namespace: str = "a\x1b[2J\n", name: str = "p\u202e<script>\x00") -> Pod:
    """A pod whose names try to speak to a terminal, a browser and a log."""
    return Pod(namespace=namespace, name=name, uid=uid, containers=(container("c\x07\r", "1Gi", of=uid),))


def status_document(report: CycleReport, health: HealthStatus | None = None) -> dict[str, Any]:
    """The status of a report as a reader of `/api/status` gets it."""
    document: dict[str, Any] = json.loads(json.dumps(encode(status_of(report, (), health))))
    return document


class ReportLog(Log):
    """A log that is given reports, and finds what is new in them as the daemon does for all its sinks."""

    def __init__(self, remedies: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._changes = Changes(remedies)

    def log_report(self, report: CycleReport) -> None:
        """A line for each thing that is new in a report."""
        self.log_changes(changes_status(self._changes.since(report)))


@contextmanager
def serving(endpoints: Endpoints, listen: str = "127.0.0.1:0") -> Iterator[HttpServer]:
    """The daemon's real server with these endpoints."""
    server = HttpServer(listen, endpoints)
    server.start()
    try:
        yield server
    finally:
        server.close()


_CHANGES: WeakKeyDictionary[Journal, Changes] = WeakKeyDictionary()


def record(journal: Journal, report: CycleReport) -> None:
    """Write down what is new in a report, as the daemon does."""
    journal.write(journal.report_rows.of(report, _CHANGES.setdefault(journal, Changes()).since(report)))


def utilized() -> CycleReport:
    """The trainer above its limit, on a node of which the driver says how busy it is; it has computed nothing."""
    account = AccountKey(uid="u1")
    cards = {"GPU-1": CardUtilization(gpu="GPU-1", ratio=0.5, why="the cause; the remedy")}
    utilization = Utilization(
        cards=cards,
        by_holder={Holder("u1", "main", "GPU-0"): 0.12345},
        by_account={account: 0.25},
        idle_s={account: 7201.4},
        by_namespace={"a": CardSeconds(held=3.0, computing=2.0, idle=1.0)},
    )
    return replace(climbing(9), utilization=utilization)
