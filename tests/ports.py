"""Ports of loopback that stay a test's own, for what cannot bind port 0 and say which one it got.

A claim is an abstract Unix socket named after the port. The kernel keeps these names per network namespace, as it does
ports, gives each name once, and frees it with the process that holds it. So workers of one run, and runs from other
checkouts, never get the same port, and nothing has to be cleaned up.
"""

import errno
import itertools
import random
import socket
from typing import Final

# Below net.ipv4.ip_local_port_range: the kernel gives none of them to a connection, or to a server that asks for any
# port, while a server of ours is down that will want its port back.
_PORTS: Final = range(20000, 32000)
_CLAIM: Final = "\0gpu-watchdog-tests-port-"
_CLAIMS: Final[list[socket.socket]] = []


def free_port(address: str = "127.0.0.1") -> int:
    """A port without a listener that no other test gets while this process lives."""
    return free_ports(1, address)[0]


def free_ports(count: int, address: str = "127.0.0.1") -> tuple[int, ...]:
    """Several such ports, all different."""
    shuffled = random.sample(_PORTS, len(_PORTS))
    found = tuple(itertools.islice((port for port in shuffled if claim(port) and _is_free(port, address)), count))
    if len(found) < count:
        raise OSError(f"no free port on {address} between {_PORTS[0]} and {_PORTS[-1]}")
    return found


def claim(port: int) -> bool:
    """Keep a port from every other test for as long as this process lives; False where another one has it."""
    held = socket.socket(socket.AF_UNIX)
    try:
        held.bind(f"{_CLAIM}{port}")
    except OSError:
        held.close()
        return False
    _CLAIMS.append(held)  # held until this process ends
    return True


def _is_free(port: int, address: str) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((address, port))
        except OSError as error:
            # An address of another namespace, which the caller has to itself.
            return error.errno == errno.EADDRNOTAVAIL
    return True
