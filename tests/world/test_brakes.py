"""`run` with brakes: how many actions a node takes at most, over kill -9 and reload."""

import contextlib
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.node.support import cannot_run, wait_until
from tests.rig import Daemon, Node, Tenant
from tests.rig.record import ActionRow, actions, boottime_s, breaker_opened_s, events, is_intended
from tests.rig.replicas import Replicas, deployed_by
from tests.stub import GIB, MIB
from tests.world.policies import kill, write_policy
from tests.world.test_kill import explained, history_of, run
from watchdog.core.policy import JournalLimits
from watchdog.journal.journal import Journal

pytestmark = [pytest.mark.node, pytest.mark.slow]

KILL = kill(grace="1s")
PRESSED = f"""
[[rule]]
name = "pressed"
match = {{ labels = {{ tier = "pressed" }} }}
[[rule.step]]
{KILL}
[[rule.step]]
{KILL}
under_pressure = true
"""
OFFENDERS = 40
# How much later than it may an action may come on a machine that does a lot besides.
LATE_S = 8.0
# The wall clock may be slewed, and an action is counted a moment after its intention.
ABOUT_S = 1.5


def braked(world: Node, brakes: str, *, release_timeout: str = "30s", first: str = "") -> Path:
    """A policy that kills at once, with these brakes."""
    keys = f'release_timeout = "{release_timeout}"'
    return write_policy(world.root, KILL, keys=keys, first=first, more=f"\n[brakes]\n{brakes}\n")


def breaker(hold: str) -> str:
    """A breaker that opens where half of at least three owners are over."""
    return f'breaker = {{ offenders = "50%", of_at_least = 3, hold = "{hold}" }}'


def begun(world: Node) -> int:
    """How many actions have been begun."""
    return len(actions(world.journal))


def waits(found: list[ActionRow], apart: int = 1) -> list[float]:
    """How many seconds after the action `apart` places before it each was begun."""
    return [later.began_s - earlier.began_s for earlier, later in zip(found, found[apart:], strict=False)]


def releases_s(running: Daemon, brake: str) -> list[float]:
    """When this brake releases (CLOCK_BOOTTIME), by /api/status, of each step that it holds back."""
    status = running.status()
    at_s = datetime.fromisoformat(status["at"]).timestamp() - time.time() + boottime_s()
    return [at_s + each["releases_in_s"] for each in status["plan"] if each["withheld_by"] == brake]


def test_forty_crash_looping_pods_are_held_to_the_owners_window(any_world: Node) -> None:
    """Law 6, promise 2: neither new UIDs nor a kill -9 make a fourth action of three; what is withheld is on record."""
    replicas = Replicas(any_world, "web", OFFENDERS)
    any_world.write()
    policy = braked(any_world, 'owner = "3 per 10m"')
    with run(any_world, policy) as running:
        _is_held(any_world, running, replicas)
        running.stop(signal.SIGKILL)
    with run(any_world, policy) as running:
        _is_held(any_world, running, replicas)
    assert (replicas.tend(), begun(any_world)) == (3, 3)
    assert [each.result for each in actions(any_world.journal)] == ["done"] * 3
    _check_history(any_world, replicas)


def _is_held(world: Node, running: Daemon, replicas: Replicas) -> None:
    """Three have died, and metrics and status say of each that lives what holds it back, once."""
    running.wait(lambda _: replicas.tend() >= 3, 30)
    running.wait(lambda d: (d.metric("withheld_total", brake="owner") or 0) >= OFFENDERS, 30)
    running.wait_passes(3)
    assert replicas.tend() == 3
    assert running.metric("withheld_total", brake="owner") == OFFENDERS
    plan = running.status()["plan"]
    assert {each["uid"] for each in plan if each["withheld_by"] == "owner"} == replicas.uids
    until_s = actions(world.journal)[0].began_s + 600
    assert releases_s(running, "owner") == [pytest.approx(until_s, abs=ABOUT_S)] * OFFENDERS


def _check_history(world: Node, replicas: Replicas) -> None:
    """`history` has each withholding once per incident and daemon, with when the brake releases."""
    rows = [row for row in history_of(world) if row["event"] == "withheld"]
    assert {row["detail"] for row in rows} == {"owner"}
    assert Counter(row["uid"] for row in rows) == dict.fromkeys(replicas.uids, 2)
    assert all("3 per 10m" in row["sentence"] for row in rows)


