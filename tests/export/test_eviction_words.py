"""Evictions in the log, the journal, the plan and the explanations: blocked, tried again, given up, carried out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.eviction_rig import EVICT_AT_ONCE, World
from tests.daemon.rig import Direct
from tests.export.build import quiet, record, status_document
from tests.worlds import NODE, at, container, owner, pod, policy, rule
from watchdog.cli.explain_past import action_sentences, last_occurrences
from watchdog.core.eviction import FORBIDDEN, EvictionAnswer
from watchdog.core.ledger import PendingEviction
from watchdog.core.plan import CycleReport, Outcome, Result
from watchdog.core.policy import JournalLimits
from watchdog.export.metrics import Counters
from watchdog.journal.journal import Journal
from watchdog.journal.read import HistoryRow, history
from watchdog.report.changes import ChangeKind, Changes
from watchdog.report.events import blocked_note
from watchdog.report.sentences.account import account_paragraphs
from watchdog.report.sentences.action import explanation
from watchdog.report.sentences.brakes import pending_because, withheld_because
from watchdog.report.status import decode
from watchdog.report.text import quoted

BUDGET = "the disruption budget web needs 2 healthy pods and has 2 currently"
REFUSED = "https://10.0.0.1: nothing listens there: is the API server up?"
RULE = rule(replace(EVICT_AT_ONCE, grace_s=30.0), name="r")
OF_WEB = pod("a", container(declared="1Gi"), owner=owner("Deployment", "web"))


class Told(World):
    """A world with a journal, whose passes are reported as the daemon reports them."""

    def __init__(self, path: Path | None = None) -> None:
        self.file = Journal.open(path, JournalLimits(), "n1") if path is not None else None
        super().__init__(policy=policy(RULE), pods=(OF_WEB,), journal=None if self.file is None else Direct(self.file))
        self.news = Changes()
        self.counters = Counters()
        self.items: list[tuple[str, str]] = []

    def tell(self, second: float) -> dict[str, Any]:
        """One cycle and what is told of it; its status."""
        opened = self.open(second)
        ended = self.cycle.take_ended()
        finish = self.close(opened)
        report = CycleReport(
            node=NODE,
            at=opened.snapshot.at,
            policy=self.policy,
            policy_loaded_at_s=0.0,
            enforcing=True,
            suspended=(),
            snapshot=opened.snapshot,
            pods=opened.inputs.pods,
            attribution=opened.attribution,
            assessments=opened.assessments,
            plan=finish.plan,
            began=finish.began,
            outcomes=(*self.waiting, *ended, *finish.outcomes),
        )
        self.waiting: tuple[Outcome, ...] = ()
        if self.file is not None:
            record(self.file, report)
        items = self.news.since(report)
        self.counters = self.counters.after(report)
        self.items += [(item.event.value, item.sentence) for item in items]
        return status_document(report)

    waiting: tuple[Outcome, ...] = ()

    def wake(self, second: float | None = None) -> None:
        """Replies come in between cycles: the next report tells of them."""
        before = len(self.ended)
        super().wake(second)
        self.waiting += tuple(self.ended[before:])


def why(status: dict[str, Any]) -> str:
    """What `explain` says of the pod."""
    whole = decode(json.dumps(status).encode())
    return " ".join(text for account in whole.accounts for p in account_paragraphs(account, whole) for text in p)


def test_a_blocked_eviction_is_told_once_with_its_reason() -> None:
    """A line in the log and the journal, the counter, and from then on the plan says why it waits and until when."""
    world = Told()
    world.tell(0)
    world.answer(EvictionAnswer.BLOCKED, BUDGET, 14.0)
    status = world.tell(1)
    (said,) = [text for event, text in world.items if event == "evict_blocked"]
    assert said == (
        "Pod ns/pod-a: evicting the pod with a grace period of 30s is blocked and is retried up to 25 times "
        f'within 10m: {BUDGET} (rule "r", above 100%, immediately).'
    )
    (entry,) = status["plan"]
    assert (entry["withheld_by"], entry["releases_in_s"], entry["due_in_s"]) == ("pending", 13, 0)
    assert entry["pending"] == {
        "tries": 1,
        "blocked": True,
        "refused": BUDGET,
        "next_in_s": 13,
        "gives_up_in_s": 599,
    }
    because = (
        f"its disruption budget does not let the eviction through ({BUDGET}); tried once so far, up to 25 "
        "times within 10m"
    )
    assert entry["held_because"] == because
    assert f"Held back for another 13s, until 08:00:14 UTC, because {because}." in entry["sentence"]
    assert f"Held back for another 13s, until 08:00:14 UTC, because {because}." in why(status)
    world.tell(2)
    world.tell(14)
    world.answer(EvictionAnswer.BLOCKED, BUDGET, 14.0)
    world.tell(15)
    assert [event for event, _ in world.items] == ["policy_loaded", "evict_blocked"]
    assert world.counters.actions["r", "evict", "blocked"] == 1
    assert world.counters.actions["r", "evict", "failed"] == 0


def test_an_api_that_does_not_answer_is_told_once() -> None:
    """What is no budget's doing is told too, once an eviction: whoever is paged sees where it hangs."""
    world = Told()
    world.tell(0)
    for second in (1, 5, 9):
        world.answer(EvictionAnswer.LATER, REFUSED, 4.0)
        world.tell(second)
    (delayed,) = [text for event, text in world.items if event == "evict_delayed"]
    assert delayed == (
        "Pod ns/pod-a: evicting the pod with a grace period of 30s has not succeeded yet and is retried up to "
        f'25 times within 10m: {REFUSED} (rule "r", above 100%, immediately).'
    )
    assert world.counters.actions["r", "evict", "blocked"] == 0


