"""A daemon that answers, with its journal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.explain.site import Site
from watchdog.export.http_server import HttpServer


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(journal=tmp_path / "journal.db")
    server = HttpServer("127.0.0.1:0", made.endpoints)
    server.start()
    made.url = f"http://127.0.0.1:{server.port}"
    yield made
    server.close()
