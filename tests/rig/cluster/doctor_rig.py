"""`gpu-watchdog doctor` before a real API server, and its findings."""

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.ports import free_port
from tests.rig.cluster.card import GPU
from tests.rig.cluster.credentials import in_a_pod
from tests.rig.cluster.pods import Pods
from tests.rig.command import COMMAND
from tests.stub import Stub, StubGpu, build_or_skip, environment

# Every piece of rights is used by it.
POLICY: Final = """\
mode = "enforce"
schemes = ["dra"]
brakes = { node = "10 per 10m" }
capacity = { resource = "veriff.com/gpu-memory" }
declaration = [{ resource = "veriff.com/gpu-memory", unit = "1" }]
rule = [{ name = "ml", match = { namespace_labels = { team = "ml" } }, step = [
  { above = "110%", for = "10s", do = "evict", grace = "10s" },
] }]
"""
# The GPU is idle, and the policy may be odd.
_IGNORED: Final = {"process_numbers", "policy_warnings"}


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What doctor printed: its exit code, stderr and findings, and how many seconds it took."""

    code: int
    stderr: str
    findings: list[dict[str, Any]]
    lasted_s: float

    def wrong(self) -> dict[str, str]:
        """The findings that are not ok, by name, as `what -> remedy`."""
        return wrong(self.findings)

    def what(self, name: str) -> str:
        """The one finding of this name."""
        (found,) = [found["what"] for found in self.findings if found["name"] == name]
        return str(found)


def wrong(findings: list[dict[str, Any]]) -> dict[str, str]:
    """The findings that are not ok, by name, as `what -> remedy`."""
    return {
        each["name"]: f"{each['what']} -> {each['remedy']}"
        for each in findings
        if each["state"] != "ok" and each["name"] not in _IGNORED
    }


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

    def ask(
        self,
        kubeconfig: Path | None,
        *,
        node: str | None = None,
        prefix: tuple[str, ...] = (),
        more: dict[str, str] | None = None,
    ) -> Diagnosis:
        """Run `doctor --json`, behind a prefix, with more in its environment."""
        given = ["--policy", self.policy, "--node", node or self.node, "--journal", self._folder / "state/journal.db"]
        given += ["--kubeconfig", kubeconfig] if kubeconfig is not None else []
        command = [COMMAND, "doctor", *given, "--listen", f"127.0.0.1:{free_port()}", "--json"]
        unset = {"KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "https_proxy"}
        kept = {name: text for name, text in environment(self._stub).items() if name not in unset}
        began = time.monotonic()
        done = subprocess.run(
            [*prefix, *map(str, command)],
            env={**kept, **(more or {})},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.stdout, done.stderr
        findings = json.loads(done.stdout)["findings"]
        return Diagnosis(code=done.returncode, stderr=done.stderr, findings=findings, lasted_s=time.monotonic() - began)

    def ask_in_pod(self, port: int, account: Path, uid: str) -> Diagnosis:
        """Run it as in a pod of this UID: `account` is what the kubelet mounts, `port` the API server's.

        The policy's folder is a mount there, as the ConfigMap is.
        """
        mounted = ("sh", "-c", 'mount --bind "$0" "$0" && exec "$@"', str(self.policy.parent))
        server = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
        # As the chart has it, by the downward API: fieldRef: metadata.uid.
        return self.ask(None, prefix=(*in_a_pod(account), *mounted), more={**server, "GPU_WATCHDOG_POD_UID": uid})


@pytest.fixture
def clinic(tmp_path: Path, pods: Pods) -> Clinic:
    """A node of the cluster with a pod on it."""
    node = pods.node(capacity={"veriff.com/gpu-memory": "85899345920"})
    pods.create("tenant", node=node)
    return Clinic(tmp_path, node)
