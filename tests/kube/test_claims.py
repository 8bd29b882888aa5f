"""Claims: what each shape of an allocation gives a pod, from the API's JSON to the accounts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from tests.claims import claim, device, listed, resource_slice, result, with_claims
from tests.worlds import Gi, Mi, assessed, container_id, gpu, inputs, parse_policy, process, snapshot, use
from watchdog.core.assess import assess
from watchdog.core.assessment import Assessment
from watchdog.core.attribute import attribute
from watchdog.core.model import Gpu, Pod
from watchdog.core.remembered import DeclarationMemory
from watchdog.kube.claims import NOT_READ, ClaimReader, missing_claims
from watchdog.kube.files import parse_claims, parse_slices
from watchdog.kube.objects import parse_pods
from watchdog.report.advice import advice, open_share

CARD: Final = 80 * Gi
SLICES: Final = (
    resource_slice(device(), device("gpu-1", "GPU-1")),
    resource_slice(device("port-0", None), driver="nic.example.com"),
)
RULE: Final = 'schemes = ["*"]\n[allowance]\nper_context = "0"\npercent = "0%"\n[[rule]]\nname = "all"\nmatch = {}\n'
WITH_DEFAULT: Final = RULE.replace("match", 'default = "2Gi"\nmatch')
GPUS: Final = (gpu(), gpu(1))


def raw_pod(uid: str = "a", *names: str, init: tuple[str, ...] = (), **status: Any) -> dict[str, Any]:
    """A running pod with these containers, `main` without any."""
    names = names or ("main",)
    seen = [
        {"name": name, "containerID": f"containerd://{container_id(f'{uid}/{name}')}", "state": {"running": {}}}
        for name in names
    ]
    return {
        "kind": "Pod",
        "metadata": {"name": f"pod-{uid}", "namespace": "ns", "uid": uid},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": name} for name in names],
            "initContainers": [{"name": name} for name in init],
        },
        "status": {"phase": "Running", "containerStatuses": seen, **status},
    }


def read(pods: bytes, claims: bytes, slices: bytes = listed(*SLICES), reader: ClaimReader | None = None) -> list[Pod]:
    """The pods with what their claims gave them."""
    found, gaps = parse_pods(pods)
    allocations, problems = parse_claims(claims)
    devices, more = parse_slices(slices)
    assert not (*gaps, *problems, *more)
    return list((reader or ClaimReader()).with_claims(found, allocations, devices))


def accounts(pods: list[Pod], used: Mapping[tuple[str, int], int], policy: str = RULE, **more: Any) -> list[Assessment]:
    """The accounts, in order, if these containers (`uid/name`) use so much of these cards."""
    uses = [use(number + 10, size, card) for number, ((_, card), size) in enumerate(used.items())]
    processes = [process(number + 10, where) for number, (where, _) in enumerate(used)]
    return list(assessed(snapshot(uses, processes, more.pop("gpus", GPUS), **more), pods, parse_policy(policy)))


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the claim `c` of a pod was given, of which its container `main` uses all or one request."""

    given: tuple[dict[str, Any], ...]
    # What its accounts declare by card; None: none is formed.
    declared: Mapping[str, int] | None
    verdict: str = "within"
    policy: str = ""
    uses: str = "gpu"
    slices: tuple[dict[str, Any], ...] = SLICES
    gpus: tuple[Gpu, ...] = GPUS
    more: Mapping[str, Any] = field(default_factory=dict)


MIG: Final = device("mig-0", "MIG-0", "40192Mi", parentUUID="GPU-0", profile="3g.40gb")
COUNTED: Final = "[claims]\ncount_shares = true\n"
SHARE: Final = result(consumedCapacity={"memory": "0", "shares": "1"}, shared=True)
SHARES: Final = (resource_slice({**device(), "capacity": {"memory": {"value": "81559Mi"}, "shares": {"value": "4"}}}),)
DYNAMIC: Final = device("mig-0", None, "4864Mi", parentUUID="GPU-0", profile="1g.5gb")
AT_4: Final = "gpu-0-mig-1g5gb-19-4"


def _mig(number: int, placement: tuple[int, int] | None, **more: Any) -> Gpu:
    """An instance of GPU-0 at this place."""
    made: dict[str, Any] = {"total": 5 * Gi, "parent": "GPU-0", "profile": "1g.5gb", **more}
    return gpu(uuid=f"MIG-{number}", placement=placement, **made)


