"""Which container is the victim, which account comes first, and what withholds enforcement."""

from dataclasses import replace

import pytest

from tests.worlds import (
    T0,
    Gi,
    assessed,
    at,
    container,
    container_id,
    gpu,
    inputs,
    owner,
    planned,
    pod,
    policy,
    process,
    rule,
    snapshot,
    step,
    use,
)
from watchdog.core.assessment import AccountKey, Inputs
from watchdog.core.brakes import Brake
from watchdog.core.ledger import AccountState, Ledger, PendingEviction, UnderWay
from watchdog.core.model import Place, PlaceKind, Pod, ProcessKey
from watchdog.core.plan import note_sent
from watchdog.core.policy import Declaration, Do, Protect, Step
from watchdog.core.rules import TERMINATING, TerminatingPods, protection

AT_ONCE = policy(rule(step()))
TENANT = pod("a", container(declared="1Gi"))
NEVER = replace(TENANT, namespace="kube-system")
OVER = snapshot([use(5, 2 * Gi)])
FAR_OVER = snapshot([use(5, 4 * Gi)])
TWO = pod("a", container("x", "1Gi"), container("y", "8Gi"))


@pytest.mark.parametrize(
    ("declared", "used", "victim"),
    [
        ({"x": "1Gi", "y": "6Gi"}, {"x": 5, "y": 7}, "x"),
        ({"x": "1Gi"}, {"x": 5, "y": 4}, "x"),
        ({"x": "1Gi"}, {"x": 5, "y": 5}, "y"),
        ({"x": "1Gi", "y": "2Gi"}, {"x": 4, "y": 5}, "y"),
        ({"x": "1Gi", "y": "1Gi"}, {"x": 5, "y": 5}, "x"),
    ],
    ids=["excess, not use", "declares nothing", "excess of the one without", "tie: larger use", "tie: name"],
)
def test_the_victim_is_farthest_above_its_own_declaration(
    declared: dict[str, str], used: dict[str, int], victim: str
) -> None:
    """Point 21: in a pod account the container with the largest used minus declared; ties by use, then name."""
    several = pod("a", *(container(name, declared.get(name)) for name in used))
    seen = snapshot(
        [use(pid, gigs * Gi) for pid, gigs in enumerate(used.values(), 5)],
        [process(pid, f"a/{name}") for pid, name in enumerate(used, 5)],
    )
    (action,) = planned(seen, [several], AT_ONCE).taken
    assert (action.victim, [key.pid for key in action.targets]) == (victim, [5 + list(used).index(victim)])


def test_in_a_container_account_the_victim_is_that_container() -> None:
    """Point 21: the neighbour container of the same pod has its own account and lives."""
    seen = snapshot([use(5, 2 * Gi), use(6, 7 * Gi)], [process(5, "a/x"), process(6, "a/y")])
    (action,) = planned(seen, [TWO], policy(rule(step(), account="container"))).taken
    assert (action.victim, [key.pid for key in action.targets]) == ("x", [5])


@pytest.mark.parametrize(
    ("used", "in_unknown", "overdue", "expected"),
    [
        (Gi, 70 * Gi, [], None),
        (Gi, 70 * Gi, ["a/new"], ("", [], Brake.UNKNOWN_CONTAINER)),
        (None, 3 * Gi, ["a/new"], ("", [], Brake.UNKNOWN_CONTAINER)),  # law 3: it may use nothing
        (2 * Gi, 70 * Gi, [], ("main", [5], None)),
        (2 * Gi, 70 * Gi, ["a/new"], ("main", [5], None)),
    ],
)
def test_unknown_containers_are_never_victims(
    used: int | None, in_unknown: int, overdue: list[str], expected: tuple[str, list[int], Brake | None] | None
) -> None:
    """Points 13 and 21: use in an unknown container is at first no reason to act, and never on a known one."""
    seen = snapshot([use(5, used), use(6, in_unknown)], [process(5, "a/main"), process(6, "a/new")])
    found = planned(seen, [TENANT], AT_ONCE, overdue=overdue).entries
    assert [(each.victim, [key.pid for key in each.targets], each.withheld_by) for each in found] == (
        [] if expected is None else [expected]
    )


