"""Checks of the account's rights and of what is switched off, each with what it says."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from watchdog.cli.doctor.facts import ApiFacts, ClusterFacts
from watchdog.cli.doctor.finding import ENFORCING, Case, Finding, Topic, missing, ok, remedied, warning
from watchdog.core.policy import Policy
from watchdog.core.rules import MODE, switches
from watchdog.kube.reviews import ApiAccount
from watchdog.kube.rights import ALL_RIGHTS, NAMESPACE, SERVICE_ACCOUNT, Piece, Right
from watchdog.options import DEFAULT_POLICY
from watchdog.report.text import inert

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
RIGHTS_TOPICS: Final = (ASKED, PODS, EVENTS, NODE, NAMESPACES, EVICT, CAPACITY, LATER)
_BY_PIECE: Final = {
    (Piece.OBSERVE, "pods"): PODS,
    (Piece.OBSERVE, "events"): EVENTS,
    (Piece.NODE, "nodes"): NODE,
    (Piece.NAMESPACES, "namespaces"): NAMESPACES,
    (Piece.EVICT, "pods"): EVICT,
    (Piece.CAPACITY, "nodes"): CAPACITY,
}
TOPIC_OF: Final[dict[Right, Topic]] = {right: _BY_PIECE[right.piece, right.resource] for right in ALL_RIGHTS}


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
SWITCHES_TOPICS: Final = (SWITCH,)


def check_rights(facts: ApiFacts | None, path: Path) -> Iterable[Finding]:
    """What this account may and may not; `path` is the policy's, for the remedy."""
    if facts is None:
        return
    remedy = _remedy(facts.account, path, in_pod=facts.kubeconfig is None)
    if facts.rights_problem:
        yield ASKED.say("unknown", **remedied(facts.rights_problem, "look at the log of the API server"))
    for right, lacking in facts.rights.items():
        where = TOPIC_OF[right]
        if lacking:
            yield where.say("lacking", verbs=" or ".join(lacking), target=right.target, **remedy)
        else:
            yield where.say("held", verbs=" and ".join(right.verbs), target=right.target)
    if facts.later:
        missing = [f"{' and '.join(verbs)} {right.target}" for right, verbs in facts.later.items() if verbs]
        case = "lacking" if missing else "held"
        yield LATER.say(case, targets=", ".join(missing), **remedy)


def _remedy(account: ApiAccount, path: Path, *, in_pod: bool) -> dict[str, str]:
    """The command that prints what this account needs; it prints for service accounts alone.

    What lies in a pod, the policy above all, is read there; who applies what is printed sits elsewhere.
    """
    words = ["gpu-watchdog", "rights", *([] if in_pod and path == DEFAULT_POLICY else ["--policy", str(path)])]
    who, _, name = account.name.rpartition(":")
    kind, _, namespace = who.partition(":serviceaccount:")
    if in_pod:
        words = ["kubectl", "-n", namespace or "NAMESPACE", "exec", account.pod or "POD", "--", *words]
    if kind == "system" and namespace:
        words += ["--namespace", namespace] if namespace != NAMESPACE else []
        words += ["--service-account", name] if name != SERVICE_ACCOUNT else []
        return {"command": shlex.join(words), "instead": ""}
    instead = f", with the user {account.name} in place of the service account" if account.name else ""
    return {"command": shlex.join(words), "instead": instead}


_LOOK = "see what is said of the node's object"


def check_switches(facts: ClusterFacts, policy: Policy) -> Iterable[Finding]:
    """Whether the node's object says to observe; of one that is not followed nothing is said where nobody enforces."""
    found = switches(facts.node, facts.node_gaps)
    names = {"node": facts.node_name, "key": MODE}
    if facts.node_path is None and "nodes" in facts.unlisted:
        return  # that the right is missing is told as that
    if found.unseen:
        yield SWITCH.say("unknown", **names, **remedied(facts.node_gaps[0].problem, _LOOK))
    elif not facts.node.known:
        if policy.mode == "enforce":
            yield SWITCH.say("unfollowed", **names)
    elif found.ignored is not None:
        yield SWITCH.say("ignored", **names, value=inert(repr(found.ignored), 100))
    else:
        yield SWITCH.say("observe" if found.observes else "unset", **names)
