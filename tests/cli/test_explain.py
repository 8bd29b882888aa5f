"""`explain` by a daemon that answers: the pod's use and limit, past actions, its whole node; and the command line."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.explain_site import KEYS, Site, after_the_kill, half_killed, write
from tests.cli.test_client import answering, http
from tests.export.page_reader import action
from tests.report.build import Story, climbing, policy, quiet, status_document, trainer, with_breaker
from tests.worlds import Gi, at, container, process, rule, snapshot, step, use
from watchdog.cli.main import main
from watchdog.core.model import PinnedLimit, PodList
from watchdog.core.plan import Result
from watchdog.daemon.actions.kill import ENOUGH
from watchdog.report.status import Moment, SignalStatus


def test_by_the_daemon_with_past_actions(site: Site) -> None:
    """The last action comes first, then the pod's use and limit, then whom to ask, then the journal's rows."""
    write(site.journal, after_the_kill(), action=True)
    site.endpoints.publish(quiet())
    text = site.text()
    parts = ("Pod a/trainer on node", "It was killed at 08:00:31", "uses 4Gi", "gpu-team@example.org", "TIME MESSAGE")
    assert sorted(parts, key=text.index) == list(parts)
    assert "SIGTERM to 3 processes" not in text, "single signals and PIDs are nothing for an owner"


@pytest.mark.parametrize("width", [40, 60, 80])
def test_it_fits_a_terminal(site: Site, width: int) -> None:
    """No line is wider, the first and the titles included."""
    write(site.journal, after_the_kill(), action=True)
    site.endpoints.publish(quiet())
    lines = list(site.explain().lines(width))
    assert max(map(len, lines)) <= width, max(lines, key=len)
    assert "What was decided and done in the last 7 days, from the journal:" in " ".join(lines)


@pytest.mark.parametrize("is_from_status", [False, True])
def test_an_action_on_an_earlier_pod_of_the_name_is_not_this_pods(site: Site, *, is_from_status: bool) -> None:
    """A StatefulSet puts a new pod of the same name in the place of the one that was killed: its UID is another."""
    if is_from_status:
        site.endpoints.set_journal("", (action(threshold="above 110%"),))
    else:
        write(site.journal, after_the_kill(), action=True)
    successor = trainer(uid="u2", containers=(container("main", "8Gi", of="u2"),))
    site.endpoints.publish(Story(pods=(successor,)).see(snapshot([use(7, Gi)], [process(7, "u2/main")], second=40)))
    text, earlier = site.text(), "An earlier pod of this name was killed at 08:00:"
    assert ("It was killed" in text, text.count(earlier)) == (False, 1)
    assert text.index("uses 1Gi") < text.index(earlier)


@pytest.mark.parametrize(("second", "is_shown"), [(40, True), (3700, False)])
def test_the_last_kill_leads_for_an_hour(site: Site, second: int, is_shown: bool) -> None:
    """A step that was called off since hides no kill before it; after an hour the kill is history."""
    called_off = action(threshold="above 110%", result="withdrawn", at=Moment(at(35).wall_s))
    site.endpoints.set_journal("", (called_off, action(threshold="above 110%")))
    site.endpoints.publish(quiet(second))
    assert ("It was killed at 08:00:" in site.text()) is is_shown


@pytest.mark.parametrize(
    ("limits", "says", "total"),
    [
        ((None, None), "", None),
        ((3, None), "Its MPS client may pin at most 3Gi. ", (1, 3, 3, False)),
        ((5, 4), "Each of its 2 MPS clients may pin at most 5Gi, together 9Gi, more than the 8Gi", (2, 5, 9, True)),
    ],
)
def test_limits_of_mps_clients(
    site: Site, limits: tuple[int | None, ...], says: str, total: tuple[int, int, int, bool] | None
) -> None:
    """What MPS lets a pod's clients use is shown next to what the pod declares; unknown limits are left out."""
    pinned = tuple(
        PinnedLimit(key=key, gpu="GPU-0", by_server=limit and limit * Gi, by_client=6 * Gi if limit else None)
        for key, limit in zip(KEYS, limits, strict=False)
    )
    report = quiet(pinned=pinned)
    site.endpoints.publish(report)
    text = site.text()
    assert (says in text, "MPS" in text) == (True, bool(says))
    (account,) = status_document(report)["accounts"]
    if total is not None:
        clients, most, together, exceeds = total
        total_in_bytes = {"clients": clients, "most": most * Gi, "together": together * Gi, "exceeds_declared": exceeds}
        assert account.pop("pinned") == total_in_bytes
    assert "pinned" not in account
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
    assert any("12.4Gi" in each for each in found["sentences"])
    assert [each["event"] for each in found["history"]] == ["explained"]
    packed = site.endpoints.status()
    assert packed is not None
    status = json.loads(gzip.decompress(packed))
    assert json.loads(json.dumps([found["accounts"], found["plan"]])) == [status["accounts"], status["plan"]]


