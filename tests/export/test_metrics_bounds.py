"""How many series there are: as many as the page says, and no more whatever tenants and operators do."""

from dataclasses import replace
from itertools import count

import pytest

from tests.export.samples import Found, after, read, series, value
from tests.report.build import (
    KILL,
    NOTEBOOKS,
    WARN,
    Story,
    climbing,
    entry,
    killed,
    outcome,
    policy,
    quiet,
    trainer,
    withheld,
)
from tests.worlds import Gi, at, container, gpu, pod, process, rule, snapshot, use
from tools.metrics_reference import POLICY, number_of_series
from watchdog.config.load import load_policy
from watchdog.core.brakes import Brake
from watchdog.core.meter import UtilizationMeter
from watchdog.core.model import MigParent, Use
from watchdog.core.plan import CycleReport, Result
from watchdog.core.utilization import CardUtilization, Utilization, UtilizationReading
from watchdog.export.catalogue import FAMILIES, MetricKind, Per
from watchdog.export.metrics import Metrics
from watchdog.report.recent import MOST

PODS, CARDS, NAMESPACES = 200, 16, 10
# Of a node as full as they get. Prometheus keeps every series of every node, so a family that has one for each account
# should have it only while something is wrong.
MOST_SERIES = 2400


def full_report(containers: int = 1, cards_each: int = 1) -> CycleReport:
    """A node of 16 cards and 200 pods under the policy that ships, each container with a process on this many cards."""
    names = [f"c{number}" for number in range(containers)]
    pods = tuple(
        pod(
            f"u{number}",
            *(container(name, "4Gi", of=f"u{number}") for name in names),
            namespace=f"team-{number % NAMESPACES}",
        )
        for number in range(PODS)
    )
    pids = count(100)
    owners = {next(pids): f"{each.uid}/{name}" for each in pods for name in names}
    processes = [process(pid, where) for pid, where in owners.items()]
    uses = [use(pid, Gi // 8, (pid + number) % CARDS) for pid in owners for number in range(cards_each)]
    cards = [gpu(number, total=80 * Gi, used=40 * Gi, reserved=Gi) for number in range(CARDS)]
    report = Story(under=load_policy(POLICY), pods=pods).see(snapshot(uses, processes, cards))
    return replace(report, utilization=half_busy(report))


def half_busy(report: CycleReport) -> Utilization:
    """What a meter says of a node of which the driver has called every process half busy twice."""
    meter, utilization = UtilizationMeter(), Utilization()
    for at_s in (10.0, 20.0):
        by_pid = dict.fromkeys(report.snapshot.processes, 0.5)
        busy = (CardUtilization(gpu=each.uuid, ratio=0.5, by_pid=by_pid) for each in report.snapshot.gpus)
        reading = UtilizationReading(at_s=at_s, cards=tuple(busy))
        utilization = meter.add(at_s, report.snapshot, report.assessments, (reading,), report.policy.idle, gap_s=30.0)
    return utilization


def test_a_full_node_has_as_many_series_as_the_page_says() -> None:
    """16 cards and 200 pods: the number of the page, which is worked out of the catalogue, is the number there is."""
    found = after(full_report())
    assert len(found) == number_of_series(load_policy(POLICY), gpus=CARDS, pods=PODS, namespaces=NAMESPACES)
    assert len(found) < MOST_SERIES


def test_each_family_has_the_series_that_its_unit_gives_it() -> None:
    """Containers on several cards add one series for each, and nothing else grows with them."""
    metrics = Metrics(lambda: dict.fromkeys(("written", "limited", "refused", "dropped"), 0))
    metrics.update(replace(full_report(containers=2, cards_each=3), suspended=("lock", "journal")))
    found = read(metrics)
    ways = {(each.name, step.do) for each in load_policy(POLICY).rules for step in each.steps}
    there = {
        Per.NODE: 1,
        Per.CARD: CARDS,
        Per.GPU: CARDS,
        Per.PLACE: PODS * 2 * 3,
        Per.POD: PODS,
        Per.ACCOUNT: PODS,
        Per.NAMESPACE: NAMESPACES,
        Per.SHARING: 0,
        Per.UNJUDGED: 0,
        Per.HELD: 0,
        Per.ACTION: len({do for _, do in ways}),
        Per.RULE_ACTION: len(ways),
        Per.ACTED_ON: 0,
        Per.REASON: 2,
        Per.MAINTENANCE: 0,
    }
    for family in FAMILIES:
        suffixes = ("_bucket", "_sum", "_count") if family.kind is MetricKind.HISTOGRAM else ("",)
        number = sum(len(series(found, f"{family.name}{suffix}")) for suffix in suffixes)
        assert number == family.times * there[family.per], family.name


@pytest.mark.slow
def test_what_an_account_has_while_something_is_wrong_is_bounded() -> None:
    """One verdict and one series for each brake that withholds its step; two pods of one name have them together."""
    containers = tuple(container(f"c{number}", "-1", of="u1") for number in range(5))
    pods = tuple(trainer(uid=uid, containers=containers) for uid in ("u1", "u2"))
    under = policy(replace(NOTEBOOKS, account="container"))
    found = after(Story(under=under, pods=pods).see(snapshot()))
    assert value(found, "accounts", verdict="misdeclared") == 10
    assert sorted(labels["container"] for labels in series(found, "account_verdict")) == [f"c{n}" for n in range(5)]
    report, due = climbing(), entry().assessment
    named = [replace(due, pod=trainer(uid=f"u{number}", name=f"p{number // 2}")) for number in range(PODS)]
    entries = tuple(withheld(Brake.NODE, assessment=each) for each in named)
    found = after(replace(report, plan=replace(report.plan, entries=entries)))
    assert sorted(labels["pod"] for labels in series(found, "account_withheld")) == sorted({e.pod.name for e in named})


def test_the_sum_over_a_pods_containers_and_gpus_is_the_pods() -> None:
    """Each byte is in one series of its pod: over containers, cards and MIG instances, and over its accounts."""
    slices = [gpu(0, 10 * Gi, uuid=f"MIG-{n}", parent="GPU-9", gi=n, ci=0, profile="1g.10gb") for n in (1, 2)]
    one = trainer(containers=(container("main", "8Gi", of="u1"), container("side", "1Gi", of="u1")))
    seen = snapshot(
        [
            *(Use(gpu="MIG-1", pid=101, used=Gi), Use(gpu="MIG-2", pid=101, used=2 * Gi)),
            *(Use(gpu="MIG-2", pid=102, used=4 * Gi), use(102, 8 * Gi, 1)),
        ],
        [process(101, "u1/main"), process(102, "u1/side")],
        [*slices, gpu(1)],
        parents=(MigParent(uuid="GPU-9", index=0, name="Card"),),
    )
    for under in (policy(), policy(replace(NOTEBOOKS, account="container"))):
        found = after(Story(under=under, pods=(one,)).see(seen))
        assert value(found, "pod_memory_used_bytes", namespace="a", pod="trainer") == 15 * Gi
        assert total(found, "container_memory_used_bytes") == total(found, "account_memory_used_bytes") == 15 * Gi
        assert len(series(found, "container_memory_used_bytes")) == 4
    rows = {"MIG-1", "MIG-2", "GPU-1"}
    assert {labels["gpu"] for labels in series(found, "gpu_memory_total_bytes")} == rows
    assert {labels["gpu"] for labels in series(found, "container_memory_used_bytes")} == rows


def total(found: Found, name: str) -> float:
    """The sum of all series of this name."""
    return sum(number for (each, _), number in found.items() if each == f"gpu_watchdog_{name}")


def test_pods_that_come_back_under_new_names_for_ever_are_bounded() -> None:
    """A pod that is warned and gone each second leaves no more than this many series; a kill outlasts the warnings."""
    story = Story()
    metrics = Metrics()
    metrics.update(replace(story.see(snapshot(second=0)), outcomes=(killed(at=at(0)),)))
    warned = entry(climbing(5), "warn")
    for second in range(1, 401):
        pods = [trainer(name=f"p-{second}-{number}", uid="x") for number in range(3)]
        entries = [replace(warned, assessment=replace(warned.assessment, pod=each)) for each in pods]
        outcomes = tuple(outcome(each, at=at(second)) for each in entries)
        metrics.update(replace(story.see(snapshot(second=second)), outcomes=outcomes))
    found = series(read(metrics), "pod_last_action_timestamp_seconds")
    assert len(found) == MOST
    assert [labels["pod"] for labels in found if labels["action"] == "kill"] == ["trainer"]
    newest = {f"p-{second}-{number}" for second in range(401 - (MOST - 1) // 3, 401) for number in range(3)}
    assert newest <= {labels["pod"] for labels in found}


def test_rules_that_are_gone_leave_only_what_they_have_counted() -> None:
    """Policies that come and go with rules of ever new names leave no series, but for what has been done."""
    metrics = Metrics()
    metrics.update(quiet(1, outcomes=(killed(), outcome(result=Result.OBSERVED))))
    for number in range(50):
        under = policy(rule(WARN, KILL, name=f"rule-{number}"), sha256=f"{number:064}")
        metrics.update(quiet(2 + number, policy=under))
    found = read(metrics)
    rules = [labels["rule"] for labels in series(found, "actions_total")]
    assert rules.count("notebooks") == 1
    assert series(found, "policy_info") == [{"sha256": f"{49:064}", "mode": "enforce"}]
    assert set(rules) == {"notebooks", "rule-49"}
    assert value(found, "actions_total", rule="notebooks", action="kill", result="done") == 1
    assert value(found, "would_act_total", rule="notebooks", action="kill") == 1
    assert {labels["rule"] for labels in series(found, "would_act_total")} == {"notebooks", "rule-49"}
