"""Evictions against the real API server, disruption controller and throttling: never another pod than the victim."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from tests.rig.cluster.accounts import Account
from tests.rig.cluster.api import Object
from tests.rig.cluster.api_proxy import ApiProxy
from tests.rig.cluster.eviction_rig import Bench
from tests.rig.cluster.faults import writes
from tests.rig.cluster.pods import Pods
from tests.rig.cluster.real_pods import wait_until
from tests.rig.cluster.tcp_proxy import TcpProxy
from watchdog.core.eviction import EvictionAnswer
from watchdog.kube.client import USER_AGENT

READ, EVICT = ("get", ""), ("create", "eviction")
MIRROR: Final = {"annotations": {"kubernetes.io/config.mirror": "0123456789abcdef0123456789abcdef"}}
LABELS: Final = {"app": "web"}


@pytest.fixture
def bench(evicting_account: Account, pods: Pods) -> Iterator[Bench]:
    """The daemon's account, straight to the server; afterwards: it never requested a deletion."""
    made = Bench(evicting_account, pods)
    with made.api:
        yield made
        made.requests()
    seen = made.plane.requests(user_agent=USER_AGENT, since=made.began_s)
    assert {each.verb for each in seen} <= {"get", "create"}


@pytest.fixture
def node(pods: Pods) -> str:
    """A node for the test's pods."""
    return pods.node()


