"""What the tests of the chart and of Kustomize need."""

import pytest

from tests.node.support import cannot_run
from tools.programs import NoProgramsError, helm, programs


@pytest.fixture(scope="session")
def real_programs() -> None:
    """The real helm and the real kubectl are there, or the test can't run."""
    try:
        programs()
        helm()
    except NoProgramsError as error:
        cannot_run(str(error))