def test_while_an_answer_is_awaited_that_is_said() -> None:
    """Neither blocked nor late yet: the API server is being asked."""
    world = Told()
    (entry,) = world.tell(0)["plan"]
    assert entry["held_because"] == "the API server is being asked to evict it"
    assert (entry["pending"]["next_in_s"], entry["pending"]["refused"]) == (None, None)


@pytest.mark.parametrize(
    ("tries", "which"),
    [
        (1, ""),
        (2, ", for the 2nd time"),
        (3, ", for the 3rd time"),
        (11, ", for the 11th time"),
        (21, ", for the 21st time"),
    ],
)
def test_which_try_it_is(tries: int, which: str) -> None:
    """Tries are counted as people count."""
    pending = PendingEviction(step=RULE.steps[0].signature, tries=tries, until_s=0.0)
    assert pending_because(pending) == f"the API server is being asked to evict it{which}"


def test_words_of_the_server_are_made_harmless() -> None:
    """What the server says holds names that others wrote."""
    pending = PendingEviction(
        step=RULE.steps[0].signature, tries=1, until_s=0.0, next_s=1.0, refused="the budget \x1b[2J\n" + "x" * 9999
    )
    text = pending_because(pending)
    assert text.isprintable()
    assert len(text) < 600


def test_what_is_too_long_ends_at_a_word() -> None:
    """A sentence whose middle is cut out has lost its verb."""
    assert quoted("pods are forbidden: the user cannot evict.", 41) == "pods are forbidden: the user cannot evict"
    assert quoted("pods are forbidden: the user cannot evict", 40) == "pods are forbidden: the user cannot..."
    assert len(quoted("x" * 9999, 400)) == 400


def test_the_journal_tells_the_whole_story(tmp_path: Path) -> None:
    """Intended, blocked, evicted, free: in this order, in sentences that call it an eviction."""
    rows = story(tmp_path / "journal.db")
    assert [row.event for row in rows] == [
        *("intended", "policy_loaded", "evict_blocked", "evict_ended", "released", "explained"),
    ]
    by_event = {row.event: row for row in rows}
    assert by_event["evict_ended"].sentence == (
        'Pod ns/pod-a: the pod was evicted by rule "r" (above 100%, immediately).'
    )
    assert by_event["released"].sentence == (
        "Pod ns/pod-a: the memory of the pod was free 12s after the eviction was accepted."
    )
    assert by_event["intended"].sentence.endswith("Evicting the pod with a grace period of 30s.")
    assert {row.action_id for row in rows if row.event != "policy_loaded"} == {1}
    assert by_event["intended"].container is None
    assert [row.event for row in last_occurrences(rows, 10)] == ["evict_blocked", "explained"]


