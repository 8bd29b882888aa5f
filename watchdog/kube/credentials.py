"""What decides whether the API server accepts this account: its credentials, both clocks, the server's certificate."""

import base64
import binascii
import contextlib
import http.client
import json
import math
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from watchdog import clock
from watchdog.kube.messages import LogMessage
from watchdog.kube.official import Configuration

TOLERANCE_S: Final = 60.0  # no smaller difference breaks anything here; with NTP it is below one second


def offset_s(headers: Mapping[str, str], sent_s: float, received_s: float) -> float | None:
    """How many seconds the server's wall clock is ahead of ours; None where the response has no date.

    `sent_s` and `received_s` are Unix times. It is exact to half a second plus half the response time: a Date has whole
    seconds (RFC 9110, section 6.6.1) and is written in between.
    """
    try:
        server_s = parsedate_to_datetime(headers["Date"]).timestamp()
    except (KeyError, ValueError, TypeError, OverflowError, OSError):
        return None
    offset = server_s + 0.5 - (sent_s + received_s) / 2
    return offset if math.isfinite(offset) else None


def exceeds_tolerance(offset: float | None) -> bool:
    """Whether two clocks are too far apart; False if not known."""
    return offset is not None and abs(offset) > TOLERANCE_S


class ClockMessages:
    """Log messages about the two clocks: one when they diverge, one when they agree again."""

    def __init__(self) -> None:
        self._apart = False

    def take(self, offset: float | None) -> tuple[LogMessage, ...]:
        """The messages due now, given how far the server's clock was ahead at its last response."""
        if offset is None:
            return ()
        # Half the tolerance to agree again: otherwise a clock at the limit would be reported with each response.
        apart = abs(offset) > (TOLERANCE_S / 2 if self._apart else TOLERANCE_S)
        if apart is self._apart:
            return ()
        self._apart = apart
        if not apart:
            return (LogMessage(text="this node's clock and the API server's agree again"),)
        # Whole minutes: the server's Date has whole seconds, and the response took a while.
        which = "behind" if offset > 0 else "ahead of"
        text = (
            f"this node's clock is {_roughly(abs(offset))} {which} the API server's: certificates may be rejected, "
            "`active` hours of rules and deletion deadlines of pods are off, and the times in the journal "
            "and in Events are wrong; see which of the two is right (`date -u` on both), and set the other one"
        )
        return (LogMessage(text=text, is_problem=True),)


def _roughly(seconds: float) -> str:
    minutes = round(seconds / 60)
    for size, unit in ((1440, "d"), (60, "h")):
        if minutes >= size:
            return f"about {minutes / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"about {minutes} min"


_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_LONGEST: Final = 65536
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17  # tags of ASN.1's DER (ITU-T X.690)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """When something is valid, in Unix seconds; None where not stated."""

    begins_s: float | None = None
    ends_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The credentials sent to the server, without the secret; `account` is the name in a service account's token."""

    kind: Literal["none", "token", "certificate"] = "none"
    account: str = ""
    validity: Validity = field(default_factory=Validity)


def credentials_of(configuration: Configuration) -> Credentials:
    """The credentials of a client with this configuration; a token takes precedence over a certificate."""
    token = configuration.api_key.get("BearerToken", "")
    if token:
        return _of_token(token.split()[-1] if token.split() else "")
    if configuration.cert_file:
        return Credentials(kind="certificate", validity=validity_of(_read(Path(configuration.cert_file))))
    return Credentials()


def validity_of(certificate: bytes) -> Validity:
    """The validity of a certificate, PEM (the first one) or DER; empty where it can't be read."""
    try:
        found = _PEM.search(certificate[:_LONGEST])
        der = base64.b64decode(found[1]) if found else certificate[:_LONGEST]
        # RFC 5280, section 4.1: Certificate > TBSCertificate > [version], serial, signature, issuer, validity
        inner = _content(_content(der))
        if inner[0] == _VERSION:
            inner = _rest(inner)
        span = _content(_rest(_rest(_rest(inner))))
        return Validity(begins_s=_moment(span), ends_s=_moment(_rest(span)))
    except (ValueError, IndexError, OverflowError, binascii.Error):
        return Validity()


def _of_token(token: str) -> Credentials:
    """By the claims of a JSON Web Token (RFC 7519), unverified: this is for display, the server decides."""
    parts = token.split(".")
    try:
        claims: Any = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        validity = Validity(begins_s=_seconds(claims.get("nbf")), ends_s=_seconds(claims.get("exp")))
        return Credentials(kind="token", account=str(claims.get("sub", ""))[:300], validity=validity)
    except (ValueError, IndexError, AttributeError, RecursionError):
        return Credentials(kind="token")  # an opaque token


def _seconds(claim: object) -> float | None:
    return float(claim) if isinstance(claim, int | float) and not isinstance(claim, bool) and 0 < claim < 1e12 else None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST)
    except OSError:
        return b""


def _element(der: bytes) -> tuple[int, int]:
    """Where the content of the first element begins and ends."""
    length, begin = der[1], 2
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(der[2:begin], "big")
    if begin + length > len(der):
        raise ValueError  # it is cut off
    return begin, begin + length


def _content(der: bytes) -> bytes:
    if der[0] != _SEQUENCE:
        raise ValueError
    begin, end = _element(der)
    return der[begin:end]


def _rest(der: bytes) -> bytes:
    return der[_element(der)[1] :]


def _moment(der: bytes) -> float:
    begin, end = _element(der)
    text = der[begin:end].decode("ascii")
    if der[0] == _UTC_TIME:  # two digits of the year: RFC 5280, section 4.1.2.5.1
        text = ("20" if int(text[:2]) < 50 else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What a server shows to any client: the validity of its certificate, and how far its clock is ahead of ours."""

    validity: Validity = field(default_factory=Validity)
    offset_s: float | None = None


def probe_peer(url: str) -> Peer:
    """Ask a server for its version without credentials; what it does not show is None."""
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
