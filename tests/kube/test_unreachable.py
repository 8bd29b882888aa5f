"""Why the API server does not answer, with the remedy; each cause is produced for real."""

import os
import socket
import ssl
from pathlib import Path

import pytest
import urllib3

from tests.kube import faulty
from tests.ports import free_port
from tests.rig.cluster.credentials import write_kubeconfig
from watchdog.kube.client import Api, ApiResponse
from watchdog.kube.failure import ApiUnreachableError, explain, is_certificate

REFUSED = "its certificate is not accepted: "
EXPIRED = "certificate has expired; renew the API server's certificate, or correct this node's clock if it is ahead"
EARLY = (
    "certificate is not yet valid; correct this node's clock if it is behind, otherwise reissue the certificate: the "
    "issuer's clock was ahead"
)
AUTHORITY = (
    "unable to get local issuer certificate; check that the authority in the kubeconfig (in a pod: ca.crt of the "
    "service account) is the one that signed it, and that nothing in between, like a proxy, answers in the API "
    "server's place"
)
NAME = (
    "IP address mismatch, certificate is not valid for '127.0.0.1'; use a name or address that is in the certificate "
    "as `server` of the kubeconfig, or have a certificate issued for this one"
)
SILENT = (
    "it accepts the connection but does not respond; check whether the API server hangs or is overloaded, or something "
    "in between drops packets (firewall, MTU)"
)
BROKE = (
    "the connection broke; the API server may be restarting: if it stays so, check its log, and any proxy in "
    "front of it"
)
Server = tuple[faulty.Handler | None, str | None]
ROWS: dict[str, tuple[Server, str]] = {
    "silent before TLS": ((None, None), SILENT),
    "silent after TLS": ((None, "good"), SILENT),
    "hangs up": ((faulty.hangs_up, "good"), BROKE),
    "half an answer": ((faulty.answers("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"), "good"), BROKE),
    "no TLS": (
        (faulty.answers("HTTP/1.1 400 Bad Request\r\n\r\n"), None),
        "it does not speak TLS; check the port, and what listens there",
    ),
    "no HTTP": (
        (faulty.answers("220 mail\r\n"), "good"),
        "what answers there does not speak HTTP; check the address and the port",
    ),
    "expired": ((None, "expired"), REFUSED + EXPIRED),
    "not yet valid": ((None, "early"), REFUSED + EARLY),
    "unknown authority": ((None, "foreign"), REFUSED + AUTHORITY),
    "another name": ((None, "of another name"), REFUSED + NAME),
}


def _problem(tmp_path: Path, url: str) -> str:
    kubeconfig = write_kubeconfig(tmp_path / "config", server=url, ca=faulty.authority().certificate, token="t")
    with Api(kubeconfig) as api, pytest.raises(ApiUnreachableError) as caught:
        api.call("GET", "/version", read_timeout_s=0.5)
    sentence = str(caught.value)
    assert sentence.startswith(f"{url}: ")
    return sentence.removeprefix(f"{url}: ")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "silent before TLS")) for name in ROWS]
)
def test_each_cause_has_its_message(tmp_path: Path, name: str) -> None:
    """The message says what is wrong and what to do, in one sentence with one semicolon."""
    (handle, certificate), expected = ROWS[name]
    with faulty.server(handle, faulty.certificate(certificate) if certificate else None) as port:
        reported = _problem(tmp_path, f"https://127.0.0.1:{port}")
    assert reported == expected
    assert reported.count("; ") == 1
    assert "\n" not in reported


def test_nothing_listens(tmp_path: Path) -> None:
    """A connection to a port without a listener is refused at once."""
    reported = _problem(tmp_path, f"https://127.0.0.1:{free_port()}")
    assert (
        reported
        == "Connection refused: nothing listens there; check that the API server is up, and that its address is right"
    )


def test_a_name_without_an_address(tmp_path: Path) -> None:
    """A name that no name server knows, or without a name server: RFC 6761 reserves `.invalid`."""
    reported = _problem(tmp_path, "https://no-such-host.invalid:6443")
    assert reported.startswith("its name can't be resolved: ")
    assert reported.endswith(
        (
            "; check `server` in the kubeconfig, and this node's DNS",
            "; no name server answers: check this node's DNS (/etc/resolv.conf, in a pod: dnsPolicy)",
        )
    )


