"""`explain` against a real daemon on the stub node: before, during and after a kill, and with the daemon gone."""

import json
import subprocess
from typing import Any

import pytest

from tests.rig import Daemon, Node, gpu_watchdog
from tests.stub import GIB
from tests.world.policies import write_policy
from tests.world.test_kill import ended, run

pytestmark = [pytest.mark.node, pytest.mark.slow]

CONTACT = '[events]\ncontact = "gpu-team@example.org"\n'


def kill(for_: str, grace: str) -> str:
    """A step that kills a container above 100%."""
    return f'above = "100%"\nfor = "{for_}"\ndo = "kill"\nscope = "container"\ngrace = "{grace}"'


def ask(world: Node, running: Daemon, pod: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Explain a pod by this daemon and its journal."""
    where = ("--url", f"http://127.0.0.1:{running.port}", "--journal", str(world.journal))
    return gpu_watchdog("explain", pod, *where, *more, stub=world.stub_file)


def text(done: subprocess.CompletedProcess[str]) -> str:
    """What it printed, as one line."""
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return " ".join(done.stdout.split())


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What it printed with --json."""
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_hog_from_its_time_to_its_end(any_world: Node) -> None:
    """In the `for` time, in the grace period, after the kill, and with the daemon stopped, each is explained."""
    hog = any_world.pod("hog", ("main", "1Gi"))
    tenant = any_world.start(hog, used=9 * GIB, behaviour="stubborn")
    any_world.write()
    policy = write_policy(any_world.root, kill("10m", "10m"), more="\n" + CONTACT)
    with run(any_world, policy) as running:
        running.wait(lambda d: d.status()["plan"])
        before = text(ask(any_world, running, "ns/hog"))
        assert all(each in before for each in ("ns/hog", "n1", "9Gi", "1.3Gi", "veriff.com/gpu-memory", '"shared"'))
        assert "gpu-team@example.org" in before
        coming = document(ask(any_world, running, "ns/hog", "--json"))
        assert [(each["do"], each["withheld_by"]) for each in coming["plan"]] == [("kill", None)]
        assert coming["history"] == []
        write_policy(any_world.root, kill("0s", "10m"), more="\n" + CONTACT)
        running.wait(lambda _: tenant.terms)
        running.wait_passes(1)
        during = text(ask(any_world, running, "ns/hog"))
        assert all(each in during for each in ("in progress", "SIGTERM", "SIGKILL"))
        assert "held back" not in during
        tenant.process.kill()
        running.wait(ended)
        running.wait_passes(1)
        after = document(ask(any_world, running, "ns/hog", "--json"))
        assert after["source"] == "daemon"
        assert [each["event"] for each in after["history"]] == ["explained"]
        url = f"http://127.0.0.1:{running.port}"
        assert running.stop()[0] == 0
    offline = ("explain", "ns/hog", "--url", url, "--journal", any_world.journal)
    told = text(gpu_watchdog(*offline, stub=any_world.stub_file))
    assert told.index("was killed") < told.index("does not answer")
    assert all(each in told for each in ("9Gi", "1.3Gi", "SIGTERM"))
    gone = document(gpu_watchdog(*offline, "--json", stub=any_world.stub_file))
    assert gone["source"] == "journal"
    assert [each["used"] for each in gone["accounts"]] == [9 * GIB]
    assert [each["event"] for each in gone["history"]] == ["explained"]
