"""The server's clock compared with ours, by the Date of a response."""

import pytest

from watchdog.kube.credentials import exceeds_tolerance, offset_s
from watchdog.kube.messages import ClockMessages, LogMessage

NOW_S = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT


@pytest.mark.parametrize(
    ("date", "sent_s", "received_s", "expected"),
    [
        ("Fri, 15 Jan 2027 08:00:00 GMT", NOW_S, NOW_S, 0.5),
        ("Fri, 15 Jan 2027 08:00:00 GMT", NOW_S - 4, NOW_S, 2.5),
        ("Fri, 15 Jan 2027 09:00:00 GMT", NOW_S, NOW_S + 1, 3600.0),
        ("Fri, 15 Jan 2027 07:00:00 GMT", NOW_S, NOW_S + 1, -3600.0),
        ("Fri, 15 Jan 2027 10:00:00 +0100", NOW_S, NOW_S + 1, 3600.0),
    ],
)
def test_how_far_the_server_is_ahead(date: str, sent_s: float, received_s: float, expected: float) -> None:
    """Half a second is added because a Date is truncated, and half the response time is subtracted."""
    assert offset_s({"Date": date}, sent_s, received_s) == expected


@pytest.mark.parametrize("date", ["", "yesterday", "Fri, 99 Jan 2027 08:00:00 GMT", "\0", "1" * 5000])
def test_no_offset_without_a_date(date: str) -> None:
    """A header without a time gives no offset."""
    assert offset_s({"Date": date}, NOW_S, NOW_S) is None
    assert offset_s({}, NOW_S, NOW_S) is None


def test_the_log_reports_it_once() -> None:
    """A clock that is off by more than a minute is reported when that begins and ends, without flapping."""
    assert [exceeds_tolerance(each) for each in (None, 0.0, 60.0, -60.0, 60.1, -60.1)] == [False] * 4 + [True] * 2
    notes = ClockMessages()
    said = [notes.take(each) for each in (None, 0.4, 60.0, 61.0, None, 59.0, 61.0, -3600.0, 29.0, 31.0)]
    assert [len(each) for each in said] == [0, 0, 0, 1, 0, 0, 0, 0, 1, 0]
    assert said[3][0].text.startswith(
        "this node's clock is about 1 min behind the API server's: certificates may be rejected"
    )
    assert said[3][0].text.endswith("; see which of the two is right (`date -u` on both), and set the other one")
    assert said[8] == (LogMessage(text="this node's clock and the API server's agree again"),)


@pytest.mark.parametrize(
    ("offset", "said"),
    [(61.0, "1 min behind"), (3599.6, "1 h behind"), (-5400.0, "1.5 h ahead of"), (-2 * 86400.0, "2 d ahead of")],
)
def test_how_far_apart_they_are(offset: float, said: str) -> None:
    """In a readable unit: a clock is an hour off, not sixty minutes."""
    assert ClockMessages().take(offset)[0].text.startswith(f"this node's clock is about {said} the API server's: ")
