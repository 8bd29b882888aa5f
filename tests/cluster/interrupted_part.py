"""What test_interrupted runs in a child and interrupts: whatever tests start, at once. Not collected by itself."""

import os
import time
from pathlib import Path

import pytest

from tests.browser.browsing import chromium
from tests.cluster.node import Cluster
from tests.cluster.real_pods import container, pod
from tests.monitoring.prometheus import configuration
from tests.monitoring.served import Served
from tests.rig import node
from tests.rig.command import daemon
from tests.world.policies import KILL_AT_ONCE, write_policy

pytestmark = [pytest.mark.node, pytest.mark.slow]


def test_until_interrupted(cluster: Cluster, room: str, tmp_path: Path) -> None:
    """A pod that ignores SIGTERM, a daemon with a tenant in cgroups, a browser and a Prometheus; then it waits."""
    cluster.pods.run(pod("left", container("main", "term=ignore", "children=3"), hostNetwork=True), room)
    with (
        node(tmp_path) as world,
        Served("prometheus", tmp_path / "prometheus", configuration(), f"--storage.tsdb.path={tmp_path / 'data'}"),
        chromium() as browser,
    ):
        world.start(world.pod("hog", ("main", "1Gi")), used=0, behaviour="stubborn")
        world.write()
        given = ("--policy", write_policy(tmp_path, KILL_AT_ONCE, mode="observe"), "--pods", world.pods_file)
        with daemon(tmp_path, world.stub_file, *given, "--journal", world.journal):
            browser.new_page().goto("about:blank")
            Path(os.environ["INTERRUPTED_READY"]).write_text(cluster.namespaces.name, encoding="ascii")
            time.sleep(600)
    pytest.fail("nobody has interrupted it")
