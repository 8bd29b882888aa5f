"""Querying a daemon for its status, and what to say where none answers."""

import contextlib
import http.client
import json
import shlex
import shutil
import sys
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from watchdog.core.errors import WatchdogError
from watchdog.journal.errors import JournalError, NoJournalError
from watchdog.options import parse_listen
from watchdog.report.health import NO_CYCLE_YET
from watchdog.report.status import Status, StatusError, decode
from watchdog.report.text import inert


def program_name() -> str:
    """`gpu-watchdog` where the shell finds it by that name, or else the path by which it was started."""
    started = sys.argv[0]
    path = Path(started)
    if path.parts[-2:] == ("watchdog", "__main__.py"):
        return f"{shlex.quote(sys.executable)} -m watchdog"
    if not path.name.startswith("gpu-watchdog"):
        return "gpu-watchdog"  # within another program, like a test's
    found = shutil.which(path.name)
    with contextlib.suppress(OSError):
        if found is not None and path.samefile(found):
            return path.name
    return shlex.quote(started)


STATUS_PATH: Final = "/api/status"
_PATIENCE_S: Final = 5.0
_LARGEST: Final = 64 * 2**20  # bytes; a node of 250 pods and 1000 processes gives less than one MiB


class QueryError(WatchdogError):
    """The daemon did not answer, or something else did; the text names the address and what it answered."""


class NoCycleError(QueryError):
    """The daemon answers but has no data yet: it has just started, or its first driver call hangs."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the answer must come from the address that was given."""

    def redirect_request(self, *_arguments: Any, **_more: Any) -> None:
        """Treat a redirect as the answer."""


def status_url(url: str) -> str:
    """The address of the status for what a user gave: the daemon's address, or that of the status itself.

    ValueError for anything but an HTTP address.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - a port that is none is found here
    except ValueError as error:
        raise ValueError(f"{url!r} is not an address: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or not _is_plain(url):
        raise ValueError(f"{url!r} is not an address: write http://HOST:PORT, like http://127.0.0.1:9837")
    path = parts.path.rstrip("/")
    return parts._replace(path=path if path.endswith(STATUS_PATH) else path + STATUS_PATH, fragment="").geturl()


def _is_plain(url: str) -> bool:
    return url.isascii() and url.isprintable() and " " not in url


def listen_url(listen: str) -> str:
    """The address at which a daemon with this --listen can be queried from its own machine; ListenError."""
    host, port = parse_listen(listen)
    # The address of "all interfaces" can't be connected to on every system.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def query_status(url: str, patience_s: float = _PATIENCE_S) -> Status:
    """The current status from the daemon at this address; AskError, ValueError.

    It may take `patience_s` for each piece, and twice as long altogether.
    """
    return _status(url, patience_s)[0]


def query_json(url: str) -> Any:
    """The same as the daemon wrote it, including keys of a later version that this one does not read."""
    try:
        return json.loads(_status(url, _PATIENCE_S)[1])
    except ValueError as error:  # an integer of more digits than Python takes, under a key that is not read
        raise QueryError(
            f"what answers at {inert(status_url(url))} is not gpu-watchdog: {inert(str(error), 300)}"
        ) from error


def _status(url: str, patience_s: float) -> tuple[Status, bytes]:
    address = status_url(url)
    body = _get(address, patience_s)
    try:
        return decode(body), body
    except StatusError as error:
        raise QueryError(f"what answers at {inert(address)} is not gpu-watchdog: {error}") from error


def _get(address: str, patience_s: float) -> bytes:
    request = urllib.request.Request(address, headers={"Accept": "application/json"})
    deadline_s = time.monotonic() + 2 * patience_s
    where = f"the daemon does not answer at {inert(address)}"
    try:
        # Without a proxy: `http_proxy` in the environment must not divert a request meant for this node.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
        with opener.open(request, timeout=patience_s) as answer:
            body = bytearray()
            while chunk := answer.read1(1 << 20):
                body += chunk
                if len(body) > _LARGEST or time.monotonic() > deadline_s:
                    raise QueryError(f"{where}: its answer is too long or takes too long")
            if answer.length:
                raise QueryError(f"{where}: its answer is cut short")
            return bytes(body)
    except urllib.error.HTTPError as error:
        said = inert(error.read(300).decode("utf-8", errors="replace").strip(), 300)
        if error.code == HTTPStatus.SERVICE_UNAVAILABLE and said.startswith(NO_CYCLE_YET):
            raise NoCycleError(f"the daemon at {inert(address)} knows nothing yet: {said}") from error
        raise QueryError(f"{where}: status {error.code}{f', {said}' if said and '<' not in said else ''}") from error
    except urllib.error.URLError as error:
        raise QueryError(f"{where}: {_cause(error.reason, patience_s)}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise QueryError(f"{where}: {_cause(error, patience_s)}") from error


def _cause(error: object, patience_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"nothing came within {patience_s:g}s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return inert(str(error) or type(error).__name__, 300)


_NAMESPACE: Final = "kubectl -n gpu-memory-watchdog"
# Where it is installed is not known here: a pod knows only its own namespace, and a host none.
_OWN: Final = "`-n`: the namespace it is installed in"
# After 10 s `/healthz` reports that the loop hangs; the liveness probe restarts the daemon some time later.
_HANGS: Final = (
    "so nothing is known yet about any pod there, and no pod is killed or evicted: it has just started, so ask again "
    "in a few seconds; after more than 10s its first driver call hangs: check `nvidia-smi` on the node, and its kernel "
    "log for NVRM and Xid"
)
_ELSEWHERE: Final = (
    "this does not show whether a watchdog runs on the node: one of a DaemonSet can only be reached in its pod. "
    f"Find that pod, and ask there ({_OWN}):"
)
_KEPT: Final = (
    "this does not show whether a watchdog runs on the node: one of a DaemonSet may keep it where only its pod sees "
    f"it. Find that pod, and ask there ({_OWN}):"
)
_OTHERWISE: Final = (
    f"or forward its port: `{_NAMESPACE} port-forward POD 9837`. Outside of Kubernetes `gpu-watchdog run` starts "
    "one; --url and --listen name another address"
)


def inside(*arguments: str, terminal: bool = False) -> str:
    """The command line that runs a command of gpu-watchdog in the watchdog's pod of a node."""
    how = "exec -it" if terminal else "exec"
    return f"{_NAMESPACE} {how} POD -- gpu-watchdog {shlex.join(inert(each) for each in arguments)}"


def to_run_inside(*arguments: str) -> str:
    """The same command line within a sentence, with what stands for the reader's own in it."""
    return f"`{inside(*arguments)}` ({_OWN})"


def help_lines(error: QueryError, *arguments: str, terminal: bool = False) -> tuple[str, ...]:
    """What to do about a daemon that could not be asked for a command with these arguments, in lines."""
    if isinstance(error, NoCycleError):
        return (_HANGS,)
    return (_ELSEWHERE, *_commands(*arguments, terminal=terminal), _OTHERWISE)


def without_journal(error: JournalError, *arguments: str) -> str:
    """Why a journal can't be read, and where one may be that is not there, for a command with these arguments."""
    lines = (_KEPT, *_commands(*arguments)) if isinstance(error, NoJournalError) else ()
    return "\n  ".join([str(error), *lines])


def _commands(*arguments: str, terminal: bool = False) -> tuple[str, ...]:
    return (f"  {_NAMESPACE} get pods -o wide", f"  {inside(*arguments, terminal=terminal)}")
