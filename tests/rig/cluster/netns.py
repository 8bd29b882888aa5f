"""The namespaces that a cluster of the tests lives in: its network, and mounts that are seen only there."""

import contextlib
import os
import subprocess
import uuid
from pathlib import Path
from typing import Final, Self

from tests.leftovers import OF_A_NODE
from tests.rig.cluster.node_cgroups import kill_all

# TEST-NET-1 (RFC 5737), and the first address of the service range, by which pods reach the API server.
NODE_ADDRESS: Final = "192.0.2.1"
ADDRESS: Final = "192.0.2.{number}"
SERVICE_ADDRESS: Final = "10.96.0.1"

# What the kubelet sets at its start (setupKernelTunables in k8s.io/kubernetes/pkg/kubelet/cm) is this machine's.
_TUNABLES: Final = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
# Where containerd, runc, the kubelet and CNI keep their things by default, and leave them behind.
_PRIVATE: Final = ("/run", "/var/lib", "/var/log")

# A second node that went leaves its address in the network of the first: hence `replace`.
# What follows `cat` runs when the tests were killed and could close nothing themselves.
_SCRIPT: Final = """
set -e
ip link set lo up
for address in {addresses}; do ip address replace "$address/32" dev lo; done
for folder in {private}; do mount -t tmpfs -o mode=0755 gpu-watchdog-test "$folder"; done
for tunable in {tunables}; do
  copy=/run/tunables/$tunable
  mkdir -p "$(dirname "$copy")"
  cat "/proc/sys/$tunable" > "$copy"
  mount --bind "$copy" "/proc/sys/$tunable"
done
trap '' INT TERM
echo ready
cat
# Its output is read no more: the first error message of `kill` would end this shell by SIGPIPE.
exec > /dev/null 2>&1
set +e
for round in 1 2 3 4 5; do
  for process in /proc/[0-9]*; do
    pid=${{process#/proc/}}
    [ "$(readlink "$process/ns/mnt")" = "$(readlink "/proc/$$/ns/mnt")" ] && [ "$pid" != $$ ] && kill -9 "$pid"
  done
  for pid in $(find /sys/fs/cgroup -path '*/{name}/*' -name cgroup.procs -exec cat {{}} +); do kill -9 "$pid"; done
  sleep 0.2
done
# A cgroup is busy until the last of its processes has been reaped.
for round in $(seq 100); do
  left=$(find /sys/fs/cgroup -type d -name '{name}')
  [ -z "$left" ] && break
  find /sys/fs/cgroup -depth -type d \\( -name '{name}' -o -path '*/{name}/*' \\) -exec rmdir {{}} ';'
  sleep 0.2
done
"""


class Namespaces:
    """A network namespace with the node's addresses on `lo`, and a mount namespace with /run and the like of its own.

    They have no name: one process holds them, and the kernel drops both, with every mount, interface and address,
    when that process and those that were started inside have ended. So there is nothing to unmount or to delete.
    Where the tests are killed, that process sees its stdin closed and ends what is left.
    """

    def __init__(self, beside: "Namespaces | None" = None, number: int = 1) -> None:
        """`beside`: for a further node, with its own mounts and an address of its own in the network of the first."""
        self.name = f"{OF_A_NODE}{uuid.uuid4().hex[:8]}"
        script = _SCRIPT.format(
            addresses=f"{NODE_ADDRESS} {SERVICE_ADDRESS}" if beside is None else ADDRESS.format(number=number),
            private=" ".join(_PRIVATE),
            tunables=" ".join(_TUNABLES),
            name=self.name,
        )
        network = ["unshare", "--net"] if beside is None else ["nsenter", f"--net={beside.network_file}", "unshare"]
        self._holder = subprocess.Popen(
            [*network, "--mount", "--propagation", "private", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"ready\n":
            _, reported = self._holder.communicate(timeout=10)
            raise RuntimeError(f"no namespaces for a node: {reported.decode().strip()}")
        others = _identities(os.getpid()) | (set() if beside is None else _identities(beside.pid))
        self._inside = _identities(self.pid) - others

    @property
    def pid(self) -> int:
        """The process that holds them."""
        return self._holder.pid

    @property
    def network_file(self) -> str:
        """What to open to enter the network."""
        return f"/proc/{self.pid}/ns/net"

    @property
    def machine(self) -> tuple[str, ...]:
        """What to put before a command that shall run in the network and see the mounts of the node.

        `ip netns exec` is no substitute: it remounts /sys, and the kubelet then finds no cgroups.
        """
        return ("nsenter", f"--net={self.network_file}", f"--mount=/proc/{self.pid}/ns/mnt", "--")

    def path(self, inside: str) -> Path:
        """Where a file of the node, by its absolute path there, can be read from outside."""
        return Path(f"/proc/{self.pid}/root") / inside.removeprefix("/")

    def members(self) -> list[int]:
        """Every process inside, in the network or among the mounts."""
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in pids if self._inside & _identities(pid)]

    def close(self) -> None:
        """End whatever still runs inside, shims of containerd above all, and let the namespaces go."""
        self._holder.kill()
        self._holder.communicate()
        kill_all(self.members)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _identities(pid: int) -> set[str]:
    """The network and the mounts that a process has; none of one that has ended."""
    with contextlib.suppress(OSError):
        return {str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in ("net", "mnt")}
    return set()
