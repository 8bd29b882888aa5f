"""The writer of Events when nothing answers: nothing waits for it, and its queue is bounded.

What it does with a real API server is in tests/cluster.
"""

import socket
import threading
import time
from pathlib import Path

from tests.cluster.credentials import write_kubeconfig
from tests.kube import faulty
from tests.kube.pod_events import pod_event
from tests.node.support import wait_until
from tests.ports import free_port
from watchdog.kube.client import Api
from watchdog.kube.events import MOST_WAITING, EventWriter


def writer(folder: Path, server: str) -> EventWriter:
    """A writer to this server."""
    return EventWriter(Api(write_kubeconfig(folder / "kubeconfig", server=server, ca=None)), "n1")


def test_a_dead_network_costs_the_loop_nothing(tmp_path: Path) -> None:
    """Whatever the API does, a cycle hands its Events over and continues; excess ones are counted, not kept."""
    with faulty.server(None) as port:
        events = writer(tmp_path, f"http://127.0.0.1:{port}")
        began = time.monotonic()
        for number in range(5 * MOST_WAITING):
            events.offer((pod_event(number, uid=str(number)),))
        took_s = time.monotonic() - began
        assert took_s < 1.0
        assert 4 * MOST_WAITING - 2 <= events.counts()["dropped"] <= 4 * MOST_WAITING
        assert any("wait to be written" in notice for notice in events.messages.take())
        began = time.monotonic()
        events.stop(0.3)
        assert time.monotonic() - began < 0.5


def test_an_api_that_hangs_up_is_tried_with_pauses(tmp_path: Path) -> None:
    """Events are kept, the log gives the reason once, and attempts are few: the pauses grow."""
    taken = []

    def hang_up(connection: socket.socket) -> None:
        taken.append(connection)
        connection.close()

    with faulty.server(hang_up) as port:
        events = writer(tmp_path, f"http://127.0.0.1:{port}")
        events.offer(pod_event(number) for number in range(50))
        wait_until(lambda: events.messages.take() != ())
        time.sleep(2.0)
        assert 1 <= len(taken) <= 12
        assert events.messages.take() == ()
        assert set(events.counts().values()) == {0}
        began = time.monotonic()
        events.stop(0.3)
        assert time.monotonic() - began < 0.5


def test_the_end_interrupts_a_pause(tmp_path: Path) -> None:
    """A writer that waits a minute because the server asks for it ends at once when it is stopped."""
    refuses = faulty.answers("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n")
    with faulty.server(refuses) as port:
        events = writer(tmp_path, f"http://127.0.0.1:{port}")
        events.offer((pod_event(),))
        wait_until(lambda: any("429" in message for message in events.messages.take()))
        began = time.monotonic()
        events.stop(10.0)
        assert time.monotonic() - began < 5
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
