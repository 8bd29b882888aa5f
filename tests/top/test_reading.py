"""What `top` reads from a status: real documents, those of other versions, and hostile ones."""

from dataclasses import replace
from typing import Any

import pytest
from watchdog.report.status_read import StatusError

from tests.export.build import Story, policy, trainer, trainer_node
from tests.top.build import climbing, document, hostile_pod, quiet, view
from tests.worlds import Gi, gpu, process, rule, snapshot, step, use
from watchdog.cli.top.reading import read_view
from watchdog.cli.top.values import NO_POD
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason
from watchdog.core.plan import Conditions


def test_an_account_over_its_limit() -> None:
    """A row has what the account uses, declares and may use, and the step that is due."""
    (row,) = view(climbing(28)).accounts
    assert (row.title, row.verdict, row.rule, row.declared_by) == (
        "a/trainer",
        "over",
        "notebooks",
        "veriff.com/gpu-memory",
    )
    assert (row.used.known, row.declared, row.allowed) == (13314398617, 8 * Gi, 10909216931)
    assert row.share == pytest.approx(1.22, abs=0.01)
    assert row.next is not None
    assert (row.next.do, row.next.scope, row.next.above, row.next.due_s, row.next.would) == (
        "kill", "container", "110%", 0.0, False,
    )  # fmt: skip
    assert [(use.pid, use.card, use.where) for use in row.processes][-1] == (103, "1", "main")


def test_the_memory_of_no_pod_has_its_row_and_its_column() -> None:
    """A process of the host is in no account, and still seen: on its card and in a row of its own."""
    found = view(quiet())
    assert found.no_pod is not None
    assert (found.no_pod.title, found.no_pod.used.known) == (NO_POD, Gi)
    assert [(use.pid, use.where) for use in found.no_pod.processes] == [(9, "host")]
    assert [card.no_pod.known for card in found.cards] == [Gi, 0]
    assert [card.pods.known for card in found.cards] == [3 * Gi, Gi]


def test_what_is_not_known_stays_not_known() -> None:
    """Without a number for one process its account is at least the rest, and the card's residual is not known."""
    (row,) = (found := view(Story().see(trainer_node(None)))).accounts
    assert (row.used.known, row.used.floor, row.verdict) == (None, 3 * Gi, "unknown")
    assert found.cards[0].residual is None
    assert (found.cards[0].pods.known, found.cards[0].pods.floor) == (None, 2 * Gi)


def test_a_card_that_is_short_of_memory_is_marked() -> None:
    """A card counts as short by the policy's own mark, and one whose use is not known does not."""
    seen = snapshot([], [], (gpu(0, used=77 * Gi), gpu(1, used=75 * Gi), gpu(2, used=None)))
    assert [card.short for card in view(Story().see(seen)).cards] == [True, False, False]


def test_the_first_force_behind_a_warning() -> None:
    """Where a warning comes first the force behind it is told too."""
    ladder = rule(step("100%", 10, "warn"), step("110%", 60, "kill"), name="r")
    (row,) = view(Story(under=policy(ladder)).run(12.4, 2)).accounts
    assert row.next is not None
    assert row.then is not None
    assert (row.next.do, row.next.due_s, row.then.do, row.then.due_s) == ("warn", 8.0, "kill", 58.0)


def test_observing_says_what_would_be() -> None:
    """Where nothing is done, every step only would be."""
    (row,) = view(climbing(28, under=policy(mode="observe"))).accounts
    assert row.next is not None
    assert row.next.would


def test_no_time_runs_down_while_none_counts() -> None:
    """With an old pod list no timer runs, so none is shown running."""
    assert view(quiet()).counts
    stale = Story(conditions=Conditions(pods_stale=True)).see(trainer_node(12.4))
    assert not view(stale, pods_stale=True).counts
    assert not view(quiet(), maintenance="driver update").counts


def test_gaps_of_one_reason_are_one_trouble() -> None:
    """Sixteen cards that fail alike are one line."""
    gaps = tuple(
        Gap(reason=GapReason.GPU_LOST, what=f"GPU-{number}", problem=Problem("it fell off the bus"))
        for number in range(16)
    )
    report = quiet()
    told = view(replace(report, snapshot=replace(report.snapshot, gaps=gaps))).troubles
    assert told == ("Not known: GPU-0, and 15 more: it fell off the bus",)


def test_what_is_wrong_is_said_with_its_remedy() -> None:
    """Suspended enforcement, maintenance, an old pod list, the breaker, an unready daemon: each has its line."""
    told = view(
        quiet(),
        suspended=["stop_file"],
        maintenance="driver update",
        pods_stale=True,
        breaker={"open": True, "since": "2027-01-15T08:00:00Z", "until": "2027-01-15T08:10:00Z"},
        health={"unready": ["no pass has finished yet"], "policy_error": "rule[0]: what", "blind_since": None},
    ).troubles
    words = (
        "gpu-watchdog resume",
        "driver update",
        "out of date",
        "until 08:10:00 UTC",
        "no pass has finished",
        "rule[0]: what",
    )
    assert len(told) == len(words)
    assert all(word in line for word, line in zip(words, told, strict=True)), told


def test_a_policy_file_that_has_not_settled_is_not_said_to_be_wrong() -> None:
    """It may be valid: its own sentence is what is told."""
    unsettled = "the policy file p.toml has not settled within 1m, and the policy in force stays"
    told = view(quiet(), health={"policy_error": unsettled}).troubles
    assert told == (f"The policy file on disk is not in force: {unsettled}",)


