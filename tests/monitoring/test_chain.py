"""From an allocation on a card to the message, through everything that ships: daemon, scrape, rules, Alertmanager.

And the commands of docs/alerts.md that show whether alerts are alive, run as they stand on the same programs.
"""

import re
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.monitoring.chain import FAST, NAMESPACE, OVER, QUICK, Chain, chain, go_killed, go_over, table
from tests.monitoring.notifying import fires_for_s
from tests.monitoring.programs import find
from tests.monitoring.rules.exposed import LABELS
from tests.monitoring.rules.promtool import ALERTS, rules
from tests.node.support import REPOSITORY
from tests.stub import GIB

pytestmark = [pytest.mark.slow, pytest.mark.node]
_PAGE: Final = REPOSITORY / "docs" / "alerts.md"
_COMMAND: Final = re.compile(r"^    (\S.*\n(?:      .*\n)*)", re.MULTILINE)
# What needs a [pulse], a maintenance, a suspension or a card that says how busy it is: tests/monitoring/test_queries.py
# has it from daemons with those.
SELDOM: Final = frozenset(
    {
        "gpu_watchdog_account_idle_seconds",
        "gpu_watchdog_container_gpu_utilization_ratio",
        "gpu_watchdog_gpu_utilization_ratio",
        "gpu_watchdog_enforcement_suspended",
        "gpu_watchdog_maintenance_since_timestamp_seconds",
        "gpu_watchdog_pulse_active",
    }
)
# Two thirds of the time for which the alert of a kill fires, at the fast pace.
_A_WHILE_S: Final = fires_for_s("GPUMemoryPodKilled") / FAST.times * 2 / 3


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """The chain with the alerts of deploy/, but for the five minutes that GPUMemoryOverLimit waits."""
    with chain(tmp_path_factory.mktemp("chain"), QUICK) as running:
        yield running


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """The chain with all times of the alerts divided by thirty, so that the alert of a kill ends after 20 s."""
    with chain(tmp_path_factory.mktemp("fast"), FAST) as running:
        yield running


