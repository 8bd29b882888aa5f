"""The policy is checked by a Job before an installation or upgrade changes anything."""

from collections.abc import Iterator
from subprocess import CalledProcessError

import pytest

from tests.cluster.installed import Installed
from tests.cluster.installed_fixtures import installed
from tests.cluster.installed_policy import EVICT, KILL, policy_text
from tests.cluster.node import Cluster

pytestmark = [pytest.mark.node, pytest.mark.slow]

_VALID = policy_text("observe", {"tenants": KILL}, more="")
_MISSPELT = _VALID.replace("stale_after", "stale_afer").replace('"tenants"', '"others"')


@pytest.fixture(scope="module")
def checked(cluster: Cluster, watchdog_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """A release, not installed yet, whose policy is checked."""
    with installed(cluster, tmp_path_factory.mktemp("checked"), more={"policyCheck": True}) as made:
        yield made


def objects(of: Installed) -> str:
    """The names of the release's objects and of what hooks have left behind."""
    return of.kubectl("get", "daemonsets,jobs,configmaps,serviceaccounts", "-o", "name")


def test_a_policy_with_mistakes_is_not_installed(checked: Installed) -> None:
    """Helm fails with every mistake in its output, and no DaemonSet is there; once it is mended it is installed."""
    with pytest.raises(CalledProcessError) as caught:
        checked.install(_MISSPELT)
    said = f"{caught.value.stdout}{caught.value.stderr}"
    assert "stale_afer" in said
    assert "daemonset" not in objects(checked)
    checked.install(_VALID)
    assert "daemonset.apps/gpu-watchdog" in objects(checked)
    assert "policy-check" not in objects(checked)


def test_a_policy_with_mistakes_changes_no_release(checked: Installed) -> None:
    """An upgrade with one fails, and the ConfigMap, and so the daemon, keeps the policy that it had."""
    checked.install(_VALID)
    with pytest.raises(CalledProcessError):
        checked.install(_MISSPELT)
    kept = checked.kubectl("get", "configmap", "gpu-watchdog-policy", "-o", "jsonpath={.data.policy\\.toml}")
    assert kept.strip() == _VALID.strip()


def test_a_config_map_of_the_operator_is_the_policy(checked: Installed) -> None:
    """Its policy is checked, mounted and followed, and has the rights that it needs: nothing of it is in the values."""
    given = ("--set=existingConfigMap.name=mine,existingConfigMap.key=gpu.toml",)
    evicting = policy_text("enforce", {"tenants": EVICT}, more="")
    _write(checked, _MISSPELT)
    with pytest.raises(CalledProcessError) as caught:
        checked.install("", *given)
    assert "stale_afer" in f"{caught.value.stdout}{caught.value.stderr}"
    _write(checked, evicting)
    checked.install("", *given)
    assert checked.execute("cat", "/etc/gpu-watchdog/policy.toml")[1].strip() == evicting.strip()
    assert "configmap/gpu-watchdog-policy\n" not in objects(checked)
    account = f"system:serviceaccount:{checked.namespace}:{checked.account}"
    may = ("auth", "can-i", "create", "pods", "--subresource=eviction", f"--as={account}")
    assert checked.kubectl(*may).strip() == "yes"


def _write(of: Installed, policy: str) -> None:
    metadata = {"name": "mine", "namespace": of.namespace}
    of.cluster.control_plane.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"gpu.toml": policy}}
    )
