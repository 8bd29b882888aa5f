"""What happens to an account next, in a few words while its time runs down, and in full."""

from dataclasses import dataclass
from math import inf

from watchdog.report.progress import brake_short, due_short, planned_short, under_way_short
from watchdog.report.status import AccountStatus, PlanStatus, Status


def timers_run(status: Status) -> bool:
    """Whether the timers of steps run: not with a stale pod list, during maintenance, or while the daemon hangs."""
    return not status.pods_stale and status.maintenance is None and status.hangs_since is None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountProgress:
    """What happens to an account next, by the status that it is of; `steps` are its own of the plan, in order.

    Each method takes the seconds that have passed since the cycle.
    """

    account: AccountStatus
    steps: tuple[PlanStatus, ...]
    status: Status

    @property
    def is_acting(self) -> bool:
        """Whether an action is in progress."""
        return self.account.under_way is not None or self._is_trying

    @property
    def is_waiting(self) -> bool:
        """Whether the next step waits for something else than its time, or is only worked out."""
        return bool(self.steps and (self.steps[0].withheld_by or self._is_hypothetical or self._is_hung))

    @property
    def next(self) -> PlanStatus | None:
        """The step that comes first; None: there is none."""
        return self.steps[0] if self.steps else None

    def left_s(self, elapsed_s: float) -> float | None:
        """Seconds until something happens: 0 where it does now, infinite where that isn't known; None: nothing will."""
        if self.is_acting:
            return 0.0
        if not self.steps:
            return None
        step = self.steps[0]
        held_s = 0.0 if not step.withheld_by else inf if step.lets_go_in_s is None else step.lets_go_in_s
        return inf if self._is_hung else max(max(step.due_in_s, held_s) - elapsed_s, 0.0)

    def short(self, elapsed_s: float) -> str:
        """In a few words: `kill in 4s`, `kill held: owner, 3m`; `-` for nothing."""
        if self.account.under_way is not None:
            return _tight(under_way_short(self.account.under_way, self.status, elapsed_s))
        return _tight(planned_short(self.steps[0], self.account, self.status, elapsed_s)) if self.steps else "-"

    def full(self, elapsed_s: float) -> str:
        """With the threshold, what holds it and why, and what follows a warning."""
        if self.is_acting:
            return self.short(elapsed_s)
        if not self.steps:
            protected = self.account.protected
            return f"protected, no action is taken: {protected}" if protected else "-"
        first, *others = self.steps
        force = next((step for step in others if step.do.is_force), None) if not first.do.is_force else None
        return "; then ".join(self._step(step, elapsed_s) for step in (first, force) if step is not None)

    @property
    def _is_hung(self) -> bool:
        return self.status.hangs_since is not None

    @property
    def _is_trying(self) -> bool:
        return bool(self.steps and self.steps[0].trying is not None and not self._is_hung)

    @property
    def _is_hypothetical(self) -> bool:
        return self.account.observes or not self.status.enforcing

    @property
    def _would(self) -> str:
        return "would " if self._is_hypothetical else ""

    def _step(self, step: PlanStatus, elapsed_s: float) -> str:
        what = " ".join(filter(None, (step.do, step.scope, f"above {step.above}" if step.above else "")))
        if self._is_hung:
            return f"{what}, postponed until the daemon completes a cycle"
        told = f"{self._would}{what} {due_short(step, elapsed_s)}"
        if not step.withheld_by:
            return told
        will_be = "will be " if step.due_in_s > elapsed_s else ""
        why = f": {step.held_because}" if step.held_because else ""
        return f"{told}, {will_be}held ({brake_short(step, elapsed_s)}){why}"


def _tight(words: str) -> str:
    """With `4m 10s` as `4m10s`: a column has little room."""
    return words.replace("m ", "m").replace("h ", "h")
