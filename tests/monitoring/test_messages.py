"""The examples for Slack and e-mail: they route as the other one does, and what people read."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.monitoring.alertmanager import Alertmanager, amtool
from tests.monitoring.asking import wait_for
from tests.monitoring.mailbox import Mailbox
from tests.monitoring.notifying import EMAIL, EXAMPLE, SLACK, TEMPLATES, with_messages
from tests.monitoring.webhook import Webhook

pytestmark = pytest.mark.slow

_RUNBOOK: Final = "https://docs.example.com/runbooks.html#gpuwatchdogstale"
_QUERY: Final = "http://prometheus.example:9090/graph?g0.expr=up"
_SILENCE: Final = (
    "http://am.example:9093/#/silences/new?filter=%7Balertname%3D%22GPUWatchdogStale%22%2Cnode%3D%22n1%22%7D"
)
_PAGE: Final = {"alertname": "GPUWatchdogStale", "severity": "critical", "node": "n1", "stale": "driver"}


def alert(number: int = 1, status: str = "firing", **more: str) -> dict[str, Any]:
    """An alert as templates get it; number 1 is that of a hung driver."""
    texts = {"summary": f"Summary {number}", "description": f"Run: kubectl -n a get pod <{number}> & wait"}
    annotations = texts | {"runbook_url": _RUNBOOK} | more
    times = {"startsAt": "2026-03-14T02:14:05+01:00", "endsAt": "2026-03-14T02:20:00+01:00"}
    return {"status": status, "labels": _PAGE, "annotations": annotations, "generatorURL": _QUERY, **times}


def rendered(name: str, *alerts: dict[str, Any], folder: Path, **common: str) -> str:
    """What a template makes of a group of alerts."""
    labels = {"alertname": "GPUWatchdogStale", "severity": "critical", "node": "n1"} | common
    data = {
        "receiver": "platform-page",
        "status": "firing" if any(each["status"] == "firing" for each in alerts) else "resolved",
        "externalURL": "http://am.example:9093",
        "groupLabels": {"alertname": "GPUWatchdogStale", "node": "n1"},
        "commonLabels": labels,
        "commonAnnotations": {},
        "alerts": alerts,
    }
    file = folder / "data.json"
    file.write_text(json.dumps(data))
    text = f'{{{{ template "gpu_watchdog.{name}" . }}}}'
    return amtool(
        "template", "render", f"--template.glob={TEMPLATES}", f"--template.text={text}", f"--template.data={file}"
    )


@pytest.mark.parametrize("path", [SLACK, EMAIL], ids=lambda path: path.name)
def test_an_example_differs_in_its_receivers_alone(path: Path) -> None:
    """Who gets which alert, and which alert silences which, is the same however it is sent; amtool accepts the file."""
    assert "1 templates" in amtool("check-config", path)
    ours, other = (yaml.safe_load(each.read_text(encoding="utf-8")) for each in (path, EXAMPLE))
    assert (ours["route"], ours["inhibit_rules"]) == (other["route"], other["inhibit_rules"])
    assert [each["name"] for each in ours["receivers"]] == [each["name"] for each in other["receivers"]]
    asked = ("config", "routes", "test", f"--config.file={path}", "alertname=GPUWatchdogDown", "severity=critical")
    assert amtool(*asked).strip() == "platform-page"


@pytest.mark.parametrize("path", [SLACK, EMAIL], ids=lambda path: path.name)
def test_secrets_are_in_files(path: Path) -> None:
    """No example has a place where somebody would write a password or a token into the configuration."""
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    keys = {key for key, _ in _leaves(config)}
    secret = {
        key for key in keys if any(word in key for word in ("api_url", "password", "token", "secret", "credentials"))
    }
    assert secret
    assert all(key.endswith("_file") for key in secret)


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    children = (
        value.items() if isinstance(value, dict) else ((key, each) for each in value) if isinstance(value, list) else ()
    )
    yield key, value
    for name, child in children:
        yield from _leaves(child, name)


@pytest.mark.parametrize(
    ("alerts", "common", "expected"),
    [
        ([alert(1)], {}, "CRITICAL: Summary 1"),
        ([alert(1)], {"cluster": "east"}, "CRITICAL: Summary 1 [cluster east]"),
        ([alert(1)], {"severity": ""}, "Summary 1"),  # the group has several
        ([alert(1), alert(2), alert(3)], {"severity": "warning"}, "WARNING: Summary 1 (1 of 3 alerts)"),
        ([alert(1, "resolved"), alert(2)], {}, "CRITICAL: Summary 2"),
        ([alert(1, "resolved")], {}, "Resolved: Summary 1"),
        ([alert(1, "resolved"), alert(2, "resolved")], {}, "Resolved: Summary 1 (1 of 2 alerts)"),
    ],
)
def test_titles(alerts: list[dict[str, Any]], common: dict[str, str], expected: str, tmp_path: Path) -> None:
    """A title, and a subject, says how bad it is and what it is about, before anything is opened."""
    assert rendered("title", *alerts, folder=tmp_path, **common) == expected


def test_a_message_of_one_alert(tmp_path: Path) -> None:
    """What to do, since when, and where to read on; what Slack would take for a link or an entity is escaped."""
    links = f"<{_RUNBOOK}|Runbook> | <{_QUERY}|Query>"
    assert rendered("slack.text", alert(), folder=tmp_path).split("\n") == [
        "Run: kubectl -n a get pod &lt;1&gt; &amp; wait", f"Since 01:14 UTC, 14 March | {links}", "",
        f"<{_SILENCE}|Silence>", "",
    ]  # fmt: skip
    assert rendered("email.text", alert(), folder=tmp_path).split("\n") == [
        "Summary 1", "", "Run: kubectl -n a get pod <1> & wait", "", "Since:   01:14 UTC, 14 March",
        f"Runbook: {_RUNBOOK}", f"Query:   {_QUERY}", "", f"Silence: {_SILENCE}", "",
    ]  # fmt: skip
    both = rendered("email.text", alert(), alert(2, "resolved"), folder=tmp_path)
    assert both.endswith(f"\nSilence: {_SILENCE}\n\nResolved at 01:20 UTC, 14 March: Summary 2\n")
    for name in ("slack.text", "email.text"):
        resolved = rendered(name, alert(1, "resolved"), folder=tmp_path)
        assert resolved == "Resolved at 01:20 UTC, 14 March: Summary 1\n"


@pytest.mark.parametrize("name", ["slack.text", "email.text"])
def test_a_message_of_many_alerts_is_bounded(name: str, tmp_path: Path) -> None:
    """However many nodes have it, the first five are named in full, and it says that there are more."""
    many = [alert(number) for number in range(1, 100)] + [alert(number, "resolved") for number in range(100, 200)]
    text = rendered(name, *many, folder=tmp_path)
    shown = text.replace("&lt;", "<").replace("&gt;", ">")
    assert [f"get pod {mark}" in shown for mark in ("<5>", "<6>")] == [True, False]
    assert [f": Summary {number}\n" in text for number in (104, 105)] == [True, False]
    assert text.count("More alerts of this kind") == 2
    assert len(text) < 2500


def test_colors(tmp_path: Path) -> None:
    """Red for what is critical, green for what is over."""
    for severity, color in (("critical", "danger"), ("warning", "warning"), ("", "warning")):
        assert rendered("slack.color", alert(), folder=tmp_path, severity=severity) == color
    assert rendered("slack.color", alert(1, "resolved"), folder=tmp_path) == "good"


def test_slack_gets_it(tmp_path: Path) -> None:
    """A running Alertmanager sends a page to the channel whose address is in the receiver's own file."""
    with Webhook() as slack:
        for name in ("platform", "platform-page", "team-a", "team-b"):
            (tmp_path / f"slack-{name}").write_text(f"{slack.url}/{name}")
        with Alertmanager(tmp_path / "am", with_messages(SLACK, tmp_path, wait="1s")) as running:
            running.send(_PAGE, summary="The driver hangs", description="Look", runbook_url=_RUNBOOK)
            wait_for(lambda: slack.messages("/platform-page"), lambda: str(running.alerts()), 30)
        (message,) = slack.messages("/platform-page")
    (shown,) = message["attachments"]
    assert (shown["title"], shown["title_link"]) == ("CRITICAL: The driver hangs", _RUNBOOK)
    assert (shown["color"], shown["pretext"]) == ("danger", "<!here>")
    assert shown["text"].startswith("Look\nSince ")


def test_a_mail_arrives(tmp_path: Path) -> None:
    """A running Alertmanager sends a page to those on call, as plain text, with the password of the file."""
    (tmp_path / "smtp-password").write_text("of the file")
    with Mailbox() as mailbox:
        config = with_messages(EMAIL, tmp_path, wait="1s")
        config["global"] |= {"smtp_smarthost": mailbox.address, "smtp_require_tls": False}
        with Alertmanager(tmp_path / "am", config) as running:
            running.send(_PAGE, summary="The driver hangs", description="Look", runbook_url=_RUNBOOK)
            wait_for(lambda: mailbox.mails, lambda: str(running.alerts()), 30)
    (mail,) = mailbox.mails
    assert (mail["To"], mail["Subject"]) == ("gpu-oncall@example.com", "CRITICAL: The driver hangs")
    assert mail["Importance"] == "high"
    (part,) = mail.walk() if not mail.is_multipart() else mail.iter_parts()
    assert part.get_content_type() == "text/plain"
    assert part.get_content().split("\r\n")[:4] == ["The driver hangs", "", "Look", ""]
    assert mailbox.passwords == ["of the file"]
