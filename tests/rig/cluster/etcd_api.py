"""etcd's own API, by the JSON gateway on its client port."""

import base64
import json
from typing import Any

from tests.rig.cluster.network import Network, exchange


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
        sent = None if body is None else json.dumps(body).encode()
        answer = exchange(self._network.open_http(self._port), method, path, sent)
        if answer.status >= 300:
            raise OSError(f"etcd {path}: {answer}")
        found: dict[str, Any] = answer.object
        return found


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
