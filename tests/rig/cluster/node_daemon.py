"""The real daemon in the network of a cluster."""

import contextlib
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.rig.cluster.accounts import account
from tests.rig.cluster.netns import NODE_ADDRESS
from tests.rig.cluster.network import Network
from tests.rig.cluster.node import NODE, Cluster
from tests.rig.command import COMMAND, Daemon
from tests.rig.volume import mounted
from tests.stub import environment
from watchdog.kube.rights import ServiceAccount


class NodeDaemon(Daemon):
    """A running `gpu-watchdog run`, whose port is in the network of the cluster."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, network: Network) -> None:
        super().__init__(process, log)
        self._network = network

    def get(self, path: str) -> tuple[int, str]:
        """Ask one of its endpoints; status and body."""
        return self._network.get(self.port, path)


@contextlib.contextmanager
def node_daemon(cluster: Cluster, stub: Path, policy: Path) -> Iterator[NodeDaemon]:
    """Run the daemon on the cluster's node, whose NVML `stub` steers; journal and log are beside its policy.

    It runs by a service account of a pod on that node, with exactly the rights that `gpu-watchdog rights` prints.
    """
    folder = mounted(policy).parent
    with ExitStack() as stack:
        namespace = cluster.new_namespace("watchdog")
        stack.callback(cluster.drop_namespace, namespace)
        identity = ServiceAccount(namespace=namespace, name=namespace)
        own = stack.enter_context(account(cluster.control_plane, _rights(policy, identity), identity, NODE))
        given = ("--policy", policy, "--kubeconfig", own.kubeconfig, "--journal", folder / "state" / "journal.db")
        command: list[str | Path] = [COMMAND, "run", "--listen", f"{NODE_ADDRESS}:0", "--node", NODE, *given]
        with (folder / "daemon.jsonl").open("wb") as out:
            process = cluster.popen(command, env=environment(stub), stdout=out, stderr=out, cwd=folder)
        stack.callback(process.wait)
        stack.callback(process.kill)
        running = NodeDaemon(process, folder / "daemon.jsonl", cluster.network)
        running.wait(Daemon.is_up)
        yield running


def _rights(policy: Path, identity: ServiceAccount) -> str:
    whose = ("--namespace", identity.namespace, "--service-account", identity.name)
    command = (str(COMMAND), "rights", "--policy", str(policy), *whose)
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=180).stdout
