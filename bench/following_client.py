"""The `kubernetes` client as its documentation has it, for bench.pods: in a process of its own, like the other."""

import sys
from typing import Any, Final

from kubernetes import client, watch
from kubernetes.config import load_kube_config

from bench.following import FIRST_VERSION, LAST, measure
from bench.recorded import PODS, SEQUENCE

_CHOSEN: Final[dict[str, Any]] = {"field_selector": "spec.nodeName=n1"}


class _Following:
    """`list_pod_for_all_namespaces`, then `Watch` from there, into a dictionary by UID."""

    def __init__(self, config: str) -> None:
        load_kube_config(config)  # type: ignore[no-untyped-call]
        self._api: Any = client.CoreV1Api()
        self._known: dict[str, Any] = {}

    def list(self) -> None:
        found = self._api.list_pod_for_all_namespaces(resource_version="0", **_CHOSEN)
        self._known.update((item.metadata.uid, item) for item in found.items)
        assert len(self._known) == PODS

    def follow(self) -> None:
        given = {**_CHOSEN, "resource_version": str(FIRST_VERSION), "allow_watch_bookmarks": True}
        watcher: Any = watch.Watch()  # type: ignore[no-untyped-call]
        for event in watcher.stream(self._api.list_pod_for_all_namespaces, **given):
            item = event["object"]
            self._known[item.metadata.uid] = item
            if item.metadata.annotations[SEQUENCE] == LAST:
                return
        raise RuntimeError("the watch ended before its last update")


if __name__ == "__main__":
    following = _Following(sys.argv[1])
    measure(following.list, following.follow)
