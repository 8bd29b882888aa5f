"""Events on a real API server: written with the least rights, shown by kubectl, counted, and never written twice."""

import re
import time
from dataclasses import replace

import pytest

from tests.node.support import wait_until
from tests.report.notes import occurrences
from tests.rig.cluster.accounts import Account, NewAccount
from tests.rig.cluster.api import Object
from tests.rig.cluster.api_proxy import ApiProxy
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.event_rig import OBSERVES, asked, events_of, on, path_of, warning, writing
from tests.rig.cluster.faults import writes
from tests.rig.cluster.pods import Pods
from tests.rig.cluster.tcp_proxy import TcpProxy
from watchdog.kube.event_objects import PodEvent
from watchdog.kube.events import MOST_FAILURES, EventWriter


@pytest.fixture
def pod(pods: Pods) -> Object:
    """A pod that runs."""
    return pods.create("trainer", node=pods.node())


@pytest.fixture
def account(new_account: NewAccount) -> Account:
    """With the rights of a policy that observes and writes Events."""
    return new_account(OBSERVES)


def several(pod: Object, count: int) -> list[PodEvent]:
    """Different Events of one pod."""
    uid = pod["metadata"]["uid"]
    return [warning(pod, number / 100, key=(uid, str(number))) for number in range(count)]


def write(writer: EventWriter, *events: PodEvent) -> None:
    """Write these and wait until it is done."""
    before = writer.counts()["written"]
    writer.offer(events)
    wait_until(lambda: writer.counts()["written"] == before + len(events))


def message(writer: EventWriter) -> str:
    """The one message for the log; the server may have noted its answer before the writer has read it."""
    lines: list[str] = []

    def arrived() -> bool:
        lines.extend(writer.messages.take_new())
        return bool(lines)

    wait_until(arrived)
    (line,) = lines
    return line


def test_every_reason_is_written_and_shown(
    control_plane: ControlPlane, namespace: str, pod: Object, account: Account
) -> None:
    """`kubectl describe pod` shows each Event once, whole and in order."""
    found = occurrences().values()
    made = [replace(on(pod, each), at_s=time.time() - len(found) + number) for number, each in enumerate(found)]
    with writing(account.kubeconfig) as writer:
        write(writer, *made)
    shown = control_plane.kubectl("describe", "pod", "trainer", "-n", namespace).stdout
    lines = [line for line in shown.splitlines() if "gpu-memory-watchdog" in line]
    # An Event that is written once has no moment in its name, by which kubectl sorts: it comes first.
    for each, line in zip(sorted(made, key=lambda each: not each.once), lines, strict=True):
        kind, reason, age, source, note = re.split(r"\s{2,}", line.strip(), maxsplit=4)
        assert (kind, reason) == ("Normal" if each.is_normal else "Warning", each.reason)
        assert (source, note) == ("gpu-memory-watchdog", each.note)
        assert age.endswith("s")


def test_a_repetition_is_a_series(control_plane: ControlPlane, namespace: str, pod: Object, account: Account) -> None:
    """It is the same Event with a count, by one PATCH each; after the server let that go, the next one continues it."""
    with writing(account.kubeconfig) as writer:
        for second in (-7200, -3600, 0):
            write(writer, warning(pod, second, again_within_s=3960))
        (first,) = events_of(control_plane, namespace)
        assert [each.verb for each in asked(control_plane, namespace)] == ["create", "patch", "patch"]
        shown = control_plane.kubectl("describe", "pod", "trainer", "-n", namespace).stdout
        assert re.search(r"GPUMemoryOverLimit\s+\d+s \(x3 over 120m\)\s+gpu-memory-watchdog", shown)
        control_plane.api.ask("DELETE", path_of(namespace, first["metadata"]["name"]))
        write(writer, warning(pod, again_within_s=3960, note="another note"))
    (second_one,) = events_of(control_plane, namespace)
    assert second_one["metadata"]["uid"] != first["metadata"]["uid"]
    assert (second_one["eventTime"], second_one["series"]["count"]) == (first["eventTime"], 4)
    assert second_one["note"] == "another note"


