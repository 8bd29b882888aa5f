"""Queries the API server for what doctor checks."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from watchdog import clock
from watchdog.cli.doctor.facts import ApiFacts, Ended, Probe
from watchdog.core.errors import Problem
from watchdog.core.policy import Policy
from watchdog.daemon.cluster import Cluster
from watchdog.kube import guards
from watchdog.kube.client import Api, ApiResponse
from watchdog.kube.credentials import offset_s, probe_peer
from watchdog.kube.failure import ApiConfigError, ApiError, is_certificate
from watchdog.kube.kinds import Piece
from watchdog.kube.reviews import has_node, has_pods, may_i, request_version, similar_names, who_am_i
from watchdog.kube.rights import ALL_RIGHTS, rights_of
from watchdog.options import Options


def query_api(options: Options, policy: Policy, cluster: Cluster, patience_s: float) -> ApiFacts:
    """What can be learned within `patience_s` seconds; `policy` determines what is needed.

    The queries have their own thread, since a name server alone can take half a minute. One that has not finished is
    abandoned.
    """
    query = _Query(options, policy, cluster)
    began_s = clock.now().boottime_s
    thread = threading.Thread(target=query.run, name="doctor-api", daemon=True)
    thread.start()
    thread.join(patience_s)
    return replace(query.facts, waited_s=clock.now().boottime_s - began_s)


_KUBELET: Final = "system:node:"


class _Query:
    """The queries; `facts` has what was learned so far."""

    def __init__(self, options: Options, policy: Policy, cluster: Cluster) -> None:
        self.facts = ApiFacts(ended="late")
        self._options = options
        self._policy = policy
        self._cluster = cluster

    def run(self) -> None:
        """Ask for everything, in an order in which each answer shows whether the next request makes sense."""
        api = self._cluster.api
        try:
            if self._ask_who(api):
                self._ask_rights(api)
                self._fetch()
                self._ask_node(api)
                self._probe_guards(api)
                self._learn(ended="asked")
        except ApiConfigError as error:
            self._end("unconfigured", error.problem)
        except ApiError as error:
            if is_certificate(error):
                self._learn(asking="its certificate", peer=probe_peer(api.host), now_s=clock.now().wall_s)
                self._end("certificate", error.problem)
            else:
                self._end("unreachable", error.problem)

    def _learn(self, **facts: Any) -> None:
        self.facts = replace(self.facts, **facts)

    def _end(self, how: Ended, problem: Problem) -> None:
        self._learn(ended=how, problem=problem)

    def _ask_who(self, api: Api) -> bool:
        """Ask for the server's version and our account; whether to continue."""
        self._learn(asking="this account's credentials")
        credentials = api.credentials()
        self._learn(asking="its version", host=api.host, credentials=credentials)
        sent_s = clock.now().wall_s
        answer, version = request_version(api)
        now_s = clock.now().wall_s
        self._learn(version=version, now_s=now_s, offset_s=offset_s(answer.headers, sent_s, now_s))
        if answer.status not in (200, 401, 403) or (answer.is_good and not version):
            self._end("odd", answer.problem(f"{api.host}/version"))
            return False
        if answer.status != 401:
            self._learn(asking="this account's name")
            answer, account = who_am_i(api)
            self._learn(account=account)
        if answer.status == 401 or answer.is_anonymous:
            self._end("credentials" if answer.status == 401 else "anonymous", answer.problem(api.host))
            return False
        return True

    def _ask_rights(self, api: Api) -> None:
        """Ask for each right, also for those that the same policy would need to enforce."""
        needed = rights_of(self._policy)
        for right in dict.fromkeys((*needed, *rights_of(replace(self._policy, mode="enforce")))):
            lacking = []
            for verb in right.verbs:
                self._learn(asking=f"the right to {verb} {right.target}")
                answer, allowed = may_i(api, right, verb)
                if not answer.is_good:
                    self._learn(rights_problem=answer.problem("this account's rights can't be queried"))
                    return
                lacking += [] if allowed else [verb]
            field = "rights" if right in needed else "later"
            self._learn(**{field: {**getattr(self.facts, field), right: tuple(lacking)}})

    def _fetch(self) -> None:
        """List what the policy needs; what this account may not list is reported as a missing right."""
        for kind in self._cluster.fetched(self._policy):
            if kind.resource not in self.facts.unlisted:
                self._learn(asking=kind.what)
                self._cluster.informer(kind).fetch()
        self._learn(asking="the claims of this node's pods")
        self._cluster.fetch_claims(self._policy)

    def _ask_node(self, api: Api) -> None:
        name = self._options.node
        self._learn(asking="the node of this name")
        exists = has_node(api, name)
        self._learn(exists=exists)
        if not exists and (exists is False or has_pods(api, name) is False):
            is_there = has_pods if exists is None else has_node
            self._learn(similar=next((similar for similar in similar_names(name) if is_there(api, similar)), ""))

    def _probe_guards(self, api: Api) -> None:
        """Request what the admission policies must reject, as far as this account has the rights.

        They leave kubelets out, which the API server itself restricts (NodeRestriction).
        """
        if self.facts.account.name.startswith(_KUBELET):
            return
        own, capacity = self.facts.account.node, self._policy.capacity
        name = own or self._options.node
        if (own or self.facts.exists is not False) and self._may_write(api, Piece.CAPACITY):
            self._probe(Piece.CAPACITY, f"label node {name}", lambda: guards.label_node(api, name))
            resource = capacity.resource if capacity is not None else guards.SOME_RESOURCE
            if other := guards.other_node(api, name):
                what = f"change the capacity of another node, {other}"
                self._probe(Piece.CAPACITY, what, lambda: guards.advertise(api, other, resource))
        if self._may_write(api, Piece.EVICT):
            what = "evict pods from kube-system, without their UID"
            self._probe(Piece.EVICT, what, lambda: guards.evict_system_pod(api))

    def _may_write(self, api: Api, piece: Piece) -> bool:
        """Whether this account has the right of a piece to change something; not needed rights have yet to be asked."""
        (right,) = (right for right in ALL_RIGHTS if right.piece is piece and right.subresource)
        known = {**self.facts.rights, **self.facts.later}
        if right in known:
            return not known[right]
        self._learn(asking=f"the right to {right.verbs[0]} {right.target}")
        return may_i(api, right, right.verbs[0])[1]

    def _probe(self, piece: Piece, what: str, request: Callable[[], ApiResponse]) -> None:
        self._learn(asking=f"a dry run: {what}")
        response = request()
        rejected = guards.is_rejected(response)
        problem = response.problem(f"a dry run, to {what}") if rejected is None else Problem("")
        probe = Probe(piece=piece, what=what, rejected=rejected, problem=problem)
        self._learn(probes=(*self.facts.probes, probe))
