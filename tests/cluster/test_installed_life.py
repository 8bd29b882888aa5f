"""The life of an installation whose brakes hold: upgraded, rolled back, stopped, replayed, uninstalled."""

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Any, Final

import pytest

from tests.rig.cluster.installed import Installed, counted, image_of, is_daemon, wait_all_gone
from tests.rig.cluster.installed_policy import CAPACITY, KILL, policy_text
from tests.rig.cluster.node import NODE, Cluster
from tests.rig.cluster.real_pods import MEMORY, RealContainer, container, is_running, pod, wait_until
from tests.rig.cluster.workloads import DECLARED
from tests.stub import GIB
from watchdog.journal.schema import MIGRATIONS

pytestmark = [pytest.mark.node, pytest.mark.slow]

# One action is all that is allowed in an hour, by three brakes that each hold back one pod, and by a fourth.
BRAKES: Final = """
[brakes]
namespace = "1 per 1h"
node = "1 per 1h"
owner_backoff = { first = "1h", factor = 2, max = "2h" }
breaker = { offenders = "50%", of_at_least = 2, hold = "1h" }
"""
POLICY: Final = policy_text("enforce", {"tenants": KILL}, more=CAPACITY + BRAKES)
UNBRAKED: Final = policy_text("enforce", {"tenants": KILL})
HELD: Final = {"killed-once": "owner_backoff", "beside": "namespace", "elsewhere": "node"}
DONE: Final = {"action": "kill", "rule": "tenants", "result": "done"}


class Braked:
    """The installation, and three pods that are over, of which one was killed before the brakes held."""

    def __init__(self, watchdog: Installed, near: str, far: str) -> None:
        self.watchdog = watchdog
        self.rooms: Final = {"killed-once": near, "beside": near, "elsewhere": far}

    def start(self, name: str) -> None:
        """A pod that is over."""
        one = container("main", "term=ignore", f"gpu={2 * GIB}", memory=DECLARED)
        self.watchdog.cluster.pods.create(pod(name, one), self.rooms[name])

    def status(self) -> dict[str, Any]:
        """The daemon's status; empty while there is none."""
        try:
            return self.watchdog.status()
        except (OSError, ValueError, KeyError):
            return {}

    def held_back(self) -> dict[str, str]:
        """Which brake holds back which pod."""
        return {each["pod"]: each["withheld_by"] for each in self.status().get("plan", ())}

    def opened_at_s(self) -> float:
        """Since when the breaker is open, 0 while it is closed."""
        since = self.status()["breaker"]["since"]
        return datetime.fromisoformat(since).timestamp() if since else 0.0

    def containers(self) -> dict[str, list[RealContainer]]:
        """What runs of the tenants."""
        pods = self.watchdog.cluster.pods
        return {name: pods.containers(pods.wait(name, is_running, room)) for name, room in self.rooms.items()}

    def with_node_away(self, change: Callable[[], object]) -> None:
        """Take the node out of the DaemonSet until its daemon has ended, and change something there meanwhile."""
        cluster = self.watchdog.cluster
        cluster.kubectl("label", "node", NODE, "nvidia.com/gpu.present-")
        wait_until(lambda: not self.watchdog.pods(), "the DaemonSet has no pod")
        wait_until(lambda: not any(map(is_daemon, cluster.cgroups.members())), "the daemon has ended")
        change()

    def journal(self, *statements: str) -> int:
        """Run statements on the node's journal; the version of its tables then."""
        with closing(sqlite3.connect(self.watchdog.state / "journal.db")) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()
            return int(connection.execute("PRAGMA user_version").fetchone()[0])

    @contextmanager
    def exchanged(self) -> Iterator[None]:
        """Inside, the daemon is exchanged: every brake holds after it, open since the same time, and no pod is hit."""
        before, opened_s = self.containers(), self.opened_at_s()
        assert opened_s
        yield
        wait_until(lambda: self.held_back() == HELD, lambda: f"all are still held back: {self.held_back()}")
        assert abs(self.opened_at_s() - opened_s) <= 1  # it is in whole seconds, as a difference to now
        self.assert_untouched(before)

    def assert_untouched(self, before: dict[str, list[RealContainer]]) -> None:
        """The tenants' containers are those of before, also some seconds after the new daemon could have acted."""
        time.sleep(3)
        assert self.containers() == before
        assert self.watchdog.metric("actions_total", **DONE) == 0


@pytest.fixture(scope="module")
def braked(cluster: Cluster, watchdog: Installed) -> Iterator[Braked]:
    """After one kill a back-off, the windows of namespace and node, and the breaker hold."""
    found = Braked(watchdog, cluster.new_namespace("tenants"), cluster.new_namespace("tenants"))
    found.start("killed-once")
    wait_until(lambda: found.held_back() == {"killed-once": "owner_backoff"}, lambda: f"{found.held_back()}")
    found.start("beside")
    found.start("elsewhere")
    wait_until(lambda: found.held_back() == HELD, lambda: f"all are held back: {found.held_back()}")
    wait_until(lambda: found.opened_at_s() > 0, lambda: f"the breaker opens: {found.status()}"[:3000])
    yield found
    for room in set(found.rooms.values()):
        cluster.drop_namespace(room)


