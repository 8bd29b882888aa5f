"""`run` in enforce mode on a real node: who is killed, how, and who lives."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.rig import Daemon, Node, gpu_watchdog
from tests.rig.command import daemon
from tests.rig.node import GPU
from tests.rig.record import actions
from tests.rig.traced import traced
from tests.rig.volume import mount
from tests.stub import GIB, MIB, StubProcess
from tests.world.policies import KILL_AT_ONCE, WARN_AT_ONCE, write_policy

pytestmark = [pytest.mark.node, pytest.mark.slow]


def run(
    world: Node,
    policy: Path,
    prefix: tuple[str, ...] = (),
    more: tuple[str | Path, ...] = (),
    *,
    settled: bool = True,
) -> AbstractContextManager[Daemon]:
    """The daemon on this node; its policy need not settle first unless it is not to be `settled`."""
    arguments = ("--policy", policy, "--pods", world.pods_file, "--journal", world.journal, *more)
    return daemon(world.root, world.stub_file, *arguments, prefix=prefix, settled=settled)


def ended(running: Daemon, result: str = "done") -> bool:
    """Whether the one kill has ended so."""
    return running.metric("actions_total", action="kill", result=result) == 1.0


def test_exactly_the_offenders_container_dies(world: Node) -> None:
    """Points 21 to 23: every process and fork of the container gets TERM, then KILL; no other process gets anything."""
    hog = world.pod("hog", ("main", "1Gi"), ("side", None))
    calm = world.pod("calm", ("main", "4Gi"))
    over = world.start(hog, 0, behaviour="forker")
    helper = world.start(hog, 0)  # a process of the same container that uses no GPU
    side = world.start(hog, 1, used=128 * MIB)
    within = world.start(calm, 0, used=3 * GIB)
    host = world.start(None, used=GIB)
    world.write()
    members = world.members(hog)
    assert len(members) == 4
    with run(world, write_policy(world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(1)
        world.use(over, 9 * GIB)
        running.wait(lambda _: len(over.terms) == 3)
        assert over.is_alive
        running.wait(ended)
        assert over.ended_by == signal.SIGKILL
        assert helper.ended_by == signal.SIGTERM
        assert world.members(hog) == set()
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


def history_of(world: Node) -> list[dict[str, object]]:
    """The rows of the journal, as `history` gives them."""
    done = gpu_watchdog("history", "--json", "--journal", world.journal, stub=world.stub_file)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def test_what_is_started_on_sigterm_has_the_whole_grace_period(world: Node) -> None:
    """Point 23: the main process forks a saver and exits; the saver gets SIGTERM, not SIGKILL, and saves its work."""
    hog = world.pod("hog", ("main", "1Gi"))
    tenant = world.start(hog, used=4 * GIB, behaviour="saver")
    world.write()
    with run(world, write_policy(world.root, KILL_AT_ONCE.replace('grace = "2s"', 'grace = "20s"'))) as running:
        running.wait(ended)
        assert (tenant.has_saved, tenant.process.poll(), len(tenant.terms)) == (True, 0, 2)
        assert world.members(hog) == set()
    sent = [row["detail"] for row in history_of(world) if row["event"] == "signalled"]
    assert [str(detail).split()[0] for detail in sent] == ["SIGTERM", "SIGTERM"]


WHO_DIES: Final = {
    "scope process: only the largest": (
        KILL_AT_ONCE.replace('scope = "container"', 'scope = "process"'),
        "pod",
        (("main", 300 * MIB, None), ("main", 4 * GIB, signal.SIGTERM), ("side", 250 * MIB, None)),
    ),
    "container accounts: not the neighbour in the same pod": (
        KILL_AT_ONCE,
        "container",
        (("main", 3 * GIB, signal.SIGTERM), ("roomy", 7 * GIB, None)),
    ),
    "no grace: SIGKILL at once": (
        KILL_AT_ONCE.replace('grace = "2s"', 'grace = "0s"'),
        "pod",
        (("main", 4 * GIB, signal.SIGKILL),),
    ),
}


@pytest.mark.parametrize("case", WHO_DIES)
def test_who_dies(any_world: Node, case: str) -> None:
    """Points 21 to 23: the scope, the account and the grace say who is signalled, how, and who gets nothing."""
    step, account, processes = WHO_DIES[case]
    pod = any_world.pod("hog", ("main", "1Gi"), ("roomy", "8Gi"), ("side", None))
    names = [each.name for each in pod.containers]
    if account == "pod":
        del pod.containers[1]
        names.remove("roomy")
    tenants = [any_world.start(pod, names.index(name), used=used) for name, used, _ in processes]
    any_world.write()
    with run(any_world, write_policy(any_world.root, step, account=account)) as running:
        running.wait(ended)
        running.wait_passes(1)
        assert [each.ended_by for each in tenants] == [fate for _, _, fate in processes]
        assert [len(each.terms) for each in tenants] == [int(fate is signal.SIGTERM) for _, _, fate in processes]


def test_a_spoofed_cgroup_charges_nobody_else(world: Node) -> None:
    """A pod that makes another pod's path below its own cgroup is killed itself."""
    victim = world.single("victim", used=128 * MIB)
    thief = world.single("thief", used=9 * GIB)
    one, other = (pod.cgroup(pod.containers[0]) for pod in world.pods)
    world.enter(f"{other}/{one}", thief.pid)
    with run(world, write_policy(world.root, KILL_AT_ONCE)) as running:
        running.wait(ended)
        assert {each["pod"]: each["used"] for each in running.status()["accounts"]} == {"thief": 0, "victim": 128 * MIB}
    assert (thief.is_alive, victim.is_alive, victim.terms) == (False, True, [])