def story(path: Path) -> list[HistoryRow]:
    """An eviction that is blocked, goes through on the second try, and gives its memory back."""
    world = Told(path)
    world.tell(0)
    world.answer(EvictionAnswer.BLOCKED, BUDGET, 4.0)
    world.tell(1)
    world.tell(4)
    world.second = 5.0
    world.answer(EvictionAnswer.ACCEPTED)
    world.tell(6)
    world.used = {}
    world.tell(17)
    assert world.file is not None
    assert world.file.unfinished() == ()
    world.file.close()
    return history(path, None, 0.0)


def test_the_explanation_for_the_owner(tmp_path: Path) -> None:
    """What happened, why, how, who puts another in its place, and what to change."""
    text = next(row.sentence for row in story(tmp_path / "journal.db") if row.event == "explained")
    assert text == (
        "The watchdog evicted pod ns/pod-a, because the pod exceeded its GPU memory limit. It used 4Gi; its limit "
        'was 1Gi, declared by veriff.com/gpu-memory. Rule "r" evicts above 100%, immediately (threshold 1Gi); the '
        "pod had been above it for 5s. The Eviction API accepted that, and its containers had 30s to end; the "
        "memory was free 12s after that; replacing the pod is up to its Deployment web. To prevent this, use less "
        'GPU memory or declare more: set resources.limits["veriff.com/gpu-memory"] of container main to at least '
        "4Gi."
    )


def test_what_was_done_to_it_from_the_journal(tmp_path: Path) -> None:
    """Asked later, with the daemon gone: evicted, when and for what, and that it was blocked at first."""
    rows = story(tmp_path / "journal.db")
    what, blocked, freed = action_sentences(rows, at(60).wall_s)
    used = "it used 4Gi of GPU memory, its limit was 1Gi"
    assert what == f'It was evicted at 08:00:05 UTC: {used}, and rule "r" evicts above 100%, immediately.'
    assert (blocked, freed) == (
        f"It was blocked at 08:00:00 UTC: {BUDGET}.",
        "Its memory was confirmed free at 08:00:17 UTC.",
    )


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (EvictionAnswer.REFUSED, "it failed"),
        (EvictionAnswer.GONE, "it was no longer needed"),
        (EvictionAnswer.SPARED, "it was interrupted"),
    ],
)
def test_an_eviction_that_came_to_nothing(tmp_path: Path, answer: EvictionAnswer, end: str) -> None:
    """Failed, gone, spared: said with the reason, and nobody waits for its memory."""
    world = Told(tmp_path / "journal.db")
    world.tell(0)
    world.answer(answer, "the reason is this")
    world.tell(1)
    assert world.file is not None
    assert world.file.unfinished() == ()
    world.file.close()
    rows = history(tmp_path / "journal.db", None, 0.0)
    (ended,) = [row for row in rows if row.event == "evict_ended"]
    assert ended.sentence.startswith('Pod ns/pod-a: evicting the pod by rule "r" (above 100%, immediately) ')
    assert ended.sentence.endswith(": the reason is this.")
    what, reason = action_sentences(rows, at(60).wall_s)
    assert what.endswith(f"Result: {end}.")
    assert reason == "The reason: the reason is this."
    assert [text for event, text in world.items if event == "evict_ended"]


NO_RIGHT = (
    'evicting the pod: the API server answered 403: pods "pod-a" is forbidden: User '
    '"system:serviceaccount:gpu-memory-watchdog:gpu-memory-watchdog" cannot create resource "pods/eviction" in API '
    'group "" in the namespace "ns"; this account lacks the right: apply what `gpu-watchdog rights` prints for this '
    "policy"
)


