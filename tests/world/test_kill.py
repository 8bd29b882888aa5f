"""`run` in enforce mode on a real node: who is killed, how, and who lives."""

import json
import os
import signal
import subprocess
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.node.support import wait_until
from tests.rig import Daemon, Node, gpu_watchdog
from tests.rig.command import daemon
from tests.rig.node import GPU
from tests.rig.record import actions
from tests.rig.traced import traced
from tests.stub import GIB, MIB, StubProcess
from tests.world.policies import KILL_AT_ONCE, kill, write_policy

pytestmark = [pytest.mark.node, pytest.mark.slow]


def run(
    world: Node, policy: Path, prefix: tuple[str, ...] = (), more: tuple[str | Path, ...] = (), *, settled: bool = True
) -> AbstractContextManager[Daemon]:
    """The daemon on this node; its policy need not settle first unless it is not to be `settled`."""
    arguments = ("--policy", policy, "--pods", world.pods_file, "--journal", world.journal, *more)
    return daemon(world.root, world.stub_file, *arguments, prefix=prefix, settled=settled)


def ended(running: Daemon, result: str = "done") -> bool:
    """Whether the one kill has ended so."""
    return running.metric("actions_total", action="kill", result=result) == 1.0


def test_exactly_the_offenders_container_dies(world: Node) -> None:
    """Points 21 to 23: every process and fork of the container gets TERM, then KILL; no other process gets anything."""
    offender = world.pod("hog", ("main", "1Gi"), ("side", None))
    calm = world.pod("calm", ("main", "4Gi"))
    over = world.start(offender, 0, behaviour="forker")
    helper = world.start(offender, 0)  # a process of the same container that uses no GPU
    side = world.start(offender, 1, used=128 * MIB)
    within = world.start(calm, 0, used=3 * GIB)
    host = world.start(None, used=GIB)
    world.write()
    members = world.members(offender)
    assert len(members) == 4
    with run(world, write_policy(world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(1)
        world.use(over, 9 * GIB)
        running.wait(lambda _: len(over.terms) == 3)
        assert over.is_alive
        running.wait(ended)
        assert over.ended_by == signal.SIGKILL
        assert helper.ended_by == signal.SIGTERM
        assert world.members(offender) == set()
        assert (side.is_alive, within.is_alive, host.is_alive) == (True, True, True)
        assert (side.terms, within.terms, host.terms) == ([], [], [])
        _check_the_record(world, running, members)


def _check_the_record(world: Node, running: Daemon, members: set[int]) -> None:
    """Metrics, log and journal have it, with every process that was signalled."""
    assert running.metric("reaction_seconds_count", action="kill") == 1
    assert running.metric("release_seconds_count") == 1
    assert running.metric("container_memory_used_bytes", pod="hog", container="main") is None
    assert running.metric("pod_memory_used_bytes", pod="hog") == 128 * MIB
    assert running.metric("account_over_limit", pod="hog") == 0
    (begun,) = running.events("kill_begun")
    assert (begun["namespace"], begun["pod"], begun["container"], begun["rule"]) == ("ns", "hog", "main", "shared")
    assert len(begun["victims"]) == 4
    assert all("python" in victim and "user root" in victim for victim in begun["victims"])
    (killed,) = actions(world.journal)
    assert (set(killed.pids), killed.result) == (members, "done")


def history_of(world: Node) -> list[dict[str, Any]]:
    """The rows of the journal, as `history` gives them."""
    done = gpu_watchdog("history", "--json", "--journal", world.journal, stub=world.stub_file)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def explained(world: Node, running: Daemon, pod: str = "ns/hog") -> str:
    """What `explain` prints of a pod by this daemon and its journal, as one line."""
    done = gpu_watchdog("explain", pod, "--url", running.url, "--journal", world.journal, stub=world.stub_file)
    assert (done.returncode, done.stderr) == (0, "")
    return " ".join(done.stdout.split())


def test_what_is_started_on_sigterm_has_the_whole_grace_period(world: Node) -> None:
    """Point 23: the main process forks a saver and exits; the saver gets SIGTERM, not SIGKILL, and saves its work."""
    tenant = world.single("hog", used=4 * GIB, behaviour="saver")
    with run(world, write_policy(world.root, kill(grace="20s"))) as running:
        running.wait(ended)
        assert (tenant.has_saved, tenant.process.poll(), len(tenant.terms)) == (True, 0, 2)
        assert world.members(world.pods[0]) == set()
    sent = [row["detail"] for row in history_of(world) if row["event"] == "signalled"]
    assert [detail.split()[0] for detail in sent] == ["SIGTERM", "SIGTERM"]


LARGEST: Final = (("main", 300 * MIB, None), ("main", 4 * GIB, signal.SIGTERM), ("side", 250 * MIB, None))
WHO_DIES: Final = {
    "scope process: only the largest": (kill(scope="process"), "pod", LARGEST),
    "container accounts: not the neighbour in the same pod": (
        KILL_AT_ONCE, "container", (("main", 3 * GIB, signal.SIGTERM), ("roomy", 7 * GIB, None)),
    ),
    "no grace: SIGKILL at once": (kill(grace="0s"), "pod", (("main", 4 * GIB, signal.SIGKILL),)),
}  # fmt: skip


@pytest.mark.parametrize(("step", "account", "processes"), WHO_DIES.values(), ids=WHO_DIES)
def test_who_dies(
    any_world: Node, step: str, account: str, processes: tuple[tuple[str, int, signal.Signals | None], ...]
) -> None:
    """Points 21 to 23: the scope, the account and the grace say who is signalled, how, and who gets nothing."""
    containers = {"main": "1Gi", **({"side": None} if account == "pod" else {"roomy": "8Gi"})}
    pod = any_world.pod("hog", *containers.items())
    tenants = [any_world.start(pod, [*containers].index(name), used=used) for name, used, _ in processes]
    any_world.write()
    with run(any_world, write_policy(any_world.root, step, account=account)) as running:
        running.wait(ended)
        running.wait_passes(1)
        assert [each.ended_by for each in tenants] == [fate for _, _, fate in processes]
        assert [len(each.terms) for each in tenants] == [int(fate is signal.SIGTERM) for _, _, fate in processes]


def test_a_spoofed_cgroup_charges_nobody_else(world: Node) -> None:
    """Promise 1: a pod that makes another pod's path below its own cgroup is killed itself."""
    victim = world.single("victim", used=128 * MIB)
    thief = world.single("thief", used=9 * GIB)
    one, other = (pod.cgroup(pod.containers[0]) for pod in world.pods)
    world.enter(f"{other}/{one}", thief.pid)
    with run(world, write_policy(world.root, KILL_AT_ONCE)) as running:
        running.wait(ended)
        assert {each["pod"]: each["used"] for each in running.status()["accounts"]} == {"thief": 0, "victim": 128 * MIB}
    assert (thief.is_alive, victim.is_alive, victim.terms) == (False, True, [])


def test_scope_pod_ends_all_known_containers(any_world: Node) -> None:
    """Point 21: all containers of the pod; the sandbox and what the list does not know stay."""
    offender = any_world.pod("hog", ("main", "1Gi"), ("side", None))
    over, side = any_world.start(offender, 0, used=4 * GIB), any_world.start(offender, 1)
    pause = any_world.start(None)
    any_world.enter(f"kubepods/burstable/pod{offender.uid}/{os.urandom(32).hex()}", pause.pid)
    any_world.write()
    with run(any_world, write_policy(any_world.root, kill(scope="pod"))) as running:
        running.wait(ended)
        assert (over.ended_by, side.ended_by, pause.is_alive) == (signal.SIGTERM, signal.SIGTERM, True)


def test_a_fork_storm_is_ended(any_world: Node) -> None:
    """Point 23: forks that come between the rounds of SIGKILL are found, up to 10 rounds."""
    any_world.single("hog", used=4 * GIB, behaviour="breeder")
    with run(any_world, write_policy(any_world.root, kill(grace="0s"))) as running:
        running.wait(ended)
        assert any_world.members(any_world.pods[0]) == set()


def test_one_eperm_and_no_process_is_signalled(any_world: Node) -> None:
    """Point 23: signal 0 goes to all first; without the right to signal one of them none of them is."""
    offender = any_world.pod("hog", ("main", "1Gi"))
    mine = any_world.start(offender, used=4 * GIB)
    theirs = any_world.start(offender, used=GIB, user=65534)
    any_world.write()
    without_kill = ("setpriv", "--bounding-set=-kill", "--inh-caps=-kill")
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE), prefix=without_kill) as running:
        running.wait(lambda d: ended(d, "failed"))
        running.wait_passes(3)
        assert running.metric("actions_total", action="kill", result="failed") == 1
        assert (mine.terms, theirs.terms, mine.is_alive, theirs.is_alive) == ([], [], True, True)
        assert "CAP_KILL" in running.events("kill_ended")[0]["reason"]