def test_an_eviction(bench: Bench, pods: Pods, node: str) -> None:
    """The pod is being deleted with the requested grace period, with its condition; its twin lives on."""
    twins = [pods.create(node=node, metadata={"labels": LABELS}) for _ in range(2)]
    assert bench.evict(twins[0], grace_s=7).answer is EvictionAnswer.ACCEPTED
    evicted = pods.read(twins[0])
    assert evicted["metadata"]["deletionGracePeriodSeconds"] == 7
    (why,) = [each for each in evicted["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert why["reason"] == "EvictionByEvictionAPI"
    assert bench.spared(twins[1])
    assert bench.requests() == [(*READ, 200), (*EVICT, 201)]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What a test makes: its pods, and what happens between the reading of the victim and its eviction."""

    pods: Pods
    node: str

    def victim(self) -> Object:
        """A pod that runs."""
        return self.pods.create("victim", node=self.node)

    def gone(self) -> Object:
        """One that has been deleted."""
        victim = self.victim()
        self.pods.delete(victim)
        return victim

    def replaced(self, **by: object) -> Object:
        """One that has been deleted, and whose name another pod has now."""
        victim = self.gone()
        self.pods.create("victim", node=self.node, **by)  # type: ignore[arg-type]
        return victim

    def ended(self, exit_code: int) -> Object:
        """One whose containers have ended."""
        victim = self.victim()
        self.pods.finish(victim, exit_code=exit_code)
        return victim

    def terminating(self) -> Object:
        """One that is being deleted, and has 300 s for it."""
        victim = self.victim()
        self.pods.delete(victim, grace_s=300)
        return victim

    def of_a_daemonset(self) -> Object:
        """One that the real controller made."""
        container = {"name": "main", "image": "tests.invalid/agent:1"}
        spec = {"nodeSelector": {"kubernetes.io/hostname": self.node}, "containers": [container]}
        template = {"metadata": {"labels": LABELS}, "spec": {**spec, "tolerations": [{"operator": "Exists"}]}}
        self.pods.daemonset({"selector": {"matchLabels": LABELS}, "template": template})
        wait_until(lambda: any(each["spec"].get("nodeName") for each in self.pods.list()), "its pod is bound")
        return self.pods.run(self.pods.list()[0])


Meanwhile = Callable[[Scene, Object], object]
GONE, SPARED = EvictionAnswer.GONE, EvictionAnswer.SPARED
READ_ONLY: Final = [(*READ, 200)]


def _deleted(scene: Scene, victim: Object) -> bool:
    scene.pods.delete(victim)
    return True


def _recreated(scene: Scene, victim: Object, *, running: bool = True) -> bool:
    scene.pods.delete(victim)
    return bool(scene.pods.create("victim", node=scene.node, running=running))


# What the victim is -> how it is made, what happens after it was read, the answer, and the requests.
NOT_EVICTED: Final[dict[str, tuple[Callable[[Scene], Object], Meanwhile | None, EvictionAnswer, list[object]]]] = {
    "gone": (Scene.gone, None, GONE, [(*READ, 404)]),
    "gone after it was read": (Scene.victim, _deleted, GONE, [*READ_ONLY, (*EVICT, 404)]),
    "recreated": (Scene.replaced, None, GONE, [*READ_ONLY]),
    # The precondition on the UID holds at the server.
    "recreated after it was read": (Scene.victim, _recreated, GONE, [*READ_ONLY, (*EVICT, 409)]),
    # For a pending pod the server tries 20 times, half a second apart, before it says 409: that is waited for.
    "recreated, not running yet": (
        Scene.victim,
        lambda scene, victim: _recreated(scene, victim, running=False),
        GONE,
        [*READ_ONLY, (*EVICT, 409)],
    ),
    "replaced by a static pod": (lambda scene: scene.replaced(metadata=MIRROR), None, GONE, [*READ_ONLY]),
    "a static pod": (
        lambda scene: scene.pods.create("victim", node=scene.node, metadata=MIRROR),
        None,
        SPARED,
        [*READ_ONLY],
    ),
    # It would come back on this node at once.
    "of a DaemonSet": (Scene.of_a_daemonset, None, SPARED, [*READ_ONLY]),
    # Evicting it would only remove the record of what happened.
    "succeeded": (lambda scene: scene.ended(0), None, GONE, [*READ_ONLY]),
    "failed": (lambda scene: scene.ended(1), None, GONE, [*READ_ONLY]),
    # A second eviction would shorten the grace period that it has.
    "being deleted": (Scene.terminating, None, GONE, [*READ_ONLY]),
    "no longer to be evicted": (Scene.victim, lambda *_: False, EvictionAnswer.WITHDRAWN, [*READ_ONLY]),
}


@pytest.mark.parametrize("what", NOT_EVICTED)
def test_no_pod_but_the_victim_is_evicted(bench: Bench, pods: Pods, node: str, what: str) -> None:
    """Whatever has become of the victim, no pod is deleted for it, and none of the requests could do so."""
    make, meanwhile, answer, requests = NOT_EVICTED[what]
    scene = Scene(pods=pods, node=node)
    victim = make(scene)
    act = (lambda: bool(meanwhile(scene, victim))) if meanwhile is not None else (lambda: True)
    assert bench.evict(victim, is_wanted=act).answer is answer
    assert {each["metadata"].get("deletionGracePeriodSeconds") for each in pods.list()} <= {None, 300}
    assert bench.requests() == requests


def test_a_budget_blocks_and_lets_through(bench: Bench, pods: Pods, node: str) -> None:
    """429 by the real disruption controller; loosened, the next attempt succeeds. A dry run uses nothing up."""
    both = [pods.create(node=node, metadata={"labels": LABELS}) for _ in range(2)]
    pods.budget(LABELS, allowed=0, name="web", minAvailable=2)
    assert bench.evict(both[0], is_dry_run=True).answer is EvictionAnswer.BLOCKED
    blocked = bench.evict(both[0])
    assert blocked.answer is EvictionAnswer.BLOCKED
    assert blocked.reason.startswith("the disruption budget web ")
    assert 1.0 <= blocked.wait_s <= 5.0
    pods.loosen("web", allowed=1, minAvailable=1)
    assert [bench.evict(pod, is_dry_run=True).answer for pod in both] == [EvictionAnswer.DRY_RUN_PASSED] * 2
    assert bench.spared(*both)
    assert bench.evict(both[0], number=2).answer is EvictionAnswer.ACCEPTED
    assert bench.spared(both[1])
    assert [code for verb, _, code in bench.requests() if verb == "create"] == [429, 429, 201, 201, 201]


def test_two_budgets(bench: Bench, pods: Pods, node: str) -> None:
    """The server's 500 for a pod with two of them is known as blocked: it won't resolve by itself."""
    pod = pods.create(node=node, metadata={"labels": LABELS})
    for name in ("one", "two"):
        pods.budget(LABELS, allowed=1, name=name, minAvailable=0)
    assert bench.evict(pod).answer is EvictionAnswer.BLOCKED
    assert bench.spared(pod)
    assert bench.requests() == [(*READ, 200), (*EVICT, 500)]


def test_a_budget_that_was_not_processed_yet(bench: Bench, pods: Pods, node: str) -> None:
    """A real 429 with Retry-After, while the controller manager is down: it is kept."""
    pod = pods.create(node=node, metadata={"labels": LABELS})
    manager = bench.plane.controller_manager
    assert manager is not None
    manager.stop()
    try:
        pods.budget(LABELS, allowed=None, name="new", minAvailable=0)
        reply = bench.evict(pod)
    finally:
        manager.start()
    assert reply.answer is EvictionAnswer.LATER
    assert reply.reason.startswith("the disruption budget new ")
    assert 10.0 < reply.wait_s <= 15.0
    pods.wait_for_budget("new", allowed=1)
    assert bench.evict(pod).answer is EvictionAnswer.ACCEPTED
    assert bench.requests() == [(*READ, 200), (*EVICT, 429), (*READ, 200), (*EVICT, 201)]


@pytest.mark.parametrize("when", ["when the pod is read", "when it is evicted"])
def test_throttled(bench: Bench, pods: Pods, node: str, when: str) -> None:
    """429 by priority and fairness, which names no budget: nothing is done, and it is tried again after its pause."""
    pod = pods.create(node=node)
    with contextlib.ExitStack() as stack:
        throttling = bench.plane.throttle(bench.account.identity.user)
        if when == "when the pod is read":
            stack.enter_context(throttling)
            reply = bench.evict(pod)
        else:
            reply = bench.evict(pod, is_wanted=lambda: stack.enter_context(throttling) is None)
    assert reply.answer is EvictionAnswer.LATER
    assert "429" in reply.reason
    assert reply.wait_s > 1.0
    assert bench.spared(pod)


def test_no_right(bench: Bench, reading_account: Account, pods: Pods, node: str) -> None:
    """403 and 401 are refusals with a remedy, after as few requests as possible; it never falls back to deleting."""
    pod, kubeconfig = pods.create(node=node), bench.plane.kubeconfig
    for config, reason, requests in (
        (reading_account.kubeconfig, 'cannot create resource "pods/eviction"', [(*READ, 200), (*EVICT, 403)]),
        (kubeconfig(token=bench.plane.token("nobody")), 'cannot get resource "pods"', [(*READ, 403)]),
        (kubeconfig(token="expired"), "token", [(*READ, 401), (*READ, 401)]),
    ):
        other = bench.by(config)
        reply = other.evict(pod)
        assert reply.answer is EvictionAnswer.REFUSED
        assert reason in reply.reason
        assert other.requests() == requests
    assert bench.spared(pod)


def test_credentials_that_were_rotated(bench: Bench, pods: Pods, node: str, api_proxy: ApiProxy) -> None:
    """401 once: the credentials are read again and it continues, at the read as at the eviction."""
    pod = pods.create(node=node)
    api_proxy.answer(401, times=1, when=lambda seen: seen.method == "GET")
    api_proxy.answer(401, times=1, when=writes("/eviction"))
    assert bench.by(bench.account.through(api_proxy)).evict(pod).answer is EvictionAnswer.ACCEPTED
    assert [seen.method for seen in api_proxy.seen] == ["GET", "GET", "POST", "POST"]


def test_an_answer_that_is_lost(bench: Bench, pods: Pods, node: str, api_proxy: ApiProxy) -> None:
    """The connection breaks after the server has evicted: unknown, and the next attempt only reads."""
    pod = pods.create(node=node)
    made = bench.by(bench.account.through(api_proxy))
    api_proxy.cut(when=writes("/eviction"))
    assert made.evict(pod, grace_s=60).answer is EvictionAnswer.UNKNOWN
    assert made.evict(pod, number=2, is_unsure=True).answer is EvictionAnswer.ACCEPTED
    assert bench.requests() == [(*READ, 200), (*EVICT, 201), (*READ, 200)]
    assert pods.read(pod)["metadata"]["deletionGracePeriodSeconds"] == 60


@pytest.mark.slow
def test_an_answer_that_takes_too_long(bench: Bench, pods: Pods, node: str, api_proxy: ApiProxy) -> None:
    """After 15 s it is no longer waited for; it may be carried out later, and the next attempt sees it."""
    pod = pods.create(node=node)
    made = bench.by(bench.account.through(api_proxy))
    api_proxy.delay(60.0, when=writes("/eviction"), times=1)
    assert made.evict(pod).answer is EvictionAnswer.UNKNOWN
    assert bench.spared(pod)
    api_proxy.heal()
    wait_until(lambda: not bench.spared(pod), "the late eviction is carried out")
    assert made.evict(pod, number=2, is_unsure=True).answer is EvictionAnswer.ACCEPTED
    assert bench.requests() == [(*READ, 200), (*EVICT, 201), (*READ, 200)]


def test_a_server_that_fails(bench: Bench, pods: Pods, node: str, api_proxy: ApiProxy, tcp_proxy: TcpProxy) -> None:
    """At the eviction it is unknown whether that was carried out; before it nothing has been requested yet."""
    pod = pods.create(node=node)
    made = bench.by(bench.account.through(api_proxy))
    api_proxy.answer(503, when=writes("/eviction"), times=1)
    assert made.evict(pod).answer is EvictionAnswer.UNKNOWN
    api_proxy.answer(503, times=1)
    assert made.evict(pod).answer is EvictionAnswer.LATER
    tcp_proxy.refuse()
    assert bench.by(bench.account.through(tcp_proxy)).evict(pod).answer is EvictionAnswer.LATER
    assert bench.spared(pod)
