"""The commands of docs/alerts.md that show whether alerts are alive, run as they stand on the real programs."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.monitoring.chain import NAMESPACE, QUICK, Chain, chain
from tests.monitoring.programs import find
from tests.monitoring.rules.promtool import ALERTS, rules

pytestmark = [pytest.mark.slow, pytest.mark.node]
_PAGE: Final = Path(__file__).parents[2] / "docs" / "alerts.md"
_COMMAND: Final = re.compile(r"^    (\S.*\n(?:      .*\n)*)", re.MULTILINE)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """Daemon, Prometheus, Alertmanager and a webhook."""
    with chain(tmp_path_factory.mktemp("alive"), QUICK) as running:
        yield running


def _commands() -> dict[str, str]:
    """The commands of the section, by the program that each begins with."""
    text = _PAGE.read_text(encoding="utf-8")
    section = text.partition("\n## See that they are alive\n")[2].partition("\n## ")[0]
    return {command.split(None, 1)[0]: command for command in _COMMAND.findall(section)}


def _run(command: str, run: Chain) -> str:
    """What a command of the page prints, with the addresses of the rig in it."""
    for program in ("promtool", "amtool", "jq", "curl"):
        find(program)
    command = command.replace("http://PROMETHEUS:9090", run.prometheus.url)
    command = command.replace("http://ALERTMANAGER:9093", run.alertmanager.url).replace("NAMESPACE", NAMESPACE)
    done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_has_a_command_for_each_link() -> None:
    """The scrape, the rules, the way to people."""
    assert list(_commands()) == ["promtool", "curl", "amtool"]


def test_every_watchdog_is_scraped(run: Chain) -> None:
    """A line with 1 for each node."""
    (line,) = _run(_commands()["promtool"], run).splitlines()
    assert line.startswith('{node="n1"} => 1 @')


def test_the_rules_are_loaded(run: Chain) -> None:
    """As many lines as the page says, each alert with its health."""
    said = re.search(r"(\d+) lines that begin with `ok`", _PAGE.read_text(encoding="utf-8"))
    assert said is not None
    run.prometheus.wait_for("count(gpu_watchdog_enforcing == 1)", 60)
    lines = [line.split() for line in _run(_commands()["curl"], run).splitlines()]
    assert len(lines) == int(said[1]) == len(rules(ALERTS))
    assert {health for health, _, _ in lines} <= {"ok", "unknown"}  # unknown: not evaluated yet
    assert {state for _, state, _ in lines} <= {"inactive", "pending", "firing"}
    assert {name for _, _, name in lines} == {rule["alert"] for rule in rules(ALERTS)}


def test_a_test_alert_reaches_its_team(run: Chain) -> None:
    """The message of amtool goes the way that one of a pod in that namespace would go, and says that it is a test."""
    _run(_commands()["amtool"], run)
    notified, *_ = run.webhook.wait_until(lambda: run.webhook.got("GPUMemoryPodKilled"))
    assert (notified.path, notified.labels["pod"]) == ("/team-a", "test")
    assert "test" in notified.annotations["summary"]
