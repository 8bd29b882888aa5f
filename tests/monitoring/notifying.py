"""The example of deploy/alertmanager/ with a receiver of the test's own in the place of its address."""

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from tests.monitoring.scraping import DEPLOY
from tests.node.support import REPOSITORY

EXAMPLE: Final = REPOSITORY / "deploy" / "alertmanager" / "alertmanager.yaml"
ALERTS: Final = DEPLOY / "alerts.yaml"
RECORDING: Final = DEPLOY / "recording.yaml"
_RECEIVER: Final = "http://alert-receiver.monitoring.svc:8080"
_TIMES: Final = ("group_wait", "group_interval")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000}
Config = dict[str, Any]


def example(receiver: str, *, wait: str | None = None) -> Config:
    """The configuration with a receiver at this URL; with `wait` every alert is sent after that time."""
    text = EXAMPLE.read_text(encoding="utf-8")
    assert _RECEIVER in text
    config: Config = yaml.safe_load(text.replace(_RECEIVER, receiver))
    if wait is not None:
        config["route"].update(dict.fromkeys(_TIMES, wait))
        _hurry(config["route"])
    return config


def alerting_rules() -> list[Config]:
    """The alerting rules, in their order."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def fires_for_s(name: str) -> int:
    """For how many seconds an alert fires about a moment: the number of `> time() - 600`."""
    (expr,) = (rule["expr"] for rule in alerting_rules() if rule["alert"] == name)
    return int(re.findall(r"> time\(\) - (\d+)", expr)[0])


def hurried(waits: Mapping[str, str], times: int) -> str:
    """The alerts that ship in a fraction of their times: with 30, `[15m]` is 30 s, and 600 s ago is 20 s ago.

    `waits` are those that have another `for` before.
    """
    rules: Config = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    for rule in (each for group in rules["groups"] for each in group["rules"]):
        rule["for"] = waits.get(rule["alert"], rule["for"])
        for key in ("for", "keep_firing_for"):
            if key in rule:
                rule[key] = _shortened(rule[key], times)
        expr = re.sub(r"\[(\d+[mh])\]", lambda found: f"[{_shortened(found[1], times)}]", rule["expr"])
        rule["expr"] = re.sub(r"(?<=time\(\) - )\d+", lambda found: f"{int(found[0]) / times:g}", expr)
    return yaml.safe_dump(rules, sort_keys=False, width=1000)


def _shortened(duration: str, times: int) -> str:
    return f"{int(duration[:-1]) * _UNIT_MS[duration[-1]] // times}ms"


def _hurry(route: Config) -> None:
    """Let a route below take its times from the root."""
    for each in route.get("routes", ()):
        for name in _TIMES:
            each.pop(name, None)
        _hurry(each)
