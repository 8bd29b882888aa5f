"""A look at a server whose certificate is not accepted: its certificate and its clock, unchecked, to tell why.

Nothing secret is sent to it, and nothing that it says is used for more than a sentence.
"""

import contextlib
import http.client
import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from watchdog import clock
from watchdog.kube.api.clocks import offset_s
from watchdog.kube.api.credentials import Validity, validity_of

_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What a server shows to anybody: the validity of its certificate, and how far its clock is ahead of ours."""

    validity: Validity = field(default_factory=Validity)
    offset_s: float | None = None


def look_at_peer(url: str) -> Peer:
    """Ask a server for its version without credentials; what it does not tell is None."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    parts = urlsplit(url)
    connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S, context=context)
    with contextlib.closing(connection):
        try:
            connection.connect()
            # With CERT_NONE the parsed form is empty; the bytes are there.
            der = connection.sock.getpeercert(binary_form=True) or b""
        except (OSError, ValueError):
            return Peer()
        return Peer(validity=validity_of(der), offset_s=_offset(connection))


def _offset(connection: http.client.HTTPSConnection) -> float | None:
    sent_s = clock.now().wall_s
    try:
        connection.request("GET", "/version", headers={"Accept": "application/json"})
        response = connection.getresponse()
    except (OSError, http.client.HTTPException):
        return None
    return offset_s({"Date": response.getheader("Date", "")}, sent_s, clock.now().wall_s)
