"""What the chart prints: its lint, and the notes after an installation."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import click
import pytest
import yaml

from tests.deploy.chart import template
from tools import kustomize
from tools.chart import CHART
from tools.programs import helm
from watchdog.cli.main import main

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_programs")]

_RULE: Final = '[[rule]]\nname = "all"\nmatch = {}\n[[rule.step]]\nabove = "110%"\nfor = "1s"\ndo = "kill"\n'
_UNBRAKED: Final = f'mode = "enforce"\n{_RULE}'
_OWN_PAGE: Final = "--set=prometheus.rules.create=true,prometheus.rules.runbooks=https://wiki.test/r"
_PEERS: Final = "--set=networkPolicy.from[0].ipBlock.cidr=192.0.2.0/24"
_SCRAPED: Final = "--set=authentication.enabled=true,prometheus.podMonitor.create=true"
_OWN_MAP: Final = "--set=existingConfigMap.name=mine,fullnameOverride=guard"
_OBJECT: Final = """\
{{ define "notes" }}%s{{ end }}kind: ConfigMap
metadata: {name: notes}
data:
  notes: {{ include "notes" . | toJson }}
"""


@pytest.mark.parametrize("platform", [None, *kustomize.PLATFORMS])
def test_the_chart_passes_lint(platform: str | None) -> None:
    """Helm finds nothing to warn of, with no values and with those of each platform."""
    flags = [] if platform is None else [f"--values={kustomize.PLATFORMS[platform]}"]
    done = subprocess.run([helm(), "lint", "--strict", CHART, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


def _notes(folder: Path, policy: str, *flags: str) -> str:
    """The notes as helm renders them: helm itself shows them at an installation alone, which takes a cluster."""
    copy = folder / "chart"
    shutil.copytree(CHART, copy, dirs_exist_ok=True)
    text = (copy / "templates" / "NOTES.txt").read_text(encoding="utf-8")
    (copy / "templates" / "notes.yaml").write_text(_OBJECT % text, encoding="utf-8")
    reported = template("--show-only=templates/notes.yaml", *flags, policy=policy, chart=copy)
    notes: str = yaml.safe_load(reported)["data"]["notes"]
    return notes


@pytest.mark.parametrize(
    ("policy", "flags", "there", "missing"),
    [
        ("", (), ("Mode: observe", "Image: gpu-memory-watchdog:0.1.0", "minimal"), ("brakes", "are privileged")),
        (_UNBRAKED, (), ("Mode: enforce", "Rules: all", "no [brakes]"), ("Mode: observe",)),
        ('mode = "observe"\n', (), ("The policy has no rule",), ("Rules:",)),
        (_RULE, ("--set=security=privileged",), ("Security: privileged", "are privileged"), ("The journal",)),
        (_RULE, ("--set=journal.type=emptyDir",), ("The journal",), ("enforce.",)),
        (_RULE, (), ("Mode: observe", "kubectl label namespace gpus pod-security"), ("enforce.",)),
        (_RULE, (), ("open to the namespace monitoring and to the node",), ("placeholder", "every pod")),
        (
            _RULE,
            ("--set=networkPolicy.create=false",),
            ("open to every pod", "networkPolicy.create"),
            ("namespace mon",),
        ),
        (_RULE, ("--set=networkPolicy.monitoringNamespace=",), ("open to no namespace and to the node",), ()),
        (_RULE, (_PEERS,), ("the namespace monitoring, to networkPolicy.from, and to the node",), ()),
        (_RULE, ("--set=authentication.enabled=true",), ("No account may read", "gpu-watchdog-read"), ("every pod",)),
        (_RULE, (_SCRAPED, "--set=networkPolicy.create=false"), ("every pod in the cluster, and asks",), ("No acc",)),
        ("", ("--set=prometheus.rules.create=true",), ("link to a placeholder", "prometheus.rules.runbooks"), ()),
        (_RULE, (_OWN_PAGE,), (), ("placeholder", "ConfigMap")),
        ("", (_OWN_MAP,), ("key policy.toml of ConfigMap mine", "daemonset/guard"), ("gpu-watchdog-",)),
    ],
)
def test_the_notes_say_what_was_installed(
    tmp_path: Path, policy: str, flags: tuple[str, ...], there: tuple[str, ...], missing: tuple[str, ...]
) -> None:
    """Mode, rules and what is unusual; no kill comes as the first sign that the policy enforces."""
    reported = _notes(tmp_path, policy, *flags)
    assert all(words in reported for words in there), reported
    assert not [words for words in missing if words in reported], reported


def test_the_commands_of_the_notes_are_right(tmp_path: Path) -> None:
    """Each is for the release's namespace, and one that the program understands."""
    reported = _notes(tmp_path, "")
    assert set(re.findall(r"-n (\S+)", reported)) == {"gpus"}
    called = re.findall(r"gpu-watchdog ([a-z]+.*)$", reported, re.MULTILINE)
    assert {"doctor", "scan", "history"} <= {each.split()[0] for each in called}
    assert "annotate node NODE gpu-memory-watchdog/mode=observe" in reported
    for name, *arguments in map(str.split, called):
        main.commands[name].make_context(name, list(arguments), parent=click.Context(main))
