"""Images in a folder of their own, made by buildah."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_LIMIT_S: Final = 1200.0


class Store:
    """A store of images in a folder. `close` takes it away."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, *arguments: str) -> list[str]:
        """How buildah is run on this store; it ends with the process that started it."""
        # vfs and chroot: neither an overlay nor a container is needed to build, so that it works in a container too,
        # and no mount is left where the tests are killed. (With --root the variable STORAGE_DRIVER is passed over.)
        store = ["--storage-driver=vfs", f"--root={self.folder / 'store'}", f"--runroot={self.folder / 'run'}"]
        return ["setpriv", "--pdeathsig=KILL", "env", "BUILDAH_ISOLATION=chroot", "buildah", *store, *arguments]

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

    def add(self, archive: Path, name: str) -> None:
        """Have an image whose one layer is an archive of a root folder."""
        file = self.folder / "Dockerfile"
        file.write_text("FROM scratch\nADD base.tar /\n", encoding="utf-8")
        copy = self.folder / "base.tar"
        shutil.copyfile(archive, copy)
        self.buildah("bud", "--timestamp=0", "-f", str(file), "-t", name, str(self.folder))
        copy.unlink()

    def bud(self, context: Path, name: str, *arguments: str) -> None:
        """Build a folder's Dockerfile, from nothing kept."""
        # The machine's own certificates, for machines that reach the package index through a proxy that has one.
        mounts = ["-v", f"{_CERTIFICATES}:{_CERTIFICATES}:ro"] if _CERTIFICATES.is_file() else []
        self.buildah("bud", "--no-cache", "--network=host", *mounts, *arguments, "-t", name, str(context))

    def inspect(self, name: str) -> dict[str, Any]:
        """What the image says of itself, its layers included."""
        found: dict[str, Any] = json.loads(self.buildah("inspect", "--type=image", name))
        return found

    def close(self) -> None:
        """Take away all images, and what they were made of: 1 GB that pytest would keep for three sessions."""
        self.buildah("rm", "--all")
        self.buildah("rmi", "--all", "--force")
        shutil.rmtree(self.folder / "store")
