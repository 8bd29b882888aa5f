"""The configuration of the way to the API server: a kubeconfig, or the service account of the pod that this runs in."""

from pathlib import Path

from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config
from urllib3 import Retry
from urllib3.exceptions import HTTPError
from yaml import YAMLError

from watchdog.kube.api.answers import ApiConfigError
from watchdog.kube.api.no_way import UNUSABLE_PROXY, no_way


def open_client(kubeconfig: Path | None) -> ApiClient:
    """A client by this file, or in-cluster; ApiConfigError where there is no such way."""
    configuration = Configuration()
    try:
        if kubeconfig is None:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            # The library takes a file that is not there for an empty one.
            kubeconfig.open("rb").close()
            load_kube_config(str(kubeconfig), client_configuration=configuration, persist_config=False)  # type: ignore[no-untyped-call]
        _check_address(configuration.host)
    except (ConfigException, YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ApiConfigError(no_way(error, kubeconfig)) from error
    configuration.keep_alive = True
    # urllib3 would repeat requests by itself, among them 429 and 503 after their Retry-After.
    configuration.retries = Retry(total=False, redirect=False)
    try:
        return ApiClient(configuration)
    except (HTTPError, ImportError) as error:  # only the proxy is looked at here; its URL may have a password in it
        raise ApiConfigError(UNUSABLE_PROXY) from error


def authorize(client: ApiClient, kubeconfig: Path | None, headers: dict[str, str]) -> None:
    """Add the account's token, where it has one; ApiConfigError where it can't be read, or not be sent."""
    try:
        client.update_params_for_auth(headers, [], ["BearerToken"], "", "GET", None)
    except (ConfigException, OSError, ValueError) as error:
        raise ApiConfigError(no_way(error, kubeconfig)) from error
    token = headers.get("authorization", "").strip()  # a line's end after a token is no part of it
    if not (token.isascii() and token.isprintable()):
        # The transport's own exception would have the token in it.
        odd = ValueError("its token holds characters that no token has, like a line break in the middle")
        raise ApiConfigError(no_way(odd, kubeconfig))
    if token:
        headers["authorization"] = token


def _check_address(host: str) -> None:
    if not host.startswith(("https://", "http://")):
        raise ValueError(f"its server {host!r} does not begin with https://")