@pytest.mark.parametrize(("scope", "pids"), [("process", [6]), ("container", [5, 6]), ("pod", [5, 6, 7])])
def test_the_scope_decides_which_processes(scope: str, pids: list[int]) -> None:
    """Point 21: the largest process, the container, or all known containers of the pod."""
    several = pod("a", container("x", "1Gi"), container("y", "1Gi"))
    seen = snapshot(
        [use(5, 2 * Gi), use(6, 3 * Gi), use(7, Gi), use(8, Gi)],
        [process(5, "a/x"), process(6, "a/x"), process(7, "a/y"), process(8, "a/new")],
    )
    (action,) = planned(seen, [several], policy(rule(step(scope=scope)))).taken  # type: ignore[arg-type]
    assert [key.pid for key in action.targets] == pids


def test_the_largest_process_is_the_one_over_all_its_gpus() -> None:
    """Point 21: scope `process` adds up a process's use on several GPUs."""
    seen = snapshot([use(5, 3 * Gi), use(6, 2 * Gi, 0), use(6, 2 * Gi, 1)], gpus=[gpu(0), gpu(1)])
    (action,) = planned(seen, [TENANT], policy(rule(step(scope="process")))).taken
    assert action.targets == (ProcessKey(pid=6, start_ticks=60),)


def test_the_account_most_bytes_over_comes_first() -> None:
    """Point 25: most bytes over, then lower priority, then UID."""
    rows = {"a": (1, 2, 5), "b": (1, 2, 0), "c": (1, 3, 0), "d": (1, 2, 0), "e": (8, 9, 0)}  # declared, used, priority
    pods = [
        pod(uid, container(declared=f"{declared}Gi", of=uid), priority=priority)
        for uid, (declared, _, priority) in rows.items()
    ]
    seen = snapshot(
        [use(pid, used * Gi) for pid, (_, used, _) in enumerate(rows.values(), 5)],
        [process(pid, f"{uid}/main") for pid, uid in enumerate(rows, 5)],
    )
    assert [each.account.uid for each in planned(seen, pods, AT_ONCE).taken] == ["c", "b", "d", "e", "a"]


YEAR_S = 365 * 86400.0
PROTECTED = [
    (pod("a", namespace="kube-system"), "it is in kube-system"),
    (pod("a", priority=2_000_000_000), "its priority is system-critical"),
    (pod("a", static=True), "it is a static pod"),
    (pod("a", deletion_deadline_s=T0 + 1), TERMINATING),
    (pod("a", deletion_deadline_s=T0 - 1), None),
    (pod("a", deletion_deadline_s=T0 + YEAR_S, terminating_since=at(-600)), TERMINATING),
    (pod("a", deletion_deadline_s=T0 + YEAR_S, terminating_since=at(-601)), None),
    (pod("a", deletion_deadline_s=T0 - 1, terminating_since=at(-5)), None),
    (pod("a", deletion_deadline_s=T0 + YEAR_S, terminating_since=replace(at(-600), boot_id="earlier")), TERMINATING),
    (pod("a", deletion_deadline_s=T0 + YEAR_S, terminating_since=replace(at(-601), boot_id="earlier")), None),
    (pod("a", namespace="gpu-operator"), "the policy protects namespace gpu-operator"),
    (pod("a", priority=1000), "the policy protects priority 1000 and above"),
    (pod("a", annotations={"spare": ""}), "it carries the annotation spare"),
    (replace(pod("a"), name="x-dcgm-exporter-1"), "the policy protects pods of this name"),
    (pod("a", namespace="kube-systems"), None),
    (pod("a", priority=999), None),
]


@pytest.mark.parametrize(("who", "why"), PROTECTED)
def test_the_protected_are_never_acted_on(who: Pod, why: str | None) -> None:
    """Points 28 and 35: a protected pod, built in or by policy, is measured and warned but never acted on."""
    spared = Protect(
        namespaces=("gpu-operator",), pods=("*-dcgm-exporter-*",), priority_at_least=1000, annotation="spare"
    )
    declares = replace(who, containers=TENANT.containers)
    assert protection(declares, spared, None, at(0)) == why
    plan = planned(OVER, [declares], policy(rule(step("100%", 0, "warn"), step()), protect=spared))
    expected = [Do.KILL] if why is None else [Do.WARN]
    assert [each.do for each in plan.taken] == expected
    assert [e.withheld_by for e in plan.entries if e.do is Do.KILL] == [None if why is None else Brake.PROTECTED]


