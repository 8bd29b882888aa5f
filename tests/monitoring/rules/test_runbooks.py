"""The runbooks of the alerts: built alike, and every command, query and metric in them exists."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
import yaml

from tests.monitoring.rules.exposed import LABELS, TARGET, metric_names, selectors
from tests.monitoring.rules.promtool import ROOT, promtool
from tests.monitoring.rules.test_rule_files import BY_ALERT, RUNBOOKS
from watchdog.cli.main import main

COMMON, *_SECTIONS = re.split(r"^(?=## GPU)", RUNBOOKS.read_text(encoding="utf-8"), flags=re.MULTILINE)
TEXTS: Final = {section.partition("\n")[0].removeprefix("## "): section for section in _SECTIONS}
ALL: Final = {**TEXTS, "common": COMMON, "alerts": (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")}
# Where the watchdog acts on pods, somebody may want it to stop.
ACTED_ON: Final = {
    "GPUMemoryOverLimit",
    "GPUMemoryPodKilled",
    "GPUMemoryPodEvicted",
    "GPUMemoryEvictionBlocked",
    "GPUMemoryActionFailing",
    "GPUMemoryBreakerOpen",
    "GPUMemoryCardNearlyFull",
}
_PROMQL: Final = re.compile(r"^```promql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED: Final = re.compile(r"^    (\S.*)$", re.MULTILINE)
_INLINE: Final = re.compile(r"`((?:kubectl|gpu-watchdog) [^`]+)`")
_OURS: Final = re.compile(r"\bgpu-watchdog ((?:[a-z]+)(?: [^`|;&]+)?)")
_VERBS: Final = {
    "get",
    "describe",
    "delete",
    "logs",
    "exec",
    "annotate",
    "label",
    "cordon",
    "port-forward",
    "apply",
    "edit",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_runbook_is_built_like_the_others(name: str) -> None:
    """Severity, wait, where to look, how to stop it if it acts on pods, meaning, and the parts that a runbook has."""
    text = TEXTS[name]
    _, severity, meaning, _ = text.split("\n\n", 3)
    assert severity.startswith("Severity: ")
    assert severity.endswith(
        "[Look first](#look-first)"
        + ", [stop it now](#stop-it-now)." * (name in ACTED_ON)
        + "." * (name not in ACTED_ON)
    )
    assert len(meaning) > 60
    _, *parts = re.split(r"^\*\*(?=(?:Impact|Diagnosis|Mitigation)\*\*$)", text, flags=re.MULTILINE)
    assert [part.partition("**")[0] for part in parts] == ["Impact", "Diagnosis", "Mitigation"]
    assert all(len(part.partition("\n")[2].strip()) > 40 for part in parts)
    assert _INDENTED.findall(parts[1])
    assert _PROMQL.findall(parts[1])
    severities = {rule["labels"]["severity"] for rule in BY_ALERT[name]}
    waits = {rule["for"] for rule in BY_ALERT[name]}
    assert severities == set(re.findall(r"\b(?:critical|warning|info)\b", severity))
    assert waits == set(re.findall(r"\b\d+[smh]\b", severity.partition("Fires after:")[2]))


def _commands(text: str) -> Iterator[str]:
    """The shell commands of a page, indented or in a sentence."""
    plain = _PROMQL.sub("", text)
    yield from _INDENTED.findall(plain)
    yield from _INLINE.findall(plain)


@pytest.mark.parametrize("name", ALL)
def test_our_commands_exist(name: str) -> None:
    """Every `gpu-watchdog ...` is a command that takes these arguments and options."""
    for command in _commands(ALL[name]):
        for ours in _OURS.findall(command):
            words = shlex.split(ours)
            assert words[0] in main.commands, command
            made = main.commands[words[0]]
            made.make_parser(click.Context(made)).parse_args(words[1:])


@pytest.mark.parametrize(
    "rule", [each for found in BY_ALERT.values() for each in found], ids=lambda rule: rule["alert"]
)
def test_commands_of_alerts_exist(rule: dict[str, dict[str, str]]) -> None:
    """What an alert tells people to run is there."""
    said = re.sub(r"\{\{.*?\}\}", "X", rule["annotations"]["description"])
    for word, rest in re.findall(r"gpu-watchdog ([a-z]+)((?: (?:--[a-z]+|[A-Z/]\S*|\d+h))*)", said):
        made = main.commands[word]
        made.make_parser(click.Context(made)).parse_args(rest.split())


@pytest.mark.parametrize("name", ALL)
def test_kubectl_is_asked_for_what_it_has(name: str) -> None:
    """Verbs of kubectl are real ones, and the namespace is the DaemonSet's or the reader's."""
    for command in _commands(ALL[name]):
        if command.startswith("kubectl"):
            words = shlex.split(command)[1:]
            if words[0] == "-n":
                assert words[1] in ("gpu-memory-watchdog", "NAMESPACE"), command
                words = words[2:]
            assert words[0] in _VERBS, command


@pytest.mark.parametrize("name", ALL)
def test_metrics_exist(name: str) -> None:
    """Every metric in a page is one that the collector exposes, with the labels that are asked for."""
    for metric in metric_names(ALL[name]):
        assert metric in LABELS, metric
    for query in _PROMQL.findall(ALL[name]):
        for metric, labels in selectors(query):
            assert metric not in LABELS or labels <= LABELS[metric] | TARGET, query


@pytest.mark.slow
def test_queries_are_promql(tmp_path: Path) -> None:
    """Prometheus's own parser takes every query of the pages."""
    queries = [query for text in ALL.values() for query in _PROMQL.findall(text)]
    made = [{"record": f"query:n{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "pages", "rules": made}]}), encoding="utf-8")
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(queries)} rules found" in done.stdout
