"""What each response of the API server to an eviction means, as kube-apiserver 1.34 returns them; and their threads."""

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.kube.objects import pod_object
from tests.node.support import no_threads, wait_until
from tests.worlds import inherent_objection
from watchdog.clock import Bell
from watchdog.core.eviction import FORBIDDEN, EvictionAnswer, EvictionRequest
from watchdog.kube.client import Api, ApiResponse
from watchdog.kube.evict import (
    FIRST_WAIT_S,
    LEAST_WAIT_S,
    LONGEST_WAIT_S,
    MOST_AT_ONCE,
    ApiEvictor,
    evict,
    path_of,
    read_pod,
    read_response,
)

CREATED = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}\n'


def refusal(code: int, message: str, reason: str = "", **details: Any) -> bytes:
    """The Status in a refusing response; its details name the pod unless others are given."""
    kind = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code}
    details = details or {"name": "p", "kind": "pods"}
    return json.dumps({**kind, "message": message, "reason": reason, "details": details}).encode()


def budget(message: str, **details: Any) -> bytes:
    """A refusal because of a disruption budget."""
    details["causes"] = [{"reason": "DisruptionBudget", "message": message}]
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    return refusal(429, text, "TooManyRequests", **details)


def conflict(text: str) -> bytes:
    """A refusal because the pod is not the one that was meant, or has changed."""
    return refusal(409, f'Operation cannot be fulfilled on pods "p": {text}', "Conflict")


WRONG_UID = conflict(
    "the UID in the precondition (u) does not match the UID in record (v). The object might have been deleted and then "
    "recreated"
)
STORE_UID = conflict(
    "StorageError: invalid object, Code: 4, Key: /registry/pods/a/p, ResourceVersion: 0, AdditionalErrorMsg: "
    "Precondition failed: UID in precondition: u, UID in object meta: v"
)
MODIFIED = conflict("the object has been modified; please apply your changes to the latest version and try again")
NO_POD = refusal(404, 'pods "p" not found', "NotFound")
NO_BUDGET = refusal(
    404, 'poddisruptionbudgets.policy "b" not found', "NotFound", name="b", group="policy", kind="poddisruptionbudgets"
)
NO_SUCH_API = refusal(404, "the server could not find the requested resource", "NotFound", group="")
BUDGET = budget("The disruption budget web needs 2 healthy pods and has 2 currently")
UNSEEN_BUDGET = budget("The disruption budget new is still being processed by the server.", retryAfterSeconds=10)
TWO_BUDGETS = refusal(
    500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
)
FULL_BUDGET = refusal(
    403,
    'poddisruptionbudget.policy "new" is forbidden: DisruptedPods map too big - too many evictions not confirmed by '
    "PDB controller",
    "Forbidden",
    name="new",
    kind="poddisruptionbudget",
)
CONFLICTS = refusal(
    504, 'Timeout: couldn\'t update PodDisruptionBudget "web" due to conflicts', "Timeout", retryAfterSeconds=10
)
THROTTLED = b"Too many requests, please try again later.\n"
NO_RIGHT = refusal(
    403,
    'pods "p" is forbidden: User "w" cannot create resource "pods/eviction" in API group "" in the namespace "a"',
    "Forbidden",
)
WEBHOOK = refusal(403, 'admission webhook "guard.example.org" denied the request: not on Fridays')
DENIED = refusal(
    422, "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'guard' with binding 'guard' denied request: no", "Invalid"
)
EXPIRED = refusal(401, "Unauthorized", "Unauthorized")


def attempt(**more: Any) -> EvictionRequest:
    """An attempt to evict pod a/p with UID u."""
    given = {"request_id": 3, "number": 1, "namespace": "a", "name": "p", "uid": "u", "grace_s": 30, "is_unsure": False}
    calls = {"why_spared": inherent_objection, "is_wanted": lambda: True}
    return EvictionRequest(**{**given, **calls, **more})


