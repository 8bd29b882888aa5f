"""An answer of the API server that is read while it comes in."""

import contextlib
import io
import time
from collections.abc import Iterator
from typing import Final

import urllib3

from watchdog.kube.api.answers import Answer, ApiSilentError, ApiUnreachableError
from watchdog.kube.api.unreachable import explain

_CHUNK: Final = 65536
# The API server itself gives up on a request that is no watch after 60 s (--request-timeout of kube-apiserver).
_LONGEST_READ_S: Final = 75.0
# No list of one node's pods comes near it: 250 pods of the largest size that etcd takes are smaller.
_LARGEST_ANSWER: Final = 512 * 2**20


class Stream:
    """An answer under way; `status` is known at once. For one thread, but for `cut`."""

    def __init__(self, response: urllib3.HTTPResponse, url: str) -> None:
        self._response = response
        self._url = url
        self._cut = False
        self.status = response.status
        self.headers = response.headers

    def chunks(self) -> Iterator[bytes]:
        """What comes in, as soon as it is there, until the server ends the answer properly.

        ApiSilentError where nothing comes for longer than the read timeout, otherwise ApiUnreachableError where the
        connection breaks, within the last chunk too: then the end is not the server's word.
        """
        while True:
            try:
                # `read1` gives what is there; `stream` waits until a chunk of HTTP is whole, however slowly it comes.
                chunk = self._response.read1(_CHUNK)
            except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                kind = ApiSilentError if _is_silence(error) else ApiUnreachableError
                raise kind(explain(error, self._url)) from error
            if self._cut:
                # TLS is taken off the socket by a shutdown, so what came last may be ciphertext.
                raise ApiUnreachableError(f"{self._url}: the connection was cut here")
            if not chunk:
                return
            yield chunk

    def read(self) -> Answer:
        """All of it, as an answer. ApiUnreachableError as `chunks`, and where it takes for ever or has no end."""
        deadline_s = time.monotonic() + _LONGEST_READ_S
        body = io.BytesIO()
        for chunk in self.chunks():
            body.write(chunk)
            if time.monotonic() > deadline_s:
                raise ApiUnreachableError(
                    f"{self._url}: its answer took more than {_LONGEST_READ_S:.0f} s; look at the network between this "
                    "node and the API server, and whether the API server is overloaded"
                )
            if body.tell() > _LARGEST_ANSWER:
                raise ApiUnreachableError(
                    f"{self._url}: its answer exceeds {_LARGEST_ANSWER // 2**20} MiB; see that it is an API server"
                )
        # Without a copy: the list of a node full of pods of the largest size has 160 MB.
        return Answer(self.status, body.getvalue(), dict(self.headers))

    def be_patient(self, seconds: float) -> None:
        """Wait up to so long for the next bytes from now on, instead of the read timeout of the request.

        It stays as it was where the server said that it closes the connection after this answer.
        """
        connection = self._response.connection
        if connection is not None and connection.sock is not None:
            connection.sock.settimeout(seconds)

    def cut(self) -> None:
        """Cut the connection, from any thread: whoever reads from it stops with ApiUnreachableError."""
        self._cut = True
        # RuntimeError: the answer has ended, and its connection has gone back for others to use.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self._response.shutdown()

    def close(self) -> None:
        """Let the connection go; it is not used again unless the answer has been read to its end."""
        self._response.close()


def _is_silence(error: BaseException) -> bool:
    return isinstance(error, urllib3.exceptions.ReadTimeoutError | TimeoutError)
