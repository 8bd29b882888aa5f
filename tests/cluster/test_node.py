"""The real node: a pod's processes as seen from outside, and what the kubelet and the controllers make of them."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.cluster.api import Object
from tests.cluster.node import NODE, Cluster
from tests.cluster.processes import ServerError
from tests.cluster.real_pods import MEMORY, container, is_running, pod, wait_until
from tests.node.support import REPOSITORY, mounts, need_root
from watchdog.core.model import PlaceKind
from watchdog.node.cgroup import parse_cgroup

pytestmark = [pytest.mark.node, pytest.mark.slow]


def test_the_cgroup_of_a_pod_names_it(cluster: Cluster, room: str) -> None:
    """What the kubelet and runc write into /proc/PID/cgroup is read as that pod's UID and that container's ID."""
    made = cluster.pods.run(pod("two", container("first", "children=1"), container("second")), room)
    containers = cluster.pods.containers(made)
    assert [(each.name, len(each.pids)) for each in containers] == [("first", 2), ("second", 1)]
    for each in containers:
        for pid in each.pids:
            place = parse_cgroup(Path(f"/proc/{pid}/cgroup").read_bytes())
            assert (place.kind, place.pod, place.container) == (PlaceKind.POD, made["metadata"]["uid"], each.id)


def test_a_killed_process_is_exit_code_137_and_a_restart(cluster: Cluster, room: str) -> None:
    """SIGKILL from the host is what the documentation says it is: 137, reason Error, a new container ID."""
    made = cluster.pods.run(pod("victim"), room)
    (before,) = cluster.pods.containers(made)
    os.kill(before.pids[0], signal.SIGKILL)
    again = cluster.pods.wait("victim", lambda p: is_running(p) and _status(p)["restartCount"] == 1, room)
    ended = _status(again)["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended.get("signal")) == (137, "Error", None)
    (after,) = cluster.pods.containers(again)
    assert after.id != before.id
    assert again["metadata"]["uid"] == made["metadata"]["uid"]


def test_the_kubelet_ends_an_evicted_pod_with_the_grace_given(cluster: Cluster, room: str) -> None:
    """An eviction through the API ends a real process: SIGTERM, the grace of the request, SIGKILL; the pod is gone."""
    made = cluster.pods.run(pod("stubborn", container("main", "term=ignore"), grace_s=30), room)
    (victim,) = cluster.pods.containers(made)
    began = time.monotonic()
    answer = _evict(cluster, made, grace_s=2)
    assert answer == 201
    seen = cluster.pods.wait("stubborn", lambda p: "deletionTimestamp" in p["metadata"], room)
    assert seen["metadata"]["deletionGracePeriodSeconds"] == 2
    assert ("DisruptionTarget", "True", "EvictionByEvictionAPI") in _conditions(seen)
    wait_until(lambda: not Path(f"/proc/{victim.pids[0]}").exists(), "the process has ended", pause_s=0.01)
    took_s = time.monotonic() - began
    cluster.pods.wait_gone(made["metadata"]["uid"], "stubborn", room)
    assert 2 <= took_s < 25  # not the 30 s of the pod


def test_an_eviction_with_another_uid_hits_nobody(cluster: Cluster, room: str) -> None:
    """The precondition of the UID holds on a real node: 409, and the pod runs on."""
    made = cluster.pods.run(pod("bystander"), room)
    wrong = {**made, "metadata": {**made["metadata"], "uid": "00000000-0000-0000-0000-000000000000"}}
    assert _evict(cluster, wrong, grace_s=1) == 409
    found = cluster.pods.get("bystander", room)
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]


def test_an_advertised_amount_is_scheduled_and_no_more_than_it(cluster: Cluster, room: str) -> None:
    """A patch of /status/capacity lets the scheduler place a pod that declares, and keeps the one that is too much."""
    cluster.set_capacity(MEMORY, "200Mi")
    try:
        cluster.pods.run(pod("fits", container("main", memory="104Mi")), room)
        cluster.pods.create(pod("too-much", container("main", memory="104Mi")), room)
        pending = cluster.pods.wait("too-much", _conditions, room)
        assert pending["status"]["phase"] == "Pending"
        (condition,) = [each for each in pending["status"]["conditions"] if each["type"] == "PodScheduled"]
        assert condition["reason"] == "Unschedulable"
        assert f"Insufficient {MEMORY}" in condition["message"]
    finally:
        cluster.set_capacity(MEMORY, None)


def test_what_the_node_tells_outlives_the_kubelet_but_not_the_node_object(cluster: Cluster, room: str) -> None:
    """Pods run through a kubelet's restart, and the amount stays; a node that was deleted comes back without it."""
    cluster.set_capacity(MEMORY, "200Mi")
    (before,) = cluster.pods.containers(cluster.pods.run(pod("stays"), room))
    cluster.restart_kubelet(hard=True)
    assert cluster.node()["status"]["capacity"][MEMORY] == "200Mi"
    uid = cluster.node()["metadata"]["uid"]
    cluster.control_plane.api.ask("DELETE", f"/api/v1/nodes/{NODE}")
    cluster.restart_kubelet()
    assert cluster.node()["metadata"]["uid"] != uid
    assert MEMORY not in cluster.node()["status"]["capacity"]
    still = cluster.pods.wait("stays", is_running, room)
    assert cluster.pods.containers(still) == [before]
    cluster.pods.run(pod("new"), room)


