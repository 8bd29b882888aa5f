"""Two sockets joined by a watch: its lines go through, and its end on either side is the end of both."""

import contextlib
import http.client
import select
import socket
import threading
from collections.abc import Callable
from io import BufferedIOBase
from typing import Final

from tests.rig.cluster.faults import Seen

_TICK_S: Final = 0.1


class Stream:
    """A watch that runs. Lines are written from two threads: those of the server, and those that a test inserts."""

    def __init__(self, seen: Seen, client: socket.socket, output: BufferedIOBase, server: socket.socket) -> None:
        self.seen = seen
        self._client = client
        self._output = output
        self._server = server
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def write(self, data: bytes) -> None:
        """Send one chunk. Raises OSError."""
        with self._lock:
            self._output.write(b"%x\r\n%s\r\n" % (len(data), data))
            self._output.flush()

    def finish(self) -> None:
        """End it properly, with the last chunk, as a server does whose timeout has come."""
        with contextlib.suppress(OSError), self._lock:
            self._output.write(b"0\r\n\r\n")
            self._output.flush()
        self.close()

    def close(self) -> None:
        """Cut both sides."""
        self._closed.set()
        for each in (self._client, self._server):
            shut(each)

    def copy(self, response: http.client.HTTPResponse, change: Callable[[bytes], bytes | None]) -> None:
        """Pass lines on until either side ends; `change` gives what to send for a line, or None to cut within it."""
        threading.Thread(target=self._notice_client, name="api-proxy-client", daemon=True).start()
        with contextlib.suppress(OSError, http.client.HTTPException):
            while line := response.readline():
                changed = change(line)
                if changed is None:
                    self.write(line[: len(line) // 2])
                    return self.close()
                if changed:
                    self.write(changed)
            if not self._closed.is_set():
                return self.finish()
        return self.close()

    def _notice_client(self) -> None:
        # A client sends nothing while it reads a watch: what can be read from it is its end.
        while not self._closed.is_set():
            with contextlib.suppress(OSError, ValueError):
                if select.select([self._client], [], [], _TICK_S)[0]:
                    self.close()
                continue
            return


def shut(each: socket.socket) -> None:
    """Wake every thread that reads from a socket. The plain shutdown, for that of TLS is not meant for two threads."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(each, socket.SHUT_RDWR)
