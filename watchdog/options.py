"""The options that `run` and `scan` share, as one value, the address to listen on, and where the stop file is."""

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

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


def listen_error(error: OSError, listen: str, option: str = "--listen") -> ListenError:
    """Why listening on an address, of this option, failed, with the remedy."""
    other = f"choose another with `{option}`"
    remedies = {
        errno.EADDRINUSE: f"another process listens there, perhaps another gpu-watchdog; {other}",
        errno.EADDRNOTAVAIL: f"this machine has no such address; {other}",
        errno.EACCES: f"ports below 1024 require a privilege that this process lacks; {other}",
    }
    remedy = remedies.get(error.errno or 0, other)
    return ListenError(f"can't listen on {listen}: {error.strerror or error}: {remedy}")


DEFAULT_POLICY = Path("/etc/gpu-watchdog/policy.toml")
DEFAULT_JOURNAL = Path("/var/lib/gpu-watchdog/journal.db")
DEFAULT_PROCFS = Path("/proc")
DEFAULT_LISTEN = "127.0.0.1:9837"
# Where the chart installs the daemon, and its service account.
DEFAULT_NAMESPACE = "gpu-memory-watchdog"
DEFAULT_SERVICE_ACCOUNT = "gpu-watchdog"


@dataclass(frozen=True, slots=True)
class ObjectsOption:
    """An option that names a file of Kubernetes' objects."""

    # The command of kubectl whose output with `-o json` it contains.
    command: str
    # How the option's help goes on after that.
    note: str


def _objects(command: str, note: str) -> Any:
    return field(default=None, metadata={ObjectsOption: ObjectsOption(command, note)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where the daemon finds things. Files of objects are in the format of `kubectl get -o json`."""

    # The name of this node.
    node: str
    policy: Path = DEFAULT_POLICY
    # Where the node's /proc is mounted.
    procfs: Path = DEFAULT_PROCFS
    # ADDR:PORT, as `parse_listen` reads it.
    listen: str = DEFAULT_LISTEN
    # A further one, at which only /healthz and /readyz answer; empty: none.
    probes: str = ""
    journal: Path = DEFAULT_JOURNAL
    # None: the service account of the pod that the daemon runs in.
    kubeconfig: Path | None = None
    # None, here and in the next four: objects come from the API.
    pods: Path | None = _objects("get pods -A", "; the API is not used then.")
    node_object: Path | None = _objects("get node NAME", ", instead of the API.")
    namespaces: Path | None = _objects("get namespaces", ", instead of the API; for namespace_labels.")
    claims: Path | None = _objects("get resourceclaims -A", ", instead of the API; for what claims gave.")
    slices: Path | None = _objects("get resourceslices", ", instead of the API; for the cards of claims.")
    # The UID of the daemon's own pod; "" if its manifest does not provide it.
    pod_uid: str = ""
    # Whether it listens at `listen`.
    serves: bool = True


def flag(name: str) -> str:
    """How the option of a field is given: `--node-object`."""
    return f"--{name.replace('_', '-')}"


# The options that name files of objects, by their fields.
OBJECTS_OPTIONS: Final[Mapping[str, ObjectsOption]] = {
    option.name: option.metadata[ObjectsOption] for option in fields(Options) if ObjectsOption in option.metadata
}


def stop_file(journal: Path) -> Path:
    """The file that turns enforcement off while it exists."""
    return journal.parent / "stop"