def test_what_was_done_lately() -> None:
    """`recent` gives its lines as they come; a daemon that has none still shows what is in progress."""
    action = {"at": "2027-01-15T08:00:00Z", "namespace": "a", "pod": "p", "container": "c", "do": "kill",
            "result": None, "used": None, "used_at_least": 5, "allowed": 3, "rule": "r", "why": "because"}  # fmt: skip
    (found,) = view(quiet(), recent=[action]).actions
    assert (found.title, found.do, found.result, found.used.known, found.used.floor) == (
        "a/p [c]",
        "kill",
        None,
        None,
        5,
    )
    old = {key: value for key, value in document(quiet()).items() if key != "recent"}
    assert read_view(old).actions == ()
    account = {**old["accounts"][0], "under_way": {"step": 1, "do": "kill", "sigkill_at": None}}
    (begun,) = read_view({**old, "accounts": [account]}).actions
    assert (begun.title, begun.do, begun.result, begun.at_s) == ("a/trainer", "kill", None, None)


def test_a_deed_under_way_and_when_sigkill_comes() -> None:
    """What is in progress comes before every plan; the time to SIGKILL is that of the node's clock."""
    document_ = document(quiet())
    begun = {"step": 1, "do": "kill", "container": "main", "grace_s": 10, "sigkill_at": "2027-01-15T08:00:07Z"}
    (row,) = read_view({**document_, "accounts": [{**document_["accounts"][0], "under_way": begun}]}).accounts
    assert row.next is not None
    assert (row.next.begun, row.next.left_s) == (True, 7.0)


def test_names_are_inert() -> None:
    """No name of a tenant, a process, a GPU or a reason brings a control character into a picture."""
    evil = "\x1b]0;pwned\x07\x9b2J\u202e\n"
    pod = hostile_pod(uid="u1")
    seen = snapshot([use(1, Gi), use(9, Gi)], [process(1, "u1/c\x07\r", name=evil), process(9, None, name=evil)],
                    (gpu(0, name=evil),))  # fmt: skip
    found = view(
        Story(pods=(pod,)).see(seen),
        node=evil,
        suspended=[evil],
        recent=[{"namespace": evil, "pod": evil, "container": evil, "do": evil, "result": evil, "why": evil}],
        gaps=[{"what": evil, "why": evil}],
        health={"version": evil, "unready": [evil]},
    )
    assert found.accounts
    told = repr(found)
    assert "\\x1b" not in told.replace("\\\\x1b", "")
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c == "\u202e" for c in eval_texts(found))


def eval_texts(value: Any) -> str:
    """Every text within a value, one after the other."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return "".join(map(eval_texts, value))
    fields = getattr(value, "__dataclass_fields__", {})
    return "".join(eval_texts(getattr(value, name)) for name in fields)


@pytest.mark.parametrize("key", ["gpus", "accounts", "plan", "gaps", "recent", "unattributed"])
def test_what_is_no_status_is_refused(key: str) -> None:
    """Whatever else answers there is an error that names the place, not a crash and not a picture."""
    with pytest.raises(StatusError, match=f"{key} of its status"):
        read_view({**document(climbing()), key: 1})


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [("at", "yesterday", "at"), ("free_below", "x", "free_below"), ("health", [], "health"), ("plan", [[]], "plan[0]"),
     ("gpus", [{"memory": {"used": "1"}}], "gpus[0].memory.used"), ("gpus", [{"memory": 5}], "gpus[0].memory"),
     ("accounts", [{"declared": 2**63}], "accounts[0].declared"), ("accounts", [{"pod": 1e30}], "accounts[0].pod")],
)  # fmt: skip
def test_one_bad_value_does_not_blind_the_view(key: str, value: object, place: str) -> None:
    """One value that can't be read counts as unknown and is named; everything else is shown."""
    good = read_view(document(climbing()))
    view = read_view({**document(climbing()), key: value})
    (said,) = [each for each in view.troubles if each.startswith("Some of what the daemon says can't be read")]
    assert f": {place} of its status is not " in said
    assert view.node == good.node
    assert key == "accounts" or view.accounts == good.accounts or key in ("at", "plan", "gpus")


def test_a_status_of_an_older_daemon() -> None:
    """With the contract's keys alone there is a picture; the rest is not known."""
    kept = (
        "node",
        "at",
        "mode",
        "enforcing",
        "suspended",
        "policy",
        "gpus",
        "accounts",
        "unattributed",
        "gaps",
        "plan",
    )
    whole = document(climbing())
    found = read_view({key: whole[key] for key in kept})
    assert (found.health, found.actions, len(found.accounts)) == ("", (), 1)
    assert read_view({"node": "n", "at": None}).accounts == ()


def test_accounts_of_containers_and_cards() -> None:
    """An account of a container, or of a card, says so in its title."""
    whole = document(climbing())
    row = whole["accounts"][0]
    rows = [{**row, "container": "main"}, {**row, "container": ""}, {**row, "gpu": "GPU-1"}, {**row, "gpu": "GPU-lost"}]
    titles = [each.title for each in read_view({**whole, "accounts": rows}).accounts]
    assert titles == [
        "a/trainer [main]", "a/trainer [unlisted containers]", "a/trainer on GPU 1", "a/trainer on GPU GPU-lost",
    ]  # fmt: skip


def test_pods_that_the_trainer_is_not() -> None:
    """A pod that declares nothing has no limit, which is another thing than one that is not known."""
    bare = trainer(containers=(replace(trainer().containers[0], resources={}),))
    (row,) = view(Story(pods=(bare,)).see(trainer_node(4.0))).accounts
    assert (row.verdict, row.declared, row.allowed, row.share) == ("undeclared", None, None, None)
