"""The example for Alertmanager: it is valid, tells the right people, and what is silenced by what, in a running one."""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.monitoring.alertmanager import Alertmanager, amtool
from tests.monitoring.asking import wait_for
from tests.monitoring.notifying import EXAMPLE, alerting_rules, example
from tests.monitoring.webhook import Webhook

pytestmark = pytest.mark.slow

Labels = dict[str, str]
_SEVERITIES: Final = {(each["alert"], each["labels"]["severity"]) for each in alerting_rules()}
_TENANT: Final = {"namespace": "team-a-dev", "pod": "trainer", "node": "n1"}
_NODE: Final = {"node": "n1"}
_CARD: Final = {"node": "n1", "gpu": "GPU-1"}
# Who is told of which alert: every one of deploy/prometheus/alerts.yaml, with each severity that it has.
_TOLD: Final[tuple[tuple[str, str, Labels, str], ...]] = (
    ("GPUMemoryOverLimit", "warning", _TENANT, "team-a"),
    ("GPUMemoryPodKilled", "warning", _TENANT, "team-a"),
    ("GPUMemoryPodEvicted", "warning", _TENANT, "team-a"),
    ("GPUMemoryEvictionBlocked", "warning", _TENANT, "team-a"),
    ("GPUMemoryUndeclared", "info", _TENANT, "team-a"),
    ("GPUMemoryActionFailing", "critical", _TENANT, "platform-page"),
    ("GPUMemoryMisdeclared", "warning", _TENANT, "team-a"),
    ("GPUMemoryUnknown", "warning", _TENANT, "platform"),
    ("GPUMemoryContainerUnlisted", "warning", _TENANT, "platform"),
    ("GPUMemoryCardLost", "critical", _CARD, "platform-page"),
    ("GPUMemoryUnattributed", "warning", _CARD, "platform"),
    ("GPUMemoryCardNearlyFull", "info", _CARD, "nobody"),
    ("GPUMemoryBreakerOpen", "critical", _NODE, "platform-page"),
    ("GPUMemoryBreakerOpen", "warning", _NODE, "platform"),
    ("GPUMemoryMPSWithheld", "warning", _TENANT, "platform"),
    ("GPUWatchdogNotEnforcing", "critical", _NODE, "platform-page"),
    ("GPUWatchdogNotEnforcing", "warning", _NODE, "platform"),
    ("GPUWatchdogReactionSlow", "warning", _NODE, "platform"),
    ("GPUWatchdogStale", "critical", _NODE, "platform-page"),
    ("GPUWatchdogDown", "critical", _NODE, "platform-page"),
    ("GPUWatchdogMissing", "warning", _NODE, "platform"),
    ("GPUWatchdogPolicyReloadFailed", "warning", _NODE, "platform"),
)
_OVER: Final = {"alertname": "GPUMemoryOverLimit", "severity": "warning", **_TENANT}
_STALE: Final = {"alertname": "GPUWatchdogStale", "severity": "critical", **_NODE}
_DOWN: Final = {"alertname": "GPUWatchdogDown", "severity": "critical"}
_FULL: Final = {"alertname": "GPUMemoryCardNearlyFull", "severity": "info", **_CARD}
_MISSING: Final = {"alertname": "GPUWatchdogMissing", "severity": "warning"}
_SUSPENDED: Final = {"alertname": "GPUWatchdogNotEnforcing", **_NODE}


def _alert(name: str, severity: str = "warning", **labels: str) -> Labels:
    return {"alertname": name, "severity": severity, **labels}


# What silences what, and what is different of an alert that it does not silence.
_SILENCES: Final[tuple[tuple[Labels, Labels, Labels], ...]] = (
    (_alert("GPUMemoryPodKilled", **_TENANT, container="main"), _OVER, {"pod": "other"}),
    (_alert("GPUMemoryPodKilled", **_TENANT), _OVER, {"namespace": "team-b"}),
    (_alert("GPUMemoryPodEvicted", **_TENANT), _OVER, {"pod": "other"}),
    (_alert("GPUMemoryEvictionBlocked", **_TENANT), _OVER, {"pod": "other"}),
    (_alert("GPUMemoryBreakerOpen", "critical", **_NODE), _OVER, {"node": "n2"}),
    (_alert("GPUMemoryCardLost", "critical", **_CARD), _FULL, {"gpu": "GPU-2"}),
    (_alert("GPUMemoryCardLost", "critical", **_CARD), _FULL, {"node": "n2"}),
    (_alert("GPUMemoryCardLost", "critical", **_CARD), {**_OVER, "gpu": "GPU-1"}, {"gpu": ""}),
    ({**_STALE, "stale": "cycles"}, _OVER, {"node": "n2"}),
    ({**_STALE, "stale": "driver"}, _FULL, {"alertname": "GPUMemoryActionFailing"}),
    ({**_STALE, "stale": "cycles"}, _alert("GPUMemoryCardLost", "critical", **_CARD), {"node": "n2"}),
    ({**_DOWN, **_NODE}, {**_STALE, "stale": "pods"}, {"node": "n2"}),
    ({**_DOWN, **_NODE}, {**_MISSING, **_NODE}, {"cluster": "c2"}),
    (_DOWN, {**_DOWN, **_NODE}, {"cluster": "c2"}),
    (_DOWN, {**_MISSING, **_NODE}, {"alertname": "GPUMemoryCardLost"}),
    (_alert("KubeNodeNotReady", **_NODE), {**_DOWN, **_NODE}, {"node": "n2"}),
    ({**_SUSPENDED, "severity": "critical"}, {**_SUSPENDED, "severity": "warning"}, {"node": "n2"}),
)
# What must never be silenced by the other, though they share their labels.
_KEPT: Final[tuple[tuple[Labels, Labels], ...]] = (
    ({**_STALE, "stale": "pods"}, _OVER),
    (_OVER, _alert("GPUMemoryPodKilled", **_TENANT)),
    (_alert("GPUMemoryActionFailing", "critical", **_TENANT), _OVER),
    (_alert("GPUMemoryPodKilled", **_TENANT), _alert("GPUMemoryActionFailing", "critical", **_TENANT)),
    (_alert("GPUMemoryPodKilled", **_TENANT), _alert("GPUMemoryPodEvicted", **_TENANT)),
    ({**_DOWN, **_NODE}, _DOWN),
    # The alert that always fires, so that its absence tells that alerting is broken.
    ({"alertname": "Watchdog", "severity": "none"}, {**_DOWN, **_NODE}),
)


