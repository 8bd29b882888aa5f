"""`gpu-watchdog doctor` before a real API server: what is wrong is said in a sentence, and so is what to do."""

import datetime as dt
import os
from pathlib import Path

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.doctor_rig import EVERY, Account, Clinic, Verb
from tests.cluster.pods import Pods
from tests.node.support import cannot_run, wait_until

OBSERVES = 'rule = [{ name = "all", match = {}, step = [{ above = "110%", for = "10s", do = "kill" }] }]'
OF_OBSERVING = [verb for verb in EVERY if verb[1] in {"pods", "nodes"} and verb[2] in {"list", "watch"}]
DAY = dt.timedelta(days=1)
REFUSED_LATER = (
    "check that it belongs to this cluster and that its account still exists: an account that was deleted and "
    "recreated needs a new token (delete the pod, or write a new kubeconfig)"
)
NEW_TOKEN = (
    "in a pod the kubelet renews it: check that the kubelet runs and that this node's clock is right, then delete "
    "the pod; otherwise put a new token into the kubeconfig"
)


def test_all_is_well(control_plane: ControlPlane, clinic: Clinic, clinic_account: Account) -> None:
    """With exactly the rights that the policy needs nothing is wrong; it names the server and the account."""
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token=clinic_account.token()))
    assert (said.wrong(), said.code, said.stderr) == ({}, 0, "")
    assert said.what("api") == f"{control_plane.url} responds: Kubernetes v1.34.4"
    assert said.what("api_credentials") == f"the API server authenticates this account as {clinic_account.name}"
    assert said.what("node_name") == f"the cluster has a node {clinic.node}"
    assert said.what("pods") == f"pods on node {clinic.node}, according to the API: 1"
    assert said.what("capacity") == "the node advertises 85899345920 of veriff.com/gpu-memory"


def test_it_changes_nothing(control_plane: ControlPlane, clinic: Clinic, clinic_account: Account) -> None:
    """It reads, and asks what it may: nothing in the cluster is written, and each question is asked once."""
    clinic.ask("--kubeconfig", control_plane.kubeconfig(token=clinic_account.token()))
    asked = control_plane.requests(user=clinic_account.name)
    written = {each.resource for each in asked if each.verb not in {"get", "list", "watch"}}
    assert written == {"selfsubjectreviews", "selfsubjectaccessreviews"}
    assert len(asked) <= len(EVERY) + 8


@pytest.mark.parametrize("missing", EVERY, ids=lambda each: f"{each[2]}-{each[1]}")
def test_each_right_that_is_missing(
    control_plane: ControlPlane, clinic: Clinic, clinic_account: Account, namespace: str, missing: Verb
) -> None:
    """One verb is taken away at a time: it alone is named, with what does not work without it and what to apply."""
    clinic_account.give(verb for verb in EVERY if verb != missing)
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token=clinic_account.token()))
    _group, target, verb = missing
    (told,) = said.wrong().values()
    assert told.startswith(f"this account is not allowed to {verb} {target}: ")
    command = f"gpu-watchdog rights --policy {clinic.policy} --namespace {namespace} --service-account watchdog"
    assert told.endswith(f" -> as an administrator: `{command} | kubectl apply -f -`")
    assert said.code == (0 if target in {"events", "nodes/status"} else 1)


def test_without_any_right(control_plane: ControlPlane, clinic: Clinic) -> None:
    """An account with no role is told each right that it lacks, all at once."""
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token=control_plane.token("nobody")))
    assert set(said.wrong()) == {
        *("right_pods", "right_events", "right_node", "right_namespaces", "right_evict", "right_capacity"),
    }
    assert "cannot observe. Blocked by: right_pods; for enforcing also: " in said.stderr


def test_what_enforcing_would_need(
    control_plane: ControlPlane, clinic: Clinic, clinic_account: Account, namespace: str
) -> None:
    """A policy that observes needs little; what it would need to enforce is told, and is no failure."""
    clinic.policy.write_text(OBSERVES)
    clinic_account.give(OF_OBSERVING)
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token=clinic_account.token()))
    assert said.code == 0
    assert said.wrong()["rights_to_enforce"] == (
        'this account lacks rights that this policy would need with mode = "enforce": create and patch events '
        f"-> before enforcing, as an administrator: `gpu-watchdog rights --policy {clinic.policy} "
        f"--namespace {namespace} --service-account watchdog --enforce | kubectl apply -f -`"
    )