@pytest.mark.parametrize(
    ("result", "reason", "signals", "says"),
    [
        (Result.INTERRUPTED, "enforcement was turned off", ("SIGTERM",), "and no SIGKILL was sent: enforcement was"),
        (Result.GONE, ENOUGH, ("SIGTERM",), f"The reason: {ENOUGH}. Its processes got SIGTERM at 08:00:31 UTC."),
        # A fork gets its own SIGTERM later: the first one says when the kill began.
        (Result.FAILED, "it forked", ("SIGTERM", "SIGTERM", "SIGKILL"), "at 08:00:31 UTC and SIGKILL at 08:00:33"),
    ],
)
def test_a_kill_that_did_not_end_its_processes(
    site: Site, result: Result, reason: str, signals: tuple[str, ...], says: str
) -> None:
    """Point 22: the journal, the daemon and its status name the signals that were sent, and no pod is called killed."""
    half_killed(site.journal, result, reason, *signals)
    texts = [site.text(url=None)]
    site.endpoints.publish(quiet(40))
    texts.append(site.text())
    sent = tuple(SignalStatus(signal=name, at=Moment(at(31 + n).wall_s), processes=1) for n, name in enumerate(signals))
    recent = action(threshold="above 110%", result=result.value, reason=reason, signals=sent)
    site.endpoints.set_journal("", (recent,))
    site.endpoints.publish(quiet(40))
    for text in (*texts, site.text()):
        assert says in text
        assert "was killed" not in text
        assert "seen free" not in text


def test_a_journal_that_is_missing_or_of_another_node_is_left_out(site: Site) -> None:
    """The daemon is enough, and why there is no history is reported beside it."""
    site.endpoints.publish(quiet())
    found = site.explain()
    assert (found.past, "there is no journal" in found.no_past) == ((), True)
    write(site.journal, after_the_kill(), node="elsewhere")
    assert site.explain().past == ()


def test_what_affects_the_whole_node_is_included(site: Site) -> None:
    """Suspended enforcement with its remedy comes before the pod; the breaker and a stale pod list have their times."""
    site.endpoints.publish(quiet(enforcing=False, suspended=("stop_file",)))
    assert "the file `stop`" in site.text()
    site.endpoints.publish(quiet(enforcing=False, suspended=("node_annotation",)))
    text = site.text()
    assert text.index("`kubectl annotate node n1 gpu-memory-watchdog/mode- gpu") < text.index("uses 4Gi")
    site.endpoints.publish(quiet(enforcing=False))
    assert "only observes" in site.text()
    site.endpoints.publish(quiet(enforcing=False, suspended=("maintenance",), maintenance="the label is set"))
    text = site.text()
    assert "the label is set" in text
    assert not any(each in text for each in ("only observes", "Enforcement is suspended on this node"))
    site.endpoints.publish(quiet(pods=PodList(pods=(trainer(),), synced=at(-300))))
    assert "last updated at 07:55:00 UTC" in site.text()
    site.endpoints.publish(with_breaker(60, 10))
    assert all(each in site.text() for each in ("breaker", "since 08:00:10 UTC", "until 08:10:10 UTC"))


def test_each_account_has_its_paragraphs(site: Site) -> None:
    """A pod with an account for each container is explained container by container."""
    two = trainer(containers=(container("main", "8Gi", of="u1"), container("side", "1Gi", of="u1")))
    under = policy(rule(step("100%", 5), name="r", account="container"))
    seen = snapshot([use(1, 4 * Gi), use(2, 5 * Gi)], [process(1, "u1/main"), process(2, "u1/side")])
    site.endpoints.publish(Story(under=under, pods=(two,)).see(seen))
    text, parts = site.text(), ("Container main ", "uses 4Gi", "Container side ", "uses 5Gi", "of container side")
    assert sorted(parts, key=text.index) == list(parts)


def test_an_answer_that_is_no_status_is_refused(tmp_path: Path) -> None:
    """An answer without a list of accounts ends in an error that names the address and the place."""
    status = {**status_document(quiet()), "accounts": 1}
    with answering(http(json.dumps(status).encode())) as (url, _):
        text = Site(tmp_path / "j.db").refusal(url=url)
    assert f"what answers at {url}/api/status is not gpu-watchdog: " in text
    assert "`$.accounts`" in text


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
def test_invalid_arguments(arguments: list[str], says: str) -> None:
    """Invalid arguments are refused with exit code 2 before any query."""
    done = CliRunner().invoke(main, ["explain", *arguments])
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())


def test_a_journal_on_the_command_line_is_read_alone(site: Site) -> None:
    """A journal named without an address is read alone: no daemon is queried about another node's pod."""
    site.endpoints.publish(quiet())
    listen, journal = site.url.removeprefix("http://"), ("--journal", str(site.journal))
    by_environment = {"GPU_WATCHDOG_LISTEN": listen}
    named = CliRunner().invoke(main, ["explain", "a/trainer", *journal], env=by_environment)
    assert named.exit_code == 1
    assert all(words in named.output for words in ("there is no journal", "no daemon was asked"))
    for arguments, variables in (
        (("--listen", listen, *journal), {}),  # an address on the command line means the daemon there
        ((), {**by_environment, "GPU_WATCHDOG_JOURNAL": str(site.journal)}),
        (("--json", "--url", site.url, *journal), {}),
    ):
        queried = CliRunner().invoke(main, ["explain", "a/trainer", *arguments], env=variables)
        assert (queried.exit_code, "uses 4Gi" in " ".join(queried.output.split())) == (0, True)
