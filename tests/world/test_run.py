"""The life of `run`: health, reload, signals, a second daemon, and how fast it reacts."""

import contextlib
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.support import run_python
from tests.rig import Node, gpu_watchdog
from tests.rig.command import Daemon
from tests.rig.node import GPU
from tests.rig.volume import mount
from tests.stub import GIB, LISTS, MIB, StubDelay, StubReturn
from tests.world.policies import KILL_AT_ONCE, WARN_AT_ONCE, kill, write_policy
from tests.world.test_kill import ended, run

pytestmark = [pytest.mark.node, pytest.mark.slow]


def test_a_stuck_driver_turns_healthz_to_503_and_leads_to_no_action(any_world: Node) -> None:
    """While an NVML call hangs /healthz and /readyz answer 503, no action follows, and SIGTERM ends it within 1 s."""
    tenant = any_world.single("hog", used=512 * MIB)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(1)
        tenant.used = 9 * GIB
        any_world.show(delays=(StubDelay(call=LISTS[2], ms=600_000),))
        running.wait(lambda d: d.get("/healthz")[0] == 503, 30)
        status, reasons = running.get("/readyz")
        assert (status, "a call to the driver is hung" in reasons) == (503, True)
        assert running.get("/metrics")[0] == 200
        assert (tenant.is_alive, tenant.terms) == (True, [])
        code, took_s = running.stop()
        assert (code, took_s < 1.0) == (0, True)


def test_sigkill_follows_the_grace_while_the_driver_hangs(any_world: Node) -> None:
    """Point 22: once begun a kill is completed by identity alone; a driver that hangs does not hold it up."""
    tenant = any_world.single("hog", used=9 * GIB, behaviour="stubborn")
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait(lambda _: tenant.terms)
        any_world.show(delays=(StubDelay(call=LISTS[0], ms=600_000),))
        running.wait(lambda _: not tenant.is_alive, 5)
        assert tenant.ended_by == signal.SIGKILL


@pytest.mark.parametrize("how", ["rename", "SIGHUP in place", "symlink swap"])
def test_a_changed_policy_takes_effect(any_world: Node, how: str) -> None:
    """A new file, the same file rewritten with SIGHUP, a swapped `..data` symlink: each is read within seconds."""
    tenant = any_world.single("hog", used=9 * GIB)
    policy = write_policy(any_world.root, KILL_AT_ONCE, mode="observe")
    text = policy.read_text(encoding="utf-8").replace("observe", "enforce")
    with run(any_world, policy) as running:
        running.wait_passes(2)
        assert tenant.is_alive
        first = _loaded(running)
        if how == "symlink swap":
            mount(policy, text)
        elif how == "rename":
            other = any_world.root / "other.toml"
            other.write_text(text, encoding="utf-8")
            other.rename(policy.resolve())
        else:
            policy.write_text(text, encoding="utf-8")
            running.process.send_signal(signal.SIGHUP)
        running.wait(lambda _: not tenant.is_alive)
        running.wait(lambda d: _loaded(d) != first)
        assert running.metric("policy_last_reload_successful") == 1


def _loaded(running: Daemon) -> str:
    sha256: str = running.status()["policy"]["sha256"]
    return sha256


def test_an_address_in_use_is_exit_1_with_the_remedy(any_world: Node) -> None:
    """A second daemon on the same port says so and ends."""
    any_world.write()
    policy = write_policy(any_world.root, WARN_AT_ONCE)
    with run(any_world, policy) as running:
        _refuses_to_start(any_world, policy, f"127.0.0.1:{running.port}", str(running.port))


def _refuses_to_start(world: Node, policy: Path, listen: str, reported: str) -> None:
    done = gpu_watchdog("run", "--policy", policy, "--listen", listen, stub=world.stub_file)
    assert (done.returncode, reported in done.stderr, "Traceback" in done.stderr) == (1, True, False)


def test_a_second_daemon_only_observes_and_is_not_ready(any_world: Node) -> None:
    """Point 32: one daemon a node; when the first has gone the second takes over."""
    tenant = any_world.single("hog", used=512 * MIB)
    policy = write_policy(any_world.root, KILL_AT_ONCE)
    with run(any_world, policy) as first, run(any_world, policy) as second:
        second.wait_passes(1)
        status, reasons = second.get("/readyz")
        assert (status, str(first.pid) in reasons) == (503, True)
        assert second.metric("enforcing") == 0
        assert second.metric("enforcement_suspended", reason="lock") == 1
        assert "not enforcing: journal" not in reasons, "without the lock the journal is not even opened"
        first.stop()
        second.wait(lambda d: d.metric("enforcing") == 1)
        second.wait(lambda d: d.get("/readyz")[0] == 200)
        any_world.use(tenant, 9 * GIB)
        second.wait(lambda _: not tenant.is_alive)


