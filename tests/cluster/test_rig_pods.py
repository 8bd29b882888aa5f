"""What stands in the API of the rig: pods, nodes, tokens and budgets, with the real controllers around them."""

from tests.cluster.api import Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pods import Pods, path_of
from tests.cluster.rights import allow
from tests.node.support import wait_until

EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction"}


def test_tokens_of_service_accounts(control_plane: ControlPlane, namespace: str, pods: Pods) -> None:
    """A token serves while it is valid: not before, not after, and not longer than the pod that it is bound to."""

    def status(token: str) -> int:
        return control_plane.api.call("GET", "/version", token=token).status

    assert status(control_plane.service_account_token(namespace, "default")) == 200
    uid = control_plane.get("serviceaccount", "default", namespace)["metadata"]["uid"]
    for begins_s, lasts_s, expected in ((-10, 100, 200), (-1000, 900, 401), (1000, 900, 401)):
        made = control_plane.signer.token(namespace, "default", uid, lasts_s=lasts_s, begins_s=begins_s)
        assert status(made) == expected
    node = pods.node()
    pod = pods.create(node=node)
    bound = control_plane.service_account_token(namespace, "default", bound=pod)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    who = control_plane.api.ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, token=bound)
    extra = who["status"]["userInfo"]["extra"]
    assert extra["authentication.kubernetes.io/node-name"] == [node]
    pods.delete(pod)
    wait_until(lambda: status(bound) == 401)


def test_evictions_meet_the_disruption_controller(control_plane: ControlPlane, namespace: str, pods: Pods) -> None:
    """A budget really holds an eviction back with its cause, and lets it through when there is room."""
    node = pods.node()
    one, two = (pods.create(node=node, metadata={"labels": {"app": "web"}}) for _ in range(2))
    budget = pods.budget({"app": "web"}, minAvailable=2, allowed=0)
    allow(control_plane, "daemon", namespace)

    def evict(pod: Object, uid: str | None = None) -> tuple[int, str]:
        options = {"deleteOptions": {"preconditions": {"uid": uid}}} if uid else {}
        body = {**EVICTION, "metadata": {"name": pod["metadata"]["name"]}, **options}
        answer = control_plane.api.call("POST", f"{path_of(pod)}/eviction", body, token=control_plane.token("daemon"))
        causes = answer.object.get("details", {}).get("causes") or [{}]
        return answer.status, causes[0].get("reason", "")

    wait_until(lambda: evict(one)[0] != 403)
    assert evict(one) == (429, "DisruptionBudget")
    for _ in range(2):
        pods.create(node=node, metadata={"labels": {"app": "web"}})
    pods.wait_for_budget(budget["metadata"]["name"], allowed=2)
    assert evict(one, one["metadata"]["uid"])[0] == 201
    terminating = pods.read(one)
    assert terminating["metadata"]["deletionTimestamp"]
    assert {"DisruptionTarget"} <= {each["type"] for each in terminating["status"]["conditions"]}
    pods.wait_for_budget(budget["metadata"]["name"], allowed=1)
    # A refused UID has used the budget up all the same: the server takes its share before it tries to delete.
    assert evict(two, "another")[0] == 409
    assert evict(two) == (429, "DisruptionBudget")


def test_pods_look_as_a_kubelet_left_them(pods: Pods) -> None:
    """A pod of the rig runs on its node with container IDs, ends with an exit code, and is another one by its name."""
    node = pods.node()
    given = "containerd://" + "ab" * 32
    pod = pods.create("twin", node=node, containers=("main", "side"), ids={"side": given})
    statuses = {each["name"]: each for each in pod["status"]["containerStatuses"]}
    assert pod["spec"]["nodeName"] == node
    assert pod["status"]["phase"] == "Running"
    assert statuses["side"]["containerID"] == given
    assert len(statuses["main"]["containerID"]) == len(given)
    assert [one["metadata"]["name"] for one in pods.list()] == ["twin"]
    assert pods.finish(pod)["status"]["phase"] == "Failed"
    pods.delete(pod)
    assert not pods.exists(pod)
    assert pods.exists(pods.create("twin", node=node))
    assert not pods.exists(pod)


def test_the_scheduler_binds(pods: Pods) -> None:
    """A pod that asks for an extended resource comes to the node that has it, the next one finds no room."""
    resource = "tests.invalid/memory"
    node = pods.node(capacity={resource: "100"})
    pods.wait_until_schedulable(node)
    wants = {"resources": {"limits": {resource: "60"}, "requests": {resource: "60"}}}
    first = pods.create(container=wants)
    wait_until(lambda: pods.read(first)["spec"].get("nodeName") == node)
    second = pods.create(container=wants)

    def reasons() -> list[str]:
        return [each.get("reason", "") for each in pods.read(second)["status"].get("conditions", ())]

    wait_until(lambda: "Unschedulable" in reasons())
