"""Whether force may be used at the moment, and may still be used for a deed under way: asked again all the time."""

from watchdog import clock
from watchdog.core.model import Now
from watchdog.core.plan import PlanEntry
from watchdog.core.policy import Policy
from watchdog.core.switches import Switches
from watchdog.loop.enforcement import Enforcement, Footing, ignored_mode, judge
from watchdog.loop.reporter import Reporter
from watchdog.loop.surroundings import Surroundings
from watchdog.options import Options


class Permission:
    """Judges by the policy, by what the daemon stands on and has, and by the operator's switches."""

    def __init__(self, options: Options, footing: Footing, surroundings: Surroundings, reporter: Reporter) -> None:
        self._journal = options.journal
        self._footing = footing
        self._surroundings = surroundings
        self._reporter = reporter
        self.switches = Switches()
        self.enforcement = Enforcement(enforcing=False, suspended=())

    def judge(self, policy: Policy, now: Now) -> bool:
        """Look at everything again; whether enforcement begins with this moment."""
        found = self._surroundings.switches(now, policy.stale_after_s)
        if found.ignored is not None and found.ignored != self.switches.ignored:
            self._reporter.warn(ignored_mode(found.ignored))
        before, self.switches = self.enforcement, found
        self.enforcement = judge(
            policy,
            self._footing,
            self._journal,
            found,
            has_lock=self._reporter.has_lock,
            has_journal=self._reporter.has_journal,
        )
        return self.enforcement.enforcing and not before.enforcing

    def objection(self, entry: PlanEntry, policy: Policy) -> str | None:
        """What speaks against SIGKILL for a deed in its grace, or None: force only ever gets less."""
        if not self.enforcement.enforcing:
            return "enforcement was withdrawn in the grace period"
        return self._surroundings.objection(entry, policy, clock.now())
