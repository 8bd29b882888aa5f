"""The address to listen on, as `--listen` has it."""

import errno
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


def explain(error: OSError, listen: str) -> ListenError:
    """Say why an address could not be had, with the remedy."""
    remedies = {
        errno.EADDRINUSE: "another process listens there, perhaps another gpu-watchdog; choose another with `--listen`",
        errno.EADDRNOTAVAIL: "this machine has no such address; choose another with `--listen`",
        errno.EACCES: "ports below 1024 take rights that this process has not; choose another with `--listen`",
    }
    remedy = remedies.get(error.errno or 0, "choose another with `--listen`")
    return ListenError(f"can't listen on {listen}: {error.strerror or error}: {remedy}")
