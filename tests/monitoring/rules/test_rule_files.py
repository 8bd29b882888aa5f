"""The rule files as they ship: what each alert has, and that its runbook and its line in the table say the same."""

import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Final

import click
import pytest
import yaml

from tests.monitoring.rules.exposed import LABELS, TARGET, metric_names, selectors
from tests.monitoring.rules.promtool import ALERTS, RECORDING, ROOT, Rule, promtool, rules
from tests.monitoring.rules.world import RUNBOOKS as BASE
from tools.prometheusrule import OBJECT, prometheusrule
from watchdog.cli.main import main

SEVERITIES: Final = ("critical", "warning", "info")
_PAGES: Final = (ROOT / "docs" / "runbooks.md").read_text(encoding="utf-8").split("\n## ")
RUNBOOKS: Final = {page.partition("\n")[0]: f"## {page}" for page in _PAGES if page.startswith("GPU")}
PAGE: Final = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
BY_ALERT: Final[dict[str, list[Rule]]] = defaultdict(list)
for _each in rules(ALERTS):
    BY_ALERT[_each["alert"]].append(_each)
# Where the watchdog acts on pods, people may want it to stop.
ACTED_ON: Final = {
    "GPUMemoryOverLimit",
    "GPUMemoryPodKilled",
    "GPUMemoryPodEvicted",
    "GPUMemoryEvictionBlocked",
    "GPUMemoryActionFailing",
    "GPUMemoryBreakerOpen",
    "GPUMemoryCardNearlyFull",
}
# Of other exporters, and what Prometheus itself adds to each scrape.
_FOREIGN: Final = {"up", "kube_node_status_allocatable", "kube_node_labels"}
_ROW: Final = re.compile(r"^\| (?:\[(\w+)\]\(runbooks\.md#(\w+)\))? ?\| (\w+) \| (\w+) \| .+ \| .+ \|$", re.MULTILINE)
_SED: Final = re.compile(r'^    (sed -i "s\|runbook_url.+)$', re.MULTILINE)


def _rules() -> list[object]:
    return [
        pytest.param(rule, id=f"{name}-{number}")
        for name, found in BY_ALERT.items()
        for number, rule in enumerate(found)
    ]


@pytest.mark.slow
def test_promtool_finds_nothing() -> None:
    """The files are read without a mistake, and no rule is there twice."""
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", ALERTS, RECORDING)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rule", _rules())
def test_every_alert_says_what_it_needs(rule: Rule) -> None:
    """A wait, a severity, a summary in a line, a description that names the node, and the runbook of its name."""
    assert rule.keys() <= {"alert", "expr", "for", "keep_firing_for", "labels", "annotations"}
    assert re.fullmatch(r"\d+[smh]", rule["for"])
    assert rule["labels"]["severity"] in SEVERITIES
    reported = rule["annotations"]
    assert reported.keys() == {"summary", "description", "runbook_url"}
    assert reported["runbook_url"] == f"{BASE}#{rule['alert'].lower()}"
    assert "\n" not in reported["summary"].strip() + reported["description"].strip()
    assert "$labels.node" in reported["description"]


@pytest.mark.parametrize("rule", _rules())
def test_commands_of_alerts_exist(rule: Rule) -> None:
    """What an alert asks people to run is a command; a dash after it would be pasted with it, as an argument."""
    reported = re.sub(r"\{\{.*?\}\}", "X", rule["annotations"]["description"])
    assert not re.search(r"\s-(\s|$)", reported)
    for word, rest in re.findall(r"gpu-watchdog ([a-z]+)((?: (?:--[a-z]+|[A-Z/]\S*|\d+h))*)", reported):
        command = main.commands[word]
        command.make_parser(click.Context(command)).parse_args(rest.split())