CASES: Final[dict[str, Case]] = {
    "a whole card": Case(given=(result(),), declared={"GPU-0": CARD}),
    "a share of a card": Case(given=(result(memory="8Gi"),), declared={"GPU-0": 8 * Gi}),
    "a share as the driver rounds it": Case(given=(result(memory="9537Mi"),), declared={"GPU-0": 9537 * Mi}),
    "a share without a suffix": Case(given=(result(memory="1000000000"),), declared={"GPU-0": 10**9}),
    "a quantity with the driver's name in front": Case(
        given=(result(shared=True, consumedCapacity={"gpu.nvidia.com/memory": "8Gi"}),), declared={"GPU-0": 8 * Gi}
    ),
    "different shares of two cards": Case(
        given=(result(memory="4Gi"), result("gpu-1", "2Gi")), declared={"GPU-0": 4 * Gi, "GPU-1": 2 * Gi}
    ),
    "one of two requests": Case(
        given=(result(memory="4Gi", request="a"), result("gpu-1", "2Gi", request="b")),
        uses="gpu/b",
        declared={"GPU-1": 2 * Gi},
    ),
    "the alternative that was given": Case(
        given=(result(memory="4Gi", request="gpu/small"),), uses="gpu/gpu", declared={"GPU-0": 4 * Gi}
    ),
    "a shared card without an amount": Case(given=(result(memory="0"),), declared={}, verdict="undeclared"),
    "one of four shares, where shares count": Case(
        given=(SHARE,), slices=SHARES, policy=COUNTED, declared={"GPU-0": CARD // 4}
    ),
    "one of four shares, where shares do not count": Case(
        given=(SHARE,), slices=SHARES, declared={}, verdict="undeclared"
    ),
    "two of four shares and an amount": Case(
        given=(result(consumedCapacity={"memory": "6Gi", "shares": "2"}, shared=True),),
        slices=SHARES,
        policy=COUNTED,
        declared={"GPU-0": 6 * Gi},
    ),
    "a share of a card of which no slice says how many it has": Case(
        given=(SHARE,), policy=COUNTED, declared=None, verdict="unknown"
    ),
    "a share without a number, where shares count": Case(
        given=(result(memory="0"),), policy=COUNTED, declared={}, verdict="undeclared"
    ),
    "a negative amount": Case(given=(result(memory="-5"),), declared={}, verdict="undeclared"),
    "a shared card without a capacity": Case(given=(result(shared=True),), declared={}, verdict="undeclared"),
    "a request that the claim has not": Case(given=(result(),), uses="gpu/other", declared={}, verdict="undeclared"),
    "access for administration": Case(given=(result(adminAccess=True),), declared={}, verdict="undeclared"),
    "a network card beside a share": Case(
        given=(result("port-0", "3Gi", driver="nic.example.com"), result(memory="8Gi")), declared={"GPU-0": 8 * Gi}
    ),
    "a MIG instance": Case(
        given=(result("mig-0"),),
        slices=(resource_slice(MIG),),
        gpus=(gpu(uuid="MIG-0", total=40 * Gi, parent="GPU-0", profile="3g.40gb"), gpu(1)),
        declared={"MIG-0": 40 * Gi},
    ),
    "a MIG instance that was made for the pod": Case(
        given=(result("mig-0"),),
        slices=(resource_slice(DYNAMIC),),
        gpus=(gpu(uuid="MIG-5", total=5 * Gi, parent="GPU-0", profile="1g.5gb"), gpu(1)),
        declared={"MIG-5": 5 * Gi},
    ),
    "a MIG instance whose profile NVML writes in another way": Case(
        given=(result("mig-0"),),
        slices=(resource_slice(device("mig-0", None, "4864Mi", parentUUID="GPU-0", profile="1g.5gb+me")),),
        gpus=(gpu(uuid="MIG-5", total=5 * Gi, parent="GPU-0", profile="1g.5gb"), gpu(1)),
        declared={"MIG-5": 5 * Gi},
    ),
    "a MIG instance with media extensions beside one without": Case(
        given=(result("mig-0"),),
        slices=(resource_slice(device("mig-0", None, "9728Mi", parentUUID="GPU-0", profile="1g.10gb+me")),),
        gpus=(
            gpu(uuid="MIG-6", total=10 * Gi, parent="GPU-0", profile="1g.10gb"),
            gpu(uuid="MIG-5", total=9728 * Mi, parent="GPU-0", profile="1g.10gb+me"),
        ),
        declared={"MIG-5": 9728 * Mi},
    ),
    "a MIG instance of which only others are there": Case(
        given=(result("mig-0"),),
        slices=(resource_slice(DYNAMIC),),
        gpus=(gpu(uuid="MIG-5", total=40 * Gi, parent="GPU-0", profile="3g.40gb"), gpu(1)),
        declared=None,
        verdict="unknown",
    ),
    "a MIG instance of which a second one is elsewhere": Case(
        given=(result(AT_4),),
        slices=(resource_slice(device(AT_4, None, "4864Mi", parentUUID="GPU-0", profile="1g.5gb")),),
        gpus=(_mig(3, (19, 3)), _mig(4, (19, 4)), gpu(1)),
        declared={"MIG-4": 5 * Gi},
    ),
    "a MIG instance whose profile NVML calls otherwise": Case(
        given=(result(AT_4),),
        slices=(resource_slice(device(AT_4, None, "4864Mi", parentUUID="GPU-0", profile="1g.5gb")),),
        gpus=(_mig(3, (14, 4), profile="1g.5gb"), _mig(4, (19, 4), profile="1g.6gb"), gpu(1)),
        declared={"MIG-4": 5 * Gi},
    ),
    "a MIG instance that only others like it are left of": Case(
        given=(result(AT_4),),
        slices=(resource_slice(device(AT_4, None, "4864Mi", parentUUID="GPU-0", profile="1g.5gb")),),
        gpus=(_mig(3, (19, 3)), gpu(1)),
        declared=None,
        verdict="unknown",
    ),
    "a MIG instance, where one at an unknown place is left": Case(
        given=(result(AT_4),),
        slices=(resource_slice(device(AT_4, None, "4864Mi", parentUUID="GPU-0", profile="1g.5gb")),),
        gpus=(_mig(3, (19, 3)), _mig(4, None), gpu(1)),
        declared={"MIG-4": 5 * Gi},
    ),
    "one of two MIG instances at unknown places, of one size": Case(
        given=(result(AT_4),),
        slices=(resource_slice(device(AT_4, None, "4864Mi", parentUUID="GPU-0", profile="1g.5gb")),),
        gpus=(_mig(3, None), _mig(4, None), gpu(1)),
        declared={"": 5 * Gi},
    ),
    "one of two MIG instances at unknown places, of two sizes": Case(
        given=(result(AT_4),),
        slices=(resource_slice(device(AT_4, None, "4864Mi", parentUUID="GPU-0", profile="1g.5gb")),),
        gpus=(_mig(3, None, total=4 * Gi), _mig(4, None), gpu(1)),
        declared=None,
        verdict="unknown",
    ),
    "a MIG instance of a driver whose names say nothing of places": Case(
        given=(result(AT_4, driver="mig.example.com"),),
        slices=(
            resource_slice(
                device(AT_4, None, "4864Mi", parentUUID="GPU-0", profile="1g.5gb"), driver="mig.example.com"
            ),
        ),
        gpus=(_mig(3, (19, 3)), gpu(1)),
        declared={"MIG-3": 5 * Gi},
    ),
    "a share of a card that is gone from the slices": Case(given=(result("gpu-7", "8Gi"),), declared={"": 8 * Gi}),
    "a whole card that is gone from the slices": Case(given=(result("gpu-7"),), declared=None, verdict="unknown"),
    "a card that NVML does not list": Case(
        given=(result("gpu-9", "8Gi"),),
        slices=(resource_slice(device("gpu-9", "GPU-9")),),
        declared={},
        verdict="undeclared",
    ),
    "a card that may be hidden": Case(
        given=(result("gpu-9", "8Gi"),),
        slices=(resource_slice(device("gpu-9", "GPU-9")),),
        more={"missing": frozenset({"GPU 2"})},
        declared=None,
        verdict="unknown",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_each_allocation_gives(case: Case) -> None:
    """Point 42: the allocation counts, by NVML's UUID; never what was asked for, nor the size that a slice has."""
    raw = with_claims(raw_pod(), {"gpu": "c"}, {"main": [case.uses]})
    pods = read(listed(raw), listed(claim("c", *case.given)), listed(*case.slices))
    used = {("a/main", 1): 1} if case.declared is None or not case.declared else {}
    found = accounts(pods, used, RULE + case.policy, gpus=case.gpus, **case.more)
    assert {each.verdict.value for each in found} == {case.verdict}
    declared = {each.account.gpu or "": each.declared for each in found if each.declared is not None}
    assert declared == (case.declared or {})
    assert all(each.limit_unknown for each in found) is (case.declared is None)


def test_each_card_is_compared_with_its_own_amount() -> None:
    """Point 42: 4Gi on one card and 2Gi on another allow neither 6Gi on one of them nor anything on a third."""
    raw = with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})
    pods = read(listed(raw), listed(claim("c", result(memory="4Gi"), result("gpu-1", "2Gi"))))
    found = accounts(pods, {("a/main", 0): 3 * Gi, ("a/main", 1): 3 * Gi, ("a/main", 2): Gi}, gpus=(*GPUS, gpu(2)))
    assert {each.account.gpu: (each.declared, each.verdict.value) for each in found} == {
        "GPU-0": (4 * Gi, "within"),
        "GPU-1": (2 * Gi, "over"),
        "GPU-2": (0, "over"),
    }
    assert {each.declared_by for each in found} == {"claim c/gpu"}


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        (((19, 3), (19, 4)), {"MIG-3": (0, "over"), "MIG-4": (5 * Gi, "within")}),
        ((None, None), {"MIG-3": (5 * Gi, "within")}),
    ],
    ids=["known", "unknown"],
)
def test_use_of_another_instance_of_the_profile_is_seen_where_places_are(
    places: tuple[Any, Any], expected: dict[str, tuple[int, str]]
) -> None:
    """Point 42: nothing is declared on an instance that a claim does not name; where that is unknown no pod is over."""
    raw = with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})
    slices = listed(resource_slice(device(AT_4, None, "4864Mi", parentUUID="GPU-0", profile="1g.5gb")))
    pods = read(listed(raw), listed(claim("c", result(AT_4))), slices)
    seen = snapshot([replace(use(10, Gi), gpu="MIG-3")], [process(10)], (_mig(3, places[0]), _mig(4, places[1])))
    found = assessed(seen, pods, parse_policy(RULE))
    assert {each.account.gpu: (each.declared, each.verdict.value) for each in found} == expected
    assert all(set(each.declared_by_gpu) <= {each.account.gpu} for each in found)


