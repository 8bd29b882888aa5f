"""Laws of the pure core, on generated nodes."""

import math
import random
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.nodes import GeneratedNode, build, nodes
from tests.worlds import (
    MEMORY,
    VERIFF,
    Gi,
    assessed,
    at,
    container,
    inputs,
    planned,
    pod,
    policy,
    rule,
    snapshot,
    step,
    use,
)
from watchdog.core.amount import is_checked
from watchdog.core.assess import assess
from watchdog.core.assessment import AccountKey, Assessment, Reason, Verdict
from watchdog.core.attribute import attribute
from watchdog.core.brakes import Brake
from watchdog.core.decide import decide
from watchdog.core.ledger import Ledger, PendingEviction, UnderWay
from watchdog.core.model import Container, MpsSigns, PlaceKind, Process
from watchdog.core.plan import Plan, PlanEntry
from watchdog.core.policy import Do, Match, Step
from watchdog.core.remembered import DeclarationMemory

T = TypeVar("T")
ESSENCE = attrgetter("account", "step_index", "victim", "targets", "due_in_s", "withheld_by", "taken")


def assess_node(node: GeneratedNode) -> tuple[Assessment, ...]:
    """Every account of a generated node."""
    return assessed(node.seen, node.pods, node.under, node.node, overdue=node.overdue)


def plan_of(node: GeneratedNode, ledger: Ledger | None = None, **given: bool) -> Plan:
    """One cycle over a generated node."""
    found = assess_node(node)
    return decide(found, ledger or Ledger(), node.seen.at, inputs(node.under, node.pods, node=node.node, **given))


@given(nodes())
def test_bytes_are_conserved(node: GeneratedNode) -> None:
    """Law 1, "Attribution neither loses nor adds bytes".

    Whatever the driver reports is in an account, or unattributed with a reason.
    """
    got = attribute(node.seen, node.pods)
    reported = Counter((each.pid, each.gpu, each.used) for each in node.seen.uses)
    placed = Counter((each.key.pid, each.gpu, each.used) for each in got.attributed)
    placed += Counter((each.pid, each.gpu, each.used) for each in got.unattributed)
    assert placed == reported
    in_accounts = Counter(
        (each.key.pid, each.gpu) for one in assess_node(node) for each in one.uses if one.account.uid == each.uid
    )
    assert in_accounts == Counter((each.key.pid, each.gpu) for each in got.attributed)


@given(nodes(), st.integers(0, 2**32))
def test_order_does_not_matter(node: GeneratedNode, seed: int) -> None:
    """Law 2, "The order of pods, processes and GPUs changes no plan"."""
    shuffled = _shuffle(node, random.Random(seed))
    one, other = plan_of(node), plan_of(shuffled)
    assert list(map(ESSENCE, one.entries)) == list(map(ESSENCE, other.entries))
    assert one.ledger == other.ledger


@given(nodes(), st.lists(st.integers(0, 2**32), max_size=3))
def test_what_is_remembered_of_declarations_changes_nothing(node: GeneratedNode, seeds: list[int]) -> None:
    """Law 10, "No disk, driver, API server or pod object holds up the loop": what is kept is what would be read."""
    memory = DeclarationMemory()
    for second, seed in enumerate([0, *seeds]):
        node = node.later(seed, second) if second else node
        given_inputs = inputs(node.under, node.pods, node=node.node)
        attribution = attribute(node.seen, node.pods)
        assert assess(attribution, node.seen, given_inputs, memory) == assess(attribution, node.seen, given_inputs)


def _shuffle(node: GeneratedNode, dice: random.Random) -> GeneratedNode:
    seen, processes = node.seen, dict(_mixed(dice, node.seen.processes.items()))
    seen = replace(seen, uses=_mixed(dice, seen.uses), gpus=_mixed(dice, seen.gpus), processes=processes)
    return replace(node, seen=seen, pods=_mixed(dice, node.pods))


