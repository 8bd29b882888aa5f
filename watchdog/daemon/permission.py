"""Whether enforcement is allowed at this moment, and still is for an action in progress: asked all the time."""

from watchdog import clock
from watchdog.config.watch import PolicyFile
from watchdog.core.model import Now
from watchdog.core.plan import PlanEntry
from watchdog.core.policy import Do, Policy
from watchdog.core.rules import Switches
from watchdog.daemon.enforcement import Enforcement, Footing, ignored_mode, judge
from watchdog.daemon.sinks import Sinks
from watchdog.daemon.sources import Surroundings
from watchdog.options import Options


class Permission:
    """Judges by the policy, by what the daemon stands on and has, and by the operator's switches.

    `is_held` says that only a changed policy file, which has not settled, keeps it from enforcing for the moment.
    Unlike a switch this resets nothing: no first signal and no SIGKILL is sent, and what is due stays due.
    """

    def __init__(
        self,
        options: Options,
        footing: Footing,
        policy_file: PolicyFile,
        surroundings: Surroundings,
        sinks: Sinks,
    ) -> None:
        self._journal = options.journal
        self._footing = footing
        self._policy_file = policy_file
        self._surroundings = surroundings
        self._sinks = sinks
        self.switches = Switches()
        self.enforcement = Enforcement(enforcing=False, suspended=())
        self.is_held = False

    @property
    def decides(self) -> bool:
        """Whether plans are made to be acted on, now or once the policy file has settled."""
        return self.enforcement.enforcing or self.is_held

    def judge(self, policy: Policy, now: Now) -> bool:
        """Look at everything again; whether enforcement begins with this moment."""
        found = self._surroundings.switches(now, policy.stale_after_s)
        if found.ignored is not None and found.ignored != self.switches.ignored:
            self._sinks.warn(ignored_mode(found.ignored))
        self._policy_file.look(now)
        decided, self.switches = self.decides, found
        enforcement = judge(
            policy,
            self._footing,
            self._journal,
            found,
            has_lock=self._sinks.has_lock,
            has_journal=self._sinks.has_journal,
        )
        self.enforcement = enforcement.held() if self._policy_file.holds else enforcement
        self.is_held = self.enforcement.waits_for_policy and self._policy_file.has_settled
        return self.decides and not decided

    def objection(self, entry: PlanEntry, policy: Policy, *, is_first: bool = False) -> str | None:
        """What speaks against a signal for an action, the first or SIGKILL after its grace period; None: nothing.

        While the policy file is waited for, no action begins, and a grace period that has begun goes on.
        """
        if not self.decides:
            return "enforcement was turned off meanwhile"
        if self.is_held and (is_first or entry.do is Do.EVICT):
            return "the policy file has changed, and has not settled"
        return self._surroundings.objection(entry, policy, clock.now())
