"""Events before they are sent: how many, under which names, which form a series; and their writer without an answer.

What the writer does with a real API server is in tests/cluster.
"""

import re
import socket
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube import faulty
from tests.kube.pod_events import T0, pod_event
from tests.node.support import run_python, wait_until
from tests.ports import free_port
from tests.rig.cluster.credentials import write_kubeconfig
from tests.rig.suspension import Suspension
from watchdog.core.errors import Problem
from watchdog.kube.client import Api, ApiResponse
from watchdog.kube.event_objects import SERIES_GAP_S, SeriesCache, event_name, event_object, micro_time, series_part
from watchdog.kube.events import (
    MOST_WAITING,
    OBJECT_BURST,
    REQUEST_BURST,
    REQUEST_PER_S,
    EventWriter,
    ObjectRateLimits,
    TokenBucket,
)
from watchdog.kube.failure import ApiUnreachableError
from watchdog.kube.messages import REPEAT_S, MessageQueue

# DNS1123Subdomain in k8s.io/apimachinery/pkg/util/validation: what the name of an Event must be.
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
pod_names = st.from_regex(_SUBDOMAIN, fullmatch=True) | st.text(max_size=300)


def is_valid(name: str) -> bool:
    """Whether the API server accepts it as the name of an Event."""
    return len(name) <= 253 and _SUBDOMAIN.fullmatch(name) is not None


@given(pod_names, st.floats(0, 4e9), st.booleans())
def test_a_name_is_valid_for_any_pod(pod: str, at_s: float, once: bool) -> None:
    """Law: whatever the pod is called, the API server accepts the Event's name."""
    assert is_valid(event_name(pod_event(pod=pod, at_s=at_s, once=once)))


@pytest.mark.parametrize("pod", ["p" * 253, "a" * 224 + "." + "b" * 28, "a" * 225 + "-" + "b" * 27, "web-7d4b9c-x2x4z"])
def test_a_long_name_is_cut_where_a_name_may_end(pod: str) -> None:
    """A pod's name may be as long as an Event's: it is truncated, without a trailing dot or dash."""
    name = event_name(pod_event(pod=pod))
    assert is_valid(name)
    assert name.startswith(pod[:16])


def test_the_same_occurrence_has_the_same_name() -> None:
    """A request that is repeated, or a restart that finds the same again, creates no second Event."""
    assert event_name(pod_event(3)) == event_name(pod_event(3))
    assert event_name(pod_event(3, once=True)) == event_name(pod_event(900, once=True))
    other = [pod_event(4), pod_event(3, key=("u1", "other")), pod_event(3, pod="trainer-2")]
    assert len({event_name(each) for each in (pod_event(3), *other)}) == 4


def test_names_sort_by_time() -> None:
    """`kubectl describe` shows Events of this API in the order of their names."""
    names = [event_name(pod_event(second, key=(str(second % 7),))) for second in range(0, 100_000, 997)]
    assert names == sorted(names)


def test_the_object_is_what_the_api_accepts() -> None:
    """Every field that events.k8s.io/v1 requires and none that it refuses: which pod, who, where and when."""
    made = pod_event(annotations={"gpu-memory-watchdog/used": "1"}, is_normal=True)
    series = SeriesCache().following(made)
    event = event_object(made, series, "n" * 200)
    pod = {"apiVersion": "v1", "kind": "Pod", "namespace": "a", "name": "trainer", "uid": made.uid}
    assert event["regarding"] == pod
    assert event["metadata"] == {"name": event_name(made), "namespace": "a", "annotations": made.annotations}
    assert (event["reportingController"], event["reportingInstance"]) == ("gpu-memory-watchdog", "n" * 128)
    assert (event["eventTime"], event["type"]) == ("2027-01-15T08:00:00.250000Z", "Normal")
    assert event.keys().isdisjoint({"series", "deprecatedCount", "deprecatedFirstTimestamp", "deprecatedSource"})


def test_a_repetition_continues_its_series() -> None:
    """Repeated soon enough it counts under the first name, and the patch contains nothing but the count and time."""
    cache, first, again = SeriesCache(), pod_event(0), pod_event(SERIES_GAP_S)
    assert [cache.following(first).count for _ in range(3)] == [1, 1, 1]  # only what was written counts
    cache.remember(first, cache.following(first))
    series = cache.following(again)
    assert (series.name, series.count) == (event_name(first), 2)
    assert series_part(series) == {"series": {"count": 2, "lastObservedTime": micro_time(T0 + SERIES_GAP_S)}}


