"""What the real collector exposes: every name with its labels, and what a text of PromQL asks for of it."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from tests.monitoring.rules.scenario import under_maintenance
from tests.monitoring.rules.world import World
from tests.report.build import killed, trainer, trainer_node, utilized, withheld
from tests.worlds import at, container
from watchdog.core.brakes import Brake
from watchdog.core.policy import Pulse
from watchdog.export.metrics import render

# What the scrape configuration adds to each series, and Prometheus or a ruler above it.
TARGET: Final = {"job", "instance", "node", "watchdog_namespace", "watchdog_pod", "cluster"}
_NAME: Final = re.compile(r"\bgpu_watchdog_\w+")
# A selector as PromQL writes it, and as a template puts one together for a query.
_SELECTOR: Final = re.compile(r'\b(\w+)\{((?:[^{}"]|"[^"]*")*)\}')
_MATCHER: Final = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*(?:"|%q)')


def _exposed() -> dict[str, set[str]]:
    """Every sample's name and labels, of a daemon that has done and lacked a bit of everything."""
    odd = trainer(name="odd", uid="u9", containers=(container("main", "-1", of="u9"),))
    daemon = World().daemon(pods=(trainer(), odd))
    ended = killed(at=at(1), reaction_s=0.1, release_s=0.1)
    lasting = under_maintenance(0)
    report = daemon.see(trainer_node(12.4, 1), **{**lasting, "suspended": ("lock",), "outcomes": (ended,)})
    withholds = replace(report.plan, entries=(withheld(Brake.STALE),))
    sharing = tuple(replace(each, beside=1) for each in report.assessments)
    known = replace(report, assessments=sharing, plan=withholds, policy=replace(report.policy, pulse=Pulse()))
    daemon.metrics.update(replace(known, utilization=utilized().utilization))
    found: dict[str, set[str]] = defaultdict(set)
    for family in text_string_to_metric_families(render(daemon.metrics.registry, openmetrics=False).decode()):
        for sample in family.samples:
            found[sample.name] |= sample.labels.keys()
    return dict(found)


LABELS: Final = _exposed()


def metric_names(text: str) -> set[str]:
    """The names of our metrics in a text; a part of a recorded name is none."""
    return {match[0] for match in _NAME.finditer(text) if text[match.start() - 1 : match.start()] != ":"}


def selectors(text: str) -> Iterator[tuple[str, set[str]]]:
    """Each name with the labels that are asked for in its braces."""
    for name, matchers in _SELECTOR.findall(text):
        if name not in ("printf", "define"):
            yield name, set(_MATCHER.findall(matchers))
