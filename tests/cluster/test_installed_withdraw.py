"""Policies that are checked, advertise and cease to: what an upgrade or `helm uninstall` does, and what is left."""

import json
import re
import shlex
import time
from collections.abc import Iterator
from subprocess import CalledProcessError
from typing import Final

import pytest
import yaml

from tests.node.support import REPOSITORY
from tests.rig.cluster.accounts import account
from tests.rig.cluster.api import Object
from tests.rig.cluster.installed import Installed, left, wait_all_gone
from tests.rig.cluster.installed_fixtures import installed
from tests.rig.cluster.installed_policy import EVICT, KILL, policy_text
from tests.rig.cluster.node import NODE, Cluster
from tests.rig.cluster.real_pods import MEMORY, wait_until
from tests.rig.command import COMMAND
from watchdog.kube.rights import ServiceAccount

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
_VALID: Final = policy_text("observe", {"tenants": KILL}, more="")
_MISSPELT: Final = _VALID.replace("stale_after", "stale_afer").replace('"tenants"', '"others"')
_ADVERTISES: Final = policy_text("observe", {"tenants": KILL})


@pytest.fixture
def advertising(cluster: Cluster, watchdog_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """A release whose node advertises GPU memory."""
    with installed(cluster, tmp_path_factory.mktemp("installed")) as made:
        made.install(_ADVERTISES)
        wait_until(lambda: made.capacity(MEMORY) > 0, "the node advertises GPU memory")
        yield made


def documented(pattern: str) -> list[str]:
    """The indented commands of docs/capacity.md that match."""
    page = (REPOSITORY / "docs" / "capacity.md").read_text(encoding="utf-8")
    return re.findall(rf"^    ({pattern})$", page, re.MULTILINE)


def test_turned_off_by_an_upgrade_it_is_withdrawn_as_documented(advertising: Installed) -> None:
    """After the upgrade that drops the table neither the pod nor the hook can remove the entry: the page's way can.

    It holds at once: the daemon that has not seen the changed ConfigMap yet has lost its right with the upgrade.
    """
    release, cluster = advertising, advertising.cluster
    assert _ACCOUNT in release.hooks()
    before = release.pod()["metadata"]["uid"]
    release.install(_VALID)
    assert release.pod()["metadata"]["uid"] == before
    assert release.hooks().strip() == ""
    code, _, stderr = release.ask("withdraw", "--resource", MEMORY)
    assert (code, "403" in stderr, release.capacity(MEMORY) > 0) == (1, True, True)
    name, rbac = "tests-administrator", "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    ]
    head = {"apiVersion": f"{rbac}/v1", "metadata": {"name": name}}
    binding = {
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": release.namespace, "name": name}],
    }
    made = [{**head, "kind": "ClusterRole", "rules": rules}, {**head, "kind": "ClusterRoleBinding", **binding}]
    identity = ServiceAccount(namespace=release.namespace, name=name)
    with account(cluster.control_plane, yaml.safe_dump_all(made), identity, None) as administrator:
        command = documented("gpu-watchdog withdraw .*--kubeconfig KUBECONFIG")[-1]
        given = shlex.split(command.replace("KUBECONFIG", str(administrator.kubeconfig)))[1:]
        assert cluster.run([COMMAND, *given]).returncode == 0
    release.nudge()
    wait_until(lambda: len(release.events("policy_loaded")) == 2, "the daemon goes by the policy without the table")
    time.sleep(3)
    assert MEMORY not in cluster.node()["status"]["capacity"]
    release.uninstall()
    wait_all_gone(cluster)
    wait_until(lambda: MEMORY not in cluster.node()["status"]["allocatable"], "allocatable follows")


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


def may_withdraw(cluster: Cluster) -> bool:
    """Whether an account with every right and such a name may remove the entry."""
    change = json.dumps({"status": {"capacity": {MEMORY: None}}})
    user = ("--as=tests-withdraw", "--as-group=system:masters")
    given = ("patch", "node", NODE, "--subresource=status", "--dry-run=server", "--patch", change, *user)
    return cluster.control_plane.kubectl(*given, check=False).returncode == 0


def clear_away(of: Installed) -> None:
    """Run the commands of the page that remove what a failed hook leaves, whatever is there."""
    commands = documented(rf"kubectl .*delete .*{_ACCOUNT}")
    assert len(commands) == 3
    for command in commands:
        of.cluster.kubectl(*command.replace("NAMESPACE", of.namespace).split()[1:], "--ignore-not-found")


@pytest.fixture
def obstructed(advertising: Installed) -> Iterator[Installed]:
    """The cluster will not let the entry be removed."""
    cluster = advertising.cluster
    cluster.control_plane.apply(obstacle())
    try:
        wait_until(lambda: not may_withdraw(cluster), "the obstacle is in force")
        yield advertising
    finally:
        kinds = "validatingadmissionpolicybinding,validatingadmissionpolicy"
        cluster.kubectl("delete", "--ignore-not-found", kinds, _OBSTACLE)
        clear_away(advertising)


def test_a_withdrawal_that_fails_is_reported_and_can_be_completed(obstructed: Installed) -> None:
    """Helm fails with the Job's message; the entry and the hook's objects stay, nothing else; the page's way works."""
    release, cluster = obstructed, obstructed.cluster
    reported = release.uninstall(check=False)
    assert reported.returncode == 1
    assert f"removing {MEMORY} from node {NODE}: the API server answered 403" in reported.stderr
    remedy = f"`gpu-watchdog withdraw --all-nodes --resource {MEMORY} --selector nvidia.com/gpu.present=true`"
    assert f"as an administrator: {remedy}\n" in reported.stderr
    assert not release.is_listed()

    def of_the_release() -> list[str]:
        return [each for each in left(cluster) if not each.rpartition("/")[2].startswith(_ACCOUNT)]

    wait_until(lambda: not of_the_release(), lambda: f"only the hook's are left: {of_the_release()}")
    assert {each.partition("/")[0] for each in left(cluster)} - {"pod"} == _OF_THE_HOOK
    assert release.capacity(MEMORY) > 0
    # The hook's own account stands for the administrator: it may do just this.
    plane = cluster.control_plane
    plane.kubectl("delete", "validatingadmissionpolicybinding", _OBSTACLE)
    wait_until(lambda: may_withdraw(cluster), "the obstacle is gone")
    by = plane.kubeconfig(token=plane.service_account_token(release.namespace, _ACCOUNT))
    done = cluster.run([COMMAND, "withdraw", "--all-nodes", "--resource", MEMORY, "--kubeconfig", str(by)])
    assert (done.returncode, release.capacity(MEMORY)) == (0, 0)
    clear_away(release)
    wait_all_gone(cluster)


@pytest.fixture(scope="module")
def checked(cluster: Cluster, watchdog_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """A release, not installed yet, whose policy is checked by a Job before anything is changed."""
    with installed(cluster, tmp_path_factory.mktemp("checked"), more={"policyCheck": True}) as made:
        yield made


def objects(of: Installed) -> str:
    """The names of the release's objects and of what hooks have left behind."""
    return of.kubectl("get", "daemonsets,jobs,configmaps,serviceaccounts", "-o", "name")


def test_an_invalid_policy_changes_nothing(checked: Installed) -> None:
    """An installation or upgrade with it fails with the mistake in helm's output, and leaves what there was."""
    with pytest.raises(CalledProcessError) as caught:
        checked.install(_MISSPELT)
    assert "stale_afer" in f"{caught.value.stdout}{caught.value.stderr}"
    assert "daemonset" not in objects(checked)
    checked.install(_VALID)
    assert "daemonset.apps/gpu-watchdog" in objects(checked)
    assert "policy-check" not in objects(checked)
    with pytest.raises(CalledProcessError):
        checked.install(_MISSPELT)
    kept = checked.kubectl("get", "configmap", "gpu-watchdog-policy", "-o", "jsonpath={.data.policy\\.toml}")
    assert kept.strip() == _VALID.strip()


def test_a_config_map_of_the_operator_is_the_policy(checked: Installed) -> None:
    """Its policy is checked, mounted and followed, and the roles are for its rights: nothing of it is in the values."""
    given = ("--set=existingConfigMap.name=mine,existingConfigMap.key=gpu.toml",)
    evicting = policy_text("enforce", {"tenants": EVICT}, more="")
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine", "namespace": checked.namespace}}
    checked.cluster.control_plane.apply({**made, "data": {"gpu.toml": _MISSPELT}})
    with pytest.raises(CalledProcessError) as caught:
        checked.install("", *given)
    assert "stale_afer" in f"{caught.value.stdout}{caught.value.stderr}"
    checked.cluster.control_plane.apply({**made, "data": {"gpu.toml": evicting}})
    checked.install("", *given)
    assert checked.execute("cat", "/etc/gpu-watchdog/policy.toml")[1].strip() == evicting.strip()
    assert "configmap/gpu-watchdog-policy\n" not in objects(checked)
    user = f"--as=system:serviceaccount:{checked.namespace}:{checked.account}"
    assert checked.kubectl("auth", "can-i", "create", "pods", "--subresource=eviction", user).strip() == "yes"
