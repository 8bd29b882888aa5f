"""Pods as the API writes them: each is decoded on its own, and nothing is guessed."""

import json
from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.objects import HASH, ID, INIT_ID, LAST_ID, UID, Object, list_of, nested, nested_pod, pod_object
from tests.worlds import Gi, assessed, policy, process, snapshot, use
from watchdog.core.assessment import Verdict
from watchdog.core.keys import keys_of
from watchdog.core.model import Container, ContainerKind, GapReason, Owner, Place, PlaceKind, Pod, PodKeys
from watchdog.core.units import parse_number
from watchdog.kube.objects import parse_pods


def read(pod: Object) -> Pod:
    """The core's pod."""
    (found,), gaps = parse_pods(list_of(pod))
    assert gaps == ()
    return found


def test_a_pod() -> None:
    """Every field of the core's pod comes from its place in the API's object."""
    assert read(pod_object()) == Pod(
        namespace="a",
        name="trainer",
        uid=UID,
        labels={"app": "trainer"},
        annotations={"note": "x"},
        owner=Owner(kind="Job", name="train"),
        priority=100,
        containers=(
            Container(name="fetch", kind=ContainerKind.INIT, ids=frozenset({INIT_ID}), running=False),
            Container(name="proxy", kind=ContainerKind.SIDECAR, ids=frozenset({"d4" * 32}), running=True),
            Container(
                name="main",
                ids=frozenset({ID, LAST_ID}),
                running=True,
                resources={"veriff.com/gpu-memory": "104Mi", "cpu": "2", "memory": "1Gi"},
            ),
            Container(name="debug", kind=ContainerKind.EPHEMERAL, running=False),
        ),
    )


def test_a_list_or_a_single_pod() -> None:
    """A list has the kind that kubectl or the API gives it; one pod alone is a list of one."""
    for kind in ("List", "PodList"):
        pods, gaps = parse_pods(list_of(pod_object("x", "1"), pod_object("y", "2"), kind=kind))
        assert ([pod.title for pod in pods], gaps) == (["a/x", "a/y"], ())
        assert parse_pods(list_of(kind=kind)) == ((), ())
    (pod,), gaps = parse_pods(json.dumps(pod_object(), indent=2).encode())
    assert (pod.title, gaps) == ("a/trainer", ())


def test_a_minimal_pod() -> None:
    """A pod that was just created has no status, no labels and no owner, or has them as null."""
    least: Object = {
        "kind": "Pod",
        "metadata": {"name": "x", "namespace": "a", "uid": "1"},
        "spec": {"containers": [{"name": "c"}]},
    }
    expected = Pod(namespace="a", name="x", uid="1", containers=(Container(name="c", running=False),))
    assert read(least) == expected
    least["metadata"] |= {"labels": None, "annotations": None, "ownerReferences": None, "deletionTimestamp": None}
    least["spec"] |= {"initContainers": None, "ephemeralContainers": None, "nodeName": None, "priority": None}
    least["spec"]["containers"][0] |= {"resources": None, "restartPolicy": None}
    least["status"] = {"containerStatuses": [{"name": "c", "state": {"running": None}, "lastState": None}]}
    assert read(least) == expected
    least["status"] = None
    assert read(least) == expected


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (None, False),
        ({"privileged": True}, True),
        ({"privileged": False, "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}}, False),
        ({"capabilities": {"add": ["NET_ADMIN", "SYS_ADMIN"]}}, True),
        ({"capabilities": {"add": ["cap_sys_admin"]}}, True),
        ({"capabilities": {"add": ["ALL"]}}, True),
        ({"capabilities": {"add": None}, "privileged": None}, False),
        ({"capabilities": None, "runAsUser": 0}, False),
    ],
)
def test_a_container_that_gets_the_capability_to_administer(
    context: dict[str, object] | None, *, expected: bool
) -> None:
    """Point 35: what a container may do is in its own security context; that of its pod can't give capabilities."""
    spec = {"containers": [{"name": "c", "securityContext": context}, {"name": "other"}]}
    found = read(pod_object(spec=spec))
    privileged = {each.name for each in found.containers if each.privileged}
    assert privileged == ({"c"} if expected else set())


