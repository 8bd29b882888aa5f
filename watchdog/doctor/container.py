"""Looking at what the pod's manifest gives this container: confinement and mounts."""

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from watchdog.doctor.confinement import Confinement, look_at_confinement
from watchdog.doctor.mounts import mount_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFacts:
    """What holds this process, and what is mounted for it.

    `has_policy_mount` says that the policy's file is on another mount than the root; it counts only `in_pod`.
    `temporary_problem` is why temporary files can be made nowhere; empty where they can.
    """

    confinement: Confinement = field(default_factory=Confinement)
    in_pod: bool = False
    has_policy_mount: bool = False
    temporary_folder: str = "/tmp"
    temporary_problem: str = ""


def look_at_container(policy: Path, mounts: list[str]) -> ContainerFacts:
    """Read all of it; the one thing written is a file of a moment's life, which Python makes to find the folder."""
    folder, problem = _temporary()
    mount = mount_of(policy, mounts)
    return ContainerFacts(
        confinement=look_at_confinement(),
        # The kubelet gives it to every container of every pod (rest.InClusterConfig of client-go goes by it too).
        in_pod=bool(os.environ.get("KUBERNETES_SERVICE_HOST")),
        # What can't be seen is not complained of.
        has_policy_mount=mount is None or mount.point != "/",
        temporary_folder=folder,
        temporary_problem=problem,
    )


def _temporary() -> tuple[str, str]:
    """The folder for temporary files, and why there is none where there is none."""
    try:
        return tempfile.gettempdir(), ""
    except OSError as error:
        return "", error.strerror or str(error)
