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


def test_all_is_well(control_plane: ControlPlane, clinic: Clinic, clinic_account: Account) -> None:
    """With exactly the rights that the policy needs nothing is wrong; it names the server and the account."""
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token=clinic_account.token()))
    assert (said.wrong(), said.code, said.stderr) == ({}, 0, "")
    assert control_plane.url in said.what("api")
    assert clinic_account.name in said.what("api_credentials")
    assert clinic.node in said.what("node_name")
    assert said.what("pods").endswith(": 1")
    assert "85899345920" in said.what("capacity")


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
    assert f" {verb} {target}: " in told
    command = f"gpu-watchdog rights --policy {clinic.policy} --namespace {namespace} --service-account watchdog"
    assert f"`{command} | kubectl apply -f -`" in told
    assert said.code == (0 if target in {"events", "nodes/status"} else 1)


def test_without_any_right(control_plane: ControlPlane, clinic: Clinic) -> None:
    """An account with no role is told each right that it lacks, all at once."""
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token=control_plane.token("nobody")))
    assert set(said.wrong()) == {
        *("right_pods", "right_events", "right_node", "right_namespaces", "right_evict", "right_capacity"),
    }
    assert said.code == 1


def test_what_enforcing_would_need(
    control_plane: ControlPlane, clinic: Clinic, clinic_account: Account, namespace: str
) -> None:
    """A policy that observes needs little; what it would need to enforce is told, and is no failure."""
    clinic.policy.write_text(OBSERVES)
    clinic_account.give(OF_OBSERVING)
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token=clinic_account.token()))
    assert said.code == 0
    told = said.wrong()["rights_to_enforce"]
    assert "create and patch events" in told
    assert f"--namespace {namespace} --service-account watchdog --enforce | kubectl apply -f -`" in told


def test_a_policy_that_observes_does_so_without_the_right_to_see_its_node(
    control_plane: ControlPlane, clinic: Clinic, clinic_account: Account
) -> None:
    """An operator took it away: that is said with its remedy and with what is not seen, and observing goes on."""
    clinic.policy.write_text(OBSERVES)
    clinic_account.give(verb for verb in OF_OBSERVING if verb[1] == "pods")
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token=clinic_account.token()))
    assert (said.code, set(said.wrong())) == (0, {"right_node", "rights_to_enforce"})


def test_an_expired_token(control_plane: ControlPlane, clinic: Clinic, clinic_account: Account, namespace: str) -> None:
    """A service account's token says when it ends, so doctor does: by the server's clock."""
    token = control_plane.signer.token(namespace, "watchdog", clinic_account.uid, lasts_s=3600, begins_s=-2 * 3600 - 30)
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token=token))
    assert said.wrong().keys() == {"api_credentials"}
    assert f"{clinic_account.name} expired 1h ago" in said.wrong()["api_credentials"]


def test_a_token_of_an_account_that_is_gone(
    control_plane: ControlPlane, clinic: Clinic, clinic_account: Account
) -> None:
    """A token that has not expired, and is refused all the same: its account was deleted."""
    config = control_plane.kubeconfig(token=clinic_account.token())
    clinic_account.delete()
    wait_until(lambda: "api_credentials" in clinic.ask("--kubeconfig", config).wrong())
    wrong = clinic.ask("--kubeconfig", config).wrong()
    assert wrong.keys() == {"api_credentials"}
    assert f"{clinic_account.name} (401)" in wrong["api_credentials"]


def test_a_token_of_no_kind(control_plane: ControlPlane, clinic: Clinic) -> None:
    """A static token has no dates; it is not accepted, and that is all that can be known."""
    said = clinic.ask("--kubeconfig", control_plane.kubeconfig(token="nonsense"))
    assert said.wrong().keys() == {"api_credentials"}
    assert "(401)" in said.wrong()["api_credentials"]