class StoppedError(Exception):
    """What a test of this file raises itself."""


def test_nothing_is_left_of_a_cluster_that_fails_halfway(node_programs: Path, tmp_path: Path) -> None:
    """Where the kubelet does not start, all that ran before it goes again, and the failure is told."""
    before = _machine(tmp_path)
    folder = tmp_path / "programs"
    folder.mkdir()
    for each in node_programs.iterdir():
        (folder / each.name).symlink_to("/bin/false" if each.name == "kubelet" else each)
    made = Cluster(tmp_path / "cluster", programs=folder)
    with pytest.raises(ServerError, match="kubelet has ended"):
        made.__enter__()
    _must_be_gone(made, before)


def test_nothing_is_left_of_a_cluster_that_had_pods(node_programs: Path, tmp_path: Path) -> None:
    """A failure inside ends pods that ignore SIGTERM, their shims, mounts and cgroups, and no setting has changed."""
    before = _machine(tmp_path)
    made = Cluster(tmp_path / "cluster", programs=node_programs)
    pids: set[int] = set()
    with contextlib.suppress(StoppedError), made:
        made.pods.run(pod("left", container("main", "term=ignore", "children=3"), hostNetwork=True))
        pids = {*made.namespaces.members(), *made.cgroups.members()}
        raise StoppedError
    # The holder, its `cat`, six servers and a shim; the sandbox, PID 1 and three children.
    assert len(pids) >= 14
    # Orphans are reaped by the machine's own init, in its time.
    wait_until(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()], "all processes have ended")
    _must_be_gone(made, before)


_KILLED = """
    import os, signal, subprocess
    from pathlib import Path
    from tests.cluster.netns import Namespaces
    from tests.cluster.node_cgroups import CgroupRoot
    namespaces = Namespaces()
    cgroups = CgroupRoot(namespaces.name)
    quiet = {"start_new_session": True, "stdout": subprocess.DEVNULL}
    inside = subprocess.Popen([*namespaces.machine, "sleep", "60"], **quiet)
    below = subprocess.Popen(["sleep", "60"], **quiet)
    for folder in Path("/sys/fs/cgroup").glob(f"*/{cgroups.name}"):
        (folder / "cgroup.procs").write_text(str(below.pid))
    print(namespaces.name, namespaces.pid, inside.pid, below.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_of_tests_that_were_killed() -> None:
    """Where nobody can close anything any more, the namespaces' own process ends what is inside and in the cgroups."""
    need_root()
    command = [sys.executable, "-c", textwrap.dedent(_KILLED)]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, timeout=180, check=False)
    name, *pids = done.stdout.split()
    assert len(pids) == 3

    def is_gone() -> bool:
        return not (any(Path(f"/proc/{pid}").exists() for pid in pids) or [*Path("/sys/fs/cgroup").glob(f"*/{name}")])

    wait_until(is_gone, "the processes and the cgroups are gone")


def _must_be_gone(made: Cluster, before: dict[str, str]) -> None:
    assert made.namespaces.members() == []
    assert list(Path("/sys/fs/cgroup").glob(f"*/{made.namespaces.name}")) == []
    assert list(Path("/sys/fs/cgroup").glob(made.namespaces.name)) == []
    assert _machine(made.folder.parent) == before


def _machine(folder: Path) -> dict[str, str]:
    """What a node could change of this machine."""
    links = subprocess.run(["ip", "-brief", "address"], capture_output=True, text=True, check=True).stdout
    read = ("/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/panic_on_oops")
    folders = ("/run", "/run/netns", "/run/containerd", "/var/lib/kubelet", "/var/lib/containerd", "/var/log/pods")
    return {
        "mounts": "\n".join(mounts(folder)),
        "links": "".join(sorted(line.split()[0] for line in links.splitlines())),
        **{path: Path(path).read_text(encoding="utf-8") for path in read},
        **{path: " ".join(sorted(map(str, Path(path).glob("*")))) for path in folders},
    }


def _evict(cluster: Cluster, of: Object, *, grace_s: int) -> int:
    meta = {key: of["metadata"][key] for key in ("name", "namespace")}
    options = {"preconditions": {"uid": of["metadata"]["uid"]}, "gracePeriodSeconds": grace_s}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
    return cluster.control_plane.api.call("POST", path, body).status


def _status(of: Object) -> Object:
    found: Object = of["status"]["containerStatuses"][0]
    return found


def _conditions(of: Object) -> list[tuple[str, str, str]]:
    found = of["status"].get("conditions", ())
    return [(each["type"], each["status"], each.get("reason", "")) for each in found]