def test_two_containers_on_one_device_have_one_amount() -> None:
    """Point 42: it counts once for the pod; a rule that compares each container compares them with it together."""
    raw = with_claims(raw_pod("a", "main", "side"), {"gpu": "c"}, {"main": ["gpu"], "side": ["gpu"]})
    pods = read(listed(raw), listed(claim("c", result(memory="4Gi"))))
    used = {("a/main", 0): 3 * Gi, ("a/side", 0): 5 * Gi}
    (both,) = accounts(pods, used)
    assert (both.declared, both.used, both.verdict.value) == (4 * Gi, 8 * Gi, "over")
    one_by_one = accounts(pods, used, RULE.replace("match", 'account = "container"\nmatch'))
    assert [(each.account.container, each.verdict.value) for each in one_by_one] == [
        ("main", "over"),
        ("side", "over"),
    ]


def test_a_claim_counts_once_under_however_many_entries() -> None:
    """Point 42: only the names of entries have to differ, so a tenant could multiply its share by them."""
    entries = {f"e{number}": "c" for number in range(10)}
    raw = with_claims(raw_pod(), entries, {"main": list(entries)})
    (found,) = accounts(read(listed(raw), listed(claim("c", result(memory="4Gi")))), {("a/main", 0): 5 * Gi})
    assert (found.declared, found.verdict.value) == (4 * Gi, "over")


