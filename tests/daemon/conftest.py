"""A container of real processes."""

from collections.abc import Iterator

import pytest

from tests.daemon.rig import Group


@pytest.fixture
def group() -> Iterator[Group]:
    """A container without processes so far; those that are started in it are ended afterwards."""
    made = Group()
    yield made
    made.close()
