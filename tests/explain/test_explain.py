"""`explain` by a daemon that answers: how the pod stands, what was done before, what holds for its node."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.explain.site import NOW_S, STOPPED, Site, after_the_kill, half_killed, write
from tests.export.build import Story, climbing, policy, quiet, status_document, trainer
from tests.export.page_reader import action
from tests.test_client import answering, http
from tests.worlds import Gi, at, container, process, rule, snapshot, step, use
from watchdog.cli.explain import UnexplainedError, explain_pod
from watchdog.core.brakes import Begun
from watchdog.core.model import PinnedLimit, PodList, ProcessKey
from watchdog.core.plan import Result
from watchdog.core.policy import Brakes, Breaker
from watchdog.daemon.kill import ENOUGH
from watchdog.report.status import Moment, SignalStatus


def test_by_the_daemon_with_what_was_done_before(site: Site) -> None:
    """How the pod stands comes from the daemon, what was done to it from the journal, in words for its owner."""
    write(site.journal, after_the_kill(), action=True)
    site.endpoints.publish(quiet())
    text = site.text()
    killed = "It was killed at 08:00:31 UTC (container main): it used 12.4Gi of GPU memory"
    assert text.startswith(f"Pod a/trainer on node n1, 2027-01-15 08:00:00 UTC {killed}")
    assert text.index(killed) < text.index("uses 4Gi") < text.index("gpu-team@example.org")
    assert text.index("gpu-team@example.org") < text.index("TIME MESSAGE 2027-01-15 08:00:31 UTC ")
    assert "SIGTERM to 3 processes" not in text, "single signals and PIDs are nothing for an owner"
    assert "ended as done" not in text, "the explanation says it in full"


@pytest.mark.parametrize("is_from_status", [False, True])
def test_what_befell_an_earlier_pod_of_the_name_is_not_said_of_this_one(site: Site, is_from_status: bool) -> None:
    """A StatefulSet puts a new pod of the same name in the place of the one that was killed: its UID is another."""
    if is_from_status:
        site.endpoints.set_journal("", (action(threshold="above 110%"),))
    else:
        write(site.journal, after_the_kill(), action=True)
    successor = trainer(uid="u2", containers=(container("main", "8Gi", of="u2"),))
    site.endpoints.publish(Story(pods=(successor,)).see(snapshot([use(7, Gi)], [process(7, "u2/main")], second=40)))
    text = site.text()
    assert "It was killed" not in text
    earlier = "An earlier pod of this name was killed at 08:00:"
    assert text.count(earlier) == 1
    assert text.index("uses 1Gi") < text.index(earlier)


@pytest.mark.parametrize(
    ("limits", "said", "total"),
    [
        ((None, None), "", None),
        ((3, None), "Its MPS client may pin at most 3Gi. ", (1, 3, 3, False)),
        (
            (5, 4),
            "Each of its 2 MPS clients may pin at most 5Gi, together 9Gi, more than the 8Gi declared: MPS",
            (2, 5, 9, True),
        ),
    ],
)
def test_limits_of_mps_clients(
    site: Site, limits: tuple[int | None, ...], said: str, total: tuple[int, int, int, bool] | None
) -> None:
    """What MPS lets a pod's clients use is shown next to what the pod declares; unknown limits are left out."""
    keys = [ProcessKey(pid=pid, start_ticks=10 * pid) for pid in (101, 102)]
    pinned = [
        PinnedLimit(key=key, gpu="GPU-0", by_server=limit and limit * Gi, by_client=6 * Gi if limit else None)
        for key, limit in zip(keys, limits, strict=True)
    ]
    report = quiet(pinned=tuple(pinned))
    site.endpoints.publish(report)
    text = site.text()
    assert said in text
    assert ("MPS" in text) is bool(said)
    (account,) = status_document(report)["accounts"]
    fields = ("clients", "most", "together", "exceeds_declared")
    clients, most, together, exceeds = total or (0, 0, 0, False)
    expected = dict(zip(fields, (clients, most * Gi, together * Gi, exceeds), strict=True))
    assert account.get("pinned", None) == (expected if total else None)
    rows = [each["pinned"] for each in account["processes"] if "pinned" in each]
    assert rows == [{"limit": n * Gi, "by_server": n * Gi, "by_client": 6 * Gi} for n in limits if n]


def test_the_json_has_the_same(site: Site) -> None:
    """`--json` gives the accounts and the plan as the daemon has them, the sentences, and the journal's rows."""
    write(site.journal, after_the_kill(), action=True)
    site.endpoints.publish(climbing(9))
    found = site.explain().document
    assert list(found) == ["namespace", "pod", "node", "source", "at", "accounts", "plan", "sentences", "history"]
    assert (found["namespace"], found["pod"], found["node"], found["source"]) == ("a", "trainer", "n1", "daemon")
    assert found["at"] == "2027-01-15T08:00:09.000Z"
    assert found["accounts"][0]["ladder"][1]["counted_s"] == 9
    assert [each["do"] for each in found["plan"]] == ["kill"]
    assert any("12.4Gi" in each for each in found["sentences"])
    assert [each["event"] for each in found["history"]] == ["explained"]
    packed = site.endpoints.status()
    assert packed is not None
    status = json.loads(gzip.decompress(packed))
    assert json.loads(json.dumps([found["accounts"], found["plan"]])) == [status["accounts"], status["plan"]]