def without_unlisted(node: GeneratedNode) -> GeneratedNode:
    """The same node, whose pods request nothing that nobody has checked."""

    def bare(one: Container) -> Container:
        kept = {key: text for key, text in one.resources.items() if is_checked(key, node.node)}
        return replace(one, resources=kept)

    return replace(node, pods=tuple(replace(pod, containers=tuple(map(bare, pod.containers))) for pod in node.pods))


@given(nodes())
def test_an_unlisted_resource_never_raises_what_a_pod_is_allowed(node: GeneratedNode) -> None:
    """Law 11, "raises what the tenant is allowed beyond what was checked"; a bound that is unknown binds nothing."""
    found, bounds = assess_node(node), assess_node(without_unlisted(node))
    for bound in bounds:
        key = bound.account
        # One account may have become one for each GPU, or those of each GPU one; together they are allowed no more.
        own = [each for each in found if key in (each.account, each.account._replace(gpu=None))]
        alike = [bound]
        if not own:
            own = [each for each in found if each.account == key._replace(gpu=None)]
            alike = [each for each in bounds if each.account._replace(gpu=None) == key._replace(gpu=None)]
        if bound.uses and all(each.allowed is not None for each in alike):
            assert own
            allowed = sum(each.allowed or 0 for each in alike)
            assert sum(math.inf if each.allowed is None else each.allowed for each in own) <= allowed
            pressed = sum(each.allowed_under_pressure or 0 for each in alike)
            assert sum(each.allowed_under_pressure or 0 for each in own) <= pressed


@given(nodes(), st.booleans())
def test_unknown_or_stale_never_leads_to_enforcement(node: GeneratedNode, stale: bool) -> None:
    """Law 3, "No enforcement follows from input that is unknown or stale"."""
    nothing_known = replace(node.seen, uses=tuple(replace(each, used=None) for each in node.seen.uses))
    blind = replace(node, seen=nothing_known)
    assert not [each for each in plan_of(blind).taken if each.do.enforces]
    if stale:
        assert plan_of(node, pods_stale=True).taken == ()
    for each in plan_of(node).taken:
        known = sum(use.used for use in each.assessment.uses if use.used is not None)
        assert not each.do.enforces or known > (each.assessment.allowed or 0)


@given(nodes())
def test_maintenance_never_leads_to_enforcement(node: GeneratedNode) -> None:
    """Point 34: any step that would be let through is withheld by `maintenance`; warnings go on."""
    free, held = plan_of(node), plan_of(node, maintenance=True)
    enforced = {(each.account, each.step_index) for each in free.taken if each.do.enforces}
    withheld = {(each.account, each.step_index) for each in held.entries if each.withheld_by is Brake.MAINTENANCE}
    assert enforced <= withheld
    assert not [each for each in held.taken if each.do.enforces]
    assert {each.account for each in free.taken if not each.do.enforces} <= {each.account for each in held.taken}


@given(nodes())
def test_only_the_guilty_and_unprotected_are_ever_targets(node: GeneratedNode) -> None:
    """Law 4, "A signal only ever goes to a process of an unprotected account that is over its allowed amount".

    And on: "never PID 1 or 0, oneself, a host process, another pod, a container that is unknown".
    """
    by_uid = {pod.uid: pod for pod in node.pods}
    whose = {use.key: (use.uid, use.container) for use in attribute(node.seen, node.pods).attributed}
    for entry in plan_of(node).taken:
        if not entry.do.enforces:
            continue
        assert entry.assessment.verdict is Verdict.OVER
        assert entry.assessment.protected is None
        pod = by_uid[entry.account.uid]
        assert (pod.static, pod.namespace == "kube-system") == (False, False)
        protects = node.under.protect.priority_namespaces
        assert (pod.priority or 0) < 2_000_000_000 or not ("*" in protects or pod.namespace in protects)
        assert entry.targets or entry.do is Do.EVICT
        for target in entry.targets:
            uid, name = whose[target]
            assert uid == entry.account.uid
            if entry.do is Do.EVICT:
                continue  # nothing is signalled, and the whole pod goes
            assert name in {container.name for container in pod.containers}
            assert entry.definition.scope == "pod" or name == entry.victim