@pytest.fixture(scope="module")
def told() -> Iterator[Webhook]:
    """A receiver for the module."""
    with Webhook() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def alertmanager(told: Webhook, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    """An Alertmanager with the example."""
    with Alertmanager(tmp_path_factory.mktemp("alertmanager"), example(told.url, wait="1s")) as running:
        yield running


def test_the_example_is_valid() -> None:
    """What ships is taken by amtool as it is, and has no receiver that nobody is sent to."""
    said = amtool("check-config", EXAMPLE).stdout
    assert "SUCCESS" in said
    receivers = {each["name"] for each in example("http://127.0.0.1")["receivers"]}
    assert receivers == {receiver for _, _, _, receiver in _TOLD} | {"team-b"}


def test_the_table_has_every_alert() -> None:
    """Whoever adds an alert, or another severity of one, decides here who is told."""
    assert {(name, severity) for name, severity, _, _ in _TOLD} == _SEVERITIES


@pytest.mark.parametrize(("name", "severity", "labels", "receiver"), _TOLD)
def test_an_alert_goes_to(name: str, severity: str, labels: Labels, receiver: str) -> None:
    """By the tree of routes, as amtool walks it."""
    assert _receiver(_alert(name, severity, **labels)) == receiver


@pytest.mark.parametrize(
    ("namespace", "receiver"),
    [("team-a", "team-a"), ("team-b", "team-b"), ("team-abc", "platform"), ("jupyter", "platform"), ("", "platform")],
)
def test_a_tenants_alert_goes_by_the_pods_namespace(namespace: str, receiver: str) -> None:
    """A namespace that no team has is the platform's, so that no alert is lost."""
    assert _receiver({**_OVER, "namespace": namespace}) == receiver


def test_alerts_of_others_are_left_to_the_root() -> None:
    """The example's routes take this project's alerts alone."""
    assert _receiver({"alertname": "KubeNodeNotReady", "severity": "critical", "namespace": "team-a"}) == "platform"
    assert _receiver({"alertname": "GPUTemperature", "severity": "critical"}) == "platform"


@pytest.mark.parametrize(("source", "target", "other"), _SILENCES)
def test_an_alert_silences(alertmanager: Alertmanager, source: Labels, target: Labels, other: Labels) -> None:
    """The one is silenced by the other, and the same with one label different, or of another cluster, is not."""
    spared = {name: value for name, value in {**target, **other}.items() if value}
    abroad = {**target, "cluster": "c2"}
    alertmanager.send(source, target, spared, abroad)
    try:
        wait_for(lambda: _is_silenced(alertmanager, target), lambda: str(alertmanager.alerts()), 20)
        assert not [each for each in (spared, abroad, source) if _is_silenced(alertmanager, each)]
    finally:
        alertmanager.send(source, target, spared, abroad, resolved=True)
        wait_for(lambda: not alertmanager.alerts(), lambda: str(alertmanager.alerts()), 20)


@pytest.mark.parametrize(("source", "target"), _KEPT)
def test_an_alert_does_not_silence(alertmanager: Alertmanager, source: Labels, target: Labels) -> None:
    """What says something of its own is told."""
    alertmanager.send(source)
    wait_for(lambda: len(alertmanager.alerts()) == 1, lambda: str(alertmanager.alerts()), 20)
    alertmanager.send(target)
    try:
        wait_for(lambda: len(alertmanager.alerts()) == 2, lambda: str(alertmanager.alerts()), 20)
        assert not _is_silenced(alertmanager, target)
    finally:
        alertmanager.send(source, target, resolved=True)
        wait_for(lambda: not alertmanager.alerts(), lambda: str(alertmanager.alerts()), 20)


def test_of_two_alerts_one_is_told(alertmanager: Alertmanager, told: Webhook) -> None:
    """A pod that is over its limit and was killed: the team gets one message, the kill's, at its own address."""
    pod = {"namespace": "team-b-prod", "pod": "notebook", "node": "n1"}
    killed, over = _alert("GPUMemoryPodKilled", **pod), _alert("GPUMemoryOverLimit", **pod)
    alertmanager.send(killed, over)
    arrived = told.wait_until(lambda: [each for each in told.told() if each.labels.get("pod") == "notebook"])
    assert [(each.name, each.receiver, each.path) for each in arrived] == [("GPUMemoryPodKilled", "team-b", "/team-b")]
    alertmanager.send(killed, resolved=True)
    later = told.wait_until(lambda: [each for each in told.told("GPUMemoryOverLimit") if each.labels == over])
    assert later[0].at > arrived[0].at


def _receiver(labels: Labels) -> str:
    pairs = [f"{name}={value}" for name, value in labels.items() if value]
    return amtool("config", "routes", "test", f"--config.file={EXAMPLE}", *pairs).stdout.strip()


def _is_silenced(running: Alertmanager, labels: Labels) -> bool:
    (found,) = [each for each in running.alerts() if each["labels"] == labels] or [{"status": {"inhibitedBy": []}}]
    return bool(found["status"]["inhibitedBy"])
