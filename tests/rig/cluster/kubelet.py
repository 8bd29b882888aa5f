"""A real kubelet in the namespaces of a node."""

import json
from pathlib import Path
from typing import Any, Final

from tests.rig.cluster.netns import NODE_ADDRESS, Namespaces
from tests.rig.cluster.processes import Server

LOGS: Final = "/var/log/pods"


def kubelet(
    namespaces: Namespaces,
    program: Path,
    folder: Path,
    *,
    node: str,
    kubeconfig: Path,
    cgroup_root: str,
    address: str = NODE_ADDRESS,
    ports: tuple[int, int] = (10250, 10248),
) -> Server:
    """A kubelet with the cgroupfs driver that registers itself as that node; `folder` gets configuration and log.

    `ports` are its own and that of its health.

    Its pods are below a cgroup of the tests' own, since a kubelet ends every process below its `kubepods` that
    belongs to no pod of its own: at the top of the hierarchy these would be processes of other tests.
    """
    config = folder / "kubelet.json"
    manifests = static_pods(folder)
    manifests.mkdir()
    own = {"staticPodPath": str(manifests), "port": ports[0], "healthzPort": ports[1]}
    config.write_text(json.dumps({**_configuration(cgroup_root), **own}), encoding="utf-8")
    flags = [f"--config={config}", f"--kubeconfig={kubeconfig}"]
    flags += [f"--hostname-override={node}", f"--node-ip={address}"]
    return Server("kubelet", [*namespaces.machine, str(program), *flags], log=folder / "kubelet.log")


def static_pods(folder: Path) -> Path:
    """Where the kubelet with this folder reads the manifests of static pods."""
    return folder / "static-pods"


def _configuration(cgroup_root: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup_root,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "podLogsDir": LOGS,
        # Only the node's network reaches it, and only the tests are in there.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "resolvConf": "",
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "enforceNodeAllocatable": [],
        "cpuCFSQuota": False,
        # A full disk or little memory of the machine that runs the tests is not their subject.
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "2s",
        "registerWithTaints": [],
    }
