"""What suspends enforcement, and what an earlier daemon leaves unfinished."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from tests.cli.build import status
from tests.daemon.eviction_rig import World
from tests.node.support import wait_until
from tests.report.build import entry
from tests.worlds import Gi, at, container, planned, pod, policy, rule, snapshot, step, use
from watchdog.config.watch import PolicyFile
from watchdog.core.assessment import AccountKey
from watchdog.core.brakes import BrakeMemory
from watchdog.core.errors import Problem
from watchdog.core.model import ProcessKey
from watchdog.core.plan import Moment
from watchdog.core.policy import Policy, Pulse, Safety
from watchdog.core.rules import Switches
from watchdog.daemon.actions.intentions import UnfinishedActions
from watchdog.daemon.enforcement import LONGEST_REASON, Enforcement, Environment, Permission, StopFile, enforcement_by
from watchdog.daemon.sinks import Sinks
from watchdog.daemon.sources import Sources
from watchdog.journal.actions import UnfinishedAction
from watchdog.options import DEFAULT_JOURNAL, Options, stop_file
from watchdog.report.sentences.suspension import POLICY_FILE, REMEDIES, remedies, remedy_on

FIRM = Environment(in_host_pid_namespace=True, pidfd_missing=None)
ALLOWED = Safety(foreign_pid_namespace=True, signal_without_pidfd=True)
UNFIT = Environment(in_host_pid_namespace=False, pidfd_missing=Problem("EPERM"))


@pytest.mark.parametrize(
    ("under", "environment", "has", "suspended"),
    [
        (policy(), FIRM, (True, True), ()),
        (policy(), replace(FIRM, in_host_pid_namespace=False), (True, True), ("pid_namespace",)),
        (policy(), replace(FIRM, pidfd_missing=Problem("EPERM")), (True, True), ("pidfd",)),
        (policy(safety=ALLOWED), replace(FIRM, procfs_is_own=False), (True, True), ("procfs",)),
        (policy(pulse=Pulse()), FIRM, (True, True), ()),
        (policy(), FIRM, (False, True), ("lock",)),
        (policy(), FIRM, (False, False), ("lock",)),
        (policy(), FIRM, (True, False), ("journal",)),
        (policy(safety=ALLOWED), UNFIT, (True, True), ()),
        (policy(mode="observe"), UNFIT, (False, False), ()),
    ],
)
def test_enforcing_is_refused_with_its_reasons(
    tmp_path: Path, under: Policy, environment: Environment, has: tuple[bool, bool], suspended: tuple[str, ...]
) -> None:
    """Point 38: outside the host's PID namespace, without pidfd calls, lock or journal, as far as allowed."""
    found = enforcement_by(under, environment, tmp_path / "journal.db", Switches(), has_lock=has[0], has_journal=has[1])
    assert found.suspended == suspended
    assert found.enforcing is (under.mode == "enforce" and not suspended)
    assert set(found.suspended) <= set(REMEDIES)


def reasons(journal: Path, found: Switches = Switches(), under: Policy | None = None) -> tuple[str, ...]:  # noqa: B008
    """Why a daemon that lacks nothing else does not enforce."""
    return enforcement_by(under or policy(), FIRM, journal, found, has_lock=True, has_journal=True).suspended


def test_the_stop_file_turns_enforcement_off_while_it_exists(tmp_path: Path) -> None:
    """Point 33: so does a dangling link of that name, or a folder that can't be read; a missing folder does not."""
    journal = tmp_path / "journal.db"
    stop_file(journal).touch()
    assert reasons(journal) == ("stop_file",)
    stop_file(journal).unlink()
    assert reasons(journal) == ()
    stop_file(journal).symlink_to(tmp_path / "nowhere")
    assert reasons(journal) == ("stop_file",)
    assert reasons(tmp_path / ("x" * 300) / "journal.db") == ("stop_file",)
    assert reasons(tmp_path / "no" / "journal.db") == ()


@pytest.mark.parametrize(
    ("found", "suspended"),
    [
        (Switches(observes=True), ("node_annotation",)),
        (Switches(unseen=True), ("node_unknown",)),
        (Switches(ignored="enforce"), ()),
        (Switches(maintenance="the node's label x is y"), ()),
    ],
)
def test_the_nodes_object_turns_enforcement_off(tmp_path: Path, found: Switches, suspended: tuple[str, ...]) -> None:
    """Point 33: it can only lower; what withholds enforcement otherwise is a brake, and no reason of this kind."""
    assert reasons(tmp_path / "journal.db", found) == suspended
    assert reasons(tmp_path / "journal.db", found, policy(mode="observe")) == ()


def _permission(folder: Path) -> Permission:
    path = folder / "policy.toml"
    path.write_text("mode = 'observe'\n", encoding="utf-8")
    file = PolicyFile(path)
    file.load()
    return Permission(folder / "journal.db", FIRM, file, Sources(Options(node="n1"), None), lambda _: None)


