"""What surrounds the GPUs: pods, node and namespaces as they are known at the moment, and what they allow."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from watchdog.core.assess import Setting
from watchdog.core.model import Now, Place
from watchdog.core.plan import Conditions, PlanEntry
from watchdog.core.policy import Policy, Rule
from watchdog.core.rules import Switches, Terminating, maintenance_of, observes, protection, rule_of, switches
from watchdog.cycle.cycle import View
from watchdog.loop.sources import is_stale, namespace_source, node_source, pod_source
from watchdog.options import Options

if TYPE_CHECKING:
    from watchdog.loop.cluster import Cluster


class Surroundings:
    """Reads the sources that the options name, anew whenever it is asked. `own` is where the daemon itself runs."""

    def __init__(self, options: Options, own: Place | None, cluster: "Cluster | None" = None) -> None:
        self._own = own
        self._pods = pod_source(options, cluster)
        self._node = node_source(options, cluster)
        self._namespaces = namespace_source(options, cluster)
        self._terminating = Terminating()

    @property
    def have_changed(self) -> bool:
        """Whether there are other pods than at the last look, or another node or namespaces."""
        return any(source.has_changed() for source in (self._pods, self._node, self._namespaces))

    def switches(self, now: Now, old_after_s: float = math.inf) -> Switches:
        """What the node's own object asks for at this moment; known no more where it is older than this.

        Its age counts only while something keeps the daemon from learning more of it.
        """
        found = switches(*self._node.read(now))
        return replace(found, unseen=found.unseen or self._node.is_old(now, old_after_s))

    def view(
        self,
        policy: Policy,
        now: Now,
        *,
        journal_writable: bool = True,
        enforcing: bool = False,
        is_held: bool = False,
    ) -> View:
        """What a pass takes as given at this moment."""
        node, gaps = self._node.read(now)
        namespaces, more_gaps = self._namespaces.read(now)
        if self._namespaces.is_old(now, policy.stale_after_s):
            namespaces = {}  # a rule that goes by their labels can't be told then, and its pods are left alone
        pods = self._pods.read(now)
        marked = self._terminating.mark(pods.pods, now)
        return View(
            pods=replace(pods, pods=marked, gaps=(*pods.gaps, *gaps, *more_gaps)),
            setting=Setting(policy=policy, node=node, own=self._own, namespaces=namespaces),
            conditions=Conditions(
                pods_stale=is_stale(pods, policy, now),
                journal_writable=journal_writable,
                maintenance=maintenance_of(node) is not None,
            ),
            enforcing=enforcing,
            is_held=is_held,
        )

    def objection(self, entry: PlanEntry, policy: Policy, now: Now) -> str | None:
        """What speaks against a signal for an action, by the pod, the rule and the policy of this moment.

        The pod may have been deleted or protected since. An old list says nothing of that either way.
        """
        view = self.view(policy, now)
        if view.conditions.maintenance:
            return "the GPUs came under maintenance meanwhile"
        present = {pod.uid: pod for pod in view.pods.pods}
        pod = present.get(entry.account.uid)
        if pod is None and view.pods.synced is not None:
            return "the pod had gone from the list of this node's pods by then"
        pod = pod or entry.assessment.pod
        rule = rule_of(pod, policy, view.setting.node, view.setting.namespaces)
        has_force = isinstance(rule, Rule) and any(step.do.is_force for step in rule.steps)
        if not isinstance(rule, Rule) or not has_force or observes(rule, now):
            return "its rule no longer allowed enforcement"
        protected = protection(pod, policy.protect, self._own, now)
        return None if protected is None else f"the pod was protected by then: {protected}"
