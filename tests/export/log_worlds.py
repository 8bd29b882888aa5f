"""Worlds that stay as they are, for the log at rest: pass by pass, in whatever state."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.export.build import Story, policy, trainer, trainer_node
from tests.worlds import Gi, at, container, pod, process, snapshot, use
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, PodList, Snapshot
from watchdog.core.plan import CycleReport, Outcome, Result
from watchdog.core.policy import Backoff, Brakes, Breaker, Policy

NODE = trainer_node(12.4)
OBSERVE = policy(mode="observe")


@dataclass(kw_only=True)
class Life(Story):
    """Cycles as observe mode has them: what is due is noted as observed, and nothing is done."""

    outcomes: list[Outcome] = field(default_factory=list)

    def live(self, seen: Snapshot, **more: object) -> CycleReport:
        """One cycle."""
        report = self.see(seen, **more)
        observed = []
        for entry in report.plan.taken:
            if entry.do.enforces:
                self.ledger = self.ledger.note_observed(entry.assessment, seen.at)
            observed.append(Outcome(entry=entry, result=Result.OBSERVED, at=seen.at))
        return replace(report, outcomes=tuple(observed))


World = Callable[[Life, int], CycleReport]


def gap(what: str, reason: GapReason = GapReason.GPU_LOST) -> Gap:
    """A GPU that fell off the bus, or another gap."""
    return Gap(reason=reason, what=what, problem=Problem("it fell off the bus", "look at dmesg"), gpu="GPU-9")


def shifted(seen: Snapshot, second: int, **more: object) -> Snapshot:
    """The same at another second."""
    return replace(seen, at=at(second), **more)  # type: ignore[arg-type]


def _crowd(many: int) -> tuple[tuple[Any, ...], Snapshot]:
    pods = tuple(pod(f"u{n}", container(declared="1Gi", of=f"u{n}"), namespace=f"ns{n % 7}") for n in range(many))
    uses = [use(100 + n, 2 * Gi) for n in range(many)]
    return pods, snapshot(uses, [process(100 + n, f"u{n}/main") for n in range(many)])


def over(life: Life, second: int) -> CycleReport:
    """The pod is over."""
    return life.live(shifted(NODE, second))


def _quiet(life: Life, second: int) -> CycleReport:
    return life.live(shifted(trainer_node(4.0), second))


def many_over(life: Life, second: int) -> CycleReport:
    """Sixty pods of seven namespaces are over."""
    life.pods, seen = _CROWD
    return life.live(shifted(seen, second))


_CROWD = _crowd(60)


def _gaps(life: Life, second: int) -> CycleReport:
    return life.live(shifted(NODE, second, gaps=tuple(gap(f"GPU-{n}") for n in range(16))))


def _unknown_pod(life: Life, second: int) -> CycleReport:
    life.pods = ()
    return life.live(shifted(NODE, second))


def _misdeclared(life: Life, second: int) -> CycleReport:
    spoiled = replace(trainer().containers[0], resources={"veriff.com/gpu-memory": "8 GB"})
    life.pods = (trainer(containers=(spoiled,)),)
    return life.live(shifted(NODE, second))


def _stale(life: Life, second: int) -> CycleReport:
    life.pods_stale = True
    return life.live(shifted(NODE, second), pods=PodList(pods=life.pods, synced=at(-1000)))


def _suspended(life: Life, second: int) -> CycleReport:
    return life.live(shifted(NODE, second), enforcing=False, suspended=("stop_file", "lock"))


def _no_journal(life: Life, second: int) -> CycleReport:
    life.journal_writable = False
    return life.see(shifted(NODE, second))


def _blind(life: Life, second: int) -> CycleReport:
    return life.live(shifted(NODE, second, gpus=(), uses=(), processes={}, blind=True, gaps=(gap("NVML"),)))


def _not_known(life: Life, second: int) -> CycleReport:
    return life.live(shifted(trainer_node(None), second))


WORLDS: dict[str, tuple[World, Policy]] = {
    "within": (_quiet, policy()),
    "over, observed": (over, OBSERVE),
    "sixty over, observed": (many_over, OBSERVE),
    "sixty over, held by brakes": (
        many_over,
        policy(mode="observe", brakes=Brakes(breaker=Breaker(hold_s=600.0), owner_backoff=Backoff())),
    ),
    "over and protected": (over, policy(protect=replace(policy().protect, namespaces=("a",)))),
    "16 gaps": (_gaps, OBSERVE),
    "of a pod that the list does not have": (_unknown_pod, OBSERVE),
    "misdeclared": (_misdeclared, OBSERVE),
    "an old pod list": (_stale, policy()),
    "told to enforce and suspended": (_suspended, policy()),
    "no journal": (_no_journal, policy()),
    "blind": (_blind, OBSERVE),
    "not known": (_not_known, OBSERVE),
}
