"""Files of an image's layers, and its Debian packages, from archives that the tests write."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tools.release import debian
from tools.release.layers import BrokenArchiveError, Image, read_image


def layer(files: dict[str, str]) -> bytes:
    """A gzipped layer."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return stream.getvalue()


def write_archive(path: Path, *layers: bytes) -> None:
    """An OCI archive of these layers."""
    blobs: dict[str, bytes] = {}

    def blob(content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}"}

    config = blob(json.dumps({"os": "linux", "architecture": "amd64"}).encode())
    manifest = blob(json.dumps({"config": config, "layers": [blob(each) for each in layers]}).encode())
    blobs["index.json"] = json.dumps({"manifests": [manifest]}).encode()
    with tarfile.open(path, "w") as tar:
        for name, content in blobs.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize(
    ("upper", "files"),
    [
        ({}, {"a/b": "1", "a/c": "2", "ab": "3"}),
        ({"a/b": "4"}, {"a/b": "4", "a/c": "2", "ab": "3"}),
        ({"./a/b": "4"}, {"a/b": "4", "a/c": "2", "ab": "3"}),
        ({"a/.wh.b": ""}, {"a/c": "2", "ab": "3"}),
        ({".wh.a": ""}, {"ab": "3"}),
        ({".wh.a": "", "a/b": "5"}, {"a/b": "5", "ab": "3"}),
        ({"a/b": "5", "a/.wh..wh..opq": ""}, {"a/b": "5", "ab": "3"}),
        ({".wh.abc": ""}, {"a/b": "1", "a/c": "2", "ab": "3"}),
    ],
)
def test_a_layer_covers_what_is_below(upper: dict[str, str], files: dict[str, str], tmp_path: Path) -> None:
    """What a layer takes away or replaces is not in the image, so it must not be in its list; in any order."""
    write_archive(tmp_path / "a.tar", layer({"a/b": "1", "a/c": "2", "ab": "3"}), layer(upper))
    found = read_image(tmp_path / "a.tar", lambda _name: True)
    assert {name: content.decode() for name, content in found.files.items()} == files


def test_a_broken_byte_is_noticed(tmp_path: Path) -> None:
    """A list is written of an archive whose bytes are those of its digests, or not at all."""
    archive = tmp_path / "a.tar"
    write_archive(archive, layer({"a": "1"}))
    content = bytearray(archive.read_bytes())
    content[content.index(b"amd64")] ^= 1
    archive.write_bytes(content)
    with pytest.raises(BrokenArchiveError, match="has the digest"):
        read_image(archive, lambda _name: True)


_STATUS = """\
Package: libexample1
Status: install ok installed
Architecture: amd64
Source: example (1.0)
Version: 1.0-1+b1
Depends: libc6 (>= 2.36), first | second:any
Description: one line
 Package: not a field
 .
 more

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 2

"""


def test_packages_are_those_of_dpkg() -> None:
    """Installed ones with version and licences; what was removed and left its configuration is not there."""
    files = {
        "var/lib/dpkg/status": _STATUS.encode(),
        "usr/share/doc/example-base/copyright": b"Format: x\nFiles: *\nLicense: MIT\n text\n\nLicense: GPL-2+\n",
    }
    links = {"usr/share/doc/libexample1": "example-base"}
    image = Image(digest="sha256:0", config={}, files=files, links=links)
    assert debian.packages(image) == [
        debian.Package(
            name="libexample1",
            version="1.0-1+b1",
            architecture="amd64",
            source="example",
            needs=frozenset({"libc6", "first", "second"}),
            licences=("GPL-2+", "MIT"),
            copyright_file="usr/share/doc/example-base/copyright",
        )
    ]


def test_packages_of_an_image_without_dpkg() -> None:
    """Distroless images have a file a package, and no status in it; a copyright for people alone gives no licence."""
    files = {
        "var/lib/dpkg/status.d/base": b"Package: base\nVersion: 3\nArchitecture: amd64\n",
        "usr/share/doc/base/copyright": b"This is free.\nLicense: see below\n",
        "usr/lib/os-release": b'ID=debian\nVERSION_ID="12"\n',
    }
    image = Image(digest="sha256:0", config={}, files=files, links={})
    (found,) = debian.packages(image)
    assert (found.name, found.version, found.licences) == ("base", "3", ())
    assert debian.distribution(image) == {"ID": "debian", "VERSION_ID": "12"}
