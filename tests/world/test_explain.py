"""`explain` against a real daemon on the stub node: before, during and after a kill, and with the daemon gone."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.rig import Daemon, Node, gpu_watchdog
from tests.stub import GIB, MIB
from tests.world.policies import write_policy
from tests.world.test_kill import ended, run

pytestmark = [pytest.mark.node, pytest.mark.slow]

CONTACT = '[events]\ncontact = "gpu-team@example.org"\n'
PROTECT = '\n[protect]\npods = ["spared"]\n'


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


def test_a_hog_from_its_time_to_its_end(world_v1: Node) -> None:
    """In the `for` time, in the grace period, after the kill, and with the daemon stopped, each is explained."""
    hog = world_v1.pod("hog", ("main", "1Gi"))
    tenant = world_v1.start(hog, used=9 * GIB, behaviour="stubborn")
    world_v1.write()
    policy = write_policy(world_v1.root, kill("3s", "3s"), more="\n" + CONTACT)
    with run(world_v1, policy) as running:
        running.wait(lambda d: d.status()["plan"])
        before = text(ask(world_v1, running, "ns/hog"))
        assert before.startswith("Pod ns/hog on node n1, 20")
        assert "Pod ns/hog uses 9Gi of GPU memory. Its limit is 1.3Gi: 1Gi declared by veriff.com/gpu-memory," in before
        assert "256Mi for 1 CUDA context). That is 7.7Gi over its limit, exceeded since" in before
        assert 'Its rule is "shared". In ' in before
        assert " UTC, if its use stays above the threshold: kill 1 process of container main (SIGTERM" in before
        assert 'Rule "shared": above 100% of the 1.3Gi allowed for 3s.' in before
        assert 'set resources.limits["veriff.com/gpu-memory"] of container main to at least 9Gi. Questions: ' in before
        running.wait(lambda _: tenant.terms)
        running.wait_passes(1)
        during = text(ask(world_v1, running, "ns/hog"))
        assert "A kill of container main is in progress: its processes got SIGTERM at " in during
        assert " UTC, and those still running get SIGKILL at " in during
        assert "held back" not in during
        running.wait(ended)
        running.wait_passes(1)
        after = document(ask(world_v1, running, "ns/hog", "--json"))
        assert after["source"] == "daemon"
        assert "Pod ns/hog uses no GPU memory." in after["sentences"]
        assert [each["event"] for each in after["history"]] == ["explained"]
        _check_the_status(running)
        url = f"http://127.0.0.1:{running.port}"
        assert running.stop()[0] == 0
    gone = gpu_watchdog("explain", "ns/hog", "--url", url, "--journal", world_v1.journal, stub=world_v1.stub_file)
    told = text(gone)
    assert f"The daemon does not answer at {url}/api/status: Connection refused; this is from the journal" in told
    assert told.index("It was killed at ") < told.index("The daemon does not answer")
    assert (
        '(container main): it used 9Gi of GPU memory, its limit was 1.3Gi, and rule "shared" kills above 100%' in told
    )
    assert "Its processes got SIGTERM at" in told
    assert "UTC and SIGKILL at" in told
    assert "last mentioned it, pod ns/hog used 9Gi of GPU memory; its limit was 1.3Gi" in told
    assert (
        "The watchdog killed 1 process of container main (pod ns/hog), because the pod exceeded its GPU memory limit"
        in told
    )


def test_what_is_said_of_a_kill_is_what_was_sent(world_v1: Node) -> None:
    """A program that exits with 0 on SIGTERM: no SIGKILL and no exit code is reported, and the kill comes first."""
    tenant = world_v1.start(world_v1.pod("hog", ("main", "4Gi")), used=6 * GIB, behaviour="saver")
    world_v1.write()
    with run(world_v1, write_policy(world_v1.root, kill("0s", "20s"))) as running:
        running.wait(ended)
        running.wait_passes(1)
        assert tenant.process.poll() == 0
        url = ("--url", f"http://127.0.0.1:{running.port}")
        begun, outcome = (running.events(name)[0]["message"] for name in ("kill_begun", "kill_ended"))
        past = gpu_watchdog("history", "--journal", world_v1.journal, "--pod", "ns/hog", stub=world_v1.stub_file).stdout
        near = text(ask(world_v1, running, "ns/hog"))
        far = gpu_watchdog("explain", "ns/hog", *url, "--journal", "/nowhere/j.db", stub=world_v1.stub_file).stdout
    far = " ".join(far.split())
    for told in (begun, outcome, past, near, far):
        assert "SIGTERM" in told
        assert "SIGKILL" not in told, told
        assert "uses 6Gi" not in told, told
    assert "Completed if its main process exited with 0" in near
    assert "of container main to at least 5.75Gi (the allowance is added to this)" in near
    for told in (near, far):
        assert "UTC It was killed at " in told, told
        assert told.index("It was killed at ") < told.index("Pod ns/hog uses no GPU memory.")
        assert (
            'it used 6Gi of GPU memory, its limit was 4.3Gi, and rule "shared" kills above 100%, immediately.' in told
        )


def _check_the_status(running: Daemon) -> None:
    """The additions to /api/status are there, of a real pass too."""
    status = running.status()
    assert (status["contact"], status["pods_stale"]) == ("gpu-team@example.org", False)
    (account,) = status["accounts"]
    assert account["owner"] == {"kind": "Pod", "name": "hog"}
    assert [(step["above"], step["state"]) for step in account["ladder"]] == [("100%", "below")]


def test_whoever_is_spared_is_explained_too(world_v1: Node) -> None:
    """A pod that is protected, one that is within, and one that nobody knows."""
    spared = world_v1.pod("spared", ("main", "1Gi"))
    calm = world_v1.pod("calm", ("main", "1Gi"))
    tenant = world_v1.start(spared, used=9 * GIB)
    world_v1.start(calm, used=256 * MIB)
    world_v1.write()
    with run(world_v1, write_policy(world_v1.root, kill("0s", "2s"), more=PROTECT)) as running:
        running.wait(lambda d: d.metric("withheld_total", brake="protected") == 1)
        why = text(ask(world_v1, running, "ns/spared"))
        assert "This pod is never killed or evicted, whatever it uses: the policy protects pods of this name." in why
        assert "Held back, because the pod is protected: the policy protects pods of this name." in why
        assert "No action taken: killing 1 process of container main is due but held back, because the pod is" in why
        assert "That is within its limit." in text(ask(world_v1, running, "ns/calm"))
        unknown = ask(world_v1, running, "other/spared")
        assert (unknown.returncode, unknown.stdout) == (1, "")
        assert "nothing is known about pod other/spared" in unknown.stderr
        assert "did you mean ns/spared?" in unknown.stderr
        assert (tenant.is_alive, tenant.terms) == (True, [])


def test_a_kill_that_the_stop_file_ends_half_way_is_explained(world_v1: Node) -> None:
    """Who got SIGTERM and was then spared reads so; the remedy names the file."""
    tenant = world_v1.start(world_v1.pod("hog", ("main", "1Gi")), used=9 * GIB, behaviour="stubborn")
    world_v1.write()
    with run(world_v1, write_policy(world_v1.root, kill("0s", "30s"))) as running:
        running.wait(lambda _: tenant.terms)
        (world_v1.journal.parent / "stop").touch()
        running.wait(lambda d: d.metric("actions_total", action="kill", result="interrupted") == 1)
        running.wait_passes(1)
        told = text(ask(world_v1, running, "ns/hog"))
        assert "Result: it was interrupted. Its processes got SIGTERM at " in told
        assert "and no SIGKILL was sent: enforcement was turned off meanwhile." in told
        assert "so no SIGKILL was sent. To prevent this, use less" in told, "the record for the owner is there too"
        assert "although the policy says enforce: the file `stop` beside the journal turns enforcement off" in told
        running.wait(
            lambda d: (
                "No action is taken: enforcement is suspended (a stop file exists on the node)."
                in text(ask(world_v1, d, "ns/hog"))
            )
        )
        assert tenant.is_alive


def test_the_daemon_of_this_machine_is_found_by_its_address(world_v1: Node, tmp_path: Path) -> None:
    """With `--listen`, as `run` has it, no URL is needed; without a journal the answer is the daemon's alone."""
    world_v1.start(world_v1.pod("calm", ("main", "1Gi")), used=256 * MIB)
    world_v1.write()
    with run(world_v1, write_policy(world_v1.root, kill("0s", "2s"), mode="observe")) as running:
        listen = f"127.0.0.1:{running.port}"
        done = gpu_watchdog("explain", "ns/calm", "--listen", listen, stub=world_v1.stub_file)
        assert done.returncode == 0, done.stderr
        assert "The watchdog only observes on this node" in " ".join(done.stdout.split())
        asked = document(
            gpu_watchdog(
                *("explain", "ns/calm", "--json", "--url", f"http://{listen}"),
                *("--journal", tmp_path / "none.db"),
                stub=world_v1.stub_file,
            )
        )
        assert asked["history"] == []
