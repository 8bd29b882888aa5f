"""`gpu-watchdog doctor` before a real API server: each fault is one finding, and nothing is changed."""

import datetime as dt
import json
import os
import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.node.support import cannot_run, wait_until
from tests.rig.cluster.accounts import Account, account, lacking, roles
from tests.rig.cluster.api_proxy import ApiProxy
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.doctor_rig import POLICY, Clinic
from tests.rig.cluster.pods import Pods
from tests.rig.cluster.rights_guard import vouch_for
from tests.rig.cluster.tcp_proxy import TcpProxy
from tests.worlds import parse_policy
from watchdog.core.policy import Policy
from watchdog.kube.rights import ALL_RIGHTS, ServiceAccount

GUARD: Final = parse_policy(POLICY, source="policy.toml")
OBSERVES: Final = 'rule = [{ name = "all", match = {}, step = [{ above = "110%", for = "10s", do = "kill" }] }]'
Verb = tuple[str, str]  # resource as RBAC writes it, verb
EVERY: Final[tuple[Verb, ...]] = tuple((right.target, verb) for right in ALL_RIGHTS for verb in right.verbs)
# One of each check, and the rest; a check has a finding for each resource.
ONE_HALF: Final = [verb for verb in EVERY[::2] if verb[0] != "resourceclaims"]
OTHER_HALF: Final = [verb for verb in EVERY if verb not in ONE_HALF and verb != ("resourceslices", "watch")]
OBSERVED: Final = {"pods", "nodes", "resourceslices", "resourceclaims"}
TO_ENFORCE: Final = [verb for verb in EVERY if verb[0] not in OBSERVED or verb == ("pods", "get")]
OF_THE_NODE: Final = [verb for verb in EVERY if verb[0] == "nodes"]
DAY: Final = dt.timedelta(days=1)
AccountWithout = Callable[..., Account]


@pytest.fixture
def account_without(control_plane: ControlPlane, clinic: Clinic, namespace: str) -> Iterator[AccountWithout]:
    """Makes accounts with every right that a policy can need but for some, of a pod on the clinic's node."""
    with ExitStack() as stack:

        def make(without: Collection[Verb] = (), guarded_by: Policy | None = GUARD) -> Account:
            identity = ServiceAccount(namespace=namespace, name=f"watchdog-{secrets.token_hex(2)}")
            given = roles(lacking(ALL_RIGHTS, without), identity, guarded_by)
            return stack.enter_context(account(control_plane, given, identity, clinic.node))

        yield make


def test_all_is_well(control_plane: ControlPlane, clinic: Clinic, account_without: AccountWithout) -> None:
    """With exactly the rights of the policy nothing is wrong, and nothing is written: its dry runs are rejected."""
    made = account_without()
    before = len(control_plane.requests(user=made.identity.user))
    reported = clinic.ask(made.kubeconfig)
    assert (reported.wrong(), reported.code, reported.stderr) == ({}, 0, "")
    assert control_plane.url in reported.what("api")
    assert made.identity.user in reported.what("api_credentials")
    assert clinic.node in reported.what("node_name")
    assert reported.what("pods").endswith(": 2")
    assert "85899345920" in reported.what("capacity")
    asked = control_plane.requests(user=made.identity.user)[before:]
    written = [each for each in asked if each.verb not in {"get", "list", "watch"}]
    probes = [each for each in written if not each.resource.startswith("selfsubject")]
    assert {(each.resource, each.subresource, each.code) for each in probes} == {
        ("nodes", "status", 403),
        ("pods", "eviction", 403),
    }
    assert all("dryRun=All" in each.uri for each in probes)
    assert len(asked) <= len(EVERY) + 12  # each question is asked once


def test_admission_policies_that_do_not_hold(
    control_plane: ControlPlane, clinic: Clinic, account_without: AccountWithout, pods: Pods
) -> None:
    """An account that they do not know by its role, or that no binding applies to, may do what it must not.

    That is found out without a change of anything.
    """
    other = pods.node()
    unknown, guarded = account_without(guarded_by=None), account_without()
    known = clinic.ask(guarded.kubeconfig)
    assert known.wrong() == {}
    assert "by dry runs" in known.what("guard_nodes")
    before = [control_plane.get("node", each) for each in (clinic.node, other)]
    for made in (unknown, guarded):
        if made is guarded:
            names = [f"validatingadmissionpolicybinding/{made.identity.name}-{each}" for each in ("capacity", "evict")]
            control_plane.kubectl("delete", *names)
            wait_until(lambda: clinic.ask(guarded.kubeconfig).wrong().keys() == {"guard_nodes", "guard_evictions"})
        reported = clinic.ask(made.kubeconfig)
        assert (reported.code, set(reported.wrong())) == (1, {"guard_nodes", "guard_evictions"})
        assert f"it may label node {clinic.node}" in reported.wrong()["guard_nodes"]
        assert "evict pods from kube-system" in reported.wrong()["guard_evictions"]
        assert f"--service-account {made.identity.name} | kubectl apply -f -`" in reported.wrong()["guard_nodes"]
    assert [control_plane.get("node", each) for each in (clinic.node, other)] == before