def test_over_its_limit(quick: Chain) -> None:
    """The team of the pod's namespace gets the alert, with the pod's own labels, and its end."""
    pod, tenant, over, links = go_over(quick, "notebook")
    print(table("\nover its limit, quick", links))
    assert over.path == "/team-a"
    own = {"namespace": NAMESPACE, "pod": "notebook", "node": "n1", "rule": "shared", "cluster": "c1"}
    assert own.items() <= over.labels.items()
    assert not [label for label in over.labels if label.startswith(("exported_", "watchdog_"))]
    assert f"{NAMESPACE}/notebook" in over.annotations["summary"]
    assert over.annotations["runbook_url"].endswith("#gpumemoryoverlimit")
    quick.allocate(tenant, GIB // 2)
    assert quick.wait_notified("GPUMemoryOverLimit", pod, status="resolved").labels == over.labels


def test_killed(quick: Chain) -> None:
    """The same team gets the kill's alert, and none about the limit, though the pod is over again."""
    pod, killed, links = go_killed(quick, "trainer")
    print(table("\nkilled, quick", links))
    assert all(each.took_s > 0 for each in links)
    assert killed.path == "/team-a"
    own = {"namespace": NAMESPACE, "pod": "trainer", "container": "main", "node": "n1"}
    assert own.items() <= killed.labels.items()
    before = quick.notified("GPUMemoryOverLimit", pod)
    quick.start(pod, OVER)
    quick.wait_silenced("GPUMemoryOverLimit", pod)
    assert quick.notified("GPUMemoryOverLimit", pod) == before
    assert quick.alertmanager.is_silenced({"alertname": "GPUMemoryPodKilled", "pod": pod.name}) is False


def test_hand_made_nodes_expose_what_a_real_one_does(quick: Chain) -> None:
    """The series that tests/monitoring/rules are made of have the names and labels of a running daemon's."""
    quick.world.pod("odd", ("main", "-1"), namespace=NAMESPACE)
    pod, _, _ = go_killed(quick, "measured")
    quick.start(pod, OVER)
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(quick.daemon.get("/metrics")[1]):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    ours = {name for name in LABELS if name.startswith("gpu_watchdog_")}
    # Nothing was withheld, but for a step that was pending for a moment at most; no pods share a claim here.
    absent = {"gpu_watchdog_account_withheld", "gpu_watchdog_account_memory_used_beside_bytes"}
    assert ours - found.keys() - absent == SELDOM
    assert {name: LABELS[name] for name in ours & found.keys()} == {name: found[name] for name in ours & found.keys()}


def test_over_its_limit_then_killed(fast: Chain) -> None:
    """Each alert that was sent is resolved: the kill's after a while, and then the one that it silenced."""
    pod, tenant, over, _ = go_over(fast, "batch")
    fast.allocate(tenant, 3 * GIB)
    killed = fast.wait_notified("GPUMemoryPodKilled", pod)
    assert killed.at > over.at
    ended = fast.wait_notified("GPUMemoryPodKilled", pod, status="resolved")
    assert fast.wait_notified("GPUMemoryOverLimit", pod, status="resolved").labels == over.labels
    assert ended.at - killed.at > _A_WHILE_S


def test_over_again_some_time_after_the_kill(fast: Chain) -> None:
    """A pod that goes on offending after the kill is silenced for a while, not for good."""
    pod, killed, _ = go_killed(fast, "loop")
    fast.start(pod, OVER)
    fast.wait_silenced("GPUMemoryOverLimit", pod)
    again = fast.wait_notified("GPUMemoryOverLimit", pod)
    assert again.at - killed.at > _A_WHILE_S


def _commands() -> dict[str, str]:
    """The commands of the section, by the program that each begins with."""
    text = _PAGE.read_text(encoding="utf-8")
    section = text.partition("\n## See that they are alive\n")[2].partition("\n## ")[0]
    return {command.split(None, 1)[0]: command for command in _COMMAND.findall(section)}


def _run(command: str, quick: Chain) -> str:
    """What a command of the page prints, with the addresses of the rig in it."""
    for program in ("promtool", "amtool", "jq", "curl"):
        find(program)
    command = command.replace("http://PROMETHEUS:9090", quick.prometheus.url)
    command = command.replace("http://ALERTMANAGER:9093", quick.alertmanager.url).replace("NAMESPACE", NAMESPACE)
    done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_has_a_command_for_each_link() -> None:
    """The scrape, the rules, the way to people."""
    assert list(_commands()) == ["promtool", "curl", "amtool"]


def test_every_watchdog_is_scraped(quick: Chain) -> None:
    """A line with 1 for each node."""
    (line,) = _run(_commands()["promtool"], quick).splitlines()
    assert line.startswith('{node="n1"} => 1 @')


def test_the_rules_are_loaded(quick: Chain) -> None:
    """As many lines as the page says, each alert with its health."""
    reported = re.search(r"(\d+) lines that begin with `ok`", _PAGE.read_text(encoding="utf-8"))
    assert reported is not None
    quick.prometheus.wait_for("count(gpu_watchdog_enforcing == 1)", 60)
    lines = [line.split() for line in _run(_commands()["curl"], quick).splitlines()]
    assert len(lines) == int(reported[1]) == len(rules(ALERTS))
    assert {health for health, _, _ in lines} <= {"ok", "unknown"}  # unknown: not evaluated yet
    assert {state for _, state, _ in lines} <= {"inactive", "pending", "firing"}
    assert {name for _, _, name in lines} == {rule["alert"] for rule in rules(ALERTS)}


def test_a_test_alert_reaches_its_team(quick: Chain) -> None:
    """The message of amtool goes the way that one of a pod in that namespace would go, and says that it is a test."""
    _run(_commands()["amtool"], quick)
    killed = partial(quick.webhook.got, "GPUMemoryPodKilled")
    notified, *_ = quick.webhook.wait_until(lambda: [each for each in killed() if each.labels["pod"] == "test"])
    assert notified.path == "/team-a"
    assert "test" in notified.annotations["summary"]
