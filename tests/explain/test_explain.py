"""`explain` as a whole: by a daemon that answers, else by the journal, else by nobody."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.export.build import Story, climbing, entry, hostile_pod, killed, outcome, policy, quiet, trainer
from tests.rig.command import free_port
from tests.test_ask import answering, http
from tests.worlds import Gi, at, container, process, rule, snapshot, step, use
from watchdog.cli import main
from watchdog.core.brakes import Begun
from watchdog.core.model import PodList, ProcessKey
from watchdog.core.plan import CycleReport, Result
from watchdog.core.policy import Brakes, Breaker, JournalLimits
from watchdog.explain import UnexplainedError, explain_pod
from watchdog.explain.found import Explanation
from watchdog.explain.unknown import near_misses
from watchdog.export.board import Board
from watchdog.export.http import HttpServer
from watchdog.export.journal import Journal
from watchdog.export.metrics import Metrics
from watchdog.export.status import status_document
from watchdog.past.recorder import Recorder

NOW_S = at(40).wall_s
KEYS = tuple(ProcessKey(pid=pid, start_ticks=pid * 10) for pid in (101, 102, 103))


@dataclass
class Site:
    """A daemon's endpoints, its journal, and who asks."""

    board: Board
    url: str
    journal: Path

    def explain(self, pod: str = "a/trainer", url: str | None = "") -> Explanation:
        """Ask this daemon, another address, or (None) the journal alone."""
        return explain_pod(pod, self.url if url == "" else url, self.journal, NOW_S)

    def text(self, pod: str = "a/trainer", url: str | None = "") -> str:
        """The explanation as one line."""
        return " ".join(" ".join(self.explain(pod, url).lines(100)).split())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    board = Board(Metrics(), 1.0)
    server = HttpServer("127.0.0.1:0", board)
    server.start()
    yield Site(board=board, url=f"http://127.0.0.1:{server.port}", journal=tmp_path / "journal.db")
    server.close()


def write(path: Path, *reports: CycleReport, node: str = "n1", deed: bool = False) -> None:
    """A journal with what is new in these reports, and with one deed in the middle of them."""
    journal = Journal.open(path, JournalLimits(), node)
    number = journal.intend(entry(), KEYS, at(31)) if deed else 0
    if deed:
        journal.signalled(number, at(31), "SIGTERM", KEYS)
        journal.end(number, Result.DONE, "", at(32))
        journal.released(number, at(32), 0.8, "")
    for report in reports:
        journal.record(report)
    journal.close()


def after_the_kill() -> CycleReport:
    """The pass in which a kill has ended."""
    return replace(climbing(31), outcomes=(killed(release_s=0.8),))


def test_by_the_daemon_with_what_was_done_before(site: Site) -> None:
    """How the pod stands comes from the daemon, what was done to it from the journal, in words for its owner."""
    write(site.journal, after_the_kill(), deed=True)
    site.board.publish(quiet())
    text = site.text()
    assert text.startswith("Pod a/trainer on node n1, 2027-01-15 08:00:00 UTC Pod a/trainer uses 4Gi of GPU memory.")
    assert (
        "Questions: ask gpu-team@example.org. What was decided and done in the last 7 days, from the journal: - "
        in text
    )
    assert "- 2027-01-15 08:00:31 UTC: The watchdog killed 3 processes of container main (pod a/trainer)" in text
    assert "SIGTERM to 3 processes" not in text, "single signals and PIDs are nothing for an owner"
    assert "ended as done" not in text, "the explanation says it in full"


def test_the_json_has_the_same(site: Site) -> None:
    """`--json` gives the accounts and the plan as the daemon has them, the sentences, and the journal's rows."""
    write(site.journal, after_the_kill(), deed=True)
    site.board.publish(climbing(9))
    found = site.explain().document
    assert list(found) == ["namespace", "pod", "node", "source", "at", "accounts", "plan", "sentences", "history"]
    assert (found["namespace"], found["pod"], found["node"], found["source"]) == ("a", "trainer", "n1", "daemon")
    assert found["at"] == "2027-01-15T08:00:09.000Z"
    assert found["accounts"][0]["ladder"][1]["counted_s"] == 9
    assert [each["do"] for each in found["plan"]] == ["kill", "warn"]
    assert "Pod a/trainer uses 12.4Gi of GPU memory." in found["sentences"]
    assert [each["event"] for each in found["history"]] == ["explained"]
    assert json.loads(json.dumps(found)) == found


