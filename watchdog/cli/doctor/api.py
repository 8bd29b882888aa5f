"""Checks of the connection to the API server, the account's rights and the node annotation, with their texts."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from watchdog.cli.doctor.facts import ApiFacts, ClusterFacts
from watchdog.cli.doctor.finding import ENFORCING, Case, Finding, Topic, missing, ok, remedied, warning
from watchdog.core.policy import Policy
from watchdog.core.rules import MODE, switches
from watchdog.kube.credentials import Validity, exceeds_tolerance
from watchdog.kube.reviews import ApiAccount
from watchdog.kube.rights import ALL_RIGHTS, Piece, Right
from watchdog.options import DEFAULT_NAMESPACE, DEFAULT_POLICY, DEFAULT_SERVICE_ACCOUNT
from watchdog.report.text import date_time, inert, span

_SET_CLOCK: Final = "correct this node's clock (chronyd, systemd-timesyncd)"

API_CONFIG: Final = Topic(
    name="api_config",
    means="There is a configuration for the Kubernetes API: a kubeconfig, or the service account of the pod that this "
    "runs in. Only checked without `--pods FILE`.",
    cases={
        "file": ok("the kubeconfig {path} names {host}"),
        "pod": ok("this pod's service account is used for {host}"),
        "lacking": missing("{problem}", "{remedy}"),
    },
)
API: Final = Topic(
    name="api",
    means="The API server responds.",
    cases={
        "answers": ok("{host} responds: Kubernetes {version}"),
        "nameless": ok("{host} responds"),
        "unreachable": missing("{problem}", "{remedy}"),
        "odd": missing("{problem}", "{remedy}"),
        "late": missing(
            "{host} did not answer all requests within {waited}; the last one was for {asking}",
            "check the network, this node's DNS and the load of the API server, then run doctor again",
        ),
    },
)
API_CERTIFICATE: Final = Topic(
    name="api_certificate",
    means="The API server's certificate is accepted. If it is not, its dates and the server's clock are read without "
    "verification, to determine whether the certificate or a clock is wrong; no credentials are sent then.",
    cases={
        "expired": missing(
            "the certificate of {host} expired {span} ago, at {moment}",
            "renew it (kubeadm: `kubeadm certs renew apiserver` on the control plane, then restart the API server)",
        ),
        "early": missing(
            "the certificate of {host} is not valid until {moment}, in {span}",
            "wait, or reissue it: the clock it was issued by was ahead",
        ),
        "ahead": missing(
            "this node's clock is {span} ahead of that of {host}, so its certificate, which is valid until "
            "{moment}, counts as expired",
            _SET_CLOCK,
        ),
        "behind": missing(
            "this node's clock is {span} behind that of {host}, so its certificate, which is valid from "
            "{moment}, does not count yet",
            _SET_CLOCK,
        ),
        "refused": missing("{problem}", "{remedy}"),
    },
)
API_CLOCK: Final = Topic(
    name="api_clock",
    means="This node's clock and the API server's agree within a minute.",
    cases={
        "agree": ok("this node's clock and the API server's differ by {apart}"),
        "ahead": warning(
            "this node's clock is {span} ahead of the API server's: certificates expire too early, terminating pods "
            "count as past their deadline too early, `active` hours begin too early, and times in the journal and in "
            "Events are wrong",
            "find out which clock is right (`date -u` on both), and correct the other (chronyd, systemd-timesyncd)",
        ),
        "behind": warning(
            "this node's clock is {span} behind the API server's: new certificates do not count yet, the kubelet "
            "renews this pod's token too late, `active` hours and deadlines of terminating pods come too late, and "
            "times in the journal and in Events are wrong",
            "find out which clock is right (`date -u` on both), and correct the other (chronyd, systemd-timesyncd)",
        ),
    },
)
API_CREDENTIALS: Final = Topic(
    name="api_credentials",
    means="The API server accepts this account's token or client certificate.",
    cases={
        "account": ok("the API server authenticates this account as {account}"),
        "accepted": ok("the API server accepts the credentials"),
        "token_expired": missing(
            "the token{of} expired {span} ago by the API server's clock",
            "in a pod the kubelet renews it: check that the kubelet runs and that this node's clock is right, then "
            "delete the pod; otherwise put a new token into the kubeconfig",
        ),
        "token_early": missing(
            "the token{of} is not valid for another {span} by the API server's clock",
            "correct the clock of the server that issued it, or of the API server",
        ),
        "certificate_expired": missing(
            "the client certificate expired {span} ago by the API server's clock",
            "put a new one into the kubeconfig",
        ),
        "certificate_early": missing(
            "the client certificate is not valid for another {span} by the API server's clock",
            "correct the API server's clock, or reissue the certificate",
        ),
        "refused": missing(
            "the API server rejects the {kind}{of} (401){though}",
            "check that it belongs to this cluster and that its account still exists: an account that was deleted and "
            "recreated needs a new token (delete the pod, or write a new kubeconfig)",
        ),
        "none": missing(
            "the API server treats this account as anonymous: no credentials were sent",
            "give the user in the kubeconfig a token or a client certificate; if it has an `exec` plugin, run that "
            "manually",
        ),
    },
)
API_TOPICS: Final = (API_CONFIG, API, API_CERTIFICATE, API_CLOCK, API_CREDENTIALS)


_LOG: Final = "check the log of the API server"


def check_api(facts: ApiFacts | None) -> Iterable[Finding]:
    """The connection to the API server, and the account it authenticates; nothing if the API is not used."""
    if facts is None:
        return
    if facts.ended == "unconfigured":
        yield API_CONFIG.finding("lacking", **remedied(facts.problem, _LOG))
        return
    place = {"host": facts.host or "the API server"}
    if facts.host:
        case = "pod" if facts.kubeconfig is None else "file"
        yield API_CONFIG.finding(case, path=facts.kubeconfig, **place)
    yield from _answer(facts)
    if facts.offset_s is not None:
        yield _clocks(facts.offset_s)
    yield from _credentials(facts)
    if facts.ended == "late":
        yield API.finding("late", waited=span(facts.waited_s), asking=facts.asking, **place)


def _answer(facts: ApiFacts) -> Iterable[Finding]:
    if facts.ended == "certificate":
        yield _certificate(facts)
    elif facts.ended in ("unreachable", "odd"):
        yield API.finding(facts.ended, **remedied(facts.problem, _LOG))
    elif facts.version:
        yield API.finding("answers", host=facts.host, version=facts.version)
    elif facts.ended != "late":
        yield API.finding("nameless", host=facts.host)


def _certificate(facts: ApiFacts) -> Finding:
    """Whether the certificate is wrong, because it is not valid by the server's own clock either, or a clock."""
    peer, now_s = facts.peer, facts.now_s
    state = _state(peer.validity, now_s)
    moment_s = peer.validity.ends_s if state == "expired" else peer.validity.begins_s
    if not state or moment_s is None:
        return API_CERTIFICATE.finding("refused", **remedied(facts.problem, _LOG))
    values = {"host": facts.host, "moment": date_time(moment_s)}
    offset_s = peer.offset_s or 0.0
    if exceeds_tolerance(offset_s) and not _state(peer.validity, now_s + offset_s):
        case = "behind" if offset_s > 0 else "ahead"
        return API_CERTIFICATE.finding(case, span=span(abs(offset_s)), **values)
    return API_CERTIFICATE.finding(state, span=span(abs(now_s - moment_s)), **values)


