"""That the daemon's code uses the daemon's rights alone is checked after every test here; and this checks the check."""

from pathlib import Path

from tests.rig.cluster.accounts import NewAccount
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.informer_rig import OBSERVES
from tests.rig.cluster.rights_guard import RightsGuard, vouch_for
from watchdog.clock import Bell
from watchdog.kube.client import Api
from watchdog.kube.informers import PodInformer


def _list(config: Path) -> None:
    bell = Bell()
    PodInformer(Api(config), "n1", bell).fetch()
    bell.close()


def test_an_account_that_is_not_the_daemon_s_is_found(
    control_plane: ControlPlane, namespace: str, new_account: NewAccount, rights_guard: RightsGuard
) -> None:
    """By the audit log: an administrator, another user, and a role wider by one verb than `gpu-watchdog rights`."""
    _list(new_account(OBSERVES).kubeconfig)
    _list(control_plane.kubeconfig(token="wrong"))
    _list(control_plane.kubeconfig(token=control_plane.token("nobody")))
    assert rights_guard.strangers(control_plane) == []
    user = f"system:serviceaccount:{namespace}:wide"
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    control_plane.api.ask("POST", path, {"metadata": {"name": "wide"}})
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "delete"]}
    vouch_for(user, [{"kind": "ClusterRole", "rules": [rule]}])
    _list(control_plane.kubeconfig(token=control_plane.service_account_token(namespace, "wide")))
    _list(control_plane.admin_kubeconfig)
    _list(control_plane.kubeconfig(token=control_plane.token("tenant")))
    strangers = [f"{each} list pods" for each in ("admin", user, "tenant")]
    assert rights_guard.strangers(control_plane) == strangers
    assert rights_guard.strangers(control_plane) == []