def test_a_share_without_an_amount_takes_nothing_from_one_with_an_amount() -> None:
    """Points 6 and 42: on a card where a pod holds both, the default comes beside what it holds."""
    uses = {"main": ["gpu/a"], "side": ["gpu/b"]}
    raw = with_claims(raw_pod("a", "main", "side"), {"gpu": "c"}, uses)
    given = claim("c", result(memory="40Gi", request="a"), result(memory="0", request="b"))
    pods = read(listed(raw), listed(given))
    found = accounts(pods, {("a/main", 0): 41 * Gi}, WITH_DEFAULT)
    assert {each.account.gpu: (each.declared, each.verdict.value) for each in found} == {
        "GPU-0": (42 * Gi, "within"),
        None: (42 * Gi, "within"),
    }


def test_a_default_is_for_all_cards_together() -> None:
    """Points 6 and 42: neither a claim of a container that does not count now multiplies it, nor an open share."""
    raw = with_claims(raw_pod("a", "main", init=("prep",)), {"gpu": "c"}, {"prep": ["gpu"]})
    both = {("a/main", 0): int(1.9 * Gi), ("a/main", 1): int(1.9 * Gi)}
    found = accounts(read(listed(raw), listed(claim("c", result(memory="1Mi")))), both, WITH_DEFAULT)
    assert {each.account.gpu: each.verdict.value for each in found} == {
        "GPU-0": "within",
        "GPU-1": "within",
        None: "over",
    }
    raw = with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})
    given = claim("c", result(memory="1Mi"), result("gpu-0", "0"), result("gpu-1", "0"))
    found = accounts(read(listed(raw), listed(given)), both, WITH_DEFAULT)
    assert {each.account.gpu: each.verdict.value for each in found} == {
        "GPU-0": "within",
        "GPU-1": "within",
        None: "over",
    }


def test_a_number_of_cards_beside_a_claim_frees_no_pod() -> None:
    """Point 42: which card the plugin gave can't be told, so its amount counts on each, and no more than that."""
    raw = with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})
    raw["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}
    pods = read(listed(raw), listed(claim("c", result("gpu-1", memory="1Gi"))))
    for used, verdict in ((900 * Mi, "within"), (3 * Gi, "over")):
        # The claim's card is the one that it uses most.
        found = accounts(pods, {("a/main", 0): used, ("a/main", 1): used + Mi}, RULE)
        assert {each.verdict.value for each in found} == {verdict}


def test_a_device_of_an_unknown_driver_is_not_taken_for_a_card() -> None:
    """Point 43: a share of a network card has a memory too; while no slice of its driver is read nobody knows."""
    raw = with_claims(raw_pod(), {"nic": "c"}, {"main": ["nic"]})
    given = claim("c", {**result("port-0", "1Gi", driver="nic.example.com"), "shareID": "a"})
    (found,) = accounts(read(listed(raw), listed(given), listed()), {("a/main", 0): 5 * Gi}, WITH_DEFAULT)
    assert (found.verdict.value, found.declared) == ("unknown", None)


DISK: Final = result("disk-0", "1Gi", driver="disks.example.com", pool="san")
DISKS: Final = resource_slice(device("disk-0", None), driver="disks.example.com", network="san")
FAR: Final = result("gpu-far", pool="fabric")
REMOTE: Final[dict[str, tuple[dict[str, Any], tuple[dict[str, Any], ...], int | None, bool]]] = {
    "a device of no node": (DISK, (DISKS, *SLICES), 2 * Gi, True),
    "a device of no node, where no driver publishes any of this node": (DISK, (DISKS,), 2 * Gi, True),
    "a device whose slice has not been read": (DISK, SLICES, None, True),
    "a card while the slices of its driver are missing": (result(), (DISKS,), None, True),
    "a card while its driver publishes only those of no node": (
        result(),
        (resource_slice(device("gpu-far", None), network="fabric"),),
        None,
        True,
    ),
    "a device of no node, by the driver of the cards": (
        FAR,
        (resource_slice(device("gpu-far", None), network="fabric"), *SLICES),
        2 * Gi,
        True,
    ),
    "a card of this node that is published for no node": (
        FAR,
        (resource_slice(device("gpu-far", "GPU-0"), network="fabric"),),
        CARD,
        True,
    ),
    "a network card of this node": (result("port-9", driver="nic.example.com"), SLICES, 2 * Gi, False),
    "a card of this node": (result(), SLICES, CARD, False),
}


@pytest.mark.parametrize(("given", "slices", "declared", "is_stranger"), REMOTE.values(), ids=REMOTE)
def test_a_device_that_several_nodes_can_reach_frees_no_pod(
    given: dict[str, Any], slices: tuple[dict[str, Any], ...], declared: int | None, is_stranger: bool
) -> None:
    """Point 43: what certainly is no card of this node gives nothing; that its slice is missing proves nothing."""
    raw = with_claims(raw_pod(), {"any": "c"}, {"main": ["any"]})
    reader = ClaimReader()
    pods = read(listed(raw), listed(claim("c", given)), listed(*slices), reader)
    (found,) = accounts(pods, {("a/main", 0): 3 * Gi}, WITH_DEFAULT)
    assert found.declared == declared
    assert found.verdict.value == ("unknown" if declared is None else "within" if declared == CARD else "over")
    assert bool(reader.strangers) is is_stranger
    if declared is None:
        (gap,) = reader.gaps
        assert f"no ResourceSlice lists {given['driver']}/{given['pool']}/{given['device']}" in gap.problem.cause
    else:
        assert reader.gaps == ()


def test_slices_that_were_not_read_yet_are_no_gap_and_none_at_all_are() -> None:
    """Point 43: a daemon that begins reports nothing that is on its way; a driver that is gone is reported."""
    raw = with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})
    (pod,), _ = parse_pods(listed(raw))
    allocations, _ = parse_claims(listed(claim("c", result())))
    for devices, number in ((NOT_READ, 0), ({}, 1)):
        reader = ClaimReader()
        reader.with_claims((pod,), allocations, devices)
        assert len(reader.gaps) == number


