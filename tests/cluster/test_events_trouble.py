"""Events when the API server does not take them: kept or dropped, said once in the log, and never written twice."""

import time
from collections.abc import Callable

import pytest

from tests.cluster.accounts import Account, NewAccount
from tests.cluster.api import Object
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.control_plane import ControlPlane
from tests.cluster.event_rig import TELLS, asked, events_of, warning, writing
from tests.cluster.faults import writes
from tests.cluster.pods import Pods
from tests.cluster.tcp_proxy import TcpProxy
from tests.node.support import wait_until
from watchdog.kube.event_objects import PodEvent
from watchdog.kube.events import MOST_FAILURES, EventWriter


@pytest.fixture
def pod(pods: Pods) -> Object:
    """A pod that runs."""
    return pods.create("trainer", node=pods.node())


@pytest.fixture
def account(new_account: NewAccount) -> Account:
    """With the rights of a policy that observes and tells."""
    return new_account(TELLS)


def several(pod: Object, count: int, since: int = 0) -> list[PodEvent]:
    """Different things that are told of one pod."""
    uid = pod["metadata"]["uid"]
    return [warning(pod, number / 100, key=(uid, str(number))) for number in range(since, since + count)]


def notice(writer: EventWriter) -> str:
    """The one line that the log gets; the server may have written down its answer before the writer has read it."""
    lines: list[str] = []

    def told() -> bool:
        lines.extend(writer.messages.take())
        return bool(lines)

    wait_until(told)
    (line,) = lines
    return line


def test_without_rights_the_log_says_once_what_to_do(control_plane: ControlPlane, namespace: str, pod: Object) -> None:
    """Each Event is asked for once and then dropped; one line names the command that prints what is missing."""
    with writing(control_plane.kubeconfig(token=control_plane.token("nobody"))) as writer:
        writer.offer(several(pod, 5))
        wait_until(lambda: writer.counts()["refused"] == 5)
        line = notice(writer)
    assert "an Event GPUMemoryOverLimit on pod" in line
    assert 'cannot create resource "events" in API group "events.k8s.io"' in line
    assert "`gpu-watchdog rights`" in line
    assert [each.code for each in asked(control_plane, namespace)] == [403] * 5


def test_a_namespace_that_is_being_deleted_takes_no_events(
    control_plane: ControlPlane, pods: Pods, account: Account
) -> None:
    """Its pods are still measured and acted on while it goes: what is told of them is dropped, with one line."""
    name = f"{pods.namespace}-ending"
    api = control_plane.api
    api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name, "finalizers": ["tests.invalid/hold"]}})
    pod = pods.create("trainer", node=pods.node(), namespace=name, metadata={"finalizers": ["tests.invalid/hold"]})
    api.ask("DELETE", f"/api/v1/namespaces/{name}")
    with writing(account.kubeconfig) as writer:
        writer.offer(several(pod, 5))
        wait_until(lambda: writer.counts()["refused"] == 5)
        assert notice(writer) == f"namespace {name} is being deleted, so it no longer accepts Events"
    for path in (f"/api/v1/namespaces/{name}/pods/trainer", f"/api/v1/namespaces/{name}"):
        api.call("PATCH", path, {"metadata": {"finalizers": []}})


def test_a_namespace_that_is_gone_takes_no_events(control_plane: ControlPlane, pod: Object, account: Account) -> None:
    """A pod list can be older than the end of a namespace: nothing is tried again."""
    with writing(account.kubeconfig) as writer:
        writer.offer([warning(pod, namespace="not-there"), warning(pod, 1, namespace="not-there")])
        wait_until(lambda: writer.counts()["refused"] == 2)
        assert 'namespaces "not-there" not found' in notice(writer)
    assert [each.code for each in asked(control_plane, "not-there")] == [404, 404]


@pytest.mark.parametrize("fault", ["refuse", "stall"])
def test_events_wait_for_an_api_server_that_is_away(
    control_plane: ControlPlane, namespace: str, pod: Object, account: Account, tcp_proxy: TcpProxy, fault: str
) -> None:
    """What happened during an outage is told after it, with its own time, each once; meanwhile nobody waits."""
    with writing(account.through(tcp_proxy)) as writer:
        {"refuse": tcp_proxy.refuse, "stall": tcp_proxy.accept_silently}[fault]()
        told = several(pod, 4)
        began = time.monotonic()
        writer.offer(told)
        assert time.monotonic() - began < 3
        if fault == "refuse":
            wait_until(lambda: writer.messages.take() != ())
        tcp_proxy.heal()
        tcp_proxy.cut()
        wait_until(lambda: writer.counts()["written"] == 4)
    events = events_of(control_plane, namespace)
    assert sorted(event["eventTime"] for event in events) == [event["eventTime"] for event in events]
    assert len(events) == 4


