"""One request to evict a pod by the Eviction API, and the threads that make such requests."""

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import quote

import msgspec

from watchdog.clock import Bell
from watchdog.core.eviction import FORBIDDEN, EvictionAnswer, EvictionRequest, EvictionResult
from watchdog.core.model import Pod
from watchdog.kube.client import (
    LONGEST_RETRY_AFTER_S,
    Api,
    ApiResponse,
    full_jitter_s,
)
from watchdog.kube.failure import ApiError, ApiUnreachableError
from watchdog.kube.objects import parse_pods
from watchdog.kube.wire import DECODE_ERRORS, decode_json

# A budget changes when another pod becomes ready: seconds at the least.
FIRST_WAIT_S: Final = 5.0
LEAST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 60.0
_GET_TIMEOUT_S: Final = 5.0
_GETTING: Final = "reading the pod before evicting it"
_EVICTING: Final = "evicting the pod"
_TOO_OLD: Final = "the API server took so long to answer that its last measured use was too old to evict by"
_OTHER_POD: Final = "another pod has its name now"
# The handler checks the UID itself, and the store below it does so again.
_WRONG_UID: Final = ("UID in the precondition", "UID in precondition")
_BUDGET: Final = "DisruptionBudget"  # DisruptionBudgetCause in k8s.io/api/policy/v1
# Budgets that refuse without that cause, by the status of the response.
_ODD_BUDGETS: Final[Mapping[int, tuple[str, ...]]] = {
    403: ("pdb disruptions allowed is negative", "DisruptedPods map too big"),
    500: ("more than one PodDisruptionBudget",),
}