def _state(validity: Validity, at_s: float) -> str:
    """`expired` or `early` at a moment; empty if valid or unknown."""
    if validity.ends_s is not None and validity.ends_s <= at_s:
        return "expired"
    return "early" if validity.begins_s is not None and validity.begins_s > at_s else ""


def _clocks(offset_s: float) -> Finding:
    if not exceeds_tolerance(offset_s):
        apart = "less than 2s" if abs(offset_s) < 1.5 else f"about {abs(offset_s):.0f}s"  # a Date has whole seconds
        return API_CLOCK.finding("agree", apart=apart)
    return API_CLOCK.finding("behind" if offset_s > 0 else "ahead", span=span(abs(offset_s)))


def _credentials(facts: ApiFacts) -> Iterable[Finding]:
    shown, account = facts.credentials, facts.account.name
    if facts.ended == "anonymous" or (facts.ended == "credentials" and shown.kind == "none"):
        yield API_CREDENTIALS.finding("none")
    elif facts.ended == "credentials":
        of = f" of {shown.account}" if shown.account else ""
        at_s = facts.now_s + (facts.offset_s or 0.0)
        state = _state(shown.validity, at_s)
        moment_s = shown.validity.ends_s if state == "expired" else shown.validity.begins_s
        if state and moment_s is not None:
            yield API_CREDENTIALS.finding(f"{shown.kind}_{state}", of=of, span=span(abs(at_s - moment_s)))
        else:
            kind = "client certificate" if shown.kind == "certificate" else "token"
            though = ", though it has not expired" if shown.validity.ends_s is not None else ""
            yield API_CREDENTIALS.finding("refused", kind=kind, of=of, though=though)
    elif account:
        yield API_CREDENTIALS.finding("account", account=account)
    elif facts.ended == "asked":
        yield API_CREDENTIALS.finding("accepted")