@pytest.mark.parametrize("again", [False, True])
def test_an_answer_that_gets_lost_makes_no_second_event(
    control_plane: ControlPlane, namespace: str, pod: Object, account: Account, api_proxy: ApiProxy, again: bool
) -> None:
    """The server has it, the writer does not know: asked again it is the same Event, and the same count."""
    with writing(account.through(api_proxy)) as writer:
        if again:
            writer.offer((warning(pod, -5),))
            wait_until(lambda: writer.counts()["written"] == 1)
        api_proxy.cut(when=lambda seen: seen.method in ("POST", "PATCH"), times=2)
        writer.offer((warning(pod),))
        wait_until(lambda: writer.counts()["written"] == 1 + again)
    (event,) = events_of(control_plane, namespace)
    assert event.get("series", {}).get("count") == (2 if again else None)
    codes = [each.code for each in asked(control_plane, namespace)]
    assert codes == ([201, 200, 200, 200] if again else [201, 409, 409])


def _unavailable(proxy: ApiProxy) -> None:
    proxy.answer(503, when=writes("/events"), times=2)


def _throttled(proxy: ApiProxy) -> None:
    proxy.answer(429, headers={"Retry-After": "1"}, when=writes("/events"), times=1)


def _unwell(proxy: ApiProxy) -> None:
    proxy.answer(500, when=writes("/events"), times=3)


@pytest.mark.parametrize("fault", [_unavailable, _throttled, _unwell])
def test_an_api_server_that_is_not_well_is_asked_again(
    control_plane: ControlPlane,
    namespace: str,
    pod: Object,
    account: Account,
    api_proxy: ApiProxy,
    fault: Callable[[ApiProxy], None],
) -> None:
    """With pauses, and after a Retry-After not before its time."""
    fault(api_proxy)
    with writing(account.through(api_proxy)) as writer:
        began = time.monotonic()
        writer.offer((warning(pod),))
        wait_until(lambda: writer.counts()["written"] == 1)
        took_s = time.monotonic() - began
        assert fault is not _throttled or took_s >= 1
        assert "the API server answered" in notice(writer)
    assert len(events_of(control_plane, namespace)) == 1


def test_an_event_that_the_server_fails_on_holds_up_no_other(
    control_plane: ControlPlane, namespace: str, pod: Object, account: Account, api_proxy: ApiProxy
) -> None:
    """What is found invalid is tried once, what a webhook of a namespace, say, fails on 12 times, behind the others."""
    with writing(account.through(api_proxy), longest_pause_s=2.0) as writer:
        api_proxy.answer(422, when=writes("/events"), times=1)
        api_proxy.answer(500, when=writes("/failing/events"), times=2 * MOST_FAILURES)
        invalid, *good = several(pod, 4)
        writer.offer((invalid, warning(pod, namespace="failing"), *good))
        wait_until(lambda: writer.counts()["written"] == 3)
        assert writer.counts() == {"written": 3, "limited": 0, "refused": 1, "dropped": 0}
        wait_until(lambda: writer.counts()["dropped"] == 1)
    assert len(api_proxy.seen) == 1 + MOST_FAILURES + 3
    assert len(events_of(control_plane, namespace)) == 3


def test_a_throttled_account_writes_later(
    control_plane: ControlPlane, namespace: str, pod: Object, account: Account
) -> None:
    """The server's own priority and fairness: 429 with Retry-After is kept, and what is told is not lost."""
    with writing(account.kubeconfig) as writer:
        with control_plane.throttle(account.identity.user):
            writer.offer((warning(pod),))
            wait_until(lambda: any(each.code == 429 for each in asked(control_plane, namespace)))
            assert "answered 429" in notice(writer)
        wait_until(lambda: writer.counts()["written"] == 1)
    assert len(events_of(control_plane, namespace)) == 1
