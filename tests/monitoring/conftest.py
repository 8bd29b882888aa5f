"""What the tests of the monitoring stack share; each server ends with its fixture."""

from collections.abc import Iterator

import pytest

from tests.monitoring.webhook import Webhook


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    """A receiver of notifications."""
    with Webhook() as receiver:
        yield receiver
