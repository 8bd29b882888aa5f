"""vGPU guests and WSL, with the real commands: what still works, and that nothing reads as "uses nothing"."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pynvml
import pytest

from tests.export.page_reader import Read
from tests.ports import free_port
from tests.rig import Node
from tests.rig.command import COMMAND, Daemon, daemon
from tests.rig.node import GPU
from tests.stub import GIB, LISTS, StubProcess, StubReturn, environment
from tests.world.policies import KILL_AT_ONCE, write_policy

pytestmark = pytest.mark.node

BRAKES: Final = '\n[brakes]\nnode = "10 per 10m"\n'
# The release of the kernel as WSL has it, in a mount namespace of its own.
WSL: Final = (
    *("unshare", "--mount", "sh", "-c"),
    'mount --bind "$0" /proc/sys/kernel/osrelease && exec "$@"',
)
RELEASE: Final = "5.15.167.4-microsoft-standard-WSL2"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """How the driver shows a pod that uses 9Gi of a card, of which 14Gi are in use."""

    shows: Callable[[Node, int], None]
    is_wsl: bool = False
    gap: str
    why: str
    remedy: str
    finding: str


def _without_lists(world: Node, _: int) -> None:
    returns = tuple(StubReturn(call=call, code=pynvml.NVML_ERROR_NOT_SUPPORTED) for call in LISTS)
    world.stub = replace(world.stub, returns=returns)


def _vgpu(world: Node, _: int) -> None:
    mode = pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU
    world.stub = replace(world.stub, gpus=(replace(world.stub.gpus[0], virtualization=mode),))


def _silent(world: Node, pid: int) -> None:
    _vgpu(world, pid)
    listed = (StubProcess(pid=pid, used=None),)
    world.stub = replace(world.stub, gpus=(replace(world.stub.gpus[0], processes=listed),))


MACHINES: Final = {
    "a guest without process lists": Machine(
        shows=_without_lists,
        gap=f"{GPU} processes",
        why="Not Supported (code 3)",
        remedy="give the virtual machine a whole GPU (passthrough)",
        finding="process_lists",
    ),
    "a guest whose lists stay empty": Machine(
        shows=_vgpu,
        gap=f"{GPU} processes",
        why="this is a vGPU with memory in use, and its driver lists no process",
        remedy="or give it a whole GPU (passthrough)",
        finding="process_lists",
    ),
    "a guest that tells no amounts": Machine(
        shows=_silent,
        gap=f"{GPU} memory of processes",
        why="the driver lists processes without their memory",
        remedy="`gpu-watchdog doctor` suggests a fix",
        finding="process_numbers",
    ),
    "WSL": Machine(
        shows=lambda _, __: None,
        is_wsl=True,
        gap=f"{GPU} memory of processes",
        why=f"this is WSL (the kernel is {RELEASE})",
        remedy="run on Linux itself",
        finding="virtual_gpu",
    ),
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
        """Run a command there to its end."""
        asked = [*self.prefix, str(COMMAND), *map(str, words)]
        around = environment(self.world.stub_file)
        return subprocess.run(asked, env=around, capture_output=True, text=True, timeout=60, check=False)

    def explain(self, pod: str, running: Daemon) -> str:
        """What is said of a pod."""
        where = ("--url", f"http://127.0.0.1:{running.port}", "--journal", self.world.journal)
        return " ".join(self.ask("explain", pod, *where).stdout.split())

    @property
    def options(self) -> tuple[str | Path, ...]:
        """What the daemon, `scan` and `doctor` are told alike."""
        return ("--policy", self.policy, "--pods", self.world.pods_file, "--node", "n1")


@pytest.fixture(params=sorted(MACHINES))
def play(request: pytest.FixtureRequest, world_v1: Node) -> Play:
    """One of the machines."""
    machine = MACHINES[request.param]
    hog = world_v1.start(world_v1.pod("hog", ("main", "1Gi")))
    world_v1.pod("calm", ("main", "20Gi"))
    world_v1.stub = replace(world_v1.stub, gpus=(replace(world_v1.stub.gpus[0], used=14 * GIB),))
    world_v1.write()
    machine.shows(world_v1, hog.pid)
    world_v1.stub.write(world_v1.stub_file)
    (world_v1.root / "osrelease").write_text(f"{RELEASE}\n", encoding="ascii")
    world_v1.journal.parent.mkdir()
    return Play(world=world_v1, machine=machine, policy=write_policy(world_v1.root, KILL_AT_ONCE, more=BRAKES))


def accounts(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The accounts of a status by pod."""
    return {each["pod"]: each for each in document["accounts"]}


def test_scan_says_what_is_unknown_and_what_works(play: Play) -> None:
    """The card's own counter works; the pod's use is unknown, at most what is in use, with reason and remedy."""
    document = json.loads(play.ask("scan", "--json", *play.options).stdout)
    (gpu,) = document["gpus"]
    assert gpu["memory"]["used"] == 14 * GIB
    hog = accounts(document)["hog"]
    assert (hog["verdict"], hog["used"], hog["used_at_least"]) == ("unknown", None, 0)
    assert hog["used_at_most"] == 14 * GIB - gpu["memory"]["reserved"]
    assert gpu["memory"]["residual"] is None
    (gap,) = document["gaps"]
    assert gap["what"] == play.machine.gap
    assert play.machine.why in gap["why"]
    assert play.machine.remedy in gap["remedy"]
    assert document["plan"] == []
    text = " ".join(play.ask("scan", *play.options).stdout.split())
    assert "14.0Gi of 40.0Gi" in text
    assert "ns/hog all all unknown 1.0Gi" in text
    assert "at most 13.5Gi" in text


