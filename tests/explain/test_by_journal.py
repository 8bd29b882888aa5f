"""`explain` by the journal, where no daemon answers or none is asked."""

from dataclasses import replace
from pathlib import Path

from tests.explain.site import NOW_S, Site, after_the_kill, write
from tests.export.build import Story, climbing, entry, outcome, policy, record, trainer
from tests.ports import free_port
from tests.worlds import Gi, at, container, process, rule, snapshot, step, use
from watchdog.cli.explain import explain_pod
from watchdog.core.plan import Result
from watchdog.core.policy import JournalLimits
from watchdog.journal.journal import Journal


def test_by_the_journal_where_no_daemon_answers(site: Site) -> None:
    """A daemon that is down is said, and what is told is dated."""
    write(site.journal, after_the_kill(), action=True)
    text = site.text(url=f"http://127.0.0.1:{free_port()}")
    assert "Connection refused; this is from the journal, as of 08:00:32 UTC." in text
    assert "exec POD -- gpu-watchdog explain a/trainer" in text
    assert 'Rule "notebooks" applied to it (step: above 110% for 10s).' in text
    assert site.explain(url=f"http://127.0.0.1:{free_port()}").document["source"] == "journal"


def test_what_happened_comes_first(site: Site) -> None:
    """Whoever asks about a pod that is gone reads that it was killed, when, what for and how, before all else."""
    write(site.journal, after_the_kill(), action=True)
    first, source, *_ = site.explain(url=None).paragraphs
    assert " ".join(first).startswith("It was killed at 08:00:31 UTC (container main)")
    assert "from the journal" in " ".join(source)
    site.endpoints.publish(Story(pods=()).see(snapshot()))
    assert site.explain().paragraphs[0] == first


def test_the_journal_alone(site: Site) -> None:
    """Without a daemon to ask, as for the journal of a node that is gone, that is not told as a failure."""
    write(site.journal, after_the_kill())
    text = site.text(url=None)
    assert "No daemon was asked" in text
    assert "does not answer" not in text


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
    write(tmp_path / "j.db", action=True)
    (account,) = explain_pod("a/trainer", None, tmp_path / "j.db", NOW_S).accounts
    assert (account["container"], account["threshold"], account["at"]) == (
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


def test_only_the_last_occurrences_are_told(tmp_path: Path) -> None:
    """A pod that is warned all day has a short answer still."""
    journal = Journal.open(tmp_path / "j.db", JournalLimits(), "n1")
    for second in range(30, 60):
        report = replace(climbing(9), outcomes=(outcome(entry(climbing(5), "warn"), at=at(second)),))
        record(journal, report)
    journal.close()
    past = explain_pod("a/trainer", None, tmp_path / "j.db", NOW_S).past
    assert [row.wall_s for row in past] == [at(second).wall_s for second in range(50, 60)]