@pytest.mark.parametrize(
    ("status", "body", "headers", "answer", "reason"),
    [
        (201, CREATED, {}, EvictionAnswer.ACCEPTED, ""),
        (200, CREATED, {}, EvictionAnswer.ACCEPTED, ""),
        (404, NO_POD, {}, EvictionAnswer.GONE, "the pod is gone"),
        (404, NO_BUDGET, {}, EvictionAnswer.LATER, "poddisruptionbudgets.policy"),
        (404, NO_SUCH_API, {}, EvictionAnswer.REFUSED, "could not find the requested resource"),
        (404, b"404 page not found\n", {}, EvictionAnswer.LATER, "404 page not found"),
        (409, WRONG_UID, {}, EvictionAnswer.GONE, "another pod has its name now"),
        (409, STORE_UID, {}, EvictionAnswer.GONE, "another pod has its name now"),
        (409, MODIFIED, {}, EvictionAnswer.LATER, "the object has been modified"),
        (429, BUDGET, {}, EvictionAnswer.BLOCKED, "web needs 2 healthy pods and has 2 currently; it succeeds"),
        (429, UNSEEN_BUDGET, {"Retry-After": "10"}, EvictionAnswer.LATER, "new is still being processed"),
        (429, THROTTLED, {}, EvictionAnswer.LATER, "it throttles this account"),
        (500, TWO_BUDGETS, {}, EvictionAnswer.BLOCKED, "more than one PodDisruptionBudget"),
        (403, FULL_BUDGET, {}, EvictionAnswer.BLOCKED, "DisruptedPods map too big"),
        (403, NO_RIGHT, {}, EvictionAnswer.REFUSED, "apply what `gpu-watchdog rights` prints"),
        (403, WEBHOOK, {}, EvictionAnswer.REFUSED, "an admission webhook of the cluster refuses it: "),
        (422, DENIED, {}, EvictionAnswer.REFUSED, "denied request: no"),
        (401, EXPIRED, {}, EvictionAnswer.REFUSED, "token"),
        (500, b"", {}, EvictionAnswer.UNKNOWN, "500"),
        (502, b"<html>bad gateway</html>", {}, EvictionAnswer.UNKNOWN, "bad gateway"),
        (503, b"\xff\xfe", {}, EvictionAnswer.UNKNOWN, "503"),
        (504, CONFLICTS, {}, EvictionAnswer.UNKNOWN, "due to conflicts"),
        (408, b"", {}, EvictionAnswer.LATER, "408"),
        (302, b"", {}, EvictionAnswer.REFUSED, "302"),
        (418, b"[" * 100_000, {}, EvictionAnswer.REFUSED, "418"),
    ],
)
def test_what_a_response_means(
    status: int, body: bytes, headers: dict[str, str], answer: EvictionAnswer, reason: str
) -> None:
    """Each response has its meaning, with the server's own words in the reason; the result has the ID of the request.

    Names of accounts and rights mean nothing to a tenant; a refusal of this very pod does.
    """
    reply = read_response(attempt(), ApiResponse(status, body, headers))
    assert (reply.request_id, reply.answer) == (3, answer)
    assert reason in reply.reason
    assert bool(reply.reason) is (answer is not EvictionAnswer.ACCEPTED)
    assert (reply.for_owner == FORBIDDEN) is (body in (NO_RIGHT, EXPIRED))
    assert (reply.wait_s > 0) is (answer in (EvictionAnswer.BLOCKED, EvictionAnswer.LATER, EvictionAnswer.UNKNOWN))


def found(**more: Any) -> bytes:
    """A pod as the API returns it."""
    return json.dumps(pod_object("p", "u", **more)).encode()


MIRROR = {"annotations": {"kubernetes.io/config.mirror": "h"}}
TERMINATING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
OF_DAEMONSET = {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "controller": True}]}