def test_a_policy_that_observes_does_so_without_the_right_to_see_its_node(
    control_plane: ControlPlane, clinic: Clinic, clinic_account: Account
) -> None:
    """An operator took it away: that is said with its remedy and with what is not seen, and observing goes on."""
    clinic.policy.write_text(OBSERVES)
    clinic_account.give(verb for verb in OF_OBSERVING if verb[1] == "pods")
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token=clinic_account.token()))
    assert (said.code, set(said.wrong())) == (0, {"right_node", "rights_to_enforce"})
    assert said.wrong()["right_node"].startswith(
        "this account is not allowed to list or watch nodes: the node's labels are unknown, as is whether its "
        "annotation turns enforcement off and whether the driver must be released for maintenance -> as an "
        "administrator: `gpu-watchdog"
    )


def test_an_expired_token(control_plane: ControlPlane, clinic: Clinic, clinic_account: Account, namespace: str) -> None:
    """A service account's token says when it ends, so doctor does: by the server's clock."""
    token = control_plane.signer.token(namespace, "watchdog", clinic_account.uid, lasts_s=3600, begins_s=-2 * 3600 - 30)
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token=token))
    assert said.wrong() == {
        "api_credentials": f"the token of {clinic_account.name} expired 1h ago by the API server's clock -> {NEW_TOKEN}"
    }


def test_a_token_of_an_account_that_is_gone(
    control_plane: ControlPlane, clinic: Clinic, clinic_account: Account
) -> None:
    """A token that has not expired, and is refused all the same: its account was deleted."""
    config = control_plane.kubeconfig(token=clinic_account.token())
    clinic_account.delete()
    wait_until(lambda: "api_credentials" in clinic.ask("--kubeconfig", config).wrong())
    assert clinic.ask("--kubeconfig", config).wrong() == {
        "api_credentials": f"the API server rejects the token of {clinic_account.name} (401), though it has "
        f"not expired -> {REFUSED_LATER}"
    }


def test_a_token_of_no_kind(control_plane: ControlPlane, clinic: Clinic) -> None:
    """A static token has no dates; it is not accepted, and that is all that can be known."""
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token="nonsense"))
    assert said.wrong() == {"api_credentials": f"the API server rejects the token (401) -> {REFUSED_LATER}"}


def test_an_expired_client_certificate(control_plane: ControlPlane, clinic: Clinic) -> None:
    """The API server answers 401 to it, and does not say why; its dates do."""
    now = dt.datetime.now(dt.UTC)
    pair = control_plane.authority.client("daemon", not_before=now - 9 * DAY, not_after=now - 2 * DAY)
    assert clinic.ask("--kubeconfig", control_plane.kubeconfig(client=pair)).wrong() == {
        "api_credentials": "the client certificate expired 2d ago by the API server's clock -> put a new one into the "
        "kubeconfig"
    }


def test_in_a_pod(
    control_plane: ControlPlane, clinic: Clinic, clinic_account: Account, pods: Pods, tmp_path: Path
) -> None:
    """Without a kubeconfig the pod's service account counts: it tells the node, and what is missing of it is told."""
    if os.geteuid() != 0:
        cannot_run("needs root, to mount what a kubelet mounts")
    own = pods.create("watchdog", node=clinic.node, spec={"serviceAccountName": "watchdog"})
    mounted = tmp_path / "serviceaccount"
    mounted.mkdir()
    (mounted / "token").write_text(clinic_account.token(bound=own))
    (mounted / "ca.crt").write_bytes(control_plane.ca.read_bytes())
    # As the chart has it, by the downward API: fieldRef: metadata.uid.
    uid = {"GPU_WATCHDOG_POD_UID": own["metadata"]["uid"]}
    said = clinic.ask_in_pod(control_plane.port, mounted, **uid)
    assert (said.wrong(), said.code) == ({}, 0)
    assert said.what("api_config") == f"this pod's service account is used for {control_plane.url}"
    assert said.what("own_pod") == f"this pod, {pods.namespace}/watchdog, is in the list"
    (mounted / "ca.crt").write_text("")
    assert "ca.crt) is missing or empty -> check the ConfigMap kube-root-ca" in _way(
        clinic, control_plane, mounted, uid
    )
    (mounted / "token").unlink()
    assert "this pod has no token of a service account (" in _way(clinic, control_plane, mounted, uid)


