"""The recorder writes changes instead of cycles, within its bounds, and never delays the daemon."""

import random
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.past.histories import FEWER, history, under
from tests.past.life import LIMITS, Life, State, holding, replayed, tenant
from tests.report.build import outcome, record
from tests.worlds import Gi, Mi, at, container, gpu, pod, policy, rule, step
from watchdog.core.model import Node, Now, PodKeys, ProcessKey
from watchdog.core.mps import Mps
from watchdog.core.policy import JournalLimits, Policy
from watchdog.journal.errors import JournalError
from watchdog.journal.journal import Journal
from watchdog.journal.playback import RecordedCycle, RecordKind, recorded_cycles, span_cycles
from watchdog.journal.read import history as occurrences
from watchdog.journal.recorder import Recorder
from watchdog.journal.recording import MOVED, Frame, Hidden, pack, reduced, unpack
from watchdog.journal.schema import MIGRATIONS, Statement, body_statement, recording_size, span_statement

P = policy(rule(step("110%", 10, "kill")))
CALM = State(used=holding(4.0), pods=(tenant(),))


class Notes:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.writable = True

    def queue_statements(self, statements: Iterable[Statement]) -> None:
        """Keep them."""
        self.statements += statements

    def frames(self) -> list[Frame]:
        """The frames of all bodies."""
        bodies = [values["body"] for _, values in self.statements if "body" in values]
        return [frame for body in bodies for frame in unpack(body)]


def kept(path: Path, states: Iterable[tuple[float, State]], by: Policy = P, *, end: bool = True) -> Notes:
    """What a recorder writes of these cycles."""
    life, notes, recorder = Life(path, by), Notes(), Recorder()
    for second, state in states:
        recorder.record(life.see(state, at(second)), notes)
    if end:
        recorder.end(notes)
    life.end()
    return notes


