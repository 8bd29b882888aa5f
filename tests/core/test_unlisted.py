"""Containers missing from the pod list: what is concluded meanwhile, and when they become overdue."""

from dataclasses import replace

import pytest

from tests.worlds import (
    BOOT,
    VERIFF,
    Gi,
    assessed,
    at,
    container,
    container_id,
    gpu,
    planned,
    pod,
    policy,
    process,
    rule,
    snapshot,
    step,
    use,
)
from watchdog.core.assessment import Attribution, Reason, Verdict
from watchdog.core.attribute import Unlisted, attribute, outside_gaps, outsiders, overdue_gaps
from watchdog.core.brakes import Brake
from watchdog.core.model import Container, ContainerKind, Now, Place, PlaceKind, Pod, Snapshot, Use
from watchdog.core.policy import Declaration, LimitAnnotation, Step

KEY = ("a", container_id("a/new"))


def init(name: str, declared: str | None = None, *, running: bool = True) -> Container:
    """A plain init container."""
    return container(name, declared, kind=ContainerKind.INIT, running=running)


def seen(**uses: int) -> Snapshot:
    """A reading in which processes 5, 6 ... of the pod, one in each of these containers, use this much."""
    return snapshot(
        [use(pid, used) for pid, used in enumerate(uses.values(), 5)],
        [process(pid, f"a/{name}") for pid, name in enumerate(uses, 5)],
    )


TWO = pod("a", container("main", "4Gi"), container("side", "1Gi"))
LOADING = pod("a", init("load", "1Gi"), container("main", "8Gi"))
LOADED = pod("a", init("load", "8Gi", running=False), container("main", "1Gi"))
QUIET = pod("a", init("load"), container("main", "8Gi"))


@pytest.mark.parametrize(
    ("owner", "uses", "expected"),
    [
        (TWO, {"new": 3 * Gi, "side": Gi}, (Verdict.UNKNOWN, 5 * Gi, None, Gi)),
        (TWO, {"new": 9 * Gi, "side": Gi}, (Verdict.UNKNOWN, 5 * Gi, None, Gi)),
        (TWO, {"new": 9 * Gi, "side": 6 * Gi}, (Verdict.OVER, 5 * Gi, None, 6 * Gi)),
        (TWO, {"new": 0, "side": 6 * Gi}, (Verdict.OVER, 5 * Gi, None, 6 * Gi)),
        (LOADING, {"new": 0, "load": 7 * Gi}, (Verdict.UNKNOWN, 8 * Gi, None, 7 * Gi)),
        (LOADING, {"new": 7 * Gi}, (Verdict.UNKNOWN, 8 * Gi, None, 0)),
        (LOADING, {"new": 1, "load": 7 * Gi}, (Verdict.UNKNOWN, 8 * Gi, None, 7 * Gi)),
        (LOADING, {"new": 1, "load": 9 * Gi}, (Verdict.OVER, 8 * Gi, None, 9 * Gi)),
        (LOADING, {"load": 7 * Gi}, (Verdict.OVER, Gi, 7 * Gi, 7 * Gi)),
        (LOADED, {"new": 7 * Gi}, (Verdict.UNKNOWN, 8 * Gi, None, 0)),
        (LOADED, {"new": 1, "main": 7 * Gi}, (Verdict.UNKNOWN, 8 * Gi, None, 7 * Gi)),
        (QUIET, {"new": 1, "load": 9 * Gi}, (Verdict.UNKNOWN, None, None, 9 * Gi)),
        (QUIET, {"load": 9 * Gi}, (Verdict.UNDECLARED, None, 9 * Gi, 9 * Gi)),
    ],
)
def test_while_the_list_lags_known_containers_alone_and_the_largest_budget_decide(
    owner: Pod, uses: dict[str, int], expected: tuple[Verdict, int | None, int | None, int]
) -> None:
    """Points 2 and 13: a new container may be of any phase; over is what is too much in each of them."""
    (got,) = assessed(seen(**uses), [owner], policy())
    assert (got.verdict, got.declared, got.used, got.used_at_least) == expected


def test_a_limit_of_the_pod_is_that_of_the_phase_that_allows_most() -> None:
    """Point 2: what containers share by an annotation depends on the phase too."""
    under = policy(declarations=(replace(VERIFF, limits=(LimitAnnotation(key="limit"),)),))
    (got,) = assessed(seen(main=1, new=1), [replace(LOADING, annotations={"limit": "16Gi"})], under)
    assert (got.declared, got.requested) == (16 * Gi, 8 * Gi)


def test_where_a_phase_cannot_be_determined_neither_can_the_largest() -> None:
    """Points 2 and 6: the init container's share may be the larger one."""
    sharing = replace(init("load"), resources={"nvidia.com/gpu.shared": "1"})
    owner = pod("a", sharing, container("main", "1Gi"))
    shares = Declaration(resource="nvidia.com/gpu.shared", unit="share", shares="label:nvidia.com/gpu.replicas")
    under = policy(declarations=(*policy().declarations, shares))
    (got,) = assessed(seen(main=9 * Gi, new=1), [owner], under)
    assert (got.verdict, got.allowed) == (Verdict.UNKNOWN, None)


