"""Informers under test: what they know, and what the API server was asked for them."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.node.support import wait_until
from tests.rig.cluster.accounts import Account, with_rights
from tests.rig.cluster.api import Object
from tests.rig.cluster.api_proxy import ApiProxy
from tests.rig.cluster.audit import Request
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.faults import watches
from tests.rig.cluster.pods import Pods
from tests.rig.cluster.tcp_proxy import TcpProxy
from watchdog import clock
from watchdog.clock import Bell
from watchdog.core.model import Pod, PodList
from watchdog.core.policy import Match, Policy, Rule
from watchdog.kube.client import Api, Query, ResponseStream
from watchdog.kube.informers import PodInformer
from watchdog.kube.reflector import USUAL, RequestPace

OBSERVES: Final = Policy(sha256="", source="")
# Needs namespaces besides pods and the node.
MATCHES_BY_NAMESPACE: Final = Policy(
    sha256="", source="", rules=(Rule(name="r", match=Match(namespace_labels={"team": "ml"}), steps=()),)
)
# The most requests in 12 s with pauses of full jitter (drawn from up to 0.5, 1, 2, 4 ... 30 s), but for one case in ten
# thousand; found by drawing them. Half the time it is 5 or fewer.
MOST_IN_12_S: Final = 11
# Everything in seconds instead of minutes, for what only time brings.
QUICK: Final = RequestPace(
    length_s=(6.0, 7.0),
    silence_s=3.0,
    first_bookmark_s=(2.5, 3.0),
    short_length_s=(3.0, 4.0),
    stable_after_s=2.0,
    answer_s=2.0,
)


class CountingApi(Api):
    """An API client that counts requests by `list` and `watch`, also those that reach no server and no audit log."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(kubeconfig)
        self.requests: Counter[str] = Counter()

    def open(self, path: str, query: Query | None = None, **how: Any) -> ResponseStream:
        """Count a request, and make it."""
        self.requests["watch" if "watch" in (query or {}) else "list"] += 1
        return super().open(path, query, **how)


class Followed:
    """A pod informer under test. `asked` is what the API server was asked since the test began."""

    def __init__(
        self, pods: Pods, plane: ControlPlane, config: Path, node: str, pace: RequestPace, by: ApiProxy | None
    ) -> None:
        self.node = node
        self.objects: dict[str, Object] = {}  # the pods that were made before it
        self.bell = Bell()
        self.api = CountingApi(config)
        self.informer = PodInformer(self.api, node, self.bell, pace)
        self._pods = pods
        self._plane = plane
        self._by = by
        self._since_s = time.time()

    def create(self, name: str = "new") -> Object:
        """Make a pod on its node, which does not run yet."""
        return self._pods.create(name, node=self.node, running=False)

    def read(self) -> PodList:
        """What the daemon would read now."""
        return self.informer.read(clock.now())

    @property
    def problem(self) -> str:
        """What is wrong, empty if nothing is."""
        return str(self.informer.view.problem or "")

    @property
    def names(self) -> set[str]:
        """The names of the pods."""
        return {pod.name for pod in self.read().pods}

    def known(self, name: str = "old") -> Pod:
        """The pod of this name."""
        return next(pod for pod in self.read().pods if pod.name == name)

    def asked(self) -> tuple[Request, ...]:
        """The requests of this test, as the server's audit log has them.

        Once nothing has come for a moment: a watch follows its list, and the log both, within some milliseconds.
        """
        found = self._logged()
        for _ in range(20):
            time.sleep(0.5)
            before, found = found, self._logged()
            if len(found) == len(before):
                break
        return found

    def _logged(self) -> tuple[Request, ...]:
        seen = self._plane.requests(user_agent="gpu-memory-watchdog/", since=self._since_s)
        return tuple(one for one in seen if one.resource == "pods")

    def verbs(self) -> list[str]:
        """Their verbs."""
        return [one.verb for one in self.asked()]

    def forget(self) -> None:
        """Count requests from here on."""
        self._since_s = time.time()

    def begin(self, *names: str) -> None:
        """Start the informer, and wait until it watches and these are the pods that are known."""
        self.informer.start()
        self.wait_until_watching()
        self.wait_for(*names)

    def wait_for(self, *names: str) -> None:
        """Wait until these are the pods that are known."""
        wait_until(lambda: self.names == set(names))

    def wait_until_watching(self) -> None:
        """Wait until a watch of it is open at the server, and at the proxy of requests if one is in between."""
        proxy = self._by
        if proxy is not None:
            wait_until(lambda: any(watches("pods")(stream.seen) for stream in proxy.streams))
        wait_until(lambda: any(one.verb == "watch" and one.open and one.answered_s for one in self._logged()))


Follow = Callable[..., AbstractContextManager[Followed]]


@pytest.fixture(scope="package")
def observer(control_plane: ControlPlane) -> Iterator[Account]:
    """An account that may do what an observing policy needs."""
    with with_rights(control_plane, OBSERVES) as made:
        yield made


@pytest.fixture
def follow(control_plane: ControlPlane, pods: Pods, observer: Account) -> Follow:
    """Makes a node with pods of these names and an informer of them, which is not started yet.

    `by` is a proxy in between, `at` one of bytes before that; `config` is a kubeconfig of another account than one with
    the rights of an observing policy.
    """

    @contextmanager
    def make(
        *names: str,
        by: TcpProxy | ApiProxy | None = None,
        at: TcpProxy | None = None,
        pace: RequestPace = USUAL,
        config: Path | None = None,
    ) -> Iterator[Followed]:
        node = pods.node()
        made = {name: pods.create(name, node=node) for name in names}
        first, proxy = at or by, by if isinstance(by, ApiProxy) else None
        config = config or control_plane.kubeconfig(
            token=observer.token,
            server=first.url if first is not None else None,
            ca=proxy.ca if proxy is not None else None,
        )
        followed = Followed(pods, control_plane, config, node, pace, proxy)
        followed.objects = made
        try:
            yield followed
        finally:
            followed.informer.stop()
            wait_until(lambda: not has_threads())
            followed.api.close()
            followed.bell.close()

    return make


def stays(true: Callable[[], bool], seconds: float) -> None:
    """See that something is true for so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert true()
        time.sleep(0.02)


def has_threads() -> bool:
    """Whether a thread of an informer is there."""
    return any(thread.name in ("api-pods", "api-node", "api-namespaces") for thread in threading.enumerate())
