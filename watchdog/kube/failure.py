"""Why the API server cannot be reached: an exception -> cause and remedy."""

import errno
import http.client
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import urllib3
from yaml import MarkedYAMLError, YAMLError

from watchdog.core.errors import Problem

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
_PREFIX: Final = re.compile(r"^Invalid kube-config( file)?\. *")

UNUSABLE_PROXY: Final = Problem(
    "there is no way to the API server: the proxy that is to be used (HTTPS_PROXY, or `proxy-url` in the kubeconfig) "
    "is not a URL like http://HOST:PORT",
    "correct it, or name the API server's address in NO_PROXY",
)


def no_way(error: BaseException, kubeconfig: Path | None) -> Problem:
    """Why the API can't be used with this configuration."""
    problem = _in_pod(error) if kubeconfig is None else _by_file(error, kubeconfig)
    return problem.of("there is no way to the API server")


def _in_pod(error: BaseException) -> Problem:
    if isinstance(error, OSError):
        place = error.filename or _ACCOUNT
        return Problem(
            f"{place} can't be read: {error.strerror}", "run as a user that may read it (fsGroup, runAsUser)"
        )
    text = str(error)
    for part, problem in _IN_POD.items():
        if part in text:
            return problem
    return Problem(f"the service account of this pod can't be used: {text}", f"check what is mounted in {_ACCOUNT}")


def _by_file(error: BaseException, path: Path) -> Problem:
    if isinstance(error, OSError) and error.filename in (None, str(path)):
        return Problem(
            f"the kubeconfig {path} can't be read: {error.strerror or error}",
            "name the right file with --kubeconfig, and let this account read it",
        )
    return Problem(
        f"the kubeconfig {path} is not usable: {_fault(error)}",
        f"correct it until `kubectl --kubeconfig {path} get --raw /version` works",
    )


def _fault(error: BaseException) -> str:
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"invalid YAML in line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    if isinstance(error, YAMLError):
        return "it is not YAML"
    if isinstance(error, KeyError | TypeError | AttributeError):
        return "it does not have the form of a kubeconfig"
    return _PREFIX.sub("", " ".join(str(error).split()))


Chain = Sequence[BaseException]

_ERRNOS: Final = {
    errno.ECONNREFUSED: Problem(
        "{said}: nothing listens there", "check that the API server is up, and that its address is right"
    ),
    errno.ENETUNREACH: Problem("{said}", "check the network of this node, which has no route there, and the address"),
    errno.EHOSTUNREACH: Problem("{said}", "check the network of this node, its firewall, and the address"),
    errno.EPERM: Problem("{said}, by a firewall of this node", "let this account connect to the API server"),
    errno.EACCES: Problem("{said}, by a firewall of this node", "let this account connect to the API server"),
    errno.EMFILE: Problem("{said} here", "raise the limit (LimitNOFILE)"),
}
_NO_ANSWER: Final = Problem(
    "it can't be connected to: no answer",
    "check what is in between (a firewall, a NetworkPolicy, routes), and whether the address is right",
)
_SILENT: Final = Problem(
    "it accepts the connection and stays silent",
    "check whether the API server hangs or is overloaded, or something in between drops packets (firewall, MTU)",
)
_BROKE: Final = Problem(
    "the connection broke",
    "the API server may be restarting: if it stays so, check its log, and any proxy in front of it",
)
_REFUSED: Final = "its certificate is not accepted: {said}"
# X509_V_ERR_CERT_NOT_YET_VALID, _CERT_HAS_EXPIRED, _HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH in openssl/x509_vfy.h.
_CERTIFICATES: Final = {
    9: Problem(
        _REFUSED,
        "correct this node's clock if it is behind, otherwise reissue the certificate: the clock by which it was "
        "made was ahead",
    ),
    10: Problem(_REFUSED, "renew the API server's certificate, or correct this node's clock if it is ahead"),
    **dict.fromkeys(
        (62, 64),
        Problem(
            _REFUSED,
            "use a name or address that is in the certificate as `server` of the kubeconfig, or have a certificate "
            "issued for this one",
        ),
    ),
}
_UNKNOWN_AUTHORITY: Final = Problem(
    _REFUSED,
    "check that the authority in the kubeconfig (in a pod: ca.crt of the service account) is the one that signed "
    "it, and that nothing in between, like a proxy, answers in the API server's place",
)
# Parts of the reason that OpenSSL gives (openssl/sslerr.h); alerts are what the server said about us.
_TLS: Final = {
    "ALERT_CERTIFICATE_EXPIRED": Problem("it says that this account's client certificate has expired", "renew it"),
    "CERTIFICATE_REQUIRED": Problem(
        "it wants a client certificate, and this account has none", "give one in the kubeconfig"
    ),
    "_ALERT_": Problem(
        "it rejects this account's client certificate or this version of TLS ({said})",
        "check that the certificate is signed by the authority for clients of this cluster",
    ),
    "WRONG_VERSION_NUMBER": Problem("it does not speak TLS", "check the port, and what listens there"),
    "NO_CERTIFICATE_OR_CRL_FOUND": Problem(
        "the file of the cluster's authority contains no certificate",
        "correct certificate-authority in the kubeconfig (in a pod: the ConfigMap kube-root-ca.crt)",
    ),
    "KEY_VALUES_MISMATCH": Problem(
        "client certificate and key do not belong together", "correct them in the kubeconfig"
    ),
}


def explain(error: BaseException, place: str) -> Problem:
    """Why no response came from a place."""
    chain = list(_chain(error))
    for judge in _JUDGES:
        problem = judge(chain)
        if problem is not None:
            return Problem(f"{place}: {' '.join(problem.cause.split())}", problem.remedy)
    last = chain[-1]
    return Problem(f"{place}: {type(last).__name__}: {last}", "run `gpu-watchdog doctor` on this node")


def is_certificate(error: BaseException) -> bool:
    """Whether the server's certificate was not accepted."""
    return any(isinstance(each, ssl.SSLCertVerificationError) for each in _chain(error))


def _proxy(chain: Chain) -> Problem | None:
    if not any(isinstance(each, urllib3.exceptions.ProxyError) for each in chain):
        return None
    cause = next((str(each) for each in reversed(chain) if isinstance(each, OSError)), "no answer")
    said = re.sub(r"^.Errno [0-9]+. ", "", cause)
    return Problem(
        f"the proxy does not lead there: {said}",
        "put the API server's address into NO_PROXY, or correct HTTPS_PROXY (in a kubeconfig: proxy-url)",
    )


def _certificate(chain: Chain) -> Problem | None:
    for each in chain:
        if isinstance(each, ssl.SSLCertVerificationError):
            problem = _CERTIFICATES.get(each.verify_code, _UNKNOWN_AUTHORITY)
            return _filled(problem, each.verify_message.rstrip("."))
    return None


def _tls(chain: Chain) -> Problem | None:
    for each in chain:
        if isinstance(each, ssl.SSLError) and each.reason:
            for part, problem in _TLS.items():
                if part in each.reason:
                    return _filled(problem, each.reason.replace("_", " ").lower())
    return None


def _name(chain: Chain) -> Problem | None:
    for each in chain:
        if isinstance(each, socket.gaierror):
            said = f"its name can't be resolved: {each.strerror}"
            if each.errno == socket.EAI_AGAIN:
                return Problem(
                    said, "no name server answers: check this node's DNS (/etc/resolv.conf, in a pod: dnsPolicy)"
                )
            return Problem(said, "check `server` in the kubeconfig, and this node's DNS")
    return None


def _file(chain: Chain) -> Problem | None:
    for each in chain:
        if isinstance(each, OSError) and each.filename:
            return Problem(
                f"{each.filename} can't be read: {each.strerror}",
                "check that it exists, and that this account may read it",
            )
    return None


def _system(chain: Chain) -> Problem | None:
    for each in chain:
        if isinstance(each, OSError) and each.errno in _ERRNOS:
            return _filled(_ERRNOS[each.errno], each.strerror or str(each))
    return None


def _filled(problem: Problem, said: str) -> Problem:
    return Problem(problem.cause.format(said=said), problem.remedy)


def _silence(chain: Chain) -> Problem | None:
    if not any(isinstance(each, TimeoutError | urllib3.exceptions.TimeoutError) for each in chain):
        return None
    connecting = any(isinstance(each, urllib3.exceptions.ConnectTimeoutError) for each in chain)
    return _NO_ANSWER if connecting and not any("handshake" in str(each) for each in chain) else _SILENT


def _protocol(chain: Chain) -> Problem | None:
    broken = (ConnectionError, http.client.IncompleteRead, ssl.SSLEOFError, ssl.SSLZeroReturnError)
    if any(isinstance(each, broken) for each in chain):
        return _BROKE
    for each in chain:
        if isinstance(each, http.client.BadStatusLine):
            return Problem("what answers there does not speak HTTP", "check the address and the port")
        if isinstance(each, urllib3.exceptions.LocationValueError):
            return Problem(
                f"that is not an address: {each}", "correct `server` in the kubeconfig, like https://10.0.0.1:6443"
            )
    return None


_JUDGES: Final[tuple[Callable[[Chain], Problem | None], ...]] = (
    *(_proxy, _certificate, _tls, _name, _file, _system, _silence, _protocol),
)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, down to the innermost; bounded, since a chain can be circular."""
    seen: list[BaseException] = []
    pending: list[BaseException] = [error]
    while pending and len(seen) < 20:
        each = pending.pop(0)
        if any(each is old for old in seen):
            continue
        seen.append(each)
        pending += [
            inner
            for inner in (each.__cause__, each.__context__, getattr(each, "reason", None))
            if isinstance(inner, BaseException)
        ]
        pending += [inner for inner in each.args if isinstance(inner, BaseException)]
    yield from seen