def test_the_other_offender_does_not_wait(any_world: Node) -> None:
    """Law 10: a victim that takes its whole grace does not delay another kill."""
    first = any_world.single("slow", used=9 * GIB, behaviour="stubborn")
    second = any_world.single("quick", used=4 * GIB)
    with run(any_world, write_policy(any_world.root, kill(grace="30s"))) as running:
        running.wait(lambda _: not second.is_alive)
        assert (first.is_alive, len(first.terms)) == (True, 1)


def test_a_process_that_nvml_alone_still_knows_is_unattributed(any_world: Node) -> None:
    """Ghosts, zombies and PIDs without a process are unattributed with their reason; nothing follows from them."""
    zombie = subprocess.Popen(["true"])
    any_world.single("hog", used=512 * MIB)
    (card,) = any_world.stub.gpus
    ghosts = tuple(StubProcess(pid=pid, used=5 * GIB, ghost=True) for pid in (2**22 - 1, zombie.pid))
    any_world.show(gpus=(replace(card, processes=ghosts),))
    time.sleep(0.3)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(2)
        status = running.status()
        unattributed = sorted((each["reason"], each["gpu"]) for each in status["unattributed"])
        assert unattributed == [("gone", GPU), ("zombie", GPU)]
        assert [each["verdict"] for each in status["accounts"]] == ["within"]
    zombie.wait()


