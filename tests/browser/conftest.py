"""One Chromium for all tests here, and one daemon for each state of the node."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.browsing import chromium
from tests.browser.full_node import full_node
from tests.browser.states import STATES
from tests.rig import Daemon
from watchdog.export.endpoints import Endpoints
from watchdog.export.http_server import HttpServer
from watchdog.export.metrics import Metrics


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A Chromium."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module", params=STATES)
def state(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """The daemon of a node in each of the states."""
    with STATES[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """The daemon of a node with 16 cards and 200 pods."""
    with full_node(tmp_path_factory.mktemp("full")) as running:
        yield running


@pytest.fixture
def endpoints() -> Iterator[tuple[Endpoints, str]]:
    """Endpoints, and the address at which it is served."""
    made = Endpoints(Metrics(), 1.0)
    server = HttpServer("127.0.0.1:0", made)
    server.start()
    yield made, f"http://127.0.0.1:{server.port}/?still"
    server.close()
