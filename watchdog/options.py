"""The options that `run` and `scan` share, as one value."""

from dataclasses import dataclass
from pathlib import Path

DEFAULT_POLICY = Path("/etc/gpu-watchdog/policy.toml")
DEFAULT_JOURNAL = Path("/var/lib/gpu-watchdog/journal.db")
DEFAULT_PROCFS = Path("/proc")
DEFAULT_LISTEN = "127.0.0.1:9837"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where the daemon finds things.

    `pods`, `node_object` and `namespaces` are files with what `kubectl get -o json` prints. Without `pods` the API is
    asked, by `kubeconfig` or as the pod that it runs in. `pod_uid` is the UID of that pod, where its manifest tells it.
    """

    node: str
    policy: Path = DEFAULT_POLICY
    procfs: Path = DEFAULT_PROCFS
    listen: str = DEFAULT_LISTEN
    journal: Path = DEFAULT_JOURNAL
    kubeconfig: Path | None = None
    pods: Path | None = None
    node_object: Path | None = None
    namespaces: Path | None = None
    pod_uid: str = ""
