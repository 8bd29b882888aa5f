"""What this account shows the API server, as far as it can be read here: kind, name and validity; never the secret."""

import base64
import binascii
import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from kubernetes.client import Configuration

_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_LONGEST: Final = 65536
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17  # tags of ASN.1's DER (ITU-T X.690)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """From when to when something is valid, in Unix seconds; None where that is not said."""

    begins_s: float | None = None
    ends_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What is shown; `account` is the name that a service account's token has in it."""

    kind: Literal["none", "token", "certificate"] = "none"
    account: str = ""
    validity: Validity = field(default_factory=Validity)


def credentials_of(configuration: Configuration) -> Credentials:
    """What a client with this configuration shows; a token counts more than a certificate beside it."""
    token = configuration.api_key.get("BearerToken", "")
    if token:
        return _of_token(token.split()[-1] if token.split() else "")
    if configuration.cert_file:
        return Credentials(kind="certificate", validity=validity_of(_read(Path(configuration.cert_file))))
    return Credentials()


def validity_of(certificate: bytes) -> Validity:
    """The validity of a certificate, PEM (the first counts) or DER; without an end where it can't be read."""
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
    """By the claims of a JSON Web Token (RFC 7519), unchecked: this is for people, the server judges."""
    parts = token.split(".")
    try:
        claims: Any = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        validity = Validity(begins_s=_seconds(claims.get("nbf")), ends_s=_seconds(claims.get("exp")))
        return Credentials(kind="token", account=str(claims.get("sub", ""))[:300], validity=validity)
    except (ValueError, IndexError, AttributeError, RecursionError):
        return Credentials(kind="token")  # a token that means something to the server alone


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
