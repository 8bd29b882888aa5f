"""`explain` by the journal, if no daemon answers or none is queried; and for a pod of which nothing is known."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.explain_site import NOW_S, Site, after_the_kill, write
from tests.ports import free_port
from tests.report.build import Story, climbing, entry, hostile_pod, outcome, policy, quiet, trainer
from tests.worlds import Gi, at, container, process, rule, snapshot, step, use
from watchdog.cli.client import inside
from watchdog.cli.explain import explain_pod, near_misses
from watchdog.core.plan import Result
from watchdog.core.policy import JournalLimits
from watchdog.journal.journal import Journal
from watchdog.journal.recorder import Recorder

BY_CONTAINER = policy(rule(step("100%", 0, "warn"), name="r", account="container"))


def test_where_no_daemon_answers(site: Site) -> None:
    """The last action comes first, then the source with its date; without a daemon to ask, nothing has failed."""
    write(site.journal, after_the_kill(), action=True)
    found = site.explain(url=f"http://127.0.0.1:{free_port()}")
    first, source, account, *_ = found.paragraphs
    assert first[0].startswith("It was killed at 08:00:31 UTC (container main)")
    assert source[0].endswith("Connection refused; this is from the journal, as of 08:00:32 UTC.")
    assert account[-1] == 'Rule "notebooks" applied to it (step: above 110% for 10s).'
    assert any(inside("explain", "a/trainer") in line for line in found.lines(100))
    assert found.document["source"] == "journal"
    alone = site.explain(url=None)
    assert (alone.paragraphs[0], alone.hints) == (first, ())
    assert "does not answer" not in site.text(url=None)
    site.endpoints.publish(Story(pods=()).see(snapshot()))
    assert site.explain().paragraphs[0] == first
    assert "node n1 knew of no GPU memory" in site.text(), "a pod that is gone is not known to the daemon"


def test_a_pod_that_came_back_is_another_one(tmp_path: Path) -> None:
    """The journal's account is of the last pod of that name, not of one that had the name before."""
    second = Story(pods=(trainer(uid="u9", containers=(container("main", "1Gi", of="u9"),)),))
    first = Story(under=BY_CONTAINER).run(12.4, 3)
    warned = replace(first, outcomes=(outcome(first.plan.entries[0]),))
    later = second.see(snapshot([use(7, 5 * Gi)], [process(7, "u9/main")], second=35))
    again = replace(later, outcomes=(replace(outcome(later.plan.entries[0], Result.OBSERVED), at=at(35)),))
    write(tmp_path / "j.db", warned, again)
    found = explain_pod("a/trainer", None, tmp_path / "j.db", NOW_S)
    assert [(each["uid"], each["used"]) for each in found.accounts] == [("u9", 5 * Gi)]


def test_accounts_of_a_pod_and_of_a_container(tmp_path: Path) -> None:
    """A kill's victim in the account of a whole pod is no account of its own; a container's account is one."""
    write(tmp_path / "pod.db", action=True)
    (account,) = explain_pod("a/trainer", None, tmp_path / "pod.db", NOW_S).accounts
    assert (account["container"], account["threshold"]) == (None, "above 110% for 10s")
    assert account["at"] == "2027-01-15T08:00:31.000Z"
    report = Story(under=BY_CONTAINER).run(12.4, 3)
    write(tmp_path / "own.db", replace(report, outcomes=(replace(outcome(report.plan.entries[0]), at=at(35)),)))
    found = explain_pod("a/trainer", None, tmp_path / "own.db", NOW_S)
    assert [each["container"] for each in found.accounts] == ["main"]


def test_only_the_last_occurrences_are_listed(tmp_path: Path) -> None:
    """A pod that is warned all day still has a short answer."""
    warned = entry(climbing(5), "warn")
    seconds = range(600, 18600, 600)
    write(tmp_path / "j.db", *(replace(climbing(9), at=at(n), outcomes=(outcome(warned, at=at(n)),)) for n in seconds))
    past = explain_pod("a/trainer", None, tmp_path / "j.db", at(18600).wall_s).past
    assert [row.wall_s for row in past] == [at(second).wall_s for second in seconds[-10:]]


def test_a_stopped_daemon_is_not_an_unknown_pod(site: Site) -> None:
    """For a pod without any decision: where to query, and what it used in the last recorded cycle."""
    recorder = Recorder()
    with closing(Journal.open(site.journal, JournalLimits(), "n1")) as journal:
        for second in range(3):
            recorder.record(quiet(second), journal)
        recorder.end(journal)
    text = site.refusal(url=f"http://127.0.0.1:{free_port()}")
    assert text.startswith("nothing was decided about pod a/trainer\n")
    assert "at 08:00:02 UTC, a/trainer used 4Gi" in text
    assert "\n    kubectl -n gpu-memory-watchdog get pods -o wide\n" in text
    assert "\n    kubectl -n gpu-memory-watchdog exec POD -- gpu-watchdog explain a/trainer\n" in text
    other = site.refusal("a/other", url=f"http://127.0.0.1:{free_port()}")
    assert other.startswith("nothing is known about pod a/other\n")


def test_an_unknown_pod(site: Site) -> None:
    """The error has the query, the possible reasons, and similar pods."""
    write(site.journal, after_the_kill())
    site.endpoints.publish(
        Story(pods=(trainer(namespace="b", uid="u2"),)).see(snapshot([use(5, Gi)], [process(5, "x/y")]))
    )
    text = site.refusal("c/trainer")
    assert all(words in text for words in ("pod c/trainer", "another node", "one of them"))
    assert text.endswith("a/trainer or b/trainer?")


def test_neither_a_daemon_nor_a_journal(site: Site) -> None:
    """If neither can be read both reasons are given, each with its place."""
    text = site.refusal(url=f"http://127.0.0.1:{free_port()}")
    assert ("does not answer" in text, f"there is no journal {site.journal}" in text) == (True, True)


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
    """A tenant's names bring no control codes to the terminal."""
    pod = hostile_pod()
    seen = snapshot([use(5, 2 * Gi)], [process(5, "evil/c\x07\r", name="\x1b]0;x")])
    site.endpoints.publish(Story(pods=(pod,)).see(seen))
    found = site.explain(f"{pod.namespace}/{pod.name}")
    assert all(line.isprintable() for line in found.lines(100))
    assert "\x1b" not in site.refusal("a/\x1b[2J")
