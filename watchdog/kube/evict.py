"""One attempt to evict a pod by the Eviction API, and the threads on which attempts run."""

import threading
from collections import deque
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

import msgspec
from tenacity import RetryCallState, Retrying, wait_random_exponential

from watchdog.clock import Bell
from watchdog.core.eviction import FORBIDDEN, EvictionAnswer, EvictionRequest, EvictionResult
from watchdog.core.model import Gap, Pod
from watchdog.kube.client import READ_TIMEOUT_S, Api
from watchdog.kube.objects import parse_pods
from watchdog.kube.responses import ApiError, ApiResponse, ApiUnreachableError
from watchdog.kube.wire import DECODE_ERRORS

# A budget changes when another pod becomes ready: seconds at the least.
FIRST_WAIT_S: Final = 5.0
LEAST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 60.0
_LONGEST_RETRY_AFTER_S: Final = 300.0
_GET_TIMEOUT_S: Final = 5.0
_JITTER: Final = wait_random_exponential(multiplier=FIRST_WAIT_S, max=LONGEST_WAIT_S, min=LEAST_WAIT_S)
_GETTING: Final = "looking at the pod before evicting it"
_EVICTING: Final = "evicting the pod"
_TOO_OLD: Final = "the API server took so long to show the pod that the last look at its use was too old to evict by"
_BUDGET: Final = "DisruptionBudget"  # DisruptionBudgetCause in k8s.io/api/policy/v1
_TWO_BUDGETS: Final = "more than one PodDisruptionBudget"
# It checks the UID itself, and the store below it does so again.
_WRONG_UID: Final = ("UID in the precondition", "UID in precondition")
_BUDGET_IS_ODD: Final = ("pdb disruptions allowed is negative", "DisruptedPods map too big")
_LOST: Final = "the answer of the API server had been lost"


class _Status(msgspec.Struct, gc=False):
    phase: str = ""


class _Pod(msgspec.Struct, gc=False):
    status: _Status = msgspec.field(default_factory=_Status)


_PHASE: Final = msgspec.json.Decoder(_Pod)


