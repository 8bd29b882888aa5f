"""Brakes that hold while the program is exchanged, and what an operator does then, in the image that has no shell."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from typing import Any, Final

import pytest

from tests.cluster.installed import Installed
from tests.cluster.installed_fixtures import installed
from tests.cluster.installed_policy import CAPACITY, KILL, policy_text
from tests.cluster.node import NODE, Cluster
from tests.cluster.real_pods import MEMORY, RealContainer, container, is_running, pod, wait_until
from tests.cluster.test_installed_life import image_of, is_daemon
from tests.cluster.workloads import DECLARED
from tests.stub import GIB
from watchdog.journal.schema import MIGRATIONS

pytestmark = [pytest.mark.node, pytest.mark.slow]

# One action is all that is allowed in an hour, by three brakes that each have somebody to hold back, and by a fourth.
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


class Braked:
    """The installation, and three pods that are over, of which one was killed before the brakes held."""

    def __init__(self, watchdog: Installed, rooms: tuple[str, str]) -> None:
        self.watchdog = watchdog
        near, far = rooms
        self.rooms: Final = {"killed-once": near, "beside": near, "elsewhere": far}

    def start(self, name: str) -> None:
        """A pod that is over."""
        one = container("main", "term=ignore", f"gpu={2 * GIB}", memory=DECLARED)
        self.watchdog.cluster.pods.create(pod(name, one), self.rooms[name])

    def status(self) -> dict[str, Any]:
        """What the daemon says; nothing while there is none."""
        try:
            return self.watchdog.status()
        except (OSError, ValueError, KeyError):
            return {}

    def held_back(self) -> dict[str, str]:
        """Which brake holds back which pod."""
        return {each["pod"]: each["withheld_by"] for each in self.status().get("plan", ())}

    def opened_at(self) -> datetime | None:
        """Since when the breaker is open; None: it is closed."""
        since = self.status()["breaker"]["since"]
        return datetime.fromisoformat(since) if since else None

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

    def assert_nobody_was_hit(self, before: dict[str, list[RealContainer]]) -> None:
        """The tenants' containers are those of before, also some seconds after the new daemon could have acted."""
        time.sleep(3)
        assert self.containers() == before
        assert self.watchdog.metric("actions_total", action="kill", rule="tenants", result="done") == 0


@pytest.fixture(scope="module")
def braked(cluster: Cluster, watchdog_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Braked]:
    """Installed, and after one kill a back-off, the windows of namespace and node, and the breaker hold."""
    rooms = (cluster.new_namespace("tenants"), cluster.new_namespace("tenants"))
    with installed(cluster, tmp_path_factory.mktemp("installed")) as made:
        made.install(POLICY)
        made.wait_enforcing()
        wait_until(lambda: made.capacity(MEMORY, "allocatable") > 0, "the node offers GPU memory")
        found = Braked(made, rooms)
        found.start("killed-once")
        wait_until(lambda: found.held_back() == {"killed-once": "owner_backoff"}, lambda: f"{found.held_back()}")
        found.start("beside")
        found.start("elsewhere")
        wait_until(lambda: found.held_back() == HELD, lambda: f"all are held back: {found.held_back()}")
        wait_until(lambda: found.opened_at() is not None, lambda: f"the breaker opens: {found.status()}"[:3000])
        yield found
    for room in rooms:
        cluster.drop_namespace(room)


def test_an_upgrade_in_the_middle_of_them_forgets_none(braked: Braked) -> None:
    """Back-off, windows and breaker hold in the next pod by another image; the breaker is open since the same time."""
    watchdog, before, opened = braked.watchdog, braked.containers(), braked.opened_at()
    assert opened is not None
    watchdog.install(POLICY, "--set-string", "image.tag=2")
    assert image_of(watchdog.pod()) == "2"
    wait_until(lambda: braked.held_back() == HELD, lambda: f"all are held back still: {braked.held_back()}")
    since = braked.opened_at()
    assert since is not None
    # It is told in whole seconds, as a difference to now.
    assert abs((since - opened).total_seconds()) <= 1
    braked.assert_nobody_was_hit(before)


