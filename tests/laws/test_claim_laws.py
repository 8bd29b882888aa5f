"""Laws of claims: against an account of its own of what each pod was given, on nodes that are drawn at random."""

import random
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.claims import claim, device, listed, resource_slice, result, with_claims
from tests.kube.test_claims import CARD, GPUS, RULE, raw_pod, read
from tests.worlds import NODE, Gi, at, parse_policy, process, snapshot, use
from watchdog.core import amount, claims, declare
from watchdog.core.assess import assess
from watchdog.core.assessment import Assessment, Inputs, Verdict
from watchdog.core.attribute import attribute
from watchdog.core.decide import decide
from watchdog.core.ledger import Ledger
from watchdog.core.model import ClaimedDevice, Pod, PodList
from watchdog.kube import objects

POLICY: Final = parse_policy(
    'mode = "enforce"\n'
    + RULE.replace("match", 'default = "2Gi"\nmatch')
    + '[[rule.step]]\nabove = "100%"\nfor = "3s"\ndo = "kill"\n',
    source="policy.toml",
)
# The size that the slices publish is never NVML's.
SLICES: Final = (
    resource_slice(device(memory="90Gi"), device("gpu-1", "GPU-1", "90Gi")),
    resource_slice(device("port-0", None, "3Gi"), driver="nic.example.com"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What one device of a claim is to the test: bytes on a card, all of it, a share without an amount, or nothing."""

    raw: dict[str, Any]
    # The card; None: it is none.
    card: int | None = None
    # None: an amount is not given.
    size: int | None = None


def drawn_device(draw: random.Random, number: int) -> Given:
    """A device that the scheduler could have given."""
    card, share = draw.randrange(2), {"shareID": f"share-{number}-{draw.random()}"}
    match draw.choice(["share", "share", "whole", "no amount", "network", "admin"]):
        case "share":
            size = draw.choice([1, 2, 4])
            return Given(raw={**result(f"gpu-{card}", f"{size}Gi"), **share}, card=card, size=size * Gi)
        case "whole":
            return Given(raw=result(f"gpu-{card}"), card=card, size=CARD)
        case "no amount":
            return Given(raw={**result(f"gpu-{card}", "0"), **share}, card=card)
        case "network":
            return Given(raw={**result("port-0", "3Gi", driver="nic.example.com"), **share})
        case _:
            return Given(raw=result(f"gpu-{card}", adminAccess=True))


class World:
    """Claims, the pods that have them, and what these use of two cards."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.given = {
            f"c{number}": [drawn_device(draw, number) for _ in range(draw.randint(1, 2))] for number in range(3)
        }
        self.unread = {name for name in self.given if draw.random() < 0.2}
        self.of_pod = {uid: draw.sample(sorted(self.given), draw.randint(1, 2)) for uid in "abc"}
        self.extended = draw.choice([*"abc", ""])
        self.used = {(uid, card): draw.choice([0, 0, 1, 3, 5, 9, 85]) * Gi for uid in "abc" for card in range(2)}

    def pods(self) -> tuple[Pod, ...]:
        """The pods as the daemon reads them."""
        raw = []
        for uid, names in self.of_pod.items():
            made = with_claims(raw_pod(uid), {name: name for name in names}, {"main": names})
            if uid == self.extended:
                # Its first claim is the one that the scheduler has made for an extended resource.
                made = with_claims(raw_pod(uid), {name: name for name in names[1:]}, {"main": names[1:]})
                made["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
                mapped = {"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "gpu"}
                made["status"]["extendedResourceClaimStatus"] = {
                    "resourceClaimName": names[0],
                    "requestMappings": [mapped],
                }
            raw.append(made)
        made_claims = [
            claim(name, *(each.raw for each in devices), pods=tuple(uid for uid in "abc" if name in self.of_pod[uid]))
            for name, devices in self.given.items()
            if name not in self.unread
        ]
        return tuple(read(listed(*raw), listed(*made_claims), listed(*SLICES)))

    def allowed(self, uid: str, card: int) -> int | None:
        """What a pod may use of a card; None: nothing says."""
        devices = [each for name in self.of_pod[uid] for each in self.given[name]]
        amounts = [each for each in devices if each.card is not None and each.size is not None]
        if not amounts or any(each.size is None for each in devices if each.card == card):
            return None
        return sum(each.size or 0 for each in amounts if each.card == card)

    def together(self, uid: str, card: int) -> bool:
        """Whether what a pod has on a card is enough for all that have any of it together."""
        sharing = {other for other in "abc" if set(self.of_pod[other]) & set(self.of_pod[uid])}
        return sum(self.used[other, card] for other in sharing) <= (self.allowed(uid, card) or 0)

    def run(self) -> tuple[dict[str, list[Assessment]], set[str]]:
        """The accounts by pod, and the pods of which a kill comes due."""
        pods, ledger, due = self.pods(), Ledger(), set[str]()
        used = [(uid, card, size) for (uid, card), size in self.used.items() if size]
        uses = [use(number, size, card) for number, (_, card, size) in enumerate(used, 10)]
        processes = [process(number, f"{uid}/main") for number, (uid, _, _) in enumerate(used, 10)]
        found: tuple[Assessment, ...] = ()
        for second in range(5):
            seen = replace(snapshot(uses, processes, GPUS), at=at(second))
            inputs = Inputs(policy=POLICY, node=NODE, pods=PodList(pods=pods), enforcing=True)
            attribution = attribute(seen, pods)
            found = assess(attribution, seen, inputs)
            plan = decide(found, ledger, seen.at, inputs)
            ledger = plan.ledger
            due |= {entry.account.uid for entry in plan.entries if entry.taken}
        by_pod: defaultdict[str, list[Assessment]] = defaultdict(list)
        for each in found:
            by_pod[each.pod.uid].append(each)
        return by_pod, due


def check(seed: int) -> None:
    """No pod is acted on that is within what it was given, or of which that is not known; who is above it is found."""
    world = World(seed)
    found, due = world.run()
    for uid, names in world.of_pod.items():
        if world.unread & set(names):
            assert uid not in due, f"{uid}: what its claims gave is not known"
            assert all(each.verdict is not Verdict.OVER for each in found[uid])
            continue
        cards = [card for card in range(2) if world.used[uid, card]]
        amounts = {card: world.allowed(uid, card) for card in cards}
        is_given = all(size is not None for size in amounts.values())
        if is_given and all(world.used[uid, card] <= (amounts[card] or 0) for card in cards):
            within = all(world.together(uid, card) for card in cards)
            assert uid not in due or not within, f"{uid} is within what it was given"
        if not any(each.size for name in names for each in world.given[name]):
            too_much = sum(world.used[uid, card] for card in cards) > 2 * Gi
            assert too_much is any(each.verdict is Verdict.OVER for each in found[uid]), f"{uid} has the default alone"
        if any(size is not None and world.used[uid, card] > size for card, size in amounts.items()):
            assert any(each.verdict is Verdict.OVER for each in found[uid]), f"{uid} is above what it was given"


@given(st.integers(min_value=0, max_value=2**32))
def test_a_claim_protects_who_stays_within_it_and_nobody_else(seed: int) -> None:
    """Points 42 and 43: whatever claims gave, to whom, in which shares, and whether it can be read."""
    check(seed)


def _any_device(device: ClaimedDevice, cards: amount.Cards) -> tuple[tuple[str, ...], bool]:
    return tuple(gpu.uuid for gpu in cards.gpus)[:1], True


_part: Final = claims._part


def _whole_without_amount(device: ClaimedDevice, *rest: Any, **more: Any) -> Any:
    return _part(replace(device, is_shared=False), *rest, **more)


def _known(pod: Pod, *rest: Any) -> Any:
    known = {entry: replace(each, unknown="") for entry, each in pod.claims.items()}
    return _claimed_by(replace(pod, claims=known), *rest)


_claimed_by: Final = claims.claimed_by


def _by_slice(self: amount.Cards, gpu: str) -> int:
    return 90 * Gi


# Rules whose loss must be found: what is changed, and into what.
FAULTS: Final[dict[str, tuple[object, str, Any]]] = {
    "a device counts by its UUID": (claims, "_gpus", _any_device),
    "a share without an amount is none": (claims, "_part", _whole_without_amount),
    "a whole device has NVML's size": (amount.Cards, "size", _by_slice),
    "what is not known is no reason to act": (declare, "claimed_by", _known),
    "an extended resource is the claim's": (objects, "_with_extended", lambda containers, _status: containers),
}


@pytest.mark.parametrize("rule", FAULTS)
def test_the_loss_of_a_rule_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The law above is no good if the code can be wrong and it still holds."""
    where, name, fault = FAULTS[rule]
    monkeypatch.setattr(where, name, fault)
    assert any(_fails(seed) for seed in range(400))


def _fails(seed: int) -> bool:
    try:
        check(seed)
    except AssertionError:
        return True
    return False