@pytest.mark.parametrize(
    "again", [pod_event(SERIES_GAP_S + 1), pod_event(10, key=("u2", "GPUMemoryOverLimit")), pod_event(10, once=True)]
)
def test_another_occurrence_begins_a_series(again: object) -> None:
    """Too late, of another pod, or reported only once anyway."""
    cache, first = SeriesCache(), pod_event(0)
    cache.remember(first, cache.following(first))
    series = cache.following(again)  # type: ignore[arg-type]
    assert (series.count, series.name) == (1, event_name(again))  # type: ignore[arg-type]


def test_the_memory_of_series_is_bounded() -> None:
    """A node on which pods come and go for months remembers the latest; the longest idle one is forgotten."""
    cache = SeriesCache(most=10)
    for number in range(30):
        each = pod_event(key=(str(number),))
        cache.remember(each, cache.following(each))
        cache.remember(pod_event(key=("0",)), cache.following(pod_event(key=("0",))))
    assert len(cache) == 10
    assert cache.following(pod_event(key=("0",))).count > 20
    assert cache.following(pod_event(key=("5",))).count == 1


def test_one_pod_has_25_events_then_one_in_five_minutes() -> None:
    """What client-go allows one source about one object; others are not affected, and the memory is bounded."""
    limits = ObjectRateLimits()
    assert [limits.admit("u1", 100.0 + second) for second in range(300)].count(True) == OBJECT_BURST == 25
    assert limits.admit("u2", 400.0)
    assert [limits.admit("u1", 100.0 + at_s) for at_s in (301, 302, 601, 602)] == [True, False, True, False]
    few = ObjectRateLimits(most=100)
    for number in range(1000):
        few.admit(number, float(number))
    assert len(few) == 100


@given(st.lists(st.floats(0, 30), max_size=60))
def test_requests_never_exceed_the_rate(waits: list[float]) -> None:
    """Law: in any period no more requests are made than the burst and the tokens added since."""
    bucket, now_s, taken = TokenBucket(REQUEST_BURST, REQUEST_PER_S, 0.0), 0.0, 0
    for wait_s in waits:
        now_s += wait_s
        while bucket.wait_s(now_s) == 0:
            bucket.take_token(now_s)
            taken += 1
        assert taken <= REQUEST_BURST + now_s * REQUEST_PER_S + 1e-6
        assert 0 < bucket.wait_s(now_s) <= 1 / REQUEST_PER_S


def test_an_earlier_time_adds_no_tokens() -> None:
    """A time before the last one adds no tokens."""
    bucket = TokenBucket(1, 1.0, 50.0)
    bucket.take_token(50.0)
    assert bucket.wait_s(40.0) == 1.0


def test_the_same_problem_is_logged_once_per_hour() -> None:
    """One line per cause, not per Event; the next one has the count."""
    messages = MessageQueue()
    for second in range(100):
        messages.add("403", f"no right ({second})", float(second))
    messages.add("404", "no namespace", 50.0)
    assert messages.take_new() == ("no right (0)", "no namespace")
    assert messages.take_new() == ()
    messages.add("403", "no right", REPEAT_S)
    assert messages.take_new() == ("no right (100 times since this was last logged)",)


def test_messages_are_bounded() -> None:
    """Whatever a server responds, the log gets a bounded number of lines and the memory stays small."""
    messages = MessageQueue()
    for number in range(1000):
        messages.add(str(number), "trouble", 0.0)
    assert len(messages.take_new()) <= 50


def writer(folder: Path, server: str) -> EventWriter:
    """A writer to this server."""
    return EventWriter(Api(write_kubeconfig(folder / "kubeconfig", server=server, ca=None)), "n1")


def stop(events: EventWriter, limit_s: float, *, within_s: float) -> None:
    """Stop it, which takes no longer than this."""
    began = time.monotonic()
    events.stop(limit_s)
    assert time.monotonic() - began < within_s


def test_a_dead_network_costs_the_loop_nothing(tmp_path: Path) -> None:
    """Whatever the API does, a cycle hands its Events over and continues; excess ones are counted, not kept."""
    with faulty.server(None) as port:
        events = writer(tmp_path, f"http://127.0.0.1:{port}")
        began = time.monotonic()
        for number in range(5 * MOST_WAITING):
            events.offer((pod_event(number, uid=str(number)),))
        assert time.monotonic() - began < 5.0  # waiting for one answer would take longer
        assert 4 * MOST_WAITING - 2 <= events.counts()["dropped"] <= 4 * MOST_WAITING
        assert any("wait to be written" in notice for notice in events.messages.take_new())
        stop(events, 0.3, within_s=0.5)