def test_it_can_be_stopped_and_resumed_without_a_shell(braked: Braked) -> None:
    """`kubectl exec POD -- gpu-watchdog stop` turns enforcement off at once, `resume` on, where `sh` can't be run."""
    watchdog = braked.watchdog
    assert watchdog.execute("sh", "-c", "true")[0] != 0
    code, said, stderr = watchdog.ask("stop", "--why", "the breaker is open")
    assert (code, stderr) == (0, "")
    assert said.startswith("Stopped: ")
    print(f"\n{said}")
    assert not watchdog.status()["enforcing"]
    assert "the breaker is open" in (watchdog.state / "stop").read_text(encoding="utf-8")
    code, said, stderr = watchdog.ask("resume")
    assert (code, stderr) == (0, "")
    print(said)
    assert not (watchdog.state / "stop").exists()
    watchdog.wait_enforcing()
    wait_until(lambda: braked.held_back() == HELD, lambda: f"the brakes hold after it: {braked.held_back()}")


def test_a_mended_policy_is_tried_on_the_past_from_standard_input(braked: Braked) -> None:
    """`kubectl exec -i POD -- gpu-watchdog replay --policy - < file`: whom it would have hit; a mistake is named."""

    def told() -> str:
        code, said, stderr = braked.watchdog.ask("replay", "--policy", "-", "--since", "1d", stdin=UNBRAKED)
        assert (code, stderr) == (0, "")
        return said

    titles = {f"{room}/{name}" for name, room in braked.rooms.items()}
    wait_until(lambda: all(title in told() for title in titles), told, 60, pause_s=2)
    print(f"\n{told()}")
    assert "kill 1 process of container main" in told()
    code, said, stderr = braked.watchdog.ask("replay", "--policy", "-", stdin="mode = 1\n")
    assert (code, said) == (1, "")
    assert "mode: " in stderr


def test_a_journal_with_the_tables_of_before_is_taken_on(braked: Braked) -> None:
    """The migration that there is: tables without the node's past, which no release has written. The brakes hold."""
    before, opened = braked.containers(), braked.opened_at()
    assert opened is not None

    def age() -> None:
        tables = ("DROP TABLE past", "DROP TABLE past_span", "ALTER TABLE occurrence DROP COLUMN account")
        assert braked.journal(*tables, "PRAGMA user_version = 2") == 2

    braked.with_node_away(age)
    braked.watchdog.install(POLICY)
    wait_until(lambda: braked.held_back() == HELD, lambda: f"all are held back still: {braked.held_back()}")
    since = braked.opened_at()
    assert since is not None
    assert abs((since - opened).total_seconds()) <= 1
    braked.assert_nobody_was_hit(before)
    assert braked.journal() == len(MIGRATIONS)


def test_an_older_program_leaves_a_newer_journal_alone(braked: Braked) -> None:
    """A rollback behind a change of the tables: told to enforce it only observes, and says why; nobody is hit."""
    watchdog, before, newer = braked.watchdog, braked.containers(), len(MIGRATIONS) + 1
    braked.with_node_away(lambda: braked.journal(f"PRAGMA user_version = {newer}"))
    watchdog.cluster.kubectl("label", "node", NODE, "nvidia.com/gpu.present=true")
    wait_until(lambda: len(watchdog.pods()) == 1, "the DaemonSet has a pod again")
    wait_until(lambda: "journal" in str(braked.status().get("suspended")), lambda: f"{braked.status()}"[:2000])
    assert not braked.status()["enforcing"]
    wait_until(lambda: braked.held_back().keys() == HELD.keys(), lambda: f"all are due: {braked.held_back()}")
    braked.assert_nobody_was_hit(before)
    assert "written by a newer gpu-watchdog" in watchdog.get("/readyz")[1] + str(watchdog.log())
    assert braked.journal() == newer