@pytest.mark.parametrize(
    ("namespaces", "where", "priority", "is_spared"),
    [
        (("*",), "ns", 2_000_001_000, True),
        (("kube-system", "gpu-*"), "gpu-operator", 2_000_001_000, True),
        (("kube-system", "gpu-*"), "gpu-operator", 1000, True),
        (("kube-system", "gpu-*"), "gpu-operator", 999, False),
        (("kube-system", "gpu-*"), "ns", 2_000_001_000, False),
        (("kube-system", "gpu-*"), "ns", 1000, False),
        (("kube-system", "gpu-*"), "kube-system", None, True),
        ((), "kube-system", 0, True),
        ((), "gpu-operator", 2_000_001_000, False),
    ],
)
def test_a_priority_protects_in_some_namespaces_only(
    namespaces: tuple[str, ...], where: str, priority: int | None, *, is_spared: bool
) -> None:
    """Point 35: any tenant may use system-node-critical; kube-system is protected without any priority."""
    spared = Protect(priority_at_least=1000, priority_namespaces=namespaces)
    who = pod("a", namespace=where, priority=priority)
    assert (protection(who, spared, None, at(0)) is not None) is is_spared


def test_when_a_pod_was_first_seen_terminating_is_remembered() -> None:
    """Point 28: neither an edit of the pod nor a new list changes that time while the pod is listed."""
    seen = TerminatingPods()
    lives, dies = pod("a"), pod("b", deletion_deadline_s=T0 + YEAR_S)
    first = seen.with_first_seen((lives, dies), at(0))
    assert [each.terminating_since for each in first] == [None, at(0)]
    assert seen.with_first_seen((lives, dies), at(1)) == first
    later = replace(dies, labels={"a": "b"}, deletion_deadline_s=T0 + 2 * YEAR_S)
    assert [each.terminating_since for each in seen.with_first_seen((later, lives), at(599))] == [at(0), None]
    # Then a list from an API server that lags.
    seen.with_first_seen((lives, replace(dies, deletion_deadline_s=None)), at(700))
    assert [each.terminating_since for each in seen.with_first_seen((dies,), at(800))] == [at(0)]
    seen.with_first_seen((lives,), at(801))
    assert [each.terminating_since for each in seen.with_first_seen((dies,), at(900))] == [at(900)]


@pytest.mark.parametrize("own", [("a", None), (None, "a/main"), ("hash", None)])
def test_the_watchdog_never_acts_on_itself(own: tuple[str | None, str | None]) -> None:
    """Point 35: its own pod is known by UID, config hash or container ID."""
    place = Place(kind=PlaceKind.POD, pod=own[0], container=container_id(own[1]) if own[1] else None)
    mine = replace(TENANT, config_hash="hash", static=own[0] == "hash")
    assert protection(mine, Protect(), place, at(0)) == "it is the watchdog's own pod"
    # Of a pod that is not static the hash is an annotation that a tenant can write.
    assert protection(pod("b", config_hash=own[0]), Protect(), place, at(0)) is None
    (got,) = assessed(OVER, [mine], AT_ONCE, own=place)
    assert got.protected is not None


HANGING = replace(TENANT, deletion_deadline_s=at(-100).wall_s)
EVICT, KILL_THEN_EVICT = (step(do="evict"),), (step(), step("150%", do="evict"))


@pytest.mark.parametrize(
    ("who", "steps", "expected"),
    [
        (replace(TENANT, owner=owner("DaemonSet", "exporter")), EVICT, [(Do.EVICT, Brake.PROTECTED)]),
        (replace(TENANT, owner=owner("DaemonSet", "exporter")), (step(),), [(Do.KILL, None)]),
        (
            replace(TENANT, owner=owner("DaemonSet", "exporter")),
            KILL_THEN_EVICT,
            [(Do.KILL, None), (Do.EVICT, Brake.PROTECTED)],
        ),
        (HANGING, EVICT, [(Do.EVICT, Brake.PROTECTED)]),
        (HANGING, KILL_THEN_EVICT, [(Do.KILL, None), (Do.EVICT, Brake.PROTECTED)]),
        (replace(HANGING, namespace="kube-system"), KILL_THEN_EVICT, [(Do.EVICT, Brake.PROTECTED)]),
    ],
)
def test_what_an_eviction_would_not_help_is_only_killed(
    who: Pod, steps: tuple[Step, ...], expected: list[tuple[Do, Brake | None]]
) -> None:
    """Point 35: a DaemonSet would recreate its pod, and one that hangs in its deletion would be deleted again."""
    assert [(each.do, each.withheld_by) for each in planned(OVER, [who], policy(rule(*steps))).entries] == expected


