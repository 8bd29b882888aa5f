"""Phases: which containers of a pod run together, so that what they declare counts together."""

from watchdog.core.model import Container, ContainerKind, Pod


def phases(pod: Pod) -> tuple[tuple[Container, ...], ...]:
    """The containers whose declarations count together, by phase: each plain init container's, and last the main one.

    While a plain init container runs, it and the sidecars before it; otherwise the main ones and the sidecars
    (kubernetes/pkg/api/v1/resource adds them up the same way, but takes the maximum over time).
    """
    before: list[Container] = []
    found: list[tuple[Container, ...]] = []
    for container in pod.containers:
        if container.kind is ContainerKind.SIDECAR:
            before.append(container)
        elif container.kind is ContainerKind.INIT:
            found.append((*before, container))
    main = tuple(c for c in pod.containers if c.kind in (ContainerKind.MAIN, ContainerKind.SIDECAR))
    return (*found, main)


def active_containers(pod: Pod) -> tuple[Container, ...]:
    """The containers whose declarations count now, as the pod list has it."""
    *init, main = phases(pod)
    return next((phase for phase in init if phase[-1].running), main)
