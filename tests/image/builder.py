"""Building the image by buildah, in a store of its own."""

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.image.base import base_archive, without_shell
from tests.node.support import REPOSITORY

_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_LIMIT_S: Final = 1200.0


class Builder:
    """A store of images, with the base in it, and one without a shell. `close` takes it away."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        archive = base_archive()
        bare = folder / "bare.tar"
        without_shell(archive, bare)
        self._import(archive, "localhost/base:1")
        self._import(bare, "localhost/base:without-shell")

    def command(self, *arguments: str) -> list[str]:
        """How buildah is run on this store; it ends with whoever started it."""
        # vfs and chroot: neither an overlay nor a container is needed to build, so that it works in a container too,
        # and no mount is left where the tests are killed. (With --root the variable STORAGE_DRIVER is passed over.)
        store = ["--storage-driver=vfs", f"--root={self.folder / 'store'}", f"--runroot={self.folder / 'run'}"]
        return ["setpriv", "--pdeathsig=KILL", "env", "BUILDAH_ISOLATION=chroot", "buildah", *store, *arguments]

    def build(
        self,
        tag: str,
        *,
        base: str = "localhost/base:1",
        run_base: str = "localhost/base:1",
        context: Path = REPOSITORY,
    ) -> str:
        """Build the Dockerfile of a checkout, this one, from nothing kept, and give the image's name."""
        name = f"localhost/gpu-watchdog:{tag}"
        args = ["--build-arg", f"BASE={base}", "--build-arg", f"RUN_BASE={run_base}"]
        self.buildah("bud", *_flags(), *args, "-t", name, str(context))
        return name

    def save(self, name: str, archive: Path, called: str) -> None:
        """Write an image as an archive for `ctr images import`, under a name."""
        self.buildah("push", name, f"docker-archive:{archive}:{called}")

    def inspect(self, name: str) -> dict[str, Any]:
        """What the image says of itself, its layers included."""
        found: dict[str, Any] = json.loads(self.buildah("inspect", name))
        return found

    @contextlib.contextmanager
    def root(self, name: str) -> Iterator[Path]:
        """The files of an image, mounted for as long as the context lasts."""
        container = self.buildah("from", "--pull-never", name).strip()
        try:
            yield Path(self.buildah("mount", container).strip())
        finally:
            self.buildah("rm", container)

    def close(self) -> None:
        """Take away all images, and what they were made of: 1 GB that pytest would keep for three sessions."""
        self.buildah("rm", "--all")
        self.buildah("rmi", "--all", "--force")
        for each in ("bare.tar", "base.tar"):
            (self.folder / each).unlink()
        shutil.rmtree(self.folder / "store")

    def buildah(self, *arguments: str) -> str:
        """Run buildah on this store. Raises AssertionError with what it said."""
        command = self.command(*arguments)
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert ended.returncode == 0, f"{' '.join(command)}:\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
        return ended.stdout

    def _import(self, archive: Path, name: str) -> None:
        file = self.folder / "Dockerfile"
        file.write_text("FROM scratch\nADD base.tar /\n", encoding="utf-8")
        shutil.copyfile(archive, self.folder / "base.tar")
        self.buildah("bud", "--timestamp=0", "-f", str(file), "-t", name, str(self.folder))


def _flags() -> list[str]:
    # The machine's own certificates, for whoever gets to the package index through a proxy that has one.
    mounts = ["-v", f"{_CERTIFICATES}:{_CERTIFICATES}:ro"] if _CERTIFICATES.is_file() else []
    return ["--format=docker", "--timestamp=0", "--no-cache", "--network=host", *mounts]