def test_an_expired_client_certificate(control_plane: ControlPlane, clinic: Clinic) -> None:
    """The API server answers 401 to it, and does not say why; its dates do."""
    now = dt.datetime.now(dt.UTC)
    pair = control_plane.authority.client("daemon", not_before=now - 9 * DAY, not_after=now - 2 * DAY)
    wrong = clinic.ask("--kubeconfig", control_plane.kubeconfig(client=pair)).wrong()
    assert wrong.keys() == {"api_credentials"}
    assert "certificate expired 2d ago" in wrong["api_credentials"]


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
    assert control_plane.url in said.what("api_config")
    assert f"{pods.namespace}/watchdog" in said.what("own_pod")
    (mounted / "ca.crt").write_text("")
    assert "ca.crt" in _way(clinic, control_plane, mounted, uid)
    (mounted / "token").unlink()
    assert "no token" in _way(clinic, control_plane, mounted, uid)


def _way(clinic: Clinic, control_plane: ControlPlane, mounted: Path, uid: dict[str, str]) -> str:
    wrong = clinic.ask_in_pod(control_plane.port, mounted, **uid).wrong()
    assert wrong.keys() == {"api_config"}
    return wrong["api_config"]


def test_no_credentials(control_plane: ControlPlane, clinic: Clinic) -> None:
    """A kubeconfig whose user has nothing to show: the server takes it for nobody."""
    wrong = clinic.ask("--kubeconfig", control_plane.kubeconfig()).wrong()
    assert wrong.keys() == {"api_credentials"}
    assert "anonymous" in wrong["api_credentials"]


def test_a_wrong_name_of_the_node(
    control_plane: ControlPlane, clinic: Clinic, clinic_account: Account, pods: Pods
) -> None:
    """A host's name is often not its node's: it is said, and what was perhaps meant is named if it is there."""
    config = control_plane.kubeconfig(token=clinic_account.token())
    wrong = clinic.ask("--kubeconfig", config, node="no-such-node").wrong()
    assert wrong.keys() == {"node_name"}
    assert "--node NAME" in wrong["node_name"]
    for host in (f"{clinic.node}.example.com", clinic.node.upper()):
        wrong = clinic.ask("--kubeconfig", config, node=host).wrong()
        assert wrong.keys() == {"node_name"}
        assert f"--node {clinic.node}" in wrong["node_name"]


def test_a_name_that_can_only_be_guessed(control_plane: ControlPlane, clinic: Clinic, clinic_account: Account) -> None:
    """An account that may not see nodes, for an operator took that away: the pods tell whether the name is right."""
    clinic.policy.write_text(OBSERVES)
    clinic_account.give(verb for verb in OF_OBSERVING if verb[1] == "pods")
    config = control_plane.kubeconfig(token=clinic_account.token())
    assert clinic.node in clinic.ask("--kubeconfig", config).what("node_name")
    similar = clinic.ask("--kubeconfig", config, node=f"{clinic.node}.example.com").wrong()["node_name"]
    assert f"--node {clinic.node}" in similar
    assert "not allowed" in clinic.ask("--kubeconfig", config, node="no-such-node").wrong()["node_name"]


def test_a_pod_that_looks_at_another_node(
    control_plane: ControlPlane, clinic: Clinic, clinic_account: Account, pods: Pods
) -> None:
    """The token of a pod says where it runs: a NODE_NAME of another node is seen by it, and the own pod missed."""
    own = pods.create("watchdog", node=clinic.node, spec={"serviceAccountName": "watchdog"})
    config = control_plane.kubeconfig(token=clinic_account.token(bound=own))
    assert f"{pods.namespace}/watchdog" in clinic.ask("--kubeconfig", config).what("own_pod")
    other = pods.node()
    said = clinic.ask("--kubeconfig", config, node=other)
    assert said.wrong().keys() == {"node_name", "own_pod"}
    assert all(each in said.wrong()["node_name"] for each in (f"--node {clinic.node}", other, "spec.nodeName"))
