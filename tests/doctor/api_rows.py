"""A node whose daemon asks the API server: all is well there, or one thing is not."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.doctor.build import GOOD
from tests.worlds import container, pod, policy, rule
from watchdog.cli.doctor.facts import ApiFacts, Facts
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Node, Place, PlaceKind, PodList
from watchdog.core.policy import Capacity, Match
from watchdog.kube.credentials import Credentials, Peer, Validity
from watchdog.kube.reviews import ApiAccount
from watchdog.kube.rights import ALL_RIGHTS, Right

Row = tuple[str, Facts]
HOST: Final = "https://10.0.0.1:6443"
NOW_S: Final = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC
DAY_S: Final = 86400.0
NAME: Final = "system:serviceaccount:gpu:watchdog"
REFUSED: Final = Problem(f"{HOST}: Connection refused", "see that it is up")
GOOD_API: Final = replace(
    GOOD,
    api=ApiFacts(
        ended="asked",
        kubeconfig=Path("admin.conf"),
        host=HOST,
        version="v1.34.4",
        offset_s=0.4,
        now_s=NOW_S,
        credentials=Credentials(kind="token", account=NAME, validity=Validity(ends_s=NOW_S + 3600)),
        account=ApiAccount(name=NAME, node="n1", pod="watchdog-x", pod_uid="a"),
        rights=dict.fromkeys(ALL_RIGHTS, ()),
        exists=True,
    ),
    cluster=replace(GOOD.cluster, pods_path=None, age_s=None, by_api=True),
)


def api(**changes: Any) -> Facts:
    """The good node with other facts of its API server."""
    assert GOOD_API.api is not None
    return replace(GOOD_API, api=replace(GOOD_API.api, **changes))


def within(facts: Facts, **changes: Any) -> Facts:
    """The same with other pods, node or namespaces."""
    return replace(facts, cluster=replace(facts.cluster, **changes))


def under(facts: Facts, the_policy: object) -> Facts:
    """The same with another policy."""
    return replace(facts, policy=replace(facts.policy, policy=the_policy))  # type: ignore[arg-type]


def lacking(piece: str, *verbs: str) -> Facts:
    """An account that lacks these verbs on a resource."""
    rights = {right: tuple(v for v in right.verbs if right.target == piece and v in verbs) for right in ALL_RIGHTS}
    return api(rights=rights)


def shown(kind: str, *, begins_s: float | None = None, ends_s: float | None = None, **changes: Any) -> Facts:
    """An account whose credentials are not accepted."""
    validity = Validity(begins_s=begins_s, ends_s=ends_s)
    credentials = Credentials(kind=kind, account=NAME if kind == "token" else "", validity=validity)  # type: ignore[arg-type]
    return api(
        ended="credentials", problem=Problem("401", "ask"), account=ApiAccount(), credentials=credentials, **changes
    )


def peer(begins_s: float, ends_s: float, offset_s: float | None) -> Facts:
    """A server whose certificate is not accepted, and what it shows."""
    validity = Validity(begins_s=NOW_S + begins_s, ends_s=NOW_S + ends_s)
    problem = Problem(f"{HOST}: its certificate is not accepted: x", "see to it")
    return api(ended="certificate", problem=problem, offset_s=None, peer=Peer(validity=validity, offset_s=offset_s))


def on_node(facts: Facts, node: str) -> Facts:
    """The same where the token says on which node the pod runs, and the policy does not need the node's object."""
    assert facts.api is not None
    return replace(facts, api=replace(facts.api, exists=None, account=ApiAccount(name=NAME, node=node)))


def _later(right: Right) -> tuple[str, ...]:
    return right.verbs if right.subresource else ()


def _gap(reason: GapReason, what: str) -> Gap:
    return Gap(reason=reason, what=what, problem=Problem(f"{HOST}: the connection broke", "see that it is up"))