def test_by_the_journal_where_no_daemon_answers(site: Site) -> None:
    """A daemon that is down is said, and what is told is dated."""
    write(site.journal, after_the_kill(), deed=True)
    text = site.text(url=f"http://127.0.0.1:{free_port()}")
    assert "The daemon does not answer at http://127.0.0.1:" in text
    assert "/api/status: Connection refused; this is from the journal, as of 08:00:32 UTC. While no daemon runs" in text
    assert "At 08:00:31 UTC, when the journal of node n1 last mentioned it, pod a/trainer used 12.4Gi of GPU" in text
    assert "and might use 10.2Gi: 8Gi declared by veriff.com/gpu-memory, and 2.2Gi on top for what the" in text
    assert "The rule for it was notebooks, and this was about its mark above 110% for 10s." in text
    assert site.explain(url=f"http://127.0.0.1:{free_port()}").document["source"] == "journal"


def test_what_happened_comes_first(site: Site) -> None:
    """Whoever asks about a pod that is gone reads that it was killed, when, what for and how, before all else."""
    write(site.journal, after_the_kill(), deed=True)
    first, source, *_ = site.explain(url=None).paragraphs
    assert " ".join(first) == (
        "It was killed at 08:00:31 UTC (container main): it used 12.4Gi of GPU memory, 10.2Gi were allowed, and rule "
        "notebooks kills above 110% for 10s. Its processes got SIGTERM at 08:00:31 UTC. Its memory was seen free at "
        "08:00:32 UTC."
    )
    assert "this is from the journal" in " ".join(source)
    site.board.publish(Story(pods=()).see(snapshot()))
    assert site.explain().paragraphs[0] == first


STOPPED = "enforcement was withdrawn in the grace period"


def half_killed(path: Path, result: Result, reason: str, *signals: str) -> None:
    """A journal with a kill that got as far as these signals, one a second."""
    journal = Journal.open(path, JournalLimits(), "n1")
    number = journal.intend(entry(), KEYS, at(31))
    for second, name in enumerate(signals):
        journal.signalled(number, at(31 + second), name, KEYS)
    journal.end(number, result, reason, at(35))
    journal.close()


def test_a_kill_that_was_interrupted_is_told_with_its_signals(site: Site) -> None:
    """The stop file in a grace period: that SIGTERM was sent and SIGKILL was not is said, with the time and why."""
    half_killed(site.journal, Result.INTERRUPTED, STOPPED, "SIGTERM")
    says = (
        "Of that kill: it was interrupted. Its processes got SIGTERM at 08:00:31 UTC, and no SIGKILL was sent: "
        f"{STOPPED}."
    )
    assert says in site.text(url=None)
    assert site.text(url=None).count("A kill of it was begun at 08:00:31 UTC (container main)") == 1
    site.board.publish(quiet(40))
    assert says in site.text()
    assert "ended as" not in site.text()


def test_a_kill_that_failed_is_told_with_its_signals(site: Site) -> None:
    """Both signals have their time."""
    half_killed(site.journal, Result.FAILED, "1 processes did not end", "SIGTERM", "SIGKILL")
    text = site.text(url=None)
    assert (
        "it failed. Its processes got SIGTERM at 08:00:31 UTC and SIGKILL at 08:00:32 UTC: 1 processes did not" in text
    )


def test_the_open_breaker_of_the_node_is_said(site: Site) -> None:
    """Where the breaker holds everybody back, whoever asks about anybody reads since when and until when."""
    report = quiet(60, policy=policy(brakes=Brakes(breaker=Breaker(hold_s=600))))
    brakes = replace(report.plan.ledger.brakes, opened=Begun(at(10).boottime_s))
    ledger = replace(report.plan.ledger, brakes=brakes)
    site.board.publish(replace(report, plan=replace(report.plan, ledger=ledger)))
    assert (
        "The breaker of this node is open since 08:00:10 UTC, because so many workloads were over at once: until "
        "08:10:10 UTC nobody is killed or evicted, and then one at a time." in site.text()
    )


