"""Whole evictions against the real API server: from the plan over its tries to the memory seen free."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.cluster.accounts import Account, wait_until
from tests.cluster.api import Object
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.control_plane import ControlPlane
from tests.cluster.eviction_rig import AGENT, Bench
from tests.cluster.faults import writes
from tests.cluster.pods import Pods
from tests.daemon.eviction_rig import EVICT_AT_ONCE, World
from tests.worlds import MEMORY, Gi, policy, process, rule
from watchdog.clock import Bell
from watchdog.core.model import Pod
from watchdog.core.plan import Result
from watchdog.kube.client import Api
from watchdog.kube.evict import ApiEvictor
from watchdog.kube.objects import parse_pods

LABELS = {"app": "web"}
POLICY = policy(rule(replace(EVICT_AT_ONCE, grace_s=5.0)))
NEVER_DELETES = {"get", "create"}


class Node:
    """A node's daemon as far as evictions go: its pods are those of the API, their use is as the test says."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._bell = Bell()
        self._began = time.monotonic()
        self.world = World(policy=POLICY, api=ApiEvictor(bench.api, self._bell), pods=(), used={})

    @property
    def second(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    def knows(self, *pods: Object, used: int = 4 * Gi) -> None:
        """Let these be the pods of its list; each has one process that uses so much."""
        listed = [self._parsed(pod) for pod in pods]
        self.world.pods = tuple(listed)
        self.world.processes = tuple(process(10 + n, f"{pod.uid}/main") for n, pod in enumerate(listed))
        self.world.used = {10 + n: used for n, _ in enumerate(listed)}

    def _parsed(self, pod: Object) -> Pod:
        answer = self.bench.plane.api.call("GET", f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods")
        found, _ = parse_pods(answer.body)
        known = next((each for each in found if each.uid == pod["metadata"]["uid"]), None)
        assert known is not None
        (container,) = known.containers
        ids = process(1, f"{known.uid}/main").place.container
        return replace(known, containers=(replace(container, ids=frozenset({ids or ""})),))

    def run(self, is_over: Callable[[], bool], limit_s: float = 120.0) -> None:
        """Cycles each second and whenever the bell rings, as the daemon makes them, until something is so."""
        next_s = 0.0
        deadline_s = self.second + limit_s
        while not is_over():
            assert self.second < deadline_s, self.world.results()
            if self._bell.silence():
                self.world.wake(self.second)
            if self.second >= next_s:
                next_s = self.second + 1.0
                self.world.look(self.second)
            time.sleep(0.01)

    def told(self) -> list[str]:
        """What came of it so far."""
        return [*("begun" for _ in self.world.began), *self.world.results()]


@pytest.fixture
def node(control_plane: ControlPlane, evicting_account: Account, pods: Pods) -> Iterator[Callable[..., Node]]:
    """Makes a daemon with the rights of its policy, straight to the server or through a proxy; it never deletes."""
    apis: list[Api] = []
    began_s = time.time()

    def make(by: ApiProxy | None = None) -> Node:
        bench = Bench(evicting_account, pods, evicting_account.through(by))
        apis.append(bench.api)
        return Node(bench)

    yield make
    asked = {each.verb for each in control_plane.requests(user_agent=AGENT, since=began_s)}
    assert asked <= NEVER_DELETES
    for api in apis:
        api.close()


def web(pods: Pods, on: str, name: str | None = None) -> Object:
    """A pod that declares 1Gi, of a set of twins."""
    limits = {"resources": {"limits": {MEMORY: "1Gi"}}}
    return pods.create(name, node=on, metadata={"labels": LABELS}, container=limits)


def test_blocked_then_loosened(node: Callable[..., Node], pods: Pods) -> None:
    """The budget blocks, and says so once; loosened, a later try goes through, and the twin is never touched."""
    on = pods.node()
    victim, twin = web(pods, on), web(pods, on)
    pods.budget(LABELS, allowed=0, name="web", minAvailable=2)
    here = node()
    here.knows(victim)
    here.run(lambda: "blocked" in here.world.results())
    (blocked,) = here.world.ended
    assert blocked.reason.startswith("the disruption budget web ")
    assert here.bench.spared(victim, twin)
    path = f"/apis/policy/v1/namespaces/{pods.namespace}/poddisruptionbudgets/web"
    here.bench.plane.api.ask("PATCH", path, {"spec": {"minAvailable": 1}})
    here.run(lambda: bool(here.world.began))
    assert "deletionTimestamp" in pods.read(victim)["metadata"]
    assert here.bench.spared(twin)
    here.world.used = {}
    here.run(lambda: "done" in here.world.results())
    assert here.told() == ["begun", "blocked", "done"]
    asked = here.bench.requests()
    tries = [code for verb, _, code in asked if verb == "create"]
    assert tries[-1] == 201
    assert set(tries[:-1]) == {429}
    assert len(asked) == 2 * len(tries)
    assert here.world.record.lines.count(("intend", "10")) == 1


def test_recreated_between_decision_and_act(node: Callable[..., Node], pods: Pods) -> None:
    """The list still has the victim when another pod has come under its name: gone, and nobody is hit."""
    on = pods.node()
    victim = web(pods, on, "web-0")
    here = node()
    here.knows(victim)
    pods.delete(victim)
    other = web(pods, on, "web-0")
    here.run(lambda: bool(here.world.ended))
    assert here.told() == ["gone"]
    assert here.bench.spared(other)
    assert here.bench.requests() == [("get", "", 200)]


def test_recreated_while_it_was_blocked(node: Callable[..., Node], pods: Pods) -> None:
    """A try later the name belongs to another pod, which is over too: only by its own UID could it be evicted."""
    on = pods.node()
    victim = web(pods, on, "web-0")
    pods.budget(LABELS, allowed=0, name="web", minAvailable=1)
    here = node()
    here.knows(victim)
    here.run(lambda: "blocked" in here.world.results())
    pods.delete(victim)
    other = web(pods, on, "web-0")
    here.run(lambda: "gone" in here.world.results())
    assert here.told() == ["blocked", "gone"]
    assert here.bench.spared(other)


def test_a_mirror_pod_under_the_name(node: Callable[..., Node], pods: Pods) -> None:
    """A mirror pod in the victim's place is not the victim."""
    on = pods.node()
    victim = web(pods, on, "web-0")
    here = node()
    here.knows(victim)
    pods.delete(victim)
    annotations = {"kubernetes.io/config.mirror": "0123456789abcdef0123456789abcdef"}
    mirror = pods.create("web-0", node=on, metadata={"labels": LABELS, "annotations": annotations})
    here.run(lambda: bool(here.world.ended))
    assert here.told() == ["gone"]
    assert here.bench.spared(mirror)


def test_protected_since_the_list_was_read(node: Callable[..., Node], pods: Pods) -> None:
    """The annotation that spares a pod came a moment ago: the fresh look sees it."""
    on = pods.node()
    pod = web(pods, on)
    here = node()
    here.knows(pod)
    here.world.policy = replace(POLICY, protect=replace(POLICY.protect, annotation="spare"))
    path = f"/api/v1/namespaces/{pods.namespace}/pods/{pod['metadata']['name']}"
    here.bench.plane.api.ask("PATCH", path, {"metadata": {"annotations": {"spare": ""}}})
    here.run(lambda: bool(here.world.ended))
    assert (here.told(), here.world.reason()) == (
        ["interrupted"],
        "the pod is protected now: it carries the annotation spare",
    )
    assert here.bench.spared(pod)
    assert here.bench.requests() == [("get", "", 200)]


def test_an_answer_that_was_lost(node: Callable[..., Node], pods: Pods, api_proxy: ApiProxy) -> None:
    """The server has evicted and its answer is lost: the next try's look tells, and the memory is waited for."""
    on = pods.node()
    pod = web(pods, on)
    here = node(api_proxy)
    here.knows(pod)
    api_proxy.cut(when=writes("/eviction"))
    here.run(lambda: bool(here.world.began))
    (began,) = here.world.began
    assert began.result is Result.DONE
    assert began.reason == "the API server's answer was lost, and the pod is being deleted already"
    here.world.used = {}
    here.run(lambda: "done" in here.world.results())
    assert here.told() == ["begun", "done"]
    assert here.bench.requests() == [("get", "", 200), ("create", "eviction", 201), ("get", "", 200)]


def test_an_outage_of_the_server(node: Callable[..., Node], pods: Pods, api_proxy: ApiProxy) -> None:
    """While the server is away it is tried again with pauses, few times; when it is back the eviction comes about."""
    on = pods.node()
    pod = web(pods, on)
    here = node(api_proxy)
    here.knows(pod)
    api_proxy.answer(503)
    here.run(lambda: here.second > 12.0)
    assert here.told() == []
    assert 2 <= len(api_proxy.seen) <= 12
    assert here.bench.spared(pod)
    api_proxy.heal()
    here.run(lambda: bool(here.world.began))
    wait_until(lambda: not here.bench.spared(pod), "it is being deleted")
