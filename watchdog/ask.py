"""Asking a running daemon for its status, over HTTP and only at the address that is given."""

import http.client
import json
import math
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from watchdog.core.errors import WatchdogError
from watchdog.export.health import NO_PASS
from watchdog.export.listen import parse_listen
from watchdog.export.phrases import inert

STATUS_PATH: Final = "/api/status"
_PATIENCE_S: Final = 5.0
_MOST_DIGITS: Final = 400
_LARGEST: Final = 64 * 2**20  # bytes; a node of 250 pods and 1000 processes gives less than one MiB


class AskError(WatchdogError):
    """The daemon did not answer, or not as one; the text names the address, and what it answered instead."""


class NoPassError(AskError):
    """The daemon answers, and knows nothing yet: it has begun just now, or its first call into the driver hangs."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Goes nowhere else: the answer must come from the address that was given."""

    def redirect_request(self, *_arguments: Any, **_more: Any) -> None:
        """Take a redirection for the answer that it is."""


def status_url(url: str) -> str:
    """The address of the status for what a user gave: of the daemon as a whole, or of the status itself.

    ValueError on what is no address of HTTP.
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
    """The address at which a daemon that listens so can be asked from its own machine; ListenError."""
    host, port = parse_listen(listen)
    # "All interfaces" is no address that one can connect to everywhere.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def ask_status(url: str, patience_s: float = _PATIENCE_S) -> dict[str, Any]:
    """What the daemon at this address says of its node now, as `scan --json` prints it; AskError, ValueError.

    It may let us wait for `patience_s` at a time, and twice as long altogether.
    """
    address = status_url(url)
    body = _get(address, patience_s)
    try:
        found = json.loads(body, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise AskError(f"what answers at {inert(address)} is no gpu-watchdog: its answer is no JSON") from error
    if not isinstance(found, dict) or not {"node", "at", "accounts", "plan"} <= found.keys():
        raise AskError(f"what answers at {inert(address)} is no gpu-watchdog: its answer is no status of one")
    return found


def _whole(digits: str) -> int | float:
    """A number of any length: Python takes a few thousand digits, and no reader of the status takes so many."""
    return int(digits) if len(digits) < _MOST_DIGITS else math.inf


def _get(address: str, patience_s: float) -> bytes:
    request = urllib.request.Request(address, headers={"Accept": "application/json"})
    deadline_s = time.monotonic() + 2 * patience_s
    where = f"the daemon does not answer at {inert(address)}"
    try:
        # Without a proxy: `http_proxy` of the environment must not carry away what is meant for this node.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
        with opener.open(request, timeout=patience_s) as answer:
            body = bytearray()
            while chunk := answer.read1(1 << 20):
                body += chunk
                if len(body) > _LARGEST or time.monotonic() > deadline_s:
                    raise AskError(f"{where}: its answer is too long or takes too long")
            if answer.length:
                raise AskError(f"{where}: its answer breaks off")
            return bytes(body)
    except urllib.error.HTTPError as error:
        said = inert(error.read(300).decode("utf-8", errors="replace").strip(), 300)
        if error.code == HTTPStatus.SERVICE_UNAVAILABLE and said.startswith(NO_PASS):
            raise NoPassError(f"the daemon at {inert(address)} knows nothing yet: {said}") from error
        raise AskError(f"{where}: status {error.code}{f', {said}' if said and '<' not in said else ''}") from error
    except urllib.error.URLError as error:
        raise AskError(f"{where}: {_cause(error.reason, patience_s)}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise AskError(f"{where}: {_cause(error, patience_s)}") from error


def _cause(error: object, patience_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"nothing came within {patience_s:g}s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return inert(str(error) or type(error).__name__, 300)