def test_a_kill_that_was_interrupted_is_told_with_its_signals(site: Site) -> None:
    """The stop file in a grace period: that SIGTERM was sent and SIGKILL was not is said, with the time and why."""
    half_killed(site.journal, Result.INTERRUPTED, STOPPED, "SIGTERM")
    says = f"Result: it was interrupted. Its processes got SIGTERM at 08:00:31 UTC, and no SIGKILL was sent: {STOPPED}."
    assert says in site.text(url=None)
    assert site.text(url=None).count("A kill of this pod started at 08:00:31 UTC (container main)") == 1
    site.endpoints.publish(quiet(40))
    assert says in site.text()
    assert "ended as" not in site.text()


def test_a_process_that_was_spared_sigkill_is_not_called_killed(site: Site) -> None:
    """Point 22: by the journal and by the status, that SIGTERM was enough is said, and nothing of its memory."""
    half_killed(site.journal, Result.GONE, ENOUGH, "SIGTERM")
    says = f"Result: it was no longer needed. The reason: {ENOUGH}. Its processes got SIGTERM at 08:00:31 UTC."
    assert says in site.text(url=None)
    recent = {
        "result": "gone",
        "reason": ENOUGH,
        "signals": (SignalStatus(signal="SIGTERM", at=Moment(at(31).wall_s), processes=1),),
    }
    site.endpoints.set_journal("", (action(threshold="above 110%", **recent),))
    site.endpoints.publish(quiet(40))
    for text in (site.text(url=None), site.text()):
        assert says in text
        assert "was killed" not in text
        assert "seen free" not in text


def test_a_kill_that_failed_is_told_with_its_signals(site: Site) -> None:
    """Both signals have their time."""
    half_killed(site.journal, Result.FAILED, "1 processes did not end", "SIGTERM", "SIGKILL")
    text = site.text(url=None)
    assert "it failed" in text
    assert "SIGTERM at 08:00:31 UTC and SIGKILL at 08:00:32 UTC" in text


def test_the_open_breaker_of_the_node_is_said(site: Site) -> None:
    """Where the breaker holds everybody back, whoever asks about anybody reads since when and until when."""
    report = quiet(60, policy=policy(brakes=Brakes(breaker=Breaker(hold_s=600))))
    brakes = replace(report.plan.ledger.brakes, opened=Begun(at(10).boottime_s))
    ledger = replace(report.plan.ledger, brakes=brakes)
    site.endpoints.publish(replace(report, plan=replace(report.plan, ledger=ledger)))
    assert all(each in site.text() for each in ("breaker", "since 08:00:10 UTC", "until 08:10:10 UTC"))


def test_a_pod_that_has_gone(site: Site) -> None:
    """A pod that was killed and is no more is not known to the daemon; the journal still explains it."""
    write(site.journal, after_the_kill())
    site.endpoints.publish(Story(pods=()).see(snapshot()))
    text = site.text()
    assert "node n1 knew of no GPU memory" in text
    assert "killed 3 processes" in text


def test_the_journal_of_another_node_has_no_part_in_it(site: Site) -> None:
    """Asked from elsewhere, the journal that lies here says nothing about the pod of that node."""
    write(site.journal, after_the_kill(), node="elsewhere")
    site.endpoints.publish(quiet())
    assert site.explain().past == ()


def test_without_a_journal_the_daemon_is_enough(site: Site) -> None:
    """What can't be read is not silently left out: the explanation says so on the side."""
    site.endpoints.publish(quiet())
    found = site.explain()
    assert found.past == ()
    assert "there is no journal" in found.no_past


def test_what_holds_for_the_whole_node_is_said(site: Site) -> None:
    """That nothing is enforced here is said with its remedy; that the pod list is stale, with its age."""
    site.endpoints.publish(quiet(enforcing=False, suspended=("stop_file",)))
    assert "the file `stop`" in site.text()
    site.endpoints.publish(quiet(enforcing=False, suspended=("node_annotation",)))
    text = site.text()
    assert "`kubectl annotate node n1 gpu-memory-watchdog/mode-`" in text
    assert text.index("is suspended") < text.index("uses 4Gi"), "what does not come, comes last"
    site.endpoints.publish(quiet(enforcing=False))
    assert "only observes" in site.text()
    site.endpoints.publish(quiet(pods=PodList(pods=(trainer(),), synced=at(-300))))
    assert "last updated at 07:55:00 UTC" in site.text()


def test_each_account_has_its_paragraphs(site: Site) -> None:
    """A pod whose containers stand by themselves is explained container by container."""
    two = trainer(containers=(container("main", "8Gi", of="u1"), container("side", "1Gi", of="u1")))
    under = policy(rule(step("100%", 5), name="r", account="container"))
    seen = snapshot([use(1, 4 * Gi), use(2, 5 * Gi)], [process(1, "u1/main"), process(2, "u1/side")])
    site.endpoints.publish(Story(under=under, pods=(two,)).see(seen))
    text = site.text()
    assert text.index("Container main ") < text.index("uses 4Gi") < text.index("Container side ")
    assert text.index("Container side ") < text.index("uses 5Gi") < text.index("of container side")


def test_a_status_of_another_kind_is_refused(tmp_path: Path) -> None:
    """What has no list of accounts ends in a clear error."""
    status = {**status_document(quiet()), "accounts": 1}
    with answering(http(json.dumps(status).encode())) as (url, _), pytest.raises(UnexplainedError) as error:
        explain_pod("a/trainer", url, tmp_path / "j.db", NOW_S)
    says = "its answer is not a status as gpu-watchdog writes it: Expected `array`, got `int` - at `$.accounts`"
    assert f"what answers at {url}/api/status is not gpu-watchdog: {says}" in str(error.value)
