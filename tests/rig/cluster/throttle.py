"""Throttling by the API server's own priority and fairness: one user's requests all get 429 with Retry-After."""

import contextlib
from collections.abc import Iterator

from tests.node.support import wait_until
from tests.rig.cluster.api import Api, Object

_GROUP = "/apis/flowcontrol.apiserver.k8s.io/v1"
_NAME = "tests-throttle"
_OCCUPANT = "tests-occupant"
_AGENT = "tests-throttle"
_SCHEMAS = f"{_GROUP}/flowschemas"
_LEVELS = f"{_GROUP}/prioritylevelconfigurations"


@contextlib.contextmanager
def throttle(api: Api, user: str) -> Iterator[None]:
    """Inside, the server rejects everything that this user asks for; it ends with a restart of the server.

    A user of the group system:masters can't be throttled: those are exempt.
    """
    api.ask("POST", _LEVELS, _level())
    try:
        api.ask("POST", _SCHEMAS, _schema(user))
        _wait(api, user, level=True)
        with _occupied(api):
            _wait(api, user, throttled=True)
            yield
    finally:
        for path in (_SCHEMAS, _LEVELS):
            api.call("DELETE", f"{path}/{_NAME}")
    _wait(api, user, level=False)


@contextlib.contextmanager
def _occupied(api: Api) -> Iterator[None]:
    """Hold the only seat of the level.

    A level without seats still lets one request through at a time (canAccommodateSeatsLocked in queueset.go of
    k8s.io/apiserver/pkg/util/flowcontrol). So one sits there: its body never comes, and the server waits for it. The
    request's timeout does not end that, for it stands outside of the seat (DefaultBuildHandlerChain in
    k8s.io/apiserver/pkg/server/config.go).
    """
    connection = api.connection()
    try:
        connection.putrequest("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        headers = {"User-Agent": _AGENT, "Impersonate-User": _OCCUPANT, **api.authorization}
        for name, value in {**headers, "Content-Type": "application/json", "Content-Length": "100"}.items():
            connection.putheader(name, value)
        connection.endheaders()
        yield
    finally:
        connection.close()


def _wait(api: Api, user: str, *, throttled: bool = False, level: bool | None = None) -> None:
    """Wait until a probe is throttled, or until it is (not) judged by our flow schema.

    The server judges a probe as the user that the admin impersonates: impersonation comes before priority and fairness.
    """
    uid = api.call("GET", f"{_SCHEMAS}/{_NAME}").object["metadata"].get("uid", "")

    def is_so() -> bool:
        answer = api.call("GET", "/version", headers={"Impersonate-User": user, "User-Agent": _AGENT})
        ours = bool(uid) and answer.headers.get("X-Kubernetes-Pf-Flowschema-Uid") == uid
        return answer.status == 429 if throttled else ours is level and answer.status == 200

    wait_until(is_so)


def _metadata(kind: str) -> Object:
    return {"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": kind, "metadata": {"name": _NAME}}


def _level() -> Object:
    # No seats of its own and none to borrow.
    limited = {"nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0}
    spec = {"type": "Limited", "limited": {**limited, "limitResponse": {"type": "Reject"}}}
    return {**_metadata("PriorityLevelConfiguration"), "spec": spec}


def _schema(user: str) -> Object:
    every = ["*"]
    rules = {
        "subjects": [{"kind": "User", "user": {"name": name}} for name in (user, _OCCUPANT)],
        "resourceRules": [
            {"verbs": every, "apiGroups": every, "resources": every, "clusterScope": True, "namespaces": every}
        ],
        "nonResourceRules": [{"verbs": every, "nonResourceURLs": every}],
    }
    # Precedence 1 is for the exempt; equal numbers are ordered by name.
    spec = {"priorityLevelConfiguration": {"name": _NAME}, "matchingPrecedence": 2, "rules": [rules]}
    return {**_metadata("FlowSchema"), "spec": spec}
