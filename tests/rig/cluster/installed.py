"""gpu-watchdog on the cluster's node as an operator has it: the image in a pod, installed by the real helm.

What is the node's is in one folder: `driver`, mounted into the pod as the driver's libraries are on GKE, with the
stub of NVML and the file that steers it; `state`, the journal's folder. `card` steers the stub from outside.
"""

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import yaml

from tests.rig.cluster.api import Object
from tests.rig.cluster.card import Card
from tests.rig.cluster.network import Network
from tests.rig.cluster.node import NODE, Cluster
from tests.rig.cluster.node_cgroups import CgroupRoot
from tests.rig.cluster.real_pods import wait_until
from tests.rig.cluster.rights_guard import vouch_for
from tests.rig.command import Endpoints
from tests.stub import build_or_skip
from tools.chart import CHART
from tools.programs import helm
from watchdog.core.units import parse_quantity

# `.test` is reserved (RFC 6761): it could not be pulled, and has `pullPolicy: Never`.
IMAGE: Final = "gpu-watchdog.test/gpu-memory-watchdog"
RELEASE: Final = "gpu-watchdog"
LABEL: Final = "app.kubernetes.io/name=gpu-memory-watchdog"
PORT: Final = 9837
# Where the chart mounts `driver.hostPath`, and the file in it that steers the stub.
_DRIVER: Final = "/usr/local/nvidia"


class _At(Endpoints):
    def __init__(self, network: Network, address: str) -> None:
        self._network = replace(network, address=address)

    def get(self, path: str) -> tuple[int, str]:
        return self._network.get(PORT, path)