_APPLY: Final = "as an administrator: `{command} | kubectl apply -f -`{instead}"


def _cases(lacking: Case) -> dict[str, Case]:
    return {"held": ok("this account may {verbs} {target}"), "lacking": lacking}


RIGHT_PODS: Final = Topic(
    name="right_pods",
    means="This account may list and watch pods.",
    cases=_cases(
        missing(
            "this account is not allowed to {verbs} {target}: processes can't be attributed, so all use belongs to "
            "unknown pods and no action is taken",
            _APPLY,
        )
    ),
)
RIGHT_EVENTS: Final = Topic(
    name="right_events",
    means="This account may create and patch Events, if the policy writes any.",
    cases=_cases(
        warning(
            "this account is not allowed to {verbs} {target}: warnings and actions do not appear as Events on the pods",
            _APPLY,
        )
    ),
)
RIGHT_NODE: Final = Topic(
    name="right_node",
    means="This account may list and watch nodes: it always watches its own node object.",
    purposes=ENFORCING,
    cases=_cases(
        missing(
            "this account is not allowed to {verbs} {target}: the node's labels are unknown, as is whether its "
            "annotation turns enforcement off and whether the driver must be released for maintenance",
            _APPLY,
        )
    ),
)
RIGHT_NAMESPACES: Final = Topic(
    name="right_namespaces",
    means="This account may list and watch namespaces, if rules match by their labels.",
    purposes=ENFORCING,
    cases=_cases(
        missing(
            "this account is not allowed to {verbs} {target}: pods that rules with namespace_labels may match are left "
            "alone",
            _APPLY,
        )
    ),
)
RIGHT_EVICT: Final = Topic(
    name="right_evict",
    means="This account may get a pod and create its eviction, if the policy evicts.",
    purposes=ENFORCING,
    cases=_cases(
        missing("this account is not allowed to {verbs} {target}: every eviction fails; kills still work", _APPLY)
    ),
)
RIGHT_CAPACITY: Final = Topic(
    name="right_capacity",
    means="This account may patch the node's status, if the policy has [capacity].",
    cases=_cases(
        warning(
            "this account is not allowed to {verbs} {target}: the node does not advertise the resource of [capacity], "
            "so pods that request it are not scheduled here",
            _APPLY,
        )
    ),
)
RIGHTS_TO_ENFORCE: Final = Topic(
    name="rights_to_enforce",
    means='This account also has the rights that the same policy would need with `mode = "enforce"`; observing needs '
    "fewer.",
    purposes=ENFORCING,
    cases={
        "held": ok('this account has every right that this policy would need with mode = "enforce"'),
        "lacking": missing(
            'this account lacks rights that this policy would need with mode = "enforce": {targets}',
            "before enforcing, as an administrator: `{command} --enforce | kubectl apply -f -`{instead}",
        ),
    },
)
RIGHTS: Final = Topic(
    name="rights",
    means="The API server reports what this account may do; every account may ask for that "
    "(cluster role system:basic-user).",
    cases={"unknown": warning("{problem}", "{remedy}")},
)
RIGHT_TOPICS: Final = (
    RIGHTS,
    RIGHT_PODS,
    RIGHT_EVENTS,
    RIGHT_NODE,
    RIGHT_NAMESPACES,
    RIGHT_EVICT,
    RIGHT_CAPACITY,
    RIGHTS_TO_ENFORCE,
)
_BY_PIECE: Final = {
    (Piece.OBSERVE, "pods"): RIGHT_PODS,
    (Piece.OBSERVE, "events"): RIGHT_EVENTS,
    (Piece.NODE, "nodes"): RIGHT_NODE,
    (Piece.NAMESPACES, "namespaces"): RIGHT_NAMESPACES,
    (Piece.EVICT, "pods"): RIGHT_EVICT,
    (Piece.CAPACITY, "nodes"): RIGHT_CAPACITY,
}
TOPIC_OF: Final[dict[Right, Topic]] = {right: _BY_PIECE[right.piece, right.resource] for right in ALL_RIGHTS}


