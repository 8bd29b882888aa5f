"""Attribution: what a cgroup claims counts only if the pod list confirms it."""

from dataclasses import replace

import pytest

from tests.worlds import container, container_id, pod, process, snapshot, use
from watchdog.core.attribute import attribute
from watchdog.core.model import CONTRADICTORY, GONE, HOST, UNREADABLE, ZOMBIE, Owner, Place, PlaceKind

A = pod("a", container("main", of="a"), container("side", of="a"))
B = pod("b", container("main", of="b"))
HASH = "0123456789abcdef0123456789abcdef"
DAEMON_SET = Owner(kind="DaemonSet", name="mps-control-daemon")
STATIC = pod("s", container("main", of="s"), config_hash=HASH, static=True)


def claim(pod_: str | None, container_: str | None) -> Place:
    """The claim in a cgroup."""
    return Place(kind=PlaceKind.POD, pod=pod_, container=container_id(container_) if container_ else None)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (claim("a", "a/main"), ("a", "main")),
        (claim("a", "a/side"), ("a", "side")),
        (claim("a", "a/just-started"), ("a", "")),
        (claim("a", None), ("a", "")),
        (claim(None, "b/main"), ("b", "main")),
        (claim(HASH, "s/main"), ("s", "main")),
        (claim(HASH, None), ("s", "")),
        (claim("a", "b/main"), "spoofed"),
        (claim("unlisted", "b/main"), "spoofed"),
        (claim("unlisted", "unlisted/main"), "unknown_pod"),
        (claim(None, "unlisted/main"), "unknown_pod"),
        (CONTRADICTORY, "spoofed"),
        (HOST, "host"),
        (GONE, "gone"),
        (ZOMBIE, "zombie"),
        (UNREADABLE, "unknown_pod"),
    ],
)
def test_a_claim_counts_only_where_the_list_confirms_it(place: Place, expected: tuple[str, str] | str) -> None:
    """A container ID must belong to the pod that the cgroup names; anything else is unattributed with its reason."""
    known = None if place is GONE else process(1).key  # point 11: without a start time it is charged to no pod
    got = attribute(snapshot([use(1, 7)], [process(1, place=place, key=known)]), [A, B, STATIC])
    if isinstance(expected, tuple):
        assert [(each.uid, each.container, each.used) for each in got.attributed] == [(*expected, 7)]
        assert not got.unattributed
    else:
        assert [(each.reason, each.used) for each in got.unattributed] == [(expected, 7)]
        assert not got.attributed


@pytest.mark.parametrize(
    ("where", "more", "by_proc", "by_spec", "reason"),
    [
        (None, {}, False, False, "mps_server"),
        ("a/main", {"owner": DAEMON_SET}, True, True, "mps_server"),
        ("a/main", {"owner": DAEMON_SET}, True, False, None),  # a user namespace into which all users are mapped
        ("a/main", {"owner": DAEMON_SET}, False, True, None),
        ("a/side", {"owner": DAEMON_SET}, True, True, None),  # an ordinary container beside a privileged one
        ("a/new", {"owner": DAEMON_SET}, True, True, None),  # one that the list lacks may be either
        ("a/main", {"namespace": "kube-system"}, False, False, "mps_server"),
        ("a/main", {"static": True}, False, False, "mps_server"),
        ("a/main", {"priority": 2_000_001_000}, False, False, None),  # system-node-critical
        ("a/main", {"priority": 2_000_001_000}, True, True, None),
        ("a/main", {"owner": DAEMON_SET, "priority": 2_000_001_000}, True, True, "mps_server"),
        ("a/main", {"owner": DAEMON_SET}, False, False, None),
        ("a/main", {}, True, True, None),
        ("a/main", {}, False, False, None),
        ("b/main", {}, True, True, "unknown_pod"),
    ],
)
def test_an_mps_server_has_no_pod_where_no_tenant_can_run_one(
    where: str | None, more: dict[str, object], reason: str | None, *, by_proc: bool, by_spec: bool
) -> None:
    """Point 35: a process's name alone proves nothing: a tenant's own "server" is the tenant's, and its bytes too."""
    seen = snapshot([use(1, 7)], [process(1, where, mps_server=True, privileged=by_proc)])
    tenant = pod("a", container(privileged=by_spec), container("side"))
    got = attribute(seen, [replace(tenant, **more)])  # type: ignore[arg-type]
    assert [each.reason for each in got.unattributed] == ([] if reason is None else [reason])
    proven = by_proc and by_spec and where == "a/main"
    assert [each.mps and each.mps.privileged for each in got.attributed] == ([proven] if reason is None else [])


def test_a_server_whose_container_is_not_listed_yet_is_trusted_if_its_pod_has_no_other_kind() -> None:
    """Point 35: the kubelet reports the ID of a new container seconds after it has started."""
    seen = snapshot([use(1, 7)], [process(1, "a/new", mps_server=True, privileged=True)])
    got = attribute(seen, [replace(pod("a", container(privileged=True)), owner=DAEMON_SET)])
    assert [each.reason for each in got.unattributed] == ["mps_server"]


@pytest.mark.parametrize("tenant", [{"config_hash": HASH}, {"config_hash": "b"}])
def test_a_tenant_cannot_claim_anothers_processes_by_annotation(tenant: dict[str, str]) -> None:
    """The config hash is an annotation: it counts only for static pods, and a UID takes precedence."""
    thief = pod("a", container("main", of="a"), **tenant)
    processes = [process(1, place=claim(HASH, None)), process(2, place=claim("b", None))]
    got = attribute(snapshot([use(1, 7), use(2, 7)], processes), [thief, B, STATIC])
    assert sorted((each.key.pid, each.uid) for each in got.attributed) == [(1, "s"), (2, "b")]


@pytest.mark.parametrize("namespace", ["aa", "zz"])
def test_a_mirror_pod_of_a_tenant_takes_no_memory_of_the_static_pod_that_it_names(namespace: str) -> None:
    """Of several pods with one config hash, the one that has the container counts, whatever their names."""
    thief = pod("a", container("main", of="a"), config_hash=HASH, static=True, namespace=namespace)
    got = attribute(snapshot([use(1, 7)], [process(1, place=claim(HASH, "s/main"))]), [thief, STATIC])
    assert [(each.uid, each.container) for each in got.attributed] == [("s", "main")]


def test_a_container_id_in_two_pods_belongs_to_neither() -> None:
    """An ID that two pods claim is worthless if the cgroup names no pod."""
    twin = pod("z", container("main", of="b"))
    got = attribute(snapshot([use(1, 7)], [process(1, place=claim(None, "b/main"))]), [B, twin])
    assert [each.reason for each in got.unattributed] == ["unknown_pod"]


def test_the_order_of_pods_does_not_matter_where_they_contradict_each_other() -> None:
    """Law 2: also with two pods of one UID the answer is the same in either order."""
    pods = [pod("a", container("x", of="a")), pod("a", container("y", of="a"), namespace="other")]
    seen = snapshot([use(1, 1), use(2, 1)], [process(1, "a/x"), process(2, "a/y")])
    one, other = (attribute(seen, order).attributed for order in (pods, pods[::-1]))
    assert {(each.uid, each.container) for each in one} == {(each.uid, each.container) for each in other}