@pytest.mark.parametrize(
    ("read", "status", "body"),
    [
        (read_response, 404, NO_POD),
        (read_response, 409, WRONG_UID),
        (read_pod, 200, found(metadata=TERMINATING)),
        (read_pod, 200, found(metadata={"uid": "v"})),
    ],
)
def test_gone_after_a_lost_answer_is_evicted(read: Any, status: int, body: bytes) -> None:
    """If the pod is gone, being deleted or replaced, the earlier attempt was carried out, and its memory is awaited."""
    reply = read(attempt(is_unsure=True), ApiResponse(status, body, {}))
    assert reply.answer is EvictionAnswer.ACCEPTED
    assert reply.reason.startswith("the API server's answer was lost, and ")


def test_the_pauses_have_full_jitter_below_a_ceiling_that_doubles() -> None:
    """At most 5 s, 10 s, 20 s, 40 s, then 60 s; at least a second; spread over the whole range."""
    for number, ceiling_s in ((1, FIRST_WAIT_S), (2, 10.0), (4, 40.0), (5, LONGEST_WAIT_S), (25, LONGEST_WAIT_S)):
        waits = [read_response(attempt(number=number), ApiResponse(429, BUDGET, {})).wait_s for _ in range(300)]
        assert LEAST_WAIT_S <= min(waits) < LEAST_WAIT_S + ceiling_s / 5
        assert ceiling_s * 0.8 < max(waits) <= ceiling_s


