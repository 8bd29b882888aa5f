"""Pods that share a claim: what they use of it together, and which of them is acted on."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.claims import claim, listed, result, with_claims
from tests.kube.test_claims import GPUS, RULE, raw_pod, read
from tests.worlds import NODE, Gi, at, parse_policy, process, snapshot, use
from watchdog.core.assess import assess
from watchdog.core.assessment import AccountKey, Assessment, Inputs
from watchdog.core.attribute import attribute
from watchdog.core.claims import with_sums
from watchdog.core.decide import decide
from watchdog.core.hazards import Hazard, HazardRole
from watchdog.core.ledger import Ledger
from watchdog.core.model import PodList, ProcessKey
from watchdog.core.plan import Plan
from watchdog.kube.claims import ClaimReader
from watchdog.report.advice import advice

KILL: Final = '[[rule.step]]\nabove = "100%"\nfor = "10s"\ndo = "kill"\n'


class Sharing:
    """Pods `a`, `b`, `c` on one claim of 4Gi, under a rule that kills after 10 s above the limit."""

    def __init__(
        self,
        uids: str = "ab",
        policy: str = RULE + KILL,
        *,
        metadata: Mapping[str, Mapping[str, Any]] | None = None,
        **more: list[str],
    ) -> None:
        names = {uid: ["main", *more.get(uid, [])] for uid in uids}
        held = {uid: names[uid] if uid in more.get("joint", ()) else ["main"] for uid in uids}
        names |= {uid: ["main", "side"] for uid in more.get("joint", ())}
        held |= {uid: names[uid] for uid in more.get("joint", ())}
        uses = {uid: {name: ["gpu"] for name in held[uid]} for uid in uids}
        raw = [with_claims(raw_pod(uid, *names[uid]), {"gpu": "team"}, uses[uid]) for uid in uids]
        for uid, changes in (metadata or {}).items():
            raw[uids.index(uid)]["metadata"] |= changes
        for pod in raw:
            for container in pod["spec"]["containers"][1:] if "joint" not in more else ():
                container["resources"] = {"limits": {"veriff.com/gpu-memory": "1Gi"}}
        self.pods = tuple(read(listed(*raw), listed(claim("team", result(memory="4Gi"), pods=tuple(uids)))))
        self.policy = parse_policy('mode = "enforce"\n' + policy)
        self.ledger = Ledger()
        self.hidden: frozenset[str] | None = None
        self.plan = Plan(entries=(), ledger=self.ledger)
        self.found: tuple[Assessment, ...] = ()

    def at(self, seconds: float, *ending: str, elsewhere: float = 0, **used: float) -> dict[str, Assessment]:
        """A reading at this time, with the Gi that each container (`a`, or `a_side`) uses; its accounts by pod.

        `elsewhere` is what the first one uses of another card.
        """
        where = {key: (key[0], key[2:] or "main") for key in used}
        uses = [use(number, None if size < 0 else int(size * Gi)) for number, size in enumerate(used.values(), 10)]
        uses += [use(10, int(elsewhere * Gi), 1)] if elsewhere else []
        processes = [process(number, "/".join(where[key])) for number, key in enumerate(used, 10)]
        seen = replace(snapshot(uses, processes, GPUS), at=at(seconds))
        under_way = frozenset(AccountKey(uid=uid, gpu="GPU-0") for uid in ending)
        inputs = Inputs(
            policy=self.policy,
            node=NODE,
            pods=PodList(pods=self.pods),
            enforcing=True,
            acting=under_way,
            ending=under_way,
            hidden=self.hidden,
        )
        attribution = attribute(seen, self.pods)
        self.found = found = assess(attribution, seen, inputs)
        self.plan = decide(found, self.ledger, seen.at, inputs)
        self.ledger = self.plan.ledger
        return {each.pod.uid: each for each in found}

    @property
    def due(self) -> dict[str, tuple[str, str | None]]:
        """The kills that are due, by pod: the victim, and what withholds it."""
        entries = (entry for entry in self.plan.entries if entry.due_in_s <= 0)
        return {entry.account.uid: (entry.victim, entry.withheld_by and entry.withheld_by.value) for entry in entries}


def test_pods_on_one_claim_may_not_use_more_than_it_gave_together() -> None:
    """Point 42: each alone is within 4Gi, all three are not; the one that uses most is acted on, and no other."""
    here = Sharing("abc")
    for seconds in range(11):
        found = here.at(seconds, a=1.5, b=2, c=1)
    assert {uid: (each.beside, each.verdict.value) for uid, each in found.items()} == {
        "a": (3 * Gi, "over"),
        "b": (2.5 * Gi, "over"),
        "c": (3.5 * Gi, "over"),
    }
    assert here.due == {"a": ("main", "claim"), "b": ("main", None), "c": ("main", "claim")}
    assert "capacity.requests.memory of at least 4.5Gi" in advice(found["b"], here.policy)
    within = here.at(15, a=1.5, b=1.5, c=1)
    assert {each.verdict.value for each in within.values()} == {"within"}


def test_time_counts_whichever_pod_of_a_claim_uses_the_most() -> None:
    """Point 42: two pods that take turns can't use twice what their claim gave."""
    here = Sharing()
    for seconds in range(11):
        here.at(seconds, **({"a": 3.0, "b": 2.9} if seconds % 2 else {"a": 2.9, "b": 3.0}))
    assert here.due == {"a": ("main", "claim"), "b": ("main", None)}