NO_PODS: Final = replace(GOOD.cluster.pods, pods=())
NO_LIST: Final = PodList(gaps=(_gap(GapReason.PODS, "pods"),))
NOT_STARTED: Final = replace(container(), ids=frozenset())
NODE_GAP: Final = _gap(GapReason.NODE, "node n1")
UNKNOWN: Final = Node(name="n1", known=False)
BY_NODE: Final = policy(rule(match=Match(node_labels={"pool": "gpu"})))
BY_SPACE: Final = policy(rule(match=Match(namespace_labels={"team": "ml"})))
WITH_CAPACITY: Final = policy(capacity=Capacity(resource="veriff.com/gpu-memory"))
ADVERTISED: Final = Node(name="n1", capacity={"veriff.com/gpu-memory": "104Mi"})
ELSEWHERE: Final = Place(kind=PlaceKind.POD, pod="elsewhere")
API: Final[Mapping[str, tuple[Row, ...]]] = {
    "api_config": (
        ("file", GOOD_API),
        ("pod", api(kubeconfig=None)),
        ("lacking", api(ended="unconfigured", problem=Problem("there is no way", "make one"), host="")),
    ),
    "api": (
        ("answers", GOOD_API),
        ("nameless", api(version="")),
        ("unreachable", api(ended="unreachable", problem=REFUSED, offset_s=None)),
        ("odd", api(ended="odd", problem=Problem(f"{HOST}: the API server answered 502", "look at it"))),
        ("late", api(ended="late", asking="its version", waited_s=20.0)),
    ),
    "api_certificate": (
        ("expired", peer(-3 * DAY_S, -2 * DAY_S, 0.3)),
        ("expired", peer(-3 * DAY_S, -2 * DAY_S, None)),
        ("expired", peer(-3 * DAY_S, -2 * DAY_S, 3600.0)),
        ("early", peer(DAY_S, 2 * DAY_S, 0.3)),
        ("ahead", peer(-9 * DAY_S, -2 * DAY_S, -3 * DAY_S)),
        ("behind", peer(2 * DAY_S, 9 * DAY_S, 3 * DAY_S)),
        ("refused", peer(-DAY_S, DAY_S, 0.3)),
        ("refused", api(ended="certificate", problem=Problem(f"{HOST}: not accepted", "see to it"))),
    ),
    "api_clock": (("agree", GOOD_API), ("ahead", api(offset_s=-3600.0)), ("behind", api(offset_s=61.0))),
    "api_credentials": (
        ("account", GOOD_API),
        ("accepted", api(account=ApiAccount())),
        ("token_expired", shown("token", ends_s=NOW_S - 60)),
        ("token_expired", shown("token", ends_s=NOW_S + 60, offset_s=3600.0)),
        ("token_early", shown("token", begins_s=NOW_S + 60)),
        ("certificate_expired", shown("certificate", ends_s=NOW_S - 60)),
        ("certificate_early", shown("certificate", begins_s=NOW_S + 60)),
        ("refused", shown("token")),
        ("refused", shown("token", ends_s=NOW_S + 60)),
        ("refused", shown("certificate", ends_s=NOW_S + 60)),
        ("none", shown("none")),
        ("none", api(ended="anonymous", problem=Problem("403", "send some"))),
    ),
    "rights": (("unknown", api(rights={}, rights_problem=Problem("they can't be asked for: 403", "be allowed to"))),),
    "right_pods": (("held", GOOD_API), ("lacking", lacking("pods", "watch")), ("lacking", lacking("pods", "list"))),
    "right_events": (("held", GOOD_API), ("lacking", lacking("events", "create", "patch"))),
    "right_node": (("held", GOOD_API), ("lacking", lacking("nodes", "watch"))),
    "right_namespaces": (("held", GOOD_API), ("lacking", lacking("namespaces", "list"))),
    "right_evict": (
        ("held", GOOD_API),
        ("lacking", lacking("pods", "get")),
        ("lacking", lacking("pods/eviction", "create")),
    ),
    "right_capacity": (("held", GOOD_API), ("lacking", lacking("nodes/status", "patch"))),
    "rights_to_enforce": (
        ("held", api(later=dict.fromkeys(ALL_RIGHTS, ()))),
        ("lacking", api(later={right: _later(right) for right in ALL_RIGHTS})),
    ),
    "node_name": (
        ("exists", GOOD_API),
        ("own", on_node(GOOD_API, "n1")),
        ("other", on_node(GOOD_API, "n2")),
        ("absent", api(exists=False)),
        ("similar", api(exists=False, similar="n")),
        ("similar", api(exists=None, similar="n", account=ApiAccount(name=NAME))),
        ("pods", on_node(GOOD_API, "")),
        ("doubtful", within(on_node(GOOD_API, ""), pods=NO_PODS)),
    ),
    "own_pod": (
        ("known", within(GOOD_API, pods=replace(GOOD.cluster.pods, pods=(pod("a", container()),)))),
        ("unknown", within(GOOD_API, pods=NO_PODS)),
        (
            "unknown",
            replace(
                on_node(GOOD_API, ""),
                processes=replace(GOOD.processes, environment=replace(GOOD.processes.environment, own=ELSEWHERE)),
            ),
        ),
    ),
    "capacity": (
        ("kept", under(within(GOOD_API, node=ADVERTISED), WITH_CAPACITY)),
        ("absent", under(GOOD_API, WITH_CAPACITY)),
    ),
    "pods": (
        ("api", GOOD_API),
        ("api_empty", within(GOOD_API, pods=NO_PODS)),
        ("api_unread", within(GOOD_API, pods=NO_LIST)),
    ),
    "pods_containers": (
        ("none_started", within(GOOD_API, pods=replace(GOOD.cluster.pods, pods=(pod("a", NOT_STARTED),)))),
    ),
    "node_object": (
        ("read", GOOD_API),
        ("unneeded", within(GOOD_API, node=UNKNOWN)),
        ("unlisted", under(within(lacking("nodes", "list"), node=UNKNOWN, unlisted=frozenset({"nodes"})), BY_NODE)),
        ("unreadable", under(within(GOOD_API, node=UNKNOWN, node_gaps=(NODE_GAP,)), BY_NODE)),
    ),
    "namespaces": (
        ("unneeded", GOOD_API),
        ("read", under(within(GOOD_API, namespaces={"a": {}}), BY_SPACE)),
        ("unreadable", under(within(GOOD_API, namespace_gaps=(_gap(GapReason.NAMESPACES, "namespaces"),)), BY_SPACE)),
    ),
}
