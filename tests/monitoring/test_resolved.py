"""A pod goes over its limit, then it is killed: the first alert is resolved too, though the second silences it.

Prometheus repeats the end of an alert for 15 minutes and no longer. That is fixed in Prometheus, so it can't be had in
a sixtieth of the time with the real one: here the test sends a real Alertmanager what Prometheus would send.
"""

import re
import time
from pathlib import Path
from typing import Final

import pytest

from tests.monitoring.alertmanager import Alertmanager
from tests.monitoring.notifying import alerting_rules, example, told_for_s
from tests.monitoring.webhook import Webhook
from tests.worlds import step
from watchdog.core.policy import Policy

# resolvedRetention in Prometheus' rules/alerting.go, and likewise in vmalert.
RETENTION_S: Final = 900
# --rules.alert.resend-delay, and Prometheus' own evaluation_interval (kube-prometheus has 30 s).
RESEND_S: Final = 60
EVALUATION_S: Final = 60
FASTER: Final = 60
_KILLS: Final = ("GPUMemoryPodKilled", "GPUMemoryPodEvicted")


def _silencing() -> set[str]:
    """The alerts that silence GPUMemoryOverLimit of a pod for a fixed time: nothing that happens later ends them."""
    rule = next(each for each in example("http://127.0.0.1")["inhibit_rules"] if "pod" in each["equal"])
    (matcher,) = rule["source_matchers"]
    pattern = re.findall(r'alertname =~ "(.+)"', matcher)[0]
    found = [each for each in alerting_rules() if re.fullmatch(pattern, each["alert"])]
    return {each["alert"] for each in found if "unless" not in each["expr"]}


def test_the_table_has_every_alert_that_silences_for_a_time() -> None:
    """One that is added needs a decision about what it silences."""
    assert _silencing() == set(_KILLS)


@pytest.mark.parametrize("name", _KILLS)
def test_the_end_is_still_sent_when_nothing_silences_it_any_more(name: str) -> None:
    """An action's alert fires for less time, with all that may come on top, than Prometheus repeats an end.

    The action counts from when its memory was seen free, which may be after the pod has come below its limit. Its own
    end comes an evaluation later. The other end is sent each minute, at the evaluation after that.
    """
    action_s = step("100%", 0, "kill").grace_s + Policy(sha256="", source="").release_timeout_s
    assert told_for_s(name) + action_s + EVALUATION_S + RESEND_S + EVALUATION_S < RETENTION_S


@pytest.mark.slow
@pytest.mark.parametrize("name", _KILLS)
def test_what_was_sent_is_resolved(name: str, tmp_path: Path) -> None:
    """A real Alertmanager gets, sixty times as fast, what Prometheus sends about a pod over its limit, then killed.

    It flushes five times a second, so nothing waits in its group until it is silenced no more. With what ships that is
    so where an empty group was dropped, each 30 s: a new one sends an old alert at once (aggrGroup.insert in dispatch).
    """
    pod = {"namespace": "team-a-dev", "pod": "trainer", "node": "n1", "severity": "warning"}
    over, action = {"alertname": "GPUMemoryOverLimit", **pod}, {"alertname": name, **pod}
    with Webhook() as webhook, Alertmanager(tmp_path / "alertmanager", example(webhook.url, wait="200ms")) as running:
        running.send(over)
        webhook.wait_for("GPUMemoryOverLimit")
        running.send(action)
        webhook.wait_for(name)
        began = time.monotonic()
        action_ends_s = (told_for_s(name) + EVALUATION_S) / FASTER
        for second in range(RETENTION_S // FASTER + 2):
            if second >= action_ends_s:
                running.send(action, resolved=True)
            if second < RETENTION_S / FASTER:
                running.send(over, resolved=True)
            time.sleep(max(0.0, began + second + RESEND_S / FASTER - time.monotonic()))
            if webhook.got("GPUMemoryOverLimit", status="resolved"):
                break
        ended = webhook.wait_for(name, status="resolved", limit_s=10)
        assert webhook.wait_for("GPUMemoryOverLimit", status="resolved", limit_s=10).labels == over
        assert ended.path == "/team-a"