def test_a_kill_9_after_the_intention_and_in_the_grace(any_world: Node) -> None:
    """Point 31 and law 6: what was only intended counts, and what the window allows is used, to the very number."""
    replicas = Replicas(any_world, "web", OFFENDERS, behaviour="deaf")
    any_world.write()
    policy = braked(any_world, 'owner = "3 per 7s"', release_timeout="2s")
    with run(any_world, policy) as running:
        wait_until(lambda: is_intended(any_world.journal))
        running.stop(signal.SIGKILL)
    with run(any_world, policy) as running:
        running.wait(lambda _: begun(any_world) >= 3, 30)
        running.stop(signal.SIGKILL)  # the grace of the last one lasts a second
    with run(any_world, policy) as running:
        running.wait(lambda _: replicas.tend() >= 0 and _ended(any_world) >= 6, 30)
    replicas.tend()
    found = actions(any_world.journal)
    assert len(found) >= 6
    assert all(7 <= wait < 7 + LATE_S for wait in waits(found, 3))
    # Nobody has died but by an action; of those that a kill -9 cut short the victims may live.
    assert set(replicas.dead) <= {each.uid for each in found}
    assert len(replicas.dead) == len(set(replicas.dead)) <= len(found)
    assert {each.uid for each in found if each.result == "done"} <= set(replicas.dead)
    assert sum(each.result == "done" for each in found) >= 1


def _ended(world: Node) -> int:
    return sum(each.result is not None for each in actions(world.journal))


def test_the_back_off_goes_on_where_it_was(any_world: Node) -> None:
    """Law 6: the waits of an owner whose pods offend again double up to the longest, over a kill -9 in the middle."""
    replicas = Replicas(any_world, "web", OFFENDERS)
    any_world.write()
    policy = braked(any_world, 'owner_backoff = { first = "1s", factor = 2, max = "1h" }')
    with run(any_world, policy) as running:
        running.wait(lambda _: replicas.tend() >= 3, 30)
        running.stop(signal.SIGKILL)
    with run(any_world, policy) as running:
        running.wait(lambda _: replicas.tend() >= 4, 30)
        running.wait(lambda d: len(releases_s(d, "owner_backoff")) == OFFENDERS)
        assert replicas.tend() == 4
        until_s = actions(any_world.journal)[3].began_s + 8
        assert releases_s(running, "owner_backoff") == [pytest.approx(until_s, abs=ABOUT_S)] * OFFENDERS
    found = actions(any_world.journal)
    assert len(found) == 4
    assert all(least <= wait < least + LATE_S for least, wait in zip((1, 2, 4), waits(found), strict=True))


@pytest.fixture
def owners(any_world: Node) -> tuple[Node, list[Tenant]]:
    """Seven owners with a pod each, of whom the first five are over."""
    uses = [(GIB if number < 5 else 256) + number * MIB for number in range(7)]
    return any_world, [_light(any_world, f"p{n}", used, metadata=deployed_by(f"web{n}")) for n, used in enumerate(uses)]


def _light(world: Node, name: str, used: int, **more: Any) -> Tenant:
    return world.single(name, declared="256Mi", used=used, behaviour="plain", **more)


def test_the_breaker_over_two_kill_9(owners: tuple[Node, list[Tenant]]) -> None:
    """Point 30: most owners over: no action, then one per `hold`; restarts neither forget it nor restart it."""
    world, tenants = owners
    policy = braked(world, breaker("4s"))
    with run(world, policy) as running:
        running.wait(lambda d: d.metric("breaker_open") == 1)
        opened_s = _opened_s(world, running)
        wait_until(lambda: boottime_s() > opened_s + 4 * 2 / 3)
        assert (_living(tenants), begun(world)) == (7, 0)
        assert releases_s(running, "breaker") == [pytest.approx(opened_s + 4, abs=ABOUT_S)] * 5
        assert running.metric("withheld_total", brake="breaker") == 5
        running.stop(signal.SIGKILL)
    with run(world, policy) as running:
        running.wait(lambda _: _living(tenants) < 7)
        assert running.metric("breaker_open") == 1
        assert breaker_opened_s(world.journal) == opened_s
        running.stop(signal.SIGKILL)
    with run(world, policy) as running:
        running.wait(lambda _: _living(tenants) < 6)
        running.wait_passes(1)
        assert (_living(tenants), begun(world)) == (5, 2)
        _closes(world, running, [tenant for tenant in tenants[:5] if tenant.is_alive])
    found = actions(world.journal)
    assert 4 <= found[0].began_s - opened_s < 4 + LATE_S
    assert 4 <= found[1].began_s - found[0].began_s < 4 + LATE_S
    assert len(found) == 4


