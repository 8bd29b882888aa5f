"""`helm uninstall` where its Job may not take the capacity back: what helm says, what is left, and the way out."""

import json
import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.cluster.api import Object
from tests.cluster.installed import Installed
from tests.cluster.installed_fixtures import installed
from tests.cluster.installed_policy import KILL, policy_text
from tests.cluster.node import NODE, Cluster
from tests.cluster.real_pods import MEMORY, wait_until
from tests.cluster.test_installed_life import is_daemon, left
from tests.node.support import REPOSITORY
from tests.rig.command import COMMAND

pytestmark = [pytest.mark.node, pytest.mark.slow]

_OBSTACLE: Final = "tests-no-withdrawal"
_ACCOUNT: Final = "gpu-watchdog-withdraw"
# The kinds of what the hook makes; the release itself has others beside.
_OF_THE_HOOK: Final = {
    "serviceaccount",
    "clusterrole.rbac.authorization.k8s.io",
    "clusterrolebinding.rbac.authorization.k8s.io",
    "validatingadmissionpolicy.admissionregistration.k8s.io",
    "validatingadmissionpolicybinding.admissionregistration.k8s.io",
    "job.batch",
}


def obstacle() -> list[Object]:
    """An admission policy of the cluster's, by which no account of that name may change a node."""
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": _OBSTACLE}}
    rule = {"apiGroups": [""], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["nodes/status"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "!request.userInfo.username.endsWith('-withdraw')", "reason": "Forbidden"}],
    }
    bound = {"policyName": _OBSTACLE, "validationActions": ["Deny"]}
    return [
        {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec},
        {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound},
    ]


@pytest.fixture(scope="module")
def watchdog(cluster: Cluster, watchdog_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Installed with a policy that advertises, in a cluster that will not let the entry be taken back."""
    with installed(cluster, tmp_path_factory.mktemp("installed")) as made:
        made.install(policy_text("observe", {"tenants": KILL}))
        wait_until(lambda: made.capacity(MEMORY) > 0, "the node advertises GPU memory")
        cluster.control_plane.apply(obstacle())
        try:
            wait_until(lambda: not may_withdraw(cluster), "the obstacle is in force")
            yield made
        finally:
            kinds = "validatingadmissionpolicybinding,validatingadmissionpolicy"
            cluster.kubectl("delete", "--ignore-not-found", kinds, _OBSTACLE)
            clear_away(made)


def may_withdraw(cluster: Cluster) -> bool:
    """Whether an account with every right and such a name may take the entry back."""
    change = json.dumps({"status": {"capacity": {MEMORY: None}}})
    whoever = ("--as=tests-withdraw", "--as-group=system:masters")
    given = ("patch", "node", NODE, "--subresource=status", "--dry-run=server", "--patch", change, *whoever)
    return cluster.control_plane.kubectl(*given, check=False).returncode == 0


def documented() -> list[list[str]]:
    """The commands of docs/capacity.md that remove what a failed hook leaves, without the word kubectl."""
    page = (REPOSITORY / "docs" / "capacity.md").read_text(encoding="utf-8")
    return [
        line.split() for line in re.findall(rf"^    kubectl (.* delete .*{_ACCOUNT}|delete .*{_ACCOUNT})$", page, re.M)
    ]


def clear_away(of: Installed) -> None:
    """Run them, whatever is there."""
    for command in documented():
        given = [each.replace("NAMESPACE", of.namespace) for each in command]
        of.cluster.kubectl(*given, "--ignore-not-found")


def test_a_withdrawal_that_fails_is_told_and_can_be_made_up_for(watchdog: Installed) -> None:
    """It fails with the Job's words, node and remedy in them; the entry and the hook's objects stay, nothing else."""
    cluster = watchdog.cluster
    said = watchdog.tried_to_uninstall()
    print(f"\n{said.stderr}")
    assert said.returncode == 1
    assert f"removing {MEMORY} from node {NODE}: the API server answered 403" in said.stderr
    remedy = f"`gpu-watchdog withdraw --all-nodes --resource {MEMORY} --selector nvidia.com/gpu.present=true`"
    assert f"as an administrator: {remedy}\n" in said.stderr
    assert f"job {_ACCOUNT} failed" in said.stderr
    assert watchdog.helm("list", "--all", "--namespace", watchdog.namespace, "--short").split() == []
    wait_until(lambda: not of_the_release(cluster), lambda: f"only the hook's are left: {of_the_release(cluster)}")
    assert {each.partition("/")[0] for each in left(cluster)} - {"pod"} == _OF_THE_HOOK
    wait_until(lambda: not any(map(is_daemon, cluster.cgroups.members())), "the daemon has ended")
    assert watchdog.capacity(MEMORY) > 0
    # What stood in the way is mended; the rest is as the message and the page say. The hook's own account stands for
    # the administrator: it may do just this.
    plane = cluster.control_plane
    plane.kubectl("delete", "validatingadmissionpolicybinding", _OBSTACLE)
    wait_until(lambda: may_withdraw(cluster), "the obstacle is gone")
    token = plane.service_account_token(watchdog.namespace, _ACCOUNT)
    by = plane.kubeconfig(token=token)
    given = ("withdraw", "--all-nodes", "--resource", MEMORY, "--kubeconfig", str(by))
    done = cluster.run([COMMAND, *given])
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"no node advertises {MEMORY} any more")
    assert watchdog.capacity(MEMORY) == 0
    assert len(documented()) == 3
    clear_away(watchdog)
    wait_until(lambda: not left(cluster), lambda: f"nothing is left: {left(cluster)}")


def of_the_release(cluster: Cluster) -> list[str]:
    """What is left beside the hook's objects and the pods of its Job."""
    return [each for each in left(cluster) if not each.rpartition("/")[2].startswith(_ACCOUNT)]