@given(nodes())
def test_no_client_of_a_foreign_mps_server_is_ever_ended(node: GeneratedNode) -> None:
    """Point 36: a listed client that an action would end has its server in its own pod alone.

    And point 35: a process that may be an MPS server of other pods is never among it, whatever the policy accepts.
    """
    got = attribute(node.seen, node.pods)
    by_uid = {pod.uid: pod for pod in node.pods}
    named = {each.key: each for each in node.seen.processes.values() if each.mps is not None and each.key is not None}
    strangers = {each.gpu for each in node.seen.uses if _is_on_host(node.seen.processes[each.pid])}
    for entry in plan_of(node).taken:
        if not entry.do.enforces:
            continue
        pod = by_uid[entry.account.uid]
        mine = [each for each in got.attributed if each.uid == pod.uid]
        servers = {each.gpu for each in mine if each.key in named}
        for each in mine:
            is_ended = entry.definition.hits_whole_pod or each.key in entry.targets
            is_ended = is_ended or (entry.definition.scope == "container" and each.container == entry.victim)
            if not is_ended:
                continue
            signs = each.mps or MpsSigns()
            is_proven = each.key in named and signs.privileged
            assert not is_proven or pod.owner is None or pod.owner.kind != "DaemonSet"
            accepted = node.under.safety.signal_mps_clients
            assert accepted or not signs.client or (each.gpu in servers and each.gpu not in strangers)
            assert accepted or signs.client is not None or each.gpu not in strangers


def _is_on_host(process: Process) -> bool:
    return process.mps is not None and process.place.kind is PlaceKind.HOST


def _mixed(dice: random.Random, values: Collection[T]) -> tuple[T, ...]:
    return tuple(dice.sample(list(values), len(values)))


def _histories() -> st.SearchStrategy[list[tuple[int, float]]]:
    """Cycles: a seed for what is seen, and the seconds since the last one."""
    wait = st.sampled_from([0.3, 1.0, 1.0, 1.0, 1.5, 3.0, 12.0])
    return st.lists(st.tuples(st.integers(0, 2**16), wait), min_size=1, max_size=12)


@pytest.mark.slow
@given(nodes(), _histories())
def test_nothing_is_acted_on_before_its_time(node: GeneratedNode, history: list[tuple[int, float]]) -> None:
    """Law 5, "Nothing is acted on until its time has passed in conclusive readings".

    Computed without the ladder, from the whole history: the longest run of readings up to now whose
    smallest usage is above the threshold of the largest allowed must add up to `for`, one interval a reading at most.
    What is due by a tally has been above its threshold for twice that.
    """
    ledger, second = Ledger(), 0.0
    past: list[tuple[float, dict[AccountKey, Assessment]]] = []
    for seed, wait in history:
        second += wait
        here = node.later(seed, second)
        past.append((second, {each.account: each for each in assess_node(here)}))
        plan = plan_of(here, ledger)
        for entry in plan.taken:  # sums of fractions of a second
            counted_s, for_s = _counted_s(past, entry, here.under.interval_s), entry.definition.for_s
            assert counted_s >= for_s - 1e-6 or (entry.tally is not None and second - history[0][1] >= 2 * for_s - 1e-6)
        ledger = plan.ledger


