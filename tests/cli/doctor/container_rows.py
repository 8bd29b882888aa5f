"""A container whose manifest grants too little or confines it too much."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tests.cli.doctor.build import GOOD, spoilt
from tests.worlds import policy
from watchdog.cli.doctor.facts import Confinement, Facts
from watchdog.core.model import Place, PlaceKind


def _of_image(**changes: object) -> Facts:
    return replace(spoilt("policy", **changes), container=replace(GOOD.container, in_pod=True))


def _confined(**changes: object) -> Facts:
    return spoilt("container", confinement=Confinement(**changes))  # type: ignore[arg-type]


def _own(place: Place) -> Facts:
    in_pod = spoilt("container", in_pod=True)
    return replace(
        in_pod, processes=replace(in_pod.processes, environment=replace(in_pod.processes.environment, own=place))
    )


CONTAINER: Final[Mapping[str, tuple[tuple[str, Facts], ...]]] = {
    "apparmor": (
        ("has its own profile", _confined(profile="cri-containerd.apparmor.d", is_of_runtime=True)),
        ("whether that allows signals", _confined(profile="gpu-guard")),
    ),
    "selinux": (
        ("SELinux does not confine", _confined(selinux_type="spc_t")),
        ("has the SELinux type container_t", _confined(selinux_type="container_t")),
    ),
    "policy_mount": (
        ("is mounted", spoilt("container", in_pod=True, has_policy_mount=True)),
        ("the policy is the image's own", _of_image(policy=policy(mode="observe"))),
        ("the policy is the image's own", _of_image(policy=None)),
        ("enforces by the image's own policy", _of_image(policy=policy(mode="enforce"))),
    ),
    "temporary_folder": (
        ("no folder for temporary files", spoilt("container", temporary_problem="No usable temporary directory found")),
    ),
    "pod_uid": (
        ("which pod this runs in is unknown", spoilt("container", in_pod=True)),
        ("which pod this runs in is unknown", _own(Place(kind=PlaceKind.POD, container="1" * 64))),
        ("with the UID 8c2f4a1e", _own(Place(kind=PlaceKind.POD, pod="8c2f4a1e-0d3b-4c55-9f6a-1b2c3d4e5f60"))),
    ),
}
