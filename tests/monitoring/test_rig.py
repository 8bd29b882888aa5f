"""The rig of the monitoring stack itself: what a scrape, a rule, an alert and a notification look like through it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.monitoring.alertmanager import amtool
from tests.monitoring.asking import RefusedError
from tests.monitoring.programs import find
from tests.monitoring.prometheus import Prometheus, configuration, static

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def watching_itself(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that scrapes itself."""
    with Prometheus(tmp_path_factory.mktemp("prometheus"), configuration()) as running:
        running.reload(configuration(static(running.address, job="itself", labels={"node": "n1"})))
        running.wait_for('up{job="itself"} == 1')
        yield running


def test_queries(watching_itself: Prometheus) -> None:
    """Vectors, scalars and ranges come back with their labels; a query with a mistake is refused, not empty."""
    (up,) = watching_itself.query("up")
    assert (up.name, up.value, up.labels["node"]) == ("up", 1.0, "n1")
    assert watching_itself.value("scalar(up) + 1") == 2.0
    assert watching_itself.query("vector(0) > 1") == []
    (series,) = watching_itself.query_range("up", start=up.at - 1, end=up.at, step_s=0.5)
    assert {value for _, value in series.points} == {1.0}
    assert [each["health"] for each in watching_itself.targets()] == ["up"]
    with pytest.raises(RefusedError, match="parse error"):
        watching_itself.query("sum(")
    with pytest.raises(RefusedError, match="yaml"):
        watching_itself.reload("scrape_configs: 1")


def test_amtool_fails_where_a_configuration_has_a_mistake(tmp_path: Path) -> None:
    """What amtool refuses does not pass for checked."""
    bad = tmp_path / "bad.yaml"
    bad.write_text("route: {receiver: nobody}\n", encoding="utf-8")
    assert amtool("check-config", bad, check=False).returncode != 0
    with pytest.raises(AssertionError, match="nobody"):
        amtool("check-config", bad)


def test_servers_end_with_their_context(tmp_path: Path) -> None:
    """Nothing is left running, and each has its own port."""
    with Prometheus(tmp_path / "a", configuration()) as first, Prometheus(tmp_path / "b", configuration()) as second:
        assert first.port != second.port
        pids = [first.server.pid, second.server.pid]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a program a test is skipped with the package that has it; in CI it fails."""
    assert find("promtool").name == "promtool"
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install prometheus-alertmanager"):
        find("prometheus-alertmanager")
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"):
        find("chromium")
