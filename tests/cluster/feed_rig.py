"""Feeds of the tests: who may list and watch, what they know, and what the API server was asked for them."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.cluster.api_proxy import ApiProxy
from tests.cluster.audit import Request
from tests.cluster.control_plane import ControlPlane
from tests.cluster.faults import watches
from tests.cluster.tcp_proxy import TcpProxy
from tests.node.support import wait_until
from watchdog import clock
from watchdog.bell import Bell
from watchdog.core.model import PodList
from watchdog.kube.api.client import Api
from watchdog.kube.follow.course import USUAL, Pace
from watchdog.kube.follow.podfeed import PodFeed

USER: Final = "daemon"
_RBAC: Final = "rbac.authorization.k8s.io"
_READER: Final = "tests-feed"
# So many requests pauses with full jitter (drawn from up to 0.5, 1, 2, 4 ... 30 s) make at most within 12 s, but for
# one case in ten thousand; found by drawing them. Half the time it is 5 or fewer.
MOST_IN_12_S: Final = 11
# Everything in seconds instead of minutes, for what only time brings.
QUICK: Final = Pace(
    length_s=(6.0, 7.0), silence_s=3.0, first_word_s=(2.5, 3.0), short_length_s=(3.0, 4.0), lived_s=2.0, answer_s=2.0
)


def let_read(plane: ControlPlane, user: str = USER, *, kind: str = "User", namespace: str = "") -> None:
    """Let a user list and watch pods, nodes and namespaces."""
    rules = [{"apiGroups": [""], "resources": ["pods", "nodes", "namespaces"], "verbs": ["list", "watch"]}]
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": _READER}, "rules": rules}
    subject = {"kind": kind, "name": user, **({"namespace": namespace} if namespace else {"apiGroup": _RBAC})}
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{_READER}-{user}"},
        "subjects": [subject],
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _READER},
    }
    plane.apply([role, binding])


def let_nobody_read(plane: ControlPlane, user: str = USER) -> None:
    """Take that right back."""
    plane.api.call("DELETE", f"/apis/{_RBAC}/v1/clusterrolebindings/{_READER}-{user}")


class Followed:
    """A pod feed under test. `asked` is what the API server was asked since the test began."""

    def __init__(
        self, plane: ControlPlane, config: Path, node: str, pace: Pace = USUAL, by: ApiProxy | None = None
    ) -> None:
        self.plane = plane
        self._by = by
        self.bell = Bell()
        self.api = Api(config)
        self.feed = PodFeed(self.api, node, self.bell, pace)
        self._since_s = time.time()

    def read(self) -> PodList:
        """What the daemon would read now."""
        return self.feed.read(clock.now())

    @property
    def names(self) -> set[str]:
        """The names of the pods."""
        return {pod.name for pod in self.read().pods}

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
        agent = "gpu-memory-watchdog/"
        return tuple(
            one for one in self.plane.requests(user_agent=agent, since=self._since_s) if one.resource == "pods"
        )

    def verbs(self) -> list[str]:
        """Their verbs."""
        return [one.verb for one in self.asked()]

    def forget(self) -> None:
        """Count requests from here on."""
        self._since_s = time.time()

    def wait_for(self, names: Sequence[str], seconds: float = 20) -> None:
        """Wait until these are the pods that are known."""
        wait_until(lambda: self.names == set(names), seconds)

    def wait_until_watching(self, seconds: float = 20) -> None:
        """Wait until a watch of it is open at the server, and at the proxy of requests if one is in between."""
        proxy = self._by
        if proxy is not None:
            wait_until(lambda: any(watches("pods")(stream.seen) for stream in proxy.streams), seconds)
        wait_until(lambda: any(one.verb == "watch" and one.open and one.answered_s for one in self.asked()), seconds)

    def stays(self, true: Callable[[], bool], seconds: float) -> None:
        """See that something is true for so long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert true()
            time.sleep(0.02)


@contextmanager
def following(
    plane: ControlPlane,
    node: str,
    *,
    by: TcpProxy | ApiProxy | None = None,
    at: TcpProxy | None = None,
    pace: Pace = USUAL,
    token: str | None = None,
) -> Iterator[Followed]:
    """A feed of a node's pods, as a user who may read them, by way of a proxy. It is not started yet.

    `at` is a proxy of bytes before that of requests.
    """
    let_read(plane)
    first = at or by
    config = plane.kubeconfig(
        token=token or plane.token(USER),
        server=first.url if first is not None else None,
        ca=by.ca if isinstance(by, ApiProxy) else None,
    )
    with following_by(Followed(plane, config, node, pace, by if isinstance(by, ApiProxy) else None)) as followed:
        yield followed


@contextmanager
def following_by(followed: Followed) -> Iterator[Followed]:
    """Ends it afterwards, threads and all."""
    try:
        yield followed
    finally:
        followed.feed.stop()
        wait_until(lambda: not has_threads(), 20)
        followed.api.close()
        followed.bell.close()


def has_threads() -> bool:
    """Whether a thread of a feed is there."""
    return any(thread.name in ("api-pods", "api-node", "api-namespaces") for thread in threading.enumerate())
