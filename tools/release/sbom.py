"""The lists of materials (SBOM), in CycloneDX: the image's by what is in its archive, the wheel's by the lock file."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from tools.release import debian, python
from tools.release.image import Base
from tools.release.layers import Image

NAME: Final = "gpu-memory-watchdog"
_LICENCE: Final = "Apache-2.0"
# Old metadata's words for what SPDX has an identifier for, without doubt about which.
_SPDX: Final = {"MIT License": "MIT", "Apache 2.0": "Apache-2.0", "BSD 3-Clause": "BSD-3-Clause"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a list is of: its version, the hash of its file, and its commit's time, which the list has as its own."""

    version: str
    sha256: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Material:
    component: Component
    # By references, of which some may not be there.
    needs: frozenset[str]

    @property
    def reference(self) -> str:
        """By which others need it."""
        return str(self.component.bom_ref.value)


def image_sbom(image: Image, base: Base, subject: Subject) -> str:
    """The list of an image: its Debian packages, its Python, and its Python distributions but the watchdog itself."""
    release = debian.distribution(image)
    packages = debian.packages(image)
    materials = [_debian(each, release) for each in packages]
    found = python.distributions(image)
    materials += [_python(each) for each in found if each.name != NAME]
    version = python.interpreter(image)
    if f"python{version.rpartition('.')[0]}" not in {each.name for each in packages}:
        materials.append(_interpreter(version))
    own = next(each for each in found if each.name == NAME and not each.site)
    root = Component(
        name=NAME,
        type=ComponentType.CONTAINER,
        version=subject.version,
        bom_ref="image",
        licenses=_licences([_LICENCE]),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=subject.sha256)],
        purl=PackageURL(type="oci", name=NAME, version=image.digest),
        properties=_properties(
            {
                "oci:manifest.digest": image.digest,
                "oci:base.name": base.name,
                "oci:base.digest": base.digest,
                "oci:platform": f"{image.config['os']}/{image.config['architecture']}",
                "distribution": release.get("PRETTY_NAME", "unknown"),
            }
        ),
    )
    # What nothing else asks for is there by the image.
    needs = _references(own.needs)
    direct = needs | ({each.reference for each in materials} - {need for each in materials for need in each.needs})
    return _written(root, materials, direct, subject)


def wheel_sbom(pins: Iterable[python.Distribution], direct: frozenset[str], subject: Subject) -> str:
    """The list of the wheel: what the lock file pins for it, whichever platform it is installed on."""
    root = Component(
        name=NAME,
        type=ComponentType.APPLICATION,
        version=subject.version,
        bom_ref="wheel",
        licenses=_licences([_LICENCE]),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=subject.sha256)],
        purl=PackageURL(type="pypi", name=NAME, version=subject.version),
    )
    return _written(root, [_python(each) for each in pins], _references(direct), subject)


def _written(root: Component, materials: list[_Material], direct: frozenset[str], subject: Subject) -> str:
    known = {each.reference: each.component.bom_ref for each in materials}

    def dependency(component: Component, needs: Iterable[str]) -> Dependency:
        there = [Dependency(known[need]) for need in sorted(needs) if need in known]
        return Dependency(component.bom_ref, dependencies=there)

    bom = Bom(
        # Of the content, so that the same release has the same.
        serial_number=uuid.uuid5(uuid.NAMESPACE_OID, f"{root.bom_ref.value} {subject.sha256}"),
        metadata=BomMetaData(
            component=root, timestamp=datetime.fromtimestamp(subject.epoch, UTC), tools=ToolRepository(components=[])
        ),
        components=[each.component for each in materials],
        dependencies=[dependency(root, direct), *(dependency(each.component, each.needs) for each in materials)],
    )
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    assert wrong is None, f"the list is not what CycloneDX's schema says: {wrong}"
    return f"{text}\n"


def _debian(package: debian.Package, release: Mapping[str, str]) -> _Material:
    qualifiers = {"arch": package.architecture, "distro": f"{release.get('ID')}-{release.get('VERSION_ID')}"}
    vendor = release.get("ID", "debian")
    about = {"debian:source": package.source}
    if package.copyright_file and not package.licences:
        about["debian:copyright"] = package.copyright_file
    purl = PackageURL(type="deb", namespace=vendor, name=package.name, version=package.version, qualifiers=qualifiers)
    component = Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"deb:{package.name}",
        purl=purl,
        licenses=_licences(package.licences),
        properties=_properties(about),
    )
    return _Material(component=component, needs=frozenset(f"deb:{name}" for name in package.needs))


def _python(each: python.Distribution) -> _Material:
    component = Component(
        name=each.name,
        version=each.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"pypi:{each.name} in {each.site}" if each.site else f"pypi:{each.name}",
        scope=ComponentScope.OPTIONAL if each.marker else ComponentScope.REQUIRED,
        purl=PackageURL(type="pypi", name=each.name, version=each.version),
        licenses=_licences(each.licences),
        # One wheel in an image; in the wheel's list each of those that the lock file allows.
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in each.hashes],
        properties=_properties({"python:marker": each.marker} if each.marker else {}),
    )
    return _Material(component=component, needs=_references(each.needs))


def _references(names: Iterable[str]) -> frozenset[str]:
    return frozenset(f"pypi:{name}" for name in names)


def _interpreter(version: str) -> _Material:
    purl = PackageURL(type="generic", name="python", version=version)
    component = Component(
        name="python", version=version, type=ComponentType.PLATFORM, bom_ref="generic:python", purl=purl
    )
    return _Material(component=component, needs=frozenset())


def _properties(values: Mapping[str, str]) -> list[Property]:
    return [Property(name=f"{NAME}:{name}", value=value) for name, value in values.items()]


def _licences(names: Iterable[str]) -> list[DisjunctiveLicense | LicenseExpression]:
    make = LicenseFactory()
    found = [make.make_from_string(_SPDX.get(name, name)) for name in names]
    if len(found) == 1:
        return list(found)
    # The format has one expression, or any number of licences, and not both.
    names_alone = [each if isinstance(each, DisjunctiveLicense) else make.make_with_name(each.value) for each in found]
    return list(names_alone)
