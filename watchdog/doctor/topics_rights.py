"""What can be found of this account's rights, in words: each thing that the policy needs, one by one."""

from typing import Final

from watchdog.doctor.finding import ENFORCING, Case, Topic, missing, ok, warning
from watchdog.kube.rights import ALL_RIGHTS, Piece, Right

_APPLY: Final = "as an administrator: `{command} | kubectl apply -f -`{instead}"


def _cases(lacking: Case) -> dict[str, Case]:
    return {"held": ok("this account may {verbs} {target}"), "lacking": lacking}


PODS: Final = Topic(
    name="right_pods",
    means="This account may list and watch pods.",
    cases=_cases(
        missing(
            "this account may not {verbs} {target}: which process is whose is not known, so all use is of unknown pods "
            "and nobody is acted on",
            _APPLY,
        )
    ),
)
EVENTS: Final = Topic(
    name="right_events",
    means="This account may create and patch Events, where the policy writes some.",
    cases=_cases(
        warning("this account may not {verbs} {target}: whoever is warned or hit is not told so on his pod", _APPLY)
    ),
)
NODE: Final = Topic(
    name="right_node",
    means="This account may list and watch nodes: the object of its own is followed, whatever the policy says.",
    purposes=ENFORCING,
    cases=_cases(
        missing(
            "this account may not {verbs} {target}: the node's labels are not known, nor whether its annotation turns "
            "enforcement off, nor whether the driver is to be let go for maintenance",
            _APPLY,
        )
    ),
)
NAMESPACES: Final = Topic(
    name="right_namespaces",
    means="This account may list and watch namespaces, where rules match by their labels.",
    purposes=ENFORCING,
    cases=_cases(
        missing(
            "this account may not {verbs} {target}: pods that rules with namespace_labels may be for are left alone",
            _APPLY,
        )
    ),
)
EVICT: Final = Topic(
    name="right_evict",
    means="This account may get a pod and create its eviction, where the policy evicts.",
    purposes=ENFORCING,
    cases=_cases(missing("this account may not {verbs} {target}: each eviction fails; kills go on", _APPLY)),
)
CAPACITY: Final = Topic(
    name="right_capacity",
    means="This account may patch the node's status, where the policy has [capacity].",
    cases=_cases(
        warning(
            "this account may not {verbs} {target}: the resource of [capacity] is not kept up on the node, so pods "
            "that request it are not placed here",
            _APPLY,
        )
    ),
)
LATER: Final = Topic(
    name="rights_to_enforce",
    means="A policy that observes needs fewer rights: whether this account has what the same policy would need with "
    '`mode = "enforce"`.',
    purposes=ENFORCING,
    cases={
        "held": ok('with mode = "enforce" this policy would need no right that this account lacks'),
        "lacking": missing(
            'with mode = "enforce" this policy would need rights that this account lacks: {targets}',
            "before that, as an administrator: `{command} --enforce | kubectl apply -f -`{instead}",
        ),
    },
)
ASKED: Final = Topic(
    name="rights",
    means="The API server tells this account what it may do; every account may ask that "
    "(the cluster role system:basic-user).",
    cases={"unknown": warning("{problem}", "{remedy}")},
)
TOPICS: Final = (ASKED, PODS, EVENTS, NODE, NAMESPACES, EVICT, CAPACITY, LATER)
_BY_PIECE: Final = {
    (Piece.OBSERVE, "pods"): PODS,
    (Piece.OBSERVE, "events"): EVENTS,
    (Piece.NODE, "nodes"): NODE,
    (Piece.NAMESPACES, "namespaces"): NAMESPACES,
    (Piece.EVICT, "pods"): EVICT,
    (Piece.CAPACITY, "nodes"): CAPACITY,
}
TOPIC_OF: Final[dict[Right, Topic]] = {right: _BY_PIECE[right.piece, right.resource] for right in ALL_RIGHTS}
