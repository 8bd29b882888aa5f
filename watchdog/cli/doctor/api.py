"""Checks of the way to the API server, each with what it says."""

from collections.abc import Iterable
from typing import Final

from watchdog.cli.doctor.facts import ApiFacts, ClusterFacts
from watchdog.cli.doctor.finding import Finding, Topic, missing, ok, remedied, warning
from watchdog.core.model import Place
from watchdog.kube.credentials import Validity, differ
from watchdog.report.text import date_time, span

_SET_CLOCK: Final = "set this node's clock right (chronyd, systemd-timesyncd)"

API_CONFIG: Final = Topic(
    name="api_config",
    means="There is a way to the Kubernetes API: a kubeconfig, or the service account of the pod that this runs in. It "
    "is looked at only where no `--pods FILE` is given.",
    cases={
        "file": ok("the kubeconfig {path} leads to {host}"),
        "pod": ok("the service account of this pod leads to {host}"),
        "lacking": missing("{problem}", "{remedy}"),
    },
)
API: Final = Topic(
    name="api",
    means="The API server answers.",
    cases={
        "answers": ok("{host} answers: Kubernetes {version}"),
        "nameless": ok("{host} answers"),
        "unreachable": missing("{problem}", "{remedy}"),
        "odd": missing("{problem}", "{remedy}"),
        "late": missing(
            "{host} has not answered all questions within {waited}; what was waited for last: {asking}",
            "look at the network, the DNS of this node and the load of the API server, then look again",
        ),
    },
)
API_CERTIFICATE: Final = Topic(
    name="api_certificate",
    means="The API server's certificate is accepted. Where it is not, its dates and the server's clock are looked at "
    "unchecked, to tell whether the certificate is at fault or a clock; no credentials are sent then.",
    cases={
        "expired": missing(
            "the certificate of {host} expired {span} ago, at {moment}",
            "renew it (kubeadm: `kubeadm certs renew apiserver` on the control plane, then restart the API server)",
        ),
        "early": missing(
            "the certificate of {host} is valid only from {moment} on, in {span}",
            "wait, or make it anew: the clock by which it was made was ahead",
        ),
        "ahead": missing(
            "this node's clock is {span} ahead of that of {host}, so the certificate there, which is valid until "
            "{moment}, counts as expired",
            _SET_CLOCK,
        ),
        "behind": missing(
            "this node's clock is {span} behind that of {host}, so the certificate there, which is valid from "
            "{moment} on, does not count yet",
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
            "this node's clock is {span} ahead of the API server's: certificates count as expired too early, pods that "
            "end as past their deadline; `active` hours come too early; times in the journal and in Events are wrong",
            "see which of the two is right (`date -u` on both), and set the other one (chronyd, systemd-timesyncd)",
        ),
        "behind": warning(
            "this node's clock is {span} behind the API server's: new certificates do not count yet, the kubelet "
            "renews this pod's token too late, `active` hours and deadlines of pods that end come too late; times in "
            "the journal and in Events are wrong",
            "see which of the two is right (`date -u` on both), and set the other one (chronyd, systemd-timesyncd)",
        ),
    },
)
API_CREDENTIALS: Final = Topic(
    name="api_credentials",
    means="The API server accepts this account's token or client certificate.",
    cases={
        "account": ok("the API server takes us for {account}"),
        "accepted": ok("the API server accepts the credentials"),
        "token_expired": missing(
            "the token{of} expired {span} ago by the API server's clock",
            "in a pod the kubelet writes a new one: see that it runs and that this node's clock is right, then delete "
            "the pod; otherwise put a new token into the kubeconfig",
        ),
        "token_early": missing(
            "the token{of} is valid only in {span} by the API server's clock",
            "set the clock right of the server that issued it, or of the API server",
        ),
        "certificate_expired": missing(
            "the client certificate expired {span} ago by the API server's clock",
            "put a new one into the kubeconfig",
        ),
        "certificate_early": missing(
            "the client certificate is valid only in {span} by the API server's clock",
            "set the API server's clock right, or make the certificate anew",
        ),
        "refused": missing(
            "the API server does not accept the {kind}{of} (401){though}",
            "see that it is of this cluster, and that its account still exists: one that was deleted and made again "
            "needs a new token (delete the pod, or write the kubeconfig anew)",
        ),
        "none": missing(
            "the API server takes us for nobody in particular: no credentials were sent",
            "give the user in the kubeconfig a token or a client certificate; if it has an `exec` plugin, run that by "
            "hand",
        ),
    },
)
NODE_NAME: Final = Topic(
    name="node_name",
    means="The cluster has a node with the name that `--node` gives. Its pods are found by that name alone.",
    cases={
        "exists": ok("the cluster has a node {node}"),
        "own": ok("this pod runs on node {node}"),
        "pods": ok("there are pods on a node {node}"),
        "other": missing(
            "this pod runs on node {own}, and was told to look at {node}: none of the pods here is known",
            "set NODE_NAME by the downward API (fieldRef: spec.nodeName), or give --node {own}",
        ),
        "absent": missing(
            "the cluster has no node {node}, so no pod here is known",
            "give --node NAME (or NODE_NAME), as `kubectl get nodes` shows it; a host's own name can differ",
        ),
        "similar": missing(
            "the cluster has no node {node}, but one {similar}, so no pod here is known",
            "give --node {similar} (or NODE_NAME), if that is this one",
        ),
        "doubtful": warning(
            "no pod is on a node {node}; whether there is such a node this account can't see",
            "see whether `kubectl get nodes` has that name, and give the right one with --node (or NODE_NAME)",
        ),
    },
)
OWN_POD: Final = Topic(
    name="own_pod",
    means="The pod that this runs in is in the list of the node's pods. The daemon spares it by that.",
    cases={
        "known": ok("this pod, {pod}, is in the list"),
        "unknown": warning(
            "this pod{pod} is not in the list of the pods of node {node}",
            "see that --node (NODE_NAME) names the node that this pod runs on; just after a start look again",
        ),
    },
)
CAPACITY: Final = Topic(
    name="capacity",
    means="The node advertises the resource of [capacity], where the policy has that table.",
    cases={
        "kept": ok("the node advertises {amount} of {resource}"),
        "absent": warning(
            "the node does not advertise {resource} (yet): pods that request it are not placed here",
            "the daemon advertises it while it runs: see that it does, and its log",
        ),
    },
)
CONNECTION: Final = (API_CONFIG, API, API_CERTIFICATE, API_CLOCK, API_CREDENTIALS)
PLACE: Final = (NODE_NAME, OWN_POD, CAPACITY)


