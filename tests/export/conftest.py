"""What several tests of what is reported start from."""

import io
from collections.abc import Iterator

import pytest
import structlog

from tests.report.build import Clock
from watchdog.export.endpoints import Endpoints
from watchdog.export.log import configure
from watchdog.export.metrics import Metrics


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def endpoints(clock: Clock) -> Endpoints:
    """Endpoints before the first cycle."""
    return Endpoints(Metrics(), 1.0, clock)


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What the log writes."""
    stream = io.StringIO()
    configure(stream)
    yield stream
    structlog.reset_defaults()