def test_without_a_journal_it_only_observes(any_world: Node) -> None:
    """Points 31 and 38: where the journal can't be opened enforcement is suspended, and the reason is reported."""
    tenant = any_world.single("hog", used=9 * GIB)
    any_world.journal.mkdir(parents=True)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(3)
        assert running.metric("enforcement_suspended", reason="journal") == 1
        assert "journal" in running.get("/readyz")[1]
        assert (tenant.is_alive, tenant.terms) == (True, [])
        any_world.journal.rmdir()
        running.wait(lambda _: not tenant.is_alive)


def test_outside_the_hosts_pid_namespace_it_only_observes(any_world: Node) -> None:
    """Point 38: PIDs that NVML speaks may mean other processes there; `[safety]` can allow it."""
    tenant = any_world.single("hog", used=9 * GIB)
    elsewhere = ("unshare", "--pid", "--fork", "--kill-child")
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE), prefix=elsewhere) as running:
        running.wait_passes(2)
        assert running.metric("enforcement_suspended", reason="pid_namespace") == 1
        assert (tenant.is_alive, tenant.terms) == (True, [])


def test_a_lost_gpu_leaves_the_others_alone(any_world: Node) -> None:
    """One card that falls off the bus is `gpu_up 0` and a gap; who is over on the other is still killed."""
    tenant = any_world.single("hog", used=512 * MIB)
    (first,) = any_world.stub.gpus
    second = replace(first, uuid=GPU[:-1] + "1")
    any_world.show(gpus=(first, second))
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(1)
        any_world.show(returns=(StubReturn(call="*", code=15, gpu=second.uuid),))
        running.wait(lambda d: d.metric("gpu_up", gpu=second.uuid) == 0)
        assert running.metric("gpu_up", gpu=first.uuid) == 1
        assert running.metric("gpu_memory_used_bytes", gpu=second.uuid) is None
        assert any(second.uuid in gap["what"] for gap in running.status()["gaps"])
        any_world.use(tenant, 9 * GIB)
        running.wait(lambda _: not tenant.is_alive)


def test_the_driver_goes_away_and_comes_back(any_world: Node) -> None:
    """A driver that is unloaded is a gap and `not ready`; when it is back the daemon goes on by itself."""
    tenant = any_world.single("hog", used=512 * MIB)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait(lambda d: d.get("/readyz")[0] == 200)
        any_world.show(returns=(StubReturn(call="*", code=9),))
        running.wait(lambda d: d.get("/readyz")[0] == 503)
        assert running.get("/healthz")[0] == 200
        assert tenant.is_alive
        any_world.show(driver="570.00.00", returns=())
        running.wait(lambda d: d.get("/readyz")[0] == 200)
        any_world.use(tenant, 9 * GIB)
        running.wait(lambda _: not tenant.is_alive)