def test_the_account_of_a_kubelet(control_plane: ControlPlane, clinic: Clinic) -> None:
    """It may change its node and evict; that no admission policy of the watchdog limits it is no finding."""
    user = f"system:node:{clinic.node}"
    vouch_for(user, [])
    pair, path = control_plane.authority.client(user, "system:nodes"), control_plane.kubeconfig()
    config = json.loads(path.read_text())
    config["users"][0]["user"] = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
    path.write_text(json.dumps(config))
    reported = clinic.ask(path)
    assert user in reported.what("api_credentials")
    assert not {each["name"] for each in reported.findings if each["name"].startswith("guard")}


@pytest.mark.parametrize("missing", [ONE_HALF, OTHER_HALF], ids=["list, create", "watch, patch, get"])
def test_each_right_that_is_missing(clinic: Clinic, account_without: AccountWithout, missing: list[Verb]) -> None:
    """Each verb that is missing is named by itself, with the command that prints what to apply for this account."""
    made = account_without(missing)
    wrong = clinic.ask(made.kubeconfig).wrong()
    whose = f"--namespace {made.identity.namespace} --service-account {made.identity.name}"
    assert all(f"gpu-watchdog rights --policy {clinic.policy} {whose}" in text for text in wrong.values())
    named = [verb for verb in EVERY if any(f" {verb[1]} {verb[0]}: " in text for text in wrong.values())]
    assert (named, len(wrong)) == (list(missing), len(missing))


def test_a_policy_that_observes(clinic: Clinic, account_without: AccountWithout) -> None:
    """It needs little, and still observes without the right to see its node: then the pods show the node's name."""
    clinic.policy.write_text(OBSERVES)
    reported = clinic.ask(account_without(TO_ENFORCE).kubeconfig)
    # The declarations of whole GPUs, which are the default, would read the node's labels.
    assert (reported.code, set(reported.wrong())) == (0, {"rights_to_enforce", "node_object"})
    assert "--enforce | kubectl apply -f -`" in reported.wrong()["rights_to_enforce"]
    blind = account_without([*TO_ENFORCE, *OF_THE_NODE])
    token = blind.plane.service_account_token(blind.identity.namespace, blind.identity.name)  # of no pod, so of no node
    config = blind.plane.kubeconfig(token=token)
    reported = clinic.ask(config)
    assert (reported.code, set(reported.wrong())) == (0, {"right_node", "rights_to_enforce"})
    assert clinic.node in reported.what("node_name")
    similar = clinic.ask(config, node=f"{clinic.node}.example.com").wrong()["node_name"]
    assert f"--node {clinic.node}" in similar
    assert "not allowed" in clinic.ask(config, node="no-such-node").wrong()["node_name"]


def test_credentials_that_are_not_accepted(
    control_plane: ControlPlane, clinic: Clinic, account_without: AccountWithout
) -> None:
    """They are the only finding, with what can be known about them: their dates, or that there are none."""
    identity = account_without().identity
    path = f"/api/v1/namespaces/{identity.namespace}/serviceaccounts/{identity.name}"
    uid = control_plane.api.ask("GET", path)["metadata"]["uid"]
    hours_ago = {"lasts_s": 3600.0, "begins_s": -2 * 3600.0 - 30}
    expired = control_plane.signer.token(identity.namespace, identity.name, uid, **hours_ago)
    for token, fragment in ((expired, "expired 1h ago"), (None, "anonymous")):
        wrong = clinic.ask(control_plane.kubeconfig(token=token)).wrong()
        assert wrong.keys() == {"api_credentials"}
        assert fragment in wrong["api_credentials"]


def test_what_is_no_api_server(
    control_plane: ControlPlane, clinic: Clinic, tcp_proxy: TcpProxy, api_proxy: ApiProxy
) -> None:
    """Silence or a page to log in is the only finding about the cluster, within a bounded time."""
    tcp_proxy.accept_silently()
    api_proxy.answer(200, body=b"<html>hello</html>")
    for server, ca, fragment in ((tcp_proxy.url, None, "does not respond"), (api_proxy.url, api_proxy.ca, "<html>")):
        reported = clinic.ask(control_plane.kubeconfig(token="t", server=server, ca=ca))
        assert reported.wrong().keys() == {"api"}
        assert fragment in reported.wrong()["api"]
        assert (reported.code, reported.lasted_s < 60) == (1, True)


