"""An API client that counts what informers request, also what reaches no server and no audit log."""

from collections import Counter
from pathlib import Path
from typing import Any

from watchdog.kube.client import Api, Query, ResponseStream


class CountingApi(Api):
    """`requests` are those that an informer has made so far, by `list` and `watch`."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(kubeconfig)
        self.requests: Counter[str] = Counter()

    def open(self, path: str, query: Query | None = None, **how: Any) -> ResponseStream:
        """Count a request, and make it."""
        self.requests["watch" if "watch" in (query or {}) else "list"] += 1
        return super().open(path, query, **how)