def test_a_missing_right_is_told_in_full_to_the_operator_and_in_short_to_the_owner() -> None:
    """Who reads the log sees the verb and the remedy; the tenant, who can do neither, that the operator has to."""
    world = Told()
    world.tell(0)
    world.answer(EvictionAnswer.REFUSED, NO_RIGHT, for_owner=FORBIDDEN)
    world.tell(1)
    assert f'failed: {NO_RIGHT} (rule "r"' in dict(world.items)["evict_ended"]
    assert f"; this failed: {FORBIDDEN}. " in explanation(world.ended[-1], world.policy)
    assert f" It failed: {FORBIDDEN}. " in blocked_note(world.ended[-1], quiet(1))


def test_our_own_eviction_is_no_withholding() -> None:
    """While the pod that we evict terminates, nothing is told but that it was evicted; `explain` says the same."""
    world = Told()
    world.tell(0)
    deadline_s = at(31).wall_s
    world.pods = (replace(OF_WEB, deletion_deadline_s=deadline_s),)
    world.tell(1)  # the watch may be faster than the answer
    world.answer(EvictionAnswer.ACCEPTED)
    for second in (2, 3, 32, 33):
        status = world.tell(second)
        assert [entry["withheld_by"] for entry in status["plan"]] == ["pending"]
    world.used = {}
    world.tell(34)
    assert [event for event, _ in world.items] == [
        *("policy_loaded", "evict_begun", "evict_ended", "released", "explained"),
    ]
    assert not any(world.counters.withheld.values())
    assert "protected" not in why(status)


def test_a_pod_that_somebody_else_ends_is_held_back() -> None:
    """A pod that terminates by another hand is spared, and that is told."""
    world = Told()
    world.pods = (replace(OF_WEB, deletion_deadline_s=at(31).wall_s),)
    status = world.tell(0)
    assert [event for event, _ in world.items] == ["policy_loaded", "withheld"]
    assert "This pod is exempt from kills and evictions for now: it is terminating" in why(status)


def test_an_unfinished_eviction_is_found_by_the_next_daemon(tmp_path: Path) -> None:
    """Killed while its memory was awaited, or while an answer was: the action stands in the journal as unfinished."""
    path = tmp_path / "journal.db"
    world = Told(path)
    world.tell(0)
    assert world.file is not None
    world.file.close()
    reopened = Journal.open(path, JournalLimits(), "n1")
    (left,) = reopened.unfinished()
    assert (left.account.uid, left.result, [key.pid for key in left.targets]) == ("a", None, [5])
    reopened.close()


def test_after_it_was_accepted_the_status_says_so() -> None:
    """Under way: accepted, the grace, and that its memory is waited for."""
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


def test_given_up_is_told_with_the_last_reason() -> None:
    """The final word after ten minutes: failed, how often it was tried, and by what it was held up to the end."""
    world = Told()
    world.tell(0)
    world.answer(EvictionAnswer.BLOCKED, BUDGET, 9999.0)
    world.tell(1)
    (said,) = [text for event, text in world.items if event == "evict_ended"]
    assert said == (
        "Pod ns/pod-a: evicting the pod with a grace period of 30s failed: given up, tried once in 0s: "
        f'{BUDGET} (rule "r", above 100%, immediately).'
    )


def test_an_outcome_of_a_bare_pod_names_no_owner() -> None:
    """Nothing puts another pod in the place of one that nothing owns."""
    world = World(policy=policy(RULE))
    world.look(0)
    world.answer(EvictionAnswer.ACCEPTED)
    world.look(1)
    text = explanation(replace(world.began[0], result=Result.DONE), world.policy)
    assert "the pod has no controller to replace it" in text


def test_the_event_names_are_stable() -> None:
    """Alerts and scripts look for these."""
    assert (ChangeKind.EVICT_BLOCKED.value, ChangeKind.EVICT_DELAYED.value) == ("evict_blocked", "evict_delayed")


def test_another_brake_is_said_as_such() -> None:
    """A try that a stale list holds back is held back by that."""
    world = World(policy=policy(RULE))
    world.look(0)
    world.answer(EvictionAnswer.BLOCKED, BUDGET, 4.0)
    (entry,) = world.look(5, pods_stale=True).plan.entries
    assert "the list of this node's pods is too old to act on" in withheld_because(entry)
