"""The real kube-rbac-proxy in front of the daemon, on a real node: who reads what, and what stays as it was."""

import base64
import json
import os
import re
import signal
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.cluster.test_installed_security import kernel_says
from tests.cluster.test_manifests import definition
from tests.monitoring.programs import find
from tests.monitoring.scraping import plain_job, without_api
from tests.node.support import REPOSITORY, cannot_run
from tests.rig.cluster.certificates import Authority
from tests.rig.cluster.images import write_image
from tests.rig.cluster.installed import PORT, Installed
from tests.rig.cluster.installed_fixtures import installed
from tests.rig.cluster.installed_policy import KILL, policy_text
from tests.rig.cluster.network import exchange
from tests.rig.cluster.node import NODE, Cluster
from tests.rig.cluster.processes import Server
from tests.rig.cluster.real_pods import status_of, wait_until
from tests.rig.command import COMMAND
from tools.programs import NoProgramsError, kube_rbac_proxy

pytestmark = [pytest.mark.node, pytest.mark.slow]

POLICY: Final = policy_text("enforce", {"tenants": KILL})
# `.test` is reserved (RFC 6761), so that it could not be pulled.
PROXY: Final = "gpu-watchdog.test/kube-rbac-proxy:1"
# What shows tenants.
_PAGES: Final = ("/", "/metrics", "/api/status", "/api/summary", "/api/history?gpu=0", "/api/report")
_DAEMON, _FRONT = "watchdog", "kube-rbac-proxy"


class Front:
    """A release with the proxy in front of its daemon."""

    def __init__(self, release: Installed, readers: str) -> None:
        """`readers` is a namespace: its account `default` may read."""
        self.release = release
        self.cluster = release.cluster
        self._readers = readers

    @property
    def reader(self) -> str:
        """A token whose owner may read."""
        return self.token(self._readers)

    def token(self, namespace: str) -> str:
        """A token of a namespace's default account."""
        return self.cluster.control_plane.service_account_token(namespace, "default")

    def ask(self, path: str, token: str = "", context: ssl.SSLContext | None = None) -> int:
        """The status of a GET by TLS; without a context any certificate is taken. Raises OSError."""
        if context is None:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        network = replace(self.cluster.network, address=self.release.pod()["status"]["podIP"])
        connection = network.open_http(PORT)
        connection.sock = context.wrap_socket(connection.sock, server_hostname="gpu-watchdog")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return exchange(connection, "GET", path, headers=headers).status

    def pid(self, name: str) -> int:
        """The host's PID of a container's first process."""
        (found,) = (each for each in self.cluster.pods.containers(self.release.pod()) if each.name == name)
        return found.pids[0]


@contextmanager
def pod_monitors(cluster: Cluster) -> Iterator[None]:
    """Inside, the API server knows PodMonitors by name."""
    made = definition("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors", "Namespaced")
    name = f"crd/{made['metadata']['name']}"
    cluster.control_plane.apply(made)
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=170s", name)
    try:
        yield
    finally:
        cluster.kubectl("delete", name)