def evict(api: Api, attempt: EvictionRequest) -> EvictionResult:
    """Try to evict a pod, once; takes as long as the server, at most the time-outs of its requests."""
    looked = _look(api, attempt)
    if looked is not None:
        return looked
    if not attempt.is_wanted():
        return _reply(attempt, EvictionAnswer.WITHDRAWN)
    if not attempt.is_fresh():
        return _again(attempt, EvictionAnswer.LATER, _TOO_OLD)
    options = {"gracePeriodSeconds": attempt.grace_s, "preconditions": {"uid": attempt.uid}}
    metadata = {"name": attempt.name, "namespace": attempt.namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
    try:
        answer = _call(api, "POST", f"{path_of(attempt)}/eviction", body)
    except ApiUnreachableError as error:
        return _again(attempt, EvictionAnswer.UNKNOWN, f"{_EVICTING}: {error}")
    except ApiError as error:
        return _again(attempt, EvictionAnswer.LATER, f"{_EVICTING}: {error}")
    return read_answer(attempt, answer)


def read_answer(attempt: EvictionRequest, answer: ApiResponse) -> EvictionResult:
    """What the server's answer to an eviction means."""
    if answer.is_good:
        return _reply(attempt, EvictionAnswer.ACCEPTED)
    gone = _says_gone(answer)
    if gone:
        return _gone(attempt, gone)
    if _is_budget(answer):
        return _read_budget(attempt, answer)
    if answer.status >= 500:
        # Whether it has been carried out before it went wrong is not known.
        return _again(attempt, EvictionAnswer.UNKNOWN, str(answer.problem(_EVICTING)), answer)
    if answer.status == 409 or (answer.status == 404 and answer.message.endswith(" not found")):
        # The pod or its budget has changed, or gone, in the middle of it.
        return _again(attempt, EvictionAnswer.LATER, str(answer.problem(_EVICTING)), answer)
    return _refused(attempt, answer, _EVICTING)


def _says_gone(answer: ApiResponse) -> str:
    if answer.status == 404 and answer.message.startswith("pods "):
        return "the pod is gone"
    is_other = answer.status == 409 and any(words in answer.message for words in _WRONG_UID)
    return "another pod has its name now" if is_other else ""


def _is_budget(answer: ApiResponse) -> bool:
    if answer.status == 429:
        return any(cause.reason == _BUDGET for cause in answer.causes)
    words = {403: _BUDGET_IS_ODD, 500: (_TWO_BUDGETS,)}.get(answer.status, ())
    return any(each in answer.message for each in words)


def _read_budget(attempt: EvictionRequest, answer: ApiResponse) -> EvictionResult:
    said = next((cause.message for cause in answer.causes if cause.reason == _BUDGET), "") or answer.message
    said = said[:1].lower() + said[1:].rstrip(".")
    if answer.status == 500:
        remedy = "the Eviction API can't tell which one counts: let only one of them select it"
        return _again(attempt, EvictionAnswer.BLOCKED, f"{said}; {remedy}", answer)
    if answer.retry_after_s is not None:
        # Its controller has not seen the budget yet, or not since it was changed.
        return _again(attempt, EvictionAnswer.LATER, f"{said}; if it stays so, look at kube-controller-manager", answer)
    return _again(
        attempt, EvictionAnswer.BLOCKED, f"{said}; more healthy pods, or a looser budget, let it through", answer
    )


def _look(api: Api, attempt: EvictionRequest) -> EvictionResult | None:
    """Look at the pod again; None: it is the very pod, and nothing speaks against evicting it."""
    try:
        answer = _call(api, "GET", path_of(attempt), None)
    except ApiError as error:
        return _again(attempt, EvictionAnswer.LATER, f"{_GETTING}: {error}")
    return read_look(attempt, answer)


def read_look(attempt: EvictionRequest, answer: ApiResponse) -> EvictionResult | None:
    """What the server's answer to the fresh look means; None: the pod may be evicted."""
    gone = _says_gone(answer)
    if gone:
        return _gone(attempt, gone)
    if not answer.is_good:
        return _refused(attempt, answer, _GETTING)
    pods, gaps = _decode(answer.body)
    if len(pods) != 1:
        why = "; ".join(str(gap.problem) for gap in gaps) or "the answer holds no pod"
        return _reply(attempt, EvictionAnswer.REFUSED, f"{_GETTING}: {why}")
    return _judge(attempt, pods[0], answer.body)


def _judge(attempt: EvictionRequest, pod: Pod, body: bytes) -> EvictionResult | None:
    if pod.uid != attempt.uid:
        return _gone(attempt, "another pod has its name now")
    if pod.deletion_deadline_s not in (None, attempt.deadline_s):
        return _gone(attempt, "the pod is being deleted already")
    try:
        phase = _PHASE.decode(body).status.phase
    except DECODE_ERRORS as error:
        return _reply(attempt, EvictionAnswer.REFUSED, f"{_GETTING}: it can't be read: {error}")
    if phase in ("Succeeded", "Failed"):
        return _reply(attempt, EvictionAnswer.GONE, f"the pod has ended: its phase is {phase}")
    objection = attempt.objection(pod)
    return None if objection is None else _reply(attempt, EvictionAnswer.SPARED, objection)


def _decode(body: bytes) -> tuple[tuple[Pod, ...], tuple[Gap, ...]]:
    try:
        return parse_pods(body)
    except ValueError:
        return (), ()


def _call(api: Api, method: str, path: str, body: Any) -> ApiResponse:
    """Make a request; after a 401 once more, by credentials that may have been rotated meanwhile."""
    timeout_s = _GET_TIMEOUT_S if method == "GET" else READ_TIMEOUT_S
    answer = api.call(method, path, body=body, read_timeout_s=timeout_s)
    return api.call(method, path, body=body, read_timeout_s=timeout_s) if answer.status == 401 else answer


def path_of(attempt: EvictionRequest) -> str:
    """Where the API has the pod; whatever its name holds, nowhere else."""
    # A name of dots alone would lead out of its place; Kubernetes gives none (RFC 1123).
    namespace, name = (quote(part, safe="") if part.strip(".") else "%20" for part in (attempt.namespace, attempt.name))
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _refused(attempt: EvictionRequest, answer: ApiResponse, what: str) -> EvictionResult:
    sentence = str(answer.problem(what))
    if answer.status in (408, 429) or answer.status >= 500:
        return _again(attempt, EvictionAnswer.LATER, sentence, answer)
    if answer.status == 403 and "admission webhook" in answer.message:
        sentence = f"{what}: an admission webhook of the cluster refuses it: {answer.message}"
    reply = _reply(attempt, EvictionAnswer.REFUSED, sentence)
    return replace(reply, for_owner=FORBIDDEN) if _lacks_right(answer) else reply


def _lacks_right(answer: ApiResponse) -> bool:
    """Whether it is the account that may not, rather than this pod or the cluster's own checks of it.

    An authorizer's refusal says `User "..." cannot create resource "pods/eviction"` (forbiddenMessage in
    k8s.io/apiserver/pkg/endpoints/handlers/responsewriters).
    """
    is_denied = answer.status == 403 and 'User "' in answer.message and " cannot " in answer.message
    return answer.status == 401 or is_denied


def _gone(attempt: EvictionRequest, why: str) -> EvictionResult:
    """The pod is not there to be evicted: by an earlier try of ours whose answer was lost, or by somebody else."""
    if attempt.is_unsure:
        return _reply(attempt, EvictionAnswer.ACCEPTED, f"{_LOST}, and {why}")
    return _reply(attempt, EvictionAnswer.GONE, why)


def _again(
    attempt: EvictionRequest, answer: EvictionAnswer, why: str, said: ApiResponse | None = None
) -> EvictionResult:
    """Something that may go better later: full jitter, on top of a pause that the server asks for."""
    state = RetryCallState(Retrying(), None, (), {})
    state.attempt_number = attempt.number
    asked_s = (said.retry_after_s if said is not None else None) or 0.0
    wait_s = _JITTER(state) + min(asked_s, _LONGEST_RETRY_AFTER_S)
    return EvictionResult(ticket=attempt.ticket, answer=answer, reason=why, wait_s=wait_s)


def _reply(attempt: EvictionRequest, answer: EvictionAnswer, why: str = "") -> EvictionResult:
    return EvictionResult(ticket=attempt.ticket, answer=answer, reason=why)


# One that hangs takes half a minute at most. More at once than a node has GPUs would be a burst, not a need.
MOST_AT_ONCE: Final = 8


class ApiEvictor:
    """Makes tries through the API, a few at a time and the others in their order; rings the bell with each reply."""

    def __init__(self, api: Api, bell: Bell) -> None:
        self._api = api
        self._bell = bell
        self._lock = threading.Lock()
        self._waiting: deque[EvictionRequest] = deque()
        self._replies: deque[EvictionResult] = deque()
        self._threads = 0

    def begin(self, attempt: EvictionRequest) -> None:
        """Hand in a try; returns at once."""
        with self._lock:
            self._waiting.append(attempt)
            if self._threads >= MOST_AT_ONCE:
                return
            self._threads += 1
        # As daemons: whoever ends the process does not wait for an API server that hangs.
        threading.Thread(target=self._work, name="api-evict", daemon=True).start()

    def take(self) -> tuple[EvictionResult, ...]:
        """The replies that have come since it was last asked."""
        with self._lock:
            replies = tuple(self._replies)
            self._replies.clear()
        return replies

    def _work(self) -> None:
        """Make tries as long as there are any."""
        while (attempt := self._next()) is not None:
            self._try(attempt)

    def _next(self) -> EvictionRequest | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None

    def _try(self, attempt: EvictionRequest) -> None:
        # Whatever happens there is a reply, or the eviction would be awaited for ever.
        reply = EvictionResult(
            ticket=attempt.ticket,
            answer=EvictionAnswer.UNKNOWN,
            reason="the try ended in a way that was not foreseen; please report what the log has of it",
            wait_s=LONGEST_WAIT_S,
        )
        is_over = False
        try:
            reply = evict(self._api, attempt)
            is_over = True
        finally:
            with self._lock:
                self._replies.append(reply)
                self._threads -= not is_over  # the exception ends this thread
            self._bell.ring()