def _counted_s(past: list[tuple[float, dict[AccountKey, Assessment]]], entry: PlanEntry, interval_s: float) -> float:
    """Seconds above a threshold, from the last reading backwards to the first since its rule applied."""
    counted, later, least_used, most = 0.0, past[-1][0], past[-1][1][entry.account].used_at_least, 0
    begins = next(i for i, (_, seen) in enumerate(past) if _rule_in_force(seen, entry) == entry.rule.name)
    for second, seen in reversed(past[begins:]):
        then = seen.get(entry.account)
        if then is None:
            continue
        counts, threshold_bytes = _counts(then, entry), _threshold(then, entry.definition)
        if then.used is None and not (counts and then.used_at_least > threshold_bytes):
            continue  # inconclusive for this threshold: it neither counts nor ends the run
        least_used = min(least_used, then.used_at_least)
        most = max(most, threshold_bytes if counts else 0)
        if least_used <= most:
            break
        if counts:
            counted += min(later - second, interval_s)
            later = second
    return counted


def _rule_in_force(seen: dict[AccountKey, Assessment], entry: PlanEntry) -> str | None:
    then = seen.get(entry.account)
    return then.rule.name if then is not None and then.rule is not None else None


def _threshold(then: Assessment, step: Step) -> int:
    return step.above.threshold_bytes(then.allowed or 0, step.do)


def _counts(then: Assessment, entry: PlanEntry) -> bool:
    """Whether a reading is above some threshold of the current rule, or above this one if its own rule is."""
    if then.rule is None or then.allowed is None:
        return False
    steps = (entry.definition,) if then.rule == entry.rule else then.rule.steps
    return any(then.used_at_least > _threshold(then, step) for step in steps)


def _tenants_moves() -> st.SearchStrategy[list[tuple[str, str]]]:
    """Second by second the label and the annotation that a tenant writes."""
    move = st.tuples(st.sampled_from("abcd"), st.sampled_from(["4Gi", "4294967297", "2Gi", "5Gi"]))
    stays = st.tuples(move, st.integers(1, 15)).map(lambda pair: [pair[0]] * pair[1])
    return st.lists(stays, min_size=30, max_size=60).map(lambda lists: [each for part in lists for each in part])


@given(
    st.lists(st.tuples(st.sampled_from(["pod", "container"]), st.integers(0, 20)), min_size=1, max_size=4), st.data()
)
def test_nothing_that_a_tenant_writes_puts_a_kill_off_beyond_a_bound(
    kinds: list[tuple[str, int]], data: st.DataObject
) -> None:
    """Laws 5 and 11: an offender is due once each rule that it can choose has applied for its own time."""
    rules = [
        rule(step("100%", for_s, "kill"), name=tier, match=Match(labels={"tier": tier}), account=account)
        for tier, (account, for_s) in zip("abcd", kinds, strict=False)
    ]
    under = policy(*rules, declarations=(replace(VERIFF, resource=None, annotation=MEMORY),))
    bound_s = sum(for_s + under.interval_s for _, for_s in kinds)
    ledger, guilty_s = Ledger(), 0.0
    for second, (tier, amount) in enumerate(data.draw(_tenants_moves())):
        made = pod("a", container(), labels={"tier": tier}, annotations={MEMORY: amount})
        plan = planned(snapshot([use(5, 6 * Gi)], second=second), [made], under, ledger)
        ledger, guilty_s = plan.ledger, guilty_s + (tier in "abcd"[: len(kinds)])
        if plan.taken:
            return
        assert guilty_s <= bound_s


@given(nodes())
def test_observe_and_enforce_plan_the_same(node: GeneratedNode) -> None:
    """Law 7, "From equal assessments and an equal ledger, observe and enforce make equal plans"."""
    observing = replace(node, under=replace(node.under, mode="observe"))
    assert plan_of(observing) == plan_of(node)


