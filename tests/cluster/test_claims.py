"""The daemon, the scheduler and resource claims: what pods were given is read from a real API server, and enforced."""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.node.support import wait_until
from tests.rig import Node, node
from tests.rig.cluster.accounts import Account, NewAccount
from tests.rig.cluster.api import Object
from tests.rig.cluster.api_proxy import ApiProxy
from tests.rig.cluster.audit import Request
from tests.rig.cluster.claims import Claims
from tests.rig.cluster.control_plane import ControlPlane
from tests.rig.cluster.event_rig import events_of
from tests.rig.cluster.pods import Pods
from tests.rig.command import Daemon, daemon, gpu_watchdog
from tests.rig.node import GPU, Tenant
from tests.stub import GIB, MIB, StubGpu
from tests.world.policies import KILL_AT_ONCE, WARN_AT_ONCE, kill, write_policy
from watchdog import clock
from watchdog.clock import Bell
from watchdog.config.load import load_policy
from watchdog.kube.client import Api
from watchdog.kube.informers import SliceInformer
from watchdog.kube.kinds import Piece

OTHER: Final = GPU.replace("0000-000000000000", "0000-000000000001")
NEWER: Final = "newer"
EITHER: Final = pytest.mark.parametrize("control_plane", ["usual", NEWER], indirect=True)
WITH_SHARES: Final = pytest.mark.parametrize("control_plane", [NEWER], indirect=True)

# One that serves no claims; the gate is locked in newer ones, which are not ready without the group.
WITHOUT_THE_GROUP: Final = (
    "--feature-gates=DynamicResourceAllocation=false",
    "--runtime-config=resource.k8s.io/v1=false",
)


