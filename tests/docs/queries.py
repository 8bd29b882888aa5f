"""Queries that a page prints: of metrics that there are, and such as Prometheus reads."""

import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from tests.export.build import climbing
from tests.monitoring.rules.promtool import promtool
from watchdog.export.metrics import Metrics


def check_queries(queries: Sequence[str], folder: Path) -> None:
    """Each names only our own metrics as they are collected, and promtool takes all of them; AssertionError if not."""
    metrics = Metrics()
    metrics.update(climbing())
    suffixes = {"counter": ("_total",), "info": ("_info",), "histogram": ("_bucket", "_sum", "_count")}
    names = {each.name + suffix for each in metrics.collect() for suffix in suffixes.get(each.type, ("",))}
    for query in queries:
        assert set(re.findall(r"gpu_watchdog_[a-z_]+", query)) <= names, query
    rules = [{"record": f"a:b:c{number}", "expr": query} for number, query in enumerate(queries)]
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "docs", "rules": rules}]}), encoding="utf-8")
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr
