"""Which container is the victim, which account comes first, and what withholds enforcement."""

from dataclasses import replace

import pytest

from tests.worlds import (
    T0,
    Gi,
    assessed,
    at,
    container,
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
    several = pod("a", container("x", "1Gi"), container("y", "8Gi"))
    seen = snapshot([use(5, 2 * Gi), use(6, 7 * Gi)], [process(5, "a/x"), process(6, "a/y")])
    (action,) = planned(seen, [several], policy(rule(step(), account="container"))).taken
    assert (action.victim, [key.pid for key in action.targets]) == ("x", [5])


def test_unknown_containers_are_never_victims() -> None:
    """Points 13 and 21: use in an unknown container is at first no reason to act, and never on a known one."""
    seen = snapshot([use(5, Gi), use(6, 70 * Gi)], [process(5, "a/main"), process(6, "a/new")])
    declares = pod("a", container(declared="4Gi"))
    assert planned(seen, [declares], AT_ONCE).entries == ()
    (entry,) = planned(seen, [declares], AT_ONCE, overdue=["a/new"]).entries
    assert (entry.victim, entry.withheld_by) == ("", Brake.UNKNOWN_CONTAINER)
    above = snapshot([use(5, 5 * Gi), use(6, 70 * Gi)], [process(5, "a/main"), process(6, "a/new")])
    for overdue in ([], ["a/new"]):
        (action,) = planned(above, [declares], AT_ONCE, overdue=overdue).taken
        assert [key.pid for key in action.targets] == [5]


@pytest.mark.parametrize(("scope", "pids"), [("process", [6]), ("container", [5, 6]), ("pod", [5, 6, 7])])
def test_the_scope_says_which_processes(scope: str, pids: list[int]) -> None:
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
    (action,) = planned(seen, [pod("a", container(declared="1Gi"))], policy(rule(step(scope="process")))).taken
    assert action.targets == (ProcessKey(pid=6, start_ticks=60),)


def test_who_is_most_over_comes_first() -> None:
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
    declares = replace(who, containers=(container(declared="1Gi"),))
    assert protection(declares, spared, None, at(0)) == why
    under = policy(rule(step("100%", 0, "warn"), step()), protect=spared)
    plan = planned(snapshot([use(5, 2 * Gi)]), [declares], under)
    expected = [Do.KILL] if why is None else [Do.WARN]
    assert [each.do for each in plan.taken] == expected
    assert [e.withheld_by for e in plan.entries if e.do is Do.KILL] == [None if why is None else Brake.PROTECTED]


def test_when_a_pod_was_first_seen_terminating_is_remembered() -> None:
    """Point 28: neither an edit of the pod nor a new list changes that time while the pod is listed."""
    seen = TerminatingPods()
    lives, dies = pod("a"), pod("b", deletion_deadline_s=T0 + YEAR_S)
    first = seen.with_first_seen((lives, dies), at(0))
    assert [each.terminating_since for each in first] == [None, at(0)]
    assert seen.with_first_seen((lives, dies), at(1)) == first
    later = replace(dies, labels={"a": "b"}, deletion_deadline_s=T0 + 2 * YEAR_S)
    assert [each.terminating_since for each in seen.with_first_seen((later, lives), at(599))] == [at(0), None]
    seen.with_first_seen(
        (lives, replace(dies, deletion_deadline_s=None)), at(700)
    )  # a list from an API server that lags
    assert [each.terminating_since for each in seen.with_first_seen((dies,), at(800))] == [at(0)]
    seen.with_first_seen((lives,), at(801))
    assert [each.terminating_since for each in seen.with_first_seen((dies,), at(900))] == [at(900)]


@pytest.mark.parametrize("own", [("a", None), (None, "a/main"), ("hash", None)])
def test_the_watchdog_never_acts_on_itself(own: tuple[str | None, str | None]) -> None:
    """Point 35: its own pod is known by UID, config hash or container ID."""
    from tests.worlds import container_id

    place = Place(kind=PlaceKind.POD, pod=own[0], container=container_id(own[1]) if own[1] else None)
    mine = pod("a", container(declared="1Gi"), config_hash="hash", static=own[0] == "hash")
    assert protection(mine, Protect(), place, at(0)) == "it is the watchdog's own pod"
    # Of a pod that is not static the hash is an annotation that a tenant can write.
    assert protection(pod("b", config_hash=own[0]), Protect(), place, at(0)) is None
    (got,) = assessed(snapshot([use(5, 2 * Gi)]), [mine], AT_ONCE, own=place)
    assert got.protected is not None


def test_daemonset_pods_are_not_evicted() -> None:
    """Point 35: the controller would recreate it on the same node; killing it is allowed."""
    of_daemonset = pod("a", container(declared="1Gi"), owner=owner("DaemonSet", "exporter"))
    seen = snapshot([use(5, 2 * Gi)])
    evict = planned(seen, [of_daemonset], policy(rule(step(do="evict"))))
    assert [each.withheld_by for each in evict.entries] == [Brake.PROTECTED]
    assert planned(seen, [of_daemonset], AT_ONCE).taken[0].do is Do.KILL


def test_a_pod_that_hangs_in_its_deletion_is_not_evicted_again_and_again() -> None:
    """An eviction would only delete it again and fill the brakes for others; a kill may help."""
    hanging = pod("a", container(declared="1Gi"), deletion_deadline_s=at(-100).wall_s)
    seen = snapshot([use(5, 2 * Gi)])
    evict = planned(seen, [hanging], policy(rule(step(do="evict"))))
    assert [each.withheld_by for each in evict.entries] == [Brake.PROTECTED]
    ladder = planned(seen, [hanging], policy(rule(step(), step("150%", do="evict"))))
    assert [each.do for each in ladder.taken] == [Do.KILL]
    spared = replace(hanging, namespace="kube-system")
    ladder = planned(seen, [spared], policy(rule(step(), step("150%", do="evict"))))
    assert [(each.do, each.withheld_by) for each in ladder.entries] == [(Do.EVICT, Brake.PROTECTED)]


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
    dying = pod("a", container(declared="1Gi"), deletion_deadline_s=at(ends_s).wall_s, terminating_since=at(since_s))
    plan = planned(snapshot([use(5, 2 * Gi)]), [dying], policy(rule(step(do="evict", grace_s=30.0))))
    assert [(each.withheld_by, each.taken) for each in plan.entries] == [(held, held is None)]


def _under_way(above: str = "100%", victim: str = "main", *, whole_pod: bool = False) -> Ledger:
    under_way = UnderWay(step=step(above).signature, victim=victim, whole_pod=whole_pod, until_s=1030.0)
    return Ledger().note_under_way(AccountKey(uid="a"), under_way)


def test_the_next_deed_waits_for_the_one_under_way() -> None:
    """Point 24: until its memory is seen free the account's next action is `pending`; others do not wait."""
    pods = [pod("a", container(declared="1Gi")), pod("b", container(declared="1Gi", of="b"))]
    seen = snapshot([use(5, 2 * Gi), use(6, 2 * Gi)], [process(6, "b/main")])
    plan = planned(seen, pods, AT_ONCE, _under_way())
    assert [(e.account.uid, e.withheld_by, e.taken) for e in plan.entries] == [
        ("a", Brake.PENDING, False),
        ("b", None, True),
    ]


def test_a_stronger_step_hastens_the_deed_on_the_same_victim() -> None:
    """Point 24: it ends the grace period, and never adds a victim."""
    ladder = policy(rule(step("100%"), step("150%", grace_s=0.0)))
    seen = snapshot([use(5, 2 * Gi)])
    (action,) = planned(seen, [pod("a", container(declared="1Gi"))], ladder, _under_way()).taken
    assert (action.step_index, action.escalates) == (1, True)
    plan = planned(seen, [pod("a", container(declared="1Gi"))], ladder, _under_way(victim="other"))
    assert [e.withheld_by for e in plan.entries] == [Brake.PENDING]
    hastened = _under_way().note_escalated(AccountKey(uid="a"), step("150%").signature)
    for ledger in (_under_way("150%"), hastened):
        again = planned(seen, [pod("a", container(declared="1Gi"))], ladder, ledger)
        assert [e.withheld_by for e in again.entries] == [Brake.PENDING]


OURS = UnderWay(step=step(do="evict").signature, victim="main", whole_pod=True, until_s=1060.0)
KILL = UnderWay(step=step().signature, victim="main", until_s=1060.0)
NEVER = pod("a", namespace="kube-system")


@pytest.mark.parametrize(
    ("under_way", "deadline", "who", "held"),
    [
        (OURS, 20, pod("a"), (Brake.PENDING, False)),
        (OURS, -1, pod("a"), (Brake.PENDING, False)),
        (KILL, 20, pod("a"), (Brake.PENDING, False)),
        (None, 20, pod("a"), (Brake.PROTECTED, True)),
        (None, -1, pod("a"), (Brake.PROTECTED, True)),
        (OURS, 20, NEVER, (Brake.PROTECTED, True)),
    ],
    ids=["evicted by us", "grace over", "killed by us", "by another", "by another, grace over", "protected besides"],
)
def test_a_pod_that_terminates_by_our_own_deed_is_not_held_back_as_protected(
    under_way: UnderWay | None, deadline: float, who: Pod, held: tuple[Brake, bool]
) -> None:
    """Points 24 and 28: a deletion by our own eviction is reported as in progress; another one is not."""
    dying = replace(who, containers=(container(declared="1Gi"),), deletion_deadline_s=at(deadline).wall_s)
    ledger = Ledger()
    if under_way is not None:
        ledger = ledger.note_under_way(AccountKey(uid="a"), under_way)
    ladder = policy(rule(step("150%", do="evict"), step("300%", 5, "evict")))
    plan = planned(snapshot([use(5, 4 * Gi)]), [dying], ladder, ledger)
    due = [entry for entry in plan.entries if entry.due_in_s <= 0]
    assert [(entry.withheld_by, entry.is_new) for entry in due] == [held]
    assert [entry.releases_in_s for entry in due] == [60.0 if held[0] is Brake.PENDING else None]
    assert {entry.withheld_by for entry in plan.entries} == {held[0]}


@pytest.mark.parametrize(
    ("next_s", "held"), [(None, (Brake.PENDING, False)), (1005.0, (Brake.PROTECTED, True))], ids=["asked", "refused"]
)
def test_a_deletion_may_be_ours_while_the_answer_to_an_eviction_is_awaited(
    next_s: float | None, held: tuple[Brake, bool]
) -> None:
    """Point 28: the API server may have carried out the eviction by then, unless it refused it."""
    dying = pod("a", container(declared="1Gi"), deletion_deadline_s=at(20).wall_s)
    pending = PendingEviction(step=step(do="evict").signature, tries=1, until_s=1600.0, next_s=next_s)
    ledger = Ledger(accounts={AccountKey(uid="a"): AccountState(pending_eviction=pending)})
    (entry,) = planned(snapshot([use(5, 4 * Gi)]), [dying], AT_ONCE, ledger).entries
    assert (entry.withheld_by, entry.is_new) == held


def test_an_eviction_under_way_makes_no_news_of_the_steps_above_it() -> None:
    """Point 24: a kill that comes due in an eviction's grace period is pending; its owner has been informed."""
    dying = pod("a", container(declared="1Gi"), deletion_deadline_s=at(20).wall_s)
    for who in (dying, replace(dying, deletion_deadline_s=None)):
        ledger = Ledger().note_under_way(AccountKey(uid="a"), OURS)
        ladder = policy(rule(step(do="evict"), step("150%")))
        plan = planned(snapshot([use(5, 2 * Gi)]), [who], ladder, ledger)
        assert [(entry.do, entry.withheld_by, entry.is_new) for entry in plan.entries] == [
            (Do.KILL, Brake.PENDING, False)
        ]


def test_a_step_stays_held_back_below_an_eviction_that_is_being_tried() -> None:
    """A withheld kill withholds the weaker one; a pending eviction in between changes nothing."""
    pending = PendingEviction(step=step("150%", do="evict").signature, tries=1, until_s=1600.0, next_s=1500.0)
    ledger = Ledger(accounts={AccountKey(uid="a"): AccountState(pending_eviction=pending)})
    ladder = policy(rule(step(), step("150%", do="evict"), step("200%")))
    seen, unwritten = snapshot([use(5, 4 * Gi)]), inputs(journal_writable=False)
    plan = planned(seen, [pod("a", container(declared="1Gi"))], ladder, ledger, unwritten)
    assert [(entry.step_index, entry.withheld_by) for entry in plan.entries] == [(1, Brake.PENDING), (2, Brake.JOURNAL)]


def test_an_eviction_that_is_tried_again_takes_the_place_of_no_warning() -> None:
    """Point 27: the next attempt may not happen, so a warning that would come after it stays in the plan."""
    ladder = policy(rule(step("100%", 90, "warn"), step(do="evict")))
    pending = PendingEviction(step=step(do="evict").signature, tries=1, until_s=1600.0, next_s=1017.0)
    ledger = Ledger(accounts={AccountKey(uid="a"): AccountState(pending_eviction=pending)})
    plan = planned(snapshot([use(5, 4 * Gi)]), [pod("a", container(declared="1Gi"))], ladder, ledger)
    assert [(entry.do, entry.due_in_s, entry.releases_in_s) for entry in plan.entries] == [
        (Do.EVICT, 0.0, 17.0),
        (Do.WARN, 90.0, None),
    ]


def test_a_reload_does_not_make_a_step_stronger_than_itself() -> None:
    """Points 20 and 24: steps that a new policy inserts before the one in progress end no grace period."""
    seen = snapshot([use(5, 2 * Gi)])
    ladder = policy(rule(step("100%", 0, "warn"), step("100%")))
    plan = planned(seen, [pod("a", container(declared="1Gi"))], ladder, _under_way())
    assert [(e.do.value, e.withheld_by, e.is_new) for e in plan.entries] == [
        ("kill", Brake.PENDING, False),
    ]
    gone = policy(rule(step("120%")))
    plan = planned(seen, [pod("a", container(declared="1Gi"))], gone, _under_way())
    assert [(e.withheld_by, e.escalates) for e in plan.entries] == [(Brake.PENDING, False)]


def test_pending_says_how_long_at_most() -> None:
    """A step waits for an action in progress until its `release_timeout` at most, even for one of this cycle."""
    seen = snapshot([use(5, 2 * Gi)])
    (held,) = planned(seen, [pod("a", container(declared="1Gi"))], AT_ONCE, _under_way()).entries
    assert (held.withheld_by, held.releases_in_s) == (Brake.PENDING, 30.0)
    forever = Ledger().note_under_way(AccountKey(uid="a"), UnderWay(step=None, victim="main"))
    (held,) = planned(seen, [pod("a", container(declared="1Gi"))], AT_ONCE, forever).entries
    assert (held.withheld_by, held.releases_in_s) == (Brake.PENDING, None)
    both = Ledger()
    for number, until_s in enumerate((1060.0, 1030.0)):
        action = UnderWay(step=None, victim="main", until_s=until_s)
        both = both.note_under_way(AccountKey(uid="a", gpu=f"GPU-{number}"), action)
    (held,) = planned(seen, [pod("a", container(declared="1Gi"))], AT_ONCE, both).entries
    assert (held.withheld_by, held.releases_in_s) == (Brake.PENDING, 60.0)


def test_a_deed_under_way_outlasts_what_is_not_seen_or_not_counted_any_more() -> None:
    """Point 24: a pod that no reading shows for a while, and a ladder that starts over, get no second kill."""
    seen, pods = snapshot([use(5, 2 * Gi)], second=1), [pod("a", container(declared="1Gi"))]
    unseen = planned(snapshot(), [], AT_ONCE, _under_way()).ledger
    for ledger in (unseen, _under_way().reset()):
        assert [e.withheld_by for e in planned(seen, pods, AT_ONCE, ledger).entries] == [Brake.PENDING]


def test_two_accounts_do_not_act_on_one_container_at_once() -> None:
    """Point 24: with an amount per GPU a container has an account per GPU, but is ended only once."""
    per_gpu = Declaration(resource="nvidia.com/gpumem", unit=1, per="gpu")
    hami = pod("a", container(resources={"nvidia.com/gpumem": "1Gi"}))
    seen = snapshot([use(5, 2 * Gi, 0), use(5, 2 * Gi, 1)], gpus=[gpu(0), gpu(1)])
    plan = planned(seen, [hami], policy(rule(step()), declarations=(per_gpu,)))
    assert sorted(str(e.withheld_by) for e in plan.entries) == ["None", "pending"]


def test_a_whole_pod_under_way_holds_its_containers() -> None:
    """Point 24: while a pod is being ended no container of it gets an action of its own."""
    under = policy(rule(step(), account="container"))
    plan = planned(snapshot([use(5, 2 * Gi)]), [pod("a", container(declared="1Gi"))], under, _under_way(whole_pod=True))
    assert [e.withheld_by for e in plan.entries] == [Brake.PENDING]


def test_a_container_of_which_no_byte_is_known_is_no_victim() -> None:
    """Point 21 and law 3: the use of an unknown container is not charged to one that may use nothing."""
    one = pod("a", container("main", "1Gi"))
    seen = snapshot([use(5, 3 * Gi), use(6, None)], [process(5, "a/new"), process(6, "a/main")])
    (entry,) = planned(seen, [one], AT_ONCE, overdue=["a/new"]).entries
    assert (entry.victim, entry.withheld_by) == ("", Brake.UNKNOWN_CONTAINER)


def _two(step_: Step, ledger: Ledger | None = None) -> list[tuple[str, Brake | None]]:
    """Two containers of one pod, both over in their own accounts: which is taken, what withholds the other."""
    both = pod("a", container("main", "1Gi"), container("side", "1Gi"))
    seen = snapshot([use(5, 3 * Gi), use(6, 2 * Gi)], [process(5, "a/main"), process(6, "a/side")])
    plan = planned(seen, [both], policy(rule(step_, account="container")), ledger)
    return [(entry.victim, entry.withheld_by) for entry in plan.entries]


def test_of_several_that_would_end_the_whole_pod_one_does() -> None:
    """Point 24: with scope `pod` the second container's action would hit processes that already got SIGTERM."""
    assert _two(step(scope="pod")) == [("main", None), ("side", Brake.PENDING)]
    assert _two(step()) == [("main", None), ("side", None)]


@pytest.mark.parametrize("whole", [step(scope="pod"), step(do="evict")])
def test_the_whole_pod_waits_for_its_containers(whole: Step) -> None:
    """Point 24: a step on the whole pod waits for an action in progress on one of its containers."""
    side = UnderWay(step=step().signature, victim="side", until_s=1030.0)
    for uid, held in (("a", Brake.PENDING), ("b", None)):
        ledger = Ledger().note_under_way(AccountKey(uid=uid, container="debug"), side)
        assert _two(whole, ledger)[0] == ("main", held)
    ledger = Ledger().note_under_way(AccountKey(uid="a", container="debug"), side)
    assert _two(step(), ledger) == [("main", None), ("side", Brake.PENDING)]


def test_without_a_journal_force_is_withheld() -> None:
    """Point 31: without a journal no action begins; warnings go on."""
    under = policy(rule(step("100%", 0, "warn"), step()))
    plan = planned(
        snapshot([use(5, 2 * Gi)]),
        [pod("a", container(declared="1Gi"))],
        under,
        given=inputs(journal_writable=False),
    )
    assert sorted((e.do.value, str(e.withheld_by), e.taken) for e in plan.entries) == [
        ("kill", "journal", False),
        ("warn", "None", True),
    ]


@pytest.mark.parametrize(
    ("ladder", "ledger"),
    [
        ((step(),), None),
        ((step(scope="pod"),), None),
        ((step(do="evict"),), None),
        ((step("100%", 0, "warn"), step()), None),
        ((step(grace_s=60.0), step("150%", grace_s=0.0)), "100%"),
    ],
    ids=["a container", "a pod", "an eviction", "after a warning", "what would end a grace"],
)
def test_a_list_of_pods_that_is_too_old_withholds_what_is_due(ladder: tuple[Step, ...], ledger: str | None) -> None:
    """Point 27: enforcement needs a fresh list, whatever the reading; the brake has no release time."""
    seen, pods = snapshot([use(5, 2 * Gi)]), [pod("a", container(declared="1Gi"))]
    known = None
    if ledger is not None:
        action = UnderWay(step=ladder[0].signature, victim="main", until_s=1090.0)
        known = Ledger().note_under_way(AccountKey(uid="a"), action)
    old = planned(seen, pods, policy(rule(*ladder)), known, inputs(pods_stale=True))
    assert [(e.withheld_by, e.releases_in_s, e.is_new) for e in old.entries if not e.taken] == [
        (Brake.STALE, None, True)
    ]
    assert not old.taken
    fresh = planned(seen, pods, policy(rule(*ladder)), known)
    assert [(e.step_index, e.withheld_by) for e in fresh.taken if e.do.enforces] == [(len(ladder) - 1, None)]
    at_the_mark = snapshot([use(5, Gi)])
    assert planned(at_the_mark, pods, policy(rule(*ladder)), known, inputs(pods_stale=True)).entries == ()


def test_a_step_that_came_due_by_fresh_lists_waits_for_the_next_one() -> None:
    """Points 16 and 27: a step that was due before the list went stale stays due, and is taken with a fresh one."""
    declares, under = pod("a", container(declared="1Gi")), policy(rule(step(for_s=1)))
    fresh, old, held = inputs(), inputs(pods_stale=True), inputs(maintenance=True)
    ledger, told = Ledger(), []
    for second, given in enumerate([fresh, held, old, old, fresh]):
        plan = planned(snapshot([use(5, 2 * Gi)], second=second), [declares], under, ledger, given)
        ledger = plan.ledger
        told.append([(e.due_in_s, e.withheld_by, e.is_new, e.taken) for e in plan.entries])
    assert told == [
        [(1.0, None, False, False)],
        [(0.0, Brake.MAINTENANCE, True, False)],
        [(0.0, Brake.STALE, True, False)],
        [(0.0, Brake.STALE, False, False)],
        [(0.0, None, False, True)],
    ]


UNDER_WAY = UnderWay(step=step().signature, victim="main", until_s=1030.0)


@pytest.mark.parametrize(
    ("declares", "given", "ledger", "brake"),
    [
        (pod("a", container(declared="1Gi")), inputs(), Ledger(), Brake.MAINTENANCE),
        (pod("a", container(declared="1Gi")), inputs(pods_stale=True), Ledger(), Brake.MAINTENANCE),
        (pod("a", container(declared="1Gi")), inputs(journal_writable=False), Ledger(), Brake.MAINTENANCE),
        (
            pod("a", container(declared="1Gi")),
            inputs(),
            Ledger().note_under_way(AccountKey(uid="a"), UNDER_WAY),
            Brake.MAINTENANCE,
        ),
        (pod("a", container(declared="1Gi"), namespace="kube-system"), inputs(), Ledger(), Brake.PROTECTED),
    ],
    ids=["free", "stale", "journal", "pending", "protected"],
)
def test_maintenance_is_named_before_what_may_let_go_sooner(
    declares: Pod, given: Inputs, ledger: Ledger, brake: Brake
) -> None:
    """Point 34: maintenance is named before every other brake except the permanent ones."""
    under = policy(rule(step("100%", 0, "warn"), step()))
    plan = planned(snapshot([use(5, 2 * Gi)]), [declares], under, ledger, replace(given, maintenance=True))
    assert [(e.withheld_by, e.releases_in_s) for e in plan.entries if e.do is Do.KILL] == [(brake, None)]
    is_ending = bool(ledger.accounts)
    warned = [e.taken for e in plan.entries if e.do is Do.WARN]
    assert warned == ([] if given.pods_stale or is_ending else [True])
    assert not [e for e in plan.taken if e.do.enforces]


def test_a_stronger_step_ends_no_grace_under_maintenance() -> None:
    """Points 24 and 34: escalating an action in progress is enforcement too."""
    weak, strong = step("100%", 0, grace_s=60.0), step("150%", 0, grace_s=0.0)
    under_way = UnderWay(step=weak.signature, victim="main", until_s=1090.0)
    ledger = Ledger().note_under_way(AccountKey(uid="a"), under_way)
    seen, pods = snapshot([use(5, 2 * Gi)]), [pod("a", container(declared="1Gi"))]
    for maintenance, escalates in ((False, True), (True, False)):
        given = inputs(maintenance=maintenance)
        plan = planned(seen, pods, policy(rule(weak, strong)), ledger, given)
        assert [e.escalates for e in plan.entries if e.step_index == 1] == [escalates]


def test_a_withholding_is_news_once_an_incident_and_brake() -> None:
    """Point 29: it stays due while the account is above the threshold, and is reported once."""
    declares = pod("a", container(declared="1Gi"), namespace="kube-system")
    ledger, news = Ledger(), []
    for second, used in enumerate([2, 2, 2, 1, 2]):
        plan = planned(snapshot([use(5, used * Gi)], second=second), [declares], AT_ONCE, ledger)
        ledger = plan.ledger
        news.append([entry.is_new for entry in plan.entries])
    assert news == [[True], [False], [False], [], [True]]


def test_a_brake_that_stands_shows_before_the_step_is_due() -> None:
    """The first reading already shows that a protected pod will not be acted on."""
    plan = planned(
        snapshot([use(5, 2 * Gi)]),
        [pod("a", container(declared="1Gi"), namespace="kube-system")],
        policy(rule(step(for_s=10))),
    )
    assert [(e.due_in_s, e.withheld_by) for e in plan.entries] == [(10, Brake.PROTECTED)]


def test_what_protects_a_pod_shows_although_its_incident_was_observed() -> None:
    """Point 35: an action observed earlier in the incident does not hide that the pod is protected now."""
    declares = pod("a", container(declared="1Gi"))
    plan = planned(snapshot([use(5, 2 * Gi)]), [declares], AT_ONCE)
    ledger = plan.ledger.note_observed(plan.taken[0].assessment, at(0))
    for who, brake in ((declares, None), (replace(declares, namespace="kube-system"), Brake.PROTECTED)):
        (entry,) = planned(snapshot([use(5, 2 * Gi)], second=1), [who], AT_ONCE, ledger).entries
        assert (entry.withheld_by, entry.taken) == (brake, False)


def test_what_a_kill_in_progress_has_sent_is_remembered() -> None:
    """The status shows for a kill in progress which signals were sent and that its processes have ended."""
    account = AccountKey(uid="a")
    ledger = Ledger().note_under_way(account, KILL)
    noted = note_sent(ledger, [(account, ("SIGTERM",), False)])
    assert noted.accounts[account].under_way == replace(KILL, sent=("SIGTERM",))
    ended = note_sent(noted, [(account, ("SIGTERM",), True), (AccountKey(uid="b"), ("SIGKILL",), False)])
    assert ended.accounts == {
        account: replace(noted.accounts[account], under_way=replace(KILL, sent=("SIGTERM",), ended=True))
    }
    assert note_sent(ended, [(account, ("SIGTERM",), True)]) is ended