def test_a_pod_above_the_whole_claim_is_acted_on_even_if_another_uses_more() -> None:
    """Point 42: what exceeds the claim by itself needs no sum."""
    here = Sharing()
    for seconds in range(11):
        here.at(seconds, a=5, b=6)
    assert here.due == {"a": ("main", None), "b": ("main", None)}


def test_while_one_pod_of_a_claim_is_ended_no_other_is() -> None:
    """Point 42: its memory is about to be free, though another uses more by now."""
    here = Sharing()
    for seconds in range(11):
        here.at(seconds, "a", a=2, b=3)
    assert here.due["b"] == ("main", "claim")


def test_a_pod_of_a_claim_that_has_come_down_is_not_acted_on_again() -> None:
    """Point 42: an earlier action of its own makes nobody the one that uses the most; the other waits for that one."""
    here = Sharing()
    for seconds in range(11):
        found = here.at(seconds, "a", a=1, b=4)
    assert found["a"].behind_pod == "ns/pod-b"
    assert here.due == {"a": ("main", "claim"), "b": ("main", "claim")}
    for seconds in range(20, 31):
        found = here.at(seconds, "a", a=3, b=2)
    assert (found["a"].behind_pod, here.due["b"]) == ("", ("main", "claim"))


def test_what_does_not_fit_into_the_claim_alone_counts_for_it() -> None:
    """Point 42: memory that another container may use by a resource is nobody's share, and it is no victim."""
    here = Sharing(a=["side"])
    for seconds in range(11):
        found = here.at(seconds, a=2.5, a_side=0.9, b=1)
    assert (found["a"].beside, found["a"].verdict.value) == (Gi, "within")
    assert found["b"].beside == int(2.5 * Gi) + int(0.9 * Gi) - Gi
    for seconds in range(20, 31):
        here.at(seconds, a=3.5, a_side=0.9, b=1)
    assert here.due == {"a": ("main", None), "b": ("main", "claim")}


def test_a_claim_that_a_pod_has_alone_has_no_sum() -> None:
    """Point 42: the other pods of a node have nothing to do with it."""
    here = Sharing("a")
    assert here.at(0, a=3)["a"].shared == ()


def test_a_warning_below_the_limit_is_by_the_sum_too() -> None:
    """Point 42: pods that are near the limit together are warned, though each is far from it."""
    here = Sharing(policy=RULE + '[[rule.step]]\nabove = "90%"\nfor = "10s"\ndo = "warn"\n')
    for seconds in range(11):
        here.at(seconds, a=1.9, b=1.8)
    assert here.due.keys() == {"a", "b"}


