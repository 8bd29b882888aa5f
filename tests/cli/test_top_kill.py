"""A real kill as the live table shows it: the time running down, the grace, what came of it."""

import re
from pathlib import Path

import pytest

from tests.cli.session import session
from tests.rig import node
from tests.stub import GIB
from tests.world.policies import write_policy
from tests.world.test_kill import run

pytestmark = [pytest.mark.node, pytest.mark.slow]
KILL = 'above = "100%"\nfor = "6s"\ndo = "kill"\nscope = "container"\ngrace = "6s"'


def test_a_kill_from_its_announcement_to_its_end(tmp_path: Path) -> None:
    """Whoever watches sees the kill coming, sees it in progress with the time to SIGKILL, and then that it was done."""
    with node(tmp_path, "cgroup") as world:
        hog, calm = world.pod("hog", ("main", "1Gi")), world.pod("calm", ("main", "8Gi"))
        tenant = world.start(hog, used=GIB // 2, behaviour="stubborn")
        world.start(calm, used=GIB)
        world.write()
        with run(world, write_policy(world.root, KILL)) as running:
            running.wait_passes(1)
            url = f"http://127.0.0.1:{running.port}"
            with session("--url", url, "--interval", "500ms", columns=140, rows=40) as shown:
                shown.see("ns/hog", "ns/calm", "2 within", "enforcing")
                world.use(tenant, 9 * GIB)
                shown.wait(lambda screen: re.search(r"> ns/hog .*over .* kill in \ds", screen.text))
                shown.see("Next: kill container above 100% in ")
                shown.wait(lambda screen: re.search(r"ns/hog .* being killed, SIGKILL in \ds", screen.text))
                shown.wait(lambda screen: re.search(r"kill +in progress +ns/hog \[main\] +9\.0Gi", screen.text))
                shown.wait(lambda screen: re.search(r"kill +done +ns/hog \[main\] +9\.0Gi", screen.text))
                # Its memory is free again; what declares GPU memory stays in the table.
                shown.wait(lambda screen: re.search(r"ns/hog +- +0 .* within", screen.text))
                shown.type("q")
                assert shown.end() == 0
            assert tenant.ended_by == 9
