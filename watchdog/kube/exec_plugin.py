"""Runs the `exec` plugin of a kubeconfig, which prints credentials: within a time, and with a reason if it fails.

The official client has this too, but logs a failure and continues without credentials, and waits without a limit. The
protocol: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins.
"""

import contextlib
import json
import math
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

from watchdog import clock
from watchdog.core.units import brief

API_GROUP: Final = "client.authentication.k8s.io/"
LONGEST_RUN_S: Final = 15.0  # doctor waits 20 s for everything that it asks the API server
_LARGEST_OUTPUT: Final = 2**20
_KEPT_STDERR: Final = 4096
_LONGEST_LINE: Final = 200
_BY_HAND: Final = "run it by hand with the arguments and variables of its entry, as the user that this runs as"
_CHECK_PLUGIN: Final = "check that it is a credential plugin of Kubernetes, and its arguments"
# Whatever is this long without a separator may be a credential: names and words are shorter.
_SECRET: Final = re.compile(r"[A-Za-z0-9_+=~-]{32,}")


class PluginError(Exception):
    """A plugin gave no usable credentials: `cause`, without the plugin's name, and `remedy`."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(cause)
        self.cause = cause
        self.remedy = remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    """A plugin as the kubeconfig describes it."""

    command: str
    api_version: str
    # Where it runs.
    folder: Path
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    cluster: Mapping[str, Any] | None = None
    # For people.
    install_hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PluginCredentials:
    """What a plugin printed: a token, or a client certificate with its key, or all three."""

    token: str = ""
    # PEM, as is the key.
    certificate: str = ""
    key: str = ""
    # The Unix time at which it wants to be run again; None if it named none.
    expires_s: float | None = None


def run_plugin(plugin: ExecPlugin, longest_s: float = LONGEST_RUN_S) -> PluginCredentials:
    """Run a plugin and read what it prints; PluginError if that is not possible within `longest_s` seconds."""
    with _started(plugin) as process:
        output, errors = _read_all(process, time.monotonic() + longest_s, longest_s)
    if process.returncode:
        message = _first_line(errors)
        raise PluginError(f"{_how_it_ended(process.returncode)}{f': {message}' if message else ''}", _BY_HAND)
    return _credentials(output, plugin.api_version)


@contextlib.contextmanager
def _started(plugin: ExecPlugin) -> Iterator["subprocess.Popen[bytes]"]:
    """The running plugin; at the end it is killed if it still runs, with what it has started."""
    spec: dict[str, Any] = {"interactive": False}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    try:
        encoded = json.dumps(info, default=str)
        process = subprocess.Popen(
            [plugin.command, *plugin.arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=plugin.folder,
            env={**os.environ, **plugin.variables, "KUBERNETES_EXEC_INFO": encoded},
            start_new_session=True,
        )
    except (OSError, ValueError, TypeError) as error:  # TypeError: a key of the cluster's extension is no string
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        hint = f": {_first_line(plugin.install_hint.encode())}" if plugin.install_hint else ""
        remedy = f"install it where this runs, or name it by its full path{hint}"
        raise PluginError(f"can't be started: {reason}", remedy) from error
    try:
        yield process
    finally:
        if process.returncode is None:
            # It has not been waited for, so its PID is still its own, and that of the group which it leads.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _read_all(process: "subprocess.Popen[bytes]", deadline_s: float, longest_s: float) -> tuple[bytes, bytes]:
    """Everything that a process prints until it ends, and the beginning of what it prints to stderr."""
    output, errors = bytearray(), bytearray()
    kept: dict[IO[bytes] | None, bytearray] = {process.stdout: output, process.stderr: errors}
    with selectors.DefaultSelector() as selector:
        for stream, text in kept.items():
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ, text)
        while selector.get_map():
            ready = selector.select(max(deadline_s - time.monotonic(), 0.0))
            if time.monotonic() >= deadline_s:
                raise _too_slow(longest_s)
            for key, _ in ready:
                chunk = os.read(key.fd, 65536)
                if not chunk:
                    selector.unregister(key.fileobj)
                elif len(key.data) <= _LARGEST_OUTPUT:
                    key.data.extend(chunk)
                del errors[_KEPT_STDERR:]
            if len(output) > _LARGEST_OUTPUT:
                raise PluginError(f"prints more than {_LARGEST_OUTPUT // 2**20} MiB", _CHECK_PLUGIN)
    try:
        process.wait(max(deadline_s - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        raise _too_slow(longest_s) from None
    return bytes(output), bytes(errors)


def _too_slow(longest_s: float) -> PluginError:
    remedy = f"{_BY_HAND}: it may wait for input, for the network or for a process that it has started"
    return PluginError(f"did not finish within {longest_s:g} s", remedy)


def _how_it_ended(returncode: int) -> str:
    return f"exited with {returncode}" if returncode > 0 else f"was ended by signal {-returncode}"


def _first_line(text: bytes) -> str:
    """The first line that says something, without control characters and without what may be a credential."""
    lines = (" ".join(line.split()) for line in text.decode("utf-8", "replace").splitlines())
    line = next(filter(None, lines), "")
    plain = "".join(character if character.isprintable() else "?" for character in line)
    return brief(_SECRET.sub("***", plain), _LONGEST_LINE)


def _credentials(output: bytes, api_version: str) -> PluginCredentials:
    """Read the ExecCredential that a plugin printed; no message quotes it, since it may be a bare token."""
    try:
        printed = json.loads(output)
    except (ValueError, RecursionError):
        raise PluginError("prints no JSON" if output.strip() else "prints nothing", _CHECK_PLUGIN) from None
    if not isinstance(printed, dict) or printed.get("kind") != "ExecCredential":
        raise PluginError("prints JSON that is not an ExecCredential", _CHECK_PLUGIN)
    version, status = printed.get("apiVersion"), printed.get("status")
    if version != api_version:
        shown = _first_line(version.encode()) if isinstance(version, str) else "none"
        remedy = f"write the version that the plugin prints as apiVersion of `exec`, or update the plugin; {_BY_HAND}"
        raise PluginError(f"prints an ExecCredential of version {shown}, not {api_version}", remedy)
    if not isinstance(status, dict):
        raise PluginError("prints an ExecCredential without a status, so without credentials", _CHECK_PLUGIN)
    fields = {name: _text(status, name) for name in ("token", "clientCertificateData", "clientKeyData")}
    if bool(fields["clientCertificateData"]) is not bool(fields["clientKeyData"]):
        raise PluginError("prints a client certificate without its key, or a key alone", _CHECK_PLUGIN)
    if not any(fields.values()):
        raise PluginError("prints neither a token nor a client certificate", _CHECK_PLUGIN)
    return PluginCredentials(
        token=fields["token"],
        certificate=fields["clientCertificateData"],
        key=fields["clientKeyData"],
        expires_s=_expiry(_text(status, "expirationTimestamp")),
    )


def _text(status: Mapping[str, Any], name: str) -> str:
    value = status.get(name) or ""
    if not isinstance(value, str):
        raise PluginError(f"prints an ExecCredential whose {name} is not a string", _CHECK_PLUGIN)
    return value


def _expiry(text: str) -> float | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        expires_s = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        raise PluginError("prints an expirationTimestamp that is not a time", _CHECK_PLUGIN) from None
    ago_s = clock.now().wall_s - expires_s
    if ago_s >= 0:
        remedy = "log in again, or correct this node's clock if it is ahead"
        raise PluginError(f"prints credentials that expired {math.ceil(ago_s)} s ago by this node's clock", remedy)
    return expires_s