def query(path: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """What a statement gives on a journal."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(sql, values).fetchall()


def every(path: Path, since_s: float = 0.0) -> list[RecordedCycle]:
    """All cycles of a journal; their nodes are as they were at the end."""
    return list(recorded_cycles(path, since_s))


def test_at_rest_one_row_a_minute_is_written(path: Path) -> None:
    """A time in which nothing changes is one full state, and a row per minute that extends it."""
    notes = kept(path, ((float(second), CALM) for second in range(600)), end=False)
    assert (len(notes.frames()), len(notes.statements)) == (1, 2 + 9)


THRESHOLD = 8 * Gi * 110 // 100


def amounts(*used: int | None) -> list[tuple[float, State]]:
    """A cycle for each of these amounts, a second apart."""
    return [(float(second), replace(CALM, used={("a/main", 0): each})) for second, each in enumerate(used)]


@pytest.mark.parametrize(
    ("used", "written"),
    [
        # Small moves far from every threshold are left out; larger ones, and what becomes unknown, are not.
        ((4 * Gi, 4 * Gi, 4 * Gi + MOVED, 4 * Gi - MOVED, 4 * Gi + MOVED + 1), (4 * Gi, 4 * Gi + MOVED + 1)),
        ((4 * Gi, None, None, 4 * Gi), (4 * Gi, None, 4 * Gi)),
        # Where an account goes over a threshold of the policy, all of its bytes are written.
        ((THRESHOLD - Mi, THRESHOLD, THRESHOLD + 1, THRESHOLD + Mi), (THRESHOLD - Mi, THRESHOLD + 1)),
    ],
)
def test_what_is_recorded_of_an_amount(
    path: Path, used: tuple[int | None, ...], written: tuple[int | None, ...]
) -> None:
    """Changes of up to 64Mi are not recorded, but a crossing of a threshold is, to the byte."""
    assert [frame.used for frame in kept(path, amounts(*used)).frames()] == [(0, each) for each in written]


def test_processes_of_a_pod_are_kept_together(path: Path) -> None:
    """The sum of a pod is right to the byte whenever one of its processes is written."""
    first = State(used={("a/main", 0): 1 * Gi, ("a/main", 1): 1 * Gi}, pods=(tenant(),))
    second = replace(first, used={("a/main", 0): 1 * Gi + Mi, ("a/main", 1): 2 * Gi})
    assert kept(path, enumerate([first, second])).frames()[1].used == (0, 1 * Gi + Mi, 1, 2 * Gi)


def test_a_gap_between_cycles_is_kept(path: Path) -> None:
    """A time without cycles is recorded, although nothing has changed."""
    frames = kept(path, [(0.0, CALM), (1.0, CALM), (6.0, CALM), (7.0, CALM)]).frames()
    assert [(frame.at_ms, frame.held_ms) for frame in frames[1:]] == [(0, 5000)]


def test_the_gpus_are_kept_as_they_change(path: Path) -> None:
    """A GPU that is lost is a change of its own; its memory is recorded once it has moved by 64Mi."""
    cards = [gpu(0), gpu(0, used=50 * Mi), gpu(0, used=70 * Mi), gpu(0, used=70 * Mi, up=False, listed=False)]
    frames = kept(path, enumerate(replace(CALM, gpus=(card, gpu(1))) for card in cards)).frames()
    assert [(frame.memory, frame.gpus is not None) for frame in frames[1:]] == [((0, 70 * Mi), False), ((), True)]


def test_of_a_pod_only_what_a_policy_can_ask_for_is_kept() -> None:
    """Container IDs, the manifest that kubectl leaves, long values and masses of annotations are not."""
    notes = {f"key-{number:03}": "x" * 50 for number in range(300)} | {"vram": "1Gi"}
    long = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "y" * 300}
    less = reduced(tenant(annotations=notes | long, labels={"app": "web"}, config_hash="h"))
    assert len(less.annotations) == 100
    assert (less.annotations["vram"], less.annotations["note"]) == ("1Gi", "")
    assert not [key for key in less.annotations if key.startswith("kubectl")]
    assert (less.containers[0].ids, less.config_hash, less.labels) == (frozenset(), None, {"app": "web"})
    assert reduced(less) == less


def test_what_the_policy_names_is_kept_whatever_else_a_pod_carries() -> None:
    """Point 6: a replay reads what the daemon read; masses of short annotations push nothing out."""
    notes = {f"k{number}": "" for number in range(300)} | {"example.com/a.vram": "1Gi"}
    keys = PodKeys(annotations=frozenset({"example.com/a.vram"}))
    less = reduced(replace(tenant(annotations=notes), keys=keys), keys)
    assert (less.annotations["example.com/a.vram"], len(less.annotations), less.keys) == ("1Gi", 101, None)


def test_pods_that_no_policy_can_concern_are_left_out(path: Path) -> None:
    """A pod without GPU memory that asks for no device takes no room; one that asks is kept before it uses any."""
    plain = pod("plain", container("main", of="plain", resources={"cpu": "2", "memory": "1Gi", "hugepages-2Mi": "1"}))
    asking = pod("asking", container("main", of="asking", resources={"example.com/device": "1"}))
    (frame,) = kept(path, [(0.0, replace(CALM, pods=(tenant(), plain, asking)))]).frames()
    assert [each.uid for each in frame.pods] == ["a", "asking"]


@pytest.mark.slow
@FEWER
@given(st.integers(0, 2**32))
def test_what_is_read_is_what_was_there(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """The node of every cycle has its pods, its GPUs and what hid them, and its amounts to 64Mi."""
    dice = random.Random(seed)
    past, by = history(dice, 20, Mi), under(dice)
    path = tmp_path_factory.mktemp("past") / "journal.db"
    Life(path, by).run(past.cycles)
    truth = {round(at(second).wall_s, 2): state for second, state in past.cycles}
    found = 0
    for cycle in recorded_cycles(path, 0.0):
        found += 1
        _compare(cycle, truth[round(cycle.at.wall_s, 2)])
    assert found > 10


def _compare(cycle: RecordedCycle, state: State) -> None:
    scene = cycle.node
    real = {each.uid: reduced(each) for each in state.pods}
    assert dict(scene.pods) == {uid: real[uid] for uid in scene.pods}
    assert [replace(card, used=None) for card in scene.gpus] == [replace(card, used=None) for card in state.gpus]
    assert (scene.hidden.blind, set(scene.hidden.unseen)) == (
        bool(state.dark.get("blind")),
        set(state.dark.get("unseen", ())),  # type: ignore[call-overload]
    )
    kept_uses = [each for uid in real for each in scene.uses_of(uid)]
    names = {(uid, own.name) for uid, each in real.items() for own in each.containers} | {(uid, "") for uid in real}
    assert all((each.uid, each.container) in names for each in kept_uses)
    uses = {(each.key.pid, each.gpu): each.used for each in kept_uses}
    wanted = {(each.pid, each.gpu): each.used for each in state.seen(cycle.at).uses}
    assert uses.keys() == wanted.keys()
    for place, used in wanted.items():
        amount = uses[place]
        assert (amount is None) is (used is None)
        assert amount is None or used is None or abs(amount - used) <= MOVED


def test_what_could_be_drained_is_kept() -> None:
    """A replay decides about MPS clients as the daemon did; a recording of an older daemon has none that it drained."""
    key = ProcessKey(pid=7, start_ticks=70)
    mps = Mps(shared=frozenset({"GPU-0"}), drainable=frozenset({key}), drained=frozenset({key}))
    (frame,) = unpack(pack([Frame(at_ms=0, full=True, hidden=Hidden(hazards=mps))]))
    assert frame.hidden is not None
    assert frame.hidden.hazards == mps
    servers = {"shared": ["GPU-0"], "orphans": [], "trusted": [], "hidden": False}
    older = msgspec.msgpack.encode([False, False, [], servers])
    assert msgspec.msgpack.decode(older, type=Hidden) == Hidden(hazards=Mps(shared=mps.shared))


def test_a_reader_begins_in_the_middle(path: Path) -> None:
    """An hourly full state lets a reader begin at most an hour before the time that it asks for."""
    Life(path, replace(P, interval_s=10.0)).run((float(second), CALM) for second in range(0, 2 * 3600, 10))
    found = every(path, at(3600 + 60).wall_s)
    assert (found[0].kind, found[0].at.wall_s) == (RecordKind.FIRST, at(3600).wall_s)
    assert found[-1].at.wall_s == at(2 * 3600 - 10).wall_s


def test_what_has_no_beginning_is_left_out() -> None:
    """Changes to a state that is gone can't be applied, but what follows them can."""
    lost = at(0), (Frame(at_ms=0, used=(7, 1)), Frame(at_ms=5000, used=(7, 2)))
    whole = at(60), (Frame(at_ms=0, full=True),)
    found = [(look.kind, look.at) for look in span_cycles((lost, whole), at(90))]
    assert found == [(RecordKind.FIRST, at(60)), (RecordKind.SAME, at(90))]


def test_a_past_without_any_beginning_is_none(path: Path) -> None:
    """Where no whole state is left, the reader says that there is no past rather than showing an empty one."""
    Life(path, P).run([(0.0, CALM), (1.0, replace(CALM, used=holding(5.0)))])
    query(path, "DELETE FROM past WHERE is_full")
    with pytest.raises(JournalError, match="has no full frame"):
        every(path)


def test_a_journal_that_fails_costs_only_the_recording(path: Path) -> None:
    """While nothing can be written nothing is kept for later; then the record starts over with a whole state."""
    life, notes, recorder = Life(path, P), Notes(), Recorder()
    for second in range(30):
        notes.writable = not 10 <= second < 20
        recorder.record(life.see(CALM, at(second)), notes)
    life.end()
    assert [frame.full for frame in notes.frames()] == [True, True]
    begun = {values["from_s"] for sql, values in notes.statements if "until_s" in values}
    assert begun == {at(0).boottime_s, at(20).boottime_s}


def test_what_cannot_be_encoded_is_left_out(path: Path) -> None:
    """A name that is no text, or a number beyond 64 bits, does not stop the daemon."""
    bad = replace(CALM, node=Node(name="n1", labels={"a": "\ud800"}))
    huge = replace(CALM, pods=(tenant(priority=2**70),))
    notes = kept(path, [(0.0, bad), (1.0, huge), (2.0, CALM), (3.0, CALM)])
    assert [frame.full for frame in notes.frames()] == [True]


def test_an_action_takes_the_recording_to_disk_with_it(path: Path) -> None:
    """What led to an action is not lost with the daemon that did it."""
    life = Life(path, P)
    for second in range(3):
        life.see(replace(CALM, used=holding(4.0 + second)), at(second))
    report = life.see(replace(CALM, used=holding(7.5)), at(3))
    life.recorder.record(replace(report, at=at(4), outcomes=(outcome(),)), life.journal)
    record(life.journal, replace(report, at=at(4)))
    life.kill()
    (last,) = [look for look in every(path) if look.at == at(3)]
    assert last.node.uses_of("a")[0].used == int(7.5 * Gi)


# Its bounds.


def fill(journal: Journal, size: int, since: Now, *, step_s: float = 60.0, body: int = 10_000) -> None:
    """Bodies of noise that come to a size, a minute apart."""
    dice = random.Random(1)
    for number in range(size // body):
        moment = replace(since, wall_s=since.wall_s + number * step_s)
        made = body_statement(since, moment, dice.randbytes(body), is_full=number % 10 == 0)
        journal.queue_statements([span_statement(since, moment), made])
        if number % 100 == 99:
            journal.record_event("filled", "Noise.", moment)
    journal.record_event("filled", "Noise.", since)


def test_the_past_has_three_quarters_of_the_journal(path: Path) -> None:
    """The oldest of the recording goes first; decisions and actions stay."""
    limits = JournalLimits(max_size=4 * 2**20)
    journal = Journal.open(path, limits, "n1")
    fill(journal, 8 * 2**20, at(0))
    rows = len(occurrences(path, None, 0.0))
    for _ in range(5):
        journal.prune(at(100))
    journal.close()
    with closing(sqlite3.connect(path)) as connection:
        recorded = recording_size(connection)
    ((size, first, last),) = query(path, "SELECT sum(length(body)), min(id), max(id) FROM past")
    assert 2 * 2**20 < recorded <= 3 * 2**20
    assert recorded == pytest.approx(size, rel=0.01)
    assert (first > 400, last) == (True, 838)
    assert path.stat().st_size <= 4 * 2**20
    assert len(occurrences(path, None, 0.0)) == rows


def test_the_past_ages_like_the_rest(path: Path) -> None:
    """What is older than max_age goes, spans with nothing left in them too."""
    journal = Journal.open(path, JournalLimits(max_age_s=3600.0), "n1")
    fill(journal, 100_000, at(0))
    fill(journal, 100_000, at(90_000))
    journal.prune(at(90_000 + 600))
    journal.close()
    assert query(path, "SELECT (SELECT count(*) FROM past), (SELECT count(*) FROM past_span)") == [(10, 1)]


def test_a_journal_of_an_older_version_gets_the_tables(path: Path) -> None:
    """An upgrade keeps the journal; before it, the reader reports that there is no recording in it."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"PRAGMA application_id = {0x67707764}; {MIGRATIONS[0]}; PRAGMA user_version = 1;")
    with pytest.raises(JournalError, match="older gpu-watchdog"):
        every(path)
    Journal.open(path, LIMITS, "n1").close()
    with pytest.raises(JournalError, match="has not recorded a cycle"):
        every(path)


def test_a_damaged_recording_is_reported(path: Path) -> None:
    """Bytes that are no frames give a sentence with the place and the remedy, and no traceback."""
    Life(path, P).run([(0.0, CALM), (1.0, CALM)])
    for body in (b"noise", pack([Frame(at_ms=0, full=True, used=(7, 1))])):
        query(path, "UPDATE past SET body = ?", body)
        with pytest.raises(JournalError, match=r"journal\.db can't be read .*--since"):
            replayed(path, P)
