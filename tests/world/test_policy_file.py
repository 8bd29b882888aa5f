"""`run` while its policy file is being written: no action by half a policy, nor while it may be half of one."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import pytest

from tests.node.support import ENDS_WITH_US
from tests.rig import Daemon, Node, Tenant
from tests.rig.record import actions, boottime_s
from tests.stub import GIB, environment
from tests.world.policies import kill, write_policy
from tests.world.test_kill import ended, run

pytestmark = [pytest.mark.node, pytest.mark.slow]

REST: Final = '\n[protect]\nnamespaces = ["spared"]\n\n[brakes]\nowner = "3 per 10m"\n'
SETTLED_S: Final = 3.2


def texts(world: Node, *, grace: str = "0s") -> tuple[Path, str, str]:
    """A policy file that observes, and the two halves of one that enforces; the second has what protects."""
    whole = write_policy(world.root, kill(grace=grace), name="whole.toml").read_text(encoding="utf-8")
    policy = world.root / "policy.toml"
    policy.write_text(whole.replace("enforce", "observe") + REST, encoding="utf-8")
    return policy, whole, REST


def over(world: Node, namespace: str, behaviour: str = "plain") -> Tenant:
    """A tenant that uses far more than is allowed."""
    return world.single(f"hog-{namespace}", namespace=namespace, used=9 * GIB, behaviour=behaviour)


@contextlib.contextmanager
def written(policy: Path, text: str, mode: str = "w") -> Iterator[IO[str]]:
    """The file, in the middle of being written: this is there already."""
    with policy.open(mode, encoding="utf-8") as writer:
        writer.write(text)
        writer.flush()
        yield writer


def waits(running: Daemon) -> bool:
    """Whether the daemon reports that it would enforce and waits for its policy file."""
    status = running.status()
    return (status["suspended"], status["enforcing"]) == (["policy_file"], False)


@pytest.mark.parametrize("pause", ["held open", "closed between"])
def test_half_a_policy_kills_nobody(any_world: Node, pause: str) -> None:
    """Point 20: written in place, with a pause before [protect] and [brakes]: who they protect lives."""
    spared, offender = over(any_world, "spared"), over(any_world, "ns")
    policy, first, second = texts(any_world)
    time.sleep(SETTLED_S)
    with run(any_world, policy, settled=False) as running:
        running.wait_passes(1)
        if pause == "held open":  # longer than a file takes to settle that nobody writes to
            with written(policy, first) as writer:
                time.sleep(SETTLED_S + 2)
                writer.write(second)
                assert (spared.is_alive, offender.is_alive) == (True, True)
        else:
            policy.write_text(first, encoding="utf-8")
            time.sleep(2)
            policy.write_text(first + second, encoding="utf-8")
            assert (spared.is_alive, offender.is_alive) == (True, True)
        running.wait(lambda _: not offender.is_alive)
        running.wait_passes(2)
    assert spared.is_alive
    assert [each.namespace for each in actions(any_world.journal)] == ["ns"]


def test_half_a_policy_at_startup_kills_nobody(any_world: Node) -> None:
    """Point 20: a daemon that starts while its policy is being written observes until that is complete, and says so."""
    spared, offender = over(any_world, "spared"), over(any_world, "ns")
    policy, first, second = texts(any_world)
    with contextlib.ExitStack() as stack:
        with written(policy, first) as writer:
            running = stack.enter_context(run(any_world, policy, settled=False))
            running.wait_passes(2)
            assert waits(running)
            assert "not enforcing: policy_file" in running.get("/readyz")[1]
            assert running.metric("enforcement_suspended", reason="policy_file") == 1
            assert (spared.is_alive, offender.is_alive) == (True, True)
            writer.write(second)
        running.wait(lambda _: not offender.is_alive)
        running.wait_passes(2)
        assert running.status()["suspended"] == []
    assert spared.is_alive


def test_no_new_action_by_the_old_policy_while_a_changed_one_waits(any_world: Node) -> None:
    """Point 20: a file that has changed may be about to protect: no first signal until it is loaded; SIGHUP loads."""
    policy, first, second = texts(any_world)
    policy.write_text(first + second, encoding="utf-8")
    any_world.write()
    with run(any_world, policy, settled=False) as running:
        running.process.send_signal(signal.SIGHUP)
        running.wait(lambda d: d.metric("enforcing") == 1)
        with written(policy, "# more\n", "a"):
            running.wait(waits)
            offender = over(any_world, "ns")
            running.wait(lambda d: _due(d, "ns"))
            running.wait_passes(2)
            assert offender.is_alive
            running.process.send_signal(signal.SIGHUP)
            running.wait(lambda _: not offender.is_alive)


def _due(running: Daemon, namespace: str) -> bool:
    plan = running.status()["plan"]
    return any((each["namespace"], each["due_in_s"], each["withheld_by"]) == (namespace, 0, None) for each in plan)


_RUN: Final = """
import sys
from pathlib import Path
from watchdog.cli.run import run_daemon
from watchdog.config.watch import PolicyFile
from watchdog.options import Options
policy, pods, journal = map(Path, sys.argv[1:4])
options = Options(node="n1", policy=policy, pods=pods, journal=journal, listen="127.0.0.1:0")
sys.exit(run_daemon(options, PolicyFile(policy, settling_s=0.5, held_s=float(sys.argv[4]))))
"""


@contextlib.contextmanager
def impatient(world: Node, policy: Path, held_s: float) -> Iterator[Daemon]:
    """The daemon with other times than 3 s and 60 s."""
    log = world.root / "log.jsonl"
    command = [*ENDS_WITH_US, sys.executable, "-c", _RUN]
    command += map(str, (policy, world.pods_file, world.journal, held_s))
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment(world.stub_file), stdout=out, stderr=out)
    try:
        running = Daemon(process, log)
        running.wait(Daemon.is_up)
        yield running
    finally:
        process.kill()
        process.wait()


def test_a_file_that_never_settles_holds_a_sigkill_for_a_while_and_stays_reported(any_world: Node) -> None:
    """Point 20: a grace period goes on while the file is waited for; then the policy in force applies again."""
    offender = over(any_world, "ns", behaviour="stubborn")
    policy, first, second = texts(any_world, grace="2s")
    policy.write_text(first + second, encoding="utf-8")
    held_s = 5.0
    with impatient(any_world, policy, held_s) as running:
        running.wait(lambda _: offender.terms)
        with written(policy, "# more\n", "a"):
            changed_s = boottime_s()
            running.wait(waits)
            running.wait(lambda _: not offender.is_alive)
            assert boottime_s() - changed_s >= held_s
            assert len(offender.terms) == 1
            running.wait(ended)
            assert (running.metric("enforcing"), running.status()["suspended"]) == (1, [])
            assert running.metric("policy_last_reload_successful") == 0
            (refused,) = running.events("policy_refused")
            assert "after 5s" in refused["message"]
            assert running.status()["health"]["policy_error"] == refused["message"]
        running.wait(lambda d: d.metric("policy_last_reload_successful") == 1)
        assert running.status()["health"]["policy_error"] is None


def test_a_grace_period_ends_without_sigkill_where_the_new_policy_protects(any_world: Node) -> None:
    """Point 20: the pod that is protected by what is being written lives, although its grace is over before that."""
    offender = over(any_world, "ns", behaviour="stubborn")
    policy, first, second = texts(any_world, grace="1s")
    policy.write_text(first + second, encoding="utf-8")
    with impatient(any_world, policy, 60.0) as running:
        running.wait(lambda _: offender.terms)
        with written(policy, first) as writer:
            running.wait_passes(3)
            assert offender.is_alive
            writer.write(second.replace("spared", "ns"))
        running.wait(lambda d: ended(d, "interrupted"))
        running.wait_passes(2)
    assert offender.is_alive
