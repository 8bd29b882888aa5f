"""Tries against the real API server, and what the tests ask of them."""

import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.accounts import Account, account, roles, with_rights
from tests.cluster.api import Object
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pods import Pods
from tests.cluster.tcp_proxy import TcpProxy
from tests.daemon.eviction_rig import EVICT_AT_ONCE
from tests.worlds import inherent_objection, policy, rule
from watchdog.clock import Bell
from watchdog.core.eviction import EvictionAnswer, EvictionRequest, EvictionResult
from watchdog.kube.client import Api
from watchdog.kube.evict import ApiEvictor, evict
from watchdog.kube.rights import ServiceAccount, rights_of

AGENT = "gpu-memory-watchdog"
EVICTS: Final = policy(rule(EVICT_AT_ONCE))


def attempt(pod: Object, **more: object) -> EvictionRequest:
    """A try to evict a pod as the test made it, with the objections that no policy can lift."""
    given: dict[str, object] = {
        "ticket": 1,
        "number": 1,
        "namespace": pod["metadata"]["namespace"],
        "name": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"],
        "grace_s": 30,
        "is_unsure": False,
        "objection": inherent_objection,
        "is_wanted": lambda: True,
    }
    return EvictionRequest(**{**given, **more})  # type: ignore[arg-type]


class Bench:
    """One account's tries, with the requests that the server counted since it began.

    `config` is another way than straight to the server, or without what the account has.
    """

    def __init__(self, account: Account, pods: Pods, config: Path | None = None) -> None:
        api = Api(config or account.kubeconfig)
        self.account = account
        self.plane = account.plane
        self.pods = pods
        self.api = api
        self.began_s = time.time()

    def through(self, by: TcpProxy | ApiProxy) -> "Bench":
        """The same by way of a proxy."""
        return Bench(self.account, self.pods, self.account.through(by))

    def evict(self, pod: Object, **more: object) -> EvictionResult:
        """One try."""
        return evict(self.api, attempt(pod, **more))

    def requests(self) -> list[tuple[str, str, int]]:
        """What the daemon's account asked for here: verb, subresource and answer, in order, at rest."""
        deadline = time.monotonic() + 180
        while True:
            seen = self.plane.requests(user_agent=AGENT, since=self.began_s)
            mine = [each for each in seen if each.namespace == self.pods.namespace]
            if all(each.ended_s is not None for each in mine) or time.monotonic() > deadline:
                return [(each.verb, each.subresource, each.code) for each in mine]
            time.sleep(0.05)

    def spared(self, *pods: Object) -> bool:
        """Whether these very pods are there, and nobody has begun to delete them."""
        return all(self.pods.exists(pod) and "deletionTimestamp" not in self.pods.read(pod)["metadata"] for pod in pods)


def evicting(api: Api) -> tuple[ApiEvictor, Callable[[int, float], list[EvictionResult]]]:
    """An evictor with its threads, and a way to wait for so many replies by its bell; take all that are to come."""
    bell = Bell()
    evictor = ApiEvictor(api, bell)

    def wait(count: int, limit_s: float) -> list[EvictionResult]:
        found: list[EvictionResult] = []
        deadline = time.monotonic() + limit_s
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} replies"
            if bell.silence():
                found += evictor.take()
            else:
                time.sleep(0.005)
        return found

    return evictor, wait


@pytest.fixture(scope="module")
def evicting_account(control_plane: ControlPlane) -> Iterator[Account]:
    """An account with the rights of a policy that evicts, of a pod on a node."""
    nodes = Pods(control_plane.api, "default")
    with with_rights(control_plane, EVICTS, nodes.node()) as made:
        yield made
    nodes.clear()


@pytest.fixture(scope="module")
def looking_account(control_plane: ControlPlane) -> Iterator[Account]:
    """An account whose right to evict was taken away; it may still look at the pod."""
    rights = [right for right in rights_of(EVICTS) if right.subresource != "eviction"]
    identity = ServiceAccount(namespace="default", name=f"dog-{secrets.token_hex(3)}")
    with account(control_plane, roles(rights, identity), identity, None) as made:
        yield made


__all__ = ["AGENT", "EVICTS", "Bench", "EvictionAnswer", "attempt", "evicting", "evicting_account", "looking_account"]
