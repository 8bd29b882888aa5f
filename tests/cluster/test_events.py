"""Events on a real API server: written with the least rights, shown by kubectl, and counted where they repeat."""

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from tests.cluster.accounts import NewAccount
from tests.cluster.api import Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.event_rig import NODE, TELLS, asked, events_of, on, path_of, warning, writing
from tests.cluster.pods import Pods
from tests.export.build import entry, killed, policy, quiet, trainer
from tests.export.occurrences import occurrences
from tests.node.support import wait_until
from tests.worlds import at
from watchdog.core.plan import Result
from watchdog.daemon.sinks import Sinks
from watchdog.kube.client import Api
from watchdog.kube.event_objects import PodEvent
from watchdog.kube.events import EventWriter
from watchdog.options import Options


@pytest.fixture
def pod(pods: Pods) -> Object:
    """A pod that runs."""
    return pods.create("trainer", node=pods.node())


@pytest.fixture
def config(new_account: NewAccount) -> Path:
    """The way to the API of an account with the rights of a policy that observes and tells."""
    return new_account(TELLS).kubeconfig


def told_now(pod: Object) -> list[PodEvent]:
    """Every kind of thing that is told, of this pod, a second between each and the next."""
    found = occurrences().values()
    return [replace(on(pod, each), at_s=time.time() - len(found) + number) for number, each in enumerate(found)]


def test_every_reason_is_written_and_shown(
    control_plane: ControlPlane, namespace: str, pod: Object, config: Path
) -> None:
    """What a tenant sees in `kubectl describe pod`: each Event once, whole, in the order of time, and from whom."""
    told = told_now(pod)
    with writing(config) as writer:
        writer.offer(told)
        wait_until(lambda: writer.counts()["written"] == len(told))
    shown = control_plane.kubectl("describe", "pod", "trainer", "-n", namespace).stdout
    lines = [line for line in shown.splitlines() if "gpu-memory-watchdog" in line]
    assert len(lines) == len(told)
    # What is told once has no moment in its name, by which kubectl sorts: it comes first.
    for pod_event, line in zip(sorted(told, key=lambda each: not each.once), lines, strict=True):
        kind, reason, age, source, note = re.split(r"\s{2,}", line.strip(), maxsplit=4)
        assert (kind, reason) == ("Normal" if pod_event.is_normal else "Warning", pod_event.reason)
        assert (source, note) == ("gpu-memory-watchdog", pod_event.note)
        assert age.endswith("s")
    listed = control_plane.kubectl("get", "events", "-n", namespace, "-o", "wide").stdout
    for pod_event in told:
        (line,) = (each for each in listed.splitlines() if pod_event.note in each)
        assert f"gpu-memory-watchdog, {NODE}" in line
        assert "pod/trainer" in line
    ours = control_plane.kubectl("events", "--for", "pod/trainer", "-n", namespace, "--types", "Normal").stdout
    assert [line for line in ours.splitlines() if "GPUMemory" in line] == [
        line for line in ours.splitlines() if "GPUMemoryReleased" in line
    ]


def test_the_object_has_what_machines_read(
    control_plane: ControlPlane, namespace: str, pod: Object, config: Path
) -> None:
    """Reason, action, type, who and which pod, and the numbers as annotations in plain bytes."""
    killed = on(pod, occurrences()["GPUMemoryKilled"])
    with writing(config) as writer:
        writer.offer((killed,))
        wait_until(lambda: writer.counts()["written"] == 1)
    (event,) = events_of(control_plane, namespace)
    assert (event["reason"], event["action"], event["type"]) == ("GPUMemoryKilled", "Kill", "Warning")
    assert (event["reportingController"], event["reportingInstance"]) == ("gpu-memory-watchdog", NODE)
    regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "trainer"}
    assert event["regarding"] == regarding | {"uid": pod["metadata"]["uid"]}
    assert event["note"] == killed.note
    marks = event["metadata"]["annotations"]
    assert (marks["gpu-memory-watchdog/used"], marks["gpu-memory-watchdog/container"]) == ("13314398617", "main")
    assert "series" not in event


def test_a_repetition_is_a_series(control_plane: ControlPlane, namespace: str, pod: Object, config: Path) -> None:
    """Told again it is the same Event with a count, by one PATCH each; `kubectl describe` says how often since when."""
    with writing(config) as writer:
        for number, second in enumerate((-7200, -3600, 0), 1):
            writer.offer((warning(pod, second, again_within_s=3960),))
            wait_until(lambda written=number: writer.counts()["written"] == written)  # type: ignore[misc]
    (event,) = events_of(control_plane, namespace)
    assert event["series"]["count"] == 3
    assert [each.verb for each in asked(control_plane, namespace)] == ["create", "patch", "patch"]
    shown = control_plane.kubectl("describe", "pod", "trainer", "-n", namespace).stdout
    assert re.search(r"GPUMemoryOverLimit\s+\d+s \(x3 over 120m\)\s+gpu-memory-watchdog", shown)


@pytest.mark.parametrize("field", ["note", "reason", "action", "type", "eventTime", "reportingInstance", "regarding"])
def test_an_event_that_is_written_stays_as_it_is(
    control_plane: ControlPlane, namespace: str, pod: Object, config: Path, field: str
) -> None:
    """The server refuses every change but that of the series: the beginning and the end of a kill are two Events."""
    with writing(config) as writer:
        writer.offer((warning(pod),))
        wait_until(lambda: writer.counts()["written"] == 1)
    (event,) = events_of(control_plane, namespace)
    others = {"type": "Normal", "eventTime": "2020-01-01T00:00:00.000000Z", "regarding": {"name": "another"}}
    path = path_of(namespace, event["metadata"]["name"])
    answer = control_plane.api.call("PATCH", path, {field: others.get(field, "another")})
    assert answer.status == 422
    assert "field is immutable" in answer.object["message"]
    series = {"count": 2, "lastObservedTime": "2030-01-01T00:00:00.000000Z"}
    assert control_plane.api.call("PATCH", path, {"series": series}).status == 200


