"""How this account authenticates: its configuration, token or certificate, and the server's clock and certificate."""

import base64
import contextlib
import http.client
import json
import math
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from watchdog import clock
from watchdog.core.units import brief
from watchdog.kube.exec_plugin import PluginCredentials, PluginError, run_plugin
from watchdog.kube.failure import ApiConfigError, ConfigurationError, configuration_problem
from watchdog.kube.kubeconfig import ContextChoice, check_certificates, read_kubeconfig
from watchdog.kube.official import ConfigException, Configuration, load_incluster_config, load_kube_config_from_dict


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach the API server."""

    configuration: Configuration
    # The Unix time at which the credentials have to be read again.
    until_s: float = math.inf


def load_access(kubeconfig: Path | ContextChoice | None) -> Access:
    """The access by this file or a person's choice or, without either, of the pod; ApiConfigError if it can't be used.

    It takes as long as the `exec` plugin of the file.
    """
    choice = _choice(kubeconfig)
    try:
        files = choice.files() if choice is not None else ()
        return _by_files(files, choice.context) if choice is not None and files else _in_pod()
    except (ConfigException, ConfigurationError, OSError, ValueError) as error:
        raise _unusable(error, choice) from error


def _choice(kubeconfig: Path | ContextChoice | None) -> ContextChoice | None:
    return ContextChoice(file=kubeconfig) if isinstance(kubeconfig, Path) else kubeconfig


def _unusable(error: Exception, choice: ContextChoice | None) -> ApiConfigError:
    named = ("", "") if choice is None else (choice.name(), choice.kubectl())
    return ApiConfigError(configuration_problem(error, *named))


def _in_pod() -> Access:
    configuration = Configuration()
    load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    check_certificates(configuration.ssl_ca_cert, None, None, {})
    return Access(configuration=configuration)


def _by_files(files: Sequence[Path], context: str) -> Access:
    found = read_kubeconfig(files, context)
    configuration, printed = Configuration(), PluginCredentials()
    if found.plugin is not None:
        try:
            printed = run_plugin(found.plugin)
        except PluginError as error:
            plugin = f"the exec plugin {brief(found.plugin.command)!r} of {found.entry}"
            raise ConfigurationError(f"{plugin} {error.cause}", error.remedy) from error
    document = found.document(
        token=printed.token,
        client_certificate_data=_in_base64(printed.certificate),
        client_key_data=_in_base64(printed.key),
    )
    try:
        load_kube_config_from_dict(document, client_configuration=configuration, persist_config=False)  # type: ignore[no-untyped-call]
    except Exception as error:
        if "auth-provider" in found.user:
            # The libraries that renew its token have no base class of errors in common, and may quote it.
            renewing = f"the token of {found.entry}.auth-provider can't be renewed: {type(error).__name__}"
            raise ConfigurationError(renewing, "log in again, or use an `exec` plugin") from error
        if isinstance(error, OSError):
            writing = f"its certificates can't be written to a temporary file: {error.strerror or error}"
            raise ConfigurationError(
                writing, "let this account write to /tmp, or set TMPDIR to another folder"
            ) from error
        raise
    check_certificates(configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file, found.places)
    return Access(configuration=configuration, until_s=math.inf if printed.expires_s is None else printed.expires_s)


def _in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def bearer_token(configuration: Configuration, kubeconfig: Path | ContextChoice | None) -> str:
    """The value of the `authorization` header, empty if there is none; ApiConfigError if it can't be read or sent."""
    try:
        setting = configuration.auth_settings().get("BearerToken")
    except (ConfigException, OSError, ValueError) as error:
        raise _unusable(error, _choice(kubeconfig)) from error
    token = ((setting and setting["value"]) or "").strip()  # a newline after a token is not part of it
    if not (token.isascii() and token.isprintable()):
        # The transport's own exception would contain the token.
        odd = ValueError("its token contains characters that no token has, like a line break in the middle")
        raise _unusable(odd, _choice(kubeconfig))
    return token


TOLERANCE_S: Final = 60.0  # no smaller difference breaks anything here; with NTP it is below one second


def offset_s(headers: Mapping[str, str], sent_s: float, received_s: float) -> float | None:
    """How many seconds the server's wall clock is ahead of ours; None if the response has no date.

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


_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_LONGEST: Final = 65536
# Tags of ASN.1's DER (ITU-T X.690). `ssl` shows the dates of a certificate only if it was verified, and what needs
# explaining was refused; no dependency can read one.
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """When something is valid, in Unix seconds; None if not stated."""

    begins_s: float | None = None
    ends_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The credentials sent to the server, without the secret."""

    kind: Literal["none", "token", "certificate"] = "none"
    # The name in a service account's token.
    account: str = ""
    validity: Validity = Validity()


def credentials_of(configuration: Configuration) -> Credentials:
    """The credentials of a client with this configuration; a token takes precedence over a certificate."""
    token = configuration.api_key.get("BearerToken", "")
    if token:
        return _of_token(token.split()[-1] if token.split() else "")
    if configuration.cert_file:
        try:
            with Path(configuration.cert_file).open("rb") as file:
                certificate = file.read(_LONGEST)
        except OSError:
            certificate = b""
        return Credentials(kind="certificate", validity=validity_of(certificate))
    return Credentials()


def validity_of(certificate: bytes) -> Validity:
    """The validity of a certificate, PEM (the first one) or DER; empty if it can't be read."""
    try:
        pem = _PEM.search(certificate[:_LONGEST])
        der = base64.b64decode(pem[1]) if pem else certificate[:_LONGEST]
        # RFC 5280, section 4.1: Certificate > TBSCertificate > [version], serial, signature, issuer, validity
        inner = _content(_content(der))
        if inner[0] == _VERSION:
            inner = _rest(inner)
        span = _content(_rest(_rest(_rest(inner))))
        return Validity(begins_s=_moment(span), ends_s=_moment(_rest(span)))
    except (ValueError, IndexError, OverflowError):
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


def _element(der: bytes) -> tuple[int, int]:
    """Where the content of the first element begins and ends."""
    length, begin = der[1], 2
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(der[2:begin], "big")
    if begin + length > len(der):
        raise ValueError  # truncated
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
    """What a server shows any client."""

    # That of its certificate.
    validity: Validity = Validity()
    # How far its clock is ahead of ours; None if unknown.
    offset_s: float | None = None


def probe_peer(url: str) -> Peer:
    """Request a server's version without credentials; what it does not show is None."""
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
