"""Tries to evict against the real API server, disruption controller and throttling: nobody wrong is ever hit."""

from collections.abc import Callable, Iterator

import pytest

from tests.cluster.accounts import Account, wait_until
from tests.cluster.api import Object
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.control_plane import ControlPlane
from tests.cluster.eviction_rig import AGENT, Bench, attempt, evicting
from tests.cluster.faults import Seen, writes
from tests.cluster.pods import Pods
from tests.cluster.tcp_proxy import TcpProxy
from watchdog.core.eviction import EvictionAnswer

LOOK, EVICT = ("get", ""), ("create", "eviction")
MIRROR = {"kubernetes.io/config.mirror": "0123456789abcdef0123456789abcdef"}


@pytest.fixture
def bench(control_plane: ControlPlane, evicting_account: Account, pods: Pods) -> Iterator[Bench]:
    """The daemon's account, straight to the server; afterwards: it never asked for a deletion."""
    made = Bench(evicting_account, pods)
    with made.api:
        yield made
        made.requests()
    asked = {each.verb for each in control_plane.requests(user_agent=AGENT, since=made.began_s)}
    assert asked <= {"get", "create"}


@pytest.fixture
def node(pods: Pods) -> str:
    """A node for the test's pods."""
    return pods.node()


def test_an_eviction(bench: Bench, pods: Pods, node: str) -> None:
    """201: the pod is being deleted with the grace that was asked for, marked as evicted; its twin lives on."""
    twins = [pods.create(node=node, metadata={"labels": {"app": "twin"}}) for _ in range(2)]
    reply = bench.evict(twins[0], grace_s=7)
    assert reply.answer is EvictionAnswer.ACCEPTED
    evicted = pods.read(twins[0])
    assert evicted["metadata"]["deletionGracePeriodSeconds"] == 7
    (why,) = [each for each in evicted["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert why["reason"] == "EvictionByEvictionAPI"
    assert bench.spared(twins[1])
    assert bench.requests() == [(*LOOK, 200), (*EVICT, 201)]


def test_a_pod_that_is_gone(bench: Bench, pods: Pods, node: str) -> None:
    """404 on the fresh look: gone, and no eviction is asked for."""
    pod = pods.create(node=node)
    pods.delete(pod)
    reply = bench.evict(pod)
    assert reply.answer is EvictionAnswer.GONE
    assert bench.requests() == [(*LOOK, 404)]


def test_a_pod_that_goes_between_the_look_and_the_eviction(bench: Bench, pods: Pods, node: str) -> None:
    """404 on the eviction itself: gone."""
    pod = pods.create(node=node)
    reply = bench.evict(pod, is_wanted=doing(lambda: pods.delete(pod)))
    assert reply.answer is EvictionAnswer.GONE
    assert bench.requests() == [(*LOOK, 200), (*EVICT, 404)]


def doing(act: Callable[[], object]) -> Callable[[], bool]:
    """Something that happens between the look at the pod and its eviction."""

    def is_wanted() -> bool:
        act()
        return True

    return is_wanted


def test_a_pod_recreated_before_the_look(bench: Bench, pods: Pods, node: str) -> None:
    """Between decision and act another pod has come under the victim's name: its UID tells, and it is not touched."""
    victim = pods.create("victim", node=node)
    pods.delete(victim)
    other = pods.create("victim", node=node)
    reply = bench.evict(victim)
    assert reply.answer is EvictionAnswer.GONE
    assert bench.spared(other)
    assert bench.requests() == [(*LOOK, 200)]


def test_a_pod_recreated_between_the_look_and_the_eviction(bench: Bench, pods: Pods, node: str) -> None:
    """The same a moment later: the precondition on the UID holds at the server, 409."""
    victim = pods.create("victim", node=node)
    made: list[Object] = []

    def recreate() -> None:
        pods.delete(victim)
        made.append(pods.create("victim", node=node))

    reply = bench.evict(victim, is_wanted=doing(recreate))
    assert reply.answer is EvictionAnswer.GONE
    assert bench.spared(*made)
    assert bench.requests() == [(*LOOK, 200), (*EVICT, 409)]


@pytest.mark.slow
def test_a_pod_recreated_that_does_not_run_yet(bench: Bench, pods: Pods, node: str) -> None:
    """For a pending pod the server tries 20 times, half a second apart, before it says 409: that is waited for."""
    victim = pods.create("victim", node=node)
    made: list[Object] = []

    def recreate() -> None:
        pods.delete(victim)
        made.append(pods.create("victim", node=node, running=False))

    reply = bench.evict(victim, is_wanted=doing(recreate))
    assert reply.answer is EvictionAnswer.GONE
    assert bench.spared(*made)
    assert bench.requests() == [(*LOOK, 200), (*EVICT, 409)]


def test_a_mirror_pod_with_the_victims_name(bench: Bench, pods: Pods, node: str) -> None:
    """Another UID, so it is not meant; and even by its own UID a mirror pod is never evicted."""
    victim = pods.create("victim", node=node)
    pods.delete(victim)
    mirror = pods.create("victim", node=node, metadata={"annotations": MIRROR})
    assert bench.evict(victim).answer is EvictionAnswer.GONE
    reply = bench.evict(mirror)
    assert reply.answer is EvictionAnswer.SPARED
    assert bench.spared(mirror)
    assert bench.requests() == [(*LOOK, 200), (*LOOK, 200)]


def test_a_pod_of_a_daemonset(bench: Bench, pods: Pods, node: str) -> None:
    """It would come back on this node at once: the fresh look sees its controller and spares it."""
    labels = {"app": "agent"}
    container = {"name": "main", "image": "tests.invalid/agent:1"}
    spec = {"nodeSelector": {"kubernetes.io/hostname": node}, "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": {**spec, "tolerations": [{"operator": "Exists"}]}}
    body = {"metadata": {"name": "agent"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    bench.plane.api.ask("POST", f"/apis/apps/v1/namespaces/{pods.namespace}/daemonsets", body)
    wait_until(lambda: any(each["spec"].get("nodeName") for each in pods.list()), "the pod of the DaemonSet is bound")
    (pod,) = pods.list()
    reply = bench.evict(pods.run(pod))
    assert reply.answer is EvictionAnswer.SPARED
    assert bench.requests() == [(*LOOK, 200)]


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_pod_that_has_ended(bench: Bench, pods: Pods, node: str, exit_code: int) -> None:
    """Succeeded or failed: evicting it would only remove the record of what happened."""
    pod = pods.create(node=node)
    pods.finish(pod, exit_code=exit_code)
    reply = bench.evict(pod)
    assert reply.answer is EvictionAnswer.GONE
    assert bench.spared(pod)
    assert bench.requests() == [(*LOOK, 200)]


def test_a_pod_that_is_being_deleted_already(bench: Bench, pods: Pods, node: str) -> None:
    """A second eviction would shorten the grace that it was given."""
    pod = pods.create(node=node)
    pods.delete(pod, grace_s=300)
    reply = bench.evict(pod, grace_s=1)
    assert reply.answer is EvictionAnswer.GONE
    assert pods.read(pod)["metadata"]["deletionGracePeriodSeconds"] == 300
    assert bench.requests() == [(*LOOK, 200)]


def test_a_try_that_was_called_back(bench: Bench, pods: Pods, node: str) -> None:
    """Given up while the pod was looked at: nothing more is asked."""
    pod = pods.create(node=node)
    assert bench.evict(pod, is_wanted=lambda: False).answer is EvictionAnswer.WITHDRAWN
    assert bench.spared(pod)
    assert bench.requests() == [(*LOOK, 200)]


def test_a_budget_blocks_and_lets_through(bench: Bench, pods: Pods, node: str) -> None:
    """429 by the real disruption controller, with its numbers; loosened, the next try goes through."""
    labels = {"app": "web"}
    both = [pods.create(node=node, metadata={"labels": labels}) for _ in range(2)]
    pods.budget(labels, allowed=0, name="web", minAvailable=2)
    reply = bench.evict(both[0])
    assert reply.answer is EvictionAnswer.BLOCKED
    assert reply.reason.startswith("the disruption budget web ")
    assert 1.0 <= reply.wait_s <= 5.0
    assert bench.spared(*both)
    path = f"/apis/policy/v1/namespaces/{pods.namespace}/poddisruptionbudgets/web"
    bench.plane.api.ask("PATCH", path, {"spec": {"minAvailable": 1}})
    pods.wait_for_budget("web", allowed=1)
    assert bench.evict(both[0], number=2).answer is EvictionAnswer.ACCEPTED
    assert bench.spared(both[1])
    assert bench.requests() == [(*LOOK, 200), (*EVICT, 429), (*LOOK, 200), (*EVICT, 201)]


def test_a_dry_run_evicts_nobody(bench: Bench, pods: Pods, node: str) -> None:
    """What a budget blocks, a dry run shows; what it lets through stays as it is, and its budget is not used up."""
    labels = {"app": "web"}
    both = [pods.create(node=node, metadata={"labels": labels}) for _ in range(2)]
    assert bench.evict(both[0], is_dry_run=True).answer is EvictionAnswer.REHEARSED
    pods.budget(labels, allowed=1, name="web", minAvailable=1)
    assert [bench.evict(pod, is_dry_run=True).answer for pod in both] == [EvictionAnswer.REHEARSED] * 2
    path = f"/apis/policy/v1/namespaces/{pods.namespace}/poddisruptionbudgets/web"
    bench.plane.api.ask("PATCH", path, {"spec": {"minAvailable": 2}})
    pods.wait_for_budget("web", allowed=0)
    assert bench.evict(both[0], is_dry_run=True).answer is EvictionAnswer.BLOCKED
    assert bench.spared(*both)


def test_two_budgets(bench: Bench, pods: Pods, node: str) -> None:
    """500: it won't heal by itself, and the reason says what to do."""
    labels = {"app": "web"}
    pod = pods.create(node=node, metadata={"labels": labels})
    for name in ("one", "two"):
        pods.budget(labels, allowed=1, name=name, minAvailable=0)
    reply = bench.evict(pod)
    assert reply.answer is EvictionAnswer.BLOCKED
    assert "PodDisruptionBudget" in reply.reason
    assert bench.spared(pod)
    assert bench.requests() == [(*LOOK, 200), (*EVICT, 500)]


def test_a_budget_that_was_not_looked_at_yet(bench: Bench, pods: Pods, node: str) -> None:
    """429 with Retry-After, for real: the controller manager is down, so nobody has seen the budget."""
    labels = {"app": "web"}
    pod = pods.create(node=node, metadata={"labels": labels})
    manager = bench.plane.controller_manager
    assert manager is not None
    manager.stop()
    try:
        path = f"/apis/policy/v1/namespaces/{pods.namespace}/poddisruptionbudgets"
        spec = {"selector": {"matchLabels": labels}, "minAvailable": 0}
        bench.plane.api.ask("POST", path, {"metadata": {"name": "new"}, "spec": spec})
        reply = bench.evict(pod)
    finally:
        manager.start()
    assert reply.answer is EvictionAnswer.LATER
    assert reply.reason.startswith("the disruption budget new ")
    assert 10.0 < reply.wait_s <= 15.0
    assert bench.spared(pod)
    pods.wait_for_budget("new", allowed=1)
    assert bench.evict(pod).answer is EvictionAnswer.ACCEPTED
    assert bench.requests() == [(*LOOK, 200), (*EVICT, 429), (*LOOK, 200), (*EVICT, 201)]


def test_throttled_before_the_look(bench: Bench, pods: Pods, node: str) -> None:
    """429 by priority and fairness, which names no budget: nothing is done, and it is tried again after its pause."""
    pod = pods.create(node=node)
    with bench.plane.throttle(bench.account.identity.user):
        reply = bench.evict(pod)
    assert reply.answer is EvictionAnswer.LATER
    assert "429" in reply.reason
    assert reply.wait_s > 1.0
    assert bench.spared(pod)
    assert bench.evict(pod).answer is EvictionAnswer.ACCEPTED


def test_throttled_at_the_eviction(bench: Bench, pods: Pods, node: str) -> None:
    """The same a moment later: it is no budget that blocks."""
    pod = pods.create(node=node)
    throttling = bench.plane.throttle(bench.account.identity.user)
    try:
        reply = bench.evict(pod, is_wanted=doing(throttling.__enter__))
    finally:
        throttling.__exit__(None, None, None)
    assert reply.answer is EvictionAnswer.LATER
    assert "429" in reply.reason
    assert bench.spared(pod)


def test_no_right_to_evict(bench: Bench, looking_account: Account, pods: Pods, node: str) -> None:
    """403 with the remedy; it never falls back to deleting."""
    pod = pods.create(node=node)
    reply = Bench(looking_account, pods).evict(pod)
    assert reply.answer is EvictionAnswer.REFUSED
    assert 'cannot create resource "pods/eviction"' in reply.reason
    assert "apply what `gpu-watchdog rights` prints" in reply.reason
    assert bench.spared(pod)
    assert bench.requests() == [(*LOOK, 200), (*EVICT, 403)]


def test_no_right_to_look(bench: Bench, pods: Pods, node: str) -> None:
    """403 on the look, of an account without any rights: it says which one is missing."""
    pod = pods.create(node=node)
    config = bench.plane.kubeconfig(token=bench.plane.token("nobody"))
    reply = Bench(bench.account, pods, config).evict(pod)
    assert reply.answer is EvictionAnswer.REFUSED
    assert 'cannot get resource "pods"' in reply.reason
    assert bench.requests() == [(*LOOK, 403)]


def test_credentials_that_are_not_taken(bench: Bench, pods: Pods, node: str) -> None:
    """401, also by credentials read again: failed, with the remedy; two requests and no more."""
    pod = pods.create(node=node)
    config = bench.plane.kubeconfig(token="expired")
    reply = Bench(bench.account, pods, config).evict(pod)
    assert reply.answer is EvictionAnswer.REFUSED
    assert "token" in reply.reason
    assert bench.requests() == [(*LOOK, 401), (*LOOK, 401)]


def test_credentials_that_were_rotated(bench: Bench, pods: Pods, node: str, api_proxy: ApiProxy) -> None:
    """401 once: the credentials are read again and it goes on, at the look as at the eviction."""
    pod = pods.create(node=node)
    made = bench.through(api_proxy)
    api_proxy.answer(401, times=1, when=lambda seen: seen.method == "GET")
    api_proxy.answer(401, times=1, when=writes("/eviction"))
    assert made.evict(pod).answer is EvictionAnswer.ACCEPTED
    assert [seen.method for seen in api_proxy.seen] == ["GET", "GET", "POST", "POST"]


def test_an_answer_that_is_lost(bench: Bench, pods: Pods, node: str, api_proxy: ApiProxy) -> None:
    """The connection breaks after the server has evicted: unknown, and the next try's look tells; nothing twice."""
    pod = pods.create(node=node)
    made = bench.through(api_proxy)
    api_proxy.cut(when=writes("/eviction"))
    first = made.evict(pod, grace_s=60)
    assert first.answer is EvictionAnswer.UNKNOWN
    second = made.evict(pod, number=2, is_unsure=True)
    assert second.answer is EvictionAnswer.ACCEPTED
    assert second.reason == "the API server's answer was lost, and the pod is being deleted already"
    assert bench.requests() == [(*LOOK, 200), (*EVICT, 201), (*LOOK, 200)]
    assert pods.read(pod)["metadata"]["deletionGracePeriodSeconds"] == 60


@pytest.mark.slow
def test_an_answer_that_takes_too_long(bench: Bench, pods: Pods, node: str, api_proxy: ApiProxy) -> None:
    """After 15 s it is not waited for any longer; it may be carried out later, and the next look tells."""
    pod = pods.create(node=node)
    made = bench.through(api_proxy)
    api_proxy.delay(60.0, when=writes("/eviction"), times=1)
    first = made.evict(pod)
    assert first.answer is EvictionAnswer.UNKNOWN
    assert bench.spared(pod)
    api_proxy.heal()
    wait_until(lambda: not bench.spared(pod), "the late eviction comes about")
    assert made.evict(pod, number=2, is_unsure=True).answer is EvictionAnswer.ACCEPTED
    assert bench.requests() == [(*LOOK, 200), (*EVICT, 201), (*LOOK, 200)]


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_server_that_is_not_well(bench: Bench, pods: Pods, node: str, api_proxy: ApiProxy, status: int) -> None:
    """Any other 5xx: whether it was carried out is not known; at the look nothing has been asked for yet."""
    pod = pods.create(node=node)
    made = bench.through(api_proxy)
    api_proxy.answer(status, when=writes("/eviction"), times=1)
    assert made.evict(pod).answer is EvictionAnswer.UNKNOWN
    api_proxy.answer(status, times=1)
    assert made.evict(pod).answer is EvictionAnswer.LATER
    assert bench.spared(pod)


def test_no_way_to_the_server(bench: Bench, pods: Pods, node: str, tcp_proxy: TcpProxy) -> None:
    """Nothing listens: nothing was asked for, it is tried later, and the reason names the place."""
    pod = pods.create(node=node)
    made = bench.through(tcp_proxy)
    tcp_proxy.refuse()
    reply = made.evict(pod)
    assert reply.answer is EvictionAnswer.LATER
    assert bench.requests() == []
    tcp_proxy.heal()
    assert made.evict(pod).answer is EvictionAnswer.ACCEPTED


def test_one_silent_try_holds_up_no_other(bench: Bench, pods: Pods, node: str, api_proxy: ApiProxy) -> None:
    """Law 10: while the server is silent about one pod, ten others are evicted; the bell tells of each reply."""
    silent, *others = [pods.create(f"pod-{number}", node=node) for number in range(11)]
    made = bench.through(api_proxy)

    def is_silent(seen: Seen) -> bool:
        return seen.path.endswith("/pod-0/eviction")

    api_proxy.delay(60.0, when=is_silent)
    evictor, wait = evicting(made.api)
    for number, pod in enumerate((silent, *others)):
        evictor.begin(attempt(pod, ticket=number))
    found = wait(10, 14.0)
    assert {reply.answer for reply in found} == {EvictionAnswer.ACCEPTED}
    assert sorted(reply.ticket for reply in found) == list(range(1, 11))
    assert bench.spared(silent)
    api_proxy.heal()
    (last,) = wait(1, 90.0)
    assert (last.ticket, last.answer) == (0, EvictionAnswer.ACCEPTED)