_LOG: Final = "look at the log of the API server"


def check_api(facts: ApiFacts | None) -> Iterable[Finding]:
    """What stands between this node and the API server, and whom the server takes us for; nothing if not used."""
    if facts is None:
        return
    if facts.ended == "no_way":
        yield API_CONFIG.say("lacking", **remedied(facts.problem, _LOG))
        return
    place = {"host": facts.host or "the API server"}
    if facts.host:
        case = "pod" if facts.kubeconfig is None else "file"
        yield API_CONFIG.say(case, path=facts.kubeconfig, **place)
    yield from _answer(facts)
    if facts.offset_s is not None:
        yield _clocks(facts.offset_s)
    yield from _credentials(facts)
    if facts.ended == "late":
        yield API.say("late", waited=span(facts.waited_s), asking=facts.asking, **place)


def _answer(facts: ApiFacts) -> Iterable[Finding]:
    if facts.ended == "certificate":
        yield _certificate(facts)
    elif facts.ended in ("unreachable", "odd"):
        yield API.say(facts.ended, **remedied(facts.problem, _LOG))
    elif facts.version:
        yield API.say("answers", host=facts.host, version=facts.version)
    elif facts.ended != "late":
        yield API.say("nameless", host=facts.host)


def _certificate(facts: ApiFacts) -> Finding:
    """Whose fault it is: the certificate's, where it does not count by the server's own clock either."""
    peer, now_s = facts.peer, facts.now_s
    state = _state(peer.validity, now_s)
    moment_s = peer.validity.ends_s if state == "expired" else peer.validity.begins_s
    if not state or moment_s is None:
        return API_CERTIFICATE.say("refused", **remedied(facts.problem, _LOG))
    told = {"host": facts.host, "moment": date_time(moment_s)}
    if peer.offset_s is not None and differ(peer.offset_s) and not _state(peer.validity, now_s + peer.offset_s):
        case = "behind" if peer.offset_s > 0 else "ahead"
        return API_CERTIFICATE.say(case, span=span(abs(peer.offset_s)), **told)
    return API_CERTIFICATE.say(state, span=span(abs(now_s - moment_s)), **told)


