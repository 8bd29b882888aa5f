"""Every query of docs/metrics.md, and of costs, has an answer, the right one, where what it asks for is the case."""

import math
from collections.abc import Iterator
from typing import Final

import pytest

from tests.monitoring.grafana import Viewer
from tests.monitoring.prometheus import Prometheus, Sample
from tests.monitoring.questions import Question, questions, trouble_everywhere
from tests.monitoring.rules.exposed import LABELS
from tests.monitoring.shared_node import INTERVAL_S
from tests.monitoring.test_chain import SELDOM as SELDOM_METRICS
from tests.monitoring.test_dashboard import DOCUMENT, SELDOM, numbers

pytestmark = [pytest.mark.slow, pytest.mark.node]

_WELL: Final = "Is the watchdog itself healthy?"
# No test waits so long: Prometheus is asked what it would answer if nothing changed until then. It looks back 5 min.
_LATER_S: Final = {
    "time() - gpu_watchdog_last_cycle_timestamp_seconds > 60": 120.0,
    "time() - gpu_watchdog_pods_last_sync_timestamp_seconds > 180": 240.0,
}
# What an answer has among its series, by the beginning of the query.
_ANSWERS: Final = (
    ("gpu_watchdog_account_over_limit", {"node": "n1", "namespace": "lab", "pod": "creeper", "rule": "lab"}),
    ("sort_desc(\n  gpu_watchdog_account_memory_used", {"node": "n2", "namespace": "speech", "pod": "greedy"}),
    ("time() - (", {"node": "n1", "namespace": "lab", "pod": "creeper"}),
    ("time() - gpu_watchdog_pod_last_action", {"pod": "nb-7", "action": "kill", "result": "done", "rule": "notebooks"}),
    ("time() - gpu_watchdog_pod_last_action", {"pod": "sweep-3", "action": "evict", "result": "failed"}),
    ("max by (node, namespace, pod) (\n", {"node": "n1", "namespace": "jupyter", "pod": "nb-7"}),
    ("max by (node, namespace, pod, container", {"node": "n1", "pod": "nb-7", "container": "main"}),
    ("sum by (rule, action, result)", {"rule": "notebooks", "action": "kill", "result": "done"}),
    ("sum by (node, brake)", {"node": "n1", "brake": "protected"}),
    ("sum by (rule, action) (increase(gpu_watchdog_would", {"rule": "rest", "action": "kill"}),
    ("sort_desc(\n  sum by (node, namespace, pod)", {"node": "n1", "namespace": "lab", "pod": "stranger"}),
    ("sum by (node, verdict)", {"node": "n1", "verdict": "undeclared"}),
    ("sort_desc(gpu_watchdog_gpu_memory_unattributed", {"node": "n1"}),
    ("sort_desc(gpu_watchdog_gpu_memory_residual", {"node": "n1"}),
    ("sort(\n", {"node": "n1", "index": "0", "model": "NVIDIA Stub"}),
    ("sum by (model, sharing)", {"model": "NVIDIA Stub", "sharing": "whole"}),
    ("sort_desc(\n  count by (node, gpu)", {"node": "n1", "model": "NVIDIA Stub", "sharing": "whole"}),
    ("sum by (namespace)", {"namespace": "vision"}),
    ("max by (namespace, pod) (max_over_time(", {"namespace": "lab", "pod": "creeper"}),
    ("gpu_watchdog_enforcing == 1", {"node": "n1"}),
    ("up{", {"node": "n5"}),
    ("gpu_watchdog_build_info", {"node": "n4"}),
    ("time() - gpu_watchdog_pods_last_sync", {"node": "n3"}),
    ("gpu_watchdog_gpu_up", {"node": "n3"}),
    ("increase(gpu_watchdog_scan_gaps_total", {"node": "n3", "reason": "process_memory"}),
    ("increase(gpu_watchdog_scan_gaps_total", {"node": "n3", "reason": "gpu_lost"}),
    ("gpu_watchdog_accounts{", {"node": "n3"}),
    ("time() - gpu_watchdog_maintenance_since", {"node": "n7"}),
    ("gpu_watchdog_enforcement_suspended", {"node": "n3", "reason": "stop_file"}),
    ("gpu_watchdog_policy_last_reload", {"node": "n3"}),
    ("gpu_watchdog_pulse_active", {"node": "n3"}),
    ("gpu_watchdog_pulse_looks_spent", {"node": "n3"}),
    ("increase(gpu_watchdog_actions_total", {"node": "n1", "rule": "batch"}),
    ("max by (node) (kube_node", {"node": "n6"}),
    ("histogram_quantile(0.99, sum by (action", {"action": "kill"}),
)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that scrapes nodes on which all of it is the case, once it has seen for how long they are over."""
    with trouble_everywhere(tmp_path_factory.mktemp("questions")) as (shared, _):
        running = shared.prometheus
        running.wait_for('up{node="n5"} == 0')
        running.wait_for("kube_node_status_allocatable")
        running.wait_for('increase(gpu_watchdog_scan_gaps_total{reason="process_memory", node="n3"}[5m]) > 0')
        # The steps of `[1d:1m]` are whole minutes: until one has passed, there is nothing in it.
        for each in questions():
            if "[1d:1m]" in each.query:
                running.wait_for(each.query, 90)
        yield running


def ask(prometheus: Prometheus, query: str) -> list[Sample]:
    """What it says now, or would say later."""
    later_s = _LATER_S.get(query, 0.0)
    return prometheus.query(query, at=prometheus.value("time()") + later_s)


@pytest.mark.parametrize("question", [pytest.param(each, id=each.query[:60]) for each in questions()])
def test_every_query_has_an_answer(prometheus: Prometheus, question: Question) -> None:
    """A query of the page gives series with numbers, and those that the case is about."""
    found = ask(prometheus, question.query)
    assert found, f"no series: {question.query}"
    assert not all(math.isnan(each.value) for each in found), question.query
    for beginning, labels in _ANSWERS:
        if question.query.startswith(beginning):
            assert any(labels.items() <= each.labels.items() for each in found), (question.query, labels, found)


def test_every_answer_that_is_waited_for_is_one_of_a_query() -> None:
    """A query that is reworded takes what is expected of it along."""
    queries = [each.query for each in questions()]
    assert [beginning for beginning, _ in _ANSWERS if not any(each.startswith(beginning) for each in queries)] == []
    assert _LATER_S.keys() <= set(queries)


def test_a_node_that_is_well_is_in_no_complaint(prometheus: Prometheus) -> None:
    """What asks whether the watchdog is well leaves out n1, but for the evictions that failed there without an API."""
    complaints = [each.query for each in questions() if each.heading == _WELL]
    assert len(complaints) > 8
    for query in complaints:
        if query not in _LATER_S and "actions_total" not in query and "scan_gaps" not in query:
            assert "n1" not in {each.labels.get("node") for each in prometheus.query(query)}, query


def test_numbers_are_those_of_the_node(prometheus: Prometheus) -> None:
    """Room, shares and spans are what the world has: bytes are added up right over cards, MIG instances and pods."""
    gib = 2**30
    over = _of(prometheus.query(_starting("sort_desc(\n  gpu_watchdog_account")), pod="creeper")
    assert over.value == 4 * gib - (2 * gib * 102 // 100 + 256 * 2**20)
    since = _of(prometheus.query(_starting("time() - (")), pod="creeper")
    assert 0 < since.value < 900
    promised = prometheus.query(_starting("sum by (node) (gpu_watchdog_pod_memory_declared"))
    assert _of(promised, node="n1").value == pytest.approx((16 + 3 + 2 + 0.5 + 4) / (40 + 40 + 20))
    assert _of(promised, node="n2").value == pytest.approx(4 / 40)


@pytest.mark.parametrize("title", sorted(SELDOM))
def test_panels_that_are_seldom_filled_are_filled_here(prometheus: Prometheus, title: str) -> None:
    """A panel about the pulse or a maintenance shows it where there is one."""
    now = prometheus.value("time()")
    viewer = Viewer(prometheus=prometheus, document=DOCUMENT, start=now - 60, end=now, interval_s=INTERVAL_S)
    found = numbers(viewer.ask(title))
    assert found
    assert all(map(math.isfinite, found)), found


@pytest.mark.parametrize("name", sorted(SELDOM_METRICS))
def test_hand_made_series_that_are_seldom_there_have_the_labels_of_real_ones(prometheus: Prometheus, name: str) -> None:
    """What tests/monitoring/rules say of a pulse, a maintenance or a suspension is what a running daemon exposes."""
    of_the_target = {"__name__", "instance", "job", "node", "cluster", "watchdog_pod", "watchdog_namespace"}
    expected = frozenset(LABELS[name])
    # Prometheus drops a label without a value: an account of a whole pod has no container, one on all GPUs no GPU.
    is_often_empty = expected & {"container", "gpu"} if name.startswith("gpu_watchdog_account_") else frozenset()
    found = {is_often_empty.union(each.labels.keys() - of_the_target) for each in prometheus.query(name)}
    assert found == {expected}


def _starting(beginning: str) -> str:
    return next(each.query for each in questions() if each.query.startswith(beginning))


def _of(found: list[Sample], **labels: str) -> Sample:
    """The one sample with these labels."""
    (one,) = [each for each in found if labels.items() <= each.labels.items()]
    return one