CONTAINERS = pod("a", container("main", "1Gi"), container("side", "1Gi"))
PODS_STEP = step("150%", scope="pod")


@pytest.mark.parametrize(
    ("steps", "listed", "expected"),
    [
        ((step(), step("150%", do="evict")), True, [(Do.KILL, None), (Do.EVICT, Brake.HAZARD)]),
        ((step(), PODS_STEP), True, [(Do.KILL, None), (Do.KILL, Brake.HAZARD)]),
        ((step(do="evict"), step("150%")), False, [(Do.EVICT, None), (Do.KILL, Brake.UNKNOWN_CONTAINER)]),
    ],
)
def test_what_a_step_would_end_does_not_shield_the_pod_from_a_lower_one(
    steps: tuple[Step, ...], *, listed: bool, expected: list[tuple[Do, Brake | None]]
) -> None:
    """Law 11: exceeding a higher threshold is no shelter: the step below ends less, or something else."""
    client = [use(6, 1, mps=True)] if listed else []
    places = [process(5, "a/main" if listed else "a/new"), process(6, "a/side")]
    seen = snapshot([use(5, 20 * Gi), *client], places)
    plan = planned(seen, [CONTAINERS], policy(rule(*steps)), overdue=("a/new",))
    assert [(each.do, each.withheld_by) for each in plan.entries if each.due_in_s <= 0] == expected


@pytest.mark.parametrize(("failed", "first"), [(Do.EVICT, Do.KILL), (Do.KILL, Do.EVICT), (None, Do.EVICT)])
def test_an_action_that_has_failed_comes_after_one_that_has_not(failed: Do | None, first: Do) -> None:
    """Point 27: an eviction that always fails uses up no brakes that a kill of the same ladder waits for."""
    ledger = Ledger(accounts={KEY: AccountState()})
    if failed is not None:
        ledger = ledger.note_failed(KEY, failed, at(-700))
    plan = planned(FAR_OVER, [TENANT], policy(rule(*KILL_THEN_EVICT)), ledger)
    assert [each.do for each in plan.entries if each.taken] == [first]


@pytest.mark.parametrize(
    ("ends_s", "since_s", "held"),
    [
        (YEAR_S, -601, None),
        (YEAR_S, -600, Brake.PROTECTED),
        (31, -601, None),
        (30, -601, Brake.PROTECTED),  # the eviction itself gives 30 s
        (-1, -601, Brake.PROTECTED),
    ],
)
def test_an_eviction_shortens_a_deletion_that_would_take_longer(
    ends_s: float, since_s: float, held: Brake | None
) -> None:
    """Point 28, law 11: a deletion with a year's grace shields for ten minutes, even if the ladder only evicts."""
    dying = replace(TENANT, deletion_deadline_s=at(ends_s).wall_s, terminating_since=at(since_s))
    plan = planned(OVER, [dying], policy(rule(step(do="evict", grace_s=30.0))))
    assert [(each.withheld_by, each.taken) for each in plan.entries] == [(held, held is None)]


OURS = UnderWay(step=step(do="evict").signature, victim="main", whole_pod=True, until_s=1060.0)
KILL = UnderWay(step=step().signature, victim="main", until_s=1030.0)
KEY = AccountKey(uid="a")


def begun(*actions: UnderWay, key: AccountKey = KEY) -> Ledger:
    """A ledger with an action in progress on account a, and others on its accounts for single GPUs."""
    ledger = Ledger()
    for number, action in enumerate(actions):
        ledger = ledger.note_under_way(key if number == 0 else key._replace(gpu=f"GPU-{number}"), action)
    return ledger


def tried(above: str, next_s: float | None) -> Ledger:
    """A ledger with an eviction that has been requested once."""
    pending = PendingEviction(step=step(above, do="evict").signature, tries=1, until_s=1600.0, next_s=next_s)
    return Ledger(accounts={KEY: AccountState(pending_eviction=pending)})


GENTLE, HARD = step(), step("150%", grace_s=0.0)
ANOTHER = begun(replace(KILL, victim="other"))