def test_what_a_tenant_writes_without_end_is_bounded() -> None:
    """A pod takes less than 1 MiB whatever it has; what is cut is no amount any more, and what is asked for is kept."""
    texts = {f"k{number}": "1" for number in range(5_000)}
    made = read(
        pod_object(
            metadata={"annotations": {"a": "é" + '"' * 260_000, "b": "1" * 5_000, **texts}, "labels": texts},
            spec={
                "containers": [*({"name": f"c{number}"} for number in range(9_000)), {"name": "main"}],
                "initContainers": [
                    {"name": "i", "resources": {"limits": {**{f"r/{n}": "0" for n in range(9_000)}, "veriff/gpu": "1"}}}
                ],
            },
        )
    )
    assert len(msgspec.json.encode(made)) < 2**18
    assert (len(made.containers), len(made.labels), len(made.annotations)) == (501, 200, 200)
    assert (made.containers[0].resources, made.containers[-1].name) == ({"veriff/gpu": "1"}, "main")
    assert not made.is_cut
    few = read(pod_object(metadata={"annotations": {"b": "1" * 5_000}}))
    assert few.annotations["b"] == "1" * 297 + "..."
    with pytest.raises(ValueError, match=r"1{50,}"):
        parse_number(few.annotations["b"])


KEYS: Final = PodKeys(
    annotations=frozenset({"example.com/a-rather-long-key", "{container}.vram", "note-*"}),
    labels=frozenset({"example.com/a-rather-long-key"}),
    resources=frozenset({"veriff.com/gpu-memory", "r/mig-*"}),
    zeros=frozenset({"veriff.com/gpu-memory"}),
)
DECOYS: Final = {f"k{number}": "" for number in range(5_000)}


def test_what_is_named_is_read_whatever_else_a_pod_carries() -> None:
    """Point 6: thousands of empty annotations, labels and resources push out nothing that the policy names."""
    long, asked = {"example.com/a-rather-long-key": "1Gi"}, {"veriff.com/gpu-memory": "0", "r/mig-1": "1"}
    others = {f"a/{number}": "1" for number in range(5_000)}
    made = pod_object(
        metadata={"annotations": {**DECOYS, **long, "main.vram": "2Gi", "x.vram": "3Gi" * 9}, "labels": DECOYS | long},
        spec={"containers": [{"name": "main", "resources": {"limits": {**others, **asked}}}]},
    )
    ((found,), gaps) = parse_pods(list_of(made), keys=KEYS)
    main = next(each for each in found.containers if each.name == "main")
    assert {**long, "main.vram": "2Gi"}.items() <= found.annotations.items()
    assert "x.vram" not in found.annotations  # no container has that name
    assert (long.items() <= found.labels.items(), asked.items() <= main.resources.items()) == (True, True)
    assert (found.keys, found.is_cut, gaps) == (KEYS, False, ())
    assert len(msgspec.json.encode(found)) < 2**16
    ((whole,), _) = parse_pods(list_of(made), keys=None)
    most = max(len(each.resources) for each in whole.containers)
    assert (len(whole.annotations), most, whole.keys) == (5_003, 5_002, None)


