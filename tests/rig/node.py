"""The node: pods with real processes in cgroups as the kubelet makes them, and what the driver says they use."""

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tests.node.support import ENDS_WITH_US, need_root
from tests.rig.cgroups import Cgroups, Version, mounted
from tests.stub import GIB, MIB, ListName, Stub, StubGpu, StubProcess

GPU = "GPU-00000000-0000-0000-0000-000000000000"

# What a tenant's process does: `polite` ends at SIGTERM, `stubborn` does not, `forker` has two children that do not
# either, `breeder` forks a child every few milliseconds for as long as it lives, `saver` leaves the saving of its work
# to a child on SIGTERM, which takes a second and a half and no notice of signals. Each notes when SIGTERM came.
# `renamer` takes the names that `Tenant.rename` gives it; `forks` has 1,500 children that end at SIGTERM unnoted.
# A shell is light enough to be had by the dozen, and notes nothing: `plain` ends at SIGTERM, `deaf` does not.
_PREAMBLE = """
import os, signal, sys, time
def note(number, frame):
    with open(sys.argv[1], "a") as out:
        print(time.clock_gettime(time.CLOCK_BOOTTIME), file=out, flush=True)
    if sys.argv[2] == "polite":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
signal.signal(signal.SIGTERM, note)
sys.stdin.readline()
print("ready", flush=True)
deadline = time.monotonic() + 300
"""
_BEHAVIOURS = {
    "polite": "",
    "stubborn": "",
    "forker": """
for _ in range(2):
    if os.fork() == 0:
        break
""",
    "breeder": """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while time.monotonic() < deadline - 280:
    if os.fork() == 0:
        time.sleep(0.2)
        os._exit(0)
    time.sleep(0.005)
""",
}
_BEHAVIOURS["renamer"] = """
while time.monotonic() < deadline:
    if os.path.exists(sys.argv[1] + "-name"):
        with open(sys.argv[1] + "-name", "rb") as given, open("/proc/self/comm", "wb") as name:
            name.write(given.read())
    time.sleep(0.02)
"""
_BEHAVIOURS["forks"] = """
for _ in range(1500):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        break
"""
_BEHAVIOURS["saver"] = """
def save(number, frame):
    note(number, frame)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # Python forgets those that come right after a fork
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, note)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    time.sleep(1.5)
    open(sys.argv[1] + "-saved", "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, save)
"""
_SHELLS = {"plain": "", "deaf": "trap '' TERM; "}
_REST = """
while time.monotonic() < deadline:
    time.sleep(1)
"""


@dataclass
class Tenant:
    """A real process of a container (or of the host), and what it uses of the card.

    If its memory `outlives` it, the driver lists its PID after its end too. `utilization` is the per cent of the card's
    time that the driver says it used; None: it says nothing of it.
    """

    process: subprocess.Popen[bytes]
    used: int
    notes: Path
    lists: tuple[ListName, ...] = ("compute",)
    outlives: bool = False
    utilization: int | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def terms(self) -> list[float]:
        """When it, or a child of it, got SIGTERM (CLOCK_BOOTTIME, seconds)."""
        return [float(line) for line in self.notes.read_text(encoding="ascii").split()] if self.notes.exists() else []

    @property
    def has_saved(self) -> bool:
        """Whether what it started on SIGTERM has saved its work."""
        return self.notes.with_name(f"{self.notes.name}-saved").exists()

    def rename(self, name: bytes) -> None:
        """Have a `renamer` take another name."""
        given = self.notes.with_name(f"{self.notes.name}-name")
        given.with_suffix(".tmp").write_bytes(name)
        given.with_suffix(".tmp").rename(given)

    @property
    def ended_by(self) -> int | None:
        """The signal that ended it; None while it runs or where it ended by itself."""
        code = self.process.poll()
        return -code if code is not None and code < 0 else None


@dataclass
class Container:
    """A container of a pod and its processes.

    `resources` are what it asks for besides. One that `is_new` runs under an ID that its status does not have yet.
    `init` is "plain", or "sidecar" for one that runs on beside the others. `privileged` is what its spec says.
    """

    name: str
    id: str
    declared: str | None = None
    tenants: list[Tenant] = field(default_factory=list)
    resources: Mapping[str, str] = field(default_factory=dict)
    is_new: bool = False
    init: Literal["", "plain", "sidecar"] = ""
    privileged: bool = False

    def to_json(self) -> tuple[dict[str, Any], dict[str, Any]]:
        amount = {} if self.declared is None else {"veriff.com/gpu-memory": self.declared}
        amount |= self.resources
        spec = {"name": self.name, "image": "i", "resources": {"limits": amount, "requests": amount}}
        spec |= {"restartPolicy": "Always"} if self.init == "sidecar" else {}
        spec |= {"securityContext": {"privileged": True}} if self.privileged else {}
        seen = {"containerID": f"containerd://{self.id}", "state": {"running": {}}}
        return spec, {"name": self.name, **({"state": {"waiting": {}}} if self.is_new else seen)}


