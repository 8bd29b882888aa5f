"""A node with a single fault: one whose daemon uses the API server, and a container that is confined too much."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.cli.doctor.build import GOOD, given, spoilt
from tests.worlds import container, pod, policy, rule
from watchdog.cli.doctor.facts import ApiFacts, Confinement, Facts, Probe
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, Node, Place, PlaceKind, PodList
from watchdog.core.policy import Capacity, Match, Policy
from watchdog.kube.credentials import Credentials, Peer, Validity
from watchdog.kube.kinds import Piece, Right
from watchdog.kube.reviews import ApiAccount
from watchdog.kube.rights import ALL_RIGHTS

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
        host=HOST,
        version="v1.34.4",
        offset_s=0.4,
        now_s=NOW_S,
        credentials=Credentials(kind="token", account=NAME, validity=Validity(ends_s=NOW_S + 3600)),
        account=ApiAccount(name=NAME, node="n1", pod="watchdog-x", pod_uid="a"),
        rights=dict.fromkeys(ALL_RIGHTS, ()),
        exists=True,
        probes=tuple(Probe(piece=each, what="do this", rejected=True) for each in (Piece.CAPACITY, Piece.EVICT)),
    ),
    options=replace(GOOD.options, pods=None, kubeconfig=Path("admin.conf")),
    cluster=replace(GOOD.cluster, age_s=None),
)


def api(**changes: Any) -> Facts:
    """The good node with other facts of its API server."""
    return replace(GOOD_API, api=replace(GOOD_API.api, **changes))


def within(facts: Facts, **changes: Any) -> Facts:
    """The same with other pods, node or namespaces."""
    return replace(facts, cluster=replace(facts.cluster, **changes))


def under(facts: Facts, the_policy: Policy) -> Facts:
    """The same with another policy."""
    return replace(facts, policy=replace(facts.policy, policy=the_policy))


def lacking(piece: str, *verbs: str) -> Facts:
    """An account that lacks these verbs on a resource."""
    rights = {right: tuple(v for v in right.verbs if right.target == piece and v in verbs) for right in ALL_RIGHTS}
    return api(rights=rights)


def probed(rejected: bool | None, piece: Piece, *, is_needed: bool = True) -> Facts:
    """An account of which this came out of a dry run; otherwise it may do what a policy that only kills needs."""
    problem = Problem("a dry run: the API server answered 500") if rejected is None else Problem("")
    first = Probe(piece=piece, what="do this", rejected=True)
    probe = Probe(piece=piece, what="do that", rejected=rejected, problem=problem)
    rights = {right: () for right in ALL_RIGHTS if is_needed or right.piece is not piece}
    return api(probes=(first, probe), rights=rights)


def shown(kind: str, *, begins_s: float | None = None, ends_s: float | None = None, **changes: Any) -> Facts:
    """An account whose credentials are not accepted."""
    validity = Validity(begins_s=begins_s, ends_s=ends_s)
    credentials = Credentials(kind=kind, account=NAME if kind == "token" else "", validity=validity)  # type: ignore[arg-type]
    return api(
        ended="credentials", problem=Problem("401", "ask"), account=ApiAccount(), credentials=credentials, **changes
    )


def peer(begins_s: float, ends_s: float, offset_s: float | None) -> Facts:
    """A server whose certificate is rejected, with these dates and this clock."""
    validity = Validity(begins_s=NOW_S + begins_s, ends_s=NOW_S + ends_s)
    problem = Problem(f"{HOST}: its certificate is not accepted: x", "see to it")
    return api(ended="certificate", problem=problem, offset_s=None, peer=Peer(validity=validity, offset_s=offset_s))


def on_node(facts: Facts, node: str) -> Facts:
    """The same, with a token that names the pod's node, and a policy that does not need the node's object."""
    return replace(facts, api=replace(facts.api, exists=None, account=ApiAccount(name=NAME, node=node)))


def _later(right: Right) -> tuple[str, ...]:
    return right.verbs if right.subresource else ()


def _gap(reason: GapReason, what: str) -> Gap:
    return Gap(reason=reason, what=what, problem=Problem(f"{HOST}: the connection broke", "see that it is up"))


NO_PODS: Final = replace(GOOD.cluster.pods, pods=())
NO_LIST: Final = PodList(gaps=(_gap(GapReason.PODS, "pods"),))
NOT_STARTED: Final = replace(container(), ids=frozenset())
NODE_GAP: Final = _gap(GapReason.NODE, "node n1")
SPACES_GAP: Final = _gap(GapReason.NAMESPACES, "namespaces")
UNKNOWN_NODE: Final = Node(name="n1", known=False)
BY_NODE: Final = policy(rule(match=Match(node_labels={"pool": "gpu"})))
BY_SPACE: Final = policy(rule(match=Match(namespace_labels={"team": "ml"})))
WITH_CAPACITY: Final = policy(capacity=Capacity(resource="veriff.com/gpu-memory"))
ADVERTISED: Final = Node(name="n1", capacity={"veriff.com/gpu-memory": "104Mi"})
ELSEWHERE: Final = Place(kind=PlaceKind.POD, pod="elsewhere")
API: Final[Mapping[str, tuple[Row, ...]]] = {
    "api_config": (
        ("this pod's service account is used for", given(GOOD_API, kubeconfig=None)),
        ("there is no way", api(ended="unconfigured", problem=Problem("there is no way", "make one"), host="")),
    ),
    "api": (
        ("https://10.0.0.1:6443 responds", api(version="")),
        ("https://10.0.0.1:6443: Connection refused", api(ended="unreachable", problem=REFUSED, offset_s=None)),
        ("answered 502", api(ended="odd", problem=Problem(f"{HOST}: the API server answered 502", "look at it"))),
        ("did not answer all requests within", api(ended="late", asking="its version", waited_s=20.0)),
    ),
    "api_certificate": (
        ("expired 2d ago, at 2027-01-13 08:00:00 UTC", peer(-3 * DAY_S, -2 * DAY_S, 0.3)),
        ("expired 2d ago", peer(-3 * DAY_S, -2 * DAY_S, None)),
        ("expired 2d ago", peer(-3 * DAY_S, -2 * DAY_S, 3600.0)),
        ("is not valid until", peer(DAY_S, 2 * DAY_S, 0.3)),
        ("so its certificate, which is valid until 2027-01-13 08:00:00 UTC", peer(-9 * DAY_S, -2 * DAY_S, -3 * DAY_S)),
        ("so its certificate, which is valid from", peer(2 * DAY_S, 9 * DAY_S, 3 * DAY_S)),
        ("https://10.0.0.1:6443: its certificate is not accepted: x", peer(-DAY_S, DAY_S, 0.3)),
        ("not accepted", api(ended="certificate", problem=Problem(f"{HOST}: not accepted", "see to it"))),
    ),
    "api_clock": (
        ("ahead of the API server's", api(offset_s=-3600.0)),
        ("behind the API server's", api(offset_s=61.0)),
    ),
    "api_credentials": (
        ("the API server accepts the credentials", api(account=ApiAccount())),
        ("the token of system:serviceaccount:gpu:watchdog expired", shown("token", ends_s=NOW_S - 60)),
        ("the token of system:serviceaccount:gpu:watchdog expired", shown("token", ends_s=NOW_S + 60, offset_s=3600.0)),
        ("the token of system:serviceaccount:gpu:watchdog is not valid", shown("token", begins_s=NOW_S + 60)),
        ("the client certificate expired", shown("certificate", ends_s=NOW_S - 60)),
        ("the client certificate is not valid", shown("certificate", begins_s=NOW_S + 60)),
        ("the API server rejects the", shown("token")),
        ("the API server rejects the", shown("token", ends_s=NOW_S + 60)),
        ("the API server rejects the", shown("certificate", ends_s=NOW_S + 60)),
        ("treats this account as anonymous", shown("none")),
        ("treats this account as anonymous", api(ended="anonymous", problem=Problem("403", "send some"))),
    ),
    "rights": (
        ("be asked for: 403", api(rights={}, rights_problem=Problem("they can't be asked for: 403", "be allowed to"))),
    ),
    "right_pods": (
        ("processes can't be attributed", lacking("pods", "watch")),
        ("processes can't be attributed", lacking("pods", "list")),
    ),
    "right_events": (("warnings and actions do not appear", lacking("events", "create", "patch")),),
    "right_node": (("the node's labels are unknown", lacking("nodes", "watch")),),
    "right_namespaces": (("are left alone", lacking("namespaces", "list")),),
    "right_slices": (
        ("resource claims may use is unknown", lacking("resourceslices", "watch")),
        ("resource claims may use is unknown", lacking("resourceclaims", "get")),
    ),
    "right_evict": (
        ("every eviction fails", lacking("pods", "get")),
        ("every eviction fails", lacking("pods/eviction", "create")),
    ),
    "right_capacity": (("the node does not advertise", lacking("nodes/status", "patch")),),
    "rights_to_enforce": (
        ("this account has every right", api(later=dict.fromkeys(ALL_RIGHTS, ()))),
        ("this account lacks rights", api(later={right: _later(right) for right in ALL_RIGHTS})),
    ),
    **{
        name: (
            (reported, probed(True, piece)),
            ("no admission policy limits this account: it may do that", probed(False, piece)),
            ("and the policy does not need that right", probed(False, piece, is_needed=False)),
            ("is unknown: a dry run: the API server answered 500", probed(None, piece)),
        )
        for name, piece, reported in (
            ("guard_nodes", Piece.CAPACITY, "the API server rejects changes of other nodes"),
            ("guard_evictions", Piece.EVICT, "the API server rejects evictions from kube-system"),
        )
    },
    "node_name": (
        ("this pod runs on node n1", on_node(GOOD_API, "n1")),
        ("runs on node n2, but --node (NODE_NAME) is n1", on_node(GOOD_API, "n2")),
        ("has no node n1, so no pod", api(exists=False)),
        ("has no node n1, but a node n;", api(exists=False, similar="n")),
        ("has no node n1, but a node n;", api(exists=None, similar="n", account=ApiAccount(name=NAME))),
        ("there are pods on a node named", on_node(GOOD_API, "")),
        ("is not allowed to check whether that node exists", within(on_node(GOOD_API, ""), pods=NO_PODS)),
    ),
    "own_pod": (
        ("is in the list", within(GOOD_API, pods=replace(GOOD.cluster.pods, pods=(pod("a", container()),)))),
        ("is not in the list of the pods", within(GOOD_API, pods=NO_PODS)),
        (
            "is not in the list of the pods",
            replace(
                on_node(GOOD_API, ""),
                processes=replace(GOOD.processes, environment=replace(GOOD.processes.environment, own=ELSEWHERE)),
            ),
        ),
    ),
    "capacity": (
        ("advertises 104Mi", under(within(GOOD_API, node=ADVERTISED), WITH_CAPACITY)),
        ("does not advertise veriff.com/gpu-memory", under(GOOD_API, WITH_CAPACITY)),
    ),
    "pods": (
        ("there are no pods on node n1", within(GOOD_API, pods=NO_PODS)),
        ("https://10.0.0.1:6443: the connection broke", within(GOOD_API, pods=NO_LIST)),
    ),
    "pods_containers": (
        ("nothing to act on", within(GOOD_API, pods=replace(GOOD.cluster.pods, pods=(pod("a", NOT_STARTED),)))),
    ),
    "node_object": (
        ("the policy needs no node labels", within(GOOD_API, node=UNKNOWN_NODE)),
        ("not allowed to list nodes", under(within(lacking("nodes", "list"), node=UNKNOWN_NODE), BY_NODE)),
        ("the connection broke", under(within(GOOD_API, node=UNKNOWN_NODE, node_gaps=(NODE_GAP,)), BY_NODE)),
    ),
    "namespaces": (
        ("namespaces with known labels", under(within(GOOD_API, namespaces={"a": {}}), BY_SPACE)),
        ("connection broke", under(within(GOOD_API, namespace_gaps=(SPACES_GAP,)), BY_SPACE)),
    ),
}


def _of_image(**changes: object) -> Facts:
    return replace(spoilt("policy", **changes), container=replace(GOOD.container, in_pod=True))


def _confined(**changes: object) -> Facts:
    return spoilt("container", confinement=Confinement(**changes))  # type: ignore[arg-type]


def _own(place: Place) -> Facts:
    in_pod = spoilt("container", in_pod=True)
    return replace(
        in_pod, processes=replace(in_pod.processes, environment=replace(in_pod.processes.environment, own=place))
    )


CONTAINER: Final[Mapping[str, tuple[tuple[str, Facts], ...]]] = {
    "apparmor": (
        ("has its own profile", _confined(profile="cri-containerd.apparmor.d", is_of_runtime=True)),
        ("whether that allows signals", _confined(profile="gpu-guard")),
    ),
    "selinux": (
        ("SELinux does not confine", _confined(selinux_type="spc_t")),
        ("has the SELinux type container_t", _confined(selinux_type="container_t")),
    ),
    "policy_mount": (
        ("is mounted", spoilt("container", in_pod=True, has_policy_mount=True)),
        ("the policy is the image's own", _of_image(policy=policy(mode="observe"))),
        ("the policy is the image's own", _of_image(policy=None)),
        ("enforces by the image's own policy", _of_image(policy=policy(mode="enforce"))),
    ),
    "temporary_folder": (
        ("no folder for temporary files", spoilt("container", temporary_problem="No usable temporary directory found")),
    ),
    "pod_uid": (
        ("which pod this runs in is unknown", spoilt("container", in_pod=True)),
        ("which pod this runs in is unknown", _own(Place(kind=PlaceKind.POD, container="1" * 64))),
        ("with the UID 8c2f4a1e", _own(Place(kind=PlaceKind.POD, pod="8c2f4a1e-0d3b-4c55-9f6a-1b2c3d4e5f60"))),
    ),
}
