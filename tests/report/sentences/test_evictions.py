"""Evictions in the log, the journal, the plan and the explanations: blocked, tried again, given up, carried out."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.eviction_rig import EVICT_AT_ONCE, World
from tests.daemon.rig import Direct
from tests.report.build import quiet, record, status_document
from tests.worlds import at, container, owner, pod, policy, rule
from watchdog.cli.explain_past import action_sentences, last_occurrences
from watchdog.core.eviction import FORBIDDEN, EvictionAnswer
from watchdog.core.ledger import PendingEviction
from watchdog.core.plan import Outcome, Result
from watchdog.core.policy import JournalLimits
from watchdog.export.metrics import Counters
from watchdog.journal.journal import Journal
from watchdog.journal.read import HistoryRow, history
from watchdog.report.changes import Changes
from watchdog.report.events import blocked_note
from watchdog.report.sentences.account import account_paragraphs
from watchdog.report.sentences.action import explanation
from watchdog.report.sentences.brakes import pending_because
from watchdog.report.status import decode

BUDGET = "the disruption budget web needs 2 healthy pods and has 2 currently"
REFUSED = "https://10.0.0.1: nothing listens there: is the API server up?"
EVICTING = "evicting the pod with a grace period of 30s"
RULE = rule(replace(EVICT_AT_ONCE, grace_s=30.0), name="r")
OF_WEB = pod("a", container(declared="1Gi"), owner=owner("Deployment", "web"))


class Told(World):
    """A world with a journal, whose cycles are reported as the daemon reports them."""

    waiting: tuple[Outcome, ...] = ()

    def __init__(self, path: Path | None = None) -> None:
        self.file = Journal.open(path, JournalLimits(), "n1") if path is not None else None
        super().__init__(policy=policy(RULE), pods=(OF_WEB,), journal=None if self.file is None else Direct(self.file))
        self.news = Changes()
        self.counters = Counters()
        self.items: list[tuple[str, str]] = []

    def tell(self, second: float) -> dict[str, Any]:
        """One cycle, reported to all; its status."""
        opened = self.open(second)
        ended = self.cycle.actions.take_ended()
        finish = self.close(opened)
        report = replace(
            quiet(second),
            policy=self.policy,
            snapshot=opened.snapshot,
            pods=opened.inputs.pods,
            attribution=opened.attribution,
            assessments=opened.assessments,
            plan=finish.plan,
            began=finish.began,
            outcomes=(*self.waiting, *ended, *finish.outcomes),
        )
        self.waiting = ()
        if self.file is not None:
            record(self.file, report)
        items = self.news.since(report)
        self.counters = self.counters.after(report)
        self.items += [(item.event.value, item.sentence) for item in items]
        return status_document(report)

    def reported(self, event: str) -> str:
        """The one sentence about this event."""
        (text,) = [text for each, text in self.items if each == event]
        return text

    def closed(self, path: Path) -> list[HistoryRow]:
        """What its journal has in the end, in which nothing is unfinished."""
        assert self.file is not None
        assert self.file.unfinished() == ()
        self.file.close()
        return history(path, None, 0.0)

    def wake(self, second: float | None = None) -> None:
        """Replies come in between cycles: they are in the next report."""
        before = len(self.ended)
        super().wake(second)
        self.waiting += tuple(self.ended[before:])


def why(status: dict[str, Any]) -> str:
    """What `explain` says about the pod."""
    whole = decode(json.dumps(status).encode())
    return " ".join(text for account in whole.accounts for p in account_paragraphs(account, whole) for text in p)


def test_a_blocked_eviction_is_reported_once_with_its_reason() -> None:
    """A line in the log and the journal, the counter, and from then on the plan says why it waits and until when."""
    world = Told()
    (entry,) = world.tell(0)["plan"]
    assert entry["held_because"] == "the API server is being asked to evict it"
    assert (entry["pending"]["next_in_s"], entry["pending"]["refused"]) == (None, None)
    world.answer(EvictionAnswer.BLOCKED, BUDGET, 14.0)
    status = world.tell(1)
    assert world.reported("evict_blocked") == (
        f"Pod ns/pod-a: {EVICTING} is blocked and is retried up to 25 times within 10m: {BUDGET} "
        '(rule "r", above 100%, immediately).'
    )
    (entry,) = status["plan"]
    assert (entry["withheld_by"], entry["releases_in_s"], entry["due_in_s"]) == ("pending", 13, 0)
    pending = {"tries": 1, "blocked": True, "refused": BUDGET, "next_in_s": 13, "gives_up_in_s": 599}
    assert entry["pending"] == pending
    assert entry["held_because"] == (
        f"its disruption budget does not let the eviction through ({BUDGET}); tried once so far, up to 25 times within "
        "10m"
    )
    held = f"Withheld for another 13s, until 08:00:14 UTC, because {entry['held_because']}."
    assert held in entry["sentence"]
    assert held in why(status)
    world.tell(2)
    world.tell(14)
    world.answer(EvictionAnswer.BLOCKED, BUDGET, 14.0)
    world.tell(15)
    assert [event for event, _ in world.items] == ["policy_loaded", "evict_blocked"]
    assert world.counters.actions["r", "evict", "blocked"] == 1
    assert world.counters.actions["r", "evict", "failed"] == 0


def test_an_api_that_does_not_answer_is_reported_once() -> None:
    """A delay that no budget causes is reported once per eviction too: who is paged sees what it waits for."""
    world = Told()
    world.tell(0)
    for second in (1, 5, 9):
        world.answer(EvictionAnswer.LATER, REFUSED, 4.0)
        world.tell(second)
    assert world.reported("evict_delayed") == (
        f"Pod ns/pod-a: {EVICTING} has not succeeded yet and is retried up to 25 times within 10m: {REFUSED} "
        '(rule "r", above 100%, immediately).'
    )
    assert world.counters.actions["r", "evict", "blocked"] == 0


def test_which_attempt_it_is() -> None:
    """Attempts are counted as people count, and what the server says, which holds names of others, is made harmless."""
    pending = PendingEviction(step=RULE.steps[0].signature, tries=1, until_s=0.0)
    for tries, which in {2: "2nd", 3: "3rd", 11: "11th", 21: "21st"}.items():
        assert pending_because(replace(pending, tries=tries)).endswith(f" evict it, for the {which} time")
    text = pending_because(replace(pending, next_s=1.0, refused="the budget \x1b[2J\n" + "x" * 9999))
    assert text.isprintable()
    assert len(text) < 600


def test_the_journal_has_the_whole_story(tmp_path: Path) -> None:
    """Intended, blocked, evicted, free: in this order, in sentences that call it an eviction, and for its owner."""
    world = Told(tmp_path / "journal.db")
    world.tell(0)
    world.answer(EvictionAnswer.BLOCKED, BUDGET, 4.0)
    world.tell(1)
    world.tell(4)
    world.second = 5.0
    world.answer(EvictionAnswer.ACCEPTED)
    world.tell(6)
    world.used = {}
    world.tell(17)
    rows = world.closed(tmp_path / "journal.db")
    assert [row.event for row in rows] == [
        *("intended", "policy_loaded", "evict_blocked", "evict_ended", "released", "explained")
    ]
    reported = {row.event: row.sentence for row in rows}
    assert reported["evict_ended"] == 'Pod ns/pod-a: evicted the pod (rule "r", above 100%, immediately).'
    assert reported["released"] == "Pod ns/pod-a: its memory was free again 12s after the eviction was accepted."
    assert reported["explained"] == (
        "The watchdog evicted pod ns/pod-a, because the pod exceeded its GPU memory limit. It used 4Gi; its limit "
        'was 1Gi, declared by veriff.com/gpu-memory. Rule "r" evicts above 100%, immediately (threshold 1Gi); the '
        "pod had been above it for 5s. The Eviction API accepted that, and its containers had 30s to end; the "
        "memory was free 12s after that; replacing the pod is up to its Deployment web. To prevent this, use less "
        'GPU memory or declare more: set resources.limits["veriff.com/gpu-memory"] of container main to at least '
        "4Gi."
    )
    assert {row.action_id for row in rows if row.event != "policy_loaded"} == {1}
    assert rows[0].container is None
    assert [row.event for row in last_occurrences(rows, 10)] == ["evict_blocked", "explained"]
    used = "it used 4Gi of GPU memory, its limit was 1Gi"
    assert list(action_sentences(rows, at(60).wall_s)) == [
        f'It was evicted at 08:00:05 UTC: {used}, and rule "r" evicts above 100%, immediately.',
        f"It was blocked at 08:00:00 UTC: {BUDGET}.",
        "Its memory was confirmed free at 08:00:17 UTC.",
    ]


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (EvictionAnswer.REFUSED, "it failed"),
        (EvictionAnswer.GONE, "it was no longer needed"),
        (EvictionAnswer.SPARED, "it was interrupted"),
    ],
)
def test_an_eviction_that_did_not_happen(tmp_path: Path, answer: EvictionAnswer, end: str) -> None:
    """Failed, gone, spared: reported with the reason, and nothing waits for its memory."""
    world = Told(tmp_path / "journal.db")
    world.tell(0)
    world.answer(answer, "the reason is this")
    world.tell(1)
    rows = world.closed(tmp_path / "journal.db")
    (ended,) = [row for row in rows if row.event == "evict_ended"]
    ended_so = f"evicting the pod {end.removeprefix('it ')}: the reason is this"
    assert ended.sentence == f'Pod ns/pod-a: {ended_so} (rule "r", above 100%, immediately).'
    what, reason = action_sentences(rows, at(60).wall_s)
    assert what.endswith(f"Result: {end}.")
    assert reason == "The reason: the reason is this."
    assert world.reported("evict_ended")


def test_an_eviction_that_was_accepted_is_in_progress() -> None:
    """Accepted, the grace, and that its memory is waited for; without a controller, that nothing replaces the pod."""
    world = Told()
    world.tell(0)
    world.answer(EvictionAnswer.ACCEPTED)
    status = world.tell(1)
    (account,) = status["accounts"]
    assert (account["under_way"]["do"], account["under_way"]["sigkill_at"]) == ("evict", None)
    assert (
        "An eviction of this pod is in progress: the API server has accepted it. Its containers have 30s to exit; "
        "the watchdog then waits up to 30s for its memory to be freed." in why(status)
    )
    begun = world.began[0]
    bare = replace(begun.entry.assessment, pod=replace(OF_WEB, owner=None))
    bare_entry = replace(begun.entry, assessment=bare)
    text = explanation(replace(begun, entry=bare_entry, result=Result.DONE), world.policy)
    assert "the pod has no controller to replace it" in text


def test_an_eviction_that_was_given_up_has_its_last_reason() -> None:
    """After ten minutes: failed, how often it was tried, and what it failed on to the end."""
    world = Told()
    world.tell(0)
    world.answer(EvictionAnswer.BLOCKED, BUDGET, 9999.0)
    world.tell(1)
    assert world.reported("evict_ended") == (
        f'Pod ns/pod-a: {EVICTING} failed: given up, tried once in 0s: {BUDGET} (rule "r", above 100%, immediately).'
    )


def test_a_pod_that_something_else_ends_is_held_back() -> None:
    """A pod that terminates, but not by the watchdog, is spared, and that is reported."""
    world = Told()
    world.pods = (replace(OF_WEB, deletion_deadline_s=at(31).wall_s),)
    status = world.tell(0)
    assert [event for event, _ in world.items] == ["policy_loaded", "withheld"]
    assert "This pod is exempt from kills and evictions for now: it is terminating" in why(status)


def test_an_unfinished_eviction_is_found_by_the_next_daemon(tmp_path: Path) -> None:
    """One that was in progress when the daemon was killed is in the journal as unfinished."""
    world = Told(tmp_path / "journal.db")
    world.tell(0)
    assert world.file is not None
    world.file.close()
    with closing(Journal.open(tmp_path / "journal.db", JournalLimits(), "n1")) as reopened:
        (left,) = reopened.unfinished()
    assert (left.account.uid, left.result, [key.pid for key in left.targets]) == ("a", None, [5])


NO_RIGHT = (
    'the API server answered 403: pods "pod-a" is forbidden; this account lacks the right: apply what '
    "`gpu-watchdog rights` prints for this policy"
)


def test_a_missing_right_is_reported_in_full_to_the_operator_and_in_short_to_the_owner() -> None:
    """The log has the verb and the remedy; the tenant, who can use neither, reads that the operator has to act."""
    world = Told()
    world.tell(0)
    world.answer(EvictionAnswer.REFUSED, NO_RIGHT, for_owner=FORBIDDEN)
    world.tell(1)
    assert f'failed: {NO_RIGHT} (rule "r"' in world.reported("evict_ended")
    assert f"; this failed: {FORBIDDEN}. " in explanation(world.ended[-1], world.policy)
    assert f" It failed: {FORBIDDEN}. " in blocked_note(world.ended[-1], quiet(1))


def test_our_own_eviction_is_no_withholding() -> None:
    """While the pod that we evict terminates, nothing is reported but that it was evicted; `explain` says the same."""
    world = Told()
    world.tell(0)
    world.pods = (replace(OF_WEB, deletion_deadline_s=at(31).wall_s),)
    world.tell(1)  # the watch may be faster than the answer
    world.answer(EvictionAnswer.ACCEPTED)
    for second in (2, 3, 32, 33):
        status = world.tell(second)
        assert [entry["withheld_by"] for entry in status["plan"]] == ["pending"]
    world.used = {}
    world.tell(34)
    assert [event for event, _ in world.items] == [
        *("policy_loaded", "evict_begun", "evict_ended", "released", "explained")
    ]
    assert not any(world.counters.withheld.values())
    assert "protected" not in why(status)