class _PhaseStatus(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class _PodPhase(msgspec.Struct, gc=False):
    status: _PhaseStatus = _PhaseStatus()


_PHASE: Final = msgspec.json.Decoder(_PodPhase)


def evict(api: Api, request: EvictionRequest) -> EvictionResult:
    """Try to evict a pod, once; takes at most the timeouts of its two requests, each of which is repeated after a 401.

    Credentials may have been rotated meanwhile, and are read again then.
    """
    try:
        response = api.call("GET", path_of(request), read_timeout_s=_GET_TIMEOUT_S)
        if response.status == 401:
            response = api.call("GET", path_of(request), read_timeout_s=_GET_TIMEOUT_S)
    except ApiError as error:
        return _result(request, EvictionAnswer.LATER, f"{_GETTING}: {error}")
    result = read_pod(request, response)
    if result is not None:
        return result
    options = {"gracePeriodSeconds": request.grace_s, "preconditions": {"uid": request.uid}}
    metadata = {"name": request.name, "namespace": request.namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
    try:
        # As a parameter, which webhooks see too; in the body, only the Eviction API would (propagateDryRun in
        # k8s.io/kubernetes/pkg/registry/core/pod/storage/eviction.go).
        dry_run = "?dryRun=All" if request.is_dry_run else ""
        for _ in range(2):
            if not request.is_wanted():
                return _result(request, EvictionAnswer.WITHDRAWN)
            if not request.is_fresh():
                return _result(request, EvictionAnswer.LATER, _TOO_OLD)
            response = api.call("POST", f"{path_of(request)}/eviction{dry_run}", body=body)
            if response.status != 401:
                break
    except ApiError as error:
        is_unsure = isinstance(error, ApiUnreachableError) and not request.is_dry_run
        return _result(request, EvictionAnswer.UNKNOWN if is_unsure else EvictionAnswer.LATER, f"{_EVICTING}: {error}")
    return read_response(request, response)


def read_pod(request: EvictionRequest, response: ApiResponse) -> EvictionResult | None:
    """What the response to reading the pod means; None: it is the same pod, and may be evicted."""
    if gone := _says_gone(response):
        return _gone(request, gone)
    if not response.is_good:
        return _refused(request, response, _GETTING)
    try:
        pods, gaps = parse_pods(response.body, keys=None)
    except ValueError:
        pods, gaps = (), ()
    if len(pods) != 1:
        why = "; ".join(str(gap.problem) for gap in gaps) or "the answer contains no pod"
        return _result(request, EvictionAnswer.REFUSED, f"{_GETTING}: {why}")
    return _why_no_request(request, pods[0], response.body)


def _why_no_request(request: EvictionRequest, pod: Pod, body: bytes) -> EvictionResult | None:
    if pod.uid != request.uid:
        return _gone(request, _OTHER_POD)
    if pod.deletion_deadline_s not in (None, request.deadline_s):
        return _gone(request, "the pod is being deleted already")
    try:
        phase = decode_json(_PHASE, body).status.phase
    except DECODE_ERRORS as error:
        return _result(request, EvictionAnswer.REFUSED, f"{_GETTING}: it can't be read: {error}")
    if phase in ("Succeeded", "Failed"):
        return _result(request, EvictionAnswer.GONE, f"the pod has ended: its phase is {phase}")
    why = request.why_spared(pod)
    return None if why is None else _result(request, EvictionAnswer.SPARED, why)


def read_response(request: EvictionRequest, response: ApiResponse) -> EvictionResult:
    """What the response to an eviction means."""
    if response.is_good:
        return _result(request, EvictionAnswer.DRY_RUN_PASSED if request.is_dry_run else EvictionAnswer.ACCEPTED)
    if gone := _says_gone(response):
        return _gone(request, gone)
    if _is_budget(response):
        return _read_budget(request, response)
    if response.status >= 500:
        # Whether it was carried out before the error is not known.
        answer = EvictionAnswer.LATER if request.is_dry_run else EvictionAnswer.UNKNOWN
        return _result(request, answer, str(response.problem(_EVICTING)), response)
    if response.status == 409 or (response.status == 404 and response.message.endswith(" not found")):
        # The pod or its budget has changed, or is gone, in the meantime.
        return _result(request, EvictionAnswer.LATER, str(response.problem(_EVICTING)), response)
    return _refused(request, response, _EVICTING)


def _says_gone(response: ApiResponse) -> str:
    if response.status == 404 and response.message.startswith("pods "):
        return "the pod is gone"
    is_other = response.status == 409 and any(words in response.message for words in _WRONG_UID)
    return _OTHER_POD if is_other else ""


def _is_budget(response: ApiResponse) -> bool:
    if response.status == 429:
        return any(cause.reason == _BUDGET for cause in response.causes)
    return any(words in response.message for words in _ODD_BUDGETS.get(response.status, ()))


def _read_budget(request: EvictionRequest, response: ApiResponse) -> EvictionResult:
    message = next((cause.message for cause in response.causes if cause.reason == _BUDGET), "") or response.message
    answer, remedy = EvictionAnswer.BLOCKED, "it succeeds once more pods are healthy or the budget is relaxed"
    if response.status == 500:
        remedy = "the Eviction API can't decide which one counts: let only one of them select it"
    elif response.retry_after_s is not None:
        # The budget's controller has not processed it yet, or not since it was changed.
        answer, remedy = EvictionAnswer.LATER, "if it stays so, check kube-controller-manager"
    return _result(request, answer, f"{message[:1].lower()}{message[1:].rstrip('.')}; {remedy}", response)


def _refused(request: EvictionRequest, response: ApiResponse, what: str) -> EvictionResult:
    sentence = str(response.problem(what))
    if response.status in (408, 429) or response.status >= 500:
        return _result(request, EvictionAnswer.LATER, sentence, response)
    if response.status == 403 and "admission webhook" in response.message:
        sentence = f"{what}: an admission webhook of the cluster refuses it: {response.message}"
    result = _result(request, EvictionAnswer.REFUSED, sentence)
    return replace(result, for_owner=FORBIDDEN) if _lacks_right(response) else result


def _lacks_right(response: ApiResponse) -> bool:
    """Whether the account lacks the right, rather than this pod or the cluster's own checks refusing.

    An authorizer's refusal says `User "..." cannot create resource "pods/eviction"` (forbiddenMessage in
    k8s.io/apiserver/pkg/endpoints/handlers/responsewriters).
    """
    is_denied = response.status == 403 and 'User "' in response.message and " cannot " in response.message
    return response.status == 401 or is_denied


def _gone(request: EvictionRequest, why: str) -> EvictionResult:
    """The pod is no longer there to be evicted, due to an earlier attempt of ours or another client."""
    if request.is_unsure:
        return _result(request, EvictionAnswer.ACCEPTED, f"the API server's answer was lost, and {why}")
    return _result(request, EvictionAnswer.GONE, why)


def _result(
    request: EvictionRequest, answer: EvictionAnswer, why: str = "", response: ApiResponse | None = None
) -> EvictionResult:
    """A result; if it is to be retried, with a pause with full jitter, plus what the server asks for."""
    wait_s = 0.0
    if answer in (EvictionAnswer.BLOCKED, EvictionAnswer.LATER, EvictionAnswer.UNKNOWN):
        asked_s = (response.retry_after_s if response is not None else None) or 0.0
        wait_s = full_jitter_s(request.number, first_s=FIRST_WAIT_S, longest_s=LONGEST_WAIT_S, least_s=LEAST_WAIT_S)
        wait_s += min(asked_s, LONGEST_RETRY_AFTER_S)
    return EvictionResult(request_id=request.request_id, answer=answer, reason=why, wait_s=wait_s)


def path_of(request: EvictionRequest) -> str:
    """The pod's path in the API; no name can lead anywhere else."""
    # A name of dots alone would lead to a parent path; Kubernetes allows none (RFC 1123).
    namespace, name = (quote(part, safe="") if part.strip(".") else "%20" for part in (request.namespace, request.name))
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


# A request that hangs takes half a minute at most. More at once than a node has GPUs would be a burst, not a need.
MOST_AT_ONCE: Final = 8


class ApiEvictor:
    """Makes eviction requests, a few at a time and the others in order; rings the bell with each result."""

    def __init__(self, api: Api, bell: Bell) -> None:
        self._api = api
        self._bell = bell
        self._lock = threading.Lock()
        self._waiting: deque[EvictionRequest] = deque()
        self._results: deque[EvictionResult] = deque()
        self._threads = 0

    def begin(self, request: EvictionRequest) -> None:
        """Queue a request; returns at once."""
        with self._lock:
            problem = self._add_thread() if self._threads < MOST_AT_ONCE else ""
            if self._threads:
                self._waiting.append(request)
                return
            self._results.append(_result(request, EvictionAnswer.LATER, f"{_EVICTING}: {problem}"))
        self._bell.ring()

    def _add_thread(self) -> str:
        """Start another thread; returns why none can be started at the moment."""
        try:
            # As daemon threads: the process does not wait for a hanging API server when it ends.
            threading.Thread(target=self._work, name="api-evict", daemon=True).start()
        except RuntimeError as error:
            return str(error)
        self._threads += 1
        return ""

    def pop_results(self) -> tuple[EvictionResult, ...]:
        """The results since the last call."""
        with self._lock:
            results = tuple(self._results)
            self._results.clear()
        return results

    def _work(self) -> None:
        while (request := self._next()) is not None:
            self._try(request)

    def _next(self) -> EvictionRequest | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None

    def _try(self, request: EvictionRequest) -> None:
        # There must always be a result, or the eviction would be awaited forever.
        result = EvictionResult(
            request_id=request.request_id,
            answer=EvictionAnswer.UNKNOWN,
            reason="the attempt failed unexpectedly; please report this with the log",
            wait_s=LONGEST_WAIT_S,
        )
        is_over = False
        try:
            result = evict(self._api, request)
            is_over = True
        finally:
            with self._lock:
                self._results.append(result)
                self._threads -= not is_over  # the exception ends this thread
            self._bell.ring()
