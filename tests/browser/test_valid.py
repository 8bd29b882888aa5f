"""The status page as a document: HTML and CSS that the W3C's checker accepts."""

import subprocess
import urllib.request

import pytest

from tests.node.support import cannot_run
from tests.rig import Daemon
from tools.programs import NoProgramsError, vnu

pytestmark = [pytest.mark.node, pytest.mark.slow]


def test_the_page_is_valid_html(state: Daemon) -> None:
    """In each state of the node the checker finds nothing, not even to warn of."""
    try:
        command = vnu()
    except NoProgramsError as error:
        cannot_run(str(error))
    with urllib.request.urlopen(f"http://127.0.0.1:{state.port}/", timeout=30) as answer:
        page: bytes = answer.read()
    done = subprocess.run([*command, "--Werror", "-"], input=page, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