def test_what_a_pattern_matches_is_read_before_the_rest() -> None:
    """Point 6: only keys that a pattern matches as well can push out one that it matches; then the rest counts as 0."""
    notes = {f"note-{number:03}": "1" for number in range(200)}
    ((found,), gaps) = parse_pods(list_of(pod_object(metadata={"annotations": DECOYS | notes})), keys=KEYS)
    assert (set(found.annotations), gaps) == (set(notes), ())
    ((found,), (gap,)) = parse_pods(list_of(pod_object(metadata={"annotations": {**notes, "note-x": ""}})), keys=KEYS)
    assert (len(found.annotations), found.is_cut, gap.what) == (200, True, "pod a/trainer")


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"name": "main", "resources": {"limits": {f"r/mig-{n}": "1" for n in range(101)}}}]},
        {"containers": [{"name": f"c{n}", "resources": {"limits": {"r/x": "1"}}} for n in range(600)]},
    ],
    ids=["resources", "containers"],
)
def test_a_pod_that_is_not_read_as_a_whole_is_a_gap(spec: Object) -> None:
    """Points 6 and 39: what is left out counts as 0 and is reported; the pod is neither unknown nor undeclared."""
    spec["containers"][0]["resources"]["limits"]["veriff.com/gpu-memory"] = "1Gi"
    under, here = policy(), Place(kind=PlaceKind.POD, pod=UID, container=ID)
    spec["containers"][0]["name"] = "main"  # the one that runs
    (found,), (gap,) = parse_pods(list_of(pod_object(spec=spec)), keys=KEYS)
    assert (found.is_cut, gap.what, "the rest counts as 0" in gap.problem.cause) == (True, "pod a/trainer", True)
    found = replace(found, keys=keys_of(under) | KEYS)
    (account,) = assessed(snapshot([use(5, 3 * Gi)], [process(5, place=here)]), [found], under)
    assert (account.verdict, account.used_at_least) == (Verdict.OVER, 3 * Gi)


def _asking(number: int, asks: dict[str, str], **more: Any) -> Object:
    """A container that asks for these resources."""
    return {"name": f"c{number}", "resources": {"limits": asks}, **more}


@pytest.mark.parametrize("zero", ["0", "0.0", "0e3", "00", "-0", ".0", "0Mi", "0m", "+0.00Gi"])
def test_zeros_that_request_nothing_take_no_room(zero: str) -> None:
    """Point 39: they are not read, and no gap; a 0 that declares is."""
    asks = {f"r/mig-{number}": zero for number in range(101)} | {"veriff.com/gpu-memory": zero, "a": zero}
    (found,), gaps = parse_pods(list_of(pod_object(spec={"containers": [_asking(0, asks)]})), keys=KEYS)
    assert [each.resources for each in found.containers if each.resources] == [{"veriff.com/gpu-memory": zero}]
    assert (found.is_cut, found.keys, gaps) == (False, KEYS, ())


@pytest.mark.parametrize("text", ["0x0", "1", "0.1", "0 ", "zero", ""])
def test_what_is_no_zero_is_kept(text: str) -> None:
    """Only what certainly requests nothing is dropped."""
    asks = {f"r/x-{number}": "0" for number in range(101)} | {"r/mig-1": text}
    (found,), _ = parse_pods(list_of(pod_object(spec={"containers": [_asking(0, asks)]})), keys=KEYS)
    assert {"r/mig-1": text} in [each.resources for each in found.containers]


def test_the_resources_of_one_pod_are_bounded() -> None:
    """Point 39: limits count keys; those of the containers that run are read first, and what is named in each."""
    mig = {f"r/mig-{number:02}": "1" for number in range(90)}
    asks = mig | {"veriff.com/gpu-memory": "1Gi", "r/other": "1"}
    spec = {"initContainers": [_asking(number, asks) for number in range(400)], "containers": [_asking(400, asks)]}
    status = {"containerStatuses": [{"name": "c400", "containerID": f"containerd://{ID}", "state": {"running": {}}}]}
    ((found,), (gap,)) = parse_pods(list_of(pod_object(spec=spec, status=status)), keys=KEYS)
    running = next(each for each in found.containers if each.name == "c400")
    assert sum(len(each.resources) for each in found.containers) <= 10_000
    assert {len(each.resources) for each in found.containers} - {0} == {33}
    assert running.resources["veriff.com/gpu-memory"] == "1Gi"
    assert (found.is_cut, gap.what) == (True, "pod a/trainer")


