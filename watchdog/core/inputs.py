"""The inputs of a cycle besides its reading of the GPUs."""

from dataclasses import dataclass, field

from watchdog.core.assessment import Assessment
from watchdog.core.attribute import ContainerKey
from watchdog.core.model import Node, Place, PodList
from watchdog.core.policy import Policy
from watchdog.core.rules import Namespaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The inputs of a cycle: the policy, the pods, the Node object, the namespaces, and the state of the daemon.

    `own` is where the daemon itself runs; `namespaces` has the labels of every known namespace. `overdue` are the
    containers that should be in the pod list by now and are not; `hidden` are the UIDs of the listed pods if any of
    them may use more than the reading shows (None: it shows everything). `enforcing`: actions are carried out;
    `is_held`: none is for the moment, because the policy may be about to change, but what is due stays due.
    """

    policy: Policy
    node: Node
    pods: PodList = field(default_factory=PodList)
    own: Place | None = None
    namespaces: Namespaces = field(default_factory=dict)
    overdue: frozenset[ContainerKey] = frozenset()
    pods_stale: bool = False
    journal_writable: bool = True
    maintenance: bool = False
    hidden: frozenset[str] | None = None
    enforcing: bool = False
    is_held: bool = False

    @property
    def is_inconclusive(self) -> bool:
        """Whether a cycle counts no time, and an account that was not seen may still use memory."""
        return self.pods_stale or self.maintenance

    def acts_on(self, assessment: Assessment) -> bool:
        """Whether an action on this account is carried out: neither the mode nor its rule only observes."""
        return self.enforcing and not assessment.observes
