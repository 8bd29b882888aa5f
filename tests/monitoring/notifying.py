"""The examples of deploy/alertmanager/ with receivers of the test's own in the place of their addresses."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.monitoring.scraping import DEPLOY
from tests.node.support import REPOSITORY

EXAMPLES: Final = REPOSITORY / "deploy" / "alertmanager"
EXAMPLE: Final = EXAMPLES / "alertmanager.yaml"
SLACK: Final = EXAMPLES / "slack.yaml"
EMAIL: Final = EXAMPLES / "email.yaml"
TEMPLATES: Final = EXAMPLES / "gpu-memory-watchdog.tmpl"
ALERTS: Final = DEPLOY / "alerts.yaml"
RECORDING: Final = DEPLOY / "recording.yaml"
_RECEIVER: Final = "http://alert-receiver.monitoring.svc:8080"
_SECRETS: Final = "/etc/alertmanager/secrets"
_TIMES: Final = ("group_wait", "group_interval")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000}
Config = dict[str, Any]


def example(receiver: str, *, wait: str | None = None) -> Config:
    """The configuration with a receiver at this URL; with `wait` every alert is sent after that time."""
    text = EXAMPLE.read_text(encoding="utf-8")
    assert _RECEIVER in text
    config: Config = yaml.safe_load(text.replace(_RECEIVER, receiver))
    return config if wait is None else hurrying(config, wait)


def with_messages(example: Path, secrets: Path, *, wait: str) -> Config:
    """The example for Slack or e-mail with its templates, its secrets in this folder, and this time in all routes."""
    text = example.read_text(encoding="utf-8")
    assert _SECRETS in text
    config: Config = yaml.safe_load(text.replace(_SECRETS, str(secrets)))
    return hurrying({**config, "templates": [str(TEMPLATES)]}, wait)


def hurrying(config: Config, wait: str) -> Config:
    """The configuration, with every alert sent after this time."""
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
