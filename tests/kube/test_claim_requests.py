"""Requests for claims: what each answer means, by a server on loopback that gives answers as real ones were seen to."""

import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest

from tests.claims import claim, listed, result, with_claims
from tests.kube.test_claims import raw_pod
from tests.node.support import wait_until
from tests.rig.cluster.credentials import write_kubeconfig
from watchdog import clock
from watchdog.clock import Bell
from watchdog.core.model import Pod
from watchdog.kube.claim_requests import ClaimRequests
from watchdog.kube.claims import NOT_READ, ClaimReader, missing_claims
from watchdog.kube.client import Api
from watchdog.kube.objects import parse_pods

GIVEN: Final = json.dumps(claim("c", result(memory="4Gi"))).encode()
OF_ANOTHER: Final = json.dumps(claim("c", result(memory="4Gi"), pods=("z",))).encode()
OF_GROUP: Final = OF_ANOTHER.replace(b'"resource": "pods"', b'"resource": "podgroups"')
MADE_AGAIN: Final = json.dumps(claim("c", allocated=False, pods=())).encode()
ODD: Final = GIVEN.replace(b'"99Gi"', b'"\\ud800"')  # half of a pair, as the API server keeps it
LONG: Final = b'{"metadata": {"name": "c"}, "spec": "' + b" " * 2**20 + b'"}'


def failure(code: int, message: str, **details: str) -> bytes:
    """A Status."""
    return json.dumps({"kind": "Status", "code": code, "message": message, "details": details}).encode()


FORBIDDEN: Final = failure(403, 'resourceclaims.resource.k8s.io "c" is forbidden', name="c", kind="resourceclaims")
ABSENT: Final = failure(404, 'resourceclaims.resource.k8s.io "c" not found', name="c", kind="resourceclaims")


class Server(ThreadingHTTPServer):
    """Gives its answers one after another, and the last one for ever."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = list(answers)
        self.asked: list[str] = []
        self.at_s: list[float] = []
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        with self.server.lock:
            self.server.asked.append(self.path)
            self.server.at_s.append(time.monotonic())
            answers = self.server.answers
            status, body = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Nothing."""


class Asking:
    """The requests under test, and what reads them for a pod `a` with a claim `c`."""

    def __init__(self, server: Server, requests: ClaimRequests) -> None:
        self.server = server
        self.requests = requests
        self.reader = ClaimReader()
        (self.pod,), _ = parse_pods(listed(with_claims(raw_pod(), {"gpu": "c"}, {"main": ["gpu"]})))

    def read(self) -> Pod:
        """The pod as the daemon would have it now; what it lacks is requested."""
        found, _ = self.requests.read(clock.now())
        pods = self.reader.with_claims((self.pod,), found, NOT_READ)
        self.requests.want(self.reader.missing)
        return pods[0]


