"""That the daemon's code asks with the daemon's rights alone is seen after every test here; and this is how."""

from tests.cluster.accounts import NewAccount
from tests.cluster.control_plane import ControlPlane
from tests.cluster.informer_rig import OBSERVES
from tests.cluster.rights_guard import RightsGuard, vouch_for
from watchdog.clock import Bell
from watchdog.kube.client import Api
from watchdog.kube.informers import PodInformer


def _list(config: object) -> None:
    bell = Bell()
    feed = PodInformer(Api(config), "n1", bell)  # type: ignore[arg-type]
    feed.fetch()
    bell.close()


def test_who_asks_as_the_administrator_is_found(
    control_plane: ControlPlane, new_account: NewAccount, rights_guard: RightsGuard
) -> None:
    """By the audit log: the administrator and a user with other rights, and not an account with the daemon's."""
    _list(new_account(OBSERVES).kubeconfig)
    _list(control_plane.kubeconfig(token="wrong"))
    _list(control_plane.kubeconfig(token=control_plane.token("nobody")))
    assert rights_guard.strangers(control_plane) == []
    _list(control_plane.admin_kubeconfig)
    _list(control_plane.kubeconfig(token=control_plane.token("tenant")))
    assert rights_guard.strangers(control_plane) == ["admin list pods", "tenant list pods"]
    assert rights_guard.strangers(control_plane) == []


def test_an_account_that_may_do_more_is_not_the_daemons(
    control_plane: ControlPlane, namespace: str, rights_guard: RightsGuard
) -> None:
    """A role that is wider by one verb than all that `gpu-watchdog rights` can print: whoever has it is a stranger."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    control_plane.api.ask("POST", path, {"metadata": {"name": "wide"}})
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "delete"]}
    vouch_for(f"system:serviceaccount:{namespace}:wide", [{"kind": "ClusterRole", "rules": [rule]}])
    _list(control_plane.kubeconfig(token=control_plane.service_account_token(namespace, "wide")))
    assert rights_guard.strangers(control_plane) == [f"system:serviceaccount:{namespace}:wide list pods"]
