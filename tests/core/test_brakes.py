"""The brakes that count actions: windows of owner, namespace and node, and the back-off of an owner."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.many_pods import ManyPods, held, over_pod, under
from tests.worlds import Gi, at, rule, step
from watchdog.core.brakes import Begun, Brake, BrakeMemory, in_this_boot_s
from watchdog.core.ledger import Ledger, UnderWay
from watchdog.core.model import Now
from watchdog.core.policy import Backoff, Brakes, Do, Window

OWNER = ("ns", "Deployment", "web")
BACKOFF = Backoff(first_s=60, factor=2, max_s=200)


def test_an_owners_window_holds_the_next_action_until_the_oldest_is_old_enough() -> None:
    """Point 29: at most `count` actions in any `per`, over the pods of one owner, whatever their UIDs."""
    many = ManyPods(under(Brakes(owner=Window(count=2, per_s=100))))
    hits = [(second, *many.live(second, [over_pod(f"web-{second}", "web")])) for second in range(0, 260, 10)]
    assert [second for second, *hit in hits if hit] == [0, 10, 100, 110, 200, 210]


@pytest.mark.parametrize(
    ("brakes", "brake"),
    [
        (Brakes(owner=Window(count=1, per_s=50), namespace=Window(count=1, per_s=50)), ("owner", 49.0)),
        (Brakes(owner_backoff=BACKOFF, namespace=Window(count=1, per_s=50)), ("owner_backoff", 59.0)),
        (Brakes(namespace=Window(count=1, per_s=50), node=Window(count=1, per_s=50)), ("namespace", 49.0)),
        (Brakes(node=Window(count=1, per_s=50)), ("node", 49.0)),
        (Brakes(owner=Window(count=1, per_s=50), node=Window(count=1, per_s=80)), ("owner", 79.0)),
    ],
)
def test_the_first_brake_that_holds_is_named(brakes: Brakes, brake: tuple[str, float]) -> None:
    """Point 29: the order is owner, namespace, node; the time is that of the last one, so no kill comes later."""
    many = ManyPods(under(brakes))
    many.live(0, [over_pod("a", "web")])
    plan = many.see(1, [over_pod("b", "web")])
    assert held(plan) == {"b": brake}
    assert [entry.due_in_s for entry in plan.entries] == [0]


def test_a_step_that_is_not_due_yet_names_the_brake_that_will_hold_it() -> None:
    """A step that is not due yet has the brake that will withhold it then, and when that releases."""
    ladder = rule(step("100%", 30))
    many = ManyPods(under(Brakes(owner=Window(count=1, per_s=50)), ladder))
    many.ledger = replace(many.ledger, brakes=BrakeMemory.of([(OWNER, Begun(at(0).boottime_s))]))
    (early,) = many.see(1, [over_pod("b", "web")]).entries
    assert (early.due_in_s, early.withheld_by, early.releases_in_s) == (30.0, Brake.OWNER, 49.0)
    many.ledger = replace(many.ledger, accounts={})
    (late,) = many.see(25, [over_pod("c", "web")]).entries
    assert (late.due_in_s, late.withheld_by, late.releases_in_s) == (30.0, None, None)


def test_windows_are_of_the_owner_the_namespace_and_the_node_alone() -> None:
    """A window counts the actions of its own owner or namespace; the same name elsewhere is another owner."""
    many = ManyPods(under(Brakes(owner=Window(count=1, per_s=100), namespace=Window(count=2, per_s=100))))
    assert many.live(0, [over_pod("a", "web"), over_pod("b", "web", "other"), over_pod("c", "db")]) == ["a", "b", "c"]
    assert held(many.see(1, [over_pod("d", "new"), over_pod("e", "new", "other")])) == {"d": ("namespace", 99.0)}


def test_a_bare_pod_is_its_own_owner_by_name() -> None:
    """A pod without a controller that is created again under its name has a new UID and the same owner."""
    many = ManyPods(under(Brakes(owner=Window(count=1, per_s=100))))
    many.live(0, [over_pod("a")])
    assert held(many.see(1, [replace(over_pod("b"), name=over_pod("a").name)])) == {"b": ("owner", 99.0)}


def test_one_cycle_lets_no_more_through_than_the_window() -> None:
    """Point 25: of several that are due at once the one most bytes over goes first; only what begins counts."""
    many = ManyPods(under(Brakes(node=Window(count=2, per_s=100))))
    used = {"a": 3 * Gi, "b": 5 * Gi, "c": 4 * Gi}
    pods = [over_pod(uid, uid) for uid in used]
    for _ in range(2):
        assert [entry.account.uid for entry in many.see(0, pods, used).taken] == ["b", "c"]
    assert many.live(0, pods, used) == ["b", "c"]


@pytest.mark.parametrize(("quiet", "wait"), [(400, 199), (401, 59)])
def test_the_back_off_doubles_up_to_its_longest_and_starts_over_after_quiet(quiet: int, wait: int) -> None:
    """Owners whose new pods offend again wait 60, 120, 200, 200 s; more than twice `max` without one ends it."""
    many = ManyPods(under(Brakes(owner_backoff=BACKOFF)))
    hits = [second for second in range(400) if many.live(second, [over_pod(f"web-{second}", "web")])]
    assert hits == [0, 60, 180, 380]
    assert many.live(380 + quiet, [over_pod("late", "web")]) == ["late"]
    assert held(many.see(381 + quiet, [over_pod("next", "web")])) == {"next": ("owner_backoff", wait)}


def test_what_the_journal_has_counts_once_beside_what_was_planned() -> None:
    """A daemon that gets the lock late, or again, counts every action really begun, by any daemon, exactly once."""
    done, planned = Begun(40.0), Begun(50.0, observed=True)
    mine = replace(BrakeMemory.of([(OWNER, done), (OWNER, planned)]), opened=Begun(55.0, observed=True))
    journal = replace(BrakeMemory.of([(OWNER, Begun(60.0)), (OWNER, Begun(40.001))]), opened=Begun(5.0))
    found = mine.inheriting(journal)
    assert found.begun[OWNER] == found.begun[()] == (Begun(40.001), planned, Begun(60.0))
    assert found.opened == Begun(5.0)
    assert found.without_observed() == journal
    alone = mine.inheriting(BrakeMemory())
    assert (alone.begun[OWNER], alone.opened) == ((planned,), Begun(55.0, observed=True))
    assert replace(mine, opened=Begun(1.0)).inheriting(BrakeMemory()).opened is None


def test_after_a_loss_every_window_and_back_off_counts_as_full_until_it_has_elapsed_once() -> None:
    """Point 31: what was begun before the journal was lost is unknown, so each brake holds for its full time once."""
    brakes = Brakes(
        owner=Window(count=3, per_s=50),
        owner_backoff=BACKOFF,
        namespace=Window(count=5, per_s=80),
        node=Window(count=9, per_s=120),
    )
    memory = BrakeMemory(lost_s=1000.0)
    every = ((Brake.OWNER, 40), (Brake.OWNER_BACKOFF, 190), (Brake.NAMESPACE, 70), (Brake.NODE, 110))
    assert memory.waits(OWNER, brakes, 1010.0) == every
    assert all(memory.counts_as_full(brake, OWNER, brakes, 1010.0) for brake, _ in every)
    assert memory.waits(OWNER, brakes, 1120.0) == ((Brake.OWNER_BACKOFF, 80),)
    assert memory.waits(OWNER, brakes, 1200.0) == ()
    counted = memory.add_begun(OWNER, Begun(1190.0))
    assert counted.waits(OWNER, brakes, 1200.0) == ((Brake.OWNER_BACKOFF, 50),)
    assert not counted.counts_as_full(Brake.OWNER_BACKOFF, OWNER, brakes, 1200.0)


def test_a_step_that_a_lost_memory_holds_back_is_presumed() -> None:
    """A brake that only counts as full is marked as such, since the number of kills is unknown."""
    many = ManyPods(under(Brakes(owner=Window(count=3, per_s=100), breaker=None)))
    many.ledger = Ledger(brakes=BrakeMemory(lost_s=at(0).boottime_s))
    (entry,) = many.see(30, [over_pod("a", "web")]).entries
    assert (entry.withheld_by, entry.releases_in_s, entry.counts_as_full) == (Brake.OWNER, 70.0, True)
    assert many.live(100, [over_pod("a", "web")]) == ["a"]
    assert many.ledger.reset().brakes.lost_s == at(0).boottime_s


def test_a_factor_of_one_keeps_the_wait() -> None:
    """`factor = 1` is a constant wait, and long series do not overflow."""
    memory = BrakeMemory()
    for second in range(5000):
        memory = memory.add_begun(OWNER, Begun(float(second)))
    for factor in (1.0, 100.0):
        brakes = Brakes(owner_backoff=Backoff(first_s=10, factor=factor, max_s=50))
        assert memory.waits(OWNER, brakes, 5000.0) == ((Brake.OWNER_BACKOFF, 9 if factor == 1 else 49),)


def test_a_stronger_step_on_the_same_victim_is_no_new_action() -> None:
    """Points 24 and 29: a step that ends a grace period early is not withheld by the brake its own action filled."""
    ladder = rule(step("100%", 0, "kill", grace_s=60.0), step("150%", 5, "kill", grace_s=0.0))
    many = ManyPods(under(Brakes(node=Window(count=1, per_s=100), owner_backoff=BACKOFF), ladder))
    (kill,) = many.see(0, [over_pod("a", "web")]).taken
    under_way = UnderWay(step=kill.definition.signature, victim=kill.victim, cards=kill.cards)
    many.ledger = many.ledger.note_begun(kill.assessment, under_way, at(0))
    for second in range(1, 5):
        many.see(second, [over_pod("a", "web")])
    (stronger,) = many.see(5, [over_pod("a", "web")]).taken
    assert stronger.escalates


def test_what_was_only_planned_does_not_count_when_enforcement_begins() -> None:
    """Point 38: observe mode keeps its own counts, which are dropped; real actions continue to count."""
    many = ManyPods(under(Brakes(node=Window(count=2, per_s=100))))
    many.live(0, [over_pod("a", "web")])
    (planned,) = many.see(1, [over_pod("b", "db")]).taken
    many.ledger = many.ledger.note_observed(planned.assessment, at(1))
    assert held(many.see(2, [over_pod("c", "cache")])) == {"c": ("node", 98.0)}
    many.ledger = many.ledger.reset()
    assert many.live(3, [over_pod("c", "cache")]) == ["c"]
    assert held(many.see(4, [over_pod("d", "queue")])) == {"d": ("node", 96.0)}


def test_a_rule_that_only_observes_takes_nothing_from_the_others() -> None:
    """What an observing rule would have done is counted separately: it must not withhold real actions."""
    trial = replace(rule(step()), name="trial", mode="observe")
    many = ManyPods(under(Brakes(node=Window(count=1, per_s=100)), trial))
    (planned,) = many.see(0, [over_pod("a", "web")]).taken
    assert planned.assessment.observes
    many.ledger = many.ledger.note_observed(planned.assessment, at(0))
    assert held(many.see(1, [over_pod("b", "db")])) == {"b": ("node", 99.0)}
    many.policy = under(Brakes(node=Window(count=1, per_s=100)))
    assert many.live(2, [over_pod("b", "db")]) == ["b"]


def test_from_observing_to_acting_a_rule_starts_over() -> None:
    """Point 20: a rule that starts to enforce, by whatever switch, grants the full time of its steps again."""
    many = ManyPods(under(Brakes(), replace(rule(step("100%", 5)), mode="observe")))
    pods = [over_pod("a", "web")]
    for second in range(5):
        many.see(second, pods)
    many.policy = under(Brakes(), rule(step("100%", 5)))
    assert next(second for second in range(5, 20) if many.see(second, pods).taken) == 10


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 40)), max_size=40), st.integers(1, 4), st.integers(1, 60)
)
def test_no_window_ever_holds_more_than_its_count(steps: list[tuple[str, int]], count: int, per_s: int) -> None:
    """Law 6, "The brakes hold over any history", restarts included, and those after which the journal is lost."""
    many = ManyPods(under(Brakes(node=Window(count=count, per_s=per_s))))
    second, lost = 0, -1
    hits: list[int] = []
    for number, (name, wait) in enumerate(steps):
        second += wait
        if name == "c":  # a restart: only what is on disk is left
            actions = [(("ns", "Deployment", "web"), Begun(at(each).boottime_s)) for each in hits if each >= lost]
            lost_s = at(lost).boottime_s if lost >= 0 else None
            many.ledger = Ledger(brakes=replace(BrakeMemory.of(reversed(actions)), lost_s=lost_s))
        if name == "d":  # a restart that finds the journal damaged, or missing
            lost = second
            many.ledger = Ledger(brakes=BrakeMemory(lost_s=at(lost).boottime_s))
        hits += [second] * len(many.live(second, [over_pod(f"{name}{number}", name)]))
    for first in hits:
        assert sum(1 for each in hits if first <= each < first + per_s) <= count


@pytest.mark.parametrize(
    ("then", "at_s"),
    [
        (Now(boottime_s=40, wall_s=0, boot_id="now"), 40),  # this boot: the wall clock has no say
        (Now(boottime_s=140, wall_s=0, boot_id="now"), 100),  # never later than now
        (Now(boottime_s=40, wall_s=970, boot_id="before"), 70),
        (Now(boottime_s=40, wall_s=5000, boot_id="before"), 100),  # the wall clock ran ahead: as if just now
        (Now(boottime_s=40, wall_s=400, boot_id=""), -500),  # unknown boots
    ],
)
def test_moments_of_an_earlier_boot_come_from_the_wall_clock(then: Now, at_s: float) -> None:
    """Point 19: across boots ages come from the wall clock, and negative ones count as 0."""
    assert in_this_boot_s(then, Now(boottime_s=100, wall_s=1000, boot_id="now")) == at_s


@pytest.mark.parametrize(("warns_for_s", "announced"), [(30, True), (90, False)])
def test_no_warning_is_announced_that_a_kill_held_back_for_a_time_comes_before(
    warns_for_s: float, announced: bool
) -> None:
    """Points 17 and 23: a back-off releases at a known time; a warning that would come after it is not announced."""
    late = rule(step("100%", warns_for_s, "warn"), step("100%", 0))
    place = ManyPods(under(Brakes(owner_backoff=BACKOFF), late))
    assert place.live(0, [over_pod("p0", "w")]) == ["p0"]
    place.see(1, [])
    plan = place.see(2, [over_pod("p1", "w")])
    assert held(plan) == {"p1": ("owner_backoff", 58.0)}
    assert [entry.due_in_s for entry in plan.entries if entry.do is Do.WARN] == ([warns_for_s] if announced else [])
