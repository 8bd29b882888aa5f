"""The image of a release: built by buildah, written as an OCI archive that is the same for equal inputs."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.release.base import base_archive
from tools.release.checkout import Checkout, NotReleasableError
from tools.release.packing import Packed, write_tar
from tools.release.store import Store

DEBOOTSTRAP: Final = "debootstrap"
_OWN_BASE: Final = "localhost/debian:bookworm"
_LABEL: Final = "org.opencontainers.image"
_DIGEST: Final = re.compile(r"@sha256:[0-9a-f]{64}$")
_TAG: Final = re.compile(r":[^/:]*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an image is to be built on, and what it is called. An empty base is the Dockerfile's."""

    name: str
    base: str
    run_base: str
    platform: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What an image stands on: its name, and the digest of the manifest that was used."""

    name: str
    digest: str


def build_image(store: Store, context: Path, checkout: Checkout, wanted: Wanted) -> Base:
    """Build the image of exported files under its name and version, and say what it stands on."""
    base = _there(store, wanted.base or _default_base(context), wanted.platform)
    run_base = _there(store, wanted.run_base, wanted.platform) if wanted.run_base else base
    arguments = {"BASE": base.name, "RUN_BASE": run_base.name}
    arguments |= {"VERSION": checkout.version, "REVISION": checkout.revision}
    labels = {f"{_LABEL}.base.name": run_base.name, f"{_LABEL}.base.digest": run_base.digest}
    store.bud(
        context,
        f"{wanted.name}:{checkout.version}",
        *("--format=oci", f"--timestamp={checkout.epoch}", f"--platform={wanted.platform}", "--pull=never"),
        *(f"--build-arg={name}={value}" for name, value in arguments.items()),
        *(f"--label={name}={value}" for name, value in labels.items()),
    )
    return run_base


def unpinned(context: Path, base: str, run_base: str) -> str | None:
    """Why these bases are not the same bytes at every time, or nothing. An empty one is the Dockerfile's."""
    for variable, name in (("BASE", base or _default_base(context)), ("RUN_BASE", run_base)):
        if name and name != DEBOOTSTRAP and not _DIGEST.search(name):
            plain = _TAG.sub("", name)
            return (
                f"the base {name} is a tag, which may become another image: a release names it by digest,"
                f" {variable}={plain}@sha256:... . To print the digest: skopeo inspect --format '{{{{.Digest}}}}'"
                f" docker://{name}"
            )
    return None


def _default_base(context: Path) -> str:
    found = re.search(r"^ARG BASE=(\S+)", (context / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def _there(store: Store, name: str, platform: str) -> Base:
    if name == DEBOOTSTRAP:
        name = _OWN_BASE
        if not store.buildah("images", "--quiet", "--filter", f"reference={name}").strip():
            store.add(base_archive(), name)
    else:
        try:
            store.buildah("pull", "--quiet", "--policy=missing", f"--platform={platform}", name)
        except AssertionError as error:
            raise NotReleasableError(
                f"the base {name} can't be had: {error}\nBASE=NAME names another one, which a registry here has;"
                f" BASE={DEBOOTSTRAP} makes a small Debian with debootstrap"
            ) from None
    return Base(name=name, digest=store.inspect(name)["FromImageDigest"])


def save_image(store: Store, name: str, folder: Path, archive: Path, epoch: int) -> str:
    """Write an image as an OCI archive, by way of a folder of its own, and give its manifest's digest."""
    store.buildah("push", name, f"oci:{folder}:{name.rpartition(':')[2]}")
    index = folder / "index.json"
    content: dict[str, Any] = json.loads(index.read_text(encoding="utf-8"))
    (manifest,) = content["manifests"]
    # By this containerd and Docker name what they load; the digest does not cover it.
    manifest["annotations"] |= {"io.containerd.image.name": full_name(name)}
    index.write_text(json.dumps(content, sort_keys=True), encoding="utf-8")
    files = [path for path in folder.rglob("*") if path.is_file()]
    write_tar(archive, [Packed(name=str(path.relative_to(folder)), content=path) for path in files], epoch)
    digest: str = manifest["digest"]
    return digest


def full_name(name: str) -> str:
    """An image's name with its registry: Docker's, where it says none."""
    first, slash, _rest = name.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{name}"


def can_build(platform: str, machine: str, handlers: Path) -> str | None:
    """Why this machine can't run the build of a platform, or nothing."""
    own: Mapping[str, str] = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}
    emulators: Mapping[str, str] = {"linux/amd64": "qemu-x86_64", "linux/arm64": "qemu-aarch64"}
    if own.get(machine) == platform:
        return None
    if platform not in emulators:
        return f"{platform} is no platform of the image: one of {', '.join(emulators)}"
    if (handlers / emulators[platform]).exists():
        return None
    return (
        f"the Dockerfile runs Python of {platform}, which this {machine} can't run: build on such a machine, or install"
        f" qemu's user emulation for it (Debian: apt-get install qemu-user-static)"
    )
