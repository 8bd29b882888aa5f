"""The API server and this account there: a way, an answer, a certificate, clocks, credentials, the node's name."""

from collections.abc import Iterable
from typing import Final

import watchdog.doctor.topics_api as topic
from watchdog.core.model import Place
from watchdog.doctor.api_facts import ApiFacts
from watchdog.doctor.facts import ClusterFacts
from watchdog.doctor.finding import Finding
from watchdog.doctor.remedied import remedied
from watchdog.export.phrases import date_time, span
from watchdog.kube.credentials import Validity, differ

_LOG: Final = "look at the log of the API server"


def check_api(facts: ApiFacts | None) -> Iterable[Finding]:
    """What stands between this node and the API server, and whom the server takes us for; nothing if not used."""
    if facts is None:
        return
    if facts.ended == "no_way":
        yield topic.API_CONFIG.say("lacking", **remedied(facts.problem, _LOG))
        return
    place = {"host": facts.host or "the API server"}
    if facts.host:
        case = "pod" if facts.kubeconfig is None else "file"
        yield topic.API_CONFIG.say(case, path=facts.kubeconfig, **place)
    yield from _answer(facts)
    if facts.offset_s is not None:
        yield _clocks(facts.offset_s)
    yield from _credentials(facts)
    if facts.ended == "late":
        yield topic.API.say("late", waited=span(facts.waited_s), asking=facts.asking, **place)


def _answer(facts: ApiFacts) -> Iterable[Finding]:
    if facts.ended == "certificate":
        yield _certificate(facts)
    elif facts.ended in ("unreachable", "odd"):
        yield topic.API.say(facts.ended, **remedied(facts.problem, _LOG))
    elif facts.version:
        yield topic.API.say("answers", host=facts.host, version=facts.version)
    elif facts.ended != "late":
        yield topic.API.say("nameless", host=facts.host)


def _certificate(facts: ApiFacts) -> Finding:
    """Whose fault it is: the certificate's, where it does not count by the server's own clock either."""
    peer, now_s = facts.peer, facts.now_s
    state = _state(peer.validity, now_s)
    moment_s = peer.validity.ends_s if state == "expired" else peer.validity.begins_s
    if not state or moment_s is None:
        return topic.API_CERTIFICATE.say("refused", **remedied(facts.problem, _LOG))
    told = {"host": facts.host, "moment": date_time(moment_s)}
    if peer.offset_s is not None and differ(peer.offset_s) and not _state(peer.validity, now_s + peer.offset_s):
        case = "behind" if peer.offset_s > 0 else "ahead"
        return topic.API_CERTIFICATE.say(case, span=span(abs(peer.offset_s)), **told)
    return topic.API_CERTIFICATE.say(state, span=span(abs(now_s - moment_s)), **told)


def _state(validity: Validity, at_s: float) -> str:
    """`expired` or `early`, seen from a moment; empty where it is valid, or that is not known."""
    if validity.ends_s is not None and validity.ends_s <= at_s:
        return "expired"
    return "early" if validity.begins_s is not None and validity.begins_s > at_s else ""


def _clocks(offset_s: float) -> Finding:
    if not differ(offset_s):
        apart = "less than 2s" if abs(offset_s) < 1.5 else f"about {abs(offset_s):.0f}s"  # a Date has whole seconds
        return topic.API_CLOCK.say("agree", apart=apart)
    return topic.API_CLOCK.say("behind" if offset_s > 0 else "ahead", span=span(abs(offset_s)))


def _credentials(facts: ApiFacts) -> Iterable[Finding]:
    shown, account = facts.credentials, facts.account.name
    if facts.ended == "anonymous" or (facts.ended == "credentials" and shown.kind == "none"):
        yield topic.API_CREDENTIALS.say("none")
    elif facts.ended == "credentials":
        of = f" of {shown.account}" if shown.account else ""
        at_s = facts.now_s + (facts.offset_s or 0.0)
        state = _state(shown.validity, at_s)
        moment_s = shown.validity.ends_s if state == "expired" else shown.validity.begins_s
        if state and moment_s is not None:
            yield topic.API_CREDENTIALS.say(f"{shown.kind}_{state}", of=of, span=span(abs(at_s - moment_s)))
        else:
            kind = "client certificate" if shown.kind == "certificate" else "token"
            though = ", though it has not expired" if shown.validity.ends_s is not None else ""
            yield topic.API_CREDENTIALS.say("refused", kind=kind, of=of, though=though)
    elif account:
        yield topic.API_CREDENTIALS.say("account", account=account)
    elif facts.ended == "asked":
        yield topic.API_CREDENTIALS.say("accepted")


def check_node_name(facts: ApiFacts | None, cluster: ClusterFacts, own: Place | None) -> Iterable[Finding]:
    """Whether `--node` names a node, and this one; and whether the pod that this runs in (`own`) is there."""
    if facts is None or facts.ended != "asked":
        return
    node, here = cluster.node_name, facts.account.node
    if here and here != node:
        yield topic.NODE_NAME.say("other", own=here, node=node)
    elif facts.exists is False or (facts.exists is None and facts.similar):
        case = "similar" if facts.similar else "absent"
        yield topic.NODE_NAME.say(case, node=node, similar=facts.similar)
    elif facts.exists or here:
        yield topic.NODE_NAME.say("exists" if facts.exists else "own", node=node)
    elif cluster.pods.synced is not None:
        yield topic.NODE_NAME.say("pods" if cluster.pods.pods else "doubtful", node=node)
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
        yield topic.OWN_POD.say("known", pod=f"{found.namespace}/{found.name}")
    else:
        name = f" {facts.account.pod}" if facts.account.pod else ""
        yield topic.OWN_POD.say("unknown", pod=name, node=cluster.node_name)