def test_maintenance_suspends_and_resets_nothing(tmp_path: Path) -> None:
    """Point 41: it is not enforcing meanwhile, and when it is over nothing that was planned or counted is dropped."""
    permission = _permission(tmp_path)
    judged = partial(permission.update, policy(), at(9), has_journal=True)
    assert judged(has_lock=True)
    permission.under_maintenance = True
    assert permission.enforcement == Enforcement(enforcing=False, suspended=("maintenance",))
    assert (judged(has_lock=True), permission.decides) == (False, True)
    judged(has_lock=False)
    assert (permission.enforcement.suspended, permission.decides) == (("lock", "maintenance"), False)
    permission.under_maintenance = False
    assert judged(has_lock=True)
    permission.under_maintenance = True
    permission.update(policy(mode="observe"), at(9), has_lock=True, has_journal=True)
    assert permission.enforcement == Enforcement(enforcing=False, suspended=())


@pytest.mark.parametrize(
    ("now", "suspended", "waits"),
    [
        (Enforcement(enforcing=True, suspended=()), (POLICY_FILE,), True),
        (Enforcement(enforcing=False, suspended=("lock",)), ("lock", POLICY_FILE), False),
        (Enforcement(enforcing=False, suspended=()), (), False),
    ],
    ids=["enforcing", "suspended besides", "observing"],
)
def test_only_who_would_enforce_waits_for_the_policy_file(
    now: Enforcement, suspended: tuple[str, ...], *, waits: bool
) -> None:
    """Point 20: a file that has changed puts SIGKILL off only where nothing besides turns enforcement off."""
    unsettled = now.with_policy_unsettled()
    assert (unsettled.enforcing, unsettled.suspended, unsettled.waits_for_policy) == (False, suspended, waits)
    assert not now.waits_for_policy


def test_what_another_daemon_did_meanwhile_is_taken_over_with_the_lock(tmp_path: Path) -> None:
    """A daemon whose lock file was taken away releases the journal, and reads it again once it has the lock again."""
    options = Options(node="n1", journal=tmp_path / "journal.db", listen="127.0.0.1:0")
    first, second = Sinks(options, policy(), at(0)), Sinks(options, policy(), at(0))
    wait_until(lambda: first.keeper.maintain(at(0)) is not None)
    (tmp_path / "journal.db.lock").unlink()
    wait_until(lambda: second.keeper.maintain(at(1)) is not None)
    assert first.keeper.maintain(at(2)) is None
    assert not first.has_journal
    action = second.record.intend(entry(), (ProcessKey(pid=7, start_ticks=70),), at(3)).result(5.0)
    second.stop((), at(4))
    restored = first.keeper.maintain(at(5))
    assert restored is not None
    assert [each.number for each in restored.unfinished] == [action]
    assert len(restored.brakes.begun[()]) == 1
    first.stop((), at(6))
    for each in (first, second):
        assert each._server is not None
        each._server.close()


UNTIL_S = at(30).boottime_s


def _unfinished(pid: int) -> UnfinishedAction:
    return UnfinishedAction(
        number=pid,
        account=AccountKey(uid="a"),
        step=0,
        victim="main",
        targets=(ProcessKey(pid=pid, start_ticks=70),),
        began=at(0),
        result=None,
    )


def test_two_unfinished_actions_of_one_account_are_both_waited_for() -> None:
    """Point 31: an account waits while a victim of any of its actions is listed, until the time is up at the most."""
    first, second = _unfinished(7), _unfinished(8)
    waiting = UnfinishedActions()
    waiting.add((first, second), UNTIL_S)
    assert waiting.take_ended(lambda key: key.pid == 8, at(1)) == (first,)
    for now_s, ended in ((2, ()), (30, (second,)), (31, ())):
        assert waiting.is_waiting(first.account) is (now_s <= 30)
        assert waiting.take_ended(lambda _: True, at(now_s)) == ended


def test_an_account_with_two_unfinished_actions_is_not_free_after_the_first() -> None:
    """Point 31: a second kill while the memory of an earlier one is waited for would be one too many."""
    world = World()
    listed = replace(_unfinished(5), targets=(ProcessKey(pid=5, start_ticks=50),))
    world.cycle.actions.take_over((_unfinished(7), listed), UNTIL_S, BrakeMemory())
    for second, tries in ((0, 0), (29, 0), (31, 1)):
        world.look(second)
        assert len(world.tries) == tries


SINCE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "why", "by"),
    [
        ("by root: driver upgrade until Friday\n", "driver upgrade until Friday", "root"),
        ("by root\n", "", "root"),
        ("", "", "the file's owner, UID {uid},"),
        ("ask the GPU team,\n  #1234", "ask the GPU team, #1234", "the file's owner, UID {uid},"),
        ("by root: \x1b[31mred\u202e" + "x" * 5000, "\\x1b[31mred\\u202exxx", "root"),
    ],
    ids=["by the command", "no reason", "by touch", "by an editor", "hostile"],
)
def test_the_stop_file_says_who_and_why(tmp_path: Path, text: str, why: str, by: str) -> None:
    """The remedy never is to read the file: its text is shown, short and without control characters."""
    path = stop_file(tmp_path / "journal.db")
    path.write_text(text, encoding="utf-8")
    os.utime(path, (SINCE, SINCE))
    found = StopFile(path).read_note()
    assert (found.why if len(found.why) < 100 else found.why[: len(why)]) == why
    assert len(found.why) <= LONGEST_REASON
    assert found.by == f"{by.format(uid=path.stat().st_uid)} at 2026-01-02 03:04:05 UTC"


