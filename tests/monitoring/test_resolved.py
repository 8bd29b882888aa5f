"""A pod goes over its limit, then it is killed: the first alert is resolved too, though the second silences it.

Prometheus repeats the end of an alert for 15 minutes and no longer. test_chain.py has both ends with real programs, but
at another pace, while that is fixed in Prometheus; hence the arithmetic here.
"""

import re
from typing import Final

import pytest

from tests.monitoring.notifying import alerting_rules, example, fires_for_s
from tests.worlds import step
from watchdog.core.policy import Policy

# resolvedRetention in Prometheus' rules/alerting.go, and likewise in vmalert.
RETENTION_S: Final = 900
# --rules.alert.resend-delay, and Prometheus' own evaluation_interval (kube-prometheus has 30 s).
RESEND_S: Final = 60
EVALUATION_S: Final = 60
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
    assert fires_for_s(name) + action_s + EVALUATION_S + RESEND_S + EVALUATION_S < RETENTION_S
