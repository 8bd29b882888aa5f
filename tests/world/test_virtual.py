"""vGPU guests and WSL, with the real commands: what still works, and that nothing reads as "uses nothing"."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pynvml
import pytest

from tests.ports import free_port
from tests.rig import Node, gpu_watchdog
from tests.rig.command import daemon
from tests.rig.node import GPU
from tests.stub import GIB, LISTS, StubProcess, StubReturn
from tests.world.policies import KILL_AT_ONCE, write_policy

pytestmark = pytest.mark.node

BRAKES: Final = '\n[brakes]\nnode = "10 per 10m"\n'
# The release of the kernel as WSL has it, in a mount namespace of its own.
WSL: Final = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /proc/sys/kernel/osrelease && exec "$@"')
RELEASE: Final = "5.15.167.4-microsoft-standard-WSL2"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """How the driver shows a pod that uses 9Gi of a card with 14Gi in use, the gap it leaves, and doctor's finding."""

    shows: Callable[[Node, int], None]
    reason: str
    finding: str
    is_wsl: bool = False


def _without_lists(world: Node, _: int) -> None:
    world.show(returns=tuple(StubReturn(call=call, code=pynvml.NVML_ERROR_NOT_SUPPORTED) for call in LISTS))


def _vgpu(world: Node, _: int, **shown: Any) -> None:
    mode = pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU
    world.show(gpus=(replace(world.stub.gpus[0], virtualization=mode, **shown),))


def _silent(world: Node, pid: int) -> None:
    _vgpu(world, pid, processes=(StubProcess(pid=pid, used=None),))


MACHINES: Final = {
    "a guest without process lists": Machine(shows=_without_lists, reason="processes", finding="process_lists"),
    "a guest whose lists stay empty": Machine(shows=_vgpu, reason="processes", finding="process_lists"),
    "a guest that reports no amounts": Machine(shows=_silent, reason="process_memory", finding="process_numbers"),
    "WSL": Machine(shows=lambda _, __: None, is_wsl=True, reason="process_memory", finding="virtual_gpu"),
}


@dataclass(frozen=True, kw_only=True)
class Play:
    """A node of that kind with two pods, one of which uses far more than it declares."""

    world: Node
    machine: Machine
    policy: Path

    @property
    def prefix(self) -> tuple[str, ...]:
        """How a command of this machine is started."""
        return (*WSL, str(self.world.root / "osrelease")) if self.machine.is_wsl else ()

    def ask(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return gpu_watchdog(*words, stub=self.world.stub_file, prefix=self.prefix)

    @property
    def options(self) -> tuple[str | Path, ...]:
        """The options that the daemon, `scan` and `doctor` share."""
        return ("--policy", self.policy, "--pods", self.world.pods_file, "--node", "n1")


@pytest.fixture(params=sorted(MACHINES))
def play(request: pytest.FixtureRequest, any_world: Node) -> Play:
    """One of the machines."""
    machine = MACHINES[request.param]
    offender = any_world.start(any_world.pod("hog", ("main", "1Gi")))
    any_world.pod("calm", ("main", "20Gi"))
    any_world.show(gpus=(replace(any_world.stub.gpus[0], used=14 * GIB),))
    machine.shows(any_world, offender.pid)
    any_world.stub.write(any_world.stub_file)  # as it is: `Node.write` lists a tenant by what it uses
    (any_world.root / "osrelease").write_text(f"{RELEASE}\n", encoding="ascii")
    any_world.journal.parent.mkdir()
    return Play(world=any_world, machine=machine, policy=write_policy(any_world.root, KILL_AT_ONCE, more=BRAKES))


def test_scan_and_doctor_report_what_is_unknown(play: Play) -> None:
    """The card's own counter works; the pod's use is unknown, at most what is in use; doctor names the machine."""
    document = json.loads(play.ask("scan", "--json", *play.options).stdout)
    (gpu,) = document["gpus"]
    assert (gpu["memory"]["used"], gpu["memory"]["residual"]) == (14 * GIB, None)
    (offender,) = [each for each in document["accounts"] if each["pod"] == "hog"]
    assert (offender["verdict"], offender["used"], offender["used_at_least"]) == ("unknown", None, 0)
    assert offender["used_at_most"] == 14 * GIB - gpu["memory"]["reserved"]
    assert (len(document["gaps"]), document["plan"]) == (1, [])
    where = ("--journal", play.world.journal, "--listen", f"127.0.0.1:{free_port()}")
    done = play.ask("doctor", "--json", *play.options, *where)
    found = json.loads(done.stdout)
    assert (done.returncode, found["observe"], found["enforce"]) == (1, False, False)
    assert play.machine.finding in {each["name"] for each in found["findings"] if each["state"] == "missing"}
    (virtual,) = [each for each in found["findings"] if each["name"] == "virtual_gpu"]
    assert virtual["state"] == ("missing" if play.machine.is_wsl else "ok" if play.world.stub.returns else "warning")


@pytest.mark.slow
def test_the_daemon_goes_on_and_acts_on_nobody(play: Play) -> None:
    """Under a policy that kills at once no process dies on a guess, whatever the card has in use."""
    options = ("--policy", play.policy, "--pods", play.world.pods_file, "--journal", play.world.journal)
    with daemon(play.world.root, play.world.stub_file, *options, prefix=play.prefix) as running:
        running.wait_passes(3)
        assert running.get("/readyz")[0] == 200
        assert running.metric("gpu_memory_used_bytes", gpu=GPU) == 14 * GIB
        assert running.metric("pod_memory_used_bytes", namespace="ns", pod="hog") is None
        is_listed = play.machine.shows is _silent  # only then is it known that the other pod uses nothing
        verdicts = {each["pod"]: each["verdict"] for each in running.status()["accounts"]}
        assert verdicts == {"hog": "unknown", "calm": "within" if is_listed else "unknown"}
        assert (running.metric("gpu_memory_unattributed_bytes", gpu=GPU) is None) is not is_listed
        assert (running.metric("scan_gaps_total", reason=play.machine.reason) or 0) >= 1
        assert running.metric("actions_total", action="kill", result="done") in (None, 0)
    assert all(tenant.is_alive for pod in play.world.pods for each in pod.containers for tenant in each.tenants)