@pytest.mark.parametrize(
    ("account", "number", "verdict"),
    [
        ("pod", 31, Verdict.OVER),
        ("pod", 32, Verdict.UNKNOWN),
        ("pod", 10_000, Verdict.UNKNOWN),
        ("container", 8, Verdict.OVER),  # each of which has an account too
        ("container", 9, Verdict.UNKNOWN),
        ("container", 10_000, Verdict.UNKNOWN),
    ],
)
def test_thousands_of_init_containers_cost_no_time(number: int, verdict: Verdict, account: str) -> None:
    """Law 10: a tenant can write as many phases as it likes; where there are too many, the largest is unknown."""
    owner = pod("a", *(init(f"i{each}", "1Gi", running=False) for each in range(number)), container("main", "1Gi"))
    under = policy(rule(step(), account=account))
    found = {each.account.container: each for each in assessed(seen(main=9 * Gi, new=1), [owner], under)}
    main = found[None if account == "pod" else "main"]
    assert (main.verdict, main.declared_by) == (verdict, "veriff.com/gpu-memory")


@pytest.mark.parametrize(
    ("side", "made", "expected"),
    [
        (Gi, step(), ("", [], Brake.UNKNOWN_CONTAINER)),
        (2 * Gi, step(scope="pod"), ("side", [6], None)),
        (Gi, step(do="evict"), ("", [5, 6], None)),
    ],
)
def test_a_container_that_should_be_in_the_list_counts_and_is_never_a_victim(
    side: int, made: Step, expected: tuple[str, list[int], Brake | None]
) -> None:
    """Points 13 and 21: after a minute its bytes count for the pod, but not for a container within its declaration."""
    uses = seen(new=9 * Gi, side=side)
    (got,) = assessed(uses, [TWO], policy(), overdue=["a/new"])
    assert (got.verdict, got.used, got.behind) == (Verdict.OVER, 9 * Gi + side, True)
    (entry,) = planned(uses, [TWO], policy(rule(made)), overdue=["a/new"]).entries
    assert (entry.victim, [target.pid for target in entry.targets], entry.withheld_by) == expected


def test_one_container_that_is_late_does_not_excuse_the_next() -> None:
    """Point 13: each container has a minute of its own."""
    (got,) = assessed(seen(new=9 * Gi, newer=1), [TWO], policy(), overdue=["a/new"])
    assert (got.verdict, got.used, got.used_at_least) == (Verdict.OVER, None, 9 * Gi)


def test_an_init_container_that_lingers_has_its_own_declaration() -> None:
    """Point 21: a container within what it declares itself is no victim, whichever phase the pod is in."""
    owner = pod("a", init("load", "4Gi", running=False), container("main", "1Gi"), container("side"))
    (entry,) = planned(seen(load=3 * Gi, main=Gi, side=2 * Gi), [owner], policy()).entries
    assert entry.victim == "side"
    alone = pod("a", init("load", "4Gi", running=False), container("side"))
    by_default = policy(rule(step(), default=4 * Gi))
    (entry,) = planned(seen(load=3 * Gi, side=2 * Gi), [alone], by_default).entries
    assert (entry.assessment.declared, entry.victim) == (4 * Gi, "side")


@pytest.mark.parametrize(
    ("other", "main", "victim", "held"),
    [
        ([use(5, None)], 5, "main", None),
        ([use(5, None)], 4, "", Brake.UNKNOWN_CONTAINER),
        ([use(5, 1)], 5, "main", None),  # within 7Gi, a quarter of the mean of both cards
        ([], 5, "load", None),  # above 4Gi, a quarter of the one that it uses
    ],
)
def test_a_container_whose_own_declaration_cannot_be_determined_is_no_victim(
    other: list[Use], main: int, victim: str, held: Brake | None
) -> None:
    """Point 21: a share is of the cards that it uses, and the driver may hide whether it uses one."""
    load = replace(init("load", running=False), resources={"t/share": "1"})
    both = policy(declarations=(VERIFF, Declaration(resource="t/share", unit="share", shares=4)))
    uses = [use(5, 6 * Gi, 1), use(6, main * Gi), *other]
    reading = snapshot(uses, [process(5, "a/load"), process(6, "a/main")], (gpu(0, 40 * Gi), gpu(1, 16 * Gi)))
    (entry,) = planned(reading, [pod("a", load, container("main", "4Gi"))], both).entries
    assert (entry.victim, entry.withheld_by) == (victim, held)


