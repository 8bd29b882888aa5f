"""A proxy of requests between a client and the API server: it ends TLS, so it can answer and spoil on its own.

It speaks HTTP/1.1 with a certificate of its own authority (`ca`), which may be expired or of tomorrow. What it is not
made to spoil goes to the real API server, with the client's own headers, and comes back as it was.
"""

import datetime as dt
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.ports import free_port
from tests.rig.cluster.api import Api, Object
from tests.rig.cluster.api_traffic import ProxyServer, Traffic
from tests.rig.cluster.certificates import Authority
from tests.rig.cluster.faults import Edit, Rule, Seen, When, everything, reply
from tests.rig.cluster.streams import Stream


class ApiProxy:
    """A context manager. Faults may be added and taken back at any time, also to streams that run."""

    def __init__(
        self, api: Api, folder: Path, *, not_before: dt.datetime | None = None, not_after: dt.datetime | None = None
    ) -> None:
        """Passes on to where `api` goes; `folder` gets its certificates, whose validity may be given."""
        authority = Authority(folder)
        pair = authority.server("127.0.0.1", "localhost", not_before=not_before, not_after=not_after)
        self.ca = authority.certificate
        self.port = free_port()
        self._traffic = Traffic(api)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pair.certificate, pair.key)
        self._server = ProxyServer(self.port, self._traffic, tls)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="api-proxy", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._traffic.rules.clear()
        self._server.shutdown()
        self._server.server_close()
        self._server.shut_all()

    @property
    def url(self) -> str:
        """What a kubeconfig names as its server, with `ca` as its authority."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def seen(self) -> tuple[Seen, ...]:
        """Every request so far."""
        return tuple(self._traffic.seen)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The watches that run now."""
        return tuple(self._traffic.streams)

    def heal(self) -> None:
        """Take every fault back, delays that run too."""
        self._traffic.rules.clear()

    def answer(
        self,
        status: int,
        *,
        headers: Mapping[str, str] | None = None,
        body: Object | bytes | None = None,
        when: When = everything,
        times: int | None = None,
    ) -> None:
        """Answer such requests here; they do not reach the API server. Without a body, a `Status` of that code."""
        self._traffic.rules.add(Rule(when=when, times=times, reply=reply(status, headers, body)))

    def delay(self, seconds: float, *, when: When = everything, times: int | None = None) -> None:
        """Hold such requests back before they go on."""
        self._traffic.rules.add(Rule(when=when, times=times, delay_s=seconds))

    def cut(self, *, when: When = everything, times: int | None = 1) -> None:
        """Break off in the middle: of the next line of a watch, of the body of another answer."""
        self._traffic.rules.add(Rule(when=when, times=times, cut=True))

    def edit(self, change: Edit, *, when: When) -> None:
        """Change the next line of a watch (with its newline), or the body of another answer; b"" drops a line."""
        self._traffic.rules.add(Rule(when=when, times=1, edit=change))

    def shift_clock(self, seconds: float) -> None:
        """Have the server's clock go wrong, in the Date of its answers: ahead by this many seconds, or behind."""
        self._traffic.clock_offset_s = seconds

    def insert(self, line: bytes, *, when: When) -> None:
        """Send a line (a newline is added) on every such watch that runs now."""
        for stream in self.streams:
            if when(stream.seen):
                stream.write(line + b"\n")

    def finish_streams(self) -> None:
        """End the watches that run properly, as the API server does when their time is up."""
        for stream in self.streams:
            stream.finish()