def test_the_next_daemon_writes_no_second_event(
    control_plane: ControlPlane, namespace: str, pod: Object, account: Account
) -> None:
    """A daemon that starts again finds the same invalid declarations: their Events exist already."""
    for second in (-60, 0):
        with writing(account.kubeconfig) as writer:
            write(writer, warning(pod, second, once=True))
    assert len(events_of(control_plane, namespace)) == 1


def test_one_pod_gets_no_more_than_25(
    control_plane: ControlPlane, namespace: str, pod: Object, account: Account
) -> None:
    """One pod does not fill the API server; another pod's Event is written all the same, at no more than the rate."""
    with writing(account.kubeconfig) as writer:
        writer.offer(several(pod, 31))
        wait_until(lambda: sum(writer.counts().values()) == 31)
        assert writer.counts() == {"written": 25, "limited": 6, "refused": 0, "dropped": 0}
        assert f"{namespace}/trainer" in message(writer)
        write(writer, warning(pod, uid="another"))
    times = [each.received_s for each in asked(control_plane, namespace)]
    assert len(times) == 26
    assert all(sum(1 for each in times if begin <= each <= begin + 1) <= 16 for begin in times)


def test_a_static_pod_has_its_events_where_kubectl_reads_them(
    control_plane: ControlPlane, namespace: str, pods: Pods, account: Account
) -> None:
    """Events of a mirror pod are found by the hash of its configuration, as the kubelet writes them."""
    digest = "0123456789abcdef0123456789abcdef"
    marks = {"kubernetes.io/config.mirror": digest, "kubernetes.io/config.hash": digest}
    pod = pods.create("trainer", node=pods.node(), metadata={"annotations": marks})
    with writing(account.kubeconfig) as writer:
        write(writer, warning(pod, uid=digest, note="by hash"), warning(pod, -400, note="by UID"))
    shown = control_plane.kubectl("describe", "pod", "trainer", "-n", namespace).stdout
    assert ("by hash" in shown, "by UID" in shown) == (True, False)


def test_the_last_events_are_still_written(
    control_plane: ControlPlane, namespace: str, pod: Object, account: Account
) -> None:
    """A daemon that stops in a grace period: what can be written in 0.3 s is, and its end waits no longer."""
    with writing(account.kubeconfig) as writer:
        write(writer, warning(pod, -10))
        writer.offer(several(pod, 3))
        began = time.monotonic()
        writer.stop(0.3)
        assert time.monotonic() - began < 5
    assert len(events_of(control_plane, namespace)) == 4


def test_without_rights_the_log_says_once_what_to_do(control_plane: ControlPlane, namespace: str, pod: Object) -> None:
    """Each Event is requested once and then dropped; one message names the command that prints what is missing."""
    with writing(control_plane.kubeconfig(token=control_plane.token("nobody"))) as writer:
        writer.offer(several(pod, 5))
        wait_until(lambda: writer.counts()["refused"] == 5)
        assert "`gpu-watchdog rights`" in message(writer)
    assert [each.code for each in asked(control_plane, namespace)] == [403] * 5


def test_a_namespace_that_goes_takes_no_events(control_plane: ControlPlane, pods: Pods, account: Account) -> None:
    """While it is being deleted, and once it is gone, each Event is requested once and dropped, with one message."""
    name = f"{pods.namespace}-ending"
    api = control_plane.api
    api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name, "finalizers": ["tests.invalid/hold"]}})
    pod = pods.create("trainer", node=pods.node(), namespace=name, metadata={"finalizers": ["tests.invalid/hold"]})
    api.ask("DELETE", f"/api/v1/namespaces/{name}")
    gone = [replace(each, namespace="not-there") for each in several(pod, 2)]
    for events, text in ((several(pod, 5), f"namespace {name} is being deleted"), (gone, '"not-there" not found')):
        with writing(account.kubeconfig) as writer:
            writer.offer(events)
            wait_until(lambda written=writer, events=events: written.counts()["refused"] == len(events))  # type: ignore[misc]
            assert text in message(writer)
    for path in (f"/api/v1/namespaces/{name}/pods/trainer", f"/api/v1/namespaces/{name}"):
        api.call("PATCH", path, {"metadata": {"finalizers": []}})
    assert [each.code for each in asked(control_plane, "not-there")] == [404, 404]


