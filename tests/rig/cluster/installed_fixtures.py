"""The fixture `watchdog_image`: the image of this checkout, built by buildah, in the containerd of the cluster."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.image.builder import Builder
from tests.image.conftest import builder, image
from tests.node.support import cannot_run
from tests.rig.cluster.installed import IMAGE, Installed
from tests.rig.cluster.node import Cluster
from tests.rig.cluster.real_pods import MEMORY, wait_until
from tools.programs import NoProgramsError, helm

# An archive to load instead of building the image, for people who work on these tests.
_OVERRIDE: Final = "GPU_WATCHDOG_IMAGE_ARCHIVE"


@pytest.fixture(scope="package")
def watchdog_image(
    cluster: Cluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The image's name without its tag; it has the tags 1 and 2, to upgrade from one to the other."""
    try:
        helm()
    except NoProgramsError as error:
        cannot_run(str(error))
    if override := os.environ.get(_OVERRIDE):
        _load(cluster, Path(override))
    else:
        archive = tmp_path_factory.mktemp("archive") / "image.tar"
        built: Builder = request.getfixturevalue("builder")
        built.save(request.getfixturevalue("image"), archive, f"{IMAGE}:1")
        _load(cluster, archive)
        archive.unlink()
    yield IMAGE
    cluster.containerd.ctr("images", "remove", "--sync", f"{IMAGE}:1", f"{IMAGE}:2")


def _load(cluster: Cluster, archive: Path) -> None:
    began = time.monotonic()
    cluster.containerd.load(archive)
    cluster.containerd.ctr("images", "tag", f"{IMAGE}:1", f"{IMAGE}:2")
    print(f"\nan image of {archive.stat().st_size / 2**20:.0f} MiB was loaded in {time.monotonic() - began:.1f} s")


@contextmanager
def installed(
    cluster: Cluster, folder: Path, more: Mapping[str, Any] | None = None, *, account: str = "gpu-watchdog"
) -> Iterator[Installed]:
    """Inside, the chart can be installed, and the node's card is steered; after it nothing is left of the release."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Installed(cluster, folder, account=account, more=more)
    try:
        with made.card:
            yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def release(cluster: Cluster, watchdog_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """A release of the module's own, not installed yet."""
    with installed(cluster, tmp_path_factory.mktemp("installed")) as made:
        yield made


@pytest.fixture(scope="module")
def watchdog(release: Installed, request: pytest.FixtureRequest) -> Installed:
    """The release, installed with the module's POLICY, which enforces and advertises."""
    release.install(request.module.POLICY)
    release.wait_enforcing()
    wait_until(lambda: release.capacity(MEMORY, "allocatable") > 0, "the node offers GPU memory")
    return release


@pytest.fixture
def tenants(cluster: Cluster) -> Iterator[str]:
    """A namespace in which the pods over their limit are killed."""
    name = cluster.new_namespace("tenants")
    yield name
    cluster.drop_namespace(name)


__all__ = ["builder", "image", "installed", "release", "tenants", "watchdog", "watchdog_image"]
