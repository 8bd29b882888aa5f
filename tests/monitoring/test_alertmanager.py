"""The example for Alertmanager: it is valid, who gets which alert, and which alert silences which, in a running one."""

import contextlib
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
# Which receiver gets which alert: every one of deploy/prometheus/alerts.yaml, with each severity that it has.
_ROUTED: Final[tuple[tuple[str, str, Labels, str], ...]] = (
    ("GPUMemoryOverLimit", "warning", _TENANT, "team-a"),
    ("GPUMemoryPodKilled", "warning", _TENANT, "team-a"),
    ("GPUMemoryPodEvicted", "warning", _TENANT, "team-a"),
    ("GPUMemoryEvictionBlocked", "warning", _TENANT, "team-a"),
    ("GPUMemoryUndeclared", "info", _TENANT, "team-a"),
    ("GPUMemoryIdle", "info", _TENANT, "team-a"),
    ("GPUMemoryActionFailing", "critical", _TENANT, "platform-page"),
    ("GPUMemoryMisdeclared", "warning", _TENANT, "team-a"),
    ("GPUMemoryUnknown", "warning", _TENANT, "platform"),
    ("GPUMemoryContainerUnlisted", "warning", _TENANT, "platform"),
    ("GPUMemoryPodLeft", "warning", _NODE, "platform"),
    ("GPUMemoryCardLost", "critical", _CARD, "platform-page"),
    ("GPUMemoryUnattributed", "warning", _CARD, "platform"),
    ("GPUMemoryResidual", "warning", _CARD, "platform"),
    ("GPUMemoryCardNearlyFull", "info", _CARD, "nobody"),
    ("GPUMemoryBreakerOpen", "critical", _NODE, "platform-page"),
    ("GPUMemoryBreakerOpen", "warning", _NODE, "platform"),
    ("GPUMemoryMPSWithheld", "warning", _TENANT, "platform"),
    ("GPUWatchdogNotEnforcing", "critical", _NODE, "platform-page"),
    ("GPUWatchdogNotEnforcing", "warning", _NODE, "platform"),
    ("GPUWatchdogMaintenanceOverdue", "warning", _NODE, "platform"),
    ("GPUWatchdogReactionSlow", "warning", _NODE, "platform"),
    ("GPUWatchdogCycleLate", "warning", _NODE, "platform"),
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


_ROUTES: Final[tuple[tuple[Labels, str], ...]] = (
    *((_alert(name, severity, **labels), receiver) for name, severity, labels, receiver in _ROUTED),
    # A namespace that no team has is the platform's.
    ({**_OVER, "namespace": "team-a"}, "team-a"),
    ({**_OVER, "namespace": "team-b"}, "team-b"),
    ({**_OVER, "namespace": "team-abc"}, "platform"),
    ({**_OVER, "namespace": "jupyter"}, "platform"),
    ({**_OVER, "namespace": ""}, "platform"),
    # The example's routes take this project's alerts alone.
    (_alert("KubeNodeNotReady", "critical", namespace="team-a"), "platform"),
    (_alert("GPUTemperature", "critical"), "platform"),
)
# Which alert silences which, and what is different about one that it does not silence.
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
    ({**_STALE, "stale": "cycles"}, _alert("GPUMemoryIdle", "info", **_TENANT), {"node": "n2"}),
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
    # The alert that always fires, so that its absence shows that alerting is broken.
    ({"alertname": "Watchdog", "severity": "none"}, {**_DOWN, **_NODE}),
)


@pytest.fixture(scope="module")
def receiver() -> Iterator[Webhook]:
    """A receiver for the module."""
    with Webhook() as listening:
        yield listening


@pytest.fixture(scope="module")
def alertmanager(receiver: Webhook, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    """An Alertmanager with the example."""
    with Alertmanager(tmp_path_factory.mktemp("alertmanager"), example(receiver.url, wait="1s")) as running:
        yield running


def test_the_example_is_valid() -> None:
    """What ships is accepted by amtool as it is, and has no receiver without a route."""
    assert "SUCCESS" in amtool("check-config", EXAMPLE)
    receivers = {each["name"] for each in example("http://127.0.0.1")["receivers"]}
    assert receivers == {receiver for _, _, _, receiver in _ROUTED} | {"team-b"}


def test_the_table_has_every_alert() -> None:
    """An alert that is added, or another severity of one, needs a decision here about who gets it."""
    assert {(name, severity) for name, severity, _, _ in _ROUTED} == _SEVERITIES


@pytest.mark.parametrize(
    ("labels", "receiver"), _ROUTES, ids=lambda each: each if isinstance(each, str) else each.get("alertname")
)
def test_an_alert_goes_to(labels: Labels, receiver: str) -> None:
    """As amtool walks the tree of routes: tenants' alerts by namespace, the rest to the platform; none is lost."""
    pairs = [f"{name}={value}" for name, value in labels.items() if value]
    assert amtool("config", "routes", "test", f"--config.file={EXAMPLE}", *pairs).strip() == receiver


@pytest.mark.parametrize(("source", "target", "other"), _SILENCES)
def test_an_alert_silences(alertmanager: Alertmanager, source: Labels, target: Labels, other: Labels) -> None:
    """The one is silenced by the other, and the same with one label different, or of another cluster, is not."""
    spared = {name: value for name, value in {**target, **other}.items() if value}
    abroad = {**target, "cluster": "c2"}
    with _firing(alertmanager, source, target, spared, abroad):
        wait_for(lambda: _is_silenced(alertmanager, target), lambda: str(alertmanager.alerts()), 20)
        assert not [each for each in (spared, abroad, source) if _is_silenced(alertmanager, each)]


@pytest.mark.parametrize(("source", "target"), _KEPT)
def test_an_alert_does_not_silence(alertmanager: Alertmanager, source: Labels, target: Labels) -> None:
    """An alert with information of its own is sent."""
    with _firing(alertmanager, source), _firing(alertmanager, target):
        assert not _is_silenced(alertmanager, target)


def test_of_two_alerts_one_is_sent(alertmanager: Alertmanager, receiver: Webhook) -> None:
    """A pod that is over its limit and was killed: the team gets one message, the kill's, at its own address."""
    pod = {"namespace": "team-b-prod", "pod": "notebook", "node": "n1"}
    killed, over = _alert("GPUMemoryPodKilled", **pod), _alert("GPUMemoryOverLimit", **pod)
    alertmanager.send(killed, over)
    arrived = receiver.wait_until(lambda: [each for each in receiver.got() if each.labels.get("pod") == "notebook"])
    assert [(each.name, each.receiver, each.path) for each in arrived] == [("GPUMemoryPodKilled", "team-b", "/team-b")]
    alertmanager.send(killed, resolved=True)
    later = receiver.wait_until(lambda: [each for each in receiver.got("GPUMemoryOverLimit") if each.labels == over])
    assert later[0].at > arrived[0].at


@contextlib.contextmanager
def _firing(running: Alertmanager, *alerts: Labels) -> Iterator[None]:
    """Let alerts fire, from when Alertmanager has all of them to when it has none."""

    def there() -> list[bool]:
        known = [each["labels"] for each in running.alerts()]
        return [each in known for each in alerts]

    running.send(*alerts)
    try:
        wait_for(lambda: all(there()), lambda: str(running.alerts()), 20)
        yield
    finally:
        running.send(*alerts, resolved=True)
        wait_for(lambda: not any(there()), lambda: str(running.alerts()), 20)


def _is_silenced(running: Alertmanager, labels: Labels) -> bool:
    return any(each["status"]["inhibitedBy"] for each in running.alerts() if each["labels"] == labels)
