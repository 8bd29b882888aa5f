"""What the pod's manifest gives this container: confinement and mounts."""

from collections.abc import Iterable

import watchdog.doctor.topics_container as topic
from watchdog.core.model import Place
from watchdog.doctor.container import ContainerFacts
from watchdog.doctor.facts import PolicyFacts
from watchdog.doctor.finding import Finding


def check_container(facts: ContainerFacts, policy: PolicyFacts, own: Place | None) -> Iterable[Finding]:
    """Whether a security module may swallow signals, what is mounted is what is meant, and the `own` pod is known."""
    confinement = facts.confinement
    case = "free" if not confinement.profile else "default" if confinement.is_of_runtime else "own"
    yield topic.APPARMOR.say(case, profile=confinement.profile)
    # container_t, container_init_t, container_engine_t and the like (container-selinux); spc_t is held by nothing.
    is_container = confinement.selinux_type.startswith(("container_", "svirt_lxc_"))
    yield topic.SELINUX.say("container" if is_container else "free", type=confinement.selinux_type)
    of_image = "baked" if policy.policy is not None and policy.policy.mode == "enforce" else "image"
    mount = "outside" if not facts.in_pod else "mounted" if facts.has_policy_mount else of_image
    yield topic.POLICY_MOUNT.say(mount, folder=policy.path.parent)
    lacking = bool(facts.temporary_problem)
    yield topic.TEMPORARY.say(
        "lacking" if lacking else "there", folder=facts.temporary_folder, problem=facts.temporary_problem
    )
    uid = own.pod if own is not None else None
    yield topic.POD_UID.say("known" if uid else "unknown" if facts.in_pod else "outside", uid=uid or "")
