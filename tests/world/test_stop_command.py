"""`stop` and `resume` beside a real daemon: no action is taken from then on, and the daemon confirms it."""

import html
import subprocess

import pytest

from tests.rig import Daemon, Node, gpu_watchdog
from tests.rig.record import actions
from tests.stub import GIB
from tests.world.policies import KILL_AT_ONCE, kill, write_policy
from tests.world.test_kill import ended, run

pytestmark = [pytest.mark.node, pytest.mark.slow]


def call(world: Node, running: Daemon, name: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run `stop` or `resume` for the journal of this node, and let it ask this daemon."""
    where = ("--journal", world.journal, "--listen", f"127.0.0.1:{running.port}")
    return gpu_watchdog(name, *where, *more, stub=world.stub_file)


def test_stop_ends_a_grace_period_and_after_resume_the_ladder_runs_again(any_world: Node) -> None:
    """Points 26 and 33: who has got SIGTERM lives; the daemon has seen it; after `resume` the ladder runs again."""
    tenant = any_world.single("hog", used=9 * GIB, behaviour="stubborn")
    with run(any_world, write_policy(any_world.root, kill(grace="8s"))) as running:
        running.wait(lambda _: tenant.terms)
        done = call(any_world, running, "stop", "--why", "a test")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("Stopped: ")
        assert f"n1 is stopped. A watchdog holds the lock in {any_world.journal.parent}" in done.stdout
        running.wait(lambda d: ended(d, "interrupted"))
        assert running.metric("enforcement_suspended", reason="stop_file") == 1
        assert "not enforcing: stop_file" in running.get("/readyz")[1]
        running.wait(lambda d: d.status()["stopped_why"] == "a test")
        url = f"http://127.0.0.1:{running.port}"
        assert '"a test"' in html.unescape(running.get("/")[1])
        for shown in (("top", "--once", "--url", url), ("explain", "ns/hog", "--url", url)):
            assert '"a test"' in " ".join(gpu_watchdog(*shown, stub=any_world.stub_file).stdout.split()), shown
        (reported,) = running.events("suspended")
        assert '"a test"' in reported["message"]
        running.wait_passes(5)
        assert (tenant.is_alive, len(tenant.terms)) == (True, 1)
        assert "already existed" in call(any_world, running, "stop").stdout
        done = call(any_world, running, "resume")
        assert (done.returncode, done.stderr) == (0, "")
        assert all(each in done.stdout for each in ("a test", "n1 enforces"))
        running.wait(lambda _: not tenant.is_alive)
    first, second = actions(any_world.journal)
    assert first.began_s < second.began_s
    assert len(tenant.terms) == 2


def test_it_is_shown_at_once_however_long_the_interval_is(any_world: Node) -> None:
    """With a cycle every five minutes the switch brings one forward, so that the operator sees that it is in effect."""
    any_world.write()
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE, interval="5m")) as running:
        running.wait(lambda d: d.metric("enforcing") == 1)
        assert "n1 is stopped" in call(any_world, running, "stop").stdout
        assert "not enforcing: stop_file" in running.get("/readyz")[1]
        assert "n1 enforces" in call(any_world, running, "resume").stdout


def test_the_reason_on_the_node_is_shown_like_that_of_the_command(any_world: Node) -> None:
    """An operator who stops nodes by their annotation can say why; what others wrote there shows no trick."""
    any_world.write()
    mode, reason = "gpu-memory-watchdog/mode", "gpu-memory-watchdog/reason"
    any_world.mark(annotations={mode: "observe", reason: "driver\n\x1b[31mupgrade" + "!" * 5000})
    follows = ("--node-object", any_world.node_file)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE), more=follows) as running:
        running.wait(lambda d: d.status()["stopped_why"])
        why = running.status()["stopped_why"]
        assert why.startswith("driver \\x1b[31mupgrade!!")
        assert len(why) <= 1000
        any_world.mark(annotations={mode: "observe", reason: "driver upgrade"})
        running.wait(lambda d: d.status()["stopped_why"] == "driver upgrade")
        assert '"driver upgrade"' in html.unescape(running.get("/")[1])
        any_world.mark(annotations={mode: "observe"})
        running.wait(lambda d: d.status()["stopped_why"] is None)
        assert "--show-managed-fields" in running.get("/")[1]
