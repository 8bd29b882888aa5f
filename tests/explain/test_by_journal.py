"""`explain` by the journal, if no daemon answers or none is queried."""

from dataclasses import replace
from pathlib import Path

from tests.explain.site import NOW_S, Site, after_the_kill, write
from tests.export.build import Story, climbing, entry, outcome, policy, trainer
from tests.ports import free_port
from tests.worlds import Gi, at, container, process, rule, snapshot, step, use
from watchdog.cli.client import inside
from watchdog.cli.explain import explain_pod
from watchdog.core.plan import Result

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
    write(tmp_path / "j.db", *(replace(climbing(9), outcomes=(outcome(warned, at=at(n)),)) for n in range(30, 60)))
    past = explain_pod("a/trainer", None, tmp_path / "j.db", NOW_S).past
    assert [row.wall_s for row in past] == [at(second).wall_s for second in range(50, 60)]