@pytest.mark.parametrize(("on_card", "victim", "held"), [(2, "side", None), (1, "", Brake.UNKNOWN_CONTAINER)])
def test_under_pressure_the_request_on_that_card_counts(on_card: int, victim: str, held: Brake | None) -> None:
    """Point 21: on a short card a container within its request there is no victim."""
    processes = [process(5, "a/main"), process(6, "a/side")]
    uses = [use(5, 3 * Gi, 0), use(5, 3 * Gi, 1), use(6, on_card * Gi, 0)]
    reading = snapshot(uses, processes, [gpu(0, used=79 * Gi), gpu(1)])
    (entry,) = planned(reading, [TWO], policy(rule(step(under_pressure=True)))).entries
    assert (entry.gpu, entry.victim, entry.withheld_by) == ("GPU-0", victim, held)


def found(*names: str) -> Attribution:
    """What processes of the pod use, one in each of these containers."""
    return attribute(seen(**dict.fromkeys(names, Gi)), [TWO])


def test_a_container_is_overdue_a_minute_after_it_was_first_seen_and_the_list_synced() -> None:
    """Point 13: neither time alone nor an older list shows that the container stays missing."""
    first = Unlisted().after(found("new", "side"), [TWO], at(0))
    assert first.overdue(at(59.9), at(30)) == frozenset()
    assert first.overdue(at(60), at(30)) == {KEY}
    assert first.overdue(at(60), at(0)) == frozenset()
    assert first.overdue(at(60), None) == frozenset()
    other = Now(boottime_s=5000.0, wall_s=at(60).wall_s, boot_id=BOOT.replace("1", "2"))
    assert first.overdue(at(60), other) == frozenset()


def test_a_container_that_stops_for_a_moment_gains_no_time() -> None:
    """Point 13: a tenant that frees its memory and allocates again does not restart the time."""
    known = Unlisted().after(found("new"), [TWO], at(0))
    for second, names in ((20, ["side"]), (40, ["new"]), (50, [])):
        known = known.after(found(*names), [TWO], at(second))
    assert known.overdue(at(61), at(50)) == {KEY}


def test_a_container_that_the_list_has_got_is_forgotten() -> None:
    """Point 13: a container that is listed by now is not overdue, nor is a later one with the same ID."""
    known = Unlisted().after(found("new"), [TWO], at(0))
    caught_up = replace(TWO, containers=(*TWO.containers, container("new")))
    assert known.after(found(), [caught_up], at(61)).overdue(at(62), at(61)) == frozenset()
    assert known.after(found(), [TWO], at(601)).overdue(at(602), at(601)) == frozenset()
    assert Unlisted().after(found("side"), [TWO], at(0)) == Unlisted()


def test_what_is_overdue_is_a_gap_that_names_pod_and_container() -> None:
    """Point 13: an overdue container is a gap that someone has to investigate; a new one is not."""
    twice = snapshot([use(9, Gi), use(10, Gi)], [process(9, "a/new"), process(10, "a/new")])
    (got,) = assessed(twice, [TWO], policy(), overdue=["a/new"])
    (gap,) = overdue_gaps([got], frozenset({KEY}))
    assert (gap.reason.value, gap.what) == ("container", f"container {KEY[1][:12]} of pod ns/pod-a")
    assert "gVisor" not in str(gap.problem)
    assert overdue_gaps([got], frozenset()) == ()


def test_an_overdue_container_that_is_a_gvisor_sandbox_is_named_as_one() -> None:
    """There `crictl ps` shows nothing wrong: the sandbox is no container, and nothing in it is ever killed."""
    sandbox = snapshot([use(9, Gi)], [process(9, "a/new", gvisor=True)])
    (got,) = assessed(sandbox, [TWO], policy(), overdue=["a/new"])
    (gap,) = overdue_gaps([got], frozenset({KEY}))
    assert (gap.reason.value, gap.what) == ("container", f"container {KEY[1][:12]} of pod ns/pod-a")
    assert "gVisor" in gap.problem.cause
    assert "crictl" not in gap.problem.remedy


def test_a_listed_container_outside_its_pods_cgroup_is_a_gap_and_its_memory_no_pods() -> None:
    """Point 9: only a pod's cgroup attributes memory; an ID elsewhere in a path is reported, and that alone."""
    known, unknown = (Place(kind=PlaceKind.HOST, outside=container_id(each)) for each in ("a/main", "a/other"))
    listed = [replace(process(pid, None), place=known) for pid in (8, 9)]
    others = [replace(process(10, None), place=unknown), process(11, "a/main"), process(12, None)]
    node = snapshot([use(pid, Gi) for pid in range(8, 13)], [*listed, *others])
    tenant = pod("a", container("main"))
    got = attribute(node, [tenant])
    assert [each.key.pid for each in got.attributed] == [11]
    assert {each.reason for each in got.unattributed} == {Reason.HOST}
    (gap,) = outside_gaps(outsiders(node.processes, [tenant]))
    assert (gap.reason.value, gap.what) == ("outside", "container main of pod ns/pod-a")
    assert outsiders(node.processes, []) == ()
