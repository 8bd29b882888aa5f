"""What `top` derives from a status: real ones, those of other versions, and hostile ones."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from msgspec import structs

from tests.cli.build import frame, status, text
from tests.report.build import Story, climbing, hostile_pod, quiet, status_document, trainer_node
from tests.worlds import Gi, gpu, process, snapshot, use
from watchdog.cli.rows import (
    UNATTRIBUTED,
    action_cells,
    daemon_health,
    enforcement,
    gpu_rows,
    problems,
    rows_of,
    timers_run,
    unattributed_row,
)
from watchdog.cli.status_text import status_text
from watchdog.cli.views import BLOCKS, Choice
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason
from watchdog.core.policy import Do
from watchdog.report.sentences.node import gap_subject
from watchdog.report.status import GapStatus, GpuStatus, Moment, StatusError, decode


def test_unattributed_memory_has_its_row_and_its_column() -> None:
    """A process of the host is in no account, and still seen: on its card and in a row of its own."""
    found = status(quiet())
    last = unattributed_row(found)
    assert last is not None
    assert (last.title, last.account.used) == (UNATTRIBUTED, Gi)
    assert [(use.pid, use.container) for use in last.account.processes] == [(9, "host")]
    assert [row.unattributed.total for row in gpu_rows(found)] == [Gi, 0]
    assert [row.pods.total for row in gpu_rows(found)] == [3 * Gi, Gi]


def test_a_card_that_is_short_of_memory_is_marked() -> None:
    """A card counts as short by the policy's own threshold, and one whose use is not known does not."""
    seen = snapshot([], [], (gpu(0, used=77 * Gi), gpu(1, used=75 * Gi), gpu(2, used=None)))
    found = status(Story().see(seen))
    assert [row.is_short for row in gpu_rows(found)] == [True, False, False]


def test_no_time_runs_down_while_no_timer_runs() -> None:
    """With a stale pod list no timer runs, so none is shown running."""
    assert timers_run(status(quiet()))
    stale = Story(pods_stale=True).see(trainer_node(12.4))
    assert not timers_run(status(stale, pods_stale=True))
    assert not timers_run(status(quiet(), maintenance="driver update"))


def test_gaps_of_one_reason_are_one_problem() -> None:
    """Sixteen cards that fail in the same way are one line."""
    gaps = tuple(
        Gap(reason=GapReason.GPU_LOST, what=f"GPU-{number}", problem=Problem("it fell off the bus"))
        for number in range(16)
    )
    report = quiet()
    found = status(replace(report, snapshot=replace(report.snapshot, gaps=gaps)))
    assert problems(found) == ("Unknown: GPU 0, and 15 more: it fell off the bus",)


@pytest.mark.parametrize(
    ("what", "card", "named"),
    [
        ("GPU-a processes", GpuStatus(uuid="GPU-a", index=3), "GPU 3 processes"),
        ("MIG-b", GpuStatus(uuid="MIG-b", index=3, gi=1, parent="GPU-a"), "GPU 3, instance 1"),
        ("GPU-a MIG mode", GpuStatus(uuid="MIG-b", index=3, gi=1, parent="GPU-a"), "GPU 3 MIG mode"),
        ("GPU-a processes", GpuStatus(uuid="GPU-a", index=None), "GPU-a processes"),
        ("GPU-ab", GpuStatus(uuid="GPU-a", index=3), "GPU-ab"),
        ("labels of node n1", GpuStatus(uuid="GPU-a", index=3), "labels of node n1"),
    ],
)
def test_a_gap_names_its_card_by_number(what: str, card: GpuStatus, named: str) -> None:
    """A card that cannot be read has the number that every table has, and its UUID only if the number is unknown."""
    assert gap_subject(GapStatus(what=what), [card]) == named


def test_each_problem_has_its_remedy() -> None:
    """Suspended enforcement, maintenance, a stale pod list, the breaker, an unready daemon: each has its line."""
    reported = problems(
        status(
            quiet(),
            suspended=["stop_file", "maintenance: driver update"],
            maintenance="driver update",
            pods_stale=True,
            breaker={"open": True, "since": "2027-01-15T08:00:00Z", "until": "2027-01-15T08:10:00Z"},
            health={"unready": ["no cycle has completed yet"], "policy_error": "rule[0]: what", "blind_since": None},
        )
    )
    words = ("gpu-watchdog resume", "driver update", "out of date", "until 08:10:00 UTC", "no cycle", "rule[0]: what")
    assert all(word in line for word, line in zip(words, reported, strict=True)), reported


@pytest.mark.parametrize(
    ("enforcing", "suspended", "words"),
    [
        (True, [], "enforcing"),
        (False, ["stop_file"], "enforcement suspended"),
        (False, [], "only observing"),
        (False, ["maintenance: why"], "under maintenance"),
        (False, ["lock", "maintenance: why"], "enforcement suspended"),
    ],
)
def test_whether_it_enforces(enforcing: bool, suspended: list[str], words: str) -> None:
    """The head never says that a node enforces while something suspends that, nor that a suspended one observes."""
    assert enforcement(status(quiet(), enforcing=enforcing, suspended=suspended)) == words