@pytest.mark.parametrize(
    ("steps", "ledger", "expected"),
    [
        ((step(),), begun(KILL), [(0, Brake.PENDING, 30.0)]),
        ((step(),), begun(replace(KILL, until_s=None)), [(0, Brake.PENDING, None)]),
        ((step(),), begun(replace(KILL, until_s=1060.0), KILL), [(0, Brake.PENDING, 60.0)]),
        # A ladder that starts over, or a pod that no reading shows for a while, gets no second kill.
        ((step(),), begun(KILL).reset(), [(0, Brake.PENDING, 30.0)]),
        ((step(),), planned(snapshot(), [], AT_ONCE, begun(KILL)).ledger, [(0, Brake.PENDING, 30.0)]),
        # A stronger step ends the grace period, once, on the same victim.
        ((GENTLE, HARD), begun(KILL), [(1, None, None)]),
        ((GENTLE, HARD), ANOTHER, [(1, Brake.PENDING, 30.0)]),
        ((GENTLE, HARD), begun(replace(KILL, step=HARD.signature)), [(1, Brake.PENDING, 30.0)]),
        ((GENTLE, HARD), begun(KILL).note_escalated(KEY, HARD.signature), [(1, Brake.PENDING, 30.0)]),
        # Steps that a new policy inserts before the one in progress, or puts in its place, do not.
        ((step("100%", 0, "warn"), step()), begun(KILL), [(1, Brake.PENDING, 30.0)]),
        ((step("120%"),), begun(KILL), [(0, Brake.PENDING, 30.0)]),
        # A kill that comes due in an eviction's grace period waits; its owner has been informed.
        ((step(do="evict"), step("150%")), begun(OURS), [(1, Brake.PENDING, 60.0)]),
    ],
)
def test_the_next_action_waits_for_the_one_in_progress(
    steps: tuple[Step, ...], ledger: Ledger, expected: list[tuple[int, Brake | None, float | None]]
) -> None:
    """Points 20 and 24: it is `pending` until memory is seen free, `release_timeout` at most; other pods don't wait."""
    other = pod("b", container(declared="1Gi", of="b"))
    seen = snapshot([use(5, 2 * Gi), use(6, 2 * Gi)], [process(6, "b/main")])
    plan = planned(seen, [TENANT, other], policy(rule(*steps)), ledger)
    mine = [each for each in plan.entries if each.account == KEY]
    assert [(each.step_index, each.withheld_by, each.releases_in_s) for each in mine] == expected
    escalates = expected[0][1] is None
    assert [(each.escalates, each.taken) for each in mine] == [(escalates, escalates)]
    assert mine[0].is_new is (ledger is ANOTHER)  # its owner has been informed of any other
    assert [each.taken for each in plan.entries if each.account.uid == "b" and each.do.enforces] == [True]


@pytest.mark.parametrize(
    ("ledger", "deadline", "who", "held"),
    [
        (begun(OURS), 20, TENANT, (Brake.PENDING, 60.0, False)),
        (begun(OURS), -1, TENANT, (Brake.PENDING, 60.0, False)),
        (begun(KILL), 20, TENANT, (Brake.PENDING, 30.0, False)),
        (tried("100%", None), 20, TENANT, (Brake.PENDING, None, False)),
        (tried("100%", 1005.0), 20, TENANT, (Brake.PROTECTED, None, True)),
        (Ledger(), 20, TENANT, (Brake.PROTECTED, None, True)),
        (Ledger(), -1, TENANT, (Brake.PROTECTED, None, True)),
        (begun(OURS), 20, NEVER, (Brake.PROTECTED, None, True)),
    ],
    ids=[
        *("evicted by us", "grace over", "killed by us", "asked for", "refused"),
        *("by another", "by another, grace over", "protected besides"),
    ],
)
def test_a_pod_that_terminates_by_our_own_action_is_not_held_back_as_protected(
    ledger: Ledger, deadline: float, who: Pod, held: tuple[Brake, float | None, bool]
) -> None:
    """Points 24 and 28: a deletion by our own eviction, or one we requested, is in progress; another one is not."""
    dying = replace(who, deletion_deadline_s=at(deadline).wall_s)
    plan = planned(FAR_OVER, [dying], policy(rule(step("150%", do="evict"), step("300%", 5, "evict"))), ledger)
    due = [entry for entry in plan.entries if entry.due_in_s <= 0]
    assert [(entry.withheld_by, entry.releases_in_s, entry.is_new) for entry in due] == [held]
    assert {entry.withheld_by for entry in plan.entries} == {held[0]}