@pytest.fixture(scope="module")
def newer_plane(newer_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that can give shares of a card."""
    with ControlPlane(tmp_path_factory.mktemp("newer") / "plane", programs=newer_programs) as plane:
        yield plane


@pytest.fixture(scope="module")
def control_plane(request: pytest.FixtureRequest, control_plane: ControlPlane) -> ControlPlane:
    """The session's, or the newer one."""
    if getattr(request, "param", "") == NEWER:
        newer: ControlPlane = request.getfixturevalue("newer_plane")
        return newer
    return control_plane


class ClaimNode:
    """A node `n1` in the API with two cards for claims, whose processes are real."""

    def __init__(self, world: Node, plane: ControlPlane, pods: Pods, new_account: NewAccount, claims: Claims) -> None:
        self.world = world
        self.plane = plane
        self.claims = claims
        self._new_account = new_account
        self.pods = pods
        self.steps: tuple[str, ...] = (KILL_AT_ONCE,)
        self.default = ""
        world.stub = replace(world.stub, gpus=(*world.stub.gpus, StubGpu(uuid=OTHER, total=40 * GIB)))
        world.write(pods=False)

    def pod(self, name: str, claim: str, *, used: int = 0, bound: bool = False) -> tuple[Object, Tenant]:
        """A pod with this claim, and a real process in its cgroup."""
        made = self.claims.pod(name, claim, bound=bound)
        tenant = self.start(made)
        self.use(tenant, used)
        return made, tenant

    def start(self, made: Object) -> Tenant:
        """A process in the container of a pod that was made."""
        (status,) = self.pods.read(made)["status"]["containerStatuses"]
        ours = self.world.pod(made["metadata"]["name"], ("main", None), uid=made["metadata"]["uid"])
        ours.containers[0].id = status["containerID"].partition("://")[2]
        return self.world.start(ours)

    def use(self, tenant: Tenant, used: int) -> None:
        """Let a process use this much from now on."""
        tenant.used = used
        self.world.write(pods=False)

    def account(self, *, without: tuple[Piece, ...] = ()) -> Account:
        """An account with the rights of the policy that is written."""
        return self._new_account(load_policy(self.policy()), "n1", without=without)

    def policy(self) -> Path:
        """Write the policy."""
        return write_policy(self.world.root, *self.steps, keys='schemes = ["dra"]\n', default=self.default)

    @contextmanager
    def running(self, kubeconfig: Path) -> Iterator[Daemon]:
        """The daemon with what this file connects it to."""
        options = ("--policy", self.policy(), "--journal", self.world.journal, "--kubeconfig", kubeconfig)
        with daemon(self.world.root, self.world.stub_file, *options) as made:
            made.wait_passes(2)
            yield made

    def run(self) -> AbstractContextManager[Daemon]:
        """The daemon with just the rights of its policy."""
        return self.running(self.account().kubeconfig)

    def asked(self, resource: str) -> tuple[Request, ...]:
        """What daemons requested of a kind of objects."""
        return tuple(
            each for each in self.plane.requests(user_agent="gpu-memory-watchdog/") if each.resource == resource
        )


@pytest.fixture
def here(tmp_path: Path, control_plane: ControlPlane, pods: Pods, new_account: NewAccount) -> Iterator[ClaimNode]:
    """A node."""
    name = pods.node("n1")
    with node(tmp_path) as world, Claims(control_plane.api, pods, name, GPU, OTHER) as claims:
        yield ClaimNode(world, control_plane, pods, new_account, claims)


def declared(running: Daemon, pod: str, gpu: str = GPU) -> float | None:
    """The bytes that a pod may use of a card."""
    return running.metric("account_memory_declared_bytes", pod=pod, gpu=gpu)


def gaps(running: Daemon) -> list[str]:
    """What the log says of claims that are not known."""
    return [line["message"] for line in running.events("gap_began") if line.get("reason") == "claims"]


@WITH_SHARES
def test_who_exceeds_its_share_is_killed_and_its_neighbour_lives(here: ClaimNode) -> None:
    """Points 42 and 43: the scheduler puts 4Gi and 8Gi on one card; 5Gi are too much for one of them."""
    here.claims.claim("small", "4Gi")
    here.claims.claim("large", "8Gi")
    _, small = here.pod("small", "small", used=GIB)
    _, large = here.pod("large", "large", used=5 * GIB)
    with here.run() as running:
        running.wait(lambda d: (declared(d, "small"), declared(d, "large")) == (4 * GIB, 8 * GIB))
        here.use(small, 5 * GIB)
        running.wait(lambda _: not small.is_alive)
        running.wait_passes(2)
        assert large.is_alive
        assert not large.terms


@WITH_SHARES
def test_who_exceeds_its_share_is_warned_and_then_killed(here: ClaimNode) -> None:
    """Promise 2: an Event on the offender, and on it alone, warns of the kill that follows; its neighbour lives."""
    here.steps = (WARN_AT_ONCE, kill("5s"))
    here.claims.claim("small", "4Gi")
    here.claims.claim("large", "8Gi")
    made, small = here.pod("small", "small", used=5 * GIB)
    _, large = here.pod("large", "large", used=7 * GIB)

    def reasons() -> list[str]:
        found = events_of(here.plane, here.pods.namespace)
        assert {each["regarding"]["uid"] for each in found} <= {made["metadata"]["uid"]}
        return [each["reason"] for each in sorted(found, key=lambda each: each["eventTime"])]

    with here.run() as running:
        running.wait(lambda _: reasons() == ["GPUMemoryOverLimit"])
        assert not small.terms
        (warning,) = events_of(here.plane, here.pods.namespace)
        assert "4Gi declared by claim small/gpu" in warning["note"]
        assert "capacity.requests.memory" in warning["note"]
        running.wait(lambda _: not small.is_alive)
        running.wait(lambda _: reasons()[:2] == ["GPUMemoryOverLimit", "GPUMemoryKilled"])
        running.wait_passes(2)
        assert large.is_alive
        assert not large.terms


def test_a_server_that_can_not_share_gives_whole_cards(here: ClaimNode) -> None:
    """Point 42: the same requests on Kubernetes 1.34 lose their amounts without an error; the allocation counts."""
    here.claims.claim("small", "4Gi")
    here.claims.claim("large", "8Gi")
    _, small = here.pod("small", "small", used=5 * GIB)
    here.pod("large", "large")
    with here.run() as running:
        running.wait(lambda d: declared(d, "small") == 40 * GIB - 512 * MIB)
        running.wait_passes(2)
        assert small.is_alive


def test_a_node_without_claims_makes_no_request_for_them(here: ClaimNode) -> None:
    """Neither a list of slices nor any right is needed there, though the policy reads claims."""
    before = len(here.asked("resourceslices")), len(here.asked("resourceclaims"))
    account = here.account(without=(Piece.CLAIMS,))
    with here.running(account.kubeconfig) as running:
        running.wait_passes(3)
        assert gaps(running) == []
    assert (len(here.asked("resourceslices")), len(here.asked("resourceclaims"))) == before


@EITHER
def test_each_claim_of_a_pod_is_got_once(here: ClaimNode) -> None:
    """One GET for each pod and claim, also after a restart; no list of claims, and the slices of this node alone."""
    begun = len(here.asked("resourceclaims")), len(here.asked("resourceslices"))
    here.claims.claim("c", "4Gi")
    here.claims.claim("other", "4Gi")
    here.pod("a", "c", used=GIB)
    here.pod("b", "other")
    kubeconfig = here.account().kubeconfig
    for _ in range(2):
        with here.running(kubeconfig) as running:
            running.wait(lambda d: declared(d, "a") is not None)
            running.wait_passes(3)
    asked = here.asked("resourceclaims")[begun[0] :]
    assert [(each.verb, each.code) for each in asked] == [("get", 200)] * 4
    assert sorted(each.name for each in asked) == ["c", "c", "other", "other"]
    slices = here.asked("resourceslices")[begun[1] :]
    assert {each.verb for each in slices} == {"list", "watch"}
    assert all("fieldSelector=spec.nodeName%3Dn1" in each.uri for each in slices)


@EITHER
def test_nothing_of_other_nodes_is_read(here: ClaimNode) -> None:
    """The right covers all claims of the cluster; the daemon reads those of its node's pods, and lists none."""
    other = here.pods.node("n2")
    here.claims.offer(*(uuid.replace("0000-0", "0002-0") for uuid in (GPU, OTHER)), node=other)
    for name in ("ours", "ours-later", "theirs", "theirs-later"):
        here.claims.claim(name, "4Gi")
    here.claims.pod("theirs", "theirs", node=other)
    here.pod("ours", "ours", used=GIB)
    account = here.account()

    def known(running: Daemon) -> set[str]:
        return {each["pod"] for each in running.status()["accounts"] if each["declared"]}

    with here.running(account.kubeconfig) as running:
        running.wait(lambda d: known(d) == {"ours"})
        here.claims.pod("theirs-later", "theirs-later", node=other)
        here.pod("ours-later", "ours-later", used=GIB)
        running.wait(lambda d: known(d) == {"ours", "ours-later"})
        running.wait_passes(3)
    asked = here.plane.requests(user=account.identity.user)
    of_claims = [each for each in asked if each.resource == "resourceclaims"]
    assert {each.verb for each in of_claims} == {"get"}
    assert sorted(each.name for each in of_claims) == ["ours", "ours-later"]
    lists = [each for each in asked if each.resource in {"resourceslices", "pods"} and each.verb in {"list", "watch"}]
    assert {each.resource for each in lists} == {"resourceslices", "pods"}
    assert all("fieldSelector=spec.nodeName%3Dn1" in each.uri for each in lists)


@EITHER
def test_a_device_on_the_network_frees_no_pod(here: ClaimNode) -> None:
    """Point 43: who may create claims could choose one; the default applies, and slices of no node are read for it."""
    here.default = "1Gi"
    here.claims.attach("disks.example.com")
    here.claims.claim("disk", of="disks.example.com")
    here.claims.claim("card", "4Gi")
    here.pod("other", "card", used=GIB)
    account = here.account()

    def selectors() -> set[str]:
        asked = here.plane.requests(user=account.identity.user)
        return {each.uri.partition("fieldSelector=")[2].partition("&")[0] for each in asked if "slices" in each.uri}

    with here.running(account.kubeconfig) as running:
        running.wait(lambda d: any(each["declared"] for each in d.status()["accounts"]))
        assert selectors() == {"spec.nodeName%3Dn1"}
        _, tenant = here.pod("a", "disk", used=5 * GIB)
        running.wait(lambda _: not tenant.is_alive)
        assert selectors() == {"spec.nodeName%3Dn1", "spec.nodeName%3D"}
        # The status of the cycle that kills follows the kill.
        running.wait(lambda d: not [gap for gap in d.status()["gaps"] if gap["reason"] == "claims"])
    options = ("--policy", here.policy(), "--kubeconfig", account.kubeconfig, "--node", "n1", "--json")
    ended = gpu_watchdog("scan", *options, stub=here.world.stub_file)
    assert ended.returncode == 0, ended.stderr
    assert '"limit_unknown": null' in ended.stdout
    assert '"limit_unknown": "' not in ended.stdout


def test_slices_of_no_node_are_watched_as_long_as_they_are_wanted(here: ClaimNode) -> None:
    """What is not wanted costs no watch, and is no change that would wake the loop."""
    here.claims.attach("disks.example.com")
    stranger = ("disks.example.com", "network", "device-0")
    informer = SliceInformer(Api(here.account().kubeconfig), "n1", Bell())

    def known() -> bool:
        return stranger in informer.read(clock.now())[0]

    informer.want((stranger,))
    informer.start()
    try:
        wait_until(lambda: informer.view.synced is not None)
        for _ in range(2):
            assert not known()
            informer.want(())
            assert not informer.has_changed()
        informer.want((stranger,))
        wait_until(known)
        assert informer.read(clock.now())[0] is informer.read(clock.now())[0]
        informer.want((stranger,))
        assert not informer.has_changed()
        informer.want(())
        assert informer.has_changed()
        assert not known()
        assert not informer.has_changed()
    finally:
        informer.stop()


@WITH_SHARES
def test_many_pods_at_once_are_asked_for_four_at_a_time(here: ClaimNode) -> None:
    """A node that fills at once must not be the API server's problem; all of their claims are known in the end."""
    begun = len(here.asked("resourceclaims"))
    count = 100
    for number in range(count):
        here.claims.claim(f"c{number}", "512Mi")
    made = [here.claims.pod(f"p{number}", f"c{number}") for number in range(count)]
    tenants = [here.start(each) for each in made]
    for tenant in tenants:
        tenant.used = GIB // 4
    here.world.write(pods=False)
    with here.run() as running:
        running.wait(lambda d: sum(each["declared"] == GIB // 2 for each in d.status()["accounts"]) == count)
    asked = here.asked("resourceclaims")[begun:]
    assert len(asked) == count
    starts = sorted(each.received_s for each in asked)
    assert starts[-1] - starts[0] > (count - 1) * 0.09
    assert max(sum(each.received_s <= at < (each.ended_s or math.inf) for each in asked) for at in starts) <= 4


@WITH_SHARES
def test_the_next_pod_of_a_claim_is_on_another_card(here: ClaimNode) -> None:
    """Point 43: the claim and its UID stay, the card does not; each pod has what it was given itself."""
    here.claims.claim("c", "4Gi")
    first, tenant = here.pod("first", "c", used=GIB)
    with here.run() as running:
        running.wait(lambda d: declared(d, "first") == 4 * GIB)
        tenant.process.kill()
        here.use(tenant, 0)
        here.pods.finish(first, exit_code=0)
        wait_until(lambda: "allocation" not in (here.claims.read("c") or {}).get("status", {}))
        here.claims.offer(OTHER)
        _, second = here.pod("second", "c", used=GIB)
        running.wait(lambda d: declared(d, "second", OTHER) == 4 * GIB)
        # On the card that the first pod had it may use nothing.
        here.use(second, 5 * GIB)
        running.wait(lambda _: not second.is_alive)


@WITH_SHARES
def test_a_claim_that_is_deleted_while_in_use_holds(here: ClaimNode) -> None:
    """Its finalizer keeps it for the pod; the limit stays for the pod that has it, also after a restart."""
    here.claims.claim("c", "4Gi")
    _, tenant = here.pod("a", "c", used=GIB)
    kubeconfig = here.account().kubeconfig
    with here.running(kubeconfig) as running:
        running.wait(lambda d: declared(d, "a") == 4 * GIB)
        here.claims.delete("c")
        running.wait_passes(2)
        assert declared(running, "a") == 4 * GIB
    with here.running(kubeconfig) as running:
        running.wait(lambda d: declared(d, "a") == 4 * GIB)
        here.use(tenant, 5 * GIB)
        running.wait(lambda _: not tenant.is_alive)


@WITH_SHARES
def test_a_pod_that_runs_on_a_claim_that_is_nobodys_is_given_nothing(here: ClaimNode) -> None:
    """Point 43: no kubelet starts such a pod, so the claim was made again under its name; that frees nobody."""
    here.claims.claim("c", "4Gi")
    here.pod("a", "c", used=30 * GIB, bound=True)
    with here.run() as running:
        running.wait(lambda d: [each["verdict"] for each in d.status()["accounts"]] == ["undeclared"])
        assert gaps(running) == []


@WITH_SHARES
def test_without_the_right_nothing_is_killed_and_with_it_all_is_well_again(
    here: ClaimNode, control_plane: ControlPlane
) -> None:
    """Point 43: one gap names the right and its remedy; when it is granted again, the limit holds without a restart.

    What was read before it was taken away holds.
    """
    for name in ("before", "after"):
        here.claims.claim(name, "4Gi")
    account = here.account()
    name = account.identity.object_name(Piece.CLAIMS)
    binding = control_plane.get("clusterrolebinding", name)
    again = {key: binding[key] for key in ("apiVersion", "kind", "roleRef", "subjects")}
    with here.running(account.kubeconfig) as running:
        _, known = here.pod("before", "before", used=GIB)
        running.wait(lambda d: declared(d, "before") == 4 * GIB)
        control_plane.kubectl("delete", "clusterrolebinding", name)
        _, tenant = here.pod("after", "after", used=5 * GIB)
        running.wait(lambda d: any("claims of" in line for line in gaps(d)))
        running.wait_passes(3)
        assert tenant.is_alive
        here.use(known, 5 * GIB)
        running.wait(lambda _: not known.is_alive)
        assert tenant.is_alive
        (line,) = [line for line in gaps(running) if "claims of" in line]
        assert "resourceclaims" in line
        assert "gpu-watchdog rights" in line
        control_plane.apply({**again, "metadata": {"name": name}})
        running.wait(lambda _: not tenant.is_alive, seconds=90)


@WITH_SHARES
def test_a_server_without_the_group_is_no_reason_to_kill(here: ClaimNode, api_proxy: ApiProxy) -> None:
    """Point 43: until an upgrade of the API server brings the group; then the limit holds."""
    here.claims.claim("c", "4Gi")
    _, tenant = here.pod("a", "c", used=5 * GIB)
    api_proxy.answer(404, body=b"404 page not found\n", when=lambda seen: "resource.k8s.io" in seen.path)
    with here.running(here.account().through(api_proxy)) as running:
        running.wait(lambda d: any("does not serve that API" in line for line in gaps(d)))
        running.wait_passes(3)
        assert tenant.is_alive
        api_proxy.heal()
        running.wait(lambda _: not tenant.is_alive, seconds=90)


def test_the_group_comes_with_a_restart_of_the_server(here: ClaimNode) -> None:
    """Point 43: the daemon runs while a real API server without the group is replaced by one that has it."""
    here.claims.offer(OTHER)
    here.claims.claim("c", "4Gi")
    # On the card that its claim does not name.
    _, tenant = here.pod("a", "c", used=5 * GIB)
    account = here.account()
    here.plane.kill_apiserver()
    here.plane.start_apiserver(*WITHOUT_THE_GROUP)
    try:
        with here.running(account.kubeconfig) as running:
            running.wait(lambda d: any("does not serve that API" in line for line in gaps(d)))
            running.wait_passes(3)
            assert tenant.is_alive
            options = ("--policy", here.policy(), "--kubeconfig", account.kubeconfig, "--node", "n1")
            found = gpu_watchdog("doctor", *options, stub=here.world.stub_file).stdout
            assert "this API server does not serve that API" in " ".join(found.split())
            here.plane.kill_apiserver()
            here.plane.start_apiserver()
            running.wait(lambda _: not tenant.is_alive)
    finally:
        here.plane.kill_apiserver()
        here.plane.start_apiserver()


@EITHER
def test_scan_reads_them_too(here: ClaimNode) -> None:
    """One look at the node shows what the daemon would go by."""
    here.claims.claim("c", "4Gi")
    here.pod("a", "c", used=GIB)
    options = ("--policy", here.policy(), "--kubeconfig", here.account().kubeconfig, "--node", "n1", "--json")
    ended = gpu_watchdog("scan", *options, stub=here.world.stub_file)
    assert ended.returncode == 0, ended.stderr
    assert '"declared_by": "claim c/gpu"' in ended.stdout