def test_a_daemon_that_is_stopped_is_no_pod_that_is_unknown(site: Site) -> None:
    """Of a pod that nothing was ever decided about: that nobody is acted on now, what to do, and what it used."""
    journal, recorder = Journal.open(site.journal, JournalLimits(), "n1"), Recorder()
    for second in range(3):
        recorder.record(quiet(second), journal)
    recorder.end(journal)
    journal.close()
    with pytest.raises(UnexplainedError) as error:
        site.explain(url=f"http://127.0.0.1:{free_port()}")
    text = str(error.value)
    assert text.startswith("nothing was decided about pod a/trainer\n")
    assert "when the daemon last recorded the node, at 08:00:02 UTC, a/trainer used 4Gi of GPU memory" in text
    assert (
        "while no daemon runs on a node nobody is acted on there: start it (`gpu-watchdog run`), or look once" in text
    )
    with pytest.raises(UnexplainedError) as error:
        site.explain("a/other", url=f"http://127.0.0.1:{free_port()}")
    assert str(error.value).startswith("nothing is known of pod a/other\n")


def test_the_journal_alone(site: Site) -> None:
    """Without a daemon to ask, as for the journal of a node that is gone, that is not told as a failure."""
    write(site.journal, after_the_kill())
    text = site.text(url=None)
    assert "No daemon was asked (--journal); --url asks one; this is from the journal, as of 08:00:31 UTC." in text
    assert "does not answer" not in text


def test_a_pod_that_has_gone(site: Site) -> None:
    """A pod that was killed and is no more is not known to the daemon; the journal still explains it."""
    write(site.journal, after_the_kill())
    site.board.publish(Story(pods=()).see(snapshot()))
    text = site.text()
    assert "The daemon of node n1 knew of no GPU memory of pod a/trainer at 08:00:00 UTC; this is from the" in text
    assert "The watchdog killed 3 processes of container main" in text


def test_the_journal_of_another_node_has_no_part_in_it(site: Site) -> None:
    """Asked from elsewhere, the journal that lies here says nothing about the pod of that node."""
    write(site.journal, after_the_kill(), node="elsewhere")
    site.board.publish(quiet())
    assert site.explain().past == ()


def test_without_a_journal_the_daemon_is_enough(site: Site) -> None:
    """What can't be read is not silently left out: the explanation says so on the side."""
    site.board.publish(quiet())
    found = site.explain()
    assert found.past == ()
    assert "there is no journal" in found.no_past


def test_what_holds_for_the_whole_node_is_said(site: Site) -> None:
    """That nothing is enforced here is said with its remedy; that the pod list is stale, with its age."""
    site.board.publish(quiet(enforcing=False, suspended=("stop_file",)))
    assert "kills and evicts nobody on this node, although it should: the file `stop` beside the journal" in site.text()
    site.board.publish(quiet(enforcing=False, suspended=("node_annotation",)))
    text = site.text()
    assert "`kubectl annotate node n1 gpu-memory-watchdog/mode-` takes it away" in text
    assert text.index("kills and evicts nobody") < text.index("Pod a/trainer uses"), "what does not come, comes last"
    site.board.publish(quiet(enforcing=False))
    assert "The watchdog only observes on this node: it works everything out and records it, and does" in site.text()
    site.board.publish(quiet(pods=PodList(pods=(trainer(),), synced=at(-300))))
    assert "is out of date, last true at 07:55:00 UTC: until it is read anew no time counts, and nobody" in site.text()


