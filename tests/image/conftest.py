"""The image of the session."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.image.builder import Builder
from tests.node.support import cannot_run, need_root

# Another folder that imports these fixtures has them as its own: one build serves all of them.
_BUILDER: Final = pytest.StashKey[Builder]()
_IMAGE: Final = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def builder(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """A store of images of the session's own."""
    if _BUILDER in pytestconfig.stash:
        yield pytestconfig.stash[_BUILDER]
        return
    need_root()
    if missing := [name for name in ("buildah", "debootstrap", "tar", "setpriv") if shutil.which(name) is None]:
        cannot_run(f"the image is built with {', '.join(missing)} (Debian: apt-get install buildah debootstrap)")
    made = pytestconfig.stash[_BUILDER] = Builder(tmp_path_factory.mktemp("images"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def image(pytestconfig: pytest.Config, builder: Builder) -> str:
    """The image of this checkout, on the base without a shell."""
    if _IMAGE not in pytestconfig.stash:
        pytestconfig.stash[_IMAGE] = builder.build("bare", run_base="localhost/base:without-shell")
    return pytestconfig.stash[_IMAGE]


@pytest.fixture(scope="session")
def root(builder: Builder, image: str) -> Iterator[Path]:
    """Its files."""
    with builder.root(image) as folder:
        yield folder