@pytest.mark.slow
@given(nodes(), _histories())
def test_recovery_resets_the_ladder(node: GeneratedNode, history: list[tuple[int, float]]) -> None:
    """Law 8, "Recovery resets the ladder"."""
    ledger, second = Ledger(), 0.0
    for seed, wait in history:
        second += wait
        ledger = plan_of(node.later(seed, second), ledger).ledger
    calm = replace(node.seen, uses=tuple(replace(each, used=0) for each in node.seen.uses), blind=False)
    gpus = tuple(replace(each, listed=True) for each in calm.gpus)
    calm = replace(calm, at=at(second + 1), gpus=gpus, unseen=frozenset(), missing=frozenset())
    recovered = replace(node, seen=calm)
    after = plan_of(recovered, ledger).ledger
    for each in assess_node(recovered):
        state = after.accounts.get(each.account)
        if state is not None and each.used is not None and each.verdict is not Verdict.UNKNOWN:
            assert not state.stretches
            assert each.allowed is None or not any((state.warned_s, state.observed, state.reported))


@given(nodes(), st.data())
def test_one_account_under_way_never_holds_up_another_pod(node: GeneratedNode, data: st.DataObject) -> None:
    """Law 10, "A target that is pending or failing never holds up another one"."""
    free = plan_of(node)
    kills = [each for each in free.taken if each.do.enforces]
    if not kills:
        return
    busy = data.draw(st.sampled_from(kills))
    under_way = UnderWay(step=busy.definition.signature, victim=busy.victim)
    plan = plan_of(node, Ledger().note_under_way(busy.account, under_way))
    others = {each.account for each in kills if each.account.uid != busy.account.uid}
    assert others <= {each.account for each in plan.taken}


@given(nodes(), st.data(), st.sampled_from([None, -1.0, 30.0]))
def test_one_eviction_that_does_not_come_about_holds_up_no_other(
    node: GeneratedNode, data: st.DataObject, next_in_s: float | None
) -> None:
    """Law 10 for an eviction whose answer is awaited, or whose next attempt is due or lies ahead.

    Other pods do not notice, its own step is not begun a second time, and a higher one is let through.
    """
    free = plan_of(node)
    kills = [each for each in free.taken if each.do.enforces]
    evictions = [each for each in kills if each.do is Do.EVICT]
    if not evictions:
        return
    tried = data.draw(st.sampled_from(evictions))
    now_s = node.seen.at.boottime_s
    next_s = None if next_in_s is None else now_s + next_in_s
    pending = PendingEviction(step=tried.definition.signature, tries=1, until_s=now_s + 600.0, next_s=next_s)
    plan = plan_of(node, free.ledger.note_pending_evictions({tried.account: pending}))
    taken = {(each.account, each.step_index): each for each in plan.taken}
    others = {(each.account, each.step_index) for each in kills if each.account.uid != tried.account.uid}
    assert others <= taken.keys()
    again = taken.get((tried.account, tried.step_index))
    assert (again is not None) is (next_in_s == -1.0)
    assert again is None or again.pending_eviction == pending


@pytest.mark.slow
def test_the_generated_nodes_reach_what_they_are_for() -> None:
    """A generator without offenders proves nothing: a few hundred nodes show every kind of entry."""
    found: set[str] = set()
    for seed in range(150):
        node = build(random.Random(seed), 1 + seed % 8, seed % 41, seed)
        plan = plan_of(node)
        for each in assess_node(node):
            limited = f"limited: {each.requested is not None}"
            found |= {each.verdict.value, *(each.declared_by or "").split(", "), limited}
        found |= {each.reason.value for each in attribute(node.seen, node.pods).unattributed}
        found |= {each.do.value for each in plan.taken} | {str(each.withheld_by) for each in plan.entries}
    assert found >= {each.value for each in (*Verdict, *Reason, *Do)} | {"limited: True", "", "default", MEMORY}
    assert found >= {"nvidia.com/gpumem", "vram", "main.vram", "t/core", "gpu-fraction", "nvidia.com/gpu", "t/percent"}
    assert found >= {"t/ratio", "t/share", "nvidia.com/mig-1g.10gb.me"}
    assert found >= {"None", "protected", "unknown_container", "pending", "mps"}