class Installed(Endpoints):
    """A release of the chart: `install` and `uninstall` are what an operator does, the rest reads the result."""

    def __init__(
        self, cluster: Cluster, folder: Path, *, account: str = "gpu-watchdog", more: Mapping[str, Any] | None = None
    ) -> None:
        """`folder` gets the values, the policy and what is the node's; `more` are values beside those it needs."""
        self.cluster = cluster
        self.account = account
        self._more = dict(more or {})
        self.folder = folder
        self.namespace = cluster.new_namespace("gpu-watchdog")
        self.driver = folder / "driver"
        self.state = folder / "gpu-watchdog"
        library = self.driver / "lib64"
        library.mkdir(parents=True)
        for each in build_or_skip().glob("*.so.1"):
            shutil.copy(each, library)
        self.card = Card(self.driver, cluster.cgroups)

    def helm(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run helm as the admin. Raises CalledProcessError, with stderr as a note, unless it may fail."""
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self.folder),
            "KUBECONFIG": str(self.cluster.control_plane.admin_kubeconfig),
        }
        ended = self.cluster.run([helm(), *arguments], env=environment, timeout=400)
        if check and ended.returncode:
            error = subprocess.CalledProcessError(ended.returncode, ["helm", *arguments], ended.stdout, ended.stderr)
            error.add_note(f"{ended.stderr}\n{self.why_not()}")
            raise error
        return ended

    def values(self) -> dict[str, Any]:
        """What this node needs beside the defaults."""
        return {
            "image": {"repository": IMAGE, "tag": "1", "pullPolicy": "Never"},
            "driver": {"hostPath": str(self.driver)},
            "journal": {"path": str(self.state)},
            "env": [{"name": "NVML_STUB_FILE", "value": f"{_DRIVER}/{self.card.file.name}"}],
            "serviceAccount": {"name": self.account},
            # Some seconds of each installation; test_installed_withdraw.py has it on.
            "policyCheck": False,
            # This kubelet does not count local storage (localStorageCapacityIsolation), so none can be requested of it.
            "resources": {part: {"ephemeral-storage": None} for part in ("requests", "limits")},
            **self._more,
        }

    def install(self, policy: str, *flags: str) -> float:
        """Install or upgrade, until the daemon's pod is ready with this very policy's objects; the seconds it took."""
        began = time.monotonic()
        self.cluster.kubectl("label", "--overwrite", "node", NODE, "nvidia.com/gpu.present=true")
        (self.folder / "values.yaml").write_text(yaml.safe_dump(self.values()), encoding="utf-8")
        (self.folder / "policy.toml").write_text(policy, encoding="utf-8")
        given = ("--values", str(self.folder / "values.yaml"), "--set-file", f"policy={self.folder / 'policy.toml'}")
        where = ("--namespace", self.namespace)
        self.helm("upgrade", "--install", RELEASE, str(CHART), *where, *given, "--wait", "--timeout=5m", *flags)
        self.roll_out()
        return time.monotonic() - began

    def rollback(self) -> None:
        """Back to the revision before, until the daemon's pod is ready."""
        self.helm("rollback", RELEASE, "--namespace", self.namespace, "--wait", "--timeout=5m")
        self.roll_out()

    def uninstall(self, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Take the release away, unless something prevents it; its journal stays on the node."""
        self._vouch(f"{self.account}-withdraw", yaml.safe_load_all(self.hooks()))
        return self.helm("uninstall", RELEASE, "--namespace", self.namespace, "--wait", "--timeout=5m", check=check)

    def hooks(self) -> str:
        """The manifests of the release's hooks."""
        return self.helm("get", "hooks", RELEASE, "--namespace", self.namespace).stdout

    def is_listed(self) -> bool:
        """Whether helm knows of any release in its namespace."""
        return bool(self.helm("list", "--all", "--namespace", self.namespace, "--short").stdout.split())

    def remove(self) -> None:
        """Leave the cluster as it was, whatever has become of the release."""
        self.helm("uninstall", RELEASE, "--namespace", self.namespace, "--no-hooks", "--ignore-not-found")
        self.cluster.drop_namespace(self.namespace)
        self.cluster.kubectl("label", "node", NODE, "nvidia.com/gpu.present-")

    def roll_out(self) -> None:
        """Wait until the DaemonSet's pods are those of its template, and ready.

        `helm --wait` is content with maxUnavailable pods that are not, on one node with none at all.
        """
        made = yaml.safe_load_all(self.helm("get", "manifest", RELEASE, "--namespace", self.namespace).stdout)
        self._vouch(self.account, made)
        self.kubectl("rollout", "status", "daemonset/gpu-watchdog", "--timeout=240s", limit_s=260)

    def _vouch(self, account: str, manifests: Iterable[Object | None]) -> None:
        vouch_for(f"system:serviceaccount:{self.namespace}:{account}", [each for each in manifests if each])

    def kubectl(self, *arguments: str, **more: Any) -> str:
        """What kubectl prints in the release's namespace, as the admin."""
        try:
            return self.cluster.kubectl("-n", self.namespace, *arguments, **more)
        except subprocess.CalledProcessError as error:
            error.add_note(self.why_not())
            raise

    def pods(self) -> list[Object]:
        """The daemon's pods that are not on their way out."""
        found = self.cluster.pods.select(self.namespace, **dict([LABEL.split("=")]))
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    def pod(self) -> Object:
        """The daemon's only pod."""
        (found,) = self.pods()
        return found

    def ask(self, *arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
        """Run `gpu-watchdog` in the daemon's pod by kubectl exec: exit code, stdout and stderr."""
        return self.execute("gpu-watchdog", *arguments, stdin=stdin)

    def execute(self, *command: str, stdin: str | None = None) -> tuple[int, str, str]:
        """Run a program in the daemon's pod by kubectl exec, with `-i` where it is given something to read."""
        name = self.pod()["metadata"]["name"]
        reads = ("-i",) if stdin is not None else ()
        given = ("-n", self.namespace, "exec", *reads, name, "--", *command)
        ended = self.cluster.control_plane.kubectl(*given, check=False, limit_s=120, input=stdin)
        return ended.returncode, ended.stdout, ended.stderr

    def start_once(self, name: str, change: Callable[[Object], object], *arguments: str) -> None:
        """Begin a pod like the daemon's but for a change, with these arguments."""
        found = self.cluster.control_plane.get("daemonset", "gpu-watchdog", self.namespace)
        spec = found["spec"]["template"]["spec"]
        spec["restartPolicy"] = "Never"
        (one,) = spec["containers"]
        one["args"] = list(arguments)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            one.pop(probe)
        change(spec)
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.cluster.pods.create(made, self.namespace)

    def end_of(self, name: str) -> list[str]:
        """Wait until such a pod has ended; its log."""
        pods = self.cluster.pods
        pods.wait(name, lambda of: of["status"]["phase"] in ("Succeeded", "Failed"), self.namespace, 240)
        return pods.log(name, self.namespace)

    def events(self, name: str, of: Object | None = None) -> list[dict[str, Any]]:
        """What the daemon's pod, or this one of several, has logged under one event name."""
        lines = self.kubectl("logs", (of or self.pod())["metadata"]["name"]).splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in found if line["event"] == name]

    @property
    def pid(self) -> int:
        """The host's PID of the daemon."""
        found = self.pod()
        (container,) = self.cluster.pods.containers(found)
        return container.pids[0]

    def grow(self, of: Object, used: int) -> None:
        """Let the first process of a pod's only container use so much."""
        (one,) = self.cluster.pods.containers(of)
        self.card.use(one.pids[0], used)

    def lacking(self) -> set[str]:
        """The findings of doctor in the daemon's pod that are not ok, by name."""
        code, reported, stderr = self.ask("doctor", "--json")
        assert (code, stderr) == (0, "")
        found = {each["name"] for each in json.loads(reported)["findings"] if each["state"] != "ok"}
        # The policies of these tests have no brakes and no [protect].
        return found - {"policy_warnings"}

    def get(self, path: str) -> tuple[int, str]:
        """Ask the daemon at its pod's address, as Prometheus does."""
        return self.at(self.pod()["status"]["podIP"]).get(path)

    def at(self, address: str) -> Endpoints:
        """The daemon at an address: the API server is not needed to ask it."""
        return _At(self.cluster.network, address)

    def wait_enforcing(self, limit_s: float = 120) -> None:
        """Wait until it enforces."""
        wait_until(lambda: bool(self.status()["enforcing"]), lambda: f"it enforces: {self.status()}"[:2000], limit_s)

    def nudge(self) -> None:
        """Have the kubelet sync the daemon's pod now, and so its ConfigMap: any change of the pod does."""
        name = self.pod()["metadata"]["name"]
        self.kubectl("annotate", "--overwrite", "pod", name, f"tests/nudged={time.monotonic_ns()}")

    def capacity(self, resource: str, of: str = "capacity", node: str = NODE) -> int:
        """What a node has of a resource, 0 where it has no such entry."""
        return parse_quantity(self.cluster.node(node)["status"][of].get(resource, "0"))

    def why_not(self) -> str:
        """What an operator would read where the pod does not come up."""
        commands = (("get", "pods", "-o", "wide"), ("get", "events"), ("logs", "-l", LABEL, "--tail=20"))
        run = self.cluster.control_plane.kubectl
        return "\n".join(run("-n", self.namespace, *each, check=False).stdout[-3000:] for each in commands)


def is_daemon(pid: int) -> bool:
    """Whether a process is `gpu-watchdog run`, and not its child that loads the policy."""
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        return _runs(pid) and not _runs(parent)
    except OSError:
        return False


def _runs(pid: int) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return any(word.endswith(b"/gpu-watchdog") for word in words) and b"run" in words


@contextmanager
def counted(*nodes: CgroupRoot) -> Iterator[dict[str, int]]:
    """Inside, every 20 ms: the fewest nodes with a daemon that runs, and the most daemons on one node."""
    seen, ended = {"fewest nodes": len(nodes), "most daemons": 0}, threading.Event()

    def count() -> None:
        while not ended.wait(0.02):
            running = [sum(map(is_daemon, node.members())) for node in nodes]
            seen["fewest nodes"] = min(seen["fewest nodes"], sum(map(bool, running)))
            seen["most daemons"] = max(seen["most daemons"], *running)

    thread = threading.Thread(target=count, name="counted")
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def image_of(of: Object) -> str:
    """The tag of the image of a pod's container."""
    return str(of["spec"]["containers"][0]["image"]).rpartition(":")[2]


def left(cluster: Cluster) -> list[str]:
    """Whatever the cluster has with the labels of the chart."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "--output=name").split()
    label = f"{LABEL.partition('=')[0]} in (gpu-memory-watchdog, gpu-memory-watchdog-withdraw)"
    return cluster.kubectl("get", ",".join(kinds), "--all-namespaces", "-l", label, "-o", "name").split()


def wait_all_gone(cluster: Cluster, *others: CgroupRoot) -> None:
    """Wait until no object of the chart and no daemon is left, on this node and others."""
    wait_until(lambda: not left(cluster), lambda: f"objects are gone: {left(cluster)}")
    roots = (cluster.cgroups, *others)
    wait_until(lambda: not any(is_daemon(pid) for each in roots for pid in each.members()), "the daemons have ended")
