"""A daemon that can be asked, with its journal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.explain.site import Site
from watchdog.export.endpoints import Endpoints
from watchdog.export.http_server import HttpServer
from watchdog.export.metrics import Metrics


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    endpoints = Endpoints(Metrics(), 1.0)
    server = HttpServer("127.0.0.1:0", endpoints)
    server.start()
    yield Site(endpoints=endpoints, url=f"http://127.0.0.1:{server.port}", journal=tmp_path / "journal.db")
    server.close()
