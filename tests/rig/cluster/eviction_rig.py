"""Evictions attempted against the real API server, and the requests that they made."""

import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.daemon.eviction_rig import EVICT_AT_ONCE
from tests.node.support import wait_until
from tests.rig.cluster.accounts import Account, account, lacking, roles, with_rights
from tests.rig.cluster.api import Object
from tests.rig.cluster.audit import Request
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.pods import Pods
from tests.worlds import inherent_objection, policy, rule
from watchdog.core.eviction import EvictionRequest, EvictionResult
from watchdog.kube.client import USER_AGENT, Api
from watchdog.kube.evict import evict
from watchdog.kube.rights import ServiceAccount, rights_of

EVICTS: Final = policy(rule(EVICT_AT_ONCE))


class Bench:
    """Evictions by one account in the test's namespace, with the requests that the server counted meanwhile."""

    def __init__(self, account: Account, pods: Pods, config: Path | None = None) -> None:
        """`config` is another way than straight to the server, or has other credentials."""
        self.account = account
        self.plane = account.plane
        self.pods = pods
        self.api = Api(config or account.kubeconfig)
        self.began_s = time.time()

    def by(self, config: Path) -> "Bench":
        """The same with another kubeconfig."""
        return Bench(self.account, self.pods, config)

    def evict(self, pod: Object, **more: object) -> EvictionResult:
        """One attempt to evict a pod as the test made it, with the objections that no policy can lift."""
        given: dict[str, object] = {
            "request_id": 1,
            "number": 1,
            "namespace": pod["metadata"]["namespace"],
            "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
            "grace_s": 30,
            "is_unsure": False,
            "why_spared": inherent_objection,
            "is_wanted": lambda: True,
        }
        return evict(self.api, EvictionRequest(**{**given, **more}))  # type: ignore[arg-type]

    def requests(self) -> list[tuple[str, str, int]]:
        """What the daemon's account requested here, once all is answered: verb, subresource and status, in order."""
        mine: list[Request] = []

        def are_answered() -> bool:
            seen = self.plane.requests(user_agent=USER_AGENT, since=self.began_s)
            mine[:] = [each for each in seen if each.namespace == self.pods.namespace]
            return not any(each.open for each in mine)

        wait_until(are_answered)
        return [(each.verb, each.subresource, each.code) for each in mine]

    def spared(self, *pods: Object) -> bool:
        """Whether these very pods exist, and are not being deleted."""
        return all(self.pods.exists(pod) and "deletionTimestamp" not in self.pods.read(pod)["metadata"] for pod in pods)


@pytest.fixture(scope="module")
def evicting_account(control_plane: ControlPlane) -> Iterator[Account]:
    """An account with the rights of a policy that evicts, of a pod on a node."""
    nodes = Pods(control_plane.api, "default")
    with with_rights(control_plane, EVICTS, nodes.node()) as made:
        yield made
    nodes.clear()


@pytest.fixture
def reading_account(control_plane: ControlPlane) -> Iterator[Account]:
    """An account whose right to evict was taken away; it may still read the pod."""
    rights = lacking(rights_of(EVICTS), [("pods/eviction", "create")])
    identity = ServiceAccount(namespace="default", name=f"dog-{secrets.token_hex(3)}")
    with account(control_plane, roles(rights, identity), identity, None) as made:
        yield made
