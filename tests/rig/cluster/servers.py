"""The control plane's programs and their command lines."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.ports import free_ports
from tests.rig.cluster.certificates import Authority
from tests.rig.cluster.credentials import ISSUER, Signer
from tests.rig.cluster.etcd_api import EtcdApi
from tests.rig.cluster.network import Network
from tests.rig.cluster.processes import Server

_SERVICE_RANGE: Final = "10.96.0.0/16"
_NAMES: Final = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where everything of one control plane is; each method gives a server that is still to be started."""

    network: Network
    port: int
    folder: Path
    programs: Path
    authority: Authority
    signer: Signer

    def etcd(self) -> tuple[Server, EtcdApi]:
        """The store. It does not wait for the disk: its data need not outlive the machine."""
        client, peer = (f"http://{self.network.address}:{port}" for port in self._etcd_ports)
        flags = [
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]
        return self._server("etcd", flags), EtcdApi(self.network, self._etcd_ports[0])

    def apiserver(self) -> Server:
        """The API server."""
        flags = [
            f"--etcd-servers=http://{self.network.address}:{self._etcd_ports[0]}",
            f"--bind-address={'0.0.0.0' if self.network.namespace else self.network.address}",
            f"--advertise-address={self.network.address}",
            f"--secure-port={self.port}",
            f"--service-cluster-ip-range={_SERVICE_RANGE}",
            "--allow-privileged=true",
            # Its watchers' connections are closed on SIGTERM; else it waits 60 s for them to leave by themselves.
            "--shutdown-send-retry-after=true",
            # A newer one does not start if it shall announce an address of the loopback range to pods.
            *(() if self.network.namespace else ("--endpoint-reconciler-type=none",)),
        ]
        return self._server("kube-apiserver", [*flags, *self._trust(), *self._audit()])

    def controller_manager(self, kubeconfig: Path) -> Server:
        """The controller manager with all its default controllers, each as a service account of its own."""
        flags = [
            f"--kubeconfig={kubeconfig}",
            f"--root-ca-file={self.authority.certificate}",
            f"--service-account-private-key-file={self.signer.key}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--secure-port=0",
            # Nodes of the tests have no kubelet that renews their leases; they stay as the test wrote them. The node
            # lifecycle controller is there all the same: it removes the taint of a new node when it becomes ready.
            "--node-monitor-grace-period=24h",
            "--node-startup-grace-period=24h",
        ]
        return self._server("kube-controller-manager", flags)

    def scheduler(self, kubeconfig: Path) -> Server:
        """The scheduler."""
        return self._server("kube-scheduler", [f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0"])

    @functools.cached_property
    def _etcd_ports(self) -> tuple[int, ...]:
        return free_ports(2, self.network.address)

    def _trust(self) -> list[str]:
        addresses = {"127.0.0.1", self.network.address, self.network.service_address}
        serving = self.authority.server(*_NAMES, *sorted(addresses))
        to_kubelets = self.authority.client("kube-apiserver-kubelet-client", "system:masters")
        return [
            f"--cert-dir={self.folder}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={self.authority.certificate}",
            f"--kubelet-client-certificate={to_kubelets.certificate}",
            f"--kubelet-client-key={to_kubelets.key}",
            # Without it `kubectl logs` asks DNS for the node's name.
            "--kubelet-preferred-address-types=InternalIP",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-account-key-file={self.signer.public}",
            f"--service-account-signing-key-file={self.signer.key}",
            f"--service-account-issuer={ISSUER}",
            f"--api-audiences={ISSUER}",
        ]

    def _audit(self) -> list[str]:
        return [
            f"--audit-policy-file={self.folder / 'audit-policy.json'}",
            f"--audit-log-path={self.folder / 'audit.log'}",
            # Each stage is on disk before the server goes on, and the file (4 GB at most) is never rotated away.
            "--audit-log-mode=blocking",
            "--audit-log-maxsize=4000",
        ]

    def _server(self, name: str, flags: Sequence[str]) -> Server:
        command = [*self.network.enter, str(self.programs / name), *flags]
        return Server(name, command, log=self.folder / f"{name}.log")
