"""`gpu-watchdog doctor` before a real API server: accounts with chosen rights, and what it says of them."""

import json
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.card import GPU
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pods import Pods
from tests.cluster.rights_guard import vouch_for
from tests.ports import free_port
from tests.rig.command import COMMAND
from tests.stub import Stub, StubGpu, build_or_skip, environment
from watchdog.kube.rights import ALL_RIGHTS

# Every piece of rights is used by it.
POLICY: Final = """\
mode = "enforce"
brakes = { node = "10 per 10m" }
capacity = { resource = "veriff.com/gpu-memory" }
declaration = [{ resource = "veriff.com/gpu-memory", unit = "1" }]
rule = [{ name = "ml", match = { namespace_labels = { team = "ml" } }, step = [
  { above = "110%", for = "10s", do = "evict", grace = "10s" },
] }]
"""
# The GPU is idle, and the policy may be odd.
_OF_NO_CONCERN: Final = {"process_numbers", "policy_warnings"}
_RBAC: Final = "rbac.authorization.k8s.io"
Verb = tuple[str, str, str]  # group, resource as RBAC writes it, verb
EVERY: Final[tuple[Verb, ...]] = tuple(
    (right.group, right.target, verb) for right in ALL_RIGHTS for verb in right.verbs
)


@dataclass(frozen=True, kw_only=True)
class Said:
    """What doctor said: its exit code, stderr and findings, and how many seconds it took."""

    code: int
    stderr: str
    findings: list[dict[str, Any]]
    lasted_s: float

    def wrong(self) -> dict[str, str]:
        """What is not as it should be, by name, as `what -> remedy`."""
        return {
            found["name"]: f"{found['what']} -> {found['remedy']}"
            for found in self.findings
            if found["state"] != "ok" and found["name"] not in _OF_NO_CONCERN
        }

    def what(self, name: str) -> str:
        """The one finding of this name."""
        (found,) = [found["what"] for found in self.findings if found["name"] == name]
        return str(found)


class Clinic:
    """A node with one GPU on which all is well; doctor is asked about its API server."""

    def __init__(self, folder: Path, node: str) -> None:
        self.node = node
        self._folder = folder
        build_or_skip("current")
        self._stub = Stub(gpus=(StubGpu(uuid=GPU),)).write(folder / "nvml.txt")
        (folder / "state").mkdir()
        self.policy = folder / "policy.toml"
        self.policy.write_text(POLICY)

    def ask(self, *options: str | Path, node: str | None = None, prefix: tuple[str, ...] = (), **more: str) -> Said:
        """Run `doctor --json` with these options beside its own, behind a prefix, with more in its environment."""
        given = ("--policy", self.policy, "--node", node or self.node, "--journal", self._folder / "state/journal.db")
        command = [COMMAND, "doctor", *given, "--listen", f"127.0.0.1:{free_port()}", *options]
        unset = {"KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "https_proxy"}
        began = time.monotonic()
        done = subprocess.run(
            [*prefix, *map(str, command), "--json"],
            env={**{name: text for name, text in environment(self._stub).items() if name not in unset}, **more},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.stdout, done.stderr
        findings = json.loads(done.stdout)["findings"]
        return Said(code=done.returncode, stderr=done.stderr, findings=findings, lasted_s=time.monotonic() - began)

    def ask_in_pod(self, port: int, account: Path, **more: str) -> Said:
        """Run it as in a pod: `account` is what the kubelet mounts of the service account, `port` the API server's.

        The policy's folder is a mount there, as the ConfigMap is. `more` is in its environment besides.
        """
        place = "/run/secrets/kubernetes.io"
        steps = (
            "mount -t tmpfs tmpfs /run",
            f'mkdir -p {place} && cp -r "$0" {place}/serviceaccount',
            'mount --bind "$1" "$1" && shift',
            'exec "$@"',
        )
        shell = ("sh", "-c", " && ".join(steps), str(account), str(self.policy.parent))
        prefix = ("unshare", "--mount", "--propagation", "private", *shell)
        server = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
        return self.ask(prefix=prefix, **server, **more)


class Account:
    """A service account of the test, which has the rights that are given to it and no others."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.name = f"system:serviceaccount:{namespace}:watchdog"
        self._plane = plane
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "watchdog"}}
        self.uid: str = plane.api.ask("POST", self._path, body)["metadata"]["uid"]

    def give(self, verbs: Iterable[Verb]) -> None:
        """Let it do this from now on, everywhere, and nothing else; returns when the API server goes by it."""
        given = set(verbs)
        rules = [{"apiGroups": [group], "resources": [target], "verbs": [verb]} for group, target, verb in given]
        head = {"name": f"tests-{self._namespace}"}
        role = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": head, "rules": rules}
        binding = {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": head,
            "subjects": [{"kind": "ServiceAccount", "name": "watchdog", "namespace": self._namespace}],
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": head["name"]},
        }
        vouch_for(self.name, [role])
        self._plane.apply([role, binding])
        deadline = time.monotonic() + 180
        while {verb for verb in EVERY if self._may(verb)} != given:
            assert time.monotonic() < deadline, "the API server does not go by the role"
            time.sleep(0.05)

    def token(self, **bound: Any) -> str:
        """A token as a pod gets it."""
        return self._plane.service_account_token(self._namespace, "watchdog", **bound)

    def delete(self) -> None:
        """Delete the account; its tokens end with it."""
        self._plane.api.ask("DELETE", f"{self._path}/watchdog")

    def take_back(self) -> None:
        """Remove the roles, which are of no namespace."""
        for plural in ("clusterroles", "clusterrolebindings"):
            self._plane.api.call("DELETE", f"/apis/{_RBAC}/v1/{plural}/tests-{self._namespace}")

    def _may(self, verb: Verb) -> bool:
        group, target, action = verb
        resource, _, subresource = target.partition("/")
        what = {"group": group, "resource": resource, "subresource": subresource, "verb": action}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": self.name, "resourceAttributes": what},
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(self._plane.api.ask("POST", path, body)["status"]["allowed"])


@pytest.fixture
def clinic(tmp_path: Path, pods: Pods) -> Clinic:
    """A node of the cluster with a pod on it."""
    node = pods.node(capacity={"veriff.com/gpu-memory": "85899345920"})
    pods.create("tenant", node=node)
    return Clinic(tmp_path, node)


@pytest.fixture
def clinic_account(control_plane: ControlPlane, namespace: str) -> Iterator[Account]:
    """A service account with every right that a policy can need."""
    made = Account(control_plane, namespace)
    made.give(EVERY)
    yield made
    made.take_back()