def test_a_recycled_pid_is_another_process(any_world: Node) -> None:
    """Promise 1, point 11: a neighbour that gets the PID of an offender that has ended is not taken for it.

    In a small PID namespace the next PID can be chosen, so the very same one is given out again.
    """
    offender, calm = any_world.pod("hog", ("main", "1Gi")), any_world.pod("calm", ("main", "1Gi"))
    any_world.write()
    policy = write_policy(any_world.root, kill("3s"), more="\n[safety]\nforeign_pid_namespace = true\n")
    arguments = [
        str(any_world.root),
        str(policy),
        offender.cgroup(offender.containers[0]),
        calm.cgroup(calm.containers[0]),
    ]
    code = f"from tests.world.recycled_pid import play; play(*{arguments})"
    printed = run_python(code, "unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    assert printed == "the neighbour lives under the offender's PID\n"


def test_who_renames_itself_is_shown_by_the_current_name(any_world: Node) -> None:
    """Law 4's identity is PID and start time; the name is for people, so it is the current one, and inert.

    What a tenant writes into it is escaped, and turns the one who is over into nobody else.
    """
    over = any_world.single("hog", used=512 * MIB, behaviour="renamer")
    calm = any_world.single("calm", used=512 * MIB)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(1)
        before = _names(running)
        for given, shown in ((b"train.py", "train.py"), (b"\x1b[2J)\n(\xff", "\\x1b[2J)\\n(\\xff")):
            over.rename(given)
            running.wait(lambda d, shown=shown: _names(d) == {**before, "hog": shown}, 60)  # type: ignore[misc]
        over.rename(b"nvidia-cuda-mps-server")
        running.wait(lambda d: _names(d)["hog"] == "nvidia-cuda-mps")
        over.rename(b"innocent")
        any_world.use(over, 9 * GIB)
        running.wait(ended)
        (begun,) = running.events("kill_begun")
        assert [" innocent " in victim for victim in begun["victims"]] == [True]
        assert (over.is_alive, calm.is_alive) == (False, True)


def _names(running: Daemon) -> dict[str, str]:
    """The names of the processes that it shows, by their pods."""
    return {each["pod"]: process["name"] for each in running.status()["accounts"] for process in each["processes"]}


def test_nothing_is_left_open_over_many_passes(any_world: Node) -> None:
    """Promise 4: processes that come and go leave no descriptors behind in the daemon."""
    offender = any_world.pod("hog", ("main", "8Gi"))
    any_world.write()
    with run(any_world, write_policy(any_world.root, WARN_AT_ONCE)) as running:
        running.wait_passes(2)
        before = _pidfds(running)
        for _ in range(5):
            tenants = [any_world.start(offender, used=10 * MIB) for _ in range(4)]
            any_world.write()
            running.wait_passes(1)
            for tenant in tenants:
                tenant.process.kill()
                tenant.process.wait()
                tenant.used = 0  # the stub runs in the daemon and holds whom it lists
            any_world.write()
        running.wait_passes(1)
        any_world.write()  # the stub drops the processes it listed when it reads its file again
        running.wait_passes(2)
        assert (before, _pidfds(running)) == (0, 0)


def _pidfds(running: Daemon) -> int:
    """How many pidfds the daemon holds; its connections come and go meanwhile."""
    count = 0
    for link in Path(f"/proc/{running.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += "pidfd" in str(link.readlink())
    return count


def test_a_policy_that_stops_parsing_changes_nothing(any_world: Node) -> None:
    """A broken file while the daemon runs: the last good policy goes on, a metric and the log say so."""
    tenant = any_world.single("hog", used=512 * MIB)
    policy = write_policy(any_world.root, KILL_AT_ONCE)
    with run(any_world, policy) as running:
        running.wait_passes(1)
        before = _loaded(running)
        write_policy(any_world.root, kill(grace="soon"))
        running.wait(lambda d: d.metric("policy_last_reload_successful") == 0)
        (refused,) = running.events("policy_refused")
        assert "rule[0].step[0].grace" in refused["message"]
        assert _loaded(running) == before
        any_world.use(tenant, 9 * GIB)
        running.wait(lambda _: not tenant.is_alive)
        write_policy(any_world.root, KILL_AT_ONCE)
        running.wait(lambda d: d.metric("policy_last_reload_successful") == 1)


def test_an_invalid_policy_at_start_is_exit_1_with_the_report(any_world: Node) -> None:
    """The report of `check`, on stderr, and nothing started."""
    any_world.write()
    policy = write_policy(any_world.root, KILL_AT_ONCE.replace("kill", "slay"))
    _refuses_to_start(any_world, policy, "127.0.0.1:0", "rule[0].step[0].do")


def test_what_is_due_before_the_first_mode_is_known_is_reported_once(any_world: Node) -> None:
    """At a start enforcement waits for the policy to settle: that a warning "would have been" given is not reported."""
    any_world.single("hog", used=9 * GIB)
    policy = any_world.root / "written" / "policy.toml"
    policy.parent.mkdir()
    policy.write_text(write_policy(any_world.root, WARN_AT_ONCE, kill("5m")).read_text(encoding="utf-8"))
    in_an_hour_s = time.time() + 3600.0  # a file from the future is treated as one that has just been written
    os.utime(policy, (in_an_hour_s, in_an_hour_s))
    with run(any_world, policy, settled=False) as running:
        running.wait(lambda d: d.metric("enforcing") == 0)
        running.wait(lambda d: d.metric("actions_total", action="warn", result="done") == 1)
        assert len(running.events("warned")) == 1
        assert running.events("would_act") == []
        assert not running.metric("would_act_total", action="warn")


def test_what_would_be_done_is_reported_where_enforcement_does_not_begin(any_world: Node) -> None:
    """A daemon whose enforcement is off for longer than a start takes reports what it would have done, once."""
    any_world.single("hog", used=9 * GIB)
    policy = write_policy(any_world.root, WARN_AT_ONCE, kill("5m"))
    any_world.node_file.unlink(missing_ok=True)
    with run(any_world, policy, more=("--node-object", any_world.node_file)) as running:
        running.wait(lambda d: d.metric("enforcement_suspended", reason="node_unknown") == 1)
        running.wait(lambda d: d.metric("would_act_total", action="warn") == 1)
        running.wait_passes(3)
        assert len(running.events("would_act")) == 1
