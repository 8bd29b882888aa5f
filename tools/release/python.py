"""The Python distributions of an image, of an environment, and of a lock file."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.parser import HeaderParser
from importlib import metadata
from typing import Final

from tools.release.layers import Image

HOME: Final = "opt/gpu-watchdog"
_METADATA: Final = re.compile(r"(?P<site>.+)/[^/]+\.dist-info/METADATA")
# Debian's own are packages of Debian.
_OF_DEBIAN: Final = "usr/lib/python3/dist-packages"
_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(?: *; *([^\\\n]+?))?(?= *(?:\\|--hash|$))", re.MULTILINE)
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_LONGEST_LICENCE: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A distribution. `hashes` are the SHA-256 of the wheel it came from, or of all that the lock file allows.

    `site` is the folder of an image that it is in, and nothing for the watchdog's environment.
    """

    name: str
    version: str
    needs: frozenset[str] = frozenset()
    licences: tuple[str, ...] = ()
    hashes: tuple[str, ...] = ()
    # The condition under which it is installed at all, of the lock file.
    marker: str = ""
    site: str = ""


def is_wanted(path: str) -> bool:
    """Whether the distributions are read from a file of this name."""
    return path in (f"{HOME}/wheels.txt", f"{HOME}/pyvenv.cfg") or _METADATA.fullmatch(path) is not None


def distributions(image: Image) -> list[Distribution]:
    """What is installed in an image, in the watchdog's environment and elsewhere, less what is of Debian."""
    wheels = locked(image.files[f"{HOME}/wheels.txt"].decode())
    found = []
    for path, content in image.files.items():
        match = _METADATA.fullmatch(path)
        if match is None or match["site"] == _OF_DEBIAN:
            continue
        text = content.decode(errors="replace")
        if path.startswith(f"{HOME}/"):
            found.append(_read(text, wheels))
        else:
            found.append(replace(_read(text, {}), site=match["site"], needs=frozenset()))
    return sorted(found, key=lambda each: (each.name, each.site))


def interpreter(image: Image) -> str:
    """The version of the Python that the environment was made with."""
    found = re.search(r"^version = (\S+)", image.files[f"{HOME}/pyvenv.cfg"].decode(), re.MULTILINE)
    assert found is not None
    return found[1]


def locked(text: str) -> dict[str, Distribution]:
    """What a lock file pins, by name."""
    logical = text.replace("\\\n", " ")
    found = {}
    for line in logical.splitlines():
        if match := _PIN.match(line):
            name = normal(match[1])
            hashes = tuple(sorted(_HASH.findall(line)))
            found[name] = Distribution(name=name, version=match[2], marker=match[3] or "", hashes=hashes)
    return found


def with_licences(pins: Mapping[str, Distribution]) -> list[Distribution]:
    """The pins with what the distributions say of themselves, as far as they are installed along with this Python."""
    found = []
    for name, pin in pins.items():
        try:
            text = metadata.distribution(name).read_text("METADATA") or ""
        except metadata.PackageNotFoundError:  # its marker excludes this machine
            found.append(pin)
            continue
        read = _read(text, pins)
        assert read.version == pin.version, f"{name} is installed as {read.version}: make setup-dev"
        found.append(read)
    return found


def normal(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _read(text: str, pins: Mapping[str, Distribution]) -> Distribution:
    message = HeaderParser().parsestr(text)
    name = normal(str(message["Name"]))
    pin = pins.get(name)
    needs = [str(each) for each in message.get_all("Requires-Dist", [])]
    names = (re.split(r"[^A-Za-z0-9._-]", each, maxsplit=1)[0] for each in needs if "extra ==" not in each)
    return Distribution(
        name=name,
        version=str(message["Version"]),
        needs=frozenset(normal(each) for each in names),
        licences=_licences(
            str(message["License-Expression"] or ""),
            str(message["License"] or ""),
            [str(each) for each in message.get_all("Classifier", [])],
        ),
        hashes=pin.hashes if pin else (),
        marker=pin.marker if pin else "",
    )


def _licences(expression: str, licence: str, classifiers: list[str]) -> tuple[str, ...]:
    if expression:
        return (expression,)
    # Old metadata has the whole text in this field, or UNKNOWN.
    if licence and "\n" not in licence and len(licence) <= _LONGEST_LICENCE and licence != "UNKNOWN":
        return (licence,)
    names = [each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License :: ")]
    return tuple(sorted(set(names)))
