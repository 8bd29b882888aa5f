"""What an account uses at most, where the driver does not say what it uses: true whatever the others use."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.export.build import Story, policy, trainer, trainer_node
from tests.worlds import Gi, container, gpu, process, rule, snapshot, step, use
from watchdog.core.assessment import Verdict
from watchdog.core.model import Pod, Snapshot
from watchdog.core.plan import CycleReport
from watchdog.report.figures import Bounds

TWO: tuple[Pod, ...] = (trainer(uid="u1"), trainer(uid="u2", name="other", containers=(container("main", of="u2"),)))


def seen(first: int | None, second: int | None, host: int | None, counter: int | None, **more: object) -> CycleReport:
    """Pods u1 and u2 and the host on a card of 80Gi, 1Gi of it reserved; amounts in Gi, None: not told."""
    amounts = {101: first, 201: second, 9: host}
    uses = [use(pid, None if amount is None else amount * Gi) for pid, amount in amounts.items()]
    ours = [process(101, "u1/main"), process(201, "u2/main"), process(9, None)]
    card = gpu(0, used=None if counter is None else counter * Gi, reserved=Gi)
    return Story(pods=TWO).see(replace(snapshot(uses, ours, (card,)), **more))  # type: ignore[arg-type]


def most(report: CycleReport, uid: str = "u1") -> int | None:
    """What that pod uses at most, in Gi."""
    bound = next(Bounds.of(report).used_at_most(each) for each in report.assessments if each.account.uid == uid)
    return None if bound is None else bound // Gi


def test_what_others_are_known_to_use_is_not_its() -> None:
    """Of 30Gi in use 1 is reserved, 5 are another pod's and 4 the host's: at most 20."""
    assert most(seen(None, 5, 4, 30)) == 20


def test_whatever_is_silent_may_be_anybodys() -> None:
    """Two pods of which nothing is told may each use all that is left."""
    report = seen(None, None, 4, 30)
    assert (most(report), most(report, "u2")) == (25, 25)


def test_where_it_is_known_there_is_nothing_to_bound() -> None:
    """A use that the driver tells is what it is."""
    assert most(seen(7, None, None, 30)) is None


def test_without_a_counter_there_is_no_bound() -> None:
    """Nor where NVML does not answer at all: what the counter said before is no bound now."""
    assert most(seen(None, 5, 4, None)) is None
    assert most(seen(None, 5, 4, 30, blind=True)) is None
    report = seen(None, 5, 4, 30)
    assert Bounds.of(replace(report, snapshot=snapshot((), (), ()))).used_at_most(report.assessments[0]) is None


def test_a_counter_that_is_behind_never_takes_what_is_known() -> None:
    """The numbers are read one after the other, and a sum of parts may be above the whole."""
    silent_on_one = [use(101, 7 * Gi), use(102, None)]
    ours = [process(101, "u1/main"), process(102, "u1/main")]
    report = Story(pods=TWO).see(snapshot(silent_on_one, ours, (gpu(0, used=3 * Gi, reserved=Gi),)))
    assert most(report) == 7


def test_a_process_whose_pod_is_not_known_may_be_of_this_one() -> None:
    """So what it uses is not taken off."""
    stray = process(301, "gone/main")
    uses = [use(101, None), use(301, 10 * Gi)]
    report = Story(pods=TWO).see(snapshot(uses, [process(101, "u1/main"), stray], (gpu(0, used=30 * Gi, reserved=Gi),)))
    assert most(report) == 29


def test_only_the_gpus_count_on_which_it_may_be() -> None:
    """A silent process on one card says nothing of the other; where a card hides its processes it counts too."""
    cards = (gpu(0, used=11 * Gi, reserved=Gi), gpu(1, used=21 * Gi, reserved=Gi))
    uses, ours = [use(101, None), use(101, 2 * Gi, 1)], [process(101, "u1/main")]
    assert most(Story(pods=TWO).see(snapshot(uses, ours, cards))) == 12
    hidden = replace(snapshot(uses, ours, cards), unseen=frozenset({"GPU-1"}))
    assert most(Story(pods=TWO).see(hidden)) == 30


def test_a_pod_that_is_seen_nowhere_may_be_on_a_card_that_hides_its_processes() -> None:
    """As on WSL, where the list need not be whole."""
    cards = (gpu(0, used=11 * Gi, reserved=Gi), gpu(1, used=21 * Gi, reserved=Gi))
    hidden = replace(snapshot((), (), cards), unseen=frozenset({"GPU-0"}))
    assert most(Story(pods=TWO).see(hidden)) == 10


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20), st.sets(st.sampled_from(["u1", "u2", "host"])))
def test_the_bound_holds(first: int, second: int, host: int, silent: set[str]) -> None:
    """Law: whatever each really uses and whatever of that the driver tells, nobody uses more than the bound."""
    told = {"u1": first, "u2": second, "host": host}
    shown = {name: None if name in silent else amount for name, amount in told.items()}
    report = seen(shown["u1"], shown["u2"], shown["host"], first + second + host + 1)
    for each in report.assessments:
        bound = Bounds.of(report).used_at_most(each)
        assert (bound is None) is (each.account.uid not in silent)
        assert bound is None or told[each.account.uid] * Gi <= bound


def test_nobody_is_acted_on_by_a_bound() -> None:
    """It may be the use of another: the verdict stays unknown and nothing is planned, however large it is."""
    under = policy(rule(step("100%"), name="r"))
    node: Snapshot = trainer_node(None)
    silent = replace(
        node, uses=tuple(replace(each, used=None) for each in node.uses), gpus=(gpu(0, used=79 * Gi), gpu(1))
    )
    report = Story(under=under).see(silent)
    (found,) = report.assessments
    assert (found.verdict, report.plan.entries) == (Verdict.UNKNOWN, ())
    assert Bounds.of(report).used_at_most(found) == 79 * Gi