def test_a_reason_that_comes_later_is_read_and_no_file_is_read_twice(tmp_path: Path) -> None:
    """The file exists before its text does; reading it on each beat could hold the loop up on a disk that stalls."""
    path = stop_file(tmp_path / "journal.db")
    reader = StopFile(path)
    assert reader.read_note().by == ""
    path.touch()
    first = reader.read_note()
    assert first.why == ""
    assert reader.read_note() is first
    path.write_text("by root: driver upgrade\n", encoding="utf-8")
    assert reader.read_note().why == "driver upgrade"
    path.unlink()
    path.mkdir()
    assert reader.read_note().why == ""
    path.rmdir()
    os.mkfifo(path)
    assert reader.read_note().why == ""


def test_the_remedy_for_the_stop_file_names_it(tmp_path: Path) -> None:
    """An operator who is to remove a file must know which, and ask first who put it there."""
    printed, path = remedies(tmp_path / "journal.db", "gpu-7"), tmp_path / "stop"
    here = status(node="gpu-7", health={"stop_file": str(path)})
    cause = f"the file {path} turns enforcement off: if that is no longer needed,"
    assert printed["stop_file"] == remedy_on("stop_file", here) == f"{cause} remove it"
    usual = remedies(DEFAULT_JOURNAL, "gpu-7")["stop_file"]
    assert usual.endswith("/var/lib/gpu-watchdog/stop turns enforcement off: if that is no longer needed, run "
                          "`gpu-watchdog resume`")  # fmt: skip
    assert "kubectl annotate node gpu-7 gpu-memory-watchdog/mode-" in printed["node_annotation"]
    assert printed.keys() == REMEDIES.keys()
    assert remedy_on("node_annotation", here) == printed["node_annotation"]
    maintained = remedy_on("maintenance: the node's label x is y, since z", here)
    cause, remedy = printed["maintenance"].split(": ", 1)
    assert (cause, maintained) == ("the GPUs are under maintenance", f"the node's label x is y, since z: {remedy}")
    assert "kubectl get node gpu-7 -o yaml --show-managed-fields" in remedy
    nameless = status(node="", health=None)
    assert [remedy_on(reason, nameless) for reason in ("node_annotation", "stop_file", "lock", "unheard_of")] == [
        *(REMEDIES[reason] for reason in ("node_annotation", "stop_file", "lock")),
        None,
    ]


def test_the_remedy_has_the_reason_that_was_given() -> None:
    """`top` and `explain` say why enforcement is stopped; without a reason they say who did it, or how to find out."""
    given = {"switch": "stop_file", "why": "driver upgrade.", "by": "root at 2026-01-02 03:04:05 UTC"}
    annotated = {"switch": "node_annotation", "why": "driver upgrade"}

    def ends_with(reason: str, *stops: dict[str, str]) -> str:
        return f" ({(remedy_on(reason, status(node='gpu-7', stops=stops)) or '').rpartition(' (')[2]}"

    assert ends_with("stop_file", given) == ' (stopped by root at 2026-01-02 03:04:05 UTC: "driver upgrade")'
    nobody = {**given, "why": ""}
    assert ends_with("stop_file", nobody) == " (no reason was given; stopped by root at 2026-01-02 03:04:05 UTC)"
    assert ends_with("node_annotation", given, annotated) == ' (the reason given: "driver upgrade")'
    assert ends_with("node_annotation", {**annotated, "why": ""}) == (
        " (no reason was given; `kubectl get node gpu-7 -o yaml --show-managed-fields` shows who set it and when)"
    )


@pytest.mark.parametrize(
    ("do", "moment", "objects"),
    [
        ("kill", Moment.FIRST_SIGNAL, True),
        ("kill", Moment.GRACE, False),
        ("evict", Moment.FIRST_SIGNAL, True),
        ("evict", Moment.REQUEST, True),
    ],
)
def test_while_the_policy_file_settles_no_action_begins(
    tmp_path: Path, do: str, moment: Moment, *, objects: bool
) -> None:
    """Point 20: no first signal is sent and no eviction goes on; a grace period that has begun does."""
    permission = _permission(tmp_path)
    (tmp_path / "policy.toml").write_text("mode = 'enforce'\n", encoding="utf-8")
    under = policy(rule(step(do=do)))
    permission.update(under, at(0), has_lock=True, has_journal=True)
    assert (permission.policy_unsettled, permission.enforcement.suspended) == (True, ("policy_file",))
    (action,) = planned(snapshot([use(5, 2 * Gi)]), [pod("a", container(declared="1Gi"))], under).taken
    reported = permission.objection(action, under, at(0), moment)
    assert reported == ("the policy file has changed and may still be being written" if objects else None)
