"""`run` in enforce mode: what is not known of pods and cards never becomes a smaller number that somebody dies for."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.rig import Daemon, Node, Pod, Tenant, gpu_watchdog
from tests.rig.suspension import Suspension
from tests.stub import GIB, MIB, StubGpu, StubProcess, StubReturn
from tests.world.policies import KILL_AT_ONCE, write_policy
from tests.world.test_kill import ended, run

pytestmark = [pytest.mark.node, pytest.mark.slow]

SECOND = StubGpu(uuid="GPU-00000000-0000-0000-0000-000000000001", total=40 * GIB, reserved=512 * MIB)
LOST = StubReturn(call="nvmlDeviceGetHandleByIndex_v2", code=15, gpu=SECOND.uuid)
NOTED = '\n[[declaration]]\nannotation = "vram"\nunit = "1"\n'
SHARED = """
[[declaration]]
resource = "nvidia.com/gpu.shared"
unit = "share"
shares = "label:nvidia.com/gpu.replicas"
"""
OF_THE_TEAM = '[[rule]]\nname = "of the team"\nmatch = { namespace_labels = { team = "ml" } }\n'


def stands(running: Daemon, pod: Pod) -> tuple[str, int | None]:
    """The verdict on a pod and what it declares."""
    (account,) = [each for each in running.status()["accounts"] if each["uid"] == pod.uid]
    return account["verdict"], account["declared"]


def nobody_was_hit(*tenants: Tenant) -> bool:
    """Whether all of them live and none has got SIGTERM."""
    return all(tenant.is_alive and not tenant.terms for tenant in tenants)


def test_a_main_container_that_has_restarted_is_not_paid_for_by_its_sidecar(world: Node) -> None:
    """Points 13 and 21: no action while its new ID is not in the list; then the container that is over is killed."""
    pod = world.pod("trainer", ("main", "4Gi"), ("side", "1Gi"))
    pod.containers[0].is_new = True
    main, side = world.start(pod, 0, used=9 * GIB), world.start(pod, 1, used=900 * MIB)
    world.write()
    with run(world, write_policy(world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(3)
        assert nobody_was_hit(main, side)
        assert stands(running, pod) == ("unknown", 5 * GIB)
        pod.containers[0].is_new = False
        world.write()
        running.wait(ended)
        assert (main.is_alive, side.is_alive, side.terms) == (False, True, [])


def test_an_init_phase_that_is_over_is_no_limit(world: Node) -> None:
    """Point 2: the list still shows an init container, and the pod that has gone on is within its declaration."""
    pod = world.pod("trainer", ("proxy", "1Gi"), ("load", "1Gi"), ("main", "8Gi"))
    proxy, load, main = pod.containers
    proxy.init, load.init, main.is_new = "sidecar", "plain", True
    helper, trainer = world.start(pod, 0, used=900 * MIB), world.start(pod, 2, used=7 * GIB)
    world.write()
    with run(world, write_policy(world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(3)
        assert nobody_was_hit(helper, trainer)
        assert stands(running, pod) == ("unknown", 9 * GIB)


def test_nothing_in_a_gvisor_sandbox_is_killed_and_a_gap_says_so(any_world: Node) -> None:
    """Point 13: its process counts for the pod, is in no listed container and is spared."""
    pod = any_world.pod("sandboxed", ("main", "1Gi"))
    sandbox, machine = any_world.sandbox(pod, used=9 * GIB), Suspension(any_world.root)
    any_world.write()
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE), prefix=machine.prefix) as running:
        running.wait_passes(2)
        machine.let_pass(61)
        any_world.write()
        running.wait(lambda d: [gap for gap in d.status()["gaps"] if gap["reason"] == "container"])
        running.wait_passes(2)
        (gap,) = running.status()["gaps"]
        (account,) = running.status()["accounts"]
        assert (gap["what"], "gVisor" in gap["why"]) == ("container without an ID of pod ns/sandboxed", True)
        assert (account["verdict"], account["used"]) == ("over", 9 * GIB)
        assert [each["withheld_by"] for each in running.status()["plan"]] == ["unknown_container"]
        assert nobody_was_hit(sandbox)


def test_a_container_outside_its_pods_cgroup_counts_for_no_pod_and_is_a_gap(any_world: Node) -> None:
    """Point 9: the ID in the path is that of a listed container, which anyone who names cgroups could write there."""
    pod = any_world.pod("elsewhere", ("main", "1Gi"))
    tenant = any_world.outsider(pod, used=9 * GIB)
    any_world.write()
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(3)
        status = running.status()
        assert [(gap["reason"], gap["what"]) for gap in status["gaps"]] == [
            ("outside", "container main of pod ns/elsewhere")
        ]
        assert status["gaps"][0]["remedy"]
        assert [(each["pid"], each["reason"]) for each in status["unattributed"]] == [(tenant.pid, "host")]
        assert nobody_was_hit(tenant)


def test_labels_that_disappear_make_no_share_the_default(any_world: Node) -> None:
    """Points 5 and 6: without them the size of a share is unknown, and the default is for those that have none."""
    pod = any_world.pod("trainer", ("main", None))
    pod.containers[0].resources = {"nvidia.com/gpu.shared": "2"}
    tenant = any_world.start(pod, used=15 * GIB)
    any_world.write()
    any_world.mark(labels={"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"})
    policy = write_policy(any_world.root, KILL_AT_ONCE, default="4Gi", more=SHARED)
    with run(any_world, policy, more=("--node-object", any_world.node_file)) as running:
        assert stands(running, pod) == ("within", (40 * GIB - 512 * MIB) // 2)
        any_world.mark()
        running.wait(lambda d: stands(d, pod) == ("unknown", None))
        running.wait_passes(2)
        assert nobody_was_hit(tenant)


@pytest.mark.parametrize("counted", [True, False], ids=["lost", "not counted"])
def test_a_card_that_is_lost_across_a_restart_makes_no_declaration_the_default(any_world: Node, counted: bool) -> None:
    """Point 6: 60Gi are more than the card that is left, and were promised by the scheduler all the same."""
    pod = any_world.pod("trainer", ("main", "60Gi"))
    tenant = any_world.start(pod, used=30 * GIB)
    cards = any_world.stub.gpus
    any_world.show(gpus=(*cards, SECOND))
    policy = write_policy(any_world.root, KILL_AT_ONCE, default="4Gi")
    with run(any_world, policy) as running:
        assert stands(running, pod) == ("within", 60 * GIB)
    any_world.show(**({"returns": (LOST,)} if counted else {"gpus": cards}))
    with run(any_world, policy) as running:
        running.wait_passes(2)
        assert nobody_was_hit(tenant)
        assert stands(running, pod) == ("within", 60 * GIB)


def test_on_two_cards_of_one_uuid_no_pod_is_judged(any_world: Node) -> None:
    """Point 13: the second card's process does not use nothing, nor the first card's all there is: both are unknown."""
    pods = [any_world.pod(name, ("main", "1Gi")) for name in ("first", "second")]
    first, second = (any_world.start(pod, used=GIB) for pod in pods)
    (card,) = any_world.stub.gpus

    def show(says: str | None) -> None:
        one, other = (replace(card, processes=(StubProcess(pid=each.pid, used=9 * GIB),)) for each in (first, second))
        replace(any_world.stub, gpus=(one, replace(other, uuid=SECOND.uuid, says=says))).write(any_world.stub_file)

    any_world.write()
    show(says=card.uuid)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(3)
        assert nobody_was_hit(first, second)
        assert [stands(running, pod) for pod in pods] == [("unknown", GIB)] * 2
        (gap,) = running.status()["gaps"]
        assert "this UUID for more than one GPU" in gap["why"]
        assert running.metric("pod_memory_used_bytes", pod="second") is None
        show(says=None)
        running.wait(lambda _: not first.is_alive and not second.is_alive, 30)


@pytest.mark.parametrize("how", ["driver", "label", "capacity"])
def test_an_annotation_is_not_judged_by_the_cards_that_are_left(any_world: Node, how: str) -> None:
    """Point 6: whether 60Gi can be true is open while the driver or the node counts a card that is not visible."""
    pod = any_world.pod("trainer", ("main", None), metadata={"annotations": {"vram": "60Gi"}})
    tenant = any_world.start(pod, used=30 * GIB)
    if how == "driver":
        any_world.stub = replace(any_world.stub, gpus=(*any_world.stub.gpus, SECOND), returns=(LOST,))
    any_world.write()
    any_world.mark(
        labels={"nvidia.com/gpu.count": "2"} if how == "label" else {},
        capacity={"nvidia.com/gpu": "2"} if how == "capacity" else {},
    )
    policy = write_policy(any_world.root, KILL_AT_ONCE, default="4Gi", more=NOTED)
    with run(any_world, policy, more=("--node-object", any_world.node_file)) as running:
        running.wait_passes(2)
        assert nobody_was_hit(tenant)
        assert stands(running, pod) == ("unknown", None)


def test_a_later_rule_kills_nobody_while_labels_are_not_known(any_world: Node) -> None:
    """Until the namespaces are known their pods are left alone, which is a gap; then the rule that applies acts."""
    tenant = any_world.single("hog", used=9 * GIB)
    policy = write_policy(any_world.root, KILL_AT_ONCE, first=OF_THE_TEAM)
    namespaces = any_world.root / "namespaces.json"
    with run(any_world, policy, more=("--namespaces", namespaces)) as running:
        running.wait_passes(3)
        status = running.status()
        (account,) = status["accounts"]
        assert (account["rule"], account["verdict"], status["plan"]) == (None, "unknown", [])
        assert {gap["what"] for gap in status["gaps"]} >= {"labels of namespace ns", f"namespaces file {namespaces}"}
        assert nobody_was_hit(tenant)
        namespaces.write_text(json.dumps({"kind": "Namespace", "metadata": {"name": "ns"}}), encoding="utf-8")
        running.wait(ended)
        assert not tenant.is_alive


def test_one_pod_does_not_blind_the_view_of_all(any_world: Node) -> None:
    """Whatever a tenant writes, `top`, `explain`, `scan`, the page, the metrics and the history show everybody."""
    greedy = any_world.pod("greedy", ("main", None))
    greedy.containers[0].resources = {"nvidia.com/gpu": str(2**63 - 1)}
    any_world.pod("huge", ("main", str(2**63 - 1)))
    any_world.pod("noted", ("main", None), metadata={"annotations": {"vram": "1e30"}})
    any_world.pod("hog", ("main", "1Gi"))
    tenants = [any_world.start(pod, used=2 * GIB) for pod in any_world.pods]
    # With a card out of sight nothing is implausible.
    any_world.show(gpus=(*any_world.stub.gpus, SECOND))
    policy = write_policy(any_world.root, KILL_AT_ONCE, mode="observe", default="4Gi", more=NOTED)
    with run(any_world, policy) as running:
        running.wait_passes(1)
        any_world.show(returns=(StubReturn(call="*", code=15, gpu=SECOND.uuid),))
        running.wait(lambda d: not d.status()["gpus"][1]["up"])
        running.wait_passes(2)
        top, page = ask(any_world, "top", "--once", "--url", running.url), running.get("/")[1]
        for pod in any_world.pods:
            title = f"ns/{pod.name}"
            assert (title in top, pod.name in page) == (True, True)
            assert title in ask(any_world, "explain", title, "--url", running.url)
            assert stands(running, pod)[0] in ("within", "unknown", "over")
        assert "ns/hog" in ask(any_world, "history", "--journal", any_world.journal)
        assert running.metric("account_memory_declared_bytes", pod="huge") == pytest.approx(2**63)
        scan = ask(any_world, "scan", "--json", "--policy", policy, "--pods", any_world.pods_file)
        accounts = {each["pod"]: each for each in json.loads(scan)["accounts"]}
        assert accounts["huge"]["declared"] == 2**63 - 1
        assert nobody_was_hit(*tenants)


def ask(world: Node, *arguments: str | Path) -> str:
    """What a command prints that ends well."""
    done = gpu_watchdog(*arguments, stub=world.stub_file)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout
