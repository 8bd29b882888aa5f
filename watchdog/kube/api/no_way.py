"""Why there is no way to the API server, as a sentence: a kubeconfig or a service account that can't be read."""

import re
from pathlib import Path
from typing import Final

from yaml import MarkedYAMLError, YAMLError

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# By a part of what InClusterConfigLoader in kubernetes/config/incluster_config.py says.
_IN_POD: Final = {
    "host/port": "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is no pod; give --kubeconfig "
    "FILE, or run in a pod with a service account",
    "oken file does": f"this pod has no token of a service account ({_ACCOUNT}/token); give the pod its "
    "serviceAccountName without automountServiceAccountToken: false, or give --kubeconfig FILE",
    "oken file": f"the token {_ACCOUNT}/token is empty; delete this pod, so that it gets a new one",
    "ert": f"the certificate of the cluster's authority ({_ACCOUNT}/ca.crt) is missing or empty; look at the ConfigMap "
    "kube-root-ca.crt in the namespace of this pod",
}
_PREFIX: Final = re.compile(r"^Invalid kube-config( file)?\. *")

UNUSABLE_PROXY: Final = (
    "there is no way to the API server: the proxy that is to be used (HTTPS_PROXY, or `proxy-url` in the kubeconfig) "
    "is no URL like http://HOST:PORT; correct it, or name the API server's address in NO_PROXY"
)


def no_way(error: BaseException, kubeconfig: Path | None) -> str:
    """Say in a sentence why the configuration of a way to the API can't be used, and what to do."""
    why = _in_pod(error) if kubeconfig is None else _by_file(error, kubeconfig)
    return f"there is no way to the API server: {why}"


def _in_pod(error: BaseException) -> str:
    if isinstance(error, OSError):
        place = error.filename or _ACCOUNT
        return f"{place} can't be read: {error.strerror}; run as a user that may read it (fsGroup, runAsUser)"
    text = str(error)
    for part, sentence in _IN_POD.items():
        if part in text:
            return sentence
    return f"the service account of this pod can't be used: {text}; look at what is mounted in {_ACCOUNT}"


def _by_file(error: BaseException, path: Path) -> str:
    if isinstance(error, OSError) and error.filename in (None, str(path)):
        return (
            f"the kubeconfig {path} can't be read: {error.strerror or error}; name the right file with --kubeconfig, "
            "and let this account read it"
        )
    return (
        f"the kubeconfig {path} is not usable: {_fault(error)}; correct it until `kubectl --kubeconfig {path} get "
        "--raw /version` works"
    )


def _fault(error: BaseException) -> str:
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"no YAML in line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    if isinstance(error, YAMLError):
        return "it is no YAML"
    if isinstance(error, KeyError | TypeError | AttributeError):
        return "it does not have the form of a kubeconfig"
    return _PREFIX.sub("", " ".join(str(error).split()))
