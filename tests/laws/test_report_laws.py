"""What is true of every report on generated nodes: the most that an account can use, and that each is explained."""

import json
import random
from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.laws.nodes import GeneratedNode, nodes
from tests.report.build import Story
from watchdog.cli.explain import by_daemon
from watchdog.core.assessment import Assessment, Reason
from watchdog.core.brakes import Brake
from watchdog.core.model import Snapshot
from watchdog.core.plan import CycleReport
from watchdog.core.units import format_bytes
from watchdog.report.figures import Bounds
from watchdog.report.status import decode, encode
from watchdog.report.status_build import status_of


def meant(assessment: Assessment, report: CycleReport) -> int | None:
    """The bound by its definition: what neither the driver nor others have on each GPU that may hide use."""
    gpus = report.snapshot.gpus
    if assessment.used is not None or not gpus or report.snapshot.blind:
        return None
    own: Counter[str] = Counter()
    for use in assessment.uses:
        own[use.gpu] += use.used or 0
    others, possible, bound = _others(assessment, report), _possible(assessment, report), 0
    for gpu in gpus:
        bound += own[gpu.uuid]
        if gpu.uuid in possible:
            if gpu.used is None:
                return None
            bound += max(gpu.used - (gpu.reserved or 0) - others[gpu.uuid] - own[gpu.uuid], 0)
    return bound


def _others(assessment: Assessment, report: CycleReport) -> Counter[str]:
    """The known use of other accounts and the host, by GPU."""
    found: Counter[str] = Counter()
    for use in report.attribution.attributed:
        if use not in set(assessment.uses):
            found[use.gpu] += use.used or 0
    for stray in report.attribution.unattributed:
        if stray.reason is Reason.HOST:
            found[stray.gpu] += stray.used or 0
    return found


def _possible(assessment: Assessment, report: CycleReport) -> set[str]:
    """The GPUs on which it may use more than is known: those that hide something, or else all."""
    if assessment.account.gpu is not None:
        return {assessment.account.gpu}
    every = {gpu.uuid for gpu in report.snapshot.gpus}
    found = {use.gpu for use in assessment.uses if use.used is None}
    found |= {gpu.uuid for gpu in report.snapshot.gpus if not gpu.listed} | report.snapshot.unseen
    found |= {use.gpu for use in report.attribution.unattributed if use.reason is Reason.UNKNOWN_POD}
    # Of a pod that the list lags behind all bytes may be known, and only whose they are is not.
    is_whose = assessment.behind and all(use.used is not None for use in assessment.uses)
    return found & every or (set() if is_whose else every)


def _hushed(seen: Snapshot, seed: int) -> Snapshot:
    """The same processes as seen by a driver with complete lists and counters that reports few amounts.

    On most generated nodes something is missing everywhere, which hides the rest of the law.
    """
    dice = random.Random(seed)
    cards = [replace(gpu, listed=True, used=2**50 + number, reserved=number) for number, gpu in enumerate(seen.gpus)]
    uses = tuple(replace(use, used=dice.choice([None, use.used])) for use in seen.uses)
    return replace(seen, gpus=tuple(cards), uses=uses, blind=False, unseen=frozenset())


@given(nodes(), st.integers(0, 2**32), st.booleans())
def test_the_bound_of_each_account_is_that_of_its_definition(node: GeneratedNode, seed: int, hush: bool) -> None:
    """Law: on any node the sums of a report give for each account what adding up all the others gives."""
    seen = _hushed(node.seen, seed) if hush else node.seen
    report = Story(under=node.under, pods=node.pods, node=node.node).see(seen)
    bounds = Bounds.of(report)
    for each in report.assessments:
        assert bounds.used_at_most(each) == meant(each, report), each


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
