"""Why the API server, a daemon or a Prometheus can't be reached: errors, and an exception -> cause and remedy."""

import errno
import http.client
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import urllib3

from watchdog.core.errors import Problem, WatchdogError


class ApiError(WatchdogError):
    """A request to the API that could not be completed."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class ApiConfigError(ApiError):
    """The API can't be used: there is no configuration, or it can't be read."""


class ConfigurationError(Exception):
    """A configuration that can't be used: where in it, and why. `remedy` is empty if checking it with kubectl helps."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


class ApiUnreachableError(ApiError):
    """No response came: network, TLS, a timeout. Whether the request was carried out is not known."""


class ApiSilentError(ApiUnreachableError):
    """Nothing came within the read timeout."""


class ApiExcessError(ApiUnreachableError):
    """A response is larger, or takes longer, than any that is read."""


class DaemonError(WatchdogError):
    """A question to one daemon, or to the API server about all of them, has no answer."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# By a part of the message of InClusterConfigLoader in kubernetes/config/incluster_config.py.
_IN_POD: Final = {
    "host/port": Problem(
        "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is not a pod",
        "give --kubeconfig FILE, or run in a pod with a service account",
    ),
    "oken file does": Problem(
        f"this pod has no token of a service account ({_ACCOUNT}/token)",
        "give the pod its serviceAccountName without automountServiceAccountToken: false, or give --kubeconfig FILE",
    ),
    "oken file": Problem(f"the token {_ACCOUNT}/token is empty", "delete this pod, so that it gets a new one"),
    "ert": Problem(
        f"the certificate of the cluster's authority ({_ACCOUNT}/ca.crt) is missing or empty",
        "check the ConfigMap kube-root-ca.crt in the namespace of this pod",
    ),
}
UNUSABLE_PROXY: Final = Problem(
    "the API server can't be used: the configured proxy (HTTPS_PROXY, or `proxy-url` in the kubeconfig) "
    "is not a URL like http://HOST:PORT",
    "correct it, or name the API server's address in NO_PROXY",
)


def configuration_problem(error: BaseException, kubeconfig: str = "", kubectl: str = "") -> Problem:
    """Why the API can't be used with this configuration: a kubeconfig, that of the pod if it is empty.

    `kubectl` is the beginning of a command line that uses the same kubeconfig.
    """
    problem = _by_file(error, kubeconfig, kubectl) if kubeconfig else _in_pod(error)
    return problem.of("the API server can't be used")


def _in_pod(error: BaseException) -> Problem:
    if isinstance(error, OSError):
        place = error.filename or _ACCOUNT
        return Problem(
            f"{place} can't be read: {error.strerror}", "run as a user that may read it (fsGroup, runAsUser)"
        )
    if isinstance(error, ConfigurationError):
        return Problem(error.reason, error.remedy or f"check what is mounted in {_ACCOUNT}")
    text = "a file in it is not text" if isinstance(error, UnicodeDecodeError) else str(error)
    unknown = Problem(f"the service account of this pod can't be used: {text}", f"check what is mounted in {_ACCOUNT}")
    return next((problem for part, problem in _IN_POD.items() if part in text), unknown)


def _by_file(error: BaseException, name: str, kubectl: str) -> Problem:
    if isinstance(error, OSError):
        return Problem(
            f"the kubeconfig {name} can't be read: {error.strerror or error}",
            "name the right file with --kubeconfig, and let this account read it",
        )
    reason, remedy = (error.reason, error.remedy) if isinstance(error, ConfigurationError) else (str(error), "")
    return Problem(
        f"the kubeconfig {name} is not usable: {reason}",
        remedy or f"correct it until `{kubectl} get --raw /version` works",
    )


_FIREWALL: Final = Problem("{reason}, by a firewall of this node", "let this account connect to the API server")
_ERRNOS: Final = {
    errno.ECONNREFUSED: Problem(
        "{reason}: nothing listens there", "check that the API server is up, and that its address is right"
    ),
    errno.ENETUNREACH: Problem("{reason}", "check the network of this node, which has no route there, and the address"),
    errno.EHOSTUNREACH: Problem("{reason}", "check the network of this node, its firewall, and the address"),
    errno.EPERM: _FIREWALL,
    errno.EACCES: _FIREWALL,
    errno.EMFILE: Problem("{reason} here", "raise the limit (LimitNOFILE)"),
}
_NO_ANSWER: Final = Problem(
    "it can't be connected to: no answer",
    "check what is in between (a firewall, a NetworkPolicy, routes), and whether the address is right",
)
_SILENT: Final = Problem(
    "it accepts the connection but does not respond",
    "check whether the API server hangs or is overloaded, or something in between drops packets (firewall, MTU)",
)
_BROKE: Final = Problem(
    "the connection broke",
    "the API server may be restarting: if it stays so, check its log, and any proxy in front of it",
)
_REFUSED: Final = "its certificate is not accepted: {reason}"
_OTHER_NAME: Final = Problem(
    _REFUSED,
    "use a name or address that is in the certificate as `server` of the kubeconfig, or have a certificate issued for "
    "this one",
)
# X509_V_ERR_CERT_NOT_YET_VALID, _CERT_HAS_EXPIRED, _HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH in openssl/x509_vfy.h.
_CERTIFICATES: Final = {
    9: Problem(
        _REFUSED,
        "correct this node's clock if it is behind, otherwise reissue the certificate: the issuer's clock was ahead",
    ),
    10: Problem(_REFUSED, "renew the API server's certificate, or correct this node's clock if it is ahead"),
    62: _OTHER_NAME,
    64: _OTHER_NAME,
}
_UNKNOWN_AUTHORITY: Final = Problem(
    _REFUSED,
    "check that the authority in the kubeconfig (in a pod: ca.crt of the service account) is the one that signed "
    "it, and that nothing in between, like a proxy, answers in the API server's place",
)
# Parts of the reason that OpenSSL gives (openssl/sslerr.h); alerts are the server's judgement of this client.
_TLS: Final = {
    "ALERT_CERTIFICATE_EXPIRED": Problem("it reports that this account's client certificate has expired", "renew it"),
    "CERTIFICATE_REQUIRED": Problem(
        "it requires a client certificate, and this account has none", "give one in the kubeconfig"
    ),
    "_ALERT_": Problem(
        "it rejects this account's client certificate or this version of TLS ({reason})",
        "check that the certificate is signed by the authority for clients of this cluster",
    ),
    "WRONG_VERSION_NUMBER": Problem("it does not speak TLS", "check the port, and what listens there"),
    "NO_CERTIFICATE_OR_CRL_FOUND": Problem(
        "the file of the cluster's authority contains no certificate",
        "correct certificate-authority in the kubeconfig (in a pod: the ConfigMap kube-root-ca.crt)",
    ),
    "KEY_VALUES_MISMATCH": Problem("client certificate and key do not match", "correct them in the kubeconfig"),
}
Chain = Sequence[BaseException]
_Error = TypeVar("_Error", bound=BaseException)


def explain(error: BaseException, place: str) -> Problem:
    """Why no response came from a place."""
    chain = _chain(error)
    for diagnose in (_proxy, _certificate, _tls, _name, _file, _system, _silence, _protocol):
        problem = diagnose(chain)
        if problem is not None:
            return Problem(f"{place}: {' '.join(problem.cause.split())}", problem.remedy)
    last = chain[-1]
    return Problem(f"{place}: {type(last).__name__}: {last}", "run `gpu-watchdog doctor` on this node")


def is_certificate(error: BaseException) -> bool:
    """Whether the server's certificate was not accepted."""
    return _first(_chain(error), ssl.SSLCertVerificationError) is not None


