"""Clients for the tests of the rig: requests by way of a proxy, and a watch that a thread reads."""

import http.client
import json
import threading
from typing import Self

from tests.cluster.api import Api, query
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.control_plane import ControlPlane
from tests.cluster.network import LOOPBACK
from tests.cluster.streams import shut
from tests.cluster.tcp_proxy import TcpProxy


def through(proxy: TcpProxy | ApiProxy, plane: ControlPlane) -> Api:
    """The admin's requests by way of a proxy."""
    ca = proxy.ca if isinstance(proxy, ApiProxy) else plane.ca
    return Api(LOOPBACK, proxy.port, ca=ca, token=plane.token("admin"))


class Watch:
    """A watch that a thread reads; lines as they come, then how it ended."""

    def __init__(self, api: Api, namespace: str, timeout_s: float = 30.0) -> None:
        self.lines: list[bytes] = []
        self.end: BaseException | str | None = None
        self._connection = api.connection(timeout_s)
        self._connection.connect()
        self.socket = self._connection.sock
        path = f"/api/v1/namespaces/{namespace}/pods" + query(watch="1", timeoutSeconds="60")
        self._connection.request("GET", path, headers=api.authorization)
        self._response = self._connection.getresponse()
        self.status = self._response.status
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shut(self.socket)
        self._thread.join(10)
        self._response.close()
        self._connection.close()
        self.socket.close()

    def _read(self) -> None:
        try:
            while line := self._response.readline():
                self.lines.append(line)
            self.end = "closed"
        except (OSError, http.client.HTTPException) as error:
            self.end = error

    @property
    def names(self) -> list[str]:
        """Names of the pods that it has told, in order."""
        return [json.loads(line)["object"]["metadata"]["name"] for line in self.lines]
