"""What became of pods, change by change: a watch of the tests' own."""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from tests.cluster.api import Api, Object, query


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One event of the watch; `at_s` counts from the start of the recording."""

    at_s: float
    type: str
    pod: Object


class Recorder:
    """A context manager: inside, every change of every pod of the cluster is kept."""

    def __init__(self, api: Api, token: str) -> None:
        self._api = api
        self._token = token
        self._connection: http.client.HTTPSConnection | None = None
        self._thread = threading.Thread(target=self._follow, name="recorder", daemon=True)
        self.changes: list[Change] = []

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        version = self._api.ask("GET", "/api/v1/pods?limit=1")["metadata"]["resourceVersion"]
        self._connection = self._api.connection(600)
        path = "/api/v1/pods" + query(watch="true", resourceVersion=version, timeoutSeconds="600")
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}"})
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._connection is not None
        with suppress(OSError):
            self._connection.sock.shutdown(2)
        self._thread.join(10)
        self._connection.close()

    def of(self, namespace: str, app: str) -> Iterator[Change]:
        """The changes of the pods of one workload, by its label `app`."""
        for change in tuple(self.changes):
            meta = change.pod["metadata"]
            if meta["namespace"] == namespace and meta.get("labels", {}).get("app") == app:
                yield change

    def _follow(self) -> None:
        with suppress(OSError, http.client.HTTPException, ValueError):
            for line in self._answer:
                event = json.loads(line)
                moment = time.monotonic() - self._began
                self.changes.append(Change(at_s=moment, type=event["type"], pod=event["object"]))
