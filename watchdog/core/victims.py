"""What a step would end of an account: the container, its processes, and whether other pods need one of them."""

from dataclasses import replace
from typing import assert_never

from watchdog.core.assessment import Assessment
from watchdog.core.hazards import hazard_of
from watchdog.core.model import ProcessKey
from watchdog.core.policy import Do, Step


def card_of(assessment: Assessment) -> str | None:
    """The short card on which an account uses the most; None if it uses no short card."""
    if not assessment.short:
        return None
    return min(assessment.short, key=lambda gpu: (-assessment.used_on(gpu), gpu))


def victim_of(assessment: Assessment, card: str | None = None) -> str:
    """Choose the container to act on; "" if there is none."""
    return next(iter(victims_of(assessment, card)), "")


def victims_of(assessment: Assessment, card: str | None = None) -> tuple[str, ...]:
    """The containers that may be acted on, the one to choose first.

    In a container account it is that container. In a pod account it is the one that is farthest above its own
    declaration (0 if none), then the larger, then the first by name. Containers that are missing from the pod list, or
    within their own declaration, are never chosen. Of several that hold a claim together, or with other pods, none may
    be above it: then it is the one that uses the most. If a card is short, a container's request and its use on that
    card count: only containers that use the card can free memory on it.
    """
    if assessment.account.container is not None:
        return (assessment.account.container,) if assessment.account.container else ()
    excess: list[tuple[int, int, str]] = []
    joint: list[tuple[int, int, str]] = []
    for share in assessment.shares:
        used = share.used_at_least if card is None else assessment.used_on(card, share.container)
        own = share.declared if card is None else share.requested
        if share.container and used > own:
            excess.append((own - used, -used, share.container))
        elif share.container in assessment.joint and used:
            joint.append((0, -used, share.container))
    return tuple(name for _, _, name in sorted(excess or joint))


def targets_of(assessment: Assessment, victim: str, step: Step, card: str | None = None) -> tuple[ProcessKey, ...]:
    """The listed GPU processes that a step would end: the largest, the victim's, or those of all known containers.

    If a card is short, the largest one on that card counts. Of one that has ended, any process of its container may
    keep the memory, so they are all ended. An eviction ends all processes of the pod.
    """
    match step.do:
        case Do.EVICT:
            return tuple(sorted({use.key for use in assessment.uses}))
        case Do.WARN:
            return ()
        case Do.KILL:
            return _killed(assessment, victim, step, card) if victim else ()
        case _:
            assert_never(step.do)


def _killed(assessment: Assessment, victim: str, step: Step, card: str | None) -> tuple[ProcessKey, ...]:
    used: dict[ProcessKey, int] = {}
    everywhere: set[ProcessKey] = set()
    ended: set[ProcessKey] = set()
    for use in assessment.uses:
        if use.container != victim and not (step.scope == "pod" and use.container):
            continue
        everywhere.add(use.key)
        if use.ended:
            ended.add(use.key)
        if step.scope != "process" or card in (None, use.gpu):
            used[use.key] = used.get(use.key, 0) + use.used_at_least
    if step.scope == "process" and used:
        largest = min(used, key=lambda key: (-used[key], key))
        return tuple(sorted(everywhere)) if largest in ended else (largest,)
    return tuple(sorted(used))


def is_hazardous(assessment: Assessment, step: Step) -> bool:
    """Whether a step would end a process that other pods need."""
    if not assessment.hazards:
        return False
    card = card_of(assessment) if step.under_pressure else None
    victim = victim_of(assessment, card)
    targets = targets_of(assessment, victim, step, card)
    if step.scope == "process" and any(use.ended and use.key in targets for use in assessment.uses):
        step = replace(step, scope="container")
    return hazard_of(assessment.hazards, step, victim, targets) is not None