@pytest.mark.parametrize("rule", _rules())
def test_alerts_stay_the_same_when_a_daemon_follows_another(rule: Rule) -> None:
    """No rule keeps a label that changes with the daemon's process, and all keep the cluster and the node."""
    kept = {label for group in re.findall(r"\bby \(([^)]*)\)", rule["expr"]) for label in group.split(", ")}
    assert "cluster" in kept
    assert not kept & {"instance", "job", "watchdog_pod", "watchdog_namespace"}
    assert all("cluster" in group for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"]))


@pytest.mark.parametrize("rule", [*_rules(), *(pytest.param(each, id=each["record"]) for each in rules(RECORDING))])
def test_every_series_is_one_that_the_collector_gives(rule: Rule) -> None:
    """Each name that a rule asks for is exposed, and so is each label that it asks for or sums by."""
    texts = [rule["expr"], *rule.get("annotations", {}).values()]
    for text in texts:
        for name in metric_names(text):
            assert name in LABELS, f"{name}: no such metric"
        for name, labels in selectors(text):
            known = LABELS[name] | TARGET if name in LABELS else set()
            assert name in _FOREIGN or name.startswith("DCGM_FI_DEV_") or labels <= known, (
                f"{name}: no label {labels - known}"
            )


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    """The sections of the page are named after the alerts."""
    assert sorted(RUNBOOKS) == sorted(BY_ALERT)


@pytest.mark.parametrize("name", RUNBOOKS)
def test_a_runbook_is_built_like_the_others(name: str) -> None:
    """Severity, wait, where to look, how to stop it if it acts on pods, meaning, and the parts that a runbook has."""
    text = RUNBOOKS[name]
    _, severity, meaning, _ = text.split("\n\n", 3)
    assert severity.startswith("Severity: ")
    stop = ", [stop it now](#stop-it-now)" if name in ACTED_ON else ""
    assert severity.endswith(f"[Look first](#look-first){stop}.")
    assert len(meaning) > 60
    _, *parts = re.split(r"^\*\*(?=(?:Impact|Diagnosis|Mitigation)\*\*$)", text, flags=re.MULTILINE)
    assert [part.partition("**")[0] for part in parts] == ["Impact", "Diagnosis", "Mitigation"]
    assert all(len(part.partition("\n")[2].strip()) > 40 for part in parts)
    assert re.search(r"^    \S", parts[1], re.MULTILINE)
    assert "```promql\n" in parts[1]
    severities = {rule["labels"]["severity"] for rule in BY_ALERT[name]}
    waits = {rule["for"] for rule in BY_ALERT[name]}
    assert severities == set(re.findall(r"\b(?:critical|warning|info)\b", severity))
    assert waits == set(re.findall(r"\b\d+[smh]\b", severity.partition("Fires after:")[2]))


def test_the_table_is_of_these_rules() -> None:
    """docs/alerts.md has a row for each rule, in their order or any other, with its severity and its wait."""
    found: list[tuple[str, str, str]] = []
    for name, page, severity, waits in _ROW.findall(PAGE.partition("## Severities")[0]):
        assert name.lower() == page
        found.append((name or found[-1][0], severity, waits))
    wanted = [(name, each["labels"]["severity"], each["for"]) for name, rules_ in BY_ALERT.items() for each in rules_]
    assert sorted(found) == sorted(wanted)
    assert all(f"| {severity} |" in PAGE.partition("## Severities")[2] for severity in SEVERITIES)


def test_the_recording_rules_are_documented() -> None:
    """docs/alerts.md has a row for each, and no others."""
    found = re.findall(r"^\| `(\w+:\w+:\w+)` \|", PAGE, re.MULTILINE)
    assert sorted(found) == sorted(each["record"] for each in rules(RECORDING))


def test_names_of_records_say_their_labels() -> None:
    """LEVEL:METRIC:OPERATION, and the level is what the rule keeps, but for the cluster and a pod's or card's node."""
    for rule in rules(RECORDING):
        level, metric, operation = rule["record"].split(":")
        kept = set(re.findall(r"\bby \(([^)]*)\)", rule["expr"])[0].split(", ")) - {"cluster", "le"}
        assert kept - {"node"} == set(level.split("_")) - {"node"}, rule["record"]
        assert metric.startswith(("gpu_watchdog_", "DCGM_FI_DEV_"))
        assert operation in ("ratio", "sum", "max", "group", "increase1h", "p99_1h")


def test_the_object_is_of_these_files() -> None:
    """deploy/prometheus/prometheusrule.yaml holds both files, as its tool writes them."""
    text = OBJECT.read_text(encoding="utf-8")
    assert text == prometheusrule()
    groups = [group for file in (RECORDING, ALERTS) for group in yaml.safe_load(file.read_text("utf-8"))["groups"]]
    assert yaml.safe_load(text)["spec"] == {"groups": groups}


def test_the_address_of_the_runbooks_is_put_in_by_one_line(tmp_path: Path) -> None:
    """The line of docs/alerts.md gives every alert of both files the address, and changes nothing else."""
    (line,) = _SED.findall(PAGE)
    for file in (ALERTS, OBJECT):
        (tmp_path / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    address = "https://docs.example/runbooks.html"
    subprocess.run(["sh", "-ec", line], cwd=tmp_path, env={"RUNBOOKS": address, "PATH": "/bin:/usr/bin"}, check=True)
    assert all(
        rule["annotations"]["runbook_url"] == f"{address}#{rule['alert'].lower()}"
        for rule in rules(tmp_path / ALERTS.name)
    )
    changed = (tmp_path / OBJECT.name).read_text(encoding="utf-8")
    assert changed.count(f"runbook_url: {address}#") == len(rules(ALERTS))
    assert changed.replace(address, BASE) == OBJECT.read_text(encoding="utf-8")
