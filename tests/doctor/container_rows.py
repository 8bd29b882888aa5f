"""A container that its pod's manifest gives too little, or holds too tight."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tests.doctor.build import GOOD, spoilt
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
        ("free", GOOD),
        ("default", _confined(profile="cri-containerd.apparmor.d", is_of_runtime=True)),
        ("own", _confined(profile="gpu-guard")),
    ),
    "selinux": (
        ("free", GOOD),
        ("free", _confined(selinux_type="spc_t")),
        ("container", _confined(selinux_type="container_t")),
    ),
    "policy_mount": (
        ("outside", GOOD),
        ("mounted", spoilt("container", in_pod=True, has_policy_mount=True)),
        ("image", _of_image(policy=policy(mode="observe"))),
        ("image", _of_image(policy=None)),
        ("baked", _of_image(policy=policy(mode="enforce"))),
    ),
    "temporary_folder": (
        ("there", GOOD),
        ("lacking", spoilt("container", temporary_problem="No usable temporary directory found")),
    ),
    "pod_uid": (
        ("outside", GOOD),
        ("unknown", spoilt("container", in_pod=True)),
        ("unknown", _own(Place(kind=PlaceKind.POD, container="1" * 64))),
        ("known", _own(Place(kind=PlaceKind.POD, pod="8c2f4a1e-0d3b-4c55-9f6a-1b2c3d4e5f60"))),
    ),
}
