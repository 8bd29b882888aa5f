"""The example of deploy/alertmanager/ with a receiver of the test's own in the place of its address."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.monitoring.scraping import DEPLOY
from tests.node.support import REPOSITORY

EXAMPLE: Final = REPOSITORY / "deploy" / "alertmanager" / "alertmanager.yaml"
ALERTS: Final = DEPLOY / "alerts.yaml"
RECORDING: Final = DEPLOY / "recording.yaml"
_RECEIVER: Final = "http://alert-receiver.monitoring.svc:8080"
_TIMES: Final = ("group_wait", "group_interval")
Config = dict[str, Any]


def example(receiver: str, *, wait: str | None = None) -> Config:
    """The configuration, telling a receiver at this URL; with `wait` everything is told after that time."""
    text = EXAMPLE.read_text(encoding="utf-8")
    assert _RECEIVER in text
    config: Config = yaml.safe_load(text.replace(_RECEIVER, receiver))
    if wait is not None:
        config["route"].update(dict.fromkeys(_TIMES, wait))
        _hurry(config["route"])
    return config


def alerting_rules(file: Path = ALERTS) -> list[Config]:
    """The alerting rules of a rule file, in its order."""
    groups = yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def with_waits(file: Path, waits: Mapping[str, str]) -> str:
    """The text of a rule file in which these alerts have another `for`; nothing else is different."""
    rules: Config = yaml.safe_load(file.read_text(encoding="utf-8"))
    for rule in (each for group in rules["groups"] for each in group["rules"]):
        if rule.get("alert") in waits:
            rule["for"] = waits[rule["alert"]]
    return yaml.safe_dump(rules, sort_keys=False, width=1000)


def sixty_times_as_fast(text: str) -> str:
    """The text of a rule file whose times are a sixtieth: `for: 5m` is 5 s, `[15m]` is 15 s, 900 s ago is 15 s ago."""
    rules: Config = yaml.safe_load(text)
    for rule in (each for group in rules["groups"] for each in group["rules"]):
        for key in ("for", "keep_firing_for"):
            if key in rule:
                rule[key] = _sixtieth(rule[key])
        rule["expr"] = re.sub(r"\[(\d+[mh])\]", lambda found: f"[{_sixtieth(found[1])}]", rule["expr"])
        rule["expr"] = re.sub(r"time\(\) - 900", "time() - 15", rule["expr"])
    return yaml.safe_dump(rules, sort_keys=False, width=1000)


def _sixtieth(duration: str) -> str:
    return duration.translate({ord("m"): "s", ord("h"): "m"}) if duration[-1] in "mh" else "0s"


def _hurry(route: Config) -> None:
    """Let a route below take its times from the root."""
    for each in route.get("routes", ()):
        for name in _TIMES:
            each.pop(name, None)
        _hurry(each)


__all__ = ["ALERTS", "EXAMPLE", "RECORDING", "alerting_rules", "example", "sixty_times_as_fast", "with_waits"]
