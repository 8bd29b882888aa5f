"""The Debian packages of an image, by dpkg's own records in it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tools.release.layers import Image

_STATUS: Final = "var/lib/dpkg/status"
# Images without dpkg (distroless) have a file a package.
_STATUS_FOLDER: Final = "var/lib/dpkg/status.d/"
_DOC: Final = "usr/share/doc"
_FORMAT: Final = re.compile(r"^Format(-Specification)?:", re.MULTILINE)
_LICENCE: Final = re.compile(r"^License: *(\S.*)$", re.MULTILINE)
_RELEASE: Final = "etc/os-release"
_OTHER_RELEASE: Final = "usr/lib/os-release"
_WORD: Final = re.compile(r"[A-Za-z0-9.+-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """An installed package. `licences` are the names in its copyright file, where a machine can read that (DEP 5).

    https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
    """

    name: str
    version: str
    architecture: str
    source: str
    needs: frozenset[str]
    licences: tuple[str, ...]
    copyright_file: str


def is_wanted(path: str) -> bool:
    """Whether the packages are read from a file of this name."""
    return (
        path in (_STATUS, _RELEASE, _OTHER_RELEASE)
        or (path.startswith(_STATUS_FOLDER) and not path.endswith(".md5sums"))
        or (path.startswith(f"{_DOC}/") and (path.count("/") == 3 or path.endswith("/copyright")))
    )


def packages(image: Image) -> list[Package]:
    """The packages that are installed in an image."""
    texts = [content for path, content in image.files.items() if path == _STATUS or path.startswith(_STATUS_FOLDER)]
    paragraphs = [each for text in texts for each in re.split(r"\n{2,}", text.decode(errors="replace").strip())]
    fields = [dict(_fields(each)) for each in paragraphs if each]
    # A file of status.d has no status: it would not be there otherwise.
    there = [each for each in fields if each.get("Status", "install ok installed").endswith(" installed")]
    return sorted((_package(image, each) for each in there), key=lambda package: package.name)


def distribution(image: Image) -> Mapping[str, str]:
    """What the image says of the distribution it is of (os-release): ID, VERSION_ID and so on."""
    text = image.files.get(_RELEASE) or image.files.get(_OTHER_RELEASE) or b""
    pairs = (line.partition("=") for line in text.decode(errors="replace").splitlines())
    return {key: value.strip('"') for key, equals, value in pairs if equals}


def _fields(paragraph: str) -> Iterator[tuple[str, str]]:
    # A line that begins with a space continues the field before it.
    for field in re.split(r"\n(?![ \t])", paragraph):
        name, colon, value = field.partition(":")
        if colon:
            yield name, value.strip()


def _package(image: Image, fields: Mapping[str, str]) -> Package:
    name = fields["Package"]
    file = _copyright_file(image, name)
    wanted = re.split(r"[,|]", f"{fields.get('Depends', '')},{fields.get('Pre-Depends', '')}")
    return Package(
        name=name,
        version=fields["Version"],
        architecture=fields.get("Architecture", "all"),
        source=fields.get("Source", name).partition(" ")[0],
        needs=frozenset(found[0] for each in wanted if (found := _WORD.match(each.strip()))),
        licences=_licences(image.files.get(file, b"").decode(errors="replace")),
        copyright_file=file if file in image.files else "",
    )


def _copyright_file(image: Image, name: str) -> str:
    # Some packages' folder is a link to that of the package they were built with.
    folder = image.links.get(f"{_DOC}/{name}", name).rpartition("/")[2]
    return f"{_DOC}/{folder}/copyright"


def _licences(text: str) -> tuple[str, ...]:
    if not _FORMAT.search(text):
        return ()
    return tuple(sorted({" ".join(each.split()) for each in _LICENCE.findall(text)}))
