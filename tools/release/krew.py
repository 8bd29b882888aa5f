"""The plugin of kubectl as krew installs it: an archive, and the manifest that says where it is and what is in it."""

import gzip
from pathlib import Path
from typing import Final

from tools.release.address import PLACEHOLDER
from tools.release.artifacts import IMAGE
from tools.release.checkout import Checkout
from tools.release.packing import Packed, sha256, write_tar
from tools.release.plugin import build_plugin

# krew demands that the file has the plugin's name.
MANIFEST: Final = "gpu-watchdog.yaml"


def pack_plugin(tree: Path, to: Path, scratch: Path, checkout: Checkout, url: str) -> None:
    """Write the archive of an exported tree's plugin, and its manifest; `url` is empty for the placeholder."""
    program = build_plugin(tree, scratch)
    files = (Packed(name=program.name, content=program, mode=0o755), Packed(name="LICENSE", content=tree / "LICENSE"))
    archive = to / f"{IMAGE}-{checkout.version}-kubectl.tar.gz"
    plain = scratch / "plugin.tar"
    write_tar(plain, files, checkout.epoch)
    # No name and no time in the head.
    archive.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    template = (tree / "deploy" / "krew" / MANIFEST).read_text(encoding="utf-8")
    where = f"{url or PLACEHOLDER}/releases/download/v{checkout.version}/{archive.name}"
    text = filled(template, version=checkout.version, archive=where, digest=sha256(archive))
    (to / MANIFEST).write_text(text, encoding="utf-8")


def filled(template: str, *, version: str, archive: str, digest: str) -> str:
    """The manifest of a release: without the template's comment."""
    text = template[template.index("apiVersion:") :]
    for old, new in (
        ("version: vVERSION\n", f"version: v{version}\n"),
        ("uri: ARCHIVE\n", f"uri: {archive}\n"),
        ("sha256: SHA256\n", f"sha256: {digest}\n"),
    ):
        assert text.count(old) == 1, f"deploy/krew/{MANIFEST} has no single {old!r}"
        text = text.replace(old, new)
    return text