@pytest.fixture(scope="module")
def front(cluster: Cluster, watchdog_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A release without a NetworkPolicy, whose readers are one account and that of the PodMonitor."""
    folder = tmp_path_factory.mktemp("authentication")
    try:
        archive = write_image(folder / "proxy.tar", kube_rbac_proxy(), PROXY)
    except NoProgramsError as error:
        cannot_run(str(error))
    cluster.containerd.load(archive)
    readers = cluster.new_namespace("readers")
    values = {
        "networkPolicy": {"create": False},
        "authentication": {
            "enabled": True,
            "image": PROXY,
            "container": {"imagePullPolicy": "Never"},
            "readers": [{"namespace": readers, "name": "default"}],
        },
        "prometheus": {"podMonitor": {"create": True}},
    }
    with pod_monitors(cluster), installed(cluster, folder / "installed", values) as release:
        release.install(POLICY)
        yield Front(release, readers)
    cluster.drop_namespace(readers)
    cluster.containerd.ctr("images", "remove", "--sync", PROXY)


def test_only_who_has_the_right_reads(front: Front, tenants: str) -> None:
    """Without a token 401, with that of a tenant 403, with the right 200; whether the daemon works, everybody may ask.

    Every account may get /api/* of the API server itself (system:discovery): that is no right to read here.
    """
    tenant = front.token(tenants)
    assert front.cluster.kubectl("auth", "can-i", "get", "/api/status", f"--token={tenant}").strip() == "yes"
    assert {front.ask(path) for path in _PAGES} == {401}
    assert {front.ask(path, "no token of this cluster") for path in _PAGES} == {401}
    assert {front.ask(path, tenant) for path in _PAGES} == {403}
    assert {front.ask(path, front.reader) for path in _PAGES} == {200}
    assert {front.ask(path, token) for path in ("/healthz", "/readyz") for token in ("", tenant)} == {200}
    # 307: the proxy leads to the plain path.
    odd = ("/healthz/../metrics", "/%2e/metrics", "//metrics", "/healthz/", "/healthz%2f..%2fmetrics")
    assert {front.ask(path) for path in odd} <= {307, 401}


def test_the_token_of_the_pod_monitor_may_read(front: Front) -> None:
    """Prometheus presents what its PodMonitor names: a Secret that the cluster has filled."""
    endpoint = front.cluster.control_plane.get("podmonitor", "gpu-watchdog", front.release.namespace)["spec"]
    named = endpoint["podMetricsEndpoints"][0]["authorization"]["credentials"]
    secret = front.cluster.control_plane.get("secret", named["name"], front.release.namespace)
    assert front.ask("/metrics", base64.b64decode(secret["data"][named["key"]]).decode()) == 200


def test_prometheus_scrapes_as_the_page_says(front: Front, tmp_path: Path) -> None:
    """The lines that docs/prometheus.md adds to the job of scrape.yaml are what a real Prometheus needs."""
    page = (REPOSITORY / "docs" / "prometheus.md").read_text(encoding="utf-8")
    printed = re.findall(r"^```yaml\n(.*?)^```$", page.partition("### With the proxy in front\n")[2], re.M | re.S)[0]
    added = yaml.safe_load(printed)
    token = tmp_path / "token"
    token.write_text(front.reader, encoding="utf-8")
    added["authorization"]["credentials_file"] = str(token)
    job = without_api(plain_job(), (f"{front.release.pod()['status']['podIP']}:{PORT}", NODE)) | added
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": [job]}), encoding="utf-8")
    network, port = front.cluster.control_plane.network, 9090
    options = (f"--config.file={tmp_path / 'prometheus.yaml'}", f"--storage.tsdb.path={tmp_path / 'data'}")
    listens = f"--web.listen-address={network.address}:{port}"
    command = (*network.enter, str(find("prometheus")), listens, *options)
    server = Server("prometheus", command, log=tmp_path / "log", environment={"HOME": str(tmp_path)})
    server.start()

    def scraped() -> bool:
        with suppress(OSError):
            code, body = network.get(port, "/api/v1/query?query=gpu_watchdog_enforcing")
            return code == 200 and bool(json.loads(body)["data"]["result"])
        return False

    try:
        server.wait_for(scraped)
    finally:
        server.stop(hard=True)


def test_around_the_proxy_there_are_only_probes(front: Front) -> None:
    """From outside its pod, the daemon's own port is not reached, and the one of the probes shows nothing else."""
    network = replace(front.cluster.network, address=front.release.pod()["status"]["podIP"])
    with pytest.raises(ConnectionRefusedError):
        network.connect(9838)
    assert [network.get(9839, path)[0] for path in ("/healthz", "/readyz", *_PAGES)] == [200, 200, *[404] * len(_PAGES)]


def test_the_proxy_may_do_nothing_on_the_node(front: Front) -> None:
    """Of the running process: no root, no capability, a seccomp filter, a read-only root."""
    pid = front.pid(_FRONT)
    reported = kernel_says(pid)
    print(f"\nkube-rbac-proxy: {reported['VmRSS']} resident, {reported['VmHWM']} at most")
    assert reported["Uid"].split() == reported["Gid"].split() == ["65532"] * 4
    assert {int(reported[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {0}
    assert (reported["Seccomp"], reported["NoNewPrivs"]) == ("2", "1")
    mounts = Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8").splitlines()
    assert ["ro" in line.split()[5].split(",") for line in mounts if line.split()[4] == "/"] == [True]


def test_commands_go_on(front: Front) -> None:
    """In the pod they ask the daemon itself; from outside `top` goes by port-forward, and says why."""
    code, shown, _ = front.release.ask("top", "--once")
    assert (code, NODE in shown) == (0, True)
    assert front.release.lacking() <= {"process_numbers"}  # nothing uses the GPU
    plane = front.cluster.control_plane
    path = f"{COMMAND.parent}:{plane.kubectl_program.parent}:{os.environ['PATH']}"
    variables = {"PATH": path, "HOME": str(front.release.folder), "KUBECONFIG": str(plane.admin_kubeconfig)}
    outside = subprocess.run(
        [*plane.network.enter, "kubectl", "gpu-watchdog", "top", "--once", "-n", front.release.namespace],
        capture_output=True,
        text=True,
        timeout=60,
        env=variables,
        check=False,
    )
    assert outside.returncode == 0, outside.stderr
    why = "its daemon listens only within its pod, as behind a proxy that asks for a token"
    assert outside.stdout.startswith(f"1 node answers by port-forward ({why})\n"), outside.stdout


def test_a_proxy_that_hangs_does_not_restart_the_daemon(front: Front) -> None:
    """Its pod is no longer ready, and Prometheus gets nothing; enforcement goes on."""
    daemon = front.pid(_DAEMON)
    proxy = front.pid(_FRONT)
    os.kill(proxy, signal.SIGSTOP)
    try:
        wait_until(lambda: not status_of(front.release.pod(), _FRONT)["ready"], "the kubelet has seen it hang")
        assert status_of(front.release.pod(), _DAEMON)["ready"]
    finally:
        os.kill(proxy, signal.SIGCONT)
    wait_until(lambda: status_of(front.release.pod(), _FRONT)["ready"], "it is ready again")
    assert front.pid(_DAEMON) == daemon


def test_a_certificate_of_one_s_own_is_verified(front: Front, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With `tlsSecret` the proxy shows that certificate: who trusts its authority can tell it from another server."""
    authority = Authority(tmp_path_factory.mktemp("pki"))
    pair = authority.server("gpu-watchdog")
    files = (f"--cert={pair.certificate}", f"--key={pair.key}")
    front.release.kubectl("create", "secret", "tls", "cert", *files)
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with pytest.raises(ssl.SSLCertVerificationError):
        front.ask("/metrics", front.reader, context)
    front.release.install(POLICY, "--set=authentication.tlsSecret=cert")
    assert front.ask("/metrics", front.reader, context) == 200