@contextmanager
def asking(tmp_path: Path, *answers: tuple[int, bytes]) -> Iterator[Asking]:
    """Requests to a server with these answers."""
    server = Server(*answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = write_kubeconfig(tmp_path / "config", server=f"http://127.0.0.1:{server.server_port}", ca=None, token="t")
    with Api(config) as api, closing(Bell()) as bell:
        requests = ClaimRequests(api, bell)
        try:
            yield Asking(server, requests)
        finally:
            requests.stop()
            server.shutdown()
            server.server_close()


def test_what_was_given_is_read_by_one_request(tmp_path: Path) -> None:
    """It names the claim, and is answered out of the API server's memory; nothing more is asked afterwards."""
    with asking(tmp_path, (200, GIVEN)) as here:
        wait_until(lambda: not here.read().claims["gpu"].unknown)
        (device,) = here.read().claims["gpu"].devices
        assert device.memory == 4 * 2**30
        assert here.reader.gaps == ()
        path = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c?resourceVersion=0"
        assert here.server.asked == [path]
        assert missing_claims([here.read()]) == ()


def test_memory_that_lags_behind_is_asked_once_more(tmp_path: Path) -> None:
    """A server may not have seen the reservation that the pod's binding came after."""
    with asking(tmp_path, (200, OF_ANOTHER), (200, GIVEN)) as here:
        wait_until(lambda: not here.read().claims["gpu"].unknown)
        assert [path.partition("?")[2] for path in here.server.asked] == ["resourceVersion=0", ""]


@pytest.mark.parametrize(
    ("answer", "cause", "remedy"),
    [
        ((403, FORBIDDEN), "answered 403", "apply what `gpu-watchdog rights` prints"),
        ((404, b"404 page not found\n"), "answered 404", "does not serve that API"),
        ((404, failure(404, "the server could not find the requested resource")), "404", "does not serve that API"),
        ((500, failure(500, "etcdserver: no leader")), "answered 500: etcdserver: no leader", "see its log"),
        ((200, OF_GROUP), "it is not reserved for the pod", "kubectl get resourceclaim NAME"),
        ((200, b"<html>"), "it can't be read", "report it"),
        ((200, json.dumps(claim("c", result(memory="much"))).encode()), "it can't be read", "report it"),
    ],
)
def test_what_is_not_known_is_a_gap_with_its_remedy_until_it_is_read(
    tmp_path: Path, answer: tuple[int, bytes], cause: str, remedy: str
) -> None:
    """Point 43: the limit is unknown, and one line says why and what to do; as soon as it can be read, it holds."""
    with asking(tmp_path, answer) as here:
        assert here.read().claims["gpu"].unknown == "it is being read"
        assert not here.reader.gaps
        wait_until(lambda: bool(here.read() and here.reader.gaps))
        (gap,) = here.reader.gaps
        assert gap.what == "claims of ns/pod-a"
        assert cause in gap.problem.cause
        assert remedy in gap.problem.remedy
        here.server.answers = [(200, GIVEN)]
        wait_until(lambda: not here.read().claims["gpu"].unknown)
        assert here.reader.gaps == ()
        # What comes next is being read, and no victim of what was wrong before.
        (here.pod,), _ = parse_pods(listed(with_claims(raw_pod(), {"gpu": "next"}, {"main": ["gpu"]})))
        assert here.read().claims["gpu"].unknown == "it is being read"


def test_a_claim_that_is_too_large_gives_nothing(tmp_path: Path) -> None:
    """Point 43: what a namespace's editor can write into a claim does not make the limit of its pod unknown."""
    with asking(tmp_path, (200, LONG)) as here:
        wait_until(lambda: not here.read().claims["gpu"].unknown)
        assert here.read().claims["gpu"].devices == ()


def test_a_claim_that_is_gone_gives_nothing_while_it_is(tmp_path: Path) -> None:
    """Point 43: who removes its finalizers does not free the pod; nor is that kept if a server was only wrong."""
    with asking(tmp_path, (404, ABSENT)) as here:
        wait_until(lambda: not here.read().claims["gpu"].unknown)
        assert here.read().claims["gpu"].devices == ()
        here.server.answers = [(200, GIVEN)]
        wait_until(lambda: here.read().claims["gpu"].devices != ())
        running = here.pod
    with asking(tmp_path, (404, ABSENT)) as here:
        (here.pod,) = (
            replace(running, containers=tuple(replace(each, ids=frozenset()) for each in running.containers)),
        )
        wait_until(lambda: here.read().claims["gpu"].unknown == "it was not found")


@pytest.mark.parametrize("answer", [OF_ANOTHER, MADE_AGAIN], ids=["given to others", "given to nobody"])
def test_a_claim_that_was_made_again_gives_nothing(tmp_path: Path, answer: bytes) -> None:
    """Point 43: who deletes a claim that a pod runs with, and makes another of its name, does not free the pod."""
    with asking(tmp_path, (200, answer)) as here:
        wait_until(lambda: not here.read().claims["gpu"].unknown)
        assert here.read().claims["gpu"].devices == ()
        here.server.answers = [(200, GIVEN)]
        wait_until(lambda: here.read().claims["gpu"].devices != ())


def test_a_claim_with_what_is_no_text_is_read(tmp_path: Path) -> None:
    """Point 43: nor does who writes half of a surrogate pair into a claim."""
    with asking(tmp_path, (200, ODD)) as here:
        wait_until(lambda: bool(here.read().claims["gpu"].devices))
        assert here.read().claims["gpu"].devices[0].memory == 4 * 2**30


def test_what_is_read_for_one_pod_is_not_lost_to_another(tmp_path: Path) -> None:
    """Two pods on one claim are answered before anything is read; each has an answer of its own."""
    with asking(tmp_path, (200, LONG)) as here:
        raw = [with_claims(raw_pod(uid), {"gpu": "c"}, {"main": ["gpu"]}) for uid in "ab"]
        pods, _ = parse_pods(listed(*raw))
        here.requests.want(missing_claims(pods))
        wait_until(lambda: not any(thread.name == "api-claims" for thread in threading.enumerate()))
        found, _ = here.requests.read(clock.now())
        assert [pod.claims["gpu"].unknown for pod in here.reader.with_claims(pods, found, NOT_READ)] == ["", ""]


def test_an_unreachable_server_is_tried_after_growing_pauses(tmp_path: Path) -> None:
    """One claim at a time is tried, however many there are, until one is answered."""
    with asking(tmp_path, (500, failure(500, "down"))) as here:
        raw = (with_claims(raw_pod(uid), {"gpu": f"c{uid}"}, {"main": ["gpu"]}) for uid in "abcdefghijkl")
        pods, _ = parse_pods(listed(*raw))
        here.requests.want(missing_claims(pods))
        wait_until(lambda: len(here.server.asked) >= 4)
        assert len(here.server.asked) < 8
        assert len({path.partition("?")[0] for path in here.server.asked}) >= 3


@pytest.mark.slow
def test_a_server_that_asks_for_a_pause_gets_it(tmp_path: Path) -> None:
    """Its Retry-After is about all claims, not about the one that was requested."""
    slow_down = json.dumps({"kind": "Status", "code": 429, "details": {"retryAfterSeconds": 2}}).encode()
    with asking(tmp_path, (429, slow_down)) as here:
        raw = (with_claims(raw_pod(uid), {"gpu": f"c{uid}"}, {"main": ["gpu"]}) for uid in "abcdefgh")
        here.requests.want(missing_claims(parse_pods(listed(*raw))[0]))
        wait_until(lambda: len(here.server.at_s) > 6)
        # Four may have begun before the first was answered; after that each waits for the last refusal.
        times = here.server.at_s[4:]
        assert all(later - earlier >= 2 for earlier, later in itertools.pairwise(times))


def test_what_no_pod_has_any_more_is_not_asked_for(tmp_path: Path) -> None:
    """A pod that has gone, or a policy that no longer reads claims, ends the requests and their threads."""
    with asking(tmp_path, (200, OF_GROUP)) as here:
        wait_until(lambda: bool(here.read() and here.reader.gaps))
        here.requests.want(())
        wait_until(lambda: not any(thread.name == "api-claims" for thread in threading.enumerate()))
        assert not here.requests.has_died


def test_a_pod_that_has_not_started_is_asked_for_again_when_it_does(tmp_path: Path) -> None:
    """A pod that the scheduler gave nothing may stay so for ever: it is looked at rarely, and costs no request."""
    with asking(tmp_path, (200, OF_ANOTHER)) as here:
        waiting = raw_pod()
        del waiting["status"]["containerStatuses"]
        started = here.pod
        (here.pod,), _ = parse_pods(listed(with_claims(waiting, {"gpu": "c"}, {"main": ["gpu"]})))
        wait_until(lambda: here.read().claims["gpu"].unknown == "it is not reserved for the pod")
        assert here.reader.gaps == ()
        before = len(here.server.asked)
        here.server.answers = [(200, GIVEN)]
        here.pod = started
        wait_until(lambda: not here.read().claims["gpu"].unknown)
        assert before == 2