@pytest.mark.parametrize(
    ("status", "body", "headers", "least_s"),
    [
        (429, UNSEEN_BUDGET, {"Retry-After": "10"}, 10.0),
        (429, UNSEEN_BUDGET, {}, 10.0),
        (429, THROTTLED, {"Retry-After": "7"}, 7.0),
        (504, CONFLICTS, {}, 10.0),
        (503, b"", {"Retry-After": "99999999999"}, 300.0),
        (503, b"", {"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0.0),
    ],
)
def test_a_requested_pause_is_kept(status: int, body: bytes, headers: dict[str, str], least_s: float) -> None:
    """Retry-After, in the header or in the Status, is added to the jitter, up to five minutes."""
    reply = read_response(attempt(), ApiResponse(status, body, headers))
    assert least_s + LEAST_WAIT_S <= reply.wait_s <= least_s + FIRST_WAIT_S


def test_a_known_deletion_can_be_shortened() -> None:
    """Point 28: an eviction with less grace shortens a deletion; a deadline that has changed since is not ours."""
    known_s = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    body = found(metadata=TERMINATING)
    for deadline_s, answer in ((known_s, None), (known_s + 1, EvictionAnswer.GONE), (None, EvictionAnswer.GONE)):
        made = attempt(deadline_s=deadline_s, why_spared=lambda _pod: None)
        reply = read_pod(made, ApiResponse(200, body, {}))
        assert (reply.answer if reply is not None else None) is answer


@pytest.mark.parametrize(
    ("status", "body", "answer", "reason"),
    [
        (200, found(), None, ""),
        (200, found(status={"phase": "Pending"}), None, ""),
        (200, found(metadata={"uid": "v"}), EvictionAnswer.GONE, "another pod has its name now"),
        (200, found(metadata=TERMINATING), EvictionAnswer.GONE, "the pod is being deleted already"),
        (200, found(status={"phase": "Succeeded"}), EvictionAnswer.GONE, "the pod has ended: its phase is Succeeded"),
        (200, found(status={"phase": "Failed"}), EvictionAnswer.GONE, "the pod has ended: its phase is Failed"),
        (200, found(metadata=MIRROR), EvictionAnswer.SPARED, "it is a static pod"),
        (200, found(metadata=OF_DAEMONSET), EvictionAnswer.SPARED, "its DaemonSet would recreate the pod"),
        (200, found(status={"phase": 7}), EvictionAnswer.REFUSED, "it can't be read"),
        (200, found(metadata={"uid": ""}), EvictionAnswer.REFUSED, "it can't be read"),
        (200, b"", EvictionAnswer.REFUSED, "the answer contains no pod"),
        (200, b'{"kind":"PodList","items":[]}', EvictionAnswer.REFUSED, "the answer contains no pod"),
        (404, NO_POD, EvictionAnswer.GONE, "the pod is gone"),
        (404, NO_SUCH_API, EvictionAnswer.REFUSED, "could not find the requested resource"),
        (403, NO_RIGHT, EvictionAnswer.REFUSED, "apply what `gpu-watchdog rights` prints"),
        (429, THROTTLED, EvictionAnswer.LATER, "it throttles this account"),
        (503, b"", EvictionAnswer.LATER, "503"),
    ],
)
def test_what_the_fresh_pod_means(status: int, body: bytes, answer: EvictionAnswer | None, reason: str) -> None:
    """Only the same pod, alive, unprotected and readable, may be evicted."""
    reply = read_pod(attempt(), ApiResponse(status, body, {}))
    assert (reply.answer if reply is not None else None) is answer
    assert reply is None or reason in reply.reason


def test_without_a_configuration_it_is_tried_later(tmp_path: Path) -> None:
    """A kubeconfig may be missing for a moment while it is replaced: nothing was requested."""
    reply = evict(Api(tmp_path / "config"), attempt())
    assert reply.answer is EvictionAnswer.LATER
    assert "the API server can't be used" in reply.reason


class Answering(Api):
    """An API server with the pod, which accepts every eviction; `requested` has what was asked of it.

    For the first `expired` evictions it no longer accepts the credentials.
    """

    def __init__(self, config: Path, expired: int = 0) -> None:
        super().__init__(config)
        self.requested: list[tuple[str, str, Any]] = []
        self._expired = expired

    def call(self, method: str, path: str, *_: object, body: Any = None, **__: object) -> ApiResponse:
        self.requested.append((method, path.rpartition("/")[2], body and body["deleteOptions"]))
        if method == "GET":
            return ApiResponse(200, found(), {})
        self._expired -= 1
        return ApiResponse(201, CREATED, {}) if self._expired < 0 else ApiResponse(401, EXPIRED, {})


OPTIONS = {"gracePeriodSeconds": 30, "preconditions": {"uid": "u"}}


@pytest.mark.parametrize(
    ("more", "answer", "evicts"),
    [
        ({}, EvictionAnswer.ACCEPTED, "eviction"),
        ({"is_dry_run": True}, EvictionAnswer.DRY_RUN_PASSED, "eviction?dryRun=All"),
        ({"is_wanted": lambda: False}, EvictionAnswer.WITHDRAWN, None),
        ({"is_fresh": lambda: False}, EvictionAnswer.LATER, None),
    ],
    ids=["evicted", "a dry run evicts nobody", "given up meanwhile", "read too long ago"],
)
def test_what_is_requested(tmp_path: Path, more: dict[str, Any], answer: EvictionAnswer, evicts: str | None) -> None:
    """The pod is read first; only if it is still to be evicted, it is, by its UID."""
    api = Answering(tmp_path / "config")
    assert evict(api, attempt(**more)).answer is answer
    assert api.requested == [("GET", "p", None), *([("POST", evicts, OPTIONS)] if evicts else [])]


@pytest.mark.parametrize(
    ("more", "answer", "posts"),
    [
        ({}, EvictionAnswer.ACCEPTED, 2),
        ({"is_wanted": iter([True, False]).__next__}, EvictionAnswer.WITHDRAWN, 1),
        ({"is_fresh": iter([True, False]).__next__}, EvictionAnswer.LATER, 1),
    ],
    ids=["rotated credentials", "given up meanwhile", "read too long ago"],
)
def test_an_eviction_is_asked_for_again_only_if_it_still_may_be(
    tmp_path: Path, more: dict[str, Any], answer: EvictionAnswer, posts: int
) -> None:
    """Points 22 and 33: a 401 may come after many seconds, in which enforcement may have been turned off."""
    api = Answering(tmp_path / "config", expired=1)
    assert evict(api, attempt(**more)).answer is answer
    assert [method for method, *_ in api.requested] == ["GET", *["POST"] * posts]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("p", "/api/v1/namespaces/a/pods/p"),
        ("..", "/api/v1/namespaces/a/pods/%20"),
        ("x/../../secrets", "/api/v1/namespaces/a/pods/x%2F..%2F..%2Fsecrets"),
        ("p?a=b#c", "/api/v1/namespaces/a/pods/p%3Fa%3Db%23c"),
        ("ü", "/api/v1/namespaces/a/pods/%C3%BC"),
    ],
)
def test_a_name_leads_nowhere_else(name: str, path: str) -> None:
    """Names come from outside: none of them addresses another object."""
    assert path_of(attempt(name=name)) == path


