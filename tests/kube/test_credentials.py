"""Credentials without their secret: names and dates of real certificates and tokens; and the server's clock."""

import base64
import datetime as dt
import json
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import Configuration

from tests.kube import faulty
from tests.rig.cluster.certificates import openssl
from watchdog.kube.credentials import (
    Credentials,
    Peer,
    Validity,
    credentials_of,
    exceeds_tolerance,
    offset_s,
    probe_peer,
    validity_of,
)
from watchdog.kube.messages import ClockMessages, LogMessage


def _token(**claims: object) -> str:
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({}, claims, 1)
    )


def _shown(token: str) -> Credentials:
    configuration = Configuration()
    configuration.api_key["BearerToken"] = f"Bearer {token}"
    return credentials_of(configuration)


@pytest.mark.parametrize(
    ("begin", "end"), [("2026-01-02T03:04:05", "2049-12-31T23:59:59"), ("1999-01-02T03:04:05", "2050-01-01T00:00:00")]
)
def test_the_validity_of_a_certificate(begin: str, end: str) -> None:
    """Years before 2050 have two digits, later ones four (RFC 5280, section 4.1.2.5); PEM and DER give the same."""
    first, last = (dt.datetime.fromisoformat(each).replace(tzinfo=dt.UTC) for each in (begin, end))
    pair = faulty.authority().client("someone", "a-group", not_before=first, not_after=last)
    expected = Validity(begins_s=first.timestamp(), ends_s=last.timestamp())
    assert validity_of(pair.certificate.read_bytes()) == expected
    assert validity_of(openssl("x509", "-in", str(pair.certificate), "-outform", "DER")) == expected


@given(st.binary(max_size=200), st.integers(0, 400))
def test_an_unreadable_certificate_has_no_validity(noise: bytes, at: int) -> None:
    """Any bytes in a file are at worst unreadable."""
    der = _authority_der()
    for data in (noise, der[:at] + noise, der[:at] + noise + der[at:]):
        validity = validity_of(data)
        assert validity.ends_s is None or validity.ends_s > 0


def _authority_der() -> bytes:
    """The certificate of the authority as DER, without starting a program each time."""
    pem = faulty.authority().certificate.read_text()
    return base64.b64decode("".join(line for line in pem.splitlines() if not line.startswith("-")))


def test_the_claims_of_a_token() -> None:
    """A service account's token contains its account and its dates; the token itself is not kept."""
    token = _token(sub="system:serviceaccount:gpu:watchdog", nbf=1000, exp=2000)
    shown = _shown(token)
    assert shown == Credentials(
        kind="token", account="system:serviceaccount:gpu:watchdog", validity=Validity(begins_s=1000, ends_s=2000)
    )
    assert token not in repr(shown)


@pytest.mark.parametrize(
    "token",
    ["x", "a.b.c", "a.é.c", "..", _token(exp="soon", nbf=True), _token(exp=-1), _token(exp=1e300), "a.W10.c", "a.MQ.c"],
)
def test_an_opaque_token(token: str) -> None:
    """A token can be anything that the server understands: then nothing but its presence is known."""
    assert _shown(token).validity == Validity()
    assert _shown(token).kind == "token"


def test_a_certificate_is_shown(tmp_path: Path) -> None:
    """A client certificate has its dates, one whose file is missing has none, and there may be no credentials."""
    configuration = Configuration()
    configuration.api_key.clear()
    assert credentials_of(configuration) == Credentials()
    configuration.cert_file = str(faulty.certificate().certificate)
    assert credentials_of(configuration).validity.ends_s is not None
    configuration.cert_file = str(tmp_path / "gone")
    assert credentials_of(configuration) == Credentials(kind="certificate")


def test_a_server_is_probed_without_trust() -> None:
    """Even a server with an expired certificate shows its dates and clock; an unreachable one shows neither."""
    text = "HTTP/1.1 401 Unauthorized\r\nDate: Fri, 15 Jan 2027 08:00:00 GMT\r\nContent-Length: 0\r\n\r\n"
    seen: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        seen.append(connection.recv(65536))
        connection.sendall(text.encode())

    with faulty.server(answer, faulty.certificate("expired")) as port:
        peer = probe_peer(f"https://127.0.0.1:{port}")
    assert peer.validity == validity_of(faulty.certificate("expired").certificate.read_bytes())
    assert peer.offset_s is not None
    assert b"uthorization" not in seen[0]
    assert probe_peer("https://127.0.0.1:1") == Peer()


NOW_S = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT


@pytest.mark.parametrize(
    ("date", "sent_s", "received_s", "expected"),
    [
        ("Fri, 15 Jan 2027 08:00:00 GMT", NOW_S, NOW_S, 0.5),
        ("Fri, 15 Jan 2027 08:00:00 GMT", NOW_S - 4, NOW_S, 2.5),
        ("Fri, 15 Jan 2027 09:00:00 GMT", NOW_S, NOW_S + 1, 3600.0),
        ("Fri, 15 Jan 2027 07:00:00 GMT", NOW_S, NOW_S + 1, -3600.0),
        ("Fri, 15 Jan 2027 10:00:00 +0100", NOW_S, NOW_S + 1, 3600.0),
    ],
)
def test_how_far_the_server_is_ahead(date: str, sent_s: float, received_s: float, expected: float) -> None:
    """Half a second is added because a Date is truncated, and half the response time is subtracted."""
    assert offset_s({"Date": date}, sent_s, received_s) == expected


@pytest.mark.parametrize("date", ["", "yesterday", "Fri, 99 Jan 2027 08:00:00 GMT", "\0", "1" * 5000])
def test_no_offset_without_a_date(date: str) -> None:
    """A header without a time gives no offset."""
    assert offset_s({"Date": date}, NOW_S, NOW_S) is None
    assert offset_s({}, NOW_S, NOW_S) is None


def test_the_log_reports_it_once() -> None:
    """A clock that is off by more than a minute is reported when that begins and ends, without flapping."""
    assert [exceeds_tolerance(each) for each in (None, 0.0, 60.0, -60.0, 60.1, -60.1)] == [False] * 4 + [True] * 2
    notes = ClockMessages()
    reported = [notes.take_new(each) for each in (None, 0.4, 60.0, 61.0, None, 59.0, 61.0, -3600.0, 29.0, 31.0)]
    assert [len(each) for each in reported] == [0, 0, 0, 1, 0, 0, 0, 0, 1, 0]
    assert reported[3][0].text.startswith(
        "this node's clock is about 1 min behind the API server's: certificates may be rejected"
    )
    assert reported[3][0].text.endswith("; see which of the two is right (`date -u` on both), and set the other one")
    assert reported[8] == (LogMessage(text="this node's clock and the API server's agree again"),)


@pytest.mark.parametrize(
    ("offset", "reported"),
    [(61.0, "1 min behind"), (3599.6, "1 h behind"), (-5400.0, "1.5 h ahead of"), (-2 * 86400.0, "2 d ahead of")],
)
def test_how_far_apart_they_are(offset: float, reported: str) -> None:
    """In a readable unit: a clock is an hour off, not sixty minutes."""
    (message,) = ClockMessages().take_new(offset)
    assert message.text.startswith(f"this node's clock is about {reported} the API server's: ")