@pytest.mark.parametrize("cards", [("gpu-0", "gpu-1"), ("gpu-0", "gpu-0")])
def test_a_claim_that_was_given_again_joins_nobody(cards: tuple[str, str]) -> None:
    """Point 42: what is left of its former pod, in another share, is nothing to the pod that has it now."""
    reader, here = ClaimReader(), Sharing()
    raw = [with_claims(raw_pod(uid), {"gpu": "team"}, {"main": ["gpu"]}) for uid in "ab"]
    for card, uid in zip(cards, "ab", strict=True):
        share = {**result(card, "4Gi"), "shareID": f"share-of-{uid}"}
        given = claim("team", share, pods=(uid,))
        here.pods = tuple(read(listed(*raw), listed(given), reader=reader))
    found = here.at(0, a=3, b=0 if cards[1] == "gpu-1" else 3)
    assert all(each.shared for each in found.values())
    assert (found["a"].beside, found["b"].beside) == (0, 0)


PROTECTED: Final = 'mode = "enforce"\n' + RULE + KILL + '[protect]\npods = ["ns/pod-a"]\n'
OBSERVED: Final = (
    RULE.replace("match = {}", 'match = { pods = ["pod-a"] }\nmode = "observe"')
    + KILL
    + '[[rule]]\nname = "rest"\nmatch = {}\n'
    + KILL
)
# Its only kill comes at three times the limit, so that nothing is done to it at the limit.
LENIENT: Final = (
    RULE.replace("match = {}", 'match = {pods = ["pod-a"]}')
    + KILL.replace("100%", "300%")
    + '[[rule]]\nname = "rest"\nmatch = {}\n'
    + KILL
)
PER_CONTAINER: Final = RULE.replace("match = {}", 'match = {}\naccount = "container"')
DELETED: Final = {"a": {"deletionTimestamp": "2027-01-15T09:00:00Z", "deletionGracePeriodSeconds": 86400}}


@pytest.mark.parametrize(
    ("policy", "metadata"),
    [(PROTECTED.partition("\n")[2], {}), (OBSERVED, {}), (LENIENT, {}), (RULE + KILL, DELETED)],
    ids=["protected", "observed", "below its own step", "being deleted"],
)
def test_nobody_hides_behind_a_pod_that_is_not_acted_on(policy: str, metadata: Mapping[str, Mapping[str, Any]]) -> None:
    """Point 42: the next one that uses more than an equal share is acted on; one that uses little is not."""
    here = Sharing("abc", policy, metadata=metadata)
    for seconds in range(11):
        here.at(seconds, a=3.9, b=3.8, c=0.5)
    assert {uid: held for uid, (_, held) in here.due.items() if uid != "a"} == {"b": None, "c": "claim"}
    for seconds in range(20, 31):
        here.at(seconds, a=3.9, b=0.2, c=0.1)
    assert {uid: held for uid, (_, held) in here.due.items() if uid != "a"} == {"b": "claim", "c": "claim"}


@pytest.mark.parametrize(
    ("scope", "is_named", "expected"),
    [("process", True, "b"), ("process", False, "a"), ("container", False, "b")],
    ids=["the process that would be ended", "another process", "some process of the container that would be"],
)
def test_a_process_that_other_pods_need_counts_for_the_steps_that_would_end_it(
    scope: str, *, is_named: bool, expected: str
) -> None:
    """Points 36 and 42: a pod of which some step may end a process comes first if it uses the most, and no other."""
    here = Sharing(policy=RULE + KILL + f'scope = "{scope}"\n')
    found = here.at(0, a=2.5, b=2.4)
    key = found["a"].uses[0].key if is_named else ProcessKey(pid=99, start_ticks=1)
    needed = Hazard(role=HazardRole.CLIENT, container="main", key=key)
    found["a"] = replace(found["a"], hazards=(needed,))
    behind = {each.pod.uid: each.behind_pod for each in with_sums(tuple(found.values()), frozenset())}
    assert behind == {uid: "" if uid == expected else f"ns/pod-{expected}" for uid in "ab"}


def test_of_two_containers_of_a_pod_on_a_claim_one_is_acted_on_though_a_client_may_be_hidden() -> None:
    """Points 36 and 42: scope `process` ends no hidden client, so only the container that uses the most comes first."""
    here = Sharing("a", PER_CONTAINER + KILL + 'scope = "process"\n', joint=["a"])
    here.at(0, a=2.6, a_side=2.5)
    hidden = (Hazard(role=HazardRole.HIDDEN),)
    found = with_sums([replace(each, hazards=hidden) for each in here.found], frozenset())
    assert {each.account.container: each.behind_pod for each in found} == {"main": "", "side": "ns/pod-a"}


