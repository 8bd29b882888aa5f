"""The client's configuration: what a kubeconfig or a service account lacks is reported before anything is sent."""

import contextlib
import json
import socket
import threading
import time
from pathlib import Path
from typing import Final

import pytest
import yaml
from kubernetes.config import ConfigException

from tests.kube import faulty
from tests.node.support import run_python, wait_until
from tests.rig.cluster.credentials import write_kubeconfig
from watchdog.kube.client import Api
from watchdog.kube.failure import ApiConfigError, ApiError, configuration_problem


def _problem(kubeconfig: Path | None) -> str:
    with Api(kubeconfig) as api, pytest.raises(ApiConfigError) as caught:
        api.call("GET", "/version")
    sentence = str(caught.value)
    assert sentence.startswith("the API server can't be used: ")
    assert sentence.count("; ") == 1
    return sentence.removeprefix("the API server can't be used: ")


def test_a_missing_kubeconfig(tmp_path: Path) -> None:
    """A missing file and a folder have their own messages."""
    remedy = "; name the right file with --kubeconfig, and let this account read it"
    path = tmp_path / "config"
    assert _problem(path) == f"the kubeconfig {path} can't be read: No such file or directory{remedy}"
    assert _problem(tmp_path) == f"the kubeconfig {tmp_path} can't be read: Is a directory{remedy}"


def _changed(tmp_path: Path, **changes: object) -> Path:
    """A kubeconfig with another `proxy-url` of its cluster, or another user."""
    config = write_kubeconfig(tmp_path / "config", server="https://127.0.0.1:1", ca=None, token="t")
    document = yaml.safe_load(config.read_text())
    document["clusters"][0]["cluster"]["proxy-url"] = changes.get("proxy")
    document["users"][0]["user"] = changes.get("user", {"token": "t"})
    config.write_text(yaml.safe_dump(document))
    return config


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.DependencyWarning")
@pytest.mark.parametrize(
    "proxy", ["proxy.local:3128", "ftp://me:secret@proxy:1", "http://me:secret@[::1", "socks5://p:1"]
)
def test_an_invalid_proxy(tmp_path: Path, proxy: str) -> None:
    """The library's exception would end the thread that watches the pods, and put the password into the log."""
    reported = _problem(_changed(tmp_path, proxy=proxy))
    assert reported.startswith("the configured proxy (HTTPS_PROXY, or `proxy-url` in the kubeconfig) is not a URL")
    assert "secret" not in reported


@pytest.mark.slow
def test_the_end_does_not_wait_for_a_plugin(tmp_path: Path) -> None:
    """An `exec` plugin that hangs delays only its own thread: the daemon still ends within a second."""
    begun = tmp_path / "begun"
    script = ["-c", f"touch {begun}; exec sleep 4"]
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": script}
    api = Api(_changed(tmp_path, user={"exec": plugin}))
    asking = threading.Thread(target=_ask_in_vain, args=(api,), daemon=True)
    asking.start()
    wait_until(begun.exists)
    began_s = time.monotonic()
    api.close()
    assert time.monotonic() - began_s < 1.0
    assert asking.is_alive()
    asking.join(20)


def _ask_in_vain(api: Api) -> None:
    with contextlib.suppress(ApiError):
        api.call("GET", "/version")


@pytest.mark.parametrize("token", ["two\nlines", "tökén", "\x1b[2Jx"])
def test_an_invalid_token(tmp_path: Path, token: str) -> None:
    """It is rejected here, and never quoted in a message: the transport's own exception would quote it."""
    config = write_kubeconfig(tmp_path / "config", server="https://127.0.0.1:1", ca=None, token=token)
    reported = _problem(config)
    assert "its token contains characters that no token has" in reported
    assert token not in reported


def test_a_line_break_after_a_token_is_ignored(tmp_path: Path) -> None:
    """An editor adds one to a token file."""
    seen: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        seen.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with faulty.server(answer, faulty.certificate()) as port:
        url, ca = f"https://127.0.0.1:{port}", faulty.authority().certificate
        config = write_kubeconfig(tmp_path / "config", server=url, ca=ca, token="secret\n")
        with Api(config) as api:
            assert api.call("GET", "/version").is_good
    assert b"\r\nauthorization: Bearer secret\r\n" in seen[0]


def test_a_fixed_configuration_is_used(tmp_path: Path) -> None:
    """A configuration that could not be read is read again at the next request."""
    path = tmp_path / "config"
    with Api(path) as api:
        with pytest.raises(ApiConfigError):
            api.call("GET", "/version")
        body = json.dumps({"gitVersion": "v1.34.4"})
        text = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        with faulty.server(faulty.answers(text), faulty.certificate()) as port:
            write_kubeconfig(path, server=f"https://127.0.0.1:{port}", ca=faulty.authority().certificate, token="t")
            assert api.call("GET", "/version").body == body.encode()


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        ("Service host/port is not set.", "this is not a pod; give --kubeconfig FILE, or run in a pod"),
        ("Service token file does not exist.", "this pod has no token of a service account ("),
        ("Token file exists but empty.", "/token is empty; delete this pod, so that it gets a new one"),
        ("Service certification file does not exist.", "ca.crt) is missing or empty; check the ConfigMap kube-root"),
        ("Cert file exists but empty.", "ca.crt) is missing or empty; check the ConfigMap kube-root"),
        (PermissionError(13, "Permission denied", "/token"), "/token can't be read: Permission denied; run as a user"),
        ("of another version", "the service account of this pod can't be used: of another version; "),
    ],
)
def test_problems_of_a_service_account(error: Exception | str, reported: str) -> None:
    """Each of the library's errors about a pod's service account has its own message and remedy."""
    problem = configuration_problem(ConfigException(error) if isinstance(error, str) else error)
    assert reported in str(problem)
    assert problem.remedy


UNUSED: Final = ("oauthlib", "pydantic", "pydantic_core", "requests", "requests_oauthlib", "websocket")


def test_it_comes_without_the_libraries_that_are_not_used() -> None:
    """A daemon with the API does not load a WebSocket library, pydantic or requests: 16 MiB on every node."""
    code = f"import sys, watchdog.daemon.cluster; print(sorted({set(UNUSED)} & set(sys.modules)))"
    assert run_python(code) == "[]\n"


def test_an_oidc_token_is_refreshed_with_the_real_libraries() -> None:
    """The libraries that refresh the token of an `auth-provider: oidc` are loaded on use, with their errors."""
    code = """
        import watchdog.kube.official, kubernetes.config.kube_config as used
        session = used.OAuth2Session(client_id="a")
        import oauthlib.oauth2, requests_oauthlib
        print(type(session) is requests_oauthlib.OAuth2Session, type(used.ApiClient()).__name__)
        real = oauthlib.oauth2.rfc6749.errors.InvalidClientIdError
        print(used.oauthlib.oauth2.rfc6749.errors.InvalidClientIdError is real)
    """
    assert run_python(code).split() == ["True", "ApiClient", "True"]
