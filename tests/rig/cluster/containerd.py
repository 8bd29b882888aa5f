"""containerd in the namespaces of a node, with runc, a network by CNI, and the tests' own images."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.rig.cluster.images import SANDBOX
from tests.rig.cluster.netns import Namespaces
from tests.rig.cluster.processes import Server

_PROGRAMS: Final = ("containerd", "runc", "ctr", "containerd-shim-runc-v2", "unshare", "nsenter", "ip", "cc")
_CNI_PLUGINS: Final = Path("/usr/lib/cni")

# restrict_oom_score_adj: without CAP_SYS_RESOURCE runc may not lower a score, and every sandbox would end with
# "can't get final child's PID from pipe". The snapshotters that are switched off look for tools and devices at start.
_CONFIG: Final = """
version = 2
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{networks}"
"""
# TEST-NET-2 (RFC 5737).
_SUBNET: Final = "198.51.100.0/24"
# Each pod gets a pair of interfaces; what it sends to the service address ends at `lo` of the node.
_NETWORK: Final = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [
        {
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "dataDir": "/var/lib/cni/networks",
                "ranges": [[{"subnet": "SUBNET"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        },
        {"type": "loopback"},
    ],
}


def missing_programs() -> list[str]:
    """The programs that this machine lacks, of a node's runtime and of what its images are made with."""
    found = [name for name in _PROGRAMS if shutil.which(name) is None]
    return found if (_CNI_PLUGINS / "ptp").exists() else [*found, f"{_CNI_PLUGINS}/ptp"]


class Containerd:
    """A containerd of the node's own; root and state are at their default places, which only the node sees."""

    def __init__(self, namespaces: Namespaces, folder: Path, *, subnet: str = _SUBNET) -> None:
        """`folder` gets configuration and log; `subnet` is that of the node's pods."""
        self._namespaces = namespaces
        networks = folder / "networks"
        networks.mkdir()
        (networks / "pods.conflist").write_text(json.dumps(_NETWORK).replace("SUBNET", subnet), encoding="utf-8")
        config = folder / "containerd.toml"
        text = _CONFIG.format(sandbox=SANDBOX, plugins=_CNI_PLUGINS, networks=networks)
        config.write_text(text, encoding="utf-8")
        command = [*namespaces.machine, "containerd", "--config", str(config)]
        self.server = Server("containerd", command, log=folder / "containerd.log")

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.server.start()
        self.server.wait_for(self._answers)

    def load(self, archive: Path) -> None:
        """Make the images of an archive available to pods, which must say `imagePullPolicy: Never`."""
        self.ctr("images", "import", str(archive))

    def ctr(self, *arguments: str) -> str:
        """Run `ctr` in the namespace of Kubernetes; gives what it printed. Raises CalledProcessError."""
        command = [*self._namespaces.machine, "ctr", "-n", "k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout

    def _answers(self) -> bool:
        try:
            self.ctr("version")
        except subprocess.CalledProcessError:
            return False
        return True
