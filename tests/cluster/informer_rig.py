"""Feeds of the tests: what they know, and what the API server was asked for them."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

from tests.cluster.accounts import Account, with_rights
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.audit import Request
from tests.cluster.control_plane import ControlPlane
from tests.cluster.counting import CountingApi
from tests.cluster.faults import watches
from tests.cluster.tcp_proxy import TcpProxy
from tests.node.support import wait_until
from watchdog import clock
from watchdog.clock import Bell
from watchdog.core.model import PodList
from watchdog.core.policy import Match, Policy, Rule
from watchdog.kube.informers import PodInformer
from watchdog.kube.reflector import USUAL, RequestPace

OBSERVES: Final = Policy(sha256="", source="")
# Needs namespaces besides pods and the node.
MATCHES_BY_NAMESPACE: Final = Policy(
    sha256="", source="", rules=(Rule(name="r", match=Match(namespace_labels={"team": "ml"}), steps=()),)
)
# So many requests pauses with full jitter (drawn from up to 0.5, 1, 2, 4 ... 30 s) make at most within 12 s, but for
# one case in ten thousand; found by drawing them. Half the time it is 5 or fewer.
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


class Followed:
    """A pod feed under test. `asked` is what the API server was asked since the test began.

    `account` is as whom it asks; None: with a token that the API server does not take.
    """

    def __init__(
        self,
        plane: ControlPlane,
        config: Path,
        node: str,
        pace: RequestPace = USUAL,
        by: ApiProxy | None = None,
        account: Account | None = None,
    ) -> None:
        self.plane = plane
        self._account = account
        self._by = by
        self.bell = Bell()
        self.api = CountingApi(config)
        self.feed = PodInformer(self.api, node, self.bell, pace)
        self._since_s = time.time()

    @property
    def account(self) -> Account:
        """As whom it asks."""
        assert self._account is not None
        return self._account

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

    def begin(self, names: Sequence[str] | None = None) -> None:
        """Start the feed, and wait until it watches and these are the pods that are known."""
        self.feed.start()
        self.wait_until_watching()
        if names is not None:
            self.wait_for(names)

    def wait_for(self, names: Sequence[str], seconds: float = 180) -> None:
        """Wait until these are the pods that are known."""
        wait_until(lambda: self.names == set(names), seconds)

    def wait_until_watching(self) -> None:
        """Wait until a watch of it is open at the server, and at the proxy of requests if one is in between."""
        proxy = self._by
        if proxy is not None:
            wait_until(lambda: any(watches("pods")(stream.seen) for stream in proxy.streams))
        wait_until(lambda: any(one.verb == "watch" and one.open and one.answered_s for one in self.asked()))

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
    pace: RequestPace = USUAL,
    token: str | None = None,
    policy: Policy = OBSERVES,
) -> Iterator[Followed]:
    """A feed of a node's pods, with the rights of this policy, by way of a proxy. It is not started yet.

    `at` is a proxy of bytes before that of requests; `token` is one that the API server does not take.
    """
    first, proxy = at or by, by if isinstance(by, ApiProxy) else None
    with nullcontext() if token is not None else with_rights(plane, policy) as account:
        config = plane.kubeconfig(
            token=token or (account.token if account is not None else None),
            server=first.url if first is not None else None,
            ca=proxy.ca if proxy is not None else None,
        )
        with following_by(Followed(plane, config, node, pace, proxy, account)) as followed:
            yield followed


@contextmanager
def following_by(followed: Followed) -> Iterator[Followed]:
    """Ends it afterwards, threads and all."""
    try:
        yield followed
    finally:
        followed.feed.stop()
        wait_until(lambda: not has_threads())
        followed.api.close()
        followed.bell.close()


def has_threads() -> bool:
    """Whether a thread of a feed is there."""
    return any(thread.name in ("api-pods", "api-node", "api-namespaces") for thread in threading.enumerate())