@pytest.mark.parametrize("ending", [frozenset(), frozenset({AccountKey(uid="a", container="side", gpu="GPU-0")})])
def test_a_container_that_uses_little_does_not_pay_for_one_that_is_not_ended(ending: frozenset[AccountKey]) -> None:
    """Points 36 and 42: not in the pod of a client that others need either, and not for what is left of an action."""
    here = Sharing("a", PER_CONTAINER + KILL, joint=["a"])
    here.at(0, a=4.2, a_side=1)
    client = (Hazard(role=HazardRole.CLIENT, container="main", key=ProcessKey(pid=99, start_ticks=1)),)
    found = with_sums([replace(each, hazards=client) for each in here.found], ending)
    assert {each.account.container: each.behind_pod for each in found} == {
        "main": "ns/pod-a" if ending else "",
        "side": "ns/pod-a",
    }


def test_an_account_that_is_no_more_has_no_part_of_a_claim() -> None:
    """Point 42: what others use of the claim on one card is not compared with what a pod used of another card."""
    here = Sharing("abc")
    here.at(0, a=1, b=2, c=2, elsewhere=1)
    assert here.ledger.accounts[AccountKey(uid="a", gpu="GPU-1")].stretches
    here.at(1, a=1, b=2, c=2)
    assert not here.ledger.accounts[AccountKey(uid="a", gpu="GPU-1")].stretches


def test_a_rule_that_only_observes_says_what_it_would_do() -> None:
    """Point 42: where nothing is enforced at all, the one that uses the most would be acted on."""
    here = Sharing(policy=RULE.replace("match = {}", 'match = {}\nmode = "observe"') + KILL)
    for seconds in range(11):
        here.at(seconds, a=2.5, b=2.4)
    assert here.due == {"a": ("main", None), "b": ("main", "claim")}


def test_a_protected_pod_is_not_said_to_be_behind_itself() -> None:
    """Point 42: it uses the most, and the other one little; nothing is done, and each has its own reason."""
    here = Sharing(policy=PROTECTED.partition("\n")[2])
    for seconds in range(11):
        found = here.at(seconds, a=3.9, b=0.5)
    assert here.due == {"a": ("main", "protected"), "b": ("main", "claim")}
    assert (found["a"].behind_pod, found["b"].behind_pod) == ("", "ns/pod-a")


def test_several_containers_on_one_claim_have_a_victim() -> None:
    """Point 42: none of them is above the claim by itself; the one that uses the most of it is ended."""
    here = Sharing("ab", joint=["a"])
    for seconds in range(11):
        here.at(seconds, a=1.4, a_side=1.6, b=1.2)
    assert here.due == {"a": ("side", None), "b": ("main", "claim")}


def test_containers_of_one_pod_on_a_claim_of_its_own_have_a_victim() -> None:
    """Point 42: without any other pod too."""
    here = Sharing("a", joint=["a"])
    for seconds in range(11):
        here.at(seconds, a=2.6, a_side=2.5)
    assert here.due == {"a": ("main", None)}


def test_what_a_pod_leaves_of_other_amounts_is_not_taken_off_the_claim() -> None:
    """Point 42: a pod that may use more elsewhere makes no room for the others in the claim."""
    here = Sharing(a=["side"])
    found = here.at(0, a=0.5, b=3.9)
    assert (found["a"].beside, found["b"].beside) == (0, 0)


def test_what_cannot_be_read_of_another_pod_ends_no_stretch() -> None:
    """Points 13 and 42: a pod whose use is hidden at every third reading does not keep the sum from coming due."""
    here = Sharing()
    for seconds in range(41):
        here.at(seconds, a=3, **({"b": 2.0} if seconds % 3 else {"b": -1.0}))
    assert here.due["a"] == ("main", None)


def test_who_uses_nothing_is_told_nothing() -> None:
    """Point 42: it has no part in what the others use."""
    here = Sharing(policy=RULE + '[[rule.step]]\nabove = "90%"\nfor = "10s"\ndo = "warn"\n')
    for seconds in range(11):
        here.at(seconds, a=6, b=0)
    assert here.due.keys() == {"a"}
