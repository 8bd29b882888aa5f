"""Images without a registry: tar archives of one static program, for workloads and for the sandbox of a pod."""

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import Final

from tests.node.support import compiled

# `.test` is reserved (RFC 6761), so that nothing could ever be pulled under these names.
WORKLOAD: Final = "gpu-watchdog.test/workload:1"
SANDBOX: Final = "gpu-watchdog.test/sandbox:1"

_SOURCE: Final = Path(__file__).with_name("workload.c")
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def write_images(folder: Path) -> Path:
    """Build the program and write the archive of both images into a folder, for `ctr images import`."""
    program = compiled(_SOURCE, folder / "workload", "-std=gnu11", "-Wextra", "-static", "-s")
    return write_image(folder / "images.tar", program, WORKLOAD, SANDBOX)


def write_image(archive: Path, program: Path, *names: str) -> Path:
    """Write the archive of an image of one static program, under these names."""
    layer = _tar({program.name: (program.read_bytes(), 0o755)})
    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": names, "Layers": ["layer.tar"]}]
    archive.write_bytes(
        _tar(
            {
                "manifest.json": (json.dumps(manifest).encode(), 0o644),
                "config.json": (json.dumps(config).encode(), 0o644),
                "layer.tar": (layer, 0o644),
            }
        )
    )
    return archive


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    """Put files, each with its mode, into an archive; equal files give equal bytes."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return written.getvalue()