def _opened_s(world: Node, running: Daemon) -> float:
    """Since when the breaker is open by the journal, which has it a moment after the metric."""
    running.wait(lambda _: breaker_opened_s(world.journal) is not None)
    opened_s = breaker_opened_s(world.journal)
    assert opened_s is not None
    return opened_s


@pytest.mark.parametrize("own_rule", ["", PRESSED], ids=["one rule", "a rule with pressure"])
def test_decoys_shield_an_offender_for_one_hold(any_world: Node, own_rule: str) -> None:
    """Point 30: decoys open the breaker, which is reported; after one `hold` the account most bytes over goes first."""
    decoys = [_light(any_world, f"decoy{number}", 530 * MIB) for number in range(3)]
    offender = _light(any_world, "hog", 9 * GIB, metadata={"labels": {"tier": "pressed"}})
    policy = braked(any_world, f'{breaker("3s")}\n[pressure]\nfree_below = "99%"', first=own_rule)
    with run(any_world, policy) as running:
        running.wait(lambda d: d.metric("breaker_open") == 1)
        opened_s = _opened_s(any_world, running)
        assert running.metric("enforcing") == 1  # with `breaker_open` it is what GPUMemoryBreakerOpen pages for
        running.wait(lambda _: not offender.is_alive)
        (first, *_) = actions(any_world.journal)
        assert first.uid == any_world.pods[-1].uid
        assert 3 <= first.began_s - opened_s < 3 + LATE_S
        assert _living(decoys) == 3


def test_a_daemon_that_takes_over_knows_the_breaker_is_open(owners: tuple[Node, list[Tenant]]) -> None:
    """Points 30, 32 and 38: what a second daemon saw while it only observed does not replace what the journal has."""
    world, tenants = owners
    policy = braked(world, breaker("10m"))
    with run(world, policy) as first:
        first.wait(lambda d: d.metric("breaker_open") == 1)
        opened_s = _opened_s(world, first)
        with run(world, policy) as second:
            second.wait(lambda d: d.metric("breaker_open") == 1)
            assert second.metric("enforcing") == 0
            first.stop(signal.SIGKILL)
            second.wait(lambda d: d.metric("enforcing") == 1)
            second.wait_passes(2)
            assert breaker_opened_s(world.journal) == opened_s
            assert releases_s(second, "breaker") == [pytest.approx(opened_s + 600, abs=ABOUT_S)] * 5
    assert (_living(tenants), begun(world)) == (7, 0)


def _living(tenants: list[Tenant]) -> int:
    return sum(tenant.is_alive for tenant in tenants)


def _closes(world: Node, running: Daemon, over: list[Tenant]) -> None:
    """The rest go within: it closes, and two single offenders are killed at once and not one a `hold`."""
    for tenant in over:
        tenant.used = 256 * MIB
    world.write()
    running.wait(lambda d: d.metric("breaker_open") == 0)
    wait_until(lambda: breaker_opened_s(world.journal) is None)  # the journal is written on its own thread
    before = running.metric("withheld_total", brake="breaker")
    for tenant in over[:2]:
        tenant.used = GIB
    world.write()
    running.wait(lambda _: _living(over) == 1)
    running.wait_passes(1)
    assert running.metric("withheld_total", brake="breaker") == before
    assert running.metric("breaker_open") == 0
    names = [name for name, _, _ in events(world.journal, "breaker_opened", "breaker_closed")]
    assert (names[0], names[-1], names.count("breaker_closed")) == ("breaker_opened", "breaker_closed", 1)


