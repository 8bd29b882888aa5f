"""The files of an image, read from its archive: without mounting it, and without running anything of it."""

import hashlib
import json
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

_WHITEOUT: Final = ".wh."
_OPAQUE: Final = ".wh..wh..opq"
_KIBIBYTES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What an OCI archive holds. `files` has the wanted files of all layers together; `links` where links lead to."""

    digest: str
    config: Mapping[str, Any]
    files: Mapping[str, bytes]
    links: Mapping[str, str]


class BrokenArchiveError(ValueError):
    """An archive's bytes are not those that its digests say."""


def read_image(archive: Path, wanted: Callable[[str], bool]) -> Image:
    """Read the image of an archive with one image in it. Raises BrokenArchiveError."""
    with tarfile.open(archive, "r:") as tar:
        (manifest,) = json.loads(_member(tar, "index.json").read())["manifests"]
        content = json.loads(_blob(tar, manifest["digest"]).read())
        config = json.loads(_blob(tar, content["config"]["digest"]).read())
        files: dict[str, bytes] = {}
        links: dict[str, str] = {}
        for layer in content["layers"]:
            _lay(_blob(tar, layer["digest"]), wanted, files, links)
    return Image(digest=manifest["digest"], config=config, files=files, links=links)


def _member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    try:
        found = tar.extractfile(name)
    except KeyError:
        found = None
    if found is None:
        raise BrokenArchiveError(f"the archive has no file {name}")
    return found


def _blob(tar: tarfile.TarFile, digest: str) -> IO[bytes]:
    name = f"blobs/{digest.replace(':', '/', 1)}"
    blob = _member(tar, name)
    found = hashlib.sha256()
    while chunk := blob.read(_KIBIBYTES * 1024):
        found.update(chunk)
    if digest != f"sha256:{found.hexdigest()}":
        raise BrokenArchiveError(f"{name} has the digest {found.hexdigest()}")
    blob.seek(0)
    return blob


def _lay(layer: IO[bytes], wanted: Callable[[str], bool], files: dict[str, bytes], links: dict[str, str]) -> None:
    """Put a layer over what is below it: https://github.com/opencontainers/image-spec/blob/main/layer.md, whiteouts."""
    below = {*files, *links}
    with tarfile.open(fileobj=layer, mode="r:*") as tar:
        for member in tar:
            path = PurePosixPath("/", member.name).relative_to("/")
            if path.name.startswith(_WHITEOUT):
                gone = path.parent if path.name == _OPAQUE else path.with_name(path.name.removeprefix(_WHITEOUT))
                _remove(str(gone), below, files, links)
                continue
            name = str(path)
            if not member.isdir():
                _remove(name, below, files, links)
            if not wanted(name):
                continue
            if member.issym():
                links[name] = member.linkname
            elif member.isfile() and (source := tar.extractfile(member)) is not None:
                files[name] = source.read()


def _remove(name: str, below: set[str], files: dict[str, bytes], links: dict[str, str]) -> None:
    for each in [known for known in below if known == name or known.startswith(f"{name}/")]:
        files.pop(each, None)
        links.pop(each, None)
        below.discard(each)
