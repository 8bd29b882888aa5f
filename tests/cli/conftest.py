"""A daemon that answers, with its journal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.explain_site import Site
from tests.report.build import serving
from tests.rig.kubectl import kubectl  # noqa: F401 - pytest finds fixtures by their names in here


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(journal=tmp_path / "journal.db")
    with serving(made.endpoints) as server:
        made.url = f"http://127.0.0.1:{server.port}"
        yield made
