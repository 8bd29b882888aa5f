"""The image of the session."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.image.builder import Builder
from tests.node.support import cannot_run, need_root
from tests.shared import once

_WITHOUT_SHELL: Final = "localhost/base:without-shell"


@pytest.fixture(scope="session")
def builder() -> Builder:
    """A store of images of the run's own: 1 GB, which goes with the run."""
    need_root()
    if missing := [name for name in ("buildah", "debootstrap", "tar", "setpriv") if shutil.which(name) is None]:
        cannot_run(f"the image is built with {', '.join(missing)} (Debian: apt-get install buildah debootstrap)")
    return Builder(once("images", lambda folder: Builder(folder).fill()))


@pytest.fixture(scope="session")
def image(builder: Builder) -> str:
    """The image of this checkout, on the base without a shell."""
    made = once("image", lambda folder: (folder / "name").write_text(builder.build("bare", run_base=_WITHOUT_SHELL)))
    return (made / "name").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def root(builder: Builder, image: str) -> Iterator[Path]:
    """Its files."""
    with builder.root(image) as folder:
        yield folder