@pytest.mark.parametrize("zombies", [300, 5000])
def test_zombies_hide_no_living_thread(world: Node, zombies: int) -> None:
    """A tenant whose leader has ended, and whose threads a tracer keeps as zombies, dies for the one that lives."""
    offender = world.pod("hog", ("main", "1Gi"))
    with traced(world.root, zombies, lambda pid: world.enter(offender.cgroup(offender.containers[0]), pid)) as pid:
        (card,) = world.stub.gpus
        world.show(gpus=(replace(card, processes=(StubProcess(pid=pid, used=9 * GIB),)),))
        with run(world, write_policy(world.root, KILL_AT_ONCE)) as running:
            running.wait(ended)
            assert world.members(offender) == set()


def test_a_rise_between_readings_is_acted_on_at_once(world: Node) -> None:
    """With a pulse the allocation itself brings the reading: the next tick is five minutes away, the kill is not."""
    over = world.single("hog", used=0)
    policy = write_policy(world.root, kill(grace="0s"), interval="5m", more='[pulse]\nevery = "50ms"\n')
    with run(world, policy) as running:
        running.wait(lambda each: each.metric("cycle_duration_seconds_count"))
        assert running.metric("pulse_active") == 1
        world.use(over, 9 * GIB)
        running.wait(ended, 10.0)
        assert over.ended_by == signal.SIGKILL
        assert running.metric("pulse_looks_spent_total") == 0
        running.wait(lambda each: each.status()["health"]["pulse"] == "on")
        assert 0 < running.status()["health"]["pulse_s"] < 0.05


def test_what_is_allocated_after_a_job_has_ended_is_acted_on_at_once(world: Node) -> None:
    """The counter is compared with what the end of the job has left in use, and not with what was in use before it."""
    job = world.single("job", used=0, declared="16Gi")
    over = world.single("hog", used=0)
    policy = write_policy(world.root, kill(grace="0s"), interval="30s", more='[pulse]\nevery = "50ms"\n')
    with run(world, policy) as running:
        running.wait(lambda each: each.status()["health"]["pulse"] == "on")
        world.use(job, 15 * GIB)
        running.wait(lambda each: each.metric("container_memory_used_bytes", pod="job") == 15 * GIB, 10.0)
        job.process.kill()
        job.process.wait()
        running.wait_call("nvmlDeviceGetMemoryInfo_v2")
        running.wait_call("nvmlDeviceGetMemoryInfo_v2")
        world.use(over, 9 * GIB)
        running.wait(ended, 10.0)
        assert over.ended_by == signal.SIGKILL


def test_many_processes_take_no_descriptors_from_another_kill(any_world: Node) -> None:
    """Points 22 and 23: with 512 descriptors, 1,501 processes are killed to the last, and so is what is due beside.

    Descriptors that are short are a gap, and no innocent is killed.
    """
    many = any_world.pod("many", ("main", "1Gi"))
    family = any_world.start(many, used=9 * GIB, behaviour="forks")
    other = any_world.pod("other", ("main", "1Gi"))
    offender = any_world.start(other, used=2 * GIB)
    calm = any_world.start(any_world.pod("calm", ("main", "4Gi")), used=3 * GIB)
    any_world.write()
    wait_until(lambda: len(any_world.members(many)) == 1501, 60)
    few = ("prlimit", "--nofile=512:512")
    with run(any_world, write_policy(any_world.root, kill(grace="3s")), prefix=few) as running:
        running.wait(lambda d: d.metric("actions_total", action="kill", result="done") == 2)
        withdrawn = {line["reason"] for line in running.events("kill_ended") if line["result"] == "withdrawn"}
        assert withdrawn <= {"the last look was already too old"}  # on a machine that is very busy
        assert {row.uid: (len(row.pids), row.result) for row in actions(any_world.journal)} == {
            many.uid: (1501, "done"),
            other.uid: (1, "done"),
        }
        assert (family.is_alive, offender.is_alive, any_world.members(many)) == (False, False, set())
        assert (calm.is_alive, calm.terms) == (True, [])
        (gap,) = {line["message"] for line in running.events("gap_began") if line["reason"] == "descriptors"}
        assert "raise the limit of open files" in gap