def test_an_api_that_hangs_up_is_tried_with_pauses(tmp_path: Path) -> None:
    """Events are kept, the log gives the reason once, and attempts are few: the pauses grow."""
    taken = []

    def hang_up(connection: socket.socket) -> None:
        taken.append(connection)
        connection.close()

    with faulty.server(hang_up) as port:
        events = writer(tmp_path, f"http://127.0.0.1:{port}")
        events.offer(pod_event(number) for number in range(50))
        wait_until(lambda: events.messages.take_new() != ())
        time.sleep(2.0)
        assert 1 <= len(taken) <= 12
        assert events.messages.take_new() == ()
        assert set(events.counts().values()) == {0}
        stop(events, 0.3, within_s=0.5)


def test_the_end_interrupts_a_pause(tmp_path: Path) -> None:
    """A writer that waits a minute because the server asks for it ends at once when it is stopped."""
    refuses = faulty.answers("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n")
    with faulty.server(refuses) as port:
        events = writer(tmp_path, f"http://127.0.0.1:{port}")
        events.offer((pod_event(),))
        wait_until(lambda: any("429" in message for message in events.messages.take_new()))
        stop(events, 10.0, within_s=5.0)
        assert events.counts()["dropped"] == 1


def test_a_thread_is_there_only_between_the_first_event_and_the_end(tmp_path: Path) -> None:
    """Without Events there is no thread and no connection; after the end they are counted as dropped."""
    before = set(threading.enumerate())
    events = writer(tmp_path, f"http://127.0.0.1:{free_port()}")
    events.offer(())
    assert set(threading.enumerate()) <= before
    events.stop(0.3)
    events.offer((pod_event(),))
    assert events.counts()["dropped"] == 1
    assert set(threading.enumerate()) <= before


class Away(Api):
    """An API server that can't be reached; `calls` counts the attempts. The first may end the thread, as a defect."""

    def __init__(self, *, has_defect: bool = False) -> None:
        super().__init__()
        self.calls = 0
        self._has_defect = has_defect

    def call(self, *_: object, **__: object) -> ApiResponse:
        """Fail."""
        self.calls += 1
        if self._has_defect and self.calls == 1:
            raise ZeroDivisionError
        raise ApiUnreachableError(Problem("away"))


def no_thread(_: threading.Thread) -> None:
    """Fail as `Thread.start` does at a limit of the container or the node."""
    raise RuntimeError("can't start new thread")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_ended_is_started_again() -> None:
    """A defect costs the Event that it was met with, and none of those after it."""
    before, api = set(threading.enumerate()), Away(has_defect=True)
    events = EventWriter(api, "n1")
    events.offer((pod_event(),))
    wait_until(lambda: api.calls == 1 and set(threading.enumerate()) <= before)
    events.offer((pod_event(),))
    wait_until(lambda: api.calls > 1, 5)
    events.stop(0)


@pytest.mark.slow
def test_events_are_kept_for_an_hour(tmp_path: Path) -> None:
    """An outage of less than an hour costs no Event; then they are dropped, as the server itself would have."""
    suspension = Suspension(tmp_path)
    code = """
        import os
        from tests.kube.pod_events import pod_event
        from tests.kube.test_events import Away
        from tests.node.support import wait_until
        from watchdog.kube.events import EventWriter
        api = Away()
        events = EventWriter(api, "n1", longest_pause_s=0.1)
        events.offer((pod_event(),))
        file = os.open(os.environ["SUSPENDED_S"], os.O_WRONLY)
        for passed_s in (0, 3500, 3601):
            os.pwrite(file, passed_s.to_bytes(8, "little"), 0)
            before = api.calls
            wait_until(lambda: api.calls > before + 1 or events.counts()["dropped"] > 0)
            print(passed_s, events.counts()["dropped"])
    """
    assert run_python(code, *suspension.prefix) == "0 0\n3500 0\n3601 1\n"


def test_events_wait_for_a_thread_that_can_not_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of threads no cycle fails and no Event is lost: the next offer, even of none, tries again."""
    api = Away()
    events = EventWriter(api, "n1")
    with monkeypatch.context() as at_limit:
        at_limit.setattr(threading.Thread, "start", no_thread)
        events.offer((pod_event(), pod_event(1)))
    assert len(events._waiting) == 2
    events.offer(())
    wait_until(lambda: api.calls > 0, 5)
    events.stop(0)
