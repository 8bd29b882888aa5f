"""Archives that are the same to the byte for equal contents, regardless of who packs them and when."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A file of an archive: its name there, its bytes or the file that has them, and its mode."""

    name: str
    content: bytes | Path
    mode: int = 0o644


def write_tar(archive: Path, files: Iterable[Packed], epoch: int) -> None:
    """Write files by their names' order, all of one time, of root."""
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        for each in sorted(files, key=lambda file: file.name):
            info = tarfile.TarInfo(each.name)
            info.mtime, info.mode = epoch, each.mode
            if isinstance(each.content, Path):
                info.size = each.content.stat().st_size
                with each.content.open("rb") as source:
                    tar.addfile(info, source)
            else:
                info.size = len(each.content)
                tar.addfile(info, io.BytesIO(each.content))


def pack_again(archive: Path, epoch: int) -> None:
    """Write a gzipped tar again without the time of its making: helm writes the clock's into each file's entry."""
    with tarfile.open(archive, "r:gz") as tar:
        files = [
            Packed(name=member.name, content=source.read())
            for member in tar
            if member.isfile() and (source := tar.extractfile(member)) is not None
        ]
    plain = archive.with_suffix(".tar")
    write_tar(plain, files, epoch)
    # No name and no time in the head.
    archive.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    plain.unlink()


def sha256(path: Path) -> str:
    """The hash of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