def test_a_container_that_has_run_stays_known_whatever_there_is() -> None:
    """Its processes are found by its ID; what it asks for counts as 0 once it has ended and there is no room."""
    asks = {f"r/mig-{number}": "1" for number in range(30)} | {"veriff.com/gpu-memory": "1Gi"}
    ended = [
        {"name": f"c{number}", "containerID": f"containerd://{number:064x}", "state": {"terminated": {}}}
        for number in range(900)
    ]
    spec = {"initContainers": [_asking(number, asks) for number in range(900)], "containers": [{"name": "main"}]}
    ((found,), (gap,)) = parse_pods(list_of(pod_object(spec=spec, status={"initContainerStatuses": ended})), keys=KEYS)
    assert {f"c{number}" for number in range(900)} <= {each.name for each in found.containers}
    assert sum(len(each.resources) for each in found.containers) <= 10_000
    assert (found.is_cut, gap.what) == (True, "pod a/trainer")


@pytest.mark.parametrize("phase", [None, "", "Pending", "Running", "Succeeded", "Failed", "Unknown"])
def test_a_finished_pod(phase: str | None) -> None:
    """A pod whose containers have all ended for good stays in the list, and is known as finished."""
    assert read({**pod_object(), "status": {"phase": phase}}).is_finished is (phase in ("Succeeded", "Failed"))


def _status(**status: object) -> Object:
    return {"status": {"containerStatuses": [{"name": "c", **status}]}}


BROKEN: list[tuple[Object, str]] = [
    ({"metadata": {"name": 5}}, "$.metadata.name"),
    ({"metadata": {"uid": ""}}, "$.metadata.uid"),
    ({"metadata": {"uid": None}}, "$.metadata.uid"),
    ({"metadata": {"labels": {"x": 1}}}, "$.metadata.labels[...]"),
    ({"metadata": {"deletionTimestamp": "2025-01-01T00:00:00"}}, "$.metadata.deletionTimestamp"),  # without a zone
    ({"metadata": {"deletionTimestamp": "soon"}}, "$.metadata.deletionTimestamp"),
    ({"spec": {"containers": {}}}, "$.spec.containers"),
    ({"spec": {"priority": "high"}}, "$.spec.priority"),
    ({"spec": {"containers": [{"name": "c", "resources": {"limits": {"x": []}}}]}}, ".limits[...]"),
    (_status(state={"running": True}), ".state.running"),
    ({"metadata": None}, "$.metadata"),
    ({"metadata": [1]}, "$.metadata"),
]


@pytest.mark.parametrize(("changes", "place"), BROKEN)
def test_a_broken_pod_among_good_ones(changes: Object, place: str) -> None:
    """A pod that can't be read is a gap with its name, as far as there is one, and the place in it; others count."""
    broken = pod_object(**changes)
    pods, (gap,) = parse_pods(list_of(pod_object("x", "1"), broken, pod_object("y", "2")))
    assert [pod.name for pod in pods] == ["x", "y"]
    metadata = broken["metadata"]
    name = f"a/{metadata['name']}" if isinstance(metadata, dict) else "without a name"
    assert (gap.reason, gap.what) == (GapReason.PODS, f"pod {name}")
    assert place in str(gap.problem)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "kubectl get"),
        (list_of(pod_object())[:-10], "kubectl get"),
        (b"\xff\xfe", "kubectl get"),
        (b"[]", "kubectl get"),
        (b'{"kind": "PodList"}', "not a list of kind PodList"),
        (b'{"kind": "PodList", "items": {}}', "$.items"),
        (b'{"items": []}', "its kind is 'missing'"),
        (b'{"kind": "NodeList", "items": []}', "its kind is 'NodeList'"),
        (b'{"x":' * 5000, "kubectl get"),
    ],
)
def test_not_a_list_of_pods(text: bytes, words: str) -> None:
    """Text that is incomplete, or not about pods, is rejected as a whole with a message."""
    with pytest.raises(ValueError, match=words.replace("$", r"\$")):
        parse_pods(text)