def test_recent_actions() -> None:
    """A recent action has its pod, its threshold, what hindered it, and when its memory was free."""
    action = {"at": "2027-01-15T08:00:00Z", "namespace": "a", "pod": "p", "container": "c", "do": "kill",
            "result": None, "used": None, "used_at_least": 5, "allowed": 3, "rule": "r",
            "threshold": "above 110%", "reason": "no SIGTERM", "released_at": "2027-01-15T08:00:07Z"}  # fmt: skip
    found = status(quiet(), recent=[action])
    (recent,) = found.recent
    text = "above 110%; no SIGTERM; memory free after 7s"
    line = status_text(found, Choice(), BLOCKS).rstrip().splitlines()[-1]
    assert line.split() == ["08:00:00", "kill", "in_progress", "a/p[c]", "≥5", "3", "r", *text.split()]
    unseen = structs.replace(recent, unreleased="no cycle saw it", threshold=None)
    assert action_cells(unseen, 0.0, BLOCKS)[7] == "no SIGTERM; memory not seen free: no cycle saw it"
    accepted = structs.replace(recent, do=Do.EVICT, result="done", ended_at=Moment((recent.at or 0) + 4))
    assert action_cells(accepted, 0.0, BLOCKS)[7].endswith("memory free after 3s")


def test_no_text_brings_a_control_character() -> None:
    """No name of a tenant, a process, a GPU or a reason speaks to the terminal, live or once."""
    evil = "\x1b]0;pwned\x07\x9b2J\u202e\n"
    pod = hostile_pod(uid="u1")
    seen = snapshot([use(1, Gi), use(9, Gi)], [process(1, "u1/c\x07\r", name=evil), process(9, None, name=evil)],
                    (gpu(0, name=evil),))  # fmt: skip
    account = {
        **status_document(Story(pods=(pod,)).see(seen))["accounts"][0],
        "verdict": evil,
        "rule": evil,
        "gpu": evil,
    }
    found = status(
        Story(pods=(pod,)).see(seen),
        node=evil,
        mode=evil,
        suspended=[evil],
        maintenance=evil,
        accounts=[{**account, "protected": evil, "declared_by": evil, "container": evil}],
        unattributed=[{"pid": 9, "gpu": evil, "used": 1, "reason": evil}],
        plan=[
            {"uid": account["uid"], "account": {"container": evil, "gpu": evil}, "do": "kill", "scope": evil,
             "above": evil, "withheld_by": evil, "held_because": evil}
        ],
        recent=[{"namespace": evil, "pod": evil, "container": evil, "do": "kill", "result": evil, "why": evil}],
        gaps=[{"what": evil, "why": evil}],
        health={"version": evil, "unready": [evil], "policy_error": evil},
    )  # fmt: skip
    assert rows_of(found)[0].next is not None
    for shown in (status_text(found, Choice(), BLOCKS), text(frame(found, 200, 60)), text(frame(found, 80, 24))):
        assert "\\x1b]0;pwned" in shown
        assert shown.replace("\n", "").isprintable()
        assert len(shown.splitlines()) == shown.count("\n") + (not shown.endswith("\n"))


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("gpus", 1, "$.gpus"),
        ("accounts", 1, "$.accounts"),
        ("plan", [[]], "$.plan[0]"),
        ("gaps", 1, "$.gaps"),
        ("recent", 1, "$.recent"),
        ("unattributed", 1, "$.unattributed"),
        ("at", "yesterday", "$.at"),
        ("free_below", "x", "$.free_below"),
        ("free_below", "5%\n", "$.free_below"),
        ("health", [], "$.health"),
        ("gpus", [{"uuid": "G", "memory": {"used": "1"}}], "$.gpus[0].memory.used"),
        ("accounts", [{"declared": 2**63}], "$.accounts[0].declared"),
        ("accounts", [{"pod": 1e30}], "$.accounts[0].pod"),
    ],
)
def test_what_is_no_status_is_refused(key: str, value: object, place: str) -> None:
    """Whatever else answers there is one error that names the place, not a crash and not half a view."""
    with pytest.raises(StatusError) as error:
        status(climbing(), **{key: value})
    assert f"`{place}`" in str(error.value)


def test_a_status_of_an_older_daemon() -> None:
    """With the contract's keys alone there is a view; the rest is not known, and the loop does not count as hung."""
    kept = ("node", "at", "mode", "enforcing", "suspended", "policy", "accounts", "unattributed", "gaps", "plan")
    whole = status_document(climbing())
    cards = [{key: card[key] for key in card if key not in ("listed", "unattributed")} for card in whole["gpus"]]
    older: Mapping[str, object] = {**{key: whole[key] for key in kept}, "gpus": cards}
    found = decode(json.dumps(older).encode())
    assert (daemon_health(found), found.recent, len(rows_of(found))) == ("", (), 1)
    assert (timers_run(found), enforcement(found)) == (True, "enforcing")
    assert [row.unattributed.total for row in gpu_rows(found)] == [Gi, 0]
    assert "a/trainer" in status_text(found, Choice(), BLOCKS)


def test_accounts_of_containers_and_cards() -> None:
    """An account of a container, or of a card, is named so in its title."""
    (row,) = status_document(climbing())["accounts"]
    parts: list[dict[str, str]] = [{"container": "main"}, {"container": ""}, {"gpu": "GPU-1"}, {"gpu": "GPU-lost"}]
    titles = [each.title for each in rows_of(status(climbing(), accounts=[{**row, **part} for part in parts]))]
    assert titles == [
        "a/trainer [main]", "a/trainer [unlisted containers]", "a/trainer on GPU 1", "a/trainer on GPU GPU-lost",
    ]  # fmt: skip


def test_accounts_of_one_pod_have_their_own_steps() -> None:
    """A step is of the account that it names: the pod's other containers have nothing to come."""
    whole = status_document(climbing())
    (account,), steps = whole["accounts"], whole["plan"]
    accounts = [{**account, "container": name} for name in ("main", "other")]
    plan = [{**each, "account": {"container": "main", "gpu": None}} for each in steps]
    rows = rows_of(status(climbing(), accounts=accounts, plan=plan))
    assert [row.next_short() for row in rows] == ["kill now", "-"]