def _way(clinic: Clinic, control_plane: ControlPlane, mounted: Path, uid: dict[str, str]) -> str:
    wrong = clinic.ask_in_pod(control_plane.port, mounted, **uid).wrong()
    assert wrong.keys() == {"api_config"}
    return wrong["api_config"]


def test_no_credentials(control_plane: ControlPlane, clinic: Clinic) -> None:
    """A kubeconfig whose user has nothing to show: the server takes it for nobody."""
    assert clinic.ask("--kubeconfig", control_plane.kubeconfig()).wrong() == {
        "api_credentials": "the API server treats this account as anonymous: no credentials were sent -> give the "
        "user in the kubeconfig a token or a client certificate; if it has an `exec` plugin, run that manually"
    }


def test_a_wrong_name_of_the_node(
    control_plane: ControlPlane, clinic: Clinic, clinic_account: Account, pods: Pods
) -> None:
    """A host's name is often not its node's: it is said, and what was perhaps meant is named if it is there."""
    config = control_plane.kubeconfig(token=clinic_account.token())
    assert clinic.ask("--kubeconfig", config, node="no-such-node").wrong() == {
        "node_name": "the cluster has no node no-such-node, so no pod on this node is known -> give --node NAME (or "
        "NODE_NAME) as shown by `kubectl get nodes`; the host name can differ"
    }
    for host in (f"{clinic.node}.example.com", clinic.node.upper()):
        assert clinic.ask("--kubeconfig", config, node=host).wrong() == {
            "node_name": f"the cluster has no node {host}, but a node {clinic.node}; no pod on this node is known -> "
            f"give --node {clinic.node} (or NODE_NAME) if that is this node"
        }


def test_a_name_that_can_only_be_guessed(control_plane: ControlPlane, clinic: Clinic, clinic_account: Account) -> None:
    """An account that may not see nodes, for an operator took that away: the pods tell whether the name is right."""
    clinic.policy.write_text(OBSERVES)
    clinic_account.give(verb for verb in OF_OBSERVING if verb[1] == "pods")
    config = control_plane.kubeconfig(token=clinic_account.token())
    assert clinic.ask("--kubeconfig", config).what("node_name") == f"there are pods on a node named {clinic.node}"
    similar = clinic.ask("--kubeconfig", config, node=f"{clinic.node}.example.com").wrong()["node_name"]
    assert f"but a node {clinic.node}; no pod on this node is known" in similar
    doubtful = clinic.ask("--kubeconfig", config, node="no-such-node").wrong()["node_name"]
    assert doubtful.startswith(
        "there is no pod on a node named no-such-node, and this account is not allowed to check whether that node "
        "exists -> "
    )


def test_a_pod_that_looks_at_another_node(
    control_plane: ControlPlane, clinic: Clinic, clinic_account: Account, pods: Pods
) -> None:
    """The token of a pod says where it runs: a NODE_NAME of another node is seen by it, and the own pod missed."""
    own = pods.create("watchdog", node=clinic.node, spec={"serviceAccountName": "watchdog"})
    config = control_plane.kubeconfig(token=clinic_account.token(bound=own))
    assert clinic.ask("--kubeconfig", config).what("own_pod") == f"this pod, {pods.namespace}/watchdog, is in the list"
    other = pods.node()
    said = clinic.ask("--kubeconfig", config, node=other)
    assert said.wrong().keys() == {"node_name", "own_pod"}
    assert said.wrong()["node_name"] == (
        f"this pod runs on node {clinic.node}, but --node (NODE_NAME) is {other}: no pod on this node is known -> set "
        f"NODE_NAME by the downward API (fieldRef: spec.nodeName), or give --node {clinic.node}"
    )
