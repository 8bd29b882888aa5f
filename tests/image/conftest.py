"""The image of the session."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.builder import Builder
from tests.node.support import cannot_run, need_root


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """A store of images of the session's own."""
    need_root()
    if missing := [name for name in ("buildah", "debootstrap", "tar") if shutil.which(name) is None]:
        cannot_run(f"the image is built with {', '.join(missing)} (Debian: apt-get install buildah debootstrap)")
    made = Builder(tmp_path_factory.mktemp("images"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def image(builder: Builder) -> str:
    """The image of this checkout, on the base without a shell."""
    return builder.build("bare", run_base="localhost/base:without-shell")


@pytest.fixture(scope="session")
def root(builder: Builder, image: str) -> Iterator[Path]:
    """Its files."""
    with builder.root(image) as folder:
        yield folder