def test_the_server_s_certificate_or_the_clock(clinic: Clinic, control_plane: ControlPlane, tmp_path: Path) -> None:
    """The certificate is at fault if it is invalid by both clocks, otherwise this node's clock is; no token is sent."""
    now = dt.datetime.now(dt.UTC)
    validity = {"not_before": now - 9 * DAY, "not_after": now - 2 * DAY}
    with ApiProxy(control_plane.api, tmp_path / "proxy", **validity) as proxy:
        config = control_plane.kubeconfig(token="t", server=proxy.url, ca=proxy.ca)
        for ahead, fragment in ((0 * DAY, "expired 2d ago"), (-3 * DAY, "this node's clock is 3d ahead")):
            proxy.shift_clock(ahead.total_seconds())
            wrong = clinic.ask(config).wrong()
            assert wrong.keys() == {"api_certificate"}
            assert fragment in wrong["api_certificate"]
        assert {dict(each.headers).get("Authorization") for each in proxy.seen} == {None}


def test_a_wrong_clock(
    control_plane: ControlPlane, clinic: Clinic, account_without: AccountWithout, api_proxy: ApiProxy
) -> None:
    """It is a finding that blocks nothing, and is reported beside rejected credentials too."""
    api_proxy.shift_clock(3600)
    reported = clinic.ask(account_without().through(api_proxy))
    assert (reported.code, set(reported.wrong())) == (0, {"api_clock"})
    assert "clock is 1h behind" in reported.wrong()["api_clock"]
    refused = control_plane.kubeconfig(token="nonsense", server=api_proxy.url, ca=api_proxy.ca)
    assert clinic.ask(refused).wrong().keys() == {"api_clock", "api_credentials"}


def test_a_server_that_answers_too_slowly(clinic: Clinic, account_without: AccountWithout, api_proxy: ApiProxy) -> None:
    """Each answer comes in time, all together do not: what was learned is reported, and what was waited for."""
    made = account_without()
    api_proxy.delay(3)
    reported = clinic.ask(made.through(api_proxy))
    assert made.identity.user in reported.what("api_credentials")
    (late,) = [found["what"] for found in reported.findings if found["name"] == "api" and found["state"] == "missing"]
    assert f"{api_proxy.url} did not answer all" in late
    assert reported.lasted_s < 60


def test_an_overloaded_server(control_plane: ControlPlane, clinic: Clinic, account_without: AccountWithout) -> None:
    """A server that throttles this account is reported as that: 429 is no missing right."""
    made = account_without()
    with control_plane.throttle(made.identity.user):
        wrong = clinic.ask(made.kubeconfig).wrong()
    assert wrong.keys() == {"api"}
    assert "answered 429" in wrong["api"]


def test_in_a_pod(control_plane: ControlPlane, clinic: Clinic, account_without: AccountWithout, tmp_path: Path) -> None:
    """Without a kubeconfig the pod's service account counts, and what is missing of its mount is named."""
    if os.geteuid() != 0:
        cannot_run("needs root, to mount what a kubelet mounts")
    made, mounted = account_without(), tmp_path / "serviceaccount"
    mounted.mkdir()
    (mounted / "token").write_text(made.token)
    (mounted / "ca.crt").write_bytes(control_plane.ca.read_bytes())
    uid = made.pod["metadata"]["uid"]
    reported = clinic.ask_in_pod(control_plane.port, mounted, uid)
    assert (reported.wrong(), reported.code) == ({}, 0)
    assert control_plane.url in reported.what("api_config")
    assert f"{made.identity.namespace}/{made.identity.name}-pod" in reported.what("own_pod")
    (mounted / "ca.crt").write_text("")
    broken = clinic.ask_in_pod(control_plane.port, mounted, uid).wrong()
    assert (set(broken), "ca.crt" in broken["api_config"]) == ({"api_config"}, True)
    (mounted / "token").unlink()
    broken = clinic.ask_in_pod(control_plane.port, mounted, uid).wrong()
    assert (set(broken), "no token" in broken["api_config"]) == ({"api_config"}, True)


def test_a_wrong_name_of_the_node(
    control_plane: ControlPlane, clinic: Clinic, account_without: AccountWithout, pods: Pods
) -> None:
    """A name that no node has, and one that was meant for another; the pod's token shows where it runs."""
    made, other = account_without(), pods.node()
    free = control_plane.service_account_token(made.identity.namespace, made.identity.name)
    config = control_plane.kubeconfig(token=free)
    for name, remedy in (
        ("no-such-node", "--node NAME"),
        (f"{clinic.node}.example.com", f"--node {clinic.node}"),
        (clinic.node.upper(), f"--node {clinic.node}"),
    ):
        wrong = clinic.ask(config, node=name).wrong()
        assert wrong.keys() == {"node_name"}
        assert remedy in wrong["node_name"]
    wrong = clinic.ask(made.kubeconfig, node=other).wrong()
    assert wrong.keys() == {"node_name", "own_pod"}
    assert all(each in wrong["node_name"] for each in (f"--node {clinic.node}", other, "spec.nodeName"))
