"""The victim: which container, and which of its processes, a step would act on."""

from watchdog.core.findings import Assessment
from watchdog.core.model import ProcessKey
from watchdog.core.policy import Do, Step


def victim_of(assessment: Assessment, card: str | None = None) -> str:
    """Choose the container to act on; "" where none can be named.

    In a container account it is that container. In a pod account it is the one that is farthest above its own
    declaration (0 if none), then the larger, then the first by name. Unknown containers are never chosen. Where a card
    is short, only who uses that card gives it room.
    """
    if assessment.account.container is not None:
        return assessment.account.container
    listed = {use.container for use in assessment.uses if card in (None, use.gpu)}
    # One of which no byte is known may use nothing: it is not the one to end for what others use.
    known = (share for share in assessment.shares if share.container and share.used_at_least > 0)
    candidates = [share for share in known if share.container in listed]
    if not candidates:
        return ""
    return min(candidates, key=lambda s: (s.declared - s.used_at_least, -s.used_at_least, s.container)).container


def targets_of(assessment: Assessment, victim: str, step: Step, card: str | None = None) -> tuple[ProcessKey, ...]:
    """The listed GPU processes that a step would end: the largest, the victim's, or those of all known containers.

    The largest is that on the card, where one is short. An eviction ends the whole pod, whatever its container.
    """
    if step.do is Do.EVICT:
        return tuple(sorted({use.key for use in assessment.uses}))
    if step.do is Do.WARN or not victim:
        return ()
    used: dict[ProcessKey, int] = {}
    for use in assessment.uses:
        if step.scope == "process" and card not in (None, use.gpu):
            continue
        if use.container == victim or (step.scope == "pod" and use.container):
            used[use.key] = used.get(use.key, 0) + (use.used or 0)
    if step.scope == "process" and used:
        return (min(used, key=lambda key: (-used[key], key)),)
    return tuple(sorted(used))