def test_a_window_that_a_reload_brings_counts_earlier_actions(any_world: Node) -> None:
    """Law 6: actions are remembered where no brake asks for them yet; another namespace is not held back."""
    for name in ("first", "second"):
        _light(any_world, name, GIB)
    with run(any_world, braked(any_world, 'node = "9 per 1h"')) as running:
        running.wait(lambda _: begun(any_world) == 2)
        loaded = running.status()["policy"]["sha256"]
        braked(any_world, 'namespace = "2 per 6s"')
        running.wait(lambda d: d.status()["policy"]["sha256"] != loaded)
        later, elsewhere = _light(any_world, "later", GIB), _light(any_world, "elsewhere", GIB, namespace="other")
        running.wait(lambda _: not elsewhere.is_alive)
        running.wait(lambda _: not later.is_alive, 30)
        assert running.metric("withheld_total", brake="namespace") == 1
    found = [each for each in actions(any_world.journal) if each.namespace == "ns"]
    assert len(found) == 3
    assert 6 <= found[2].began_s - found[0].began_s < 6 + LATE_S


@pytest.fixture
def small_disk(any_world: Node) -> Iterator[Node]:
    """A node whose journal is alone on a file system of 1 MiB."""
    folder = any_world.journal.parent
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], check=False).returncode != 0:
        cannot_run("no file system can be mounted")
    yield any_world
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_holds_back_enforcement_and_nothing_else(small_disk: Node) -> None:
    """Point 31: what can't be written down first is not done; with room again it is, and the record is whole."""
    tenant = _light(small_disk, "hog", 256 * MIB)
    with run(small_disk, braked(small_disk, 'node = "9 per 1h"')) as running:
        running.wait_passes(1)
        ballast = _fill_up(small_disk.journal.parent)
        small_disk.use(tenant, GIB)
        running.wait(lambda d: d.metric("withheld_total", brake="journal") == 1)
        running.wait_passes(1)
        assert (tenant.is_alive, begun(small_disk)) == (True, 0)
        assert running.metric("pod_memory_used_bytes", pod="hog") == GIB
        assert running.metric("withheld_total", brake="journal") == 1
        ballast.unlink()
        running.wait(lambda _: not tenant.is_alive)
        running.wait(lambda d: d.metric("actions_total", action="kill", result="done") == 1)
    printed = [name for name, _, _ in events(small_disk.journal, "withheld", "intended", "signalled", "kill_ended")]
    assert printed == ["withheld", "intended", "signalled", "kill_ended"]


def test_a_daemon_that_stops_on_a_full_disk_names_what_is_lost(small_disk: Node) -> None:
    """Point 31: it ends within its second all the same, and the log has what the journal has not."""
    tenant = _light(small_disk, "hog", 256 * MIB)
    with run(small_disk, braked(small_disk, 'node = "9 per 1h"')) as running:
        running.wait_passes(1)
        _fill_up(small_disk.journal.parent)
        small_disk.use(tenant, GIB)
        running.wait(lambda d: d.metric("withheld_total", brake="journal") == 1)
        code, took_s = running.stop()
        assert code == 0
        assert took_s < 3  # the promise is one second; the machine may be busy
        (lost,) = [line["message"] for line in running.events("error") if "records that are lost" in line["message"]]
    assert "no space left" in lost
    assert "1 withheld" in lost
    assert "1 stopped" in lost


