"""Replay finds the actions of a recorded run, and what another policy would have done first; the command."""

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given

from tests.past import runs
from tests.past.histories import FEWER, History, histories, policies
from tests.past.life import Life, State, actions_of, holding, replayed, tenant
from tests.past.runs import HIGH, KILL, LOW, P, cycles, recently
from tests.worlds import NODE, Gi, Mi, at, claimant, container, container_id, gpu, owner, pod, policy, rule, step
from watchdog.cli.client import inside
from watchdog.cli.replay import ReplayReport, replay_text
from watchdog.cli.tables import UNCUT
from watchdog.core.brakes import Brake
from watchdog.core.hours import Hours
from watchdog.core.model import MigParent, Now, Owner
from watchdog.core.policy import Brakes, Declaration, Do, Policy, Scope, Window
from watchdog.past.replay import ReplayedAction


def found(path: Path, under: Policy = P) -> list[ReplayedAction]:
    """The actions of a replay, held back or not."""
    return [each for each in replayed(path, under).findings if each.entry.do.enforces]


def seconds(path: Path, under: Policy = P) -> list[float]:
    """When a replay's actions were let through."""
    return [round(each.at.wall_s - at(0).wall_s, 2) for each in found(path, under) if each.at is not None]


@pytest.mark.slow
@FEWER
@given(histories(granule=Mi), policies())
def test_every_run_replayed_under_its_own_policy_gives_its_own_first_actions(past: History, under: Policy) -> None:
    """Whatever a node goes through, replaying it under the policy of the run gives the actions that the run planned."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        life = Life(path, under).run(past.cycles)
        assert sorted(actions_of(replayed(path, under)), key=str) == sorted(life.actions, key=str)


@pytest.mark.slow
@FEWER
@given(histories(granule=Mi), policies())
def test_a_daemon_that_rests_does_and_records_the_same(past: History, under: Policy) -> None:
    """Quiet ticks: what is only counted comes to the same actions and the same ledger, and replay finds them."""
    with TemporaryDirectory() as folder:
        awake = Life(Path(folder) / "awake.db", under).run(past.cycles)
        path = Path(folder) / "journal.db"
        life = Life(path, under, rests=True).run(past.cycles)
        assert (life.actions, life.warnings) == (awake.actions, awake.warnings)
        assert life.ledger.accounts.keys() == awake.ledger.accounts.keys()
        assert sorted(actions_of(replayed(path, under)), key=str) == sorted(life.actions, key=str)


def test_most_cycles_of_a_node_that_hardly_changes_are_ticks(path: Path) -> None:
    """A rest ends for a change and for a step that comes due, and `for` goes on in between."""
    life = Life(path, P, rests=True).run(cycles((20, LOW), (60, HIGH), (80, LOW)))
    assert life.ticks > 65
    assert [each[0] for each in life.actions] == [at(30).wall_s]
    assert actions_of(replayed(path, P)) == life.actions


@pytest.mark.slow
@FEWER
@given(histories(granule=128 * Mi), policies(), policies())
def test_another_policy_gives_what_it_would_have_done(past: History, under: Policy, other: Policy) -> None:
    """A recording made under one policy has all that another would have seen itself, to 64Mi."""
    with TemporaryDirectory() as folder:
        path, elsewhere = Path(folder) / "journal.db", Path(folder) / "other.db"
        Life(path, under).run(past.cycles)
        run = Life(elsewhere, other).run(past.cycles)
        assert sorted(actions_of(replayed(path, other)), key=str) == sorted(run.actions, key=str)


def pair(first: float, second: float | None, of: Owner | None = None) -> State:
    """Two pods that use this many GiB."""
    return State(used=holding(first, "a") | holding(second, "b"), pods=tuple(tenant(uid, owner=of) for uid in "ab"))


def each_second(*spans: tuple[int, int, State]) -> list[tuple[float, State]]:
    """A cycle a second in each span."""
    return [(float(second), state) for begin, end, state in spans for second in range(begin, end)]


OLD_LIST = replace(HIGH, synced_s=20.0)
SPARED = replace(HIGH, pods=(tenant(deletion_deadline_s=at(45).wall_s),))
IMPATIENT = replace(P, stale_after_s=8.0)
LATE = policy(rule(step("110%", 1200, "kill")))
DARK = replace(HIGH, used=holding(None))
RUNS = {
    "each incident has one action":
        ([each_second((0, 20, LOW), (20, 100, HIGH), (100, 120, LOW), (120, 200, HIGH))], P, [30, 130]),
    "a step comes due while nothing changes": ([each_second((0, 20, LOW), (20, 1500, HIGH))], LATE, [1220]),
    "another pod's change costs no time": ([each_second((0, 7, pair(10, 1)), (7, 12, pair(10, 2)))], P, [10]),
    "a restart ends every timer": ([each_second((0, 20, LOW), (20, 28, HIGH)), each_second((30, 60, HIGH))], P, [40]),
    "an incident goes on over a restart":
        ([each_second((0, 20, LOW), (20, 40, HIGH)), each_second((42, 80, HIGH))], P, [30]),
    "between two readings one interval counts": ([each_second((0, 20, LOW), (20, 22, HIGH), (26, 60, HIGH))], P, [34]),
    "ten seconds without a reading reset": ([each_second((20, 22, HIGH), (40, 60, HIGH))], P, [50]),
    "an old pod list that is not yet stale": ([each_second((0, 20, LOW), (20, 50, OLD_LIST), (50, 80, HIGH))], P, [30]),
    "a stale pod list holds the timers":
        ([each_second((0, 20, LOW), (20, 50, OLD_LIST), (50, 80, HIGH))], IMPATIENT, [60]),
    "a pod list stale for a while": ([each_second((0, 20, LOW), (20, 33, OLD_LIST), (33, 80, HIGH))], IMPATIENT, [34]),
    "unknown bytes neither count nor end it":
        ([each_second((0, 20, LOW), (20, 25, HIGH), (25, 28, DARK), (28, 80, HIGH))], P, [33]),
    "a protection ends between two changes": ([each_second((0, 100, SPARED))], P, [45]),
}  # fmt: skip


@pytest.mark.parametrize(("lives", "by", "expected"), RUNS.values(), ids=RUNS.keys())
def test_when_the_first_action_is_let_through(
    path: Path, lives: list[list[tuple[float, State]]], by: Policy, expected: list[float]
) -> None:
    """Points 16 and 19: a replay counts as the daemon did, decides only where something changes, and claims no more."""
    for life in lives:
        Life(path, P).run(life)
    assert seconds(path, by) == expected
    result = replayed(path, by)
    assert result.cycles < 40
    assert result.seen_s == sum(min(then - at_s, 1.0) for life in lives for (at_s, _), (then, _) in pairwise(life))


def test_pods_on_one_claim_are_replayed_together(path: Path) -> None:
    """Point 42: of two that are above it only together the daemon ended one, and so does a replay."""
    by = replace(P, schemes=("dra",))
    pods = claimant("a", "ns/pod-b"), claimant("b", "ns/pod-a")
    above = State(used=holding(3, "a") | holding(2, "b"), pods=pods)
    below = replace(above, used=holding(1, "a") | holding(2, "b"))
    life = Life(path, by).run(cycles((20, below), (40, above), (50, below)))
    assert [(each[0] - at(0).wall_s, each[1]) for each in life.actions] == [(30, "a")]
    result = replayed(path, by)
    assert actions_of(result) == life.actions
    killed = [each.entry.assessment for each in result.findings if each.at is not None and each.entry.do.enforces]
    assert [(each.used, each.beside) for each in killed] == [(3 * Gi, 2 * Gi)]


def test_what_other_pods_need_is_spared_by_a_replay_too(path: Path) -> None:
    """Point 36: the client of an MPS server outside its pod was not ended, and a replay knows of it."""
    shared = replace(HIGH, clients=frozenset({"a/main"}))
    life = Life(path, P).run(cycles((20, LOW), (40, shared), (50, LOW)))
    assert life.actions == []
    (held,) = found(path)
    assert (held.at, [each.entry.withheld_by for each in held.withheld]) == (None, [Brake.HAZARD])


def test_moments_are_rounded_and_nothing_is_lost_by_that(path: Path) -> None:
    """A kill that came a tenth of a millisecond after it was due is found, whatever its ends were rounded to."""
    other, third = (replace(LOW, used=holding(used)) for used in (5.0, 4.0))
    before = [*cycles((15, LOW)), (15.0, other), (16.0, other), (17.0, other), (18.0, other), (19.3, third)]
    above = [*((20.0006 + second, HIGH) for second in range(10)), (30.0007, HIGH), (30.7004, LOW), (32.0, LOW)]
    life = Life(path, P).run([*before, *above])
    assert [round(each[0] - at(0).wall_s) for each in life.actions] == [30]
    assert actions_of(replayed(path, P)) == life.actions


def test_what_a_kill_9_takes_is_a_gap(path: Path) -> None:
    """Cycles that did not get to the disk are unknown; what did get there holds until its last line, no longer."""
    life = Life(path, P)
    for second, state in cycles((20, LOW), (27, HIGH)):
        life.see(state, at(second))
    life.kill()
    Life(path, P).run(cycles((36, HIGH), since=28))
    assert seconds(path) == []


def test_the_brake_that_withholds_is_reported_with_its_end(path: Path) -> None:
    """An action that a brake withholds is found when it was due, with the brake, and when it was let through."""
    Life(path, P).run(cycles((100, pair(10, 10, owner()))))
    braked = replace(P, brakes=Brakes(owner=Window(count=1, per_s=60.0)))
    first, second = found(path, braked)
    assert (first.due, first.at, first.withheld) == (first.at, first.due, ())
    (held,) = second.withheld
    assert held.entry.withheld_by is Brake.OWNER
    assert (held.releases_s, second.due.wall_s) == (at(70).wall_s, at(10).wall_s)
    assert seconds(path, braked) == [10, 70]


def test_what_is_unknown_for_a_moment_is_the_same_incident(path: Path) -> None:
    """An action that was held back is reported once, with its brake, although its numbers were unknown in between."""
    both, dark = pair(10, 10, owner()), pair(10, None, owner())
    Life(path, P).run(cycles((30, both), (33, dark), (100, both)))
    braked = replace(P, brakes=Brakes(owner=Window(count=1, per_s=60.0)))
    assert [(len(each.withheld), each.at is not None) for each in found(path, braked)] == [(0, True), (1, True)]


@pytest.mark.parametrize("is_overdue", [True, False])
def test_a_container_that_the_list_should_have_counts_as_it_did(path: Path, *, is_overdue: bool) -> None:
    """Point 13: what counts only once the list should have it is recorded with that."""
    under = policy(rule(step("100%", 5, "evict")))
    late = frozenset({("a", container_id("a/new"))}) if is_overdue else frozenset()
    used = {("a/main", 0): 7 * Gi, ("a/new", 0): 5 * Gi}
    state = State(used=used, pods=(pod("a", container("main", "8Gi")),), overdue=late)
    life = Life(path, under).run(cycles((20, state)))
    assert (len(life.actions), actions_of(replayed(path, under))) == (is_overdue, life.actions)


def test_a_card_in_mig_mode_is_there_in_the_past_too(path: Path) -> None:
    """Point 6: without it one of the cards that the node's labels count would seem to be hidden."""
    share = Declaration(resource="nvidia.com/gpu.shared", unit="share", shares=2)
    under = policy(rule(step("100%", 5)), declarations=(share,))
    node = replace(NODE, labels={"nvidia.com/gpu.count": "2"})
    cut = {"parents": (MigParent(uuid="GPU-9", index=1, name="Stub"),)}
    tenant = pod("a", container("main", resources={"nvidia.com/gpu.shared": "1"}))
    state = State(used={("a/main", 0): 60 * Gi}, pods=(tenant,), gpus=(gpu(0),), node=node, dark=cut)
    life = Life(path, under).run(cycles((20, state)))
    assert (len(life.actions), actions_of(replayed(path, under))) == (1, life.actions)