def test_a_claim_that_no_container_uses_is_no_gap() -> None:
    """Point 43: nothing is left alone because of it."""
    raw = with_claims(raw_pod(), {"gpu": "c"}, {})
    reader = ClaimReader()
    (pod,) = read(listed(raw), listed(), reader=reader)
    assert (reader.gaps, missing_claims([pod])) == ((), ())


def test_each_card_names_the_request_that_gave_it() -> None:
    """What its owner has to change is the request of the card that is over its limit."""
    raw = with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})
    given = claim("c", result(memory="4Gi", request="a"), result("gpu-1", "2Gi", request="b"))
    found = accounts(read(listed(raw), listed(given)), {("a/main", 0): Gi, ("a/main", 1): 3 * Gi})
    assert {each.account.gpu: each.declared_by for each in found} == {"GPU-0": "claim c/a", "GPU-1": "claim c/b"}
    over = next(each for each in found if each.account.gpu == "GPU-1")
    assert "whose request b has capacity.requests.memory of at least 3Gi" in advice(over, parse_policy(RULE))


def test_slices_of_another_version_or_node_are_left_out() -> None:
    """Point 42: an earlier version has the UUID elsewhere, and another node can have a device of the same name."""
    good, other = resource_slice(device()), resource_slice(device(uuid="GPU-9"))
    other["spec"]["nodeName"] = "n2"
    devices, gaps = parse_slices(listed(good, other), "n1")
    assert ([each.uuid for each in devices.values()], gaps) == (["GPU-0"], ())
    devices, (gap,) = parse_slices(listed({**good, "apiVersion": "resource.k8s.io/v1beta1"}), "n1")
    assert devices == {}
    assert "it is of resource.k8s.io/v1beta1: write `kubectl get resourceslices.v1" in gap.problem.cause


@pytest.mark.parametrize(
    ("asks", "verdict"),
    [({"nvidia.com/gpu": "1"}, "unknown"), ({"veriff.com/gpu-memory": "4Gi"}, "within")],
    ids=["a whole card", "bytes"],
)
def test_a_card_by_a_plugin_is_not_taken_for_one_by_a_claim(asks: dict[str, str], verdict: str) -> None:
    """Point 42: a pod with both may use all that it was given, whichever of its cards it uses most."""
    raw = with_claims(raw_pod("a", "main", "side"), {"gpu": "c"}, {"main": ["gpu"]})
    raw["spec"]["containers"][1]["resources"]["limits"] = asks
    pods = read(listed(raw), listed(claim("c", result(memory="40Gi"))))
    found = accounts(pods, {("a/main", 0): 30 * Gi, ("a/side", 1): 3 * Gi})
    assert {each.verdict.value for each in found} == {verdict}


def test_an_init_container_s_request_counts_while_it_runs() -> None:
    """Points 5 and 42: in the main phase only what main containers use counts."""
    raw = with_claims(raw_pod("a", "main", init=("prep",)), {"gpu": "c"}, {"main": ["gpu/b"], "prep": ["gpu"]})
    given = claim("c", result(memory="4Gi", request="a"), result("gpu-1", "2Gi", request="b"))
    (found,) = accounts(read(listed(raw), listed(given)), {("a/main", 1): Gi})[1:]
    assert (found.account.gpu, found.declared) == ("GPU-1", 2 * Gi)


def test_a_resource_that_a_claim_gave_is_no_card_beside_it() -> None:
    """Point 42: of `nvidia.com/gpu: 1` by a claim the claim says what it is, for the container that it is for."""
    raw = raw_pod(
        "a",
        "main",
        "side",
        extendedResourceClaimStatus={
            "resourceClaimName": "made",
            "requestMappings": [{"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "r-0"}],
        },
    )
    raw["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    for given, expected in ((result(request="r-0"), CARD), (result(memory="0", request="r-0"), None)):
        found = accounts(read(listed(raw), listed(claim("made", given))), {("a/main", 0): Gi})
        assert [each.declared for each in found] == [expected]


def test_an_annotation_for_a_container_gives_way_to_its_claim() -> None:
    """Point 42: also one that names the container, whatever it says."""
    raw = with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})
    raw["metadata"]["annotations"] = {"vram-main": "70Gi"}
    own = '[[declaration]]\nannotation = "vram-{container}"\nunit = "1"\n[[rule]]'
    pods = read(listed(raw), listed(claim("c", result(memory="8Gi"))))
    found = accounts(pods, {("a/main", 0): 9 * Gi}, RULE.replace("[[rule]]", own))
    assert {each.account.gpu: (each.declared, each.verdict.value) for each in found} == {"GPU-0": (8 * Gi, "over")}


def test_the_owner_is_told_what_to_ask_for() -> None:
    """A claim can't be raised once something was given, so the advice is a new one; a whole card has no number."""
    raw = with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})
    for given, expected in (
        (
            result(memory="4Gi", request="gpu/small"),
            (
                "use less GPU memory or make the pod again with a ResourceClaim like c whose request gpu "
                "has capacity.requests.memory of at least 5Gi"
            ),
        ),
        (result(), "use less GPU memory or ask for more or larger GPUs than its claim c/gpu"),
    ):
        used = 5 * Gi if "consumedCapacity" in given else 81 * Gi
        (found,) = accounts(read(listed(raw), listed(claim("c", given))), {("a/main", 0): used})
        assert advice(found, parse_policy(RULE)) == expected


