"""What of a pod is kept: what a policy can ask for, and no more than a bound of it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from watchdog.core.model import Pod

_LONGEST: Final = 256  # of an annotation's value: no amount and no switch is longer
_MOST: Final = 100  # of annotations; the shortest, since the API server allows 256 KiB of them
_NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


def reduced(pod: Pod) -> Pod:
    """A pod without what only attribution needs, and with bounded annotations: what is too long keeps its key."""
    return replace(
        pod,
        containers=tuple(replace(each, ids=frozenset()) for each in pod.containers),
        config_hash=None,
        annotations=_bounded(pod.annotations),
    )


def asks_for_devices(pod: Pod) -> bool:
    """Whether it asks for any resource that Kubernetes does not know by itself."""
    names = (name for container in pod.containers for name in container.resources)
    return any(name not in _NATIVE and not name.startswith("hugepages-") for name in names)


def changed_pods(now: Iterable[Pod], kept: Mapping[str, Pod]) -> tuple[Pod, ...]:
    """The pods that are new or different."""
    return tuple(pod for pod in now if kept.get(pod.uid) != pod)


def _bounded(annotations: Mapping[str, str]) -> dict[str, str]:
    # `kubectl apply` writes the whole object into an annotation of its own, which says nothing new.
    short = {
        key: value if len(value) <= _LONGEST else ""
        for key, value in annotations.items()
        if key != "kubectl.kubernetes.io/last-applied-configuration"
    }
    if len(short) <= _MOST:
        return short
    ordered = sorted(short, key=lambda key: (len(key) + len(short[key]), key))
    return {key: short[key] for key in ordered[:_MOST]}