@pytest.mark.parametrize("fault", ["refuse", "accept_silently"])
def test_events_wait_for_an_api_server_that_is_away(
    control_plane: ControlPlane, namespace: str, pod: Object, account: Account, tcp_proxy: TcpProxy, fault: str
) -> None:
    """What happened during an outage is written after it, once and with its own time; offering waits for nothing."""
    with writing(account.through(tcp_proxy)) as writer:
        getattr(tcp_proxy, fault)()
        began = time.monotonic()
        writer.offer(several(pod, 4))
        assert time.monotonic() - began < 3
        if fault == "refuse":
            wait_until(lambda: writer.messages.take_new() != ())
        tcp_proxy.heal()
        tcp_proxy.cut()
        wait_until(lambda: writer.counts()["written"] == 4)
    times = [event["eventTime"] for event in events_of(control_plane, namespace)]
    assert (len(times), sorted(times)) == (4, times)


@pytest.mark.parametrize("again", [False, True])
def test_an_answer_that_is_lost_makes_no_second_event(
    control_plane: ControlPlane, namespace: str, pod: Object, account: Account, api_proxy: ApiProxy, again: bool
) -> None:
    """The server has it, the writer does not know: requested again it is the same Event, and the same count."""
    with writing(account.through(api_proxy)) as writer:
        if again:
            write(writer, warning(pod, -5))
        api_proxy.cut(when=lambda seen: seen.method in ("POST", "PATCH"), times=2)
        write(writer, warning(pod))
    (event,) = events_of(control_plane, namespace)
    assert event.get("series", {}).get("count") == (2 if again else None)
    codes = [each.code for each in asked(control_plane, namespace)]
    assert codes == ([201, 200, 200, 200] if again else [201, 409, 409])


@pytest.mark.parametrize(("status", "pause_s"), [(503, 0), (429, 1)])
def test_an_api_server_that_fails_is_tried_again(
    pod: Object, account: Account, api_proxy: ApiProxy, status: int, pause_s: int
) -> None:
    """Until it is written, and after a Retry-After not before its time."""
    api_proxy.answer(status, headers={"Retry-After": str(pause_s)}, when=writes("/events"), times=1)
    with writing(account.through(api_proxy)) as writer:
        began = time.monotonic()
        write(writer, warning(pod))
        assert time.monotonic() - began >= pause_s
        assert str(status) in message(writer)


def test_an_event_that_the_server_fails_on_holds_up_no_other(
    control_plane: ControlPlane, namespace: str, pod: Object, account: Account, api_proxy: ApiProxy
) -> None:
    """An invalid one is tried once, and one that a webhook of a namespace fails on 12 times, behind the others."""
    with writing(account.through(api_proxy), longest_pause_s=2.0) as writer:
        api_proxy.answer(422, when=writes("/events"), times=1)
        api_proxy.answer(500, when=writes("/failing/events"), times=2 * MOST_FAILURES)
        invalid, *good = several(pod, 4)
        writer.offer((invalid, warning(pod, namespace="failing"), *good))
        wait_until(lambda: writer.counts() == {"written": 3, "limited": 0, "refused": 1, "dropped": 0})
        wait_until(lambda: writer.counts()["dropped"] == 1)
    assert len(api_proxy.seen) == 1 + MOST_FAILURES + 3
    assert len(events_of(control_plane, namespace)) == 3