def test_a_step_stays_held_back_below_an_eviction_that_is_being_tried() -> None:
    """A withheld kill withholds the weaker one; a pending eviction in between changes nothing."""
    ladder = policy(rule(step(), step("150%", do="evict"), step("200%")))
    plan = planned(FAR_OVER, [TENANT], ladder, tried("150%", 1500.0), inputs(journal_writable=False))
    assert [(entry.step_index, entry.withheld_by) for entry in plan.entries] == [(1, Brake.PENDING), (2, Brake.JOURNAL)]


def test_an_eviction_that_is_tried_again_takes_the_place_of_no_warning() -> None:
    """Point 27: the next attempt may not happen, so a warning that would come after it stays in the plan."""
    ladder = policy(rule(step("100%", 90, "warn"), step(do="evict")))
    plan = planned(FAR_OVER, [TENANT], ladder, tried("100%", 1017.0))
    assert [(entry.do, entry.due_in_s, entry.releases_in_s) for entry in plan.entries] == [
        (Do.EVICT, 0.0, 17.0),
        (Do.WARN, 90.0, None),
    ]


def test_two_accounts_do_not_act_on_one_container_at_once() -> None:
    """Point 24: with an amount per GPU a container has an account per GPU, but is ended only once."""
    per_gpu = Declaration(resource="nvidia.com/gpumem", unit=1, per="gpu")
    hami = pod("a", container(resources={"nvidia.com/gpumem": "1Gi"}))
    seen = snapshot([use(5, 2 * Gi, 0), use(5, 2 * Gi, 1)], gpus=[gpu(0), gpu(1)])
    plan = planned(seen, [hami], policy(rule(step()), declarations=(per_gpu,)))
    assert sorted(str(e.withheld_by) for e in plan.entries) == ["None", "pending"]


SIDE = replace(KILL, victim="side")
DEBUG = AccountKey(uid="a", container="debug")


@pytest.mark.parametrize(
    ("made", "ledger", "expected"),
    [
        (step(), None, [("main", None), ("side", None)]),
        # Of several that would end the whole pod one does: the others' processes have already got SIGTERM.
        (step(scope="pod"), None, [("main", None), ("side", Brake.PENDING)]),
        # A container waits for an action on its own pod, and the whole pod for one on its container; no other pod does.
        (step(), begun(replace(KILL, whole_pod=True)), [("main", Brake.PENDING), ("side", Brake.PENDING)]),
        (step(), begun(SIDE, key=DEBUG), [("main", None), ("side", Brake.PENDING)]),
        (step(scope="pod"), begun(SIDE, key=DEBUG), [("main", Brake.PENDING), ("side", Brake.PENDING)]),
        (step(do="evict"), begun(SIDE, key=DEBUG), [("main", Brake.PENDING), ("side", Brake.PENDING)]),
        (step(scope="pod"), begun(SIDE, key=DEBUG._replace(uid="b")), [("main", None), ("side", Brake.PENDING)]),
        (step(do="evict"), begun(SIDE, key=DEBUG._replace(uid="b")), [("main", None), ("side", Brake.PENDING)]),
    ],
)
def test_containers_and_their_pod_wait_for_each_other(
    made: Step, ledger: Ledger | None, expected: list[tuple[str, Brake | None]]
) -> None:
    """Point 24: of two containers of one pod, both over in their own accounts, which is taken and what holds others."""
    both = pod("a", container("main", "1Gi"), container("side", "1Gi"))
    seen = snapshot([use(5, 3 * Gi), use(6, 2 * Gi)], [process(5, "a/main"), process(6, "a/side")])
    plan = planned(seen, [both], policy(rule(made, account="container")), ledger)
    assert [(entry.victim, entry.withheld_by) for entry in plan.entries] == expected


def test_a_step_that_came_due_by_fresh_lists_waits_for_the_next_one() -> None:
    """Points 16 and 27: a step that was due before the list went stale stays due, and is taken with a fresh one."""
    fresh, old, held = inputs(), inputs(pods_stale=True), inputs(maintenance=True)
    ledger, entries = Ledger(), []
    for second, given in enumerate([fresh, held, old, old, fresh]):
        plan = planned(replace(OVER, at=at(second)), [TENANT], policy(rule(step(for_s=1))), ledger, given)
        ledger = plan.ledger
        entries += [(e.due_in_s, e.withheld_by, e.is_new, e.taken) for e in plan.entries]
    assert entries == [
        (1.0, None, False, False),
        (0.0, Brake.MAINTENANCE, True, False),
        (0.0, Brake.STALE, True, False),
        (0.0, Brake.STALE, False, False),
        (0.0, None, False, True),
    ]


