"""The list of pods that a real kubelet serves at /pods, as the file given by `--pods`."""

import http.client
import json
import ssl
from pathlib import Path

import pytest

from tests.rig.cluster.api import Object
from tests.rig.cluster.kubelet import static_pods
from tests.rig.cluster.netns import NODE_ADDRESS
from tests.rig.cluster.node import NODE, Cluster
from tests.rig.cluster.real_pods import container, is_running, pod, wait_until
from tests.worlds import snapshot, use
from watchdog.clock import now
from watchdog.core.assessment import Attribution
from watchdog.core.attribute import attribute
from watchdog.core.model import Pod
from watchdog.kube.files import PodFile
from watchdog.node.process_table import ProcessTable
from watchdog.node.procfs import Procfs

pytestmark = [pytest.mark.node, pytest.mark.slow]


def _kubelets_list(cluster: Cluster) -> bytes:
    """What the kubelet answers at /pods; its certificate is one that it has made for itself."""
    plain = ssl.create_default_context()
    plain.check_hostname, plain.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(NODE_ADDRESS, 10250)
    connection.sock = plain.wrap_socket(cluster.network.connect(10250))
    connection.request("GET", "/pods")
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 200, text
    connection.close()
    return text


def _static(cluster: Cluster, namespace: str) -> Path:
    made = pod("static", container(), grace_s=1)
    made["metadata"]["namespace"] = namespace
    manifest = static_pods(cluster.folder) / "listed.json"
    manifest.write_text(json.dumps(made), encoding="utf-8")
    return manifest


def _attributed(pids: list[int], pods: tuple[Pod, ...]) -> Attribution:
    table = ProcessTable(Procfs())
    processes, _ = table.update(pids)
    table.close()
    return attribute(snapshot([use(pid, 1) for pid in pids], processes.values()), pods)


def test_the_kubelets_own_list_of_pods(cluster: Cluster, room: str, tmp_path: Path) -> None:
    """Point 35: pods and containers are read as from the API, and a static pod is static, though without a mirror."""
    manifest = _static(cluster, room)
    try:
        mirror: Object = cluster.pods.wait(f"static-{NODE}", is_running, room)
        ordinary: Object = cluster.pods.run(pod("ordinary", container()), room)
        file = tmp_path / "pods.json"

        def listed() -> dict[str, Pod]:
            file.write_bytes(_kubelets_list(cluster))
            read = PodFile(file, NODE).read(now())
            assert (read.gaps, read.synced is None) == ((), False)
            return {each.name: each for each in read.pods if each.namespace == room}

        def has_ids() -> bool:
            return all(each.ids for found in listed().values() for each in found.containers)

        wait_until(lambda: len(listed()) == 2 and has_ids(), "the kubelet lists both pods with their containers")
        found = listed()
        assert {name: each.static for name, each in found.items()} == {"ordinary": False, f"static-{NODE}": True}
        assert found["ordinary"].uid == ordinary["metadata"]["uid"]
        assert found[f"static-{NODE}"].uid == mirror["metadata"]["annotations"]["kubernetes.io/config.hash"]
        ids = [(each.uid, of) for each in found.values() for main in each.containers for of in main.ids]
        pids = [cluster.pods.pids(*each)[0] for each in ids]
        got = _attributed(pids, tuple(found.values()))
        assert {(each.uid, each.container) for each in got.attributed} == {
            (each.uid, "main") for each in found.values()
        }
    finally:
        manifest.unlink()
        wait_until(lambda: cluster.pods.get(f"static-{NODE}", room) is None, "the static pod has gone")