def _state(validity: Validity, at_s: float) -> str:
    """`expired` or `early`, seen from a moment; empty where it is valid, or that is not known."""
    if validity.ends_s is not None and validity.ends_s <= at_s:
        return "expired"
    return "early" if validity.begins_s is not None and validity.begins_s > at_s else ""


def _clocks(offset_s: float) -> Finding:
    if not differ(offset_s):
        apart = "less than 2s" if abs(offset_s) < 1.5 else f"about {abs(offset_s):.0f}s"  # a Date has whole seconds
        return API_CLOCK.say("agree", apart=apart)
    return API_CLOCK.say("behind" if offset_s > 0 else "ahead", span=span(abs(offset_s)))


def _credentials(facts: ApiFacts) -> Iterable[Finding]:
    shown, account = facts.credentials, facts.account.name
    if facts.ended == "anonymous" or (facts.ended == "credentials" and shown.kind == "none"):
        yield API_CREDENTIALS.say("none")
    elif facts.ended == "credentials":
        of = f" of {shown.account}" if shown.account else ""
        at_s = facts.now_s + (facts.offset_s or 0.0)
        state = _state(shown.validity, at_s)
        moment_s = shown.validity.ends_s if state == "expired" else shown.validity.begins_s
        if state and moment_s is not None:
            yield API_CREDENTIALS.say(f"{shown.kind}_{state}", of=of, span=span(abs(at_s - moment_s)))
        else:
            kind = "client certificate" if shown.kind == "certificate" else "token"
            though = ", though it has not expired" if shown.validity.ends_s is not None else ""
            yield API_CREDENTIALS.say("refused", kind=kind, of=of, though=though)
    elif account:
        yield API_CREDENTIALS.say("account", account=account)
    elif facts.ended == "asked":
        yield API_CREDENTIALS.say("accepted")


def check_node_name(facts: ApiFacts | None, cluster: ClusterFacts, own: Place | None) -> Iterable[Finding]:
    """Whether `--node` names a node, and this one; and whether the pod that this runs in (`own`) is there."""
    if facts is None or facts.ended != "asked":
        return
    node, here = cluster.node_name, facts.account.node
    if here and here != node:
        yield NODE_NAME.say("other", own=here, node=node)
    elif facts.exists is False or (facts.exists is None and facts.similar):
        case = "similar" if facts.similar else "absent"
        yield NODE_NAME.say(case, node=node, similar=facts.similar)
    elif facts.exists or here:
        yield NODE_NAME.say("exists" if facts.exists else "own", node=node)
    elif cluster.pods.synced is not None:
        yield NODE_NAME.say("pods" if cluster.pods.pods else "doubtful", node=node)
    yield from _own_pod(facts, cluster, own)


def _own_pod(facts: ApiFacts, cluster: ClusterFacts, own: Place | None) -> Iterable[Finding]:
    uid = facts.account.pod_uid or (own.pod if own is not None else None)
    if not uid or cluster.pods.synced is None:
        return
    found = next(
        (pod for pod in cluster.pods.pods if uid == (pod.config_hash if pod.static and pod.config_hash else pod.uid)),
        None,
    )
    if found is not None:
        yield OWN_POD.say("known", pod=f"{found.namespace}/{found.name}")
    else:
        name = f" {facts.account.pod}" if facts.account.pod else ""
        yield OWN_POD.say("unknown", pod=name, node=cluster.node_name)