@pytest.mark.parametrize(
    ("who", "given", "ledger", "brake"),
    [
        (TENANT, inputs(journal_writable=False), Ledger(), Brake.JOURNAL),
        (TENANT, inputs(pods_stale=True), Ledger(), Brake.STALE),
        (TENANT, inputs(pods_stale=True), begun(KILL), Brake.STALE),
        (TENANT, inputs(maintenance=True), Ledger(), Brake.MAINTENANCE),
        (TENANT, inputs(maintenance=True, pods_stale=True), Ledger(), Brake.MAINTENANCE),
        (TENANT, inputs(maintenance=True, journal_writable=False), Ledger(), Brake.MAINTENANCE),
        (TENANT, inputs(maintenance=True), begun(KILL), Brake.MAINTENANCE),
        (NEVER, inputs(maintenance=True), Ledger(), Brake.PROTECTED),
    ],
    ids=[
        *("journal", "stale", "stale, while one is in progress"),
        *("maintenance", "and stale", "and no journal", "and one in progress", "and protected"),
    ],
)
def test_what_withholds_every_kill_and_eviction(who: Pod, given: Inputs, ledger: Ledger, brake: Brake) -> None:
    """Points 27, 31 and 34: an old list, no journal, maintenance: without a time of release, and warnings go on.

    Maintenance is named before every other brake except the permanent ones. Escalating is enforcement too.
    """
    for ends in ((step(),), (step(scope="pod"),), (step(do="evict"),), (GENTLE, HARD)):
        if ledger.accounts and ends != (GENTLE, HARD):
            continue
        plan = planned(OVER, [who], policy(rule(step("100%", 0, "warn"), *ends)), ledger, given)
        enforcing = [e for e in plan.entries if e.do.enforces]
        assert [(e.withheld_by, e.releases_in_s, e.is_new) for e in enforcing] == [(brake, None, True)]
        assert planned(snapshot([use(5, Gi)]), [who], policy(rule(*ends)), ledger, given).entries == ()
        assert [e.do for e in plan.taken] == ([] if given.pods_stale or ledger.accounts else [Do.WARN])


def test_a_withholding_is_news_once_per_incident_and_brake() -> None:
    """Point 29: it stays due while the account is above the threshold, and is reported once."""
    ledger, news = Ledger(), []
    for second, used in enumerate([2, 2, 2, 1, 2]):
        plan = planned(snapshot([use(5, used * Gi)], second=second), [NEVER], AT_ONCE, ledger)
        ledger = plan.ledger
        news.append([entry.is_new for entry in plan.entries])
    assert news == [[True], [False], [False], [], [True]]


def test_what_protects_a_pod_shows_before_the_step_is_due_and_after_it_was_observed() -> None:
    """Point 35: from the first reading on, whether or not an action was observed earlier in the incident."""
    plan = planned(OVER, [NEVER], policy(rule(step(for_s=10))))
    assert [(e.due_in_s, e.withheld_by) for e in plan.entries] == [(10, Brake.PROTECTED)]
    plan = planned(OVER, [TENANT], AT_ONCE)
    ledger = plan.ledger.note_observed(plan.taken[0].assessment, at(0))
    for who, brake in ((TENANT, None), (NEVER, Brake.PROTECTED)):
        (entry,) = planned(replace(OVER, at=at(1)), [who], AT_ONCE, ledger).entries
        assert (entry.withheld_by, entry.taken) == (brake, False)


def test_what_a_kill_in_progress_has_sent_is_remembered() -> None:
    """The status shows for a kill in progress which signals were sent and that its processes have ended."""
    sent = note_sent(begun(KILL), [(KEY, ("SIGTERM",), False)])
    assert sent.accounts[KEY].under_way == replace(KILL, sent=("SIGTERM",))
    ended = note_sent(sent, [(KEY, ("SIGTERM",), True), (AccountKey(uid="b"), ("SIGKILL",), False)])
    assert ended.accounts == {KEY: replace(sent.accounts[KEY], under_way=replace(KILL, sent=("SIGTERM",), ended=True))}
    assert note_sent(ended, [(KEY, ("SIGTERM",), True)]) is ended
