"""What is true of every explanation, on generated nodes."""

import json
import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.export.build import Story
from tests.laws.nodes import GeneratedNode, nodes
from watchdog.cli.explain import by_daemon
from watchdog.core.brakes import Brake
from watchdog.core.plan import CycleReport
from watchdog.core.units import format_bytes
from watchdog.report.status import decode, encode
from watchdog.report.status_build import status_of


@given(nodes(), st.integers(0, 2**32), st.booleans())
def test_every_pod_can_be_explained(node: GeneratedNode, seed: int, stale: bool) -> None:
    """Always an explanation: on any node, each account is reported with what it uses and what it may use."""
    dice = random.Random(seed)
    story = Story(under=node.under, pods=node.pods, pods_stale=stale, node=node.node)
    story.see(node.seen)
    report = _braked(dice, story.see(node.later(seed, 1.0).seen))
    report = replace(report, enforcing=dice.random() < 0.5, suspended=("lock",) if dice.random() < 0.2 else ())
    status = decode(json.dumps(encode(status_of(report))).encode())
    for title in {assessment.pod.title for assessment in report.assessments}:
        found = by_daemon(title, status, ())
        assert found is not None
        text = " ".join(sentence for paragraph in found.paragraphs for sentence in paragraph)
        assert text.isprintable()
        assert " None" not in text
        for account in found.accounts:
            used, allowed = account["used_at_least"], account["allowed"]
            nothing = "How much GPU memory" if account["used"] is None else "no GPU memory"
            assert (format_bytes(used) if used else nothing) in text
            assert allowed is None or (format_bytes(allowed) if allowed else "limit is 0") in text
        assert all(line.isprintable() for line in found.lines(80))


def _braked(dice: random.Random, report: CycleReport) -> CycleReport:
    """The report with brakes and observing rules, which a single cycle would not produce."""
    entries = [
        replace(entry, withheld_by=dice.choice(list(Brake)), releases_in_s=dice.choice([None, 0.0, 4.2, 90_000.0]))
        if entry.do.enforces and dice.random() < 0.5
        else entry
        for entry in report.plan.entries
    ]
    observing = tuple(replace(each, observes=dice.random() < 0.2) for each in report.assessments)
    return replace(report, plan=replace(report.plan, entries=tuple(entries)), assessments=observing)