def test_observe_does_nothing_and_reports_what_it_would_do(any_world: Node) -> None:
    """Point 37: in observe mode one action per incident is planned and none is done."""
    over = any_world.single("hog", used=4 * GIB)
    with run(any_world, write_policy(any_world.root, WARN_AT_ONCE, KILL_AT_ONCE, mode="observe")) as running:
        running.wait(lambda d: d.metric("would_act_total", action="kill") == 1)
        running.wait_passes(3)
        assert running.metric("would_act_total", action="kill") == 1
        assert running.metric("actions_total", action="kill", result="done") == 0
        assert (running.metric("enforcing"), over.is_alive, over.terms) == (0, True, [])
    assert any(row["event"] == "would_act" for row in history_of(any_world))


def test_scope_pod_ends_all_known_containers(any_world: Node) -> None:
    """Point 21: all containers of the pod; the sandbox and what the list does not know stay."""
    hog = any_world.pod("hog", ("main", "1Gi"), ("side", None))
    over, side = any_world.start(hog, 0, used=4 * GIB), any_world.start(hog, 1)
    pause = any_world.start(None)
    any_world.enter(f"kubepods/burstable/pod{hog.uid}/{os.urandom(32).hex()}", pause.pid)
    any_world.write()
    step = KILL_AT_ONCE.replace('scope = "container"', 'scope = "pod"')
    with run(any_world, write_policy(any_world.root, step)) as running:
        running.wait(ended)
        assert (over.ended_by, side.ended_by, pause.is_alive) == (signal.SIGTERM, signal.SIGTERM, True)


def test_a_fork_storm_is_ended(any_world: Node) -> None:
    """Point 23: forks that come between the rounds of SIGKILL are found, up to 10 rounds."""
    hog = any_world.pod("hog", ("main", "1Gi"))
    any_world.start(hog, used=4 * GIB, behaviour="breeder")
    any_world.write()
    step = KILL_AT_ONCE.replace('grace = "2s"', 'grace = "0s"')
    with run(any_world, write_policy(any_world.root, step)) as running:
        running.wait(ended)
        assert any_world.members(hog) == set()


def test_one_eperm_and_no_process_is_signalled(any_world: Node) -> None:
    """Point 23: signal 0 goes to all first; without the right to signal one of them none of them is."""
    hog = any_world.pod("hog", ("main", "1Gi"))
    mine = any_world.start(hog, used=4 * GIB)
    theirs = any_world.start(hog, used=GIB, user=65534)
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
    slow, quick = any_world.pod("slow", ("main", "1Gi")), any_world.pod("quick", ("main", "1Gi"))
    first = any_world.start(slow, used=9 * GIB, behaviour="stubborn")
    second = any_world.start(quick, used=4 * GIB)
    any_world.write()
    step = KILL_AT_ONCE.replace('grace = "2s"', 'grace = "30s"')
    with run(any_world, write_policy(any_world.root, step)) as running:
        running.wait(lambda _: not second.is_alive)
        assert first.is_alive
        assert len(first.terms) == 1


def test_a_process_that_nvml_alone_still_knows_is_unattributed(any_world: Node) -> None:
    """Ghosts, zombies and PIDs without a process are unattributed with their reason; nothing follows from them."""
    hog = any_world.pod("hog", ("main", "1Gi"))
    zombie = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.DEVNULL)
    any_world.start(hog, used=512 * MIB)
    (card,) = any_world.stub.gpus
    ghosts = (
        StubProcess(pid=2**22 - 1, used=5 * GIB, ghost=True),
        StubProcess(pid=zombie.pid, used=6 * GIB, ghost=True),
    )
    any_world.show(gpus=(replace(card, processes=ghosts),))
    time.sleep(0.3)
    with run(any_world, write_policy(any_world.root, KILL_AT_ONCE)) as running:
        running.wait_passes(2)
        status = running.status()
        assert sorted((each["reason"], each["gpu"]) for each in status["unattributed"]) == [
            ("gone", GPU),
            ("zombie", GPU),
        ]
        assert [each["verdict"] for each in status["accounts"]] == ["within"]
    zombie.wait()


@pytest.mark.parametrize("zombies", [300, 5000])
def test_zombies_hide_no_living_thread(world: Node, zombies: int) -> None:
    """A tenant whose leader has ended, and whose threads a tracer keeps as zombies, dies for the one that lives."""
    hog = world.pod("hog", ("main", "1Gi"))
    with traced(world.root, zombies, lambda pid: world.enter(hog.cgroup(hog.containers[0]), pid)) as pid:
        (card,) = world.stub.gpus
        world.show(gpus=(replace(card, processes=(StubProcess(pid=pid, used=9 * GIB),)),))
        with run(world, write_policy(world.root, KILL_AT_ONCE)) as running:
            running.wait(ended)
            assert world.members(hog) == set()


def test_a_rise_between_readings_is_acted_on_at_once(world: Node) -> None:
    """With a pulse the allocation itself brings the reading: the next tick is five minutes away, the kill is not."""
    hog = world.pod("hog", ("main", "1Gi"))
    over = world.start(hog, 0)
    world.write()
    policy = write_policy(world.root, KILL_AT_ONCE.replace("2s", "0s"), more='[pulse]\nevery = "50ms"\n')
    mount(policy, policy.read_text(encoding="utf-8").replace('"1s"', '"5m"'))
    with run(world, policy) as running:
        running.wait(lambda each: each.metric("cycle_duration_seconds_count"))
        world.use(over, 9 * GIB)
        running.wait(ended, 10.0)
        assert over.ended_by == signal.SIGKILL
        running.wait(lambda each: each.status()["health"]["pulse"] == "on")
        assert 0 < running.status()["health"]["pulse_s"] < 0.05