@pytest.mark.parametrize("used", [3 * Gi, 37 * Gi + 5])
@pytest.mark.parametrize("default", ["0", "2Gi"])
def test_the_owner_of_a_share_without_an_amount_is_told_what_to_add(default: str, used: int) -> None:
    """Points 4 and 42: the default applies to it, and its owner learns why, and what to ask for; that is enough."""
    raw = with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})
    policy = RULE.replace('"0"', '"256Mi"').replace('"0%"', '"2%"').replace("match", f'default = "{default}"\nmatch')
    (found,) = accounts(read(listed(raw), listed(claim("c", result(memory="0")))), {("a/main", 0): used}, policy)
    assert (found.verdict.value, found.declared_by, found.open_share) == ("over", "default", "claim c/gpu")
    assert open_share(found) == (
        "claim c/gpu gives it a share of a card, but no amount of memory: to have one, make the pod again with a "
        "ResourceClaim like c whose request gpu has capacity.requests.memory"
    )
    text = advice(found, parse_policy(policy))
    assert text.startswith(f"use {'no' if default == '0' else 'less'} GPU memory or make the pod again with a Resource")
    asked = text.rpartition(" has capacity.requests.memory of at least ")[2]
    (after,) = accounts(read(listed(raw), listed(claim("c", result(memory=asked)))), {("a/main", 0): used}, policy)
    assert (after.verdict.value, after.open_share) == ("within", "")


OPEN: Final[dict[str, tuple[tuple[dict[str, Any], ...], str, str]]] = {
    "nothing limits it": ((result(memory="0"),), "", "make the pod again"),
    "its driver offers no amounts": ((result(shared=True),), "", "no amount of memory"),
    "one of two requests": ((result(memory="4Gi", request="a"), result(memory="0", request="b")), "", "claim c/b"),
    "a share by number that does not count": ((SHARE,), "", "make the pod again"),
    "a share by number that counts": ((SHARE,), COUNTED, ""),
    "a share with an amount": ((result(memory="4Gi"),), "", ""),
    "a network card": ((result("port-0", "0", driver="nic.example.com"),), "", ""),
}


@pytest.mark.parametrize(("given", "more", "says"), OPEN.values(), ids=OPEN)
def test_what_is_said_of_a_share_without_an_amount(given: tuple[dict[str, Any], ...], more: str, says: str) -> None:
    """Point 42: it is said only where no amount counts, and what to add only where the driver takes amounts."""
    raw = with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})
    slices = (*SHARES, *SLICES[1:]) if SHARE in given else SLICES
    pods = read(listed(raw), listed(claim("c", *given)), listed(*slices))
    texts = {open_share(each) for each in accounts(pods, {("a/main", 0): Gi}, RULE + more)}
    assert all(says in text and bool(text) is bool(says) for text in texts)
    assert all("make the pod again" not in text for text in texts) is (says == "no amount of memory" or not says)


def test_an_annotation_gives_the_amount_that_a_claim_leaves_open() -> None:
    """Point 42: then nothing is missing, and nothing is said."""
    raw = with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})
    raw["metadata"]["annotations"] = {"vram": "4Gi"}
    own = RULE.replace("[[rule]]", '[[declaration]]\nannotation = "vram"\nunit = "1"\n[[rule]]')
    (found,) = accounts(read(listed(raw), listed(claim("c", result(memory="0")))), {("a/main", 0): Gi}, own)
    assert (found.declared, found.open_share) == (4 * Gi, "")


def test_the_owner_of_a_template_is_told_its_name() -> None:
    """The claim has a name that nobody wrote; the next pod gets what the template says."""
    raw = raw_pod(resourceClaimStatuses=[{"name": "gpu", "resourceClaimName": "pod-a-gpu-79sk5"}])
    raw["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "small"}]
    raw["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    given = claim("pod-a-gpu-79sk5", result(memory="4Gi"))
    (found,) = accounts(read(listed(raw), listed(given)), {("a/main", 0): 5 * Gi})
    assert found.declared_by == "claim pod-a-gpu-79sk5/gpu"
    assert "make the pod again with a ResourceClaimTemplate like small whose request gpu" in advice(
        found, parse_policy(RULE)
    )


def test_a_policy_that_begins_to_read_claims_reads_the_pods_again() -> None:
    """Point 39: what was remembered was read without them, though no table and no key of the policy has changed."""
    pods = read(
        listed(with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})), listed(claim("c", result(memory="8Gi")))
    )
    memory, seen = DeclarationMemory(), snapshot([use(10, Gi)], [process(10, "a/main")], GPUS)
    verdicts = []
    for schemes in ("[]", '["dra"]', "[]"):
        given = inputs(parse_policy(RULE.replace('["*"]', schemes)), pods)
        verdicts += [each.verdict.value for each in assess(attribute(seen, pods), seen, given, memory)]
    assert verdicts == ["unknown", "within", "unknown"]


