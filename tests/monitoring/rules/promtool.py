"""promtool on the rules that ship: it compares what they give with what a world expects."""

import json
import re
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.monitoring.programs import find
from tests.monitoring.rules.world import STEP_S, World

ROOT: Final = Path(__file__).parents[3]
ALERTS: Final = ROOT / "deploy" / "prometheus" / "alerts.yaml"
RECORDING: Final = ROOT / "deploy" / "prometheus" / "recording.yaml"
Rule = dict[str, Any]


def rules(file: Path) -> list[Rule]:
    """Every rule of a file."""
    groups = yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def written(found: list[Rule], folder: Path) -> Path:
    """A file with these rules."""
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "some", "rules": found}]}, width=10_000), encoding="utf-8")
    return file


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool to its end."""
    command = [str(find("promtool")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


@cache
def ranges_are_left_open() -> bool:
    """Whether a range leaves out a sample at its very beginning, as since Prometheus 3 (its migration guide)."""
    found = re.search(r"version (\d+)", promtool("--version").stdout)
    return found is not None and int(found[1]) >= 3


def hold(worlds: World | Iterable[World], folder: Path, *files: Path) -> None:
    """Fails where the rules of the files say something else than a world expects; `folder` keeps the test.

    Many worlds are one run of promtool, which names the alert and the time of each difference.
    """
    tests = [
        {
            "interval": f"{STEP_S}s",
            "input_series": [{"series": name, "values": values} for name, values in world.series.items()],
            "alert_rule_test": [test for _, test in world.checks],
            "promql_expr_test": world.values,
        }
        for world in ([worlds] if isinstance(worlds, World) else worlds)
    ]
    document = {"rule_files": [str(each) for each in files], "evaluation_interval": f"{STEP_S}s", "tests": tests}
    file = folder / "rules_test.yaml"
    # JSON is YAML, and some megabytes of it are written at once.
    file.write_text(json.dumps(document), encoding="utf-8")
    done = promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr
