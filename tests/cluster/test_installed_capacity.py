"""`[capacity]` on, off by `helm upgrade`, uninstalled: in the order of docs/capacity.md nothing is left behind."""

import re
import shlex
import time
from collections.abc import Iterator
from typing import Final

import pytest
import yaml

from tests.cluster.accounts import Account, account
from tests.cluster.installed import RELEASE, Installed
from tests.cluster.installed_fixtures import installed
from tests.cluster.installed_policy import KILL, policy_text
from tests.cluster.node import Cluster
from tests.cluster.real_pods import MEMORY, wait_until
from tests.cluster.test_installed_life import is_daemon, left
from tests.node.support import REPOSITORY
from tests.rig.command import COMMAND
from watchdog.kube.rights import ServiceAccount

pytestmark = [pytest.mark.node, pytest.mark.slow]

_RBAC: Final = "rbac.authorization.k8s.io"
_NAME: Final = "tests-administrator"
_RULES: Final = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
]


@pytest.fixture(scope="module")
def watchdog(cluster: Cluster, watchdog_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Installed with a policy that advertises."""
    with installed(cluster, tmp_path_factory.mktemp("installed")) as made:
        made.install(policy_text("observe", {"tenants": KILL}))
        wait_until(lambda: made.capacity(MEMORY) > 0, "the node advertises GPU memory")
        yield made


@pytest.fixture
def administrator(cluster: Cluster, watchdog: Installed) -> Iterator[Account]:
    """Somebody who may list nodes and change their status, with nothing that ties him down."""
    identity = ServiceAccount(namespace=watchdog.namespace, name=_NAME)
    head = {"apiVersion": f"{_RBAC}/v1", "metadata": {"name": _NAME}}
    binding = {
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _NAME},
        "subjects": [{"kind": "ServiceAccount", "namespace": identity.namespace, "name": _NAME}],
    }
    made = [{**head, "kind": "ClusterRole", "rules": _RULES}, {**head, "kind": "ClusterRoleBinding", **binding}]
    with account(cluster.control_plane, yaml.safe_dump_all(made), identity, None) as found:
        yield found


def documented() -> list[str]:
    """The last command of docs/capacity.md for an administrator, without the program's name."""
    page = (REPOSITORY / "docs" / "capacity.md").read_text(encoding="utf-8")
    return shlex.split(re.findall(r"^    gpu-watchdog (withdraw .*--kubeconfig KUBECONFIG)$", page, re.MULTILINE)[-1])


def test_off_by_an_upgrade_and_uninstalled_leaves_nothing(watchdog: Installed, administrator: Account) -> None:
    """After the upgrade that drops the table neither the pod nor the hook can take the entry back: the page's way can.

    It holds at once: the daemon that has not seen the changed ConfigMap yet has lost its right with the upgrade.
    """
    cluster = watchdog.cluster
    assert "gpu-watchdog-withdraw" in watchdog.helm("get", "hooks", RELEASE, "--namespace", watchdog.namespace)
    before = watchdog.pod()["metadata"]["uid"]
    watchdog.install(policy_text("observe", {"tenants": KILL}, more=""))
    assert watchdog.pod()["metadata"]["uid"] == before
    assert watchdog.helm("get", "hooks", RELEASE, "--namespace", watchdog.namespace).strip() == ""
    code, _, stderr = watchdog.ask("withdraw", "--resource", MEMORY)
    assert code == 1
    assert "403" in stderr
    assert watchdog.capacity(MEMORY) > 0
    given = [each.replace("KUBECONFIG", str(administrator.kubeconfig)) for each in documented()]
    done = cluster.run([COMMAND, *given])
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"no node advertises {MEMORY} any more")
    watchdog.nudge()
    wait_until(lambda: len(watchdog.events("policy_loaded")) == 2, "the daemon goes by the policy without the table")
    time.sleep(3)
    assert MEMORY not in cluster.node()["status"]["capacity"]
    watchdog.uninstall()
    wait_until(lambda: not left(cluster), lambda: f"objects are gone: {left(cluster)}")
    wait_until(lambda: not any(map(is_daemon, cluster.cgroups.members())), "the daemon has ended")
    assert watchdog.helm("list", "--all", "--namespace", watchdog.namespace, "--short").split() == []
    wait_until(lambda: MEMORY not in cluster.node()["status"]["allocatable"], "allocatable follows")
    assert MEMORY not in cluster.node()["status"]["capacity"]
