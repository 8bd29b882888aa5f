"""Keys: which annotations, labels and resources of pods a policy reads, so that none of them is left out."""

import re
from collections.abc import Collection, Iterable
from fnmatch import translate
from functools import lru_cache
from typing import Final

from watchdog.core.amount import GPU_RESOURCE
from watchdog.core.model import PodKeys
from watchdog.core.policy import Policy

_CONTAINER: Final = "{container}"
# Where a pod sets the number of GPUs to which an amount per GPU applies; schedulers read it too. Besides these, the
# resources that a table with `unit = "cards"` counts.
COUNT_RESOURCES: Final = (GPU_RESOURCE, "volcano.sh/vgpu-number", "nvidia.com/vgpu-number")
COUNT_ANNOTATIONS: Final = ("gpu-fraction-num-devices", "tensor-fusion.ai/gpu-count")
_UNSET_BY_ZERO: Final = ("mig", "cards", "share", "named")  # units of counts: a 0 requests nothing (read_size)
_DEVICES: Final = "nvidia.com/mig-*"  # a container that holds one declares it, whatever the tables say


class _Latest:
    """The keys of the policy that was asked about last, since every cycle asks for each of its pods."""

    of: tuple[Policy, PodKeys] | None = None


def keys_of(policy: Policy) -> PodKeys:
    """The keys that a policy reads, whatever of it applies to a pod."""
    latest = _Latest.of
    if latest is None or latest[0] is not policy:
        _Latest.of = latest = policy, _keys_of(policy)
    return latest[1]


def _keys_of(policy: Policy) -> PodKeys:
    tables = policy.declarations
    limits = (limit.key for each in tables for limit in each.limits)
    named = (each.container_annotation for each in tables)
    annotations = {each.annotation for each in tables} | {*limits, *named, *COUNT_ANNOTATIONS}
    labels = {each.label for each in tables} | {key for rule in policy.rules for key in rule.match.labels}
    unless = {each.unless.resource for each in tables if each.unless is not None}
    resources = {each.resource for each in tables} | unless | {*COUNT_RESOURCES, _DEVICES}
    zeros = {each.resource for each in tables if each.zero == "none" and each.unit not in _UNSET_BY_ZERO}
    return PodKeys(
        annotations=frozenset(filter(None, annotations | {policy.protect.annotation})),
        labels=frozenset(filter(None, labels)),
        resources=frozenset(filter(None, resources)),
        zeros=frozenset(filter(None, zeros)),
    )


class WantedKeys:
    """Keys as they are looked for in one pod: by name, with the names of its containers, and by pattern."""

    def __init__(self, keys: Collection[str], containers: Iterable[str] = ()) -> None:
        plain = {key for key in keys if not _is_pattern(key)}
        with_names = {key for key in plain if _CONTAINER in key}
        own = {key.replace(_CONTAINER, name) for name in containers for key in with_names}
        self._named = (plain - with_names) | own
        self._pattern = _compiled(frozenset(key for key in keys if _is_pattern(key)))

    def names(self, key: str) -> bool:
        """Whether a key is named exactly."""
        return key in self._named

    def matches(self, key: str) -> bool:
        """Whether a key matches a pattern."""
        return self._pattern is not None and self._pattern.match(key) is not None


def _is_pattern(key: str) -> bool:
    return "*" in key or "?" in key


@lru_cache(maxsize=64)
def _compiled(patterns: frozenset[str]) -> re.Pattern[str] | None:
    found = sorted(translate(pattern.replace(_CONTAINER, "*")) for pattern in patterns)
    return re.compile("|".join(found)) if found else None
