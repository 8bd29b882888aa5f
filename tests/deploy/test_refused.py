"""What the chart refuses: wrong values by their name, and what would make an enforcing daemon forget."""

import json
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from tools import kustomize

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_programs")]


def refused(*flags: str, policy: str = "") -> str:
    """What helm says to values that it does not take."""
    with pytest.raises(subprocess.CalledProcessError) as caught:
        kustomize.rendered(policy, *flags)
    said: str = caught.value.stderr
    return said


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--set=securty=minimal"], "'securty' not allowed"),
        (["--set=security=none"], "at '/security': value must be one of"),
        (["--set=driver.mig=perhaps"], "at '/driver/mig': got string, want boolean"),
        (["--set=mps.pipes="], "at '/mps/pipes'"),
        (["--set=mps.driverRoot=/run/../driver"], "at '/mps/driverRoot'"),
        (["--set=image.digest=abc"], "at '/image/digest'"),
        (["--set=journal.path=relative"], "at '/journal/path'"),
        (["--set=journal.path=/etc"], "at '/journal/path'"),
        (["--set=journal.path=/var/lib"], "at '/journal/path'"),
        (["--set=journal.path=/var/lib/../gpu-watchdog"], "at '/journal/path'"),
        (["--set=tolerations[0].operater=Exists"], "'operater' not allowed"),
        (["--set=maxUnavailable=some"], "at '/maxUnavailable'"),
        (["--set=maxUnavailable=0%"], "at '/maxUnavailable'"),
        (["--set=maxUnavailable=101%"], "at '/maxUnavailable'"),
        (["--set=maxUnavailable=0"], "at '/maxUnavailable'"),
        (["--set=listen=127.0.0.1"], "at '/listen': value must be one of"),
        (["--set=namespace.create=true"], "'namespace' not allowed"),
        (["--set=resources.limit.memory=1Gi"], "'limit' not allowed"),
    ],
)
def test_a_wrong_value_is_refused_by_name(flags: list[str], named: str) -> None:
    """Nothing is passed over: a misspelt key and a value of the wrong kind are told with their place."""
    assert named in refused(*flags)


def test_a_policy_that_is_no_toml_is_refused() -> None:
    """It would end the daemon at its start; helm says so, with the line."""
    assert "policy: this is not TOML: toml: line 2" in refused(policy="mode = 'observe'\nx = =\n")


def _volumes(objects: Mapping[str, kustomize.Object], name: str) -> list[Any]:
    spec = objects["daemonset-gpu-watchdog"].content["spec"]["template"]["spec"]
    return [each for each in spec["volumes"] if each["name"] == name]


def test_enforcing_needs_a_journal_that_stays() -> None:
    """An emptyDir dies with the pod, and the brakes would forget: refused for a policy that enforces, and only then."""
    said = refused("--set=journal.type=emptyDir", policy='mode = "enforce"\n')
    assert 'the brakes of a policy with mode = "enforce" would forget' in said
    volumes = kustomize.rendered("", "--set=journal.type=emptyDir")["daemonset-gpu-watchdog"].content["spec"][
        "template"
    ]
    assert {"name": "state", "emptyDir": {}} in volumes["spec"]["volumes"]


@pytest.mark.parametrize(
    ("variable", "is_kept"),
    [
        ({"value": "/var/lib/gpu-watchdog/other.db"}, True),
        ({"value": "/tmp/journal.db"}, False),  # an emptyDir
        ({"value": "/var/lib/gpu-watchdog/../../../tmp/journal.db"}, False),
        ({"value": "/var/lib/gpu-watchdog-2/journal.db"}, False),
        ({"value": "journal.db"}, False),
        ({"valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}, False),
    ],
)
def test_enforcing_keeps_the_journal_on_its_volume(variable: dict[str, Any], *, is_kept: bool) -> None:
    """No variable takes the journal to a place that dies with the pod, under a policy that enforces."""
    env = f"--set-json=env={json.dumps([{'name': 'GPU_WATCHDOG_JOURNAL', **variable}])}"
    assert kustomize.rendered("", env)
    if is_kept:
        assert kustomize.rendered('mode = "enforce"\n', env)
    else:
        said = refused(env, policy='mode = "enforce"\n')
        assert "env: GPU_WATCHDOG_JOURNAL is not below /var/lib/gpu-watchdog" in said


@pytest.mark.parametrize("path", ["/var/lib/gpu-watchdog", "/gpu-watchdog", "/mnt/disk-1/gpu-watchdog-mig"])
def test_the_journal_has_a_folder_of_its_own(path: str) -> None:
    """Any disk of the node, and none of its folders that somebody else has things in."""
    (state,) = _volumes(kustomize.rendered("", f"--set=journal.path={path}"), "state")
    assert state["hostPath"] == {"path": path, "type": "DirectoryOrCreate"}


@pytest.mark.parametrize("count", ["1", "50", "1%", "99%", "100%"])
def test_as_many_nodes_as_kubernetes_takes(count: str) -> None:
    """Both kinds, up to all nodes; never none, which would leave an update standing still."""
    strategy = kustomize.rendered("", f"--set=maxUnavailable={count}")["daemonset-gpu-watchdog"].content["spec"]
    rolling = strategy["updateStrategy"]["rollingUpdate"]
    assert rolling == {"maxSurge": 0, "maxUnavailable": int(count) if count.isdigit() else count}
