"""Ensures that the daemon's own code uses the API server by accounts with its own rights, and by no others.

A test that let it ask as the administrator would succeed where an operator's daemon is refused. So the audit log of
the control plane is read after every test: which accounts has our client used?
"""

import time
from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

import pytest

from tests.rig.cluster.api import Object
from tests.rig.cluster.control_plane import ControlPlane
from watchdog.kube.client import USER_AGENT
from watchdog.kube.rights import ALL_RIGHTS

_RIGHTS = frozenset((right.group, right.target, verb) for right in ALL_RIGHTS for verb in right.verbs)
# The accounts that have nothing but what `gpu-watchdog rights` can print.
_vouched: set[str] = set()
# They have no rights at all: with a token that is not accepted, without one, and a user of the token file.
_POWERLESS = frozenset({"", "system:anonymous", "nobody"})


def vouch_for(user: str, manifests: Iterable[Object]) -> None:
    """Let the daemon's code use an account, if these manifests give it no right but the daemon's.

    The markers of the admission policies allow nothing.
    """
    rules = [rule for each in manifests if each["kind"] in ("Role", "ClusterRole") for rule in each["rules"]]
    given = {
        (group, target, verb)
        for rule in rules
        for group in rule["apiGroups"]
        if group != "gpu-memory-watchdog"
        for target in rule["resources"]
        for verb in rule["verbs"]
    }
    if given <= _RIGHTS:
        _vouched.add(user)


class RightsGuard:
    """Reads what was requested of control planes since it last did."""

    def __init__(self) -> None:
        self._since_s: WeakKeyDictionary[ControlPlane, float] = WeakKeyDictionary()

    def strangers(self, plane: ControlPlane) -> list[str]:
        """Requests of the daemon's code by other accounts, as `user verb resource`, each once."""
        until_s, since_s = time.time(), self._since_s.get(plane, 0.0)
        self._since_s[plane] = until_s
        asked = plane.requests(user_agent=USER_AGENT, since=since_s)
        odd = [each for each in asked if each.user not in _vouched | _POWERLESS]
        return sorted({f"{each.user} {each.verb} {each.resource}" for each in odd})


@pytest.fixture(scope="session")
def rights_guard() -> RightsGuard:
    """Reads all control planes of the session."""
    return RightsGuard()


@pytest.fixture(autouse=True)
def _only_with_our_rights(request: pytest.FixtureRequest, rights_guard: RightsGuard) -> Iterator[None]:
    """After each test: the daemon's code has used nothing but the daemon's rights."""
    planes: list[ControlPlane] = []
    if "control_plane" in request.fixturenames:
        planes.append(request.getfixturevalue("control_plane"))
    if "cluster" in request.fixturenames:
        planes.append(request.getfixturevalue("cluster").control_plane)
    yield
    for plane in planes:
        assert rights_guard.strangers(plane) == [], "asked of the API server by accounts that are not the daemon's"