def _fill_up(folder: Path) -> Path:
    """A file that takes all the space there is."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 512):
            pass
    return ballast


@pytest.mark.parametrize("loss", ["damaged", "missing", "emptied"])
def test_a_journal_lost_while_the_daemon_is_down_leaves_the_brakes_full(any_world: Node, loss: str) -> None:
    """Point 31: a damaged journal, or a lock without one: each window counts as full until it has elapsed once."""
    replicas = Replicas(any_world, "web", 3)
    any_world.write()
    policy = braked(any_world, 'owner = "1 per 5s"\nowner_backoff = { first = "1s", factor = 2, max = "4s" }')
    with run(any_world, policy) as running:
        running.wait(lambda _: replicas.tend() >= 1)
        running.stop()
    _lose(any_world.journal, loss)
    before_s = boottime_s()
    with run(any_world, policy) as running:
        running.wait(lambda d: (d.metric("withheld_total", brake="owner") or 0) >= 3)
        running.wait(lambda d: len(releases_s(d, "owner")) == 3)
        assert replicas.tend() == 1
        (reported,) = [each["message"] for each in running.log() if "each limit and back-off" in each["message"]]
        assert "owner until" in reported
        until_s = releases_s(running, "owner")
        assert until_s == [pytest.approx(before_s + 5, abs=LATE_S)] * 3
        assert "was found damaged or missing" in explained(any_world, running, f"ns/{any_world.pods[0].name}")
        running.stop(signal.SIGKILL)
    with run(any_world, policy) as running:  # the next daemon knows it too
        running.wait(lambda _: replicas.tend() >= 2, 30)
        assert actions(any_world.journal)[0].began_s >= until_s[0] - ABOUT_S
    printed = Counter(row["event"] for row in history_of(any_world) if "damaged or missing" in row["sentence"])
    assert printed["brakes_presumed"] >= 1
    assert printed["withheld"] >= 3


@pytest.mark.parametrize("loss", ["lock and journal", "lock, journal and all", "journal", "emptied", "replaced"])
def test_a_journal_lost_under_the_running_daemon_takes_nothing_from_the_brakes(any_world: Node, loss: str) -> None:
    """Point 31: what the daemon remembers is written again, which is reported, and the next daemon counts on."""
    replicas = Replicas(any_world, "web", 3)
    any_world.write()
    policy = braked(any_world, 'owner = "1 per 10m"')
    with run(any_world, policy) as running:
        running.wait(lambda _: replicas.tend() >= 1)
        running.wait(lambda d: d.metric("withheld_total", brake="owner") == 3)
        _lose_under_a_stopped_daemon(any_world, running, loss)
        running.wait(lambda d: any("were written to it again" in each["message"] for each in d.log()))
        running.wait_passes(3)
        assert replicas.tend() == 1
        assert running.metric("enforcing") == 1
        running.stop(signal.SIGKILL)
    with run(any_world, policy) as running:
        running.wait(lambda d: d.metric("withheld_total", brake="owner") == 3)
        running.wait_passes(2)
        assert replicas.tend() == 1
    assert "journal_restored" in {row["event"] for row in history_of(any_world)}


def _lose_under_a_stopped_daemon(world: Node, running: Daemon, how: str) -> None:
    """The same while the daemon can do nothing, not in the middle of a write of its own.

    Otherwise it could make a new journal while the rest of the old one is being removed, and lose that too.
    """
    is_lost = False
    for _ in range(20):
        running.process.send_signal(signal.SIGSTOP)
        with suppress(sqlite3.OperationalError):  # it is locked
            _lose_under_a_daemon(world, how)
            is_lost = True
        running.process.send_signal(signal.SIGCONT)
        if is_lost:
            break
        running.wait_passes(1)
    assert is_lost, "the daemon was in the middle of a write each time it was stopped"


def _lose_under_a_daemon(world: Node, how: str) -> None:
    """What happens to the journal, or to its lock as well, while a daemon has them open."""
    journal = world.journal
    if how == "emptied":
        with sqlite3.connect(journal) as connection:
            for table in ("begun", "action", "occurrence", "sqlite_sequence"):
                connection.execute(f"DELETE FROM {table}")
        connection.close()
    elif how == "replaced":
        other = journal.with_name("other.db")
        Journal.open(other, JournalLimits(), "n1").close()
        other.replace(journal)
    else:
        for suffix in {"journal": ("",), "lock and journal": (".lock", "")}.get(how, (".lock", "", "-wal", "-shm")):
            journal.with_name(journal.name + suffix).unlink()


def _lose(journal: Path, how: str) -> None:
    """What happens to a journal while no daemon runs; its lock stays."""
    if how == "damaged":
        journal.write_bytes(journal.read_bytes()[:4096] + b"\xff" * 8192)
        return
    for suffix in ("", "-wal", "-shm"):
        journal.with_name(journal.name + suffix).unlink(missing_ok=True)
    if how == "emptied":
        journal.touch()