def test_a_missing_client_certificate(tmp_path: Path) -> None:
    """A TLS alert about our certificate has its own message, not that of a broken connection."""
    with faulty.server(faulty.answers(""), faulty.certificate(), wants_client=True) as port:
        reported = _problem(tmp_path, f"https://127.0.0.1:{port}")
    # The server's alert comes after our request (TLS 1.3), so the reset may be quicker than it.
    assert reported.startswith(("it requires a client certificate, and this account has none", "the connection broke"))


def test_a_proxy_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the proxy of the environment: the API server itself may be fine."""
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert _problem(tmp_path, "https://127.0.0.1:6443") == (
        "the proxy does not lead there: Connection refused; put the API server's address into NO_PROXY, or correct "
        "HTTPS_PROXY (in a kubeconfig: proxy-url)"
    )


@pytest.mark.parametrize(
    ("error", "start"),
    [
        (101, "Network is unreachable; check the network of this node"),
        (113, "No route to host; check the network of this node"),
        (1, "Operation not permitted, by a firewall of this node; "),
        (24, "Too many open files here; raise the limit"),
        (RuntimeError("odd"), "RuntimeError: odd; run `gpu-watchdog doctor` on this node"),
    ],
)
def test_errors_that_no_server_on_loopback_causes(error: int | Exception, start: str) -> None:
    """Those of the kernel, which the transport passes on as OSError, are known by number; others keep their name."""
    problem = explain(OSError(error, os.strerror(error)) if isinstance(error, int) else error, "x")
    assert str(problem).startswith(f"x: {start}")


def test_no_answer_to_a_connection() -> None:
    """A connection that is not accepted differs from one that is accepted and then silent."""
    timeout = urllib3.exceptions.ConnectTimeoutError(None, "Connection to 10.0.0.1 timed out. (connect timeout=5.0)")
    timeout.__cause__ = TimeoutError("timed out")
    assert str(explain(timeout, "x")).startswith("x: it can't be connected to: no answer; check what is in between")


def test_certificate_errors_are_recognized() -> None:
    """A rejected certificate is recognized through every wrapping."""
    inner = ssl.SSLCertVerificationError(1, "x")
    assert is_certificate(urllib3.exceptions.MaxRetryError(None, "/", urllib3.exceptions.SSLError(inner)))  # type: ignore[arg-type]
    assert not is_certificate(ssl.SSLError(1, "x"))
    assert not is_certificate(socket.gaierror(-2, "x"))


@pytest.mark.parametrize(
    ("status", "body", "reported"),
    [
        (401, b"", "401; this account's token or certificate has expired"),
        (403, b'{"message":"pods is forbidden"}', "403: pods is forbidden; this account lacks the right: apply what"),
        (403, b'{"message":"ValidatingAdmissionPolicy a denied"}', "denied; an admission policy denies it regardless"),
        (403, b'{"message":"User \\"system:anonymous\\" cannot"}', "cannot; no credentials were sent: give the"),
        (429, b"", "429; it throttles this account"),
        (302, b"", "302; that is not the API server"),
        (502, b"<html>\n<b>", "502: <html> <b>; the API server, or a proxy in front of it, is failing"),
        (404, b"", "404"),
    ],
)
def test_refusals(status: int, body: bytes, reported: str) -> None:
    """A refusal is reported in the server's words, with the remedy if it is known."""
    assert reported in str(ApiResponse(status, body, {}).problem("pods"))


def test_the_caller_knows_the_remedy_for_an_admission_policy() -> None:
    """More rights don't help against an admission policy: the caller's remedy is used instead."""
    body = b'{"message":"nodes \\"n\\" is forbidden: ValidatingAdmissionPolicy \'a\' denied request"}'
    reported = str(ApiResponse(403, body, {}).problem("taking x back", against_policy="run it elsewhere"))
    assert reported.endswith("denied request; run it elsewhere")
    other = ApiResponse(403, b"{}", {}).problem("x", against_policy="elsewhere")
    assert "this account lacks the right: apply" in other.remedy
