"""The victim: which container, and which of its processes, a step would act on."""

from watchdog.core.findings import Assessment
from watchdog.core.model import ProcessKey
from watchdog.core.policy import Scope


def victim_of(assessment: Assessment) -> str:
    """Choose the container to act on; "" where none can be named.

    In a container account it is that container. In a pod account it is the one that is farthest above its own
    declaration (0 if none), then the larger, then the first by name. Unknown containers are never chosen.
    """
    if assessment.account.container is not None:
        return assessment.account.container
    listed = {use.container for use in assessment.uses}
    candidates = [share for share in assessment.shares if share.container and share.container in listed]
    if not candidates:
        return ""
    return min(candidates, key=lambda s: (s.declared - s.used_at_least, -s.used_at_least, s.container)).container


def targets_of(assessment: Assessment, victim: str, scope: Scope) -> tuple[ProcessKey, ...]:
    """The listed GPU processes that a scope names: the largest, the victim's, or those of all known containers."""
    if not victim:
        return ()
    used: dict[ProcessKey, int] = {}
    for use in assessment.uses:
        if use.container == victim or (scope == "pod" and use.container):
            used[use.key] = used.get(use.key, 0) + (use.used or 0)
    if scope == "process" and used:
        return (min(used, key=lambda key: (-used[key], key)),)
    return tuple(sorted(used))
