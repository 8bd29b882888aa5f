"""Which pods the API server has deleted for certain: by its watch, or by a request for one pod that a list lacks."""

import threading
from collections import deque
from collections.abc import Iterable
from contextlib import closing, suppress
from typing import Final
from urllib.parse import quote

from watchdog import clock
from watchdog.clock import Bell
from watchdog.core.model import Pod
from watchdog.kube.client import Api
from watchdog.kube.failure import ApiError
from watchdog.kube.store import ListReader, read_identity

# They are read at every cycle, and a node runs a few hundred pods at a time.
_MOST_GONE: Final = 1024
_RETRY_AFTER_S: Final = 5.0
# How long a pod that the API server still has is not asked about again; its deletion would come by the watch.
_THERE_FOR_S: Final = 60.0
_ANSWER_S: Final = 10.0


class Departures:
    """The UIDs of deleted pods, and the requests for pods that a list lacks; any thread may call.

    A request is a list of the pods of one name, as the newest state of the cluster has them, for which the right to
    list pods is enough. UIDs are never reused, so what is gone stays gone.
    """

    def __init__(self, api: Api, bell: Bell) -> None:
        self._api = api
        self._bell = bell
        self._lock = threading.Lock()
        self._order: deque[str] = deque()
        self._waiting: deque[Pod] = deque()
        self._not_before_s: dict[str, float] = {}
        self._is_working = False
        self.gone: frozenset[str] = frozenset()

    def note_deleted(self, uid: str) -> None:
        """Note that a pod was deleted."""
        with self._lock:
            if uid and uid not in self.gone:
                self._order.append(uid)
                while len(self._order) > _MOST_GONE:
                    self._order.popleft()
                self.gone = frozenset(self._order)

    def ask(self, pods: Iterable[Pod]) -> None:
        """Ask for these pods, one after another, unless that was done a moment ago; returns at once."""
        with self._lock:
            now_s = clock.now().boottime_s
            self._not_before_s = {uid: at_s for uid, at_s in self._not_before_s.items() if at_s > now_s}
            due = [pod for pod in pods if pod.uid not in self._not_before_s and pod.uid not in self.gone]
            self._waiting.extend(due)
            self._not_before_s |= dict.fromkeys((pod.uid for pod in due), now_s + _THERE_FOR_S)
            if self._waiting and not self._is_working:
                try:
                    threading.Thread(target=self._work, name="api-departures", daemon=True).start()
                except RuntimeError:  # no thread can be started at the moment
                    self._not_before_s = {}
                    self._waiting.clear()
                else:
                    self._is_working = True

    def _work(self) -> None:
        while (pod := self._next()) is not None:
            is_there = True  # for all that is known
            wait_s = _RETRY_AFTER_S
            with suppress(ApiError, ValueError):
                is_there, wait_s = self._is_there(pod), _THERE_FOR_S
            if is_there:
                with self._lock:
                    self._not_before_s[pod.uid] = clock.now().boottime_s + wait_s
            else:
                self.note_deleted(pod.uid)
                self._bell.ring()

    def _next(self) -> Pod | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._is_working = False
            return None

    def _is_there(self, pod: Pod) -> bool:
        """Whether the cluster still has a pod. ApiError or ValueError if the response does not say."""
        path = f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods"
        query = {"fieldSelector": f"metadata.name={pod.name}"}
        with closing(self._api.open(path, query, read_timeout_s=_ANSWER_S)) as stream:
            if stream.status != 200:
                raise ValueError(f"status {stream.status}")
            return any(read_identity(item).uid == pod.uid for item in ListReader(stream.body(), "PodList"))
