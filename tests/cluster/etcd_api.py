"""etcd's own API, by the JSON gateway on its client port."""

import base64
import http.client
import json
from typing import Any

from tests.cluster.network import Network


class EtcdApi:
    """The few calls that the tests need. They raise OSError."""

    def __init__(self, network: Network, port: int) -> None:
        self._network = network
        self._port = port

    def healthy(self) -> bool:
        """Whether it answers."""
        try:
            return bool(self._call("GET", "/health").get("health") == "true")
        except (OSError, ValueError):
            return False

    def put(self, key: str, value: str) -> int:
        """Write one key; gives the revision of the whole store, which is what a resourceVersion is."""
        body = {"key": _base64(key), "value": _base64(value)}
        return int(self._call("POST", "/v3/kv/put", body)["header"]["revision"])

    def compact(self, revision: int) -> None:
        """Forget everything that was before a revision."""
        self._call("POST", "/v3/kv/compaction", {"revision": revision, "physical": True})

    def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection(self._network.address, self._port, timeout=60)
        connection.sock = self._network.connect(self._port)
        try:
            connection.request(method, path, body=None if body is None else json.dumps(body))
            response = connection.getresponse()
            text = response.read()
        except http.client.HTTPException as error:
            raise OSError(f"etcd: {error!r}") from error
        finally:
            connection.close()
        if response.status >= 300:
            raise OSError(f"etcd {path}: {response.status} {text[:500].decode(errors='replace')}")
        found: dict[str, Any] = json.loads(text)
        return found


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
