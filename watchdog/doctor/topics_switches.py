"""What can be found of the operator's switches on the node's own object, in words."""

from typing import Final

from watchdog.doctor.finding import ENFORCING, Topic, missing, ok, warning

SWITCH: Final = Topic(
    name="node_annotation",
    means="No annotation of the node turns enforcement off, and it can be seen whether there is one.",
    purposes=ENFORCING,
    cases={
        "unset": ok("node {node} has no annotation {key}"),
        "observe": missing(
            "the annotation {key} of node {node} turns enforcement off",
            "`kubectl annotate node {node} {key}-` takes it away, when you know who set it and why",
        ),
        "ignored": warning(
            "the annotation {key} of node {node} is {value}, which means nothing: it can only say observe",
            "`kubectl annotate node {node} {key}-`; more force is for the policy to allow",
        ),
        "unknown": missing(
            "whether the annotation {key} of node {node} turns enforcement off can't be seen, so that it "
            "counts as if it did: {problem}",
            "{remedy}",
        ),
        "unfollowed": ok(
            "the object of node {node} is not followed (--node-object, or the API): neither its annotation {key} nor "
            "maintenance of its GPUs is seen"
        ),
    },
)
TOPICS: Final = (SWITCH,)
