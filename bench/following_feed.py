"""The daemon's own way to the pods, for bench.pods: in a process of its own, with the kubeconfig as its argument."""

import sys
from pathlib import Path

from bench.following import LAST, measure
from bench.recorded import PODS, SEQUENCE, UPDATES
from watchdog.core.errors import Problem
from watchdog.core.model import Now, Pod
from watchdog.kube.client import Api
from watchdog.kube.informers import gather, pods_of
from watchdog.kube.store import Store
from watchdog.kube.watch import Listener, Watcher


class _DoneError(Exception):
    """The last update is there to be read."""


class _Following:
    """What PodFeed does on its thread, here without one: every change makes the list that the daemon reads."""

    def __init__(self, config: Path) -> None:
        self._known: tuple[Pod, ...] = ()
        listener = Listener(on_update=self._take, on_problem=self._fail)
        self._watcher = Watcher(Api(config), pods_of("n1"), listener)

    def list(self) -> None:
        self._watcher.run_once()
        assert len(self._known) == PODS

    def follow(self) -> None:
        try:
            problem = self._watcher.run_once().problem
        except _DoneError:
            return
        raise RuntimeError(f"the watch ended before its last update: {problem}")

    def _take(self, store: Store[Pod] | None, at: Now) -> None:
        if store is not None:
            self._known, _ = gather(store)
            if self._known[(UPDATES - 1) % PODS].annotations[SEQUENCE] == LAST:
                raise _DoneError

    def _fail(self, problem: Problem | None) -> None:
        if problem is not None:
            raise RuntimeError(problem)


if __name__ == "__main__":
    following = _Following(Path(sys.argv[1]))
    measure(following.list, following.follow)
