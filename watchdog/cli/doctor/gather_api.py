"""Asking the API server what doctor judges by: in the order in which one thing needs another, and in bounded time."""

import threading
from dataclasses import replace
from typing import Any

from watchdog import clock
from watchdog.cli.doctor.facts import ApiFacts, Ended
from watchdog.clock import Bell
from watchdog.core.errors import Problem
from watchdog.core.needs import needs
from watchdog.core.policy import Policy
from watchdog.daemon.sources import uses_api
from watchdog.kube.client import Api
from watchdog.kube.credentials import look_at_peer, offset_s
from watchdog.kube.failure import is_certificate
from watchdog.kube.feeds import NamespaceInformer, NodeInformer, PodInformer
from watchdog.kube.responses import ApiConfigError, ApiError
from watchdog.kube.reviews import ask_version, has_node, has_pods, may_i, similar_names, who_am_i
from watchdog.kube.rights import rights_of
from watchdog.options import Options


class Feeds:
    """What the daemon would follow of the cluster; here each is listed once at most."""

    def __init__(self, options: Options) -> None:
        self.api = Api(options.kubeconfig)
        bell = Bell()
        self.pods = PodInformer(self.api, options.node, bell)
        self.node = NodeInformer(self.api, options.node, bell)
        self.namespaces = NamespaceInformer(self.api, bell)


class ApiLook:
    """Asks on a thread of its own, because a name server alone can keep one waiting for half a minute.

    What was learned is at hand at any time; a thread that has not come to its end is left behind.
    """

    def __init__(self, options: Options, policy: Policy) -> None:
        """`policy` says what is needed."""
        self._options = options
        self._policy = policy
        self.feeds = Feeds(options) if uses_api(options) else None
        self._facts = ApiFacts(ended="late", kubeconfig=options.kubeconfig)
        self._thread = threading.Thread(target=self._run, name="doctor-api", daemon=True)
        self._began_s = clock.now().boottime_s

    def start(self) -> None:
        """Begin to ask, where the API is used at all."""
        if self.feeds is not None:
            self._thread.start()

    def facts(self, patience_s: float) -> ApiFacts | None:
        """What was learned at most `patience_s` seconds after the start; None where the API is not used."""
        if self.feeds is None:
            return None
        self._thread.join(max(0.0, self._began_s + patience_s - clock.now().boottime_s))
        waited_s = clock.now().boottime_s - self._began_s
        return replace(self._facts, waited_s=waited_s)

    def _run(self) -> None:
        assert self.feeds is not None
        api = self.feeds.api
        try:
            if self._ask_who(api):
                self._ask_rights(api)
                self._fetch(self.feeds)
                self._ask_node(api)
                self._end("asked")
        except ApiConfigError as error:
            self._end("no_way", error.problem)
        except ApiError as error:
            if is_certificate(error):
                self._know(asking="its certificate", peer=look_at_peer(api.host), now_s=clock.now().wall_s)
                self._end("certificate", error.problem)
            else:
                self._end("unreachable", error.problem)

    def _know(self, **found: Any) -> None:
        self._facts = replace(self._facts, **found)

    def _end(self, how: Ended, problem: Problem | None = None) -> None:
        self._know(ended=how, problem=problem)

    def _ask_who(self, api: Api) -> bool:
        """Ask who answers and whom it takes us for; whether it is worth to ask more."""
        credentials = api.credentials()
        self._know(asking="its version", host=api.host, credentials=credentials)
        sent_s = clock.now().wall_s
        answer, version = ask_version(api)
        now_s = clock.now().wall_s
        self._know(version=version, now_s=now_s, offset_s=offset_s(answer.headers, sent_s, now_s))
        if answer.status not in (200, 401, 403) or (answer.is_good and not version):
            self._end("odd", answer.problem(f"{api.host}/version"))
            return False
        if answer.status != 401:
            self._know(asking="whom it takes us for")
            answer, account = who_am_i(api)
            self._know(account=account)
        if answer.status == 401 or answer.is_anonymous:
            self._end("credentials" if answer.status == 401 else "anonymous", answer.problem(api.host))
            return False
        return True

    def _ask_rights(self, api: Api) -> None:
        """Ask of each right, also of those that the same policy would need to enforce."""
        needed = rights_of(self._policy)
        for right in dict.fromkeys((*needed, *rights_of(replace(self._policy, mode="enforce")))):
            lacking = []
            for verb in right.verbs:
                self._know(asking=f"whether this account may {verb} {right.target}")
                answer, allowed = may_i(api, right, verb)
                if not answer.is_good:
                    self._know(rights_problem=answer.problem("this account's rights can't be asked for"))
                    return
                lacking += [] if allowed else [verb]
            if right in needed:
                self._know(rights={**self._facts.rights, right: tuple(lacking)})
            else:
                self._know(later={**self._facts.later, right: tuple(lacking)})

    def _fetch(self, feeds: Feeds) -> None:
        """List what the policy needs; what this account may not list is told as a right that is missing."""
        need, unlisted = needs(self._policy), self._facts.unlisted
        if "pods" not in unlisted:
            self._know(asking="the pods of this node")
            feeds.pods.fetch()
        if self._options.node_object is None and "nodes" not in unlisted:
            self._know(asking="this node's object")
            feeds.node.fetch()
        if need.namespaces and self._options.namespaces is None and "namespaces" not in unlisted:
            self._know(asking="the namespaces")
            feeds.namespaces.fetch()

    def _ask_node(self, api: Api) -> None:
        self._know(asking="whether there is such a node")
        name = self._options.node
        exists = has_node(api, name)
        self._know(exists=exists)
        if exists or (exists is None and has_pods(api, name) is not False):
            return
        look = has_pods if exists is None else has_node
        similar = next((each for each in similar_names(name) if look(api, each)), "")
        self._know(similar=similar)