def test_upgrade_and_rollback_keep_the_brakes(braked: Braked) -> None:
    """Another image and back again: another pod each time and never two daemons; back-off, windows, breaker hold."""
    watchdog = braked.watchdog
    found = [watchdog.pod()]
    with counted(watchdog.cluster.cgroups) as seen:
        for change in (lambda: watchdog.install(POLICY, "--set-string", "image.tag=2"), watchdog.rollback):
            with braked.exchanged():
                change()
            found.append(watchdog.pod())
    assert [image_of(each) for each in found] == ["1", "2", "1"]
    assert len({each["metadata"]["uid"] for each in found}) == 3
    assert seen["most daemons"] == 1


def test_it_can_be_stopped_and_resumed_without_a_shell(braked: Braked) -> None:
    """`kubectl exec POD -- gpu-watchdog stop` turns enforcement off at once, `resume` on, where `sh` can't be run."""
    watchdog = braked.watchdog
    assert watchdog.execute("sh", "-c", "true")[0] != 0
    code, _, stderr = watchdog.ask("stop", "--why", "the breaker is open")
    assert (code, stderr, watchdog.status()["enforcing"]) == (0, "", False)
    assert "the breaker is open" in (watchdog.state / "stop").read_text(encoding="utf-8")
    code, _, stderr = watchdog.ask("resume")
    assert (code, stderr, (watchdog.state / "stop").exists()) == (0, "", False)
    watchdog.wait_enforcing()
    wait_until(lambda: braked.held_back() == HELD, lambda: f"the brakes hold after it: {braked.held_back()}")


def test_a_policy_is_tried_on_the_past_from_standard_input(braked: Braked) -> None:
    """`kubectl exec -i POD -- gpu-watchdog replay --policy - < file` names the pods it would have hit, or a mistake."""

    def replayed() -> str:
        code, reported, stderr = braked.watchdog.ask("replay", "--policy", "-", "--since", "1d", stdin=UNBRAKED)
        assert (code, stderr) == (0, "")
        return reported

    titles = {f"{room}/{name}" for name, room in braked.rooms.items()}
    wait_until(lambda: all(title in replayed() for title in titles), replayed, 60, pause_s=2)
    code, reported, stderr = braked.watchdog.ask("replay", "--policy", "-", stdin="mode = 1\n")
    assert (code, reported, "mode: " in stderr) == (1, "", True)


def test_an_older_journal_is_migrated(braked: Braked) -> None:
    """The migration that exists: tables without the node's past, which no release has written. The brakes hold."""

    def age() -> None:
        newer = "\n".join(MIGRATIONS[2:])
        tables = (f"DROP TABLE {each}" for each in re.findall(r"CREATE TABLE (\w+)", newer))
        columns = (
            f"ALTER TABLE {table} DROP COLUMN {column}"
            for table, column in re.findall(r"ALTER TABLE (\w+) ADD COLUMN (\w+)", newer)
        )
        assert braked.journal(*tables, *columns, "PRAGMA user_version = 2") == 2

    with braked.exchanged():
        braked.with_node_away(age)
        braked.watchdog.install(POLICY)
    assert braked.journal() == len(MIGRATIONS)


def test_an_older_program_leaves_a_newer_journal_alone(braked: Braked) -> None:
    """After a rollback behind a change of the tables it only observes, and reports why; no pod is hit."""
    watchdog, before, newer = braked.watchdog, braked.containers(), len(MIGRATIONS) + 1
    braked.with_node_away(lambda: braked.journal(f"PRAGMA user_version = {newer}"))
    watchdog.cluster.kubectl("label", "node", NODE, "nvidia.com/gpu.present=true")
    wait_until(lambda: len(watchdog.pods()) == 1, "the DaemonSet has a pod again")
    wait_until(lambda: "journal" in str(braked.status().get("suspended")), lambda: f"{braked.status()}"[:2000])
    assert not braked.status()["enforcing"]
    wait_until(lambda: braked.held_back().keys() == HELD.keys(), lambda: f"all are due: {braked.held_back()}")
    braked.assert_untouched(before)
    assert braked.journal() == newer


def test_uninstall_leaves_nothing_behind(braked: Braked) -> None:
    """No object of the release in the cluster, no capacity on the node, no process; tenants' pods run on."""
    watchdog, before = braked.watchdog, braked.containers()
    watchdog.uninstall()
    assert MEMORY not in watchdog.cluster.node()["status"]["capacity"]
    wait_until(lambda: MEMORY not in watchdog.cluster.node()["status"]["allocatable"], "allocatable follows")
    wait_all_gone(watchdog.cluster)
    assert not watchdog.is_listed()
    assert braked.containers() == before
    # The journal is the operator's: docs/operations.md says how to remove it.
    assert (watchdog.state / "journal.db").is_file()