@pytest.mark.parametrize(
    ("asks", "annotation", "given", "declared"),
    [
        ({}, "3Gi", "8Gi", {"GPU-0": 8 * Gi}),
        ({}, "3Gi", "0", {"": 3 * Gi}),
        ({"veriff.com/gpu-memory": "3Gi"}, None, "8Gi", {"GPU-0": 11 * Gi, "": 11 * Gi}),
    ],
    ids=["an annotation gives way", "an annotation where the claim gives none", "a resource counts beside it"],
)
def test_claims_come_beside_resources_and_before_annotations(
    asks: dict[str, str], annotation: str | None, given: str, declared: dict[str, int]
) -> None:
    """Points 3 and 42: a tenant's word counts only where its claims give no amount, and nothing is misdeclared."""
    raw = with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})
    raw["spec"]["containers"][0]["resources"]["limits"] = asks
    raw["metadata"]["annotations"] = {} if annotation is None else {"vram": annotation}
    own = '[[declaration]]\nannotation = "vram"\nunit = "1"\n[[rule]]'
    pods = read(listed(raw), listed(claim("c", result(memory=given))))
    found = accounts(pods, {("a/main", 0): Gi}, RULE.replace("[[rule]]", own))
    assert {each.account.gpu or "": each.declared for each in found if each.verdict.value == "within"} == declared


UNREAD: Final[dict[str, tuple[bytes, str]]] = {
    "missing": (listed(), "it was not found"),
    "not allocated": (listed(claim("c", allocated=False)), "nothing has been allocated to it"),
    "reserved for others": (listed(claim("c", result(), pods=("b",))), "it is not reserved for the pod"),
}


@pytest.mark.parametrize("why", UNREAD)
def test_what_a_claim_gave_is_unknown(why: str) -> None:
    """Point 43: never undeclared, nor the default or an annotation, and one gap says so."""
    claims, cause = UNREAD[why]
    raw = with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})
    raw["metadata"]["annotations"] = {"vram": "1Gi"}
    reader = ClaimReader()
    pods = read(listed(raw), claims, reader=reader)
    own = 'default = "1Gi"\nmatch'
    policy = RULE.replace("[[rule]]", '[[declaration]]\nannotation = "vram"\nunit = "1"\n[[rule]]').replace(
        "match", own
    )
    (found,) = accounts(pods, {("a/main", 0): 9 * Gi}, policy)
    assert (found.verdict.value, found.declared) == ("unknown", None)
    assert found.limit_unknown.endswith(cause)
    (gap,) = reader.gaps
    assert gap.what == "claims of ns/pod-a"
    assert cause in str(gap.problem)


@pytest.mark.parametrize("holder", ["main", "side"])
def test_a_claim_that_is_not_known_is_not_replaced_by_what_another_container_declares(holder: str) -> None:
    """Point 43: 4Gi of a container say nothing of a whole card that it, or another one, may hold besides."""
    raw = with_claims(raw_pod("a", "main", "side"), {"gpu": "c"}, {holder: ["gpu"]})
    raw["spec"]["containers"][1]["resources"]["limits"] = {"veriff.com/gpu-memory": "4Gi"}
    (found,) = accounts(read(listed(raw), listed()), {("a/main", 0): 60 * Gi})
    assert (found.verdict.value, found.declared) == ("unknown", None)


def test_a_pod_that_was_written_down_before_its_claims_were_is_unknown() -> None:
    """Point 43: a recording, or the row of a pod that has left, may lack what the claims of its containers are."""
    (pod,) = read(listed(with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})), listed(claim("c", result())))
    earlier = replace(pod, claims={})
    policy = RULE.replace("match", 'default = "1Gi"\nmatch')
    (found,) = accounts([earlier], {("a/main", 0): 9 * Gi}, policy)
    assert found.verdict.value == "unknown"


def test_a_claim_that_gives_nothing_frees_no_pod() -> None:
    """Point 43: what the editor of a namespace can write, such as 65 claims, leaves the default in force."""
    entries = {f"e{number}": f"c{number}" for number in range(65)}
    raw = with_claims(raw_pod(), entries, {"main": ["e64"]})
    claims = listed(*(claim(name, result(memory="70Gi")) for name in entries.values()))
    (found,) = accounts(
        read(listed(raw), claims), {("a/main", 0): 9 * Gi}, RULE.replace("match", 'default = "1Gi"\nmatch')
    )
    assert (found.verdict.value, found.declared_by) == ("over", "default")


def test_a_finished_pod_s_claims_are_not_asked_for() -> None:
    """They are gone with it, and a request would find nothing for as long as the pod is listed."""
    raw = with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})
    pods = read(
        listed(raw, {**with_claims(raw_pod("b"), {"gpu": "d"}, {"main": ["gpu"]}), "status": {"phase": "Failed"}}),
        listed(),
    )
    assert [(pod.uid, name) for pod, name in missing_claims(pods)] == [("a", "c")]