def test_a_stale_pod_list_ends_no_incident(path: Path) -> None:
    """Whose the bytes are is not sure then, so what was withheld may still be let through."""
    spared = replace(OLD_LIST, pods=(tenant(namespace="kube-system"),))
    Life(path, P).run(cycles((30, spared), (40, replace(spared, used=LOW.used))))
    assert [each.goes_on for each in found(path, IMPATIENT)] == [True]


def test_what_is_withheld_to_the_end_is_reported(path: Path) -> None:
    """An action that was withheld throughout is no kill, and is not lost either."""
    Life(path, P).run(cycles((60, replace(HIGH, pods=(tenant(namespace="kube-system"),)))))
    (only,) = found(path)
    assert only.at is None
    assert [each.entry.withheld_by for each in only.withheld] == [Brake.PROTECTED]


def test_the_hours_of_a_rule_are_those_of_the_past(path: Path) -> None:
    """A rule outside its hours only observes, by the clock of that time, and its ladder starts over with them."""
    minute = int(at(0).wall_s // 60) % (24 * 60)
    hours = Hours(text="x UTC", days=frozenset(range(7)), begin=minute + 1, end=minute + 9, offset_s=lambda _: 0)
    Life(path, P).run(cycles((120, HIGH)))
    timed = policy(rule(KILL, active=hours))
    observed = [(each.entry.assessment.observes, each.at is not None) for each in found(path, timed)]
    assert observed == [(True, True), (False, True)]
    assert seconds(path, timed) == [10, 70]


def test_a_reboot_keeps_the_brakes(path: Path) -> None:
    """Brakes go by the wall clock over a reboot, whose own clock begins at 0."""
    first, then = pair(10, 1, owner()), pair(1, 10, owner())
    Life(path, P).run(cycles((30, first)))
    life = Life(path, P)
    for second in range(200):
        life.see(then, Now(boottime_s=5.0 + second, wall_s=at(60).wall_s + second, boot_id="another"))
    life.end()
    braked = replace(P, brakes=Brakes(owner=Window(count=1, per_s=120.0)))
    assert seconds(path, braked) == [10, pytest.approx(130, abs=1)]


def test_pressure_is_seen_where_it_was(path: Path) -> None:
    """A step under pressure is due where the card was short, although the card's memory is kept to 64Mi only."""
    free = replace(LOW, used=holding(10.0), gpus=(gpu(0, used=60 * Gi), gpu(1)))
    short = replace(free, gpus=(gpu(0, used=76 * Gi + 10 * Mi), gpu(1)))
    almost = replace(free, gpus=(gpu(0, used=76 * Gi - 10 * Mi), gpu(1)))
    under = policy(rule(step("100%", 4, "kill", under_pressure=True)))
    life = Life(path, under).run(cycles((20, free), (40, almost), (60, short)))
    assert actions_of(replayed(path, under)) == life.actions
    assert [each[0] for each in life.actions] == [at(44).wall_s]


POLICY = """
[[declaration]]
resource = "veriff.com/gpu-memory"
unit = "1"
[[rule]]
name = "everybody"
match = {}
[[rule.step]]
above = "110%"
for = "10s"
do = "kill"
scope = "container"
"""


def call(path: Path, *arguments: str, text: str = POLICY) -> tuple[int, str]:
    """The command on a journal."""
    return runs.call("replay", path, *arguments, policy=text)


def test_the_command_for_people(path: Path) -> None:
    """Each first action has its line, and one sentence sums them up."""
    recently(path, (20, LOW), (60, HIGH), (80, LOW))
    code, text = call(path)
    assert code == 0
    assert "kill all processes of container main" in text
    assert '"everybody": above 110% for 10s' in text
    assert "Under this policy: 1 kill in 1 incident of 1 workload; 0 warnings." in text
    assert "In the journal for that time: 0 actions started" in text


def test_the_command_as_json(path: Path) -> None:
    """Programs get whole numbers, times in UTC, and the counts."""
    recently(path, (20, LOW), (60, HIGH), (80, LOW))
    code, text = call(path, "--json")
    assert code == 0
    document = json.loads(text)
    (only,) = document["actions"]
    expected = {"namespace": "ns", "pod": "pod-a", "do": "kill", "used": 10 * Gi, "withheld": [], "withheld_by": None}
    assert only.items() >= expected.items()
    assert (document["summary"]["kills"], document["seen_s"]) == (1, 79)


def test_time_without_a_reading_is_named(path: Path) -> None:
    """Where the driver did not answer, "no kill" says nothing about a policy."""
    recently(path, (20, LOW), (60, replace(HIGH, dark={"blind": True})), (80, LOW))
    assert "For 40s of that the driver gave no reading" in call(path)[1]
    document = json.loads(call(path, "--json")[1])
    assert (document["seen_s"], document["blind_s"], document["actions"]) == (79, 40, [])


def test_an_incident_that_goes_on_is_not_reported_as_over(path: Path) -> None:
    """A brake at the end of the recording may still release: only an incident that is over was held to its end."""
    spared = replace(HIGH, pods=(tenant(namespace="kube-system"),))
    recently(path, (60, spared))
    assert "still withheld when the replay ended" in call(path)[1]
    assert [each["goes_on"] for each in json.loads(call(path, "--json")[1])["actions"]] == [True]
    over = path.with_name("over.db")
    recently(over, (60, spared), (80, replace(LOW, pods=spared.pods)))
    assert "held until the incident ended" in call(over)[1]
    assert [each["goes_on"] for each in json.loads(call(over, "--json")[1])["actions"]] == [False]


@pytest.mark.parametrize(
    ("width", "titles", "would"),
    [
        (UNCUT, ["DUE", "POD", "WOULD", "RULE", "USED", "ALLOWED"], "kill all processes of container main"),
        (120, ["DUE", "(UTC)", "POD", "WOULD", "RULE", "USED", "ALLOWED"], "kill main"),
        (80, ["DUE", "(UTC)", "POD", "WOULD", "RULE", "USED"], "kill main"),
        (60, ["DUE", "(UTC)", "POD", "WOULD"], "kill main"),
    ],
)
def test_an_action_is_one_row_at_any_width(path: Path, width: int, titles: list[str], would: str) -> None:
    """A pipe has everything whole; on a terminal lines fit, by fewer words and columns and shorter names."""
    named = replace(tenant(owner=owner("Job", "train")), name="trainer-resnet50-imagenet-7d9f8-00001")
    life = Life(path, P).run(cycles((20, replace(LOW, pods=(named,))), (60, replace(HIGH, pods=(named,)))))
    assert life.actions
    counts = {"begun": 0, "would_act": 0, "withheld": 0}
    story = ReplayReport(since_s=0.0, policy=P, replayed=replayed(path, P), journal_counts=counts)
    lines = replay_text(story, width=width).splitlines()
    assert (lines[0].split(), lines[2]) == (titles, "")
    assert would in lines[1]
    assert ("RULE" not in titles) or '"all": above 110% for' in lines[1]
    assert (named.title in lines[1]) is (width > 80)
    assert re.search(r" ns/t\S*-00001 ", lines[1])
    assert all(len(line) <= width for line in lines)


@pytest.mark.parametrize(
    ("do", "scope", "short"),
    [
        ("kill", "container", "kill main"),
        ("kill", "pod", "kill pod"),
        ("kill", "process", "kill process"),
        ("evict", "container", "evict pod"),
    ],
)
def test_an_action_in_short(path: Path, do: Do, scope: Scope, short: str) -> None:
    """Where there is little room, whom an action hits is one word."""
    by = policy(rule(step("110%", 10, do, scope=scope)))
    Life(path, P).run(cycles((60, HIGH)))
    counts = {"begun": 0, "would_act": 0, "withheld": 0}
    story = ReplayReport(since_s=0.0, policy=by, replayed=replayed(path, by), journal_counts=counts)
    row = replay_text(story, width=72).splitlines()[1]
    assert re.split(r"  +", row)[2] == short


def test_since_leaves_out_what_came_before(path: Path) -> None:
    """Cycles before `--since` are replayed, and none of their actions is shown."""
    recently(path, (20, LOW), (60, HIGH), (290, LOW))
    assert json.loads(call(path, "--json", "--since", "4m")[1])["actions"] == []


def test_hostile_names_are_made_inert(path: Path) -> None:
    """A tenant's names bring no control codes to the operator's terminal."""
    evil = replace(tenant(), name="a\x1b[2J", namespace="n\u202e")
    recently(path, (60, replace(HIGH, pods=(evil,))))
    text = call(path)[1]
    assert ("\\x1b[2J" in text, "\x1b" in text, "\u202e" in text) == (True, False, False)


def test_what_it_cannot_replay(path: Path) -> None:
    """No journal, no recording of that time, a policy with mistakes: exit code 1 and a sentence each."""
    code, text = call(path)
    assert (code, "there is no journal" in text) == (1, True)
    assert inside("replay") in text
    recently(path, (20, LOW))
    code, text = call(path, "--since", "1m")
    assert (code, "has recorded nothing in" in text) == (1, True)
    code, text = call(path, text='mode = "sometimes"')
    assert (code, "policy.toml" in text, "mode" in text) == (1, True, True)