def test_each_account_has_its_paragraphs(site: Site) -> None:
    """A pod whose containers stand by themselves is explained container by container."""
    two = trainer(containers=(container("main", "8Gi", of="u1"), container("side", "1Gi", of="u1")))
    under = policy(rule(step("100%", 5), name="r", account="container"))
    seen = snapshot([use(1, 4 * Gi), use(2, 5 * Gi)], [process(1, "u1/main"), process(2, "u1/side")])
    site.board.publish(Story(under=under, pods=(two,)).see(seen))
    text = site.text()
    assert "Container main of pod a/trainer uses 4Gi of GPU memory." in text
    assert "Container side of pod a/trainer uses 5Gi of GPU memory." in text
    assert text.index("all processes of container side will be killed in 5s") > text.index("Container side")


def test_a_pod_that_nobody_knows(site: Site) -> None:
    """The error says what was asked, why that may be, and which pods may have been meant."""
    write(site.journal, after_the_kill())
    site.board.publish(Story(pods=(trainer(namespace="b", uid="u2"),)).see(snapshot([use(5, Gi)], [process(5, "x/y")])))
    with pytest.raises(UnexplainedError) as error:
        site.explain("c/trainer")
    text = str(error.value)
    assert text.startswith("nothing is known of pod c/trainer\n  the daemon of node n1 knew of no GPU memory of pod c/")
    assert "it may be on another node, or it neither uses GPU memory nor declares any" in text
    assert "processes of pods that the pod list does not have use GPU memory here: it may be one of them" in text
    assert text.endswith("did you mean a/trainer or b/trainer?")


def test_neither_a_daemon_nor_a_journal(site: Site) -> None:
    """Where nothing can be asked both reasons are given, each with its place."""
    with pytest.raises(UnexplainedError) as error:
        site.explain(url=f"http://127.0.0.1:{free_port()}")
    assert "does not answer at http://127.0.0.1:" in str(error.value)
    assert f"there is no journal {site.journal}" in str(error.value)


@pytest.mark.parametrize(
    ("pod", "known", "misses"),
    [
        ("a/web", ["b/web", "a/wep", "x/y"], ["b/web", "a/wep"]),
        ("a/web-1", ["a/web-2", "a/web-3", "a/web-4", "a/web-5"], ["a/web-5", "a/web-4", "a/web-3"]),
        ("a/web", ["far/away"], []),
        ("a/web", [], []),
    ],
)
def test_near_misses(pod: str, known: list[str], misses: list[str]) -> None:
    """The same name in another namespace comes first, then what is written much alike; three at most."""
    assert near_misses(pod, known) == misses


def test_hostile_names_are_inert(site: Site) -> None:
    """What a tenant calls things can't speak to the terminal of whoever asks."""
    pod = hostile_pod()
    seen = snapshot([use(5, 2 * Gi)], [process(5, "evil/c\x07\r", name="\x1b]0;x")])
    site.board.publish(Story(pods=(pod,)).see(seen))
    found = site.explain(f"{pod.namespace}/{pod.name}")
    assert all(line.isprintable() for line in found.lines(100))
    with pytest.raises(UnexplainedError) as error:
        site.explain("a/\x1b[2J")
    assert "\x1b" not in str(error.value)


def test_a_pod_that_came_back_is_another_one(tmp_path: Path) -> None:
    """The journal's account is of the last pod of that name, not of one that had the name before."""
    second = Story(pods=(trainer(uid="u9", containers=(container("main", "1Gi", of="u9"),)),))
    first = Story(under=policy(rule(step("100%", 0, "warn"), name="r", account="container"))).run(12.4, 3)
    warned = replace(first, outcomes=(outcome(first.plan.entries[0]),))
    seen = snapshot([use(7, 5 * Gi)], [process(7, "u9/main")], second=35)
    later = second.see(seen)
    again = replace(later, outcomes=(replace(outcome(later.plan.entries[0], Result.OBSERVED), at=at(35)),))
    write(tmp_path / "j.db", warned, again)
    found = explain_pod("a/trainer", None, tmp_path / "j.db", NOW_S)
    assert [(each["uid"], each["used"]) for each in found.accounts] == [("u9", 5 * Gi)]


def test_a_kills_victim_is_no_account_of_its_own(tmp_path: Path) -> None:
    """In the account of a whole pod the journal names the victim's container; what is explained is the pod."""
    write(tmp_path / "j.db", deed=True)
    (account,) = explain_pod("a/trainer", None, tmp_path / "j.db", NOW_S).accounts
    assert (account["container"], account["mark"], account["at"]) == (
        None,
        "above 110% for 10s",
        "2027-01-15T08:00:31.000Z",
    )