def test_a_claim_is_read_anew_for_each_pod() -> None:
    """Point 43: the same claim is on another card for the next pod; for the first one, what it was given holds."""
    reader = ClaimReader()
    first, second = (with_claims(raw_pod(uid), {"gpu": "c"}, {"main": ["gpu"]}) for uid in "ab")
    (one,) = read(listed(first), listed(claim("c", result(memory="4Gi"))), reader=reader)
    again, other = read(
        listed(first, second), listed(claim("c", result("gpu-1", "2Gi"), pods=("a", "b"))), reader=reader
    )
    assert [each.claims["gpu"].devices[0].uuid for each in (one, again, other)] == ["GPU-0", "GPU-0", "GPU-1"]
    assert again.claims["gpu"].shared_with == ("ns/pod-b",)
    (gone,) = read(listed({**first, "status": {"phase": "Succeeded"}}), listed(), reader=reader)
    assert gone.claims["gpu"].devices == one.claims["gpu"].devices


def test_pods_stay_the_same_objects_while_nothing_changes() -> None:
    """What is made of a pod is compared by identity, in every cycle."""
    found, _ = parse_pods(listed(with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})))
    allocations, _ = parse_claims(listed(claim("c", result())))
    devices, _ = parse_slices(listed(*SLICES))
    reader = ClaimReader()
    first = reader.with_claims(found, allocations, devices)
    assert reader.with_claims(found, allocations, devices) is first
    same = reader.with_claims(tuple(found), replace(allocations), dict(devices))
    assert same[0] is first[0]
    assert reader.with_claims((replace(found[0], labels={"a": "b"}),), allocations, devices)[0] is not first[0]


@pytest.mark.parametrize(
    ("claims", "slices", "what"),
    [
        (listed(claim("c", result(memory="much"))), listed(), "claim ns/c"),
        (listed(claim("c", *[result()] * 33)), listed(), "claim ns/c"),
        (listed(claim("c", {"request": "gpu"})), listed(), "claim ns/c"),
        (listed(), listed({"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {}}), "slice s"),
    ],
)
def test_what_can_not_be_read_is_a_gap_and_the_rest_counts(claims: bytes, slices: bytes, what: str) -> None:
    """Point 43: one broken claim or slice costs the others nothing, and its gap names it."""
    good = json.loads(claims)["items"], json.loads(slices)["items"]
    found, gaps = parse_claims(listed(*good[0], claim("good", result())))
    devices, more = parse_slices(listed(*good[1], *SLICES))
    assert [each.what for each in (*gaps, *more)] == [what]
    assert ("ns", "good") in found.allocations
    assert len(devices) == 3


def test_the_newest_generation_of_a_pool_counts() -> None:
    """Point 42: a driver publishes its devices again, and what is left of the older slices says nothing."""
    old, new = (resource_slice(device(uuid=f"GPU-{each}"), generation=each) for each in (1, 2))
    for order in ((old, new), (new, old)):
        devices, _ = parse_slices(listed(*order))
        assert [each.uuid for each in devices.values()] == ["GPU-2"]


def test_a_whole_card_that_no_slice_lists_shows_although_nothing_is_used() -> None:
    """Point 43: the pod certainly has a card, so its unknown limit is shown, and a gap says what to look at."""
    raw = with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})
    reader = ClaimReader()
    pods = read(listed(raw), listed(claim("c", result("gpu-9"))), reader=reader)
    (found,) = accounts(pods, {})
    assert (found.verdict.value, found.declared_by) == ("unknown", "claim c/gpu")
    (gap,) = reader.gaps
    assert "no ResourceSlice lists gpu.nvidia.com/n1/gpu-9" in gap.problem.cause
    assert "kubectl get resourceslices" in gap.problem.remedy
    share = claim("c", result("gpu-9", "4Gi"))
    read(listed(raw), listed(share), reader=(other := ClaimReader()))
    assert other.gaps == ()


def mps_config(source: str, limit: object, **more: Any) -> dict[str, Any]:
    """A configuration for NVIDIA's driver that lets each MPS client pin so much."""
    sharing = {"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": limit}}
    return {"source": source, "opaque": {"driver": "gpu.nvidia.com", "parameters": {"sharing": sharing}}, **more}


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ([mps_config("FromClaim", "10Gi")], 10 * Gi),
        ([mps_config("FromClaim", "8Gi"), mps_config("FromClass", "10Gi")], 8 * Gi),
        ([mps_config("FromClaim", "8Gi"), mps_config("FromClaim", "9Gi")], 9 * Gi),
        ([mps_config("FromClaim", "8Gi", requests=["other"])], None),
        ([mps_config("FromClaim", "8Gi", requests=["gpu"])], 8 * Gi),
        (
            [
                {
                    "source": "FromClaim",
                    "opaque": {"driver": "gpu.nvidia.com", "parameters": {"sharing": {"strategy": "TimeSlicing"}}},
                }
            ],
            None,
        ),
        ([mps_config("FromClaim", ["much"]), "odd", {"opaque": 3}], None),
        ({"odd": 1}, None),
    ],
)
def test_what_a_claim_lets_mps_clients_pin_is_shown_and_limits_nobody(config: Any, limit: int | None) -> None:
    """Point 42: it is per process, so the pod has all of the card; whatever stands there, the claim can be read."""
    given = claim("c", result())
    given["status"]["allocation"]["devices"]["config"] = config
    pods = read(listed(with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})), listed(given))
    assert pods[0].claims["gpu"].devices[0].pinned_limit == limit
    (found,) = accounts(pods, {("a/main", 0): 20 * Gi})
    assert (found.declared, found.verdict.value) == (CARD, "within")