@dataclass
class Pod:
    """A pod and its containers."""

    name: str
    namespace: str = "ns"
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    containers: list[Container] = field(default_factory=list)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    priority: int | None = None

    def cgroup(self, container: Container) -> str:
        """Where the kubelet with the cgroupfs driver puts it."""
        return f"kubepods/burstable/pod{self.uid}/{container.id}"

    def to_json(self) -> dict[str, Any]:
        """The pod as `kubectl get pods -o json` prints it."""
        pairs = [container.to_json() for container in self.containers if not container.init]
        first = [container.to_json() for container in self.containers if container.init]
        metadata = {"name": self.name, "namespace": self.namespace, "uid": self.uid, **self.metadata}
        priority = {} if self.priority is None else {"priority": self.priority}
        spec = {"nodeName": "n1", "containers": [spec for spec, _ in pairs], **priority}
        status = {"phase": "Running", "containerStatuses": [status for _, status in pairs]}
        if first:
            spec["initContainers"] = [spec for spec, _ in first]
            status["initContainerStatuses"] = [status for _, status in first]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


class Node:
    """A node with one card or several, whose tenants are started and whose memory is set by the test.

    `stub_file` steers the stub of NVML, `pods_file` is the pod list, `node_file` the node's own object, and `journal`
    that of a daemon of this node.
    """

    def __init__(self, root: Path, version: Version) -> None:
        self.root = root
        self.stub_file = root / "nvml.txt"
        self.pods_file = root / "pods.json"
        self.node_file = root / "node.json"
        self.journal = root / "state" / "journal.db"
        self.pods: list[Pod] = []
        self.stub = Stub(gpus=(StubGpu(uuid=GPU, total=40 * GIB, reserved=512 * MIB),))
        self._cgroups = Cgroups(version)
        self._tenants: list[Tenant] = []
        self._cgroups.need()

    def mark(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        capacity: Mapping[str, str] | None = None,
    ) -> None:
        """Let the node's own object have these labels and annotations and this capacity from now on, and no others."""
        metadata = {"name": "n1", "labels": dict(labels or {}), "annotations": dict(annotations or {})}
        made = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"capacity": dict(capacity or {})}}
        _put(self.node_file, made)

    def pod(self, name: str, *containers: tuple[str, str | None], **more: Any) -> Pod:
        """Add a pod with these containers, each a name and what it declares."""
        made = [Container(name=each, id=os.urandom(32).hex(), declared=declared) for each, declared in containers]
        pod = Pod(name=name, containers=made, **more)
        self.pods.append(pod)
        return pod

    def start(
        self,
        pod: Pod | None,
        container: int = 0,
        *,
        used: int = 0,
        behaviour: str = "polite",
        user: int | None = None,
        lists: tuple[ListName, ...] = ("compute",),
    ) -> Tenant:
        """Start a process in a container, or on the host (None), that uses so much of the card.

        An MPS client stands in the driver's list `mps` too; the behaviour `server` has the name of an MPS server,
        `mimic` too, without the rights of a privileged container, and `sentry` that of gVisor's kernel.
        """
        notes = self.root / f"terms-{len(self._tenants)}"
        process = subprocess.Popen(
            [*ENDS_WITH_US, *(self._named(behaviour) or _command(behaviour, notes, user))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            user=user,
        )
        tenant = Tenant(process=process, used=used, notes=notes, lists=lists)
        self._tenants.append(tenant)
        if pod is not None:
            path = pod.cgroup(pod.containers[container])
            self._cgroups.enter(path, process.pid)
            pod.containers[container].tenants.append(tenant)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"ready\n"
        return tenant

    def single(
        self, name: str, *, used: int, declared: str | None = "1Gi", behaviour: str = "polite", **more: Any
    ) -> Tenant:
        """Add a pod with one container and one process, and let the driver and the pod list show it."""
        tenant = self.start(self.pod(name, ("main", declared), **more), used=used, behaviour=behaviour)
        self.write()
        return tenant

    def inside(self, pod: Pod, container: int = 0) -> tuple[str, ...]:
        """The words before a command that is to run in a container, in a cgroup namespace of its own."""
        folders = self._cgroups.make(pod.cgroup(pod.containers[container]))
        enter = "; ".join(f"echo $$ > {folder}/cgroup.procs" for folder in folders)
        return ("sh", "-c", f'{enter}; exec unshare --cgroup "$@"', "sh")

    def _named(self, behaviour: str) -> list[str | Path]:
        """A shell that goes by other names: the kernel's, from the file that is started, and its first argument."""
        server = ("nvidia-cuda-mps-server", "")
        names = {"server": server, "mimic": server, "sentry": ("exe", "runsc-sandbox")}
        if behaviour not in names:
            return []
        name, argument = names[behaviour]
        path = self.root / f"{len(self._tenants)}" / name
        path.parent.mkdir()
        path.symlink_to("/bin/sh")
        drop = "import ctypes; ctypes.CDLL(None).prctl(24, 21, 0, 0, 0); " if behaviour == "mimic" else ""
        start = f"{drop}import os, sys; os.execv(sys.argv[1], [sys.argv[2] or sys.argv[1], *sys.argv[3:]])"
        return [sys.executable, "-c", start, path, argument, "-c", "read line; echo ready; read line"]

    def sandbox(self, pod: Pod, *, used: int) -> Tenant:
        """Start what uses the cards in a pod under gVisor: in the pod's cgroup, beside those of its containers."""
        tenant = self.start(None, used=used, behaviour="sentry")
        self.enter(f"kubepods/burstable/pod{pod.uid}", tenant.pid)
        return tenant

    def outsider(self, pod: Pod, *, used: int) -> Tenant:
        """Start a process of a pod's first container where containerd puts it without cgroups of pods."""
        tenant = self.start(None, used=used)
        self.enter(f"k8s.io/{pod.containers[0].id}", tenant.pid)
        return tenant

    def enter(self, path: str, pid: int) -> None:
        self._cgroups.enter(path, pid)

    def members(self, pod: Pod, container: int = 0) -> set[int]:
        path = pod.cgroup(pod.containers[container])
        return {int(pid) for pid in self._cgroups.read(path).split()}

    @property
    def shown(self) -> Stub:
        """What the driver shows of it: its own stub, with the processes that were started here on the first card."""
        first, *others = self.stub.gpus
        listed = tuple(
            StubProcess(
                pid=each.pid, used=each.used, lists=each.lists, ghost=each.outlives, utilization=each.utilization
            )
            for each in self._tenants
            if each.used
        )
        kept = tuple(each for each in first.processes if each.pid not in {tenant.pid for tenant in self._tenants})
        return replace(self.stub, gpus=(replace(first, processes=(*kept, *listed)), *others))

    @property
    def owners(self) -> Mapping[int, Pod]:
        """The pod of each process, by PID."""
        own = ((pod, container) for pod in self.pods for container in pod.containers)
        return {tenant.pid: pod for pod, container in own for tenant in container.tenants}

    def write(self, *, pods: bool = True) -> None:
        """Let the driver and the pod list show what is there now."""
        self.shown.write(self.stub_file)
        if pods:
            self.write_pods()

    def write_pods(self) -> None:
        """Let the pod list, and nothing else, show what is there now."""
        _put(self.pods_file, {"apiVersion": "v1", "kind": "List", "items": [pod.to_json() for pod in self.pods]})

    def show(self, **changes: Any) -> None:
        """Let the driver show something else of the node (`Stub`) from now on."""
        self.stub = replace(self.stub, **changes)
        self.write()

    def use(self, tenant: Tenant, used: int) -> None:
        """Let a process use so much from now on."""
        tenant.used = used
        self.write(pods=False)

    def close(self) -> None:
        """End every process that was started here, with its children, and remove the cgroups."""
        for tenant in self._tenants:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(tenant.pid, 9)
            tenant.process.kill()
            tenant.process.communicate()
        self._cgroups.remove()


def _put(path: Path, document: Mapping[str, Any]) -> None:
    scratch = path.with_name(f".{path.name}")
    scratch.write_text(json.dumps(document), encoding="utf-8")
    scratch.replace(path)


def _command(behaviour: str, notes: Path, user: int | None) -> list[str | Path]:
    # Another user can't read the interpreter of a checkout in root's home; a shell is everywhere.
    if user is not None or behaviour in _SHELLS:
        return ["/bin/sh", "-c", f"{_SHELLS.get(behaviour, '')}read line; echo ready; exec sleep 300"]
    return [sys.executable, "-c", _PREAMBLE + _BEHAVIOURS[behaviour] + _REST, notes, behaviour]


@contextlib.contextmanager
def node(root: Path, version: Version | None = None) -> Iterator[Node]:
    """A node that is taken down at the end; with whichever cgroups this machine has, if no version is named."""
    need_root()
    made = Node(root, version or mounted())
    try:
        yield made
    finally:
        made.close()