SWITCH: Final = Topic(
    name="node_annotation",
    means="No annotation of the node turns enforcement off, and this can be checked.",
    purposes=ENFORCING,
    cases={
        "unset": ok("node {node} has no annotation {key}"),
        "observe": missing(
            "the annotation {key} of node {node} turns enforcement off",
            "`kubectl annotate node {node} {key}-` removes it; first find out who set it and why",
        ),
        "ignored": warning(
            "the annotation {key} of node {node} is {value}, which has no effect: the only valid value is observe",
            "`kubectl annotate node {node} {key}-`; only the policy can turn enforcement on",
        ),
        "unknown": missing(
            "whether the annotation {key} of node {node} turns enforcement off can't be read, so it is assumed to: "
            "{problem}",
            "{remedy}",
        ),
        "unfollowed": ok(
            "the object of node {node} is not watched (--node-object, or the API): neither its annotation {key} nor "
            "maintenance of its GPUs is noticed"
        ),
    },
)
SWITCHES_TOPICS: Final = (SWITCH,)


def check_rights(facts: ApiFacts | None, path: Path) -> Iterable[Finding]:
    """What this account may and may not do; `path` is the policy's, for the remedy."""
    if facts is None:
        return
    remedy = _remedy(facts.account, path, in_pod=facts.kubeconfig is None)
    if facts.rights_problem:
        yield RIGHTS.finding("unknown", **remedied(facts.rights_problem, "check the log of the API server"))
    for right, lacking in facts.rights.items():
        where = TOPIC_OF[right]
        if lacking:
            yield where.finding("lacking", verbs=" or ".join(lacking), target=right.target, **remedy)
        else:
            yield where.finding("held", verbs=" and ".join(right.verbs), target=right.target)
    if facts.later:
        missing = [f"{' and '.join(verbs)} {right.target}" for right, verbs in facts.later.items() if verbs]
        case = "lacking" if missing else "held"
        yield RIGHTS_TO_ENFORCE.finding(case, targets=", ".join(missing), **remedy)


def _remedy(account: ApiAccount, path: Path, *, in_pod: bool) -> dict[str, str]:
    """The command that prints the rights this account needs; it only prints them for service accounts.

    Files in a pod, the policy above all, are read there; the output is applied from elsewhere.
    """
    words = ["gpu-watchdog", "rights", *([] if in_pod and path == DEFAULT_POLICY else ["--policy", str(path)])]
    who, _, name = account.name.rpartition(":")
    kind, _, namespace = who.partition(":serviceaccount:")
    if in_pod:
        words = ["kubectl", "-n", namespace or "NAMESPACE", "exec", account.pod or "POD", "--", *words]
    if kind == "system" and namespace:
        words += ["--namespace", namespace] if namespace != DEFAULT_NAMESPACE else []
        words += ["--service-account", name] if name != DEFAULT_SERVICE_ACCOUNT else []
        return {"command": shlex.join(words), "instead": ""}
    instead = f", with the user {account.name} in place of the service account" if account.name else ""
    return {"command": shlex.join(words), "instead": instead}


_LOOK = "see the findings about the node object"


def check_switches(facts: ClusterFacts, policy: Policy) -> Iterable[Finding]:
    """Whether the node object turns enforcement off; nothing if it is not watched and the policy only observes."""
    found = switches(facts.node, facts.node_gaps)
    names = {"node": facts.node_name, "key": MODE}
    if facts.node_path is None and "nodes" in facts.unlisted:
        return  # reported as a missing right
    if found.unseen:
        yield SWITCH.finding("unknown", **names, **remedied(facts.node_gaps[0].problem, _LOOK))
    elif not facts.node.known:
        if policy.mode == "enforce":
            yield SWITCH.finding("unfollowed", **names)
    elif found.ignored is not None:
        yield SWITCH.finding("ignored", **names, value=inert(repr(found.ignored), 100))
    else:
        yield SWITCH.finding("observe" if found.observes else "unset", **names)