def test_the_account_of_a_container_is_one(tmp_path: Path) -> None:
    """Where each container has its own account the journal tells of the container."""
    under = policy(rule(step("100%", 0, "warn"), name="r", account="container"))
    report = Story(under=under).run(12.4, 3)
    write(tmp_path / "j.db", replace(report, outcomes=(replace(outcome(report.plan.entries[0]), at=at(35)),)))
    found = explain_pod("a/trainer", None, tmp_path / "j.db", NOW_S)
    assert [each["container"] for each in found.accounts] == ["main"]
    assert "container main of pod a/trainer used 12.4Gi" in " ".join(found.document["sentences"])


def test_only_the_last_occurrences_are_told(tmp_path: Path) -> None:
    """A pod that is warned all day has a short answer still."""
    journal = Journal.open(tmp_path / "j.db", JournalLimits(), "n1")
    for second in range(30, 60):
        report = replace(climbing(9), outcomes=(outcome(entry(climbing(9), "warn"), at=at(second)),))
        journal.record(report)
    journal.close()
    past = explain_pod("a/trainer", None, tmp_path / "j.db", NOW_S).past
    assert [row.wall_s for row in past] == [at(second).wall_s for second in range(50, 60)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["trainer"], "give NAMESPACE/NAME"),
        (["a/"], "give NAMESPACE/NAME"),
        (["a/b/c"], "give NAMESPACE/NAME"),
        (["a/b", "--url", "n1:9837"], "write http://HOST:PORT"),
        (["a/b", "--listen", "9837"], "write ADDR:PORT"),
        ([], "Missing argument"),
    ],
)
def test_wrong_use_is_said(arguments: list[str], says: str) -> None:
    """What can't be meant is refused with exit code 2 before anything is asked."""
    done = CliRunner().invoke(main, ["explain", *arguments])
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())


def test_a_journal_on_the_command_line_is_read_alone(site: Site) -> None:
    """Whoever names a journal alone means that one: no daemon is asked about another node's pod, and that is said."""
    site.board.publish(quiet())
    listen = site.url.removeprefix("http://")
    by_environment = {"GPU_WATCHDOG_LISTEN": listen}
    named = CliRunner().invoke(main, ["explain", "a/trainer", "--journal", str(site.journal)], env=by_environment)
    assert (named.exit_code, "there is no journal" in named.output) == (1, True)
    assert "no daemon was asked (--journal); --url asks one" in named.output
    beside = ["explain", "a/trainer", "--listen", listen, "--journal", str(site.journal)]
    asked = CliRunner().invoke(main, beside)
    assert asked.exit_code == 0, "an address on the command line means the daemon there"
    assert "Pod a/trainer uses 4Gi of GPU memory." in " ".join(asked.output.split())
    by_environment = {"GPU_WATCHDOG_JOURNAL": str(site.journal), "GPU_WATCHDOG_LISTEN": listen}
    asked = CliRunner().invoke(main, ["explain", "a/trainer"], env=by_environment)
    assert asked.exit_code == 0
    assert "Pod a/trainer uses 4Gi of GPU memory." in " ".join(asked.output.split())
    both = ["explain", "a/trainer", "--json", "--url", site.url, "--journal", str(site.journal)]
    assert CliRunner().invoke(main, both).exit_code == 0


def test_a_status_of_another_kind_is_refused(tmp_path: Path) -> None:
    """A status whose numbers are none ends in a clear error, not in a sentence made of them."""
    status = status_document(quiet())
    status["accounts"][0]["used"] = "4Gi"
    with answering(http(json.dumps(status).encode())) as (url, _), pytest.raises(UnexplainedError) as error:
        explain_pod("a/trainer", url, tmp_path / "j.db", NOW_S)
    says = "is no gpu-watchdog of this kind: accounts[0].used of its status is not a whole number"
    assert str(error.value) == f"what answers at {url} {says}"
