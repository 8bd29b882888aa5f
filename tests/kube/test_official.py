"""The official client: what it loads, and what it loads only when it is needed."""

import subprocess
import sys
from typing import Final

UNUSED: Final = ("oauthlib", "pydantic", "pydantic_core", "requests", "requests_oauthlib", "websocket")


def run(code: str) -> str:
    """What a new Python process prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_it_comes_without_the_libraries_that_are_not_used() -> None:
    """A daemon with the API does not load a WebSocket library, pydantic or requests: 16 MiB on every node."""
    code = f"import sys, watchdog.daemon.cluster; print(sorted({set(UNUSED)} & set(sys.modules)))"
    assert run(code) == "[]"


def test_an_oidc_token_is_refreshed_with_the_real_libraries() -> None:
    """The libraries that refresh the token of an `auth-provider: oidc` are loaded on use, with their errors."""
    code = (
        "import watchdog.kube.official, kubernetes.config.kube_config as used\n"
        "session = used.OAuth2Session(client_id='a')\n"
        "import oauthlib.oauth2, requests_oauthlib\n"
        "print(type(session) is requests_oauthlib.OAuth2Session)\n"
        "print(type(used.ApiClient()).__name__)\n"
        "real = oauthlib.oauth2.rfc6749.errors.InvalidClientIdError\n"
        "print(used.oauthlib.oauth2.rfc6749.errors.InvalidClientIdError is real)\n"
    )
    assert run(code).split() == ["True", "ApiClient", "True"]
