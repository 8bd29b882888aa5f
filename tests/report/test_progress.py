"""What comes next for an account in a few words, and which account comes first."""

from dataclasses import replace

import msgspec
import pytest

from tests.export.page_reader import WELL, action
from tests.report.build import AT_ONCE, KILL, WARN, Story, climbing, many_over, policy, quiet, trainer_node
from tests.worlds import at, rule
from watchdog.core.policy import Do
from watchdog.report.progress import Level, by_urgency, planned_short, under_way_short
from watchdog.report.sentences.action import result_short
from watchdog.report.status import Moment, PendingStatus, PlanStatus, Status, UnderWayStatus
from watchdog.report.status_build import status_of

NOW = Moment(at(31).wall_s)


def over(**more: object) -> Status:
    """The status of a node on which a/trainer is over its limit, and is killed in 1s."""
    return msgspec.structs.replace(status_of(climbing(9)), **more)


@pytest.mark.parametrize(
    ("entry", "node", "short"),
    [
        ({"do": Do.KILL, "due_in_s": 7}, {}, "kill in 7s"),
        ({"do": Do.WARN, "due_in_s": 7}, {}, "warning in 7s"),
        ({"do": Do.EVICT}, {}, "eviction now"),
        ({"do": Do.WARN, "due_in_s": 3}, {"enforcing": False}, "would warn in 3s"),
        ({"do": Do.KILL, "withheld_by": "owner"}, {}, "kill withheld: owner"),
        ({"do": Do.KILL, "withheld_by": "owner", "due_in_s": 60}, {}, "kill (withheld) in 1m"),
        ({"do": Do.KILL, "withheld_by": "owner"}, {"enforcing": False}, "would kill (withheld: owner)"),
        (
            {"do": Do.EVICT, "withheld_by": "owner", "due_in_s": 60},
            {"enforcing": False},
            "would evict (withheld) in 1m",
        ),
        ({"do": Do.WARN, "due_in_s": 7}, {"pods_stale": True, "enforcing": False}, "would warn (withheld: stale)"),
        ({"do": Do.KILL, "due_in_s": 7}, {"pods_stale": True}, "kill withheld: stale"),
        ({"do": Do.KILL, "withheld_by": "stale"}, {"pods_stale": True}, "kill withheld: stale"),
        ({"do": Do.KILL}, {"health": msgspec.structs.replace(WELL, hangs_since=NOW)}, "kill withheld: hung"),
        ({"do": Do.EVICT, "withheld_by": "pending", "pending": PendingStatus(tries=1)}, {}, "eviction requested"),
        (
            {"do": Do.EVICT, "withheld_by": "pending", "pending": PendingStatus(tries=2, blocked=True, next_in_s=5)},
            {},
            "eviction blocked, attempt 2, next in 5s",
        ),
        (
            {"do": Do.EVICT, "withheld_by": "pending", "pending": PendingStatus(tries=2, next_in_s=0)}, {},
            "eviction refused, attempt 2, next now",
        ),
    ],
)  # fmt: skip
def test_a_step_in_a_few_words(entry: dict[str, object], node: dict[str, object], short: str) -> None:
    """What it is, and when; what holds it back, that its timer is paused, or that it is only observed."""
    status = over(**node)
    assert planned_short(PlanStatus(**entry), status.accounts[0], status) == short  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("under_way", "short"),
    [
        (UnderWayStatus(do=Do.EVICT), "being evicted"),
        (UnderWayStatus(do=Do.KILL, sigkill_at=Moment(at(13).wall_s)), "being killed, SIGKILL in 4s"),
        (UnderWayStatus(do=Do.KILL, sigkill_at=Moment(at(8).wall_s)), "killed, memory not freed yet"),
        (UnderWayStatus(do=Do.KILL, ended=True, signals=("SIGTERM",)), "killed, memory not freed yet"),
        (UnderWayStatus(do=Do.KILL, ended=True), "ended, memory not freed yet"),
        (UnderWayStatus(do=Do.KILL, step=0), "being killed, MPS clients are drained first"),
        (UnderWayStatus(do=Do.KILL, step=0, signals=("DRAIN",)), "being killed, MPS clients are drained first"),
    ],
)
def test_an_action_in_progress_in_a_few_words(under_way: UnderWayStatus, short: str) -> None:
    """Until its SIGKILL the time left, from then on that its memory is waited for."""
    assert under_way_short(under_way, over()) == short


def test_a_lesser_step_is_not_announced_once_a_kill_is_due() -> None:
    """The kill that is due now is what happens: what its rule would do below it does not."""
    slow = replace(KILL, for_s=600.0)
    report = Story(under=policy(rule(WARN, slow, AT_ONCE, name="notebooks"))).run(17.0, 2)
    (progress,) = by_urgency(status_of(report))
    assert [step.short for step in progress.steps] == ["kill now"]
    assert progress.level is Level.BAD


def test_the_most_urgent_account_comes_first() -> None:
    """A kill before a warning, and then by the share of the limit in use; what is over before what is within."""
    status = status_of(many_over(3, 20, 6, 9, declared="8Gi"))
    assert [each.account.uid for each in by_urgency(status)] == ["u1", "u3", "u2", "u0"]
    assert [each.needs_attention for each in by_urgency(status)] == [True, True, False, False]


def test_a_calm_account_has_no_step() -> None:
    """Nothing comes next for an account that is within its limit, or of which nothing is known."""
    for report in (quiet(), Story().see(trainer_node(None))):
        (progress,) = by_urgency(status_of(report))
        assert (progress.steps, progress.gravest, progress.level) == ((), None, Level.GOOD)


@pytest.mark.parametrize(
    ("do", "result", "short"),
    [
        ("kill", None, "kill is in progress"), ("kill", "done", "was killed"), ("kill", "failed", "kill failed"),
        ("kill", "interrupted", "kill was interrupted"), ("kill", "gone", "kill was no longer needed"),
        ("kill", "observed", "would have been killed"), ("evict", "done", "was evicted"),
        ("evict", "blocked", "eviction is blocked"), ("warn", "done", "was warned"),
        ("warn", "observed", "would have been warned"), ("kill", "withdrawn", "kill was withdrawn"),
        ("kill", "of a later version", "kill ended"),
    ],
)  # fmt: skip
def test_the_result_of_a_recent_action_in_a_few_words(do: str, result: str | None, short: str) -> None:
    """Each result, also one that this version does not know."""
    assert result_short(action(do=do, result=result)) == short
