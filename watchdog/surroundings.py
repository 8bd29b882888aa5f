"""What surrounds the GPUs: pods, node and namespaces as they are known at the moment, and what they allow."""

from dataclasses import replace

from watchdog.core.assess import Setting
from watchdog.core.model import Now, Place
from watchdog.core.plan import Conditions, PlanEntry
from watchdog.core.policy import Policy, Rule
from watchdog.core.protect import protection
from watchdog.core.rules import observes, rule_of
from watchdog.cycle import View
from watchdog.options import Options
from watchdog.sources import is_stale, namespace_source, node_source, pod_source


class Surroundings:
    """Reads the sources that the options name, anew whenever it is asked. `own` is where the daemon itself runs."""

    def __init__(self, options: Options, own: Place | None) -> None:
        self._own = own
        self._pods = pod_source(options)
        self._node = node_source(options)
        self._namespaces = namespace_source(options)

    @property
    def have_changed(self) -> bool:
        """Whether there are other pods than at the last look."""
        return self._pods.has_changed()

    def view(self, policy: Policy, now: Now, *, journal_writable: bool = True, enforcing: bool = False) -> View:
        """What a pass takes as given at this moment."""
        node, gaps = self._node.read(now)
        namespaces, more_gaps = self._namespaces.read(now)
        pods = self._pods.read(now)
        return View(
            pods=replace(pods, gaps=(*pods.gaps, *gaps, *more_gaps)),
            setting=Setting(policy=policy, node=node, own=self._own, namespaces=namespaces),
            conditions=Conditions(pods_stale=is_stale(pods, policy, now), journal_writable=journal_writable),
            enforcing=enforcing,
        )

    def permit(self, entry: PlanEntry, policy: Policy, now: Now) -> bool:
        """Whether a deed in its grace may still go on to SIGKILL by the pod, the rule and the policy of this moment.

        The pod may have been deleted or protected in the grace; one that has gone stays as it was.
        """
        view = self.view(policy, now)
        present = {pod.uid: pod for pod in view.pods.pods}
        pod = present.get(entry.account.uid, entry.assessment.pod)
        rule = rule_of(pod, policy, view.setting.node, view.setting.namespaces)
        if not isinstance(rule, Rule) or observes(rule, now):
            return False
        has_force = any(step.do.is_force for step in rule.steps)
        return has_force and protection(pod, policy.protect, self._own, now) is None