def test_doctor_names_the_machine_and_what_helps(play: Play) -> None:
    """Before anything is installed: this node can't observe, why, and what would help."""
    where = ("--journal", play.world.journal, "--listen", f"127.0.0.1:{free_port()}")
    done = play.ask("doctor", "--json", *play.options, *where)
    found = json.loads(done.stdout)
    assert (done.returncode, found["observe"], found["enforce"]) == (1, False, False)
    lacking = {each["name"]: each for each in found["findings"] if each["state"] == "missing"}
    assert play.machine.finding in lacking
    assert play.machine.finding in done.stderr
    finding = lacking[play.machine.finding]
    assert "passthrough" in finding["remedy"] or "on Linux itself" in finding["remedy"]
    (virtual,) = [each for each in found["findings"] if each["name"] == "virtual_gpu"]
    assert virtual["state"] == ("missing" if play.machine.is_wsl else "ok" if play.world.stub.returns else "warning")


@pytest.mark.slow
def test_the_daemon_goes_on_and_acts_on_nobody(play: Play) -> None:
    """Told to kill at once it kills nobody on a guess, whatever the card has in use; it is ready, and says why."""
    options = ("--policy", play.policy, "--pods", play.world.pods_file, "--journal", play.world.journal)
    with daemon(play.world.root, play.world.stub_file, *options, prefix=play.prefix) as running:
        running.wait_passes(3)
        assert running.get("/readyz")[0] == 200
        assert running.metric("gpu_memory_used_bytes", gpu=GPU) == 14 * GIB
        assert running.metric("accounts", verdict="unknown") == len(accounts(running.status())) - _seen(play, running)
        assert running.metric("pod_memory_used_bytes", namespace="ns", pod="hog") is None
        if play.machine.shows is not _silent:
            assert running.metric("gpu_memory_unattributed_bytes", gpu=GPU) is None
        assert (running.metric("scan_gaps_total", reason=_reason(play)) or 0) >= 1
        (event,) = running.events("gap_began")
        assert play.machine.why in event["message"]
        told = play.ask(
            "explain", "ns/hog", "--url", f"http://127.0.0.1:{running.port}", "--journal", play.world.journal
        )
        text = " ".join(told.stdout.split())
        assert "currently unknown" in text
        assert play.machine.why in text
        assert running.metric("actions_total", action="kill", result="done") in (None, 0)
    assert all(tenant.is_alive for pod in play.world.pods for each in pod.containers for tenant in each.tenants)


@pytest.mark.slow
def test_the_page_and_top_say_what_is_not_known(play: Play) -> None:
    """Nobody reads that nothing runs there: not in the first sentence, nor at the card, nor in `top`."""
    options = ("--policy", play.policy, "--pods", play.world.pods_file, "--journal", play.world.journal)
    with daemon(play.world.root, play.world.stub_file, *options, prefix=play.prefix) as running:
        running.wait_passes(1)
        page = Read(running.get("/?still")[1])
        top = play.ask("top", "--once", "--url", f"http://127.0.0.1:{running.port}").stdout
        (card,) = running.status()["gpus"]
    is_listed = play.machine.shows is _silent
    assert card["listed"] is is_listed
    assert (card["unattributed"] is None) is not is_listed
    dark = "What runs on GPU 0 is not known"
    told = page.text()
    assert "No pod is known" in told
    assert "in use, owner unknown" in page.text("gpus")
    assert ("div", "state watch") in [(tag, values.get("class")) for tag, values in page.elements]
    for text in (told, page.text("unattributed"), page.text("pods")):
        assert (dark in text) is not is_listed
    assert (dark in top) is not is_listed
    assert "None." not in page.text("unattributed") or is_listed
    (line,) = [line.split() for line in top.splitlines() if line.startswith("0 ")]
    assert (line[line.index(GPU) - 1] == "unknown") is not is_listed


def _seen(play: Play, running: Daemon) -> int:
    """How many accounts are known all the same: where processes are listed, pods that have none use nothing."""
    known = [each for each in accounts(running.status()).values() if each["verdict"] == "within"]
    assert [each["pod"] for each in known] == (["calm"] if play.machine.shows is _silent else [])
    return len(known)


def _reason(play: Play) -> str:
    return "process_memory" if "memory of" in play.machine.gap else "processes"


def test_an_allowance_that_covers_all_that_is_in_use_is_said(play: Play) -> None:
    """Who may use more than all that is in use is within, whatever the driver does not say; it stays a remark."""
    if play.machine.shows is _silent:
        return  # there its use is known: it has no process
    options = ("--policy", play.policy, "--pods", play.world.pods_file, "--journal", play.world.journal)
    with daemon(play.world.root, play.world.stub_file, *options, prefix=play.prefix) as running:
        running.wait_passes(1)
        assert accounts(running.status())["calm"]["verdict"] == "unknown"
        told = play.ask(
            "explain", "ns/calm", "--url", f"http://127.0.0.1:{running.port}", "--journal", play.world.journal
        )
        assert "maximum of 13.5Gi" in " ".join(told.stdout.split())
