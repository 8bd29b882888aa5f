"""The other two sets of powers that the chart can give the container: `security: privileged`, and SYS_ADMIN for MIG."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.installed import Installed
from tests.cluster.installed_fixtures import installed
from tests.cluster.installed_policy import KILL, policy_text
from tests.cluster.node import Cluster
from tests.cluster.real_pods import MEMORY, container, pod, wait_until
from tests.cluster.test_installed import killed, lacking
from tests.cluster.test_installed_security import kernel_says
from tests.cluster.workloads import DECLARED
from tests.stub import GIB

pytestmark = [pytest.mark.node, pytest.mark.slow]

POLICY: Final = policy_text("enforce", {"tenants": KILL})
# include/uapi/linux/capability.h
_KILL: Final = 1 << 5
_SYS_ADMIN: Final = 1 << 21
# A device of every Linux that no container gets by default, as none gets /dev/nvidia0.
_DEVICE: Final = "dev/loop-control" if Path("/dev/loop-control").exists() else "dev/kmsg"
_MIG: Final = b"NVIDIA_MIG_MONITOR_DEVICES=all"


@pytest.fixture(scope="module")
def watchdog(cluster: Cluster, watchdog_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Not installed yet."""
    with installed(cluster, tmp_path_factory.mktemp("installed")) as made:
        yield made


@pytest.fixture
def tenants(watchdog: Installed) -> Iterator[str]:
    """A namespace in which whoever is over is killed."""
    name = watchdog.cluster.new_namespace("tenants")
    yield name
    watchdog.cluster.drop_namespace(name)


def variables(pid: int) -> list[bytes]:
    """The environment of a process."""
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def does_its_work(watchdog: Installed, tenants: str) -> None:
    """It enforces: a hog of another user is killed, and doctor in the pod finds nothing amiss."""
    watchdog.wait_enforcing()
    wait_until(lambda: watchdog.capacity(MEMORY, "allocatable") > 0, "the node offers GPU memory")
    hog = container("main", "term=ignore", f"gpu={2 * GIB}", memory=DECLARED)
    watchdog.cluster.pods.create(pod("hog", {**hog, "securityContext": {"runAsUser": 1000}}), tenants)
    watchdog.cluster.pods.wait("hog", lambda of: killed(of, "main"), tenants)
    assert lacking(watchdog) <= {"process_numbers"}  # the hog may not be on the GPU again yet


def test_privileged_gets_the_node_s_devices_and_every_capability(watchdog: Installed, tenants: str) -> None:
    """What unprivileged containers don't get is there, the root is read-only all the same, and the work is done."""
    watchdog.install(POLICY, "--set", "security=privileged")
    said = kernel_says(watchdog.pid)
    everything = int(kernel_says(watchdog.cluster.containerd.server.pid or 0)["CapBnd"], 16)
    assert int(said["CapEff"], 16) == everything
    assert int(said["Seccomp"]) == 0
    root = Path(f"/proc/{watchdog.pid}/root")
    assert (root / _DEVICE).is_char_device()
    mounts = Path(f"/proc/{watchdog.pid}/mountinfo").read_text(encoding="utf-8").splitlines()
    options = {line.split()[4]: line.split()[5].split(",") for line in mounts}
    assert "ro" in options["/"]
    assert _MIG not in variables(watchdog.pid)
    does_its_work(watchdog, tenants)


def test_mig_adds_one_capability_and_one_variable(watchdog: Installed, tenants: str) -> None:
    """`driver.mig`: KILL and SYS_ADMIN, and the variable without which the NVIDIA runtime shows no instances."""
    watchdog.install(POLICY, "--set", "driver.mig=true")
    said = kernel_says(watchdog.pid)
    assert {int(said[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")} == {_KILL | _SYS_ADMIN}
    assert (int(said["Seccomp"]), int(said["NoNewPrivs"])) == (2, 1)
    assert not (Path(f"/proc/{watchdog.pid}/root") / _DEVICE).exists()
    assert _MIG in variables(watchdog.pid)
    does_its_work(watchdog, tenants)