class Hanging(Api):
    """An API server that answers nothing until it is released."""

    def __init__(self, config: Path) -> None:
        super().__init__(config)
        self.go = threading.Event()

    def call(self, *_: object, **__: object) -> ApiResponse:
        self.go.wait(10)
        return ApiResponse(404, b"", {})


def _threads() -> int:
    return sum(each.name == "api-evict" for each in threading.enumerate())


def test_a_bounded_number_of_attempts_at_once(tmp_path: Path) -> None:
    """Law 10: an API server that hangs costs a bounded number of threads, and no attempt is lost."""
    api, bell = Hanging(tmp_path / "config"), Bell()
    evictor = ApiEvictor(api, bell)
    for request_id in range(MOST_AT_ONCE + 2):
        evictor.begin(attempt(request_id=request_id))
    assert _threads() == MOST_AT_ONCE
    api.go.set()
    replied: list[int] = []

    def has_every_reply() -> bool:
        replied.extend(each.request_id for each in evictor.pop_results())
        return len(replied) >= MOST_AT_ONCE + 2

    wait_until(has_every_reply)
    assert bell.silence()
    assert sorted(replied) == list(range(MOST_AT_ONCE + 2))
    wait_until(lambda: _threads() == 0)
    bell.close()


def test_without_a_thread_it_is_tried_later(tmp_path: Path) -> None:
    """A node that has no room for another thread at the moment loses no attempt, and none of those at once."""
    api, bell = Hanging(tmp_path / "config"), Bell()
    evictor = ApiEvictor(api, bell)
    for request_id in range(MOST_AT_ONCE):
        with no_threads("api-evict"):
            evictor.begin(attempt(request_id=request_id))
    assert bell.silence()
    assert [result.answer for result in evictor.pop_results()] == [EvictionAnswer.LATER] * MOST_AT_ONCE
    evictor.begin(attempt(request_id=20))  # the thread of this one makes the next one too
    with no_threads("api-evict"):
        evictor.begin(attempt(request_id=21))
    api.go.set()
    replied: list[int] = []

    def has_both_replies() -> bool:
        replied.extend(each.request_id for each in evictor.pop_results())
        return replied == [20, 21]

    wait_until(has_both_replies)
    wait_until(lambda: _threads() == 0)
    bell.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_defect_is_a_result(tmp_path: Path) -> None:
    """Without one the eviction would be awaited forever, and the pod never be acted on again."""

    def why_spared(_: object) -> None:
        raise ZeroDivisionError

    bell = Bell()
    evictor = ApiEvictor(Answering(tmp_path / "config"), bell)
    for made, answer in (
        (attempt(why_spared=why_spared), EvictionAnswer.UNKNOWN),
        (attempt(), EvictionAnswer.ACCEPTED),
    ):
        evictor.begin(made)
        wait_until(bell.silence)
        assert [result.answer for result in evictor.pop_results()] == [answer]
    # Only then has the exception been reported, and ignored, in this test rather than in the next one.
    wait_until(lambda: _threads() == 0)
