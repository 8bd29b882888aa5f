"""The victim: which container, and which of its processes, a step would act on."""

from watchdog.core.findings import Assessment
from watchdog.core.model import ProcessKey
from watchdog.core.policy import Do, Step


def victim_of(assessment: Assessment, card: str | None = None) -> str:
    """Choose the container to act on; "" where none can be named.

    In a container account it is that container. In a pod account it is the one that is farthest above its own
    declaration (0 if none), then the larger, then the first by name. Containers that the pod list does not have are
    never chosen, nor is one within its own declaration. Where a card is short, its request and its use there count:
    only who uses that card gives it room.
    """
    if assessment.account.container is not None:
        return assessment.account.container
    excess: list[tuple[int, int, str]] = []
    for share in assessment.shares:
        used = share.used_at_least if card is None else _used_on(assessment, share.container, card)
        own = share.declared if card is None else share.requested
        if share.container and used > own:
            excess.append((own - used, -used, share.container))
    return min(excess)[2] if excess else ""


def _used_on(assessment: Assessment, container: str, card: str) -> int:
    return sum(use.used or 0 for use in assessment.uses if use.container == container and use.gpu == card)


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