def test_a_series_outlives_its_event(control_plane: ControlPlane, namespace: str, pod: Object, config: Path) -> None:
    """The server lets an Event go after an hour: the next one has a new note and the series' count and beginning."""
    with writing(config) as writer:
        writer.offer((warning(pod, -10), warning(pod, -5)))
        wait_until(lambda: writer.counts()["written"] == 2)
        (first,) = events_of(control_plane, namespace)
        control_plane.api.ask("DELETE", path_of(namespace, first["metadata"]["name"]))
        writer.offer((warning(pod, note="Pod a/trainer uses 13Gi of GPU memory."),))
        wait_until(lambda: writer.counts()["written"] == 3)
    (second,) = events_of(control_plane, namespace)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert (second["eventTime"], second["series"]["count"]) == (first["eventTime"], 3)
    assert second["note"] == "Pod a/trainer uses 13Gi of GPU memory."


def test_the_next_life_writes_no_second_event(
    control_plane: ControlPlane, namespace: str, pod: Object, config: Path
) -> None:
    """A daemon that starts again finds the same wrong declarations: their Events are there already."""
    for second in (-60, 0):
        with writing(config) as writer:
            writer.offer((warning(pod, second, once=True),))
            wait_until(lambda: writer.counts()["written"] == 1)
    assert len(events_of(control_plane, namespace)) == 1


def test_one_pod_gets_no_more_than_25(control_plane: ControlPlane, namespace: str, pod: Object, config: Path) -> None:
    """Whatever goes wrong, one pod does not fill the API server; another pod of the node is told all the same."""
    with writing(config) as writer:
        uid = pod["metadata"]["uid"]
        writer.offer(warning(pod, number / 100, key=(uid, str(number))) for number in range(31))
        wait_until(lambda: sum(writer.counts().values()) == 31)
        assert writer.counts() == {"written": 25, "limited": 6, "refused": 0, "dropped": 0}
        (notice,) = writer.messages.take()
        assert notice.startswith(f"pod {namespace}/trainer has had too many Events")
        writer.offer((warning(pod, uid="another"),))
        wait_until(lambda: writer.counts()["written"] == 26)
    assert len(events_of(control_plane, namespace)) == 26
    times = [each.received_s for each in asked(control_plane, namespace)]
    assert all(sum(1 for each in times if begin <= each <= begin + 1) <= 16 for begin in times)


def test_a_static_pod_is_told_where_kubectl_looks(
    control_plane: ControlPlane, namespace: str, pods: Pods, config: Path
) -> None:
    """Events of a mirror pod are found by the hash of its configuration, as the kubelet writes them."""
    digest = "0123456789abcdef0123456789abcdef"
    marks = {"kubernetes.io/config.mirror": digest, "kubernetes.io/config.hash": digest}
    pod = pods.create("trainer", node=pods.node(), metadata={"annotations": marks})
    with writing(config) as writer:
        writer.offer((warning(pod, uid=digest, note="by hash"), warning(pod, -400, note="by UID")))
        wait_until(lambda: writer.counts()["written"] == 2)
    shown = control_plane.kubectl("describe", "pod", "trainer", "-n", namespace).stdout
    assert "by hash" in shown
    assert "by UID" not in shown


def test_what_is_told_last_is_still_written(
    control_plane: ControlPlane, namespace: str, pod: Object, config: Path
) -> None:
    """A daemon that ends in a grace period says so: what can be written in 0.3 s is, and its end waits no longer."""
    with writing(config) as writer:
        writer.offer((warning(pod, -10),))
        wait_until(lambda: writer.counts()["written"] == 1)
        writer.offer(warning(pod, number / 100, key=(pod["metadata"]["uid"], str(number))) for number in range(3))
        began = time.monotonic()
        writer.stop(0.3)
        assert time.monotonic() - began < 5
    assert len(events_of(control_plane, namespace)) == 4


def test_what_a_pass_reports_becomes_events(
    control_plane: ControlPlane, namespace: str, pod: Object, config: Path, tmp_path: Path
) -> None:
    """The whole way: a kill begins in a cycle, the daemon is stopped in its grace, and the pod's owner reads of both.

    As long as another daemon has the node's lock, it is that one who tells: the first cycle here writes nothing.
    """
    owned = trainer(namespace=namespace, uid=pod["metadata"]["uid"])
    told_of = replace(entry(), assessment=replace(entry().assessment, pod=owned))
    options = Options(node=NODE, listen="127.0.0.1:0", journal=tmp_path / "journal.db")
    event_writer = EventWriter(Api(config), NODE)
    sinks = Sinks(options, policy(), at(0), event_writer)
    sinks.publish(quiet(30, outcomes=(killed(entry=told_of, release_s=1.0),)), is_stale=False)
    sinks.keeper.maintain(at(30))
    sinks.publish(quiet(31, began=(killed(entry=told_of),)), is_stale=False)
    wait_until(lambda: event_writer.counts()["written"] == 1)
    reason = "the watchdog was stopped in the grace period"
    sinks.stop((replace(killed(entry=told_of), result=Result.INTERRUPTED, reason=reason),), at(33))
    sinks._server.close()
    structlog.reset_defaults()
    event_writer.stop(0.3)
    ended, began = sorted(events_of(control_plane, namespace), key=lambda event: str(event["action"]), reverse=True)
    assert (began["reason"], ended["reason"], ended["type"]) == ("GPUMemoryKilled", "GPUMemoryReleased", "Normal")
    assert reason in ended["note"]
