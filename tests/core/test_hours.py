"""The hours of a rule, across every kind of clock change."""

import math
import os
import subprocess
import sys
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.config.fields import hours
from watchdog.core.hours import DAYS, Hours

# Each with days just before its clocks change.
ZONES = {
    "Europe/Berlin": ["2027-03-27", "2027-10-30"],
    "America/New_York": ["2027-03-13", "2027-11-06"],
    "Asia/Kolkata": ["2027-03-28"],  # half an hour off, no daylight saving
    "Australia/Lord_Howe": ["2027-04-03", "2027-10-02"],  # by half an hour
    "Africa/Cairo": ["2027-04-29", "2027-10-28"],  # at midnight: a day without its first hour, one with 25
    "America/Sao_Paulo": ["2018-02-16", "2018-11-02"],  # at midnight too, in its last year with daylight saving
    "Pacific/Apia": ["2011-12-28", "2027-03-28"],  # no 30 December 2011: from UTC-10 to UTC+14
    "Africa/Casablanca": ["2027-02-06", "2027-03-13"],  # an hour back for Ramadan
    "UTC": ["2027-01-01"],
}


def read(text: str) -> Hours:
    """The hours written like this in the policy file."""
    return hours().read(text)


def unix(text: str) -> float:
    """The Unix time of a moment in UTC, written like 2027-03-28T01:00."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def changes(text: str, begin: str, count: int) -> list[str]:
    """The next moments in UTC at which hours begin (+) and end (-)."""
    found, at, reported = read(text), unix(begin), []
    for _ in range(count):
        at = found.next_change_s(at)
        reported.append(f"{'+' if found.holds(at) else '-'}{datetime.fromtimestamp(at, UTC):%d %H:%M}")
    return reported


@pytest.mark.parametrize(
    ("text", "begin", "expected"),
    [
        # An ordinary week: working days, and the gap of the weekend.
        ("Mon-Fri 08:00-18:00 UTC", "2027-01-08T07:00", ["+08 08:00", "-08 18:00", "+11 08:00", "-11 18:00"]),
        ("Fri-Mon 08:00-18:00 UTC", "2027-01-11T00:00", ["+11 08:00", "-11 18:00", "+15 08:00", "-15 18:00"]),
        ("Mon,Wed-Thu 00:00-24:00 UTC", "2027-01-10T12:00", ["+11 00:00", "-12 00:00", "+13 00:00", "-15 00:00"]),
        # Over midnight: the span belongs to the day on which it begins.
        ("Sun 22:00-06:00 UTC", "2027-01-01T00:00", ["+03 22:00", "-04 06:00"]),
        ("Sat 22:00-00:00 UTC", "2027-01-01T00:00", ["+02 22:00", "-03 00:00"]),
        ("Sat 24:00-06:00 UTC", "2027-01-01T00:00", ["+03 00:00", "-03 06:00"]),
        # Berlin, 28 March 2027: after 01:59 comes 03:00 (01:00 in UTC).
        ("Sun 01:30-02:30 Europe/Berlin", "2027-03-27T00:00", ["+28 00:30", "-28 01:00"]),
        ("Sun 02:30-05:00 Europe/Berlin", "2027-03-27T00:00", ["+28 01:00", "-28 03:00"]),
        # Berlin, 31 October 2027: after 02:59 comes 02:00 once more (01:00 in UTC).
        ("Sun 02:30-03:00 Europe/Berlin", "2027-10-30T00:00", ["+31 00:30", "-31 01:00", "+31 01:30", "-31 02:00"]),
        # New York, 7 November 2027, at 02:00.
        ("Sun 01:00-03:00 America/New_York", "2027-11-06T00:00", ["+07 05:00", "-07 08:00"]),
        # Cairo, Friday 30 April 2027: midnight is 01:00. Friday 29 October begins an hour late: Thursday has 25.
        ("Fri 00:00-02:00 Africa/Cairo", "2027-04-29T00:00", ["+29 22:00", "-29 23:00"]),
        ("Thu 23:00-24:00 Africa/Cairo", "2027-10-28T00:00", ["+28 20:00", "-28 22:00"]),
        ("Fri 00:00-06:00 Africa/Cairo", "2027-10-28T00:00", ["+28 22:00", "-29 04:00"]),
        # Sao Paulo, Sunday 4 November 2018: midnight is 01:00.
        ("Sat 22:00-02:00 America/Sao_Paulo", "2018-11-03T00:00", ["+04 01:00", "-04 04:00"]),
        # Apia: Thursday 29 December 2011 is followed by Saturday 31. Its Friday is not there, but its night's rest is.
        ("Thu 22:00-06:00 Pacific/Apia", "2011-12-28T00:00", ["+30 08:00", "-30 10:00"]),
    ],
)
def test_when_hours_begin_and_end(text: str, begin: str, expected: list[str]) -> None:
    """The local clock counts, to the second at which it is put forward or back."""
    assert changes(text, begin, len(expected)) == expected


def test_hours_that_never_end() -> None:
    """A whole week has no next change, whatever clocks do, and the search for it ends."""
    for zone in ZONES:
        always = read(f"Mon-Sun 00:00-24:00 {zone}")
        assert always.next_change_s(unix("2027-03-20T00:00")) == math.inf
        assert always.holds(unix("2027-03-28T01:00"))


@st.composite
def moments(draw: st.DrawFn) -> tuple[str, int]:
    """Hours in one of the zones, and a minute near a change of its clocks."""
    zone = draw(st.sampled_from(sorted(ZONES)))
    days = draw(st.lists(st.sampled_from(DAYS), min_size=1, max_size=7, unique=True))
    begin, end = (draw(st.integers(0, 1440)) for _ in range(2))
    if begin % 1440 == end % 1440:
        begin, end = 0, 1440
    text = f"{','.join(days)} {begin // 60:02}:{begin % 60:02}-{end // 60:02}:{end % 60:02} {zone}"
    day = unix(f"{draw(st.sampled_from(ZONES[zone]))}T00:00")
    return text, int(day) + 60 * draw(st.integers(0, 2 * 1440))


def by_the_clock(text: str, second: float) -> bool:
    """Whether hours apply when a clock on the wall of their zone shows this time, and it is this day of the week."""
    days, span, zone = text.split()
    begin, end = (int(each[:2]) * 60 + int(each[3:]) for each in span.split("-"))
    local = datetime.fromtimestamp(second, ZoneInfo(zone))
    minute, today = local.hour * 60 + local.minute, local.weekday()
    if begin == 1440:
        return DAYS[today - 1] in days and minute < end
    is_late = DAYS[today] in days and begin <= minute < (end if end > begin else 1440)
    return is_late or (end <= begin and DAYS[today - 1] in days and minute < end)


@given(moments())
def test_the_next_change_is_what_a_check_of_every_minute_finds(moment: tuple[str, int]) -> None:
    """Between two changes nothing changes, and at each something does: minute by minute, for two days."""
    text, begin = moment
    found, minutes = read(text), range(begin, begin + 2 * 86400, 60)
    holding = [found.holds(minute) for minute in minutes]
    assert holding == [by_the_clock(text, minute) for minute in minutes]
    seen = [minute for (before, now), minute in zip(pairwise(holding), minutes[1:], strict=True) if before is not now]
    reported, at = [], float(begin)
    while (at := found.next_change_s(at)) < minutes.stop - 59:
        reported.append(at)
    assert reported == seen
    for at in reported:
        assert found.holds(at) is found.holds(at + 0.999)
        assert found.holds(at - 0.001) is not found.holds(at)
        assert found.next_change_s(at - 0.001) == at


def test_a_moment_in_words() -> None:
    """The time until which a rule observes is written as people in its zone write it."""
    working = read("Mon-Fri 08:00-18:00 Europe/Berlin")
    assert working.describe(working.next_change_s(unix("2027-03-27T12:00"))) == "Mon 08:00 Europe/Berlin"
    assert working.describe(unix("2027-03-28T00:59")) == "Sun 01:59 Europe/Berlin"
    assert working.describe(unix("2027-03-28T01:00")) == "Sun 03:00 Europe/Berlin"
    assert read("Mon 00:00-24:00 UTC").describe(-60.0) == "Wed 23:59 UTC"


def test_equal_texts_are_equal_hours() -> None:
    """A policy that is read again has equal hours; other hours are not equal."""
    text = "Mon-Fri 08:00-18:00 Europe/Berlin"
    assert read(text) == read(text)
    assert read(text) != read(text.replace("Berlin", "Paris"))
    assert hours().write(read(text)) == text


def check(tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    """`check` of a policy with hours, in a process without the system's time zone data."""
    path = tmp_path / "policy.toml"
    path.write_text('[[rule]]\nname = "r"\nmatch = {}\nactive = "Mon 08:00-18:00 Europe/Berlin"\n', encoding="utf-8")
    command = [
        sys.executable,
        "-c",
        f"import sys; {code}; from watchdog.cli.main import main; main(['check', {str(path)!r}])",
    ]
    environment = {**os.environ, "PYTHONTZPATH": ""}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)


def test_no_time_zone_data_of_the_system_is_needed(tmp_path: Path) -> None:
    """A slim image has none: the locked package tzdata replaces it."""
    done = check(tmp_path, "pass")
    assert (done.returncode, "active Mon 08:00-18:00 Europe/Berlin" in done.stdout) == (0, True), done.stderr


def test_without_any_time_zone_data_there_is_a_remedy(tmp_path: Path) -> None:
    """If the package is missing too, the policy is rejected with a hint what to install."""
    done = check(tmp_path, "sys.modules['tzdata'] = None")
    assert (done.returncode, done.stdout) == (1, "")
    assert "rule[0].active: the time zone" in done.stderr
    assert "install the package tzdata" in done.stderr