def test_a_deeply_nested_pod() -> None:
    """A pod that is nested deeply and broken is a gap like any other, and has its name."""
    text = list_of(nested_pod("x", spec={"containers": "none"}), pod_object("y"))
    pods, gaps = parse_pods(nested(text, 9_990))
    assert ([pod.name for pod in pods], [gap.what for gap in gaps]) == (["y"], ["pod a/x"])


def test_same_uid_twice() -> None:
    """A cgroup can't distinguish two pods with one UID: the first counts, and a gap names the other."""
    pods, (gap,) = parse_pods(list_of(pod_object("x"), pod_object("y")))
    assert [pod.name for pod in pods] == ["x"]
    assert (gap.what, UID in str(gap.problem), "a/x" in str(gap.problem)) == ("pod a/y", True, True)


def test_pods_of_this_node() -> None:
    """With a node's name, pods bound to another one are left out; those not bound yet, or ended, are kept."""
    text = list_of(
        pod_object("x", "1", status={"phase": "Failed"}),  # its processes may outlive its phase
        pod_object("y", "2", spec={"nodeName": "n2"}),
        pod_object("z", "3", spec={"nodeName": None}),
    )
    assert [pod.name for pod in parse_pods(text, "n1")[0]] == ["x", "z"]
    assert [pod.name for pod in parse_pods(text)[0]] == ["x", "y", "z"]


