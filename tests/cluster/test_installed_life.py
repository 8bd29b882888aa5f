"""The life of an installation: upgraded, rolled back, doubled by mistake, uninstalled."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.api import Object
from tests.cluster.installed import LABEL, Installed
from tests.cluster.installed_fixtures import installed
from tests.cluster.installed_policy import CAPACITY, KILL, policy_text
from tests.cluster.node import Cluster
from tests.cluster.real_pods import MEMORY, container, is_running, pod, wait_until
from tests.cluster.test_installed import status_of
from tests.cluster.workloads import DECLARED
from tests.stub import GIB

pytestmark = [pytest.mark.node, pytest.mark.slow]

BRAKES: Final = '[brakes]\nowner = "2 per 1h"\n'
POLICY: Final = policy_text("enforce", {"tenants": KILL}, more=CAPACITY + BRAKES)
HOG: Final = pod("hog", container("main", "term=ignore", f"gpu={2 * GIB}", memory=DECLARED))


@pytest.fixture(scope="module")
def watchdog(cluster: Cluster, watchdog_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Installed, enforcing, and two actions on one owner are all that it may do in an hour."""
    with installed(cluster, tmp_path_factory.mktemp("installed")) as made:
        made.install(POLICY)
        made.wait_enforcing()
        wait_until(lambda: made.capacity(MEMORY, "allocatable") > 0, "the node offers GPU memory")
        yield made


@pytest.fixture(scope="module")
def tenants(watchdog: Installed) -> Iterator[str]:
    """A namespace in which whoever is over is killed."""
    name = watchdog.cluster.new_namespace("tenants")
    yield name
    watchdog.cluster.drop_namespace(name)


@contextmanager
def daemons(cluster: Cluster) -> Iterator[list[int]]:
    """Inside, the most daemons that ran on the node at once are counted, by a look every 20 ms."""
    most, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(0.02):
            most[0] = max(most[0], sum(is_daemon(pid) for pid in cluster.cgroups.members()))

    thread = threading.Thread(target=look, name="daemons")
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()


def is_daemon(pid: int) -> bool:
    """Whether a process is `gpu-watchdog run`, and not its child that loads the policy."""
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        return _runs(pid) and not _runs(parent)
    except OSError:
        return False


def _runs(pid: int) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return any(word.endswith(b"/gpu-watchdog") for word in words) and b"run" in words


def held_back(of: Installed, room: str) -> bool:
    """Whether the owner's brake holds back what is due there."""
    plan = of.status()["plan"]
    return [(each["pod"], each["withheld_by"]) for each in plan if each["namespace"] == room] == [("hog", "owner")]


def test_two_daemons_on_a_node_never_both_act(watchdog: Installed, tenants: str) -> None:
    """A second pod with the same journal, made by hand: it says that it has not the lock, and does nothing."""
    spec = watchdog.cluster.control_plane.get("daemonset", "gpu-watchdog", watchdog.namespace)["spec"]["template"]
    second = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "second"}, "spec": spec["spec"]}
    pods = watchdog.cluster.pods
    running = pods.run(second, watchdog.namespace)
    address = running["status"]["podIP"]
    wait_until(lambda: "holds the lock" in ready(watchdog, address)[1], lambda: f"{ready(watchdog, address)}")
    assert ready(watchdog, address)[0] == 503
    pods.create(HOG, tenants)
    wait_until(lambda: held_back(watchdog, tenants), "two kills, and then the brake")
    assert watchdog.metric("actions_total", action="kill", rule="tenants", result="done") == 2
    done = [value for (name, _), value in watchdog.at(address).metrics().items() if name == "actions_total"]
    assert done
    assert not any(done)
    assert watchdog.at(address).metric("actions_total", action="kill", rule="tenants", result="done") == 0
    found = pods.wait("hog", is_running, tenants)
    assert status_of(found, "main")["restartCount"] == 2
    pods.delete("second", watchdog.namespace)


def ready(of: Installed, address: str) -> tuple[int, str]:
    """What /readyz says there; 0 while nobody listens."""
    try:
        return of.at(address).get("/readyz")
    except OSError as error:
        return 0, str(error)


def test_upgrade_and_rollback_keep_the_brakes(watchdog: Installed, tenants: str) -> None:
    """Another image and back again: another pod each time, never two, and what the owner has had is not forgotten."""
    pods = watchdog.cluster.pods
    if pods.get("hog", tenants) is None:
        pods.run(HOG, tenants)
    wait_until(lambda: held_back(watchdog, tenants), "two kills, and then the brake")
    before = pods.wait("hog", is_running, tenants)
    first = watchdog.pod()
    with daemons(watchdog.cluster) as most:
        began = time.monotonic()
        watchdog.install(POLICY, "--set-string", "image.tag=2")
        second = watchdog.pod()
        wait_until(lambda: held_back(watchdog, tenants), "the brake holds after the upgrade")
        print(f"\nupgraded in {time.monotonic() - began:.1f} s")
        watchdog.rollback()
        third = watchdog.pod()
        wait_until(lambda: held_back(watchdog, tenants), "the brake holds after the rollback")
    assert [image_of(each) for each in (first, second, third)] == ["1", "2", "1"]
    assert len({each["metadata"]["uid"] for each in (first, second, third)}) == 3
    assert most == [1]
    time.sleep(3)
    assert pods.containers(pods.wait("hog", is_running, tenants)) == pods.containers(before)
    assert watchdog.metric("actions_total", action="kill", rule="tenants", result="done") == 0


def image_of(of: Object) -> str:
    """The tag of the image of a pod's container."""
    return str(of["spec"]["containers"][0]["image"]).rpartition(":")[2]


def test_uninstall_leaves_nothing_behind(watchdog: Installed, tenants: str) -> None:
    """No object of the release in the cluster, no capacity on the node, no process; tenants' pods run on."""
    pods = watchdog.cluster.pods
    pods.run(pod("stays", container("main", memory=DECLARED)), tenants)
    before = pods.containers(pods.wait("stays", is_running, tenants))
    began = time.monotonic()
    watchdog.uninstall()
    print(f"\nuninstalled in {time.monotonic() - began:.1f} s")
    assert MEMORY not in watchdog.cluster.node()["status"]["capacity"]
    wait_until(lambda: MEMORY not in watchdog.cluster.node()["status"]["allocatable"], "allocatable follows")
    wait_until(lambda: not left(watchdog.cluster), lambda: f"objects are gone: {left(watchdog.cluster)}")
    wait_until(lambda: not any(map(is_daemon, watchdog.cluster.cgroups.members())), "the daemon has ended")
    assert watchdog.helm("list", "--all", "--namespace", watchdog.namespace, "--short").split() == []
    assert pods.containers(pods.wait("stays", is_running, tenants)) == before
    # The journal is the operator's: docs/operations.md says how to remove it.
    assert (watchdog.state / "journal.db").is_file()


def left(cluster: Cluster) -> list[str]:
    """Whatever the cluster has with the labels of the chart."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "--output=name").split()
    label = f"{LABEL.partition('=')[0]} in (gpu-memory-watchdog, gpu-memory-watchdog-withdraw)"
    return cluster.kubectl("get", ",".join(kinds), "--all-namespaces", "-l", label, "-o", "name").split()
