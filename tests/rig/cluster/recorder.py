"""The changes of pods, from a watch of the tests' own."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from tests.rig.cluster.api import Api, Object, query


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One event of the watch."""

    type: str
    pod: Object


class Recorder:
    """A context manager: inside, every change of every pod of the cluster is recorded.

    A watch that ends meanwhile, as the server ends one that it finds too slow, goes on where it was.
    """

    def __init__(self, api: Api, token: str) -> None:
        self._api = api
        self._token = token
        self._connection: http.client.HTTPSConnection | None = None
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._stopped = threading.Event()
        self._version = ""
        self._lost = ""
        self.changes: list[Change] = []

    def __enter__(self) -> Self:
        self._version = self._api.ask("GET", "/api/v1/pods?limit=1")["metadata"]["resourceVersion"]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        connection = self._connection
        if connection is not None:
            with suppress(OSError, AttributeError):  # it may be between two connections
                connection.sock.shutdown(2)
        self._thread.join(10)

    def of(self, namespace: str, app: str) -> Iterator[Change]:
        """The changes of the pods of one workload, by its label `app`."""
        assert not self._lost, f"changes of pods have been lost: {self._lost}"
        for change in tuple(self.changes):
            meta = change.pod["metadata"]
            if meta["namespace"] == namespace and meta.get("labels", {}).get("app") == app:
                yield change

    def _run(self) -> None:
        while not self._stopped.wait(0.05) and not self._lost:
            # ValueError: a shutdown takes TLS from the socket, so the last line may be ciphertext.
            with suppress(OSError, http.client.HTTPException, ValueError):
                self._follow()

    def _follow(self) -> None:
        self._connection = connection = self._api.connection(600)
        path = "/api/v1/pods" + query(watch="true", resourceVersion=self._version, allowWatchBookmarks="true")
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}"})
            answer = connection.getresponse()
            if answer.status == http.HTTPStatus.GONE:
                self._lost = answer.read().decode()
            elif answer.status == http.HTTPStatus.OK:
                for line in answer:
                    self._take(line)
        finally:
            connection.close()

    def _take(self, line: bytes) -> None:
        if not line.endswith(b"\n"):
            return  # cut in the middle: it comes again
        event = json.loads(line)
        if event["type"] == "ERROR":
            self._lost = line.decode()
            return
        self._version = event["object"]["metadata"]["resourceVersion"]
        if event["type"] != "BOOKMARK":
            self.changes.append(Change(type=event["type"], pod=event["object"]))
