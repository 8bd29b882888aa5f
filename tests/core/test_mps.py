"""MPS: which processes are left alone since other pods' work would break, and which are not."""

from dataclasses import replace
from typing import Any

import pytest

from tests.worlds import (
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
from watchdog.core.assess import assess
from watchdog.core.assessment import Assessment, KnownDrains
from watchdog.core.attribute import attribute
from watchdog.core.brakes import Brake
from watchdog.core.decide import decide
from watchdog.core.hazards import HazardRole
from watchdog.core.ledger import Ledger
from watchdog.core.model import CONTRADICTORY, GONE, UNREADABLE, ZOMBIE, Place, Pod, Process, ProcessKey, Snapshot, Use
from watchdog.core.policy import Policy, Safety

OFFENDER = pod("a", container("main", "1Gi"), container("side"))
CLIENT = use(1, 9 * Gi, mps=True)
DAEMON = pod("d", container(of="d", privileged=True), owner=owner("DaemonSet", "mps-control-daemon"))
OTHER = pod("b", container(of="b"))
AT_ONCE = policy(rule(step()))
ACCEPTED = replace(AT_ONCE, safety=Safety(signal_mps_clients=True))


def server(pid: int, where: str | None, **more: Any) -> Process:
    """A process named like an MPS server."""
    return process(pid, where, mps_server=True, **more)


def withheld(
    seen: Snapshot, *pods: Pod, under: Policy = AT_ONCE, offender: Pod = OFFENDER
) -> list[tuple[Brake | None, bool]]:
    """What withholds each due step of the offender, and whether it is taken."""
    plan = planned(seen, [offender, *pods], under)
    return [(entry.withheld_by, entry.taken) for entry in plan.entries if entry.account.uid == "a"]


HELD, KILLED = [(Brake.HAZARD, False)], [(None, True)]


@pytest.mark.parametrize(
    ("uses", "processes", "expected"),
    [
        ([], [], HELD),  # its server is not seen
        ([use(2, 1)], [server(2, None)], HELD),
        ([use(2, 1)], [server(2, "d/main", privileged=True)], HELD),
        ([use(2, 1)], [server(2, "b/main")], HELD),
        ([use(2, 1)], [server(2, "a/side")], KILLED),
        ([use(2, 1, 1)], [server(2, "a/side")], HELD),  # on another card than the client
        ([use(2, None)], [server(2, "a/side")], KILLED),
        # With two that could be meant it is not known whose client it is.
        ([use(2, 1), use(3, 1)], [server(2, "a/side"), server(3, None)], HELD),
        ([use(2, 1), use(3, 1)], [server(2, "a/side"), server(3, "d/main", privileged=True)], HELD),
        ([use(2, 1), use(3, 1)], [server(2, "a/side"), server(3, "d/main")], KILLED),
        ([use(2, 1), use(3, 1)], [server(2, "a/side"), server(3, "unlisted/main")], HELD),
        ([use(2, 1), use(3, 1)], [server(2, "a/side"), server(3, None, place=UNREADABLE)], HELD),
        ([use(2, 1), use(3, 1, 1)], [server(2, "a/side"), server(3, None)], KILLED),
        ([use(2, 1), use(3, 1)], [server(2, "a/side"), server(3, "b/main")], KILLED),
        ([use(2, 1), use(3, 1)], [server(2, "a/side"), server(3, None, place=GONE)], KILLED),
        ([use(2, 1), use(3, 1)], [server(2, "a/side"), server(3, None, place=ZOMBIE)], KILLED),
        # A client elsewhere that no server explains may well be one of the offender's own server.
        ([use(2, 1), use(3, 1, mps=True)], [server(2, "a/side"), process(3, "b/main")], HELD),
        ([use(2, 1), use(3, 1, 1, mps=True)], [server(2, "a/side"), process(3, "b/main")], KILLED),
    ],
)
def test_a_client_is_left_alone_unless_its_pod_alone_has_its_server(
    uses: list[Use], processes: list[Process], expected: list[tuple[Brake | None, bool]]
) -> None:
    """Point 36: a client of a server outside its pod is not ended; one of a server in its pod is, as any process."""
    seen = snapshot([CLIENT, *uses], processes, [gpu(0), gpu(1)])
    assert withheld(seen, DAEMON, OTHER) == expected
    assert withheld(seen, DAEMON, OTHER, under=ACCEPTED) == KILLED or expected is KILLED


@pytest.mark.parametrize(
    ("do", "scope", "client", "expected"),
    [
        ("kill", "container", "a/main", HELD),
        ("kill", "container", "a/side", KILLED),
        ("kill", "process", "a/main", KILLED),
        ("kill", "pod", "a/side", HELD),
        ("evict", "container", "a/side", HELD),
        ("evict", "container", "a/not-listed", HELD),
        ("warn", "container", "a/main", KILLED),
    ],
)
def test_only_what_would_be_ended_counts(do: str, scope: str, client: str, expected: object) -> None:
    """Point 36: what matters is whether a client is among the processes that a step would end."""
    seen = snapshot([use(1, 9 * Gi), use(2, 1, mps=True)], [process(2, client)])
    assert withheld(seen, under=policy(rule(step(do=do, scope=scope)))) == expected  # type: ignore[arg-type]


def test_the_largest_process_may_be_the_client() -> None:
    """Point 36: with scope process the one that would be signalled counts."""
    seen = snapshot([use(1, Gi), use(2, 9 * Gi, mps=True)])
    assert withheld(seen, under=policy(rule(step(scope="process")))) == HELD


def test_a_client_on_another_card_counts() -> None:
    """Point 36: an account on one card ends the container's processes on all of them."""
    seen = snapshot([use(1, 9 * Gi), use(2, 1, 1, mps=True)], gpus=[gpu(0), gpu(1)])
    per_gpu = replace(AT_ONCE.declarations[0], per="gpu")
    assert (Brake.HAZARD, False) in withheld(seen, under=replace(AT_ONCE, declarations=(per_gpu,)))


@pytest.mark.parametrize(
    ("where", "more", "clients", "expected"),
    [
        ("a/main", {}, [], KILLED),
        ("a/main", {"privileged": True}, [], KILLED),
        ("a/main", {}, [use(2, 1, 1, mps=True)], KILLED),
        ("a/main", {}, [use(2, 1, mps=True)], KILLED),
        # As NVIDIA's DRA driver starts it: in a Deployment's pod, and privileged.
        ("a/main", {"privileged": True}, [use(2, 1, mps=True)], HELD),
    ],
)
def test_a_name_protects_nobody(
    where: str, more: dict[str, object], clients: list[Use], expected: list[tuple[Brake | None, bool]]
) -> None:
    """Point 35: an offender called nvidia-cuda-mps-server is ended, unless it is privileged and others need it.

    What /proc shows of that proves nothing if the pod's spec does not say so.
    """
    processes = [server(1, where, **more), process(2, "b/main")]
    seen = snapshot([use(1, 9 * Gi), *clients], processes, [gpu(0), gpu(1)])
    privileged = replace(OFFENDER, containers=(container("main", "1Gi", privileged=True), container("side")))
    explained = snapshot([*seen.uses, use(3, 1)], [*processes, server(3, None)], seen.gpus)
    for under in (AT_ONCE, ACCEPTED):
        assert withheld(seen, OTHER, under=under, offender=privileged) == expected
        assert withheld(seen, OTHER, under=under) == KILLED
    assert withheld(explained, OTHER, offender=privileged) == KILLED


@pytest.mark.parametrize("under", [AT_ONCE, ACCEPTED])
def test_a_server_of_a_daemonset_is_never_ended(under: Policy) -> None:
    """Point 35: neither it nor the container that it runs in, whatever else runs there; and never by an eviction."""
    shared = pod("d", container("main", "1Gi", of="d", privileged=True), owner=owner("DaemonSet", "mps-control-daemon"))
    seen = snapshot([use(1, 2 * Gi), use(2, 9 * Gi)], [server(1, "d/main", privileged=True), process(2, "d/main")])
    (entry,) = planned(seen, [shared], under).entries
    assert (entry.withheld_by, entry.taken) == (Brake.HAZARD, False)
    assert entry.hazard is not None
    assert entry.hazard.role is HazardRole.SERVER


@pytest.mark.parametrize(
    ("uses", "more", "expected"),
    [
        ([], {"listed": False}, KILLED),
        ([use(2, 1, 1)], {"listed": False}, HELD),
        ([use(2, 1)], {"listed": False}, KILLED),
        ([use(2, 1)], {"listed": False, "unseen": True}, HELD),
        ([], {"listed": False, "unseen": True}, KILLED),
        ([use(2, 1, 1)], {"listed": False, "up": False}, KILLED),
    ],
)
def test_a_card_that_cannot_be_listed(
    uses: list[Use], more: dict[str, bool], expected: list[tuple[Brake | None, bool]]
) -> None:
    """Point 36: if clients of an MPS server can't be listed now, no process that may be one is ended."""
    unseen = frozenset({"GPU-1"} if more.get("unseen") else ())
    dark = gpu(1, listed=False, up=more.get("up", True))
    seen = snapshot([use(1, 9 * Gi), *uses], [server(2, None)], [gpu(0), dark], unseen=unseen)
    assert withheld(seen) == expected
    assert withheld(seen, under=ACCEPTED) == KILLED
    one = policy(rule(step(scope="process")))
    assert withheld(seen, under=one) == KILLED  # the process is listed, and is no client


@pytest.mark.parametrize(
    "place",
    [UNREADABLE, CONTRADICTORY, replace(process(3, "a/main").place, pod="elsewhere")],
    ids=["unreadable", "contradictory", "contradicts the pod list"],
)
@pytest.mark.parametrize(("mps", "expected"), [(True, HELD), (None, HELD), (False, KILLED)])
def test_a_client_whose_pod_cannot_be_determined(
    mps: bool | None, place: Place, expected: list[tuple[Brake | None, bool]]
) -> None:
    """Point 36: a client whose cgroup can't be read, or contradicts itself or the pod list, may be in any pod.

    So no pod is ended with it.
    """
    seen = snapshot([use(1, 9 * Gi), use(2, 1), use(3, 1, mps=mps)], [server(2, None), process(3, place=place)])
    assert withheld(seen) == expected
    assert withheld(seen, under=ACCEPTED) == KILLED


@pytest.mark.parametrize(
    ("where", "privileged", "expected"),
    [
        (None, False, HELD),
        ("d/main", True, HELD),
        ("d/main", False, KILLED),  # point 35: anyone can write a DaemonSet into an owner reference
        ("b/main", False, KILLED),
    ],
)
def test_a_driver_without_the_list(
    where: str | None, *, privileged: bool, expected: list[tuple[Brake | None, bool]]
) -> None:
    """Point 36: if the driver does not list clients, any process on a GPU with a shared server may be one."""
    seen = snapshot([use(1, 9 * Gi, mps=None), use(2, 1, mps=None)], [server(2, where, privileged=privileged)])
    assert withheld(seen, DAEMON, OTHER) == expected


def test_it_is_reported_once_and_stays_due() -> None:
    """Point 29: a withheld action is reported once per incident and brake."""
    seen = snapshot([CLIENT])
    ledger = Ledger()
    for second, is_new in ((0, True), (1, False)):
        plan = planned(replace(seen, at=at(second)), [OFFENDER], AT_ONCE, ledger)
        ledger = plan.ledger
        assert [(entry.is_new, entry.withheld_by) for entry in plan.entries] == [(is_new, Brake.HAZARD)]


def test_no_mps_no_hazard() -> None:
    """Without MPS on the node no account has a hazard."""
    seen = snapshot([use(1, 9 * Gi)], gpus=[gpu(0), gpu(1, listed=False)], unseen=frozenset({"GPU-1"}))
    assert [each.hazards for each in assessed(seen, [OFFENDER], AT_ONCE)] == [()]


def decided(seen: Snapshot, under: Policy, drains: KnownDrains) -> tuple[object, Assessment]:
    """What withholds the offender's step, or whom it drains first; and the offender's account."""
    given = replace(inputs(under, [OFFENDER]), drains=drains)
    found = assess(attribute(seen, (OFFENDER,)), seen, given)
    (entry,) = decide(found, Ledger(), seen.at, given).entries
    return entry.withheld_by or [key.pid for key in entry.to_drain], found[0]


def drained_first(drains: KnownDrains, do: str = "kill", scope: str = "container", *, accepts: bool = False) -> object:
    """What withholds the offender's step, or whom it drains first; its clients: 1, 2 in `side`, and 3, not listed."""
    uses = [use(1, 9 * Gi, mps=True), use(2, 1, mps=True), use(3, 1, mps=True), use(4, 1)]
    seen = snapshot(uses, [process(2, "a/side"), process(3, "a/new"), server(4, None)])
    under = replace(policy(rule(step(do=do, scope=scope))), safety=Safety(signal_mps_clients=accepts))  # type: ignore[arg-type]
    return decided(seen, under, drains)[0]


@pytest.mark.parametrize(("named", "expected"), [((), []), ((2,), Brake.HAZARD)])
def test_a_server_that_a_control_daemon_names_is_protected(named: tuple[int, ...], expected: object) -> None:
    """Point 35: in whatever pod it runs, it may serve others, and no policy accepts that risk."""
    uses = [use(1, 9 * Gi), use(2, 1), use(3, 1, mps=True)]
    seen = snapshot(uses, [server(2, "a/side"), process(3, "a/side")])
    under = replace(policy(rule(step(scope="pod"))), safety=Safety(signal_mps_clients=True))
    found, offender = decided(seen, under, KnownDrains(servers=keys(*named)))
    assert found == expected
    assert {hazard.role for hazard in offender.hazards} == ({HazardRole.SERVER} if named else set())


def keys(*pids: int) -> frozenset[ProcessKey]:
    return frozenset(ProcessKey(pid=pid, start_ticks=10 * pid) for pid in pids)


@pytest.mark.parametrize(
    ("drainable", "drained", "more", "expected"),
    [
        ((), (), {}, Brake.HAZARD),
        ((1,), (), {}, [1]),
        ((2,), (), {}, Brake.HAZARD),
        ((), (1,), {}, []),  # it has been drained, and is still listed
        ((1,), (1,), {}, [1]),  # it has come back
        ((1, 2, 3), (), {"scope": "process"}, [1]),
        ((1,), (), {"scope": "pod"}, Brake.HAZARD),
        # A kill ends no process of a container that is not in the pod list, an eviction does.
        ((1, 2, 3), (), {"scope": "pod"}, [1, 2]),
        ((1, 2, 3), (), {"do": "evict"}, [1, 2, 3]),
        ((1, 2), (), {"do": "evict"}, Brake.HAZARD),
        ((1, 2, 3), (), {"do": "warn"}, []),
        ((), (), {"accepts": True}, []),
        ((1,), (), {"accepts": True}, [1]),
        ((1,), (), {"accepts": True, "scope": "pod"}, [1]),
    ],
)
def test_a_client_that_can_be_drained_is_no_hazard(
    drainable: tuple[int, ...], drained: tuple[int, ...], more: dict[str, object], expected: object
) -> None:
    """Point 36: withheld only if some client among the targets can't be drained; the others are drained first."""
    drains = KnownDrains(drainable=keys(*drainable), drained=keys(*drained))
    assert drained_first(drains, **more) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("listed", [(), (1,)])
def test_a_client_of_a_server_in_its_pod(listed: tuple[int, ...]) -> None:
    """Point 36: it is ended like any other process, unless a trusted control daemon lists it: a name is no proof."""
    seen = snapshot([CLIENT, use(2, 1)], [server(2, "a/side")])
    drains = KnownDrains(drainable=keys(*listed))
    _, offender = decided(seen, AT_ONCE, drains)
    assert (offender.hazards, tuple(client.key for client in offender.to_drain)) == ((), tuple(drains.drainable))
