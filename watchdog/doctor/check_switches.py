"""The operator's switches on the node's own object."""

from collections.abc import Iterable

import watchdog.doctor.topics_switches as topic
from watchdog.core.policy import Policy
from watchdog.core.rules import MODE, switches
from watchdog.doctor.facts import ClusterFacts
from watchdog.doctor.finding import Finding
from watchdog.doctor.remedied import remedied
from watchdog.export.phrases import inert

_LOOK = "see what is said of the node's object"


def check_switches(facts: ClusterFacts, policy: Policy) -> Iterable[Finding]:
    """Whether the node's object says to observe; of one that is not followed nothing is said where nobody enforces."""
    found = switches(facts.node, facts.node_gaps)
    names = {"node": facts.node_name, "key": MODE}
    if facts.node_path is None and "nodes" in facts.unlisted:
        return  # that the right is missing is told as that
    if found.unseen:
        yield topic.SWITCH.say("unknown", **names, **remedied(facts.node_gaps[0].why, _LOOK))
    elif not facts.node.known:
        if policy.mode == "enforce":
            yield topic.SWITCH.say("unfollowed", **names)
    elif found.ignored is not None:
        yield topic.SWITCH.say("ignored", **names, value=inert(repr(found.ignored), 100))
    else:
        yield topic.SWITCH.say("observe" if found.observes else "unset", **names)