def _chain(error: BaseException) -> Chain:
    """The error and its causes, down to the innermost; bounded, since a chain can be circular."""
    chain: list[BaseException] = []
    pending = [error]
    while pending and len(chain) < 20:
        current = pending.pop(0)
        if not any(current is seen for seen in chain):
            chain.append(current)
            causes = (current.__cause__, current.__context__, getattr(current, "reason", None), *current.args)
            pending += [cause for cause in causes if isinstance(cause, BaseException)]
    return chain


def _first(chain: Chain, kind: type[_Error], condition: Callable[[_Error], object] = lambda _: True) -> _Error | None:
    return next((error for error in chain if isinstance(error, kind) and condition(error)), None)


def _filled(problem: Problem, reason: str) -> Problem:
    return Problem(problem.cause.format(reason=reason), problem.remedy)


def _proxy(chain: Chain) -> Problem | None:
    if _first(chain, urllib3.exceptions.ProxyError) is None:
        return None
    cause = _first(chain[::-1], OSError)
    reason = "no answer" if cause is None else re.sub(r"^.Errno [0-9]+. ", "", str(cause))
    return Problem(
        f"the proxy does not lead there: {reason}",
        "put the API server's address into NO_PROXY, or correct HTTPS_PROXY (in a kubeconfig: proxy-url)",
    )


def _certificate(chain: Chain) -> Problem | None:
    error = _first(chain, ssl.SSLCertVerificationError)
    if error is None:
        return None
    return _filled(_CERTIFICATES.get(error.verify_code, _UNKNOWN_AUTHORITY), error.verify_message.rstrip("."))


def _tls(chain: Chain) -> Problem | None:
    for error in chain:
        if isinstance(error, ssl.SSLError) and error.reason:
            for part, problem in _TLS.items():
                if part in error.reason:
                    return _filled(problem, error.reason.replace("_", " ").lower())
    return None


def _name(chain: Chain) -> Problem | None:
    error = _first(chain, socket.gaierror)
    if error is None:
        return None
    remedy = "check `server` in the kubeconfig, and this node's DNS"
    if error.errno == socket.EAI_AGAIN:
        remedy = "no name server answers: check this node's DNS (/etc/resolv.conf, in a pod: dnsPolicy)"
    return Problem(f"its name can't be resolved: {error.strerror}", remedy)


def _file(chain: Chain) -> Problem | None:
    error = _first(chain, OSError, lambda error: error.filename)
    if error is None:
        return None
    return Problem(
        f"{error.filename} can't be read: {error.strerror}", "check that it exists, and that this account may read it"
    )


def _system(chain: Chain) -> Problem | None:
    error = _first(chain, OSError, lambda error: error.errno in _ERRNOS)
    return None if error is None else _filled(_ERRNOS[error.errno or 0], error.strerror or str(error))


def _silence(chain: Chain) -> Problem | None:
    if not any(isinstance(error, TimeoutError | urllib3.exceptions.TimeoutError) for error in chain):
        return None
    connecting = _first(chain, urllib3.exceptions.ConnectTimeoutError) is not None
    return _NO_ANSWER if connecting and not any("handshake" in str(error) for error in chain) else _SILENT


def _protocol(chain: Chain) -> Problem | None:
    broken = (ConnectionError, http.client.IncompleteRead, ssl.SSLEOFError, ssl.SSLZeroReturnError)
    if any(isinstance(error, broken) for error in chain):
        return _BROKE
    for error in chain:
        if isinstance(error, http.client.BadStatusLine):
            return Problem("what answers there does not speak HTTP", "check the address and the port")
        if isinstance(error, urllib3.exceptions.LocationValueError):
            return Problem(
                f"that is not an address: {error}", "correct `server` in the kubeconfig, like https://10.0.0.1:6443"
            )
    return None
