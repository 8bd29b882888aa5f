"""The options that `run` and `scan` share, as one value, and the address to listen on."""

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from watchdog.core.errors import WatchdogError

_LARGEST_PORT: Final = 65535


class ListenError(WatchdogError):
    """The address can't be listened on; the text names it and the remedy."""


def parse_listen(listen: str) -> tuple[str, int]:
    """Read `ADDR:PORT`, IPv6 as `[::1]:9837`; ListenError on anything else."""
    host, colon, port = listen.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port[:6]) > _LARGEST_PORT:
        raise ListenError(f"{listen!r} is not an address to listen on: write ADDR:PORT, like 127.0.0.1:9837")
    if ":" in host and not is_bracketed:
        raise ListenError(f"{listen!r} is not an address to listen on: write IPv6 in brackets, like [::1]:9837")
    return (host[1:-1] if is_bracketed else host), int(port)


def listen_error(error: OSError, listen: str) -> ListenError:
    """Why listening on an address failed, with the remedy."""
    remedies = {
        errno.EADDRINUSE: "another process listens there, perhaps another gpu-watchdog; choose another with `--listen`",
        errno.EADDRNOTAVAIL: "this machine has no such address; choose another with `--listen`",
        errno.EACCES: "ports below 1024 require a privilege that this process lacks; choose another with `--listen`",
    }
    remedy = remedies.get(error.errno or 0, "choose another with `--listen`")
    return ListenError(f"can't listen on {listen}: {error.strerror or error}: {remedy}")


DEFAULT_POLICY = Path("/etc/gpu-watchdog/policy.toml")
DEFAULT_JOURNAL = Path("/var/lib/gpu-watchdog/journal.db")
DEFAULT_PROCFS = Path("/proc")
DEFAULT_LISTEN = "127.0.0.1:9837"
# Where the chart installs the daemon, and its service account.
DEFAULT_NAMESPACE = "gpu-memory-watchdog"
DEFAULT_SERVICE_ACCOUNT = "gpu-watchdog"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where the daemon finds things.

    `pods`, `node_object` and `namespaces` are files in the format of `kubectl get -o json`. Without `pods` the API is
    queried, with `kubeconfig` or as the pod that the daemon runs in. `pod_uid` is the UID of that pod, if its manifest
    provides it. Unless it `serves`, nothing listens at `listen`.
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
    serves: bool = True
