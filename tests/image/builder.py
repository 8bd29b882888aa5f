"""Building the image of a checkout, on a base of our own."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.node.support import REPOSITORY
from tools.release.base import base_archive, without_shell
from tools.release.store import Store

# The Kubernetes client's asynchronous half alone needs these.
LEFT_OUT: Final = frozenset(
    ("aiohttp", "aiohttp-retry", "aiohappyeyeballs", "aiosignal", "frozenlist", "multidict", "propcache", "yarl")
)


class Builder(Store):
    """A store of images, with the base in it, and one without a shell."""

    def fill(self) -> None:
        """Put the bases into it."""
        archive = base_archive()
        bare = self.folder / "bare.tar"
        without_shell(archive, bare)
        self.add(archive, "localhost/base:1")
        self.add(bare, "localhost/base:without-shell")
        bare.unlink()

    def build(
        self,
        tag: str,
        *,
        base: str = "localhost/base:1",
        run_base: str = "localhost/base:1",
        context: Path = REPOSITORY,
    ) -> str:
        """Build the Dockerfile of a checkout, this one, and give the image's name."""
        name = f"localhost/gpu-watchdog:{tag}"
        args = ["--build-arg", f"BASE={base}", "--build-arg", f"RUN_BASE={run_base}"]
        self.bud(context, name, "--format=docker", "--timestamp=0", *args)
        return name

    def save(self, name: str, archive: Path, called: str) -> None:
        """Write an image as an archive for `ctr images import`, under a name."""
        self.buildah("push", name, f"docker-archive:{archive}:{called}")

    @contextlib.contextmanager
    def root(self, name: str) -> Iterator[Path]:
        """The files of an image, mounted for as long as the context lasts."""
        container = self.buildah("from", "--pull-never", name).strip()
        try:
            yield Path(self.buildah("mount", container).strip())
        finally:
            self.buildah("rm", container)