@pytest.mark.parametrize(
    ("metadata", "static", "config_hash"),
    [
        ({}, False, None),
        ({"annotations": {"kubernetes.io/config.source": "api"}}, False, None),
        ({"annotations": {"kubernetes.io/config.source": "file"}}, False, None),
        ({"uid": HASH, "annotations": {"kubernetes.io/config.hash": HASH}}, True, HASH),  # the kubelet's own list
        ({"annotations": {"kubernetes.io/config.hash": HASH}}, False, HASH),
        ({"uid": UID, "annotations": {"kubernetes.io/config.hash": UID}}, False, UID),
        ({"annotations": {"kubernetes.io/config.mirror": HASH}}, True, HASH),
        ({"annotations": {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": HASH}}, True, HASH),
        ({"ownerReferences": [{"kind": "Node", "name": "n1", "controller": True}]}, False, None),
        ({"ownerReferences": [{"kind": "Node", "name": "n1"}]}, False, None),
    ],
)
def test_static_pods(metadata: Object, *, static: bool, config_hash: str | None) -> None:
    """Point 35: mirror pods, and static pods in the kubelet's own list, are recognized by what no tenant can write."""
    pod = read(pod_object(metadata=metadata))
    assert (pod.static, pod.config_hash) == (static, config_hash)


def test_an_owner_that_is_no_controller_does_not_recreate_the_pod() -> None:
    """Such a pod is its own workload."""
    pod = read(pod_object(metadata={"ownerReferences": [{"kind": "ConfigMap", "name": "c"}]}))
    assert (pod.owner, pod.workload) == (None, Owner(kind="Pod", name="trainer"))


@pytest.mark.parametrize(
    ("kind", "name", "labels", "expected"),
    [
        ("ReplicaSet", "web-5d9c7b6f4", {"pod-template-hash": "5d9c7b6f4"}, ("Deployment", "web")),
        ("ReplicaSet", "a-b-5d9c7b6f4", {"pod-template-hash": "5d9c7b6f4"}, ("Deployment", "a-b")),
        ("ReplicaSet", "x-x", {"pod-template-hash": "x"}, ("Deployment", "x")),
        ("ReplicaSet", "web-5d9c7b6f4", {}, ("ReplicaSet", "web-5d9c7b6f4")),
        ("ReplicaSet", "web-5d9c7b6f4", {"pod-template-hash": ""}, ("ReplicaSet", "web-5d9c7b6f4")),
        ("ReplicaSet", "web-5d9c7b6f4", {"pod-template-hash": "other"}, ("ReplicaSet", "web-5d9c7b6f4")),
        ("ReplicaSet", "web-5d9c7b6f4", {"pod-template-hash": "7b6f4"}, ("ReplicaSet", "web-5d9c7b6f4")),
        ("ReplicaSet", "-5d9c7b6f4", {"pod-template-hash": "5d9c7b6f4"}, ("ReplicaSet", "-5d9c7b6f4")),
        ("ReplicaSet", "web-", {"pod-template-hash": ""}, ("ReplicaSet", "web-")),
        ("ReplicaSet", "web-None", {}, ("ReplicaSet", "web-None")),
        # An Argo Rollout's ReplicaSets have a label of another name.
        ("ReplicaSet", "web-5d9c7b6f4", {"rollouts-pod-template-hash": "5d9c7b6f4"}, ("ReplicaSet", "web-5d9c7b6f4")),
        ("Job", "train-28400000", {"batch.kubernetes.io/job-name": "train-28400000"}, ("Job", "train-28400000")),
        ("Job", "web-5d9c7b6f4", {"pod-template-hash": "5d9c7b6f4"}, ("Job", "web-5d9c7b6f4")),
        ("StatefulSet", "db", {"apps.kubernetes.io/pod-index": "0"}, ("StatefulSet", "db")),
    ],
)
def test_the_controller_of_a_pod(kind: str, name: str, labels: dict[str, str], expected: tuple[str, str]) -> None:
    """A ReplicaSet is followed to its Deployment if the pod's own label shows it; nothing else is guessed."""
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "2", "controller": True}
    pod = read(pod_object(metadata={"ownerReferences": [reference], "labels": labels or None}))
    assert pod.owner == pod.workload == Owner(kind=expected[0], name=expected[1])


@pytest.mark.parametrize(
    ("written", "grace_s"), [(None, 30.0), (0, 1.0), (-5, 1.0), (60, 60.0), (365 * 86400, 365 * 86400.0), (2**63, 1e9)]
)
def test_the_grace_period_of_a_spec(written: int | None, grace_s: float) -> None:
    """Point 28: what the containers of a pod have that is deleted by force; a kubelet gives at least a second."""
    assert read(pod_object(spec={"terminationGracePeriodSeconds": written})).grace_s == grace_s


@pytest.mark.parametrize("text", ["2025-01-01T00:00:30Z", "2025-01-01T01:00:30+01:00", "2025-01-01T00:00:30.0Z"])
def test_deletion_deadline(text: str) -> None:
    """Point 28: the deletion timestamp includes the grace period already."""
    changes = {"deletionTimestamp": text, "deletionGracePeriodSeconds": 30}
    assert read(pod_object(metadata=changes)).deletion_deadline_s == 1735689630.0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def damaged(draw: st.DrawFn) -> Object:
    """A pod with another value in one place."""
    pod = pod_object()
    place: Any = pod
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys))
        if not place[key] or not isinstance(place[key], dict | list) or draw(st.integers(0, 3)) == 0:
            place[key] = draw(JSON)
            return pod
        place = place[key]


@given(damaged())
def test_any_damage_affects_only_its_pod(pod: Object) -> None:
    """Whatever one pod contains, the other one is read, and the first is either read or a gap."""
    pods, gaps = parse_pods(list_of(pod, pod_object("y", "2")))
    assert "y" in [pod.name for pod in pods]
    assert len(pods) + len(gaps) == 2


@given(st.binary(max_size=100))
def test_any_bytes(text: bytes) -> None:
    """The parser rejects everything but a list with one kind of error."""
    with pytest.raises(ValueError, match="it is no"):
        parse_pods(text)
