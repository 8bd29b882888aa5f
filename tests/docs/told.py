"""Sentences that a node tells, each made by what causes it: news, brakes, explanations, the journal's own."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.export.build import Story, climbing, entry, killed, outcome, policy, quiet, trainer, trainer_node
from tests.worlds import at, container, rule, step
from watchdog.core.brakes import Begun, Brake
from watchdog.core.ledger import Trying
from watchdog.core.model import Gap, GapReason, Place, PlaceKind, Pod, ProcessKey
from watchdog.core.plan import CycleReport, PlanEntry, Result
from watchdog.core.policy import Backoff, Brakes, Breaker, Declaration, JournalLimits, Protect, Window
from watchdog.core.protect import protection
from watchdog.export.journal import Journal
from watchdog.export.journal_read import history
from watchdog.export.news import News
from watchdog.export.news_item import Event
from watchdog.export.status import status_document
from watchdog.export.status_read import Part
from watchdog.export.why import account_paragraphs
from watchdog.export.words import forecast, note
from watchdog.loop.enforcement import REMEDIES

_GAP: Final = Gap(reason=GapReason.GPU_LOST, what="GPU-1", why="nvmlInit: GPU is lost (code 15); reboot the node")
_BOUNDS: Final = Brakes(
    node=Window(count=10, per_s=600),
    namespace=Window(count=5, per_s=600),
    owner=Window(count=1, per_s=600),
    owner_backoff=Backoff(),
    breaker=Breaker(),
)
_KEYS: Final = tuple(ProcessKey(pid=pid, start_ticks=pid) for pid in (101, 102))
_IN_BYTES: Final = Declaration(kind="resource", key="a.b/gpu", unit=1)
_PER_CARD: Final = Declaration(kind="resource", key="a.b/gpu", unit="share", shares=4)
_CLAIMS: Final = (
    *(("-1", _IN_BYTES), ("x", _IN_BYTES), ("900Gi", _IN_BYTES), ("900Gi", replace(_IN_BYTES, per="gpu"))),
    ("1000", replace(_PER_CARD, unit="percent", shares=None)),
    ("2", replace(_PER_CARD, unit="fraction", shares=None, per="gpu")),
    ("90", _PER_CARD),
)


def news() -> Iterator[tuple[Event, str]]:
    """The sentence of each kind of news, of a node on which everything happens."""
    teller = News(REMEDIES)
    yield from ((item.event, item.sentence) for report in _reports() for item in teller.since(report))


def _reports() -> Iterator[CycleReport]:
    yield quiet(0)
    yield quiet(1, suspended=tuple(REMEDIES), enforcing=False)
    yield replace(quiet(2), snapshot=replace(quiet(2).snapshot, gaps=(_GAP,)))
    yield quiet(20)
    warned = entry(climbing(5), "warn")
    evicting = by_rule(step("100%", 0, "evict"))
    yield quiet(21, outcomes=(outcome(warned), outcome(warned, Result.OBSERVED)))
    for result in Result:
        for made in (entry(), evicting, by_rule(step("100%", 0, scope="pod")), by_rule(step("50%", 0, "warn"))):
            yield quiet(22, outcomes=(outcome(made, result, reason="its use fell", release_s=2.0),))
            yield quiet(22, outcomes=(outcome(made, result),))
    yield quiet(23, began=(killed(), outcome(evicting)))
    yield quiet(24, outcomes=(killed(release_s=3.0),))
    brakes = replace(quiet(60).plan.ledger.brakes, opened=Begun(at(60).boottime_s))
    yield replace(quiet(60), plan=replace(quiet(60).plan, ledger=replace(quiet(60).plan.ledger, brakes=brakes)))
    yield quiet(61)
    for uid, (text, declaration) in enumerate(_CLAIMS):
        claiming = container("main", None, of="u1", resources={"a.b/gpu": text})
        under = policy(declarations=(declaration,))
        yield Story(under=under, pods=(trainer(uid=f"u{uid}", containers=(claiming,)),)).see(trainer_node(4.0, 62))
    for refused in ("the API server is away", "it is away still"):
        trying = Trying(step=evicting.definition.signature, tries=2, until_s=at(600).boottime_s, refused=refused)
        yield replace(quiet(69), plan=replace(quiet(69).plan, entries=(replace(evicting, trying=trying),)))
    for by_file in (False, True):
        old = replace(quiet(80).pods, synced=at(80), by_file=by_file)
        yield from (quiet(second, pods=old) for second in (80, 300))
        yield quiet(301)
    base = quiet(70)
    yield from (replace(base, plan=replace(base.plan, entries=(each,))) for each in withheld())


def by_rule(*steps: object, used: float = 12.4, **more: object) -> PlanEntry:
    """The first plan entry of the trainer under a rule with these steps."""
    return Story(under=policy(rule(*steps, name="r", **more))).see(trainer_node(used)).plan.entries[0]  # type: ignore[arg-type]


def withheld() -> Iterator[PlanEntry]:
    """A kill that each of the brakes holds back, for a time or for good."""
    due = replace(entry(), taken=False, news=True)
    spared = replace(due, assessment=replace(due.assessment, protected="it is in kube-system"))
    for brake in Brake:
        for made in (replace(due, withheld_by=brake), replace(spared, withheld_by=brake)):
            yield from (made, replace(made, lets_go_in_s=250.0), replace(made, card="GPU-1"))


def held_sentences() -> Iterator[str]:
    """What is said of them, with and without the numbers of the policy."""
    bounded = policy(brakes=_BOUNDS)
    for made in withheld():
        yield from (note(made, at(31)), note(made, at(31), policy=bounded), forecast(made, at(31), bounded))
    rules = replace(entry().rule, steps=tuple(replace(each, under_pressure=True) for each in entry().rule.steps))
    pressed = replace(entry(), rule=rules, card="GPU-1")
    for made in (entry(), entry(climbing(5), "warn"), pressed):
        yield from (forecast(made, at(31)), note(made, at(31), observing=True), note(made, at(31), processes=1))


def protections() -> Iterator[str]:
    """Why pods are never acted on, each that there is."""
    by_policy = Protect(namespaces=("b",), pods=("c",), priority_at_least=5, annotation="d")
    pods: tuple[Pod, ...] = (
        trainer(namespace="kube-system"),
        trainer(static=True),
        trainer(priority=2_000_001_000),
        trainer(deletion_deadline_s=at(9).wall_s),
        trainer(namespace="b"),
        trainer(name="c"),
        trainer(priority=6),
        trainer(annotations={"d": ""}),
    )
    own = Place(kind=PlaceKind.POD, pod="u1")
    for pod, place in (*((pod, None) for pod in pods), (trainer(), own)):
        why = protection(pod, by_policy, place, at(0))
        assert why is not None, pod
        yield why


def recorded(path: Path) -> Iterator[str]:
    """What the journal has of deeds, in their own sentences."""
    journal = Journal.open(path, JournalLimits(), "n1")
    for made in (entry(), by_rule(step("100%", 0, scope="pod"))):
        for result in Result:
            deed = journal.intend(made, _KEYS, at(31))
            journal.signalled(deed, at(31), "SIGTERM", _KEYS)
            journal.end(deed, result, "its use fell", at(32))
            journal.released(deed, at(33), 2.0 if result is Result.DONE else None, "the driver still lists it")
    journal.close()
    yield from (row.sentence for row in history(path, None, 0.0))


def explained() -> Iterator[str]:
    """What `explain` says of the accounts of a node, as it stands in each of these reports."""
    gapped = replace(quiet(0), snapshot=replace(quiet(0).snapshot, gaps=(_GAP,)))
    unknown = Story().see(trainer_node(None, gaps=(_GAP,)))
    nothing = trainer(containers=(container("main", None, of="u1"),))
    reports = [quiet(), climbing(3), climbing(31), gapped, unknown, climbing(31, under=policy(mode="observe"))]
    reports += [Story(pods=(nothing,)).see(trainer_node()), climbing(9, under=policy(rule(step("100%", 5, "evict"))))]
    base = climbing(31)
    reports += [replace(base, plan=replace(base.plan, entries=(each,))) for each in withheld()]
    for report in reports:
        status = Part(json.loads(json.dumps(status_document(report))))
        for account in status.parts("accounts"):
            yield from (sentence for paragraph in account_paragraphs(account, status) for sentence in paragraph)
