"""`/api/history`: the route, asked for the hour of pods and GPUs."""

import json
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

import pytest

from tests.report.build import Clock, activity, climbing, killed, quiet
from tests.worlds import Gi, at
from watchdog.core.assessment import AccountKey
from watchdog.core.policy import Do
from watchdog.core.utilization import CardUtilization, Holder, Utilization
from watchdog.export.endpoints import Endpoints
from watchdog.export.web import HttpRequest, HttpResponse, route
from watchdog.report.status import Moment, RecentStatus
from watchdog.report.text import rfc3339

POD: Final = "/api/history?pod=a/trainer"


def get(endpoints: Endpoints, target: str = POD) -> HttpResponse:
    """A response."""
    return route(endpoints, HttpRequest(target=target))


def document(endpoints: Endpoints, target: str = POD) -> dict[str, Any]:
    """The document of a response that must be 200."""
    response = get(endpoints, target)
    assert response.status is HTTPStatus.OK, response.body
    found: dict[str, Any] = json.loads(response.body)
    return found


def busy_parts(ratios: dict[str, float]) -> Utilization:
    """How busy containers of a/trainer are, each on both of its cards."""
    key, gpus = AccountKey(uid="u1"), ("GPU-0", "GPU-1")
    by_holder = {Holder("u1", name, uuid): ratio for name, ratio in ratios.items() for uuid in gpus}
    return Utilization(
        cards={uuid: CardUtilization(gpu=uuid, ratio=0.9) for uuid in gpus},
        by_account={key: sum(ratios.values())}, by_holder=by_holder, holders={key: [*by_holder]},
    )  # fmt: skip


def test_before_the_first_cycle_there_is_none(endpoints: Endpoints) -> None:
    """503 and the reason, as for the status."""
    response = get(endpoints)
    assert response.status is HTTPStatus.SERVICE_UNAVAILABLE
    assert b"no cycle has completed yet" in response.body


def test_the_hour_of_a_pod(endpoints: Endpoints, clock: Clock) -> None:
    """Each account with its points: lowest, highest and last use, what was allowed, how busy; bytes, RFC 3339."""
    endpoints.publish(quiet(0))
    endpoints.publish(replace(climbing(1), utilization=Utilization(by_account={AccountKey(uid="u1"): 0.35})))
    clock.second = 1
    found = document(endpoints)
    allowed = climbing(1).assessments[0].allowed
    (series,) = found.pop("series")
    (point,) = series.pop("points")
    assert found == {"pod": "a/trainer", "minutes": 60, "series_in_all": 1, "actions": []}
    assert series == {"uid": "u1", "container": None, "gpu": None, "containers": [], "containers_in_all": 0}
    assert point.pop("at") == rfc3339(at(0).wall_s - at(0).boottime_s % 15)
    amounts = {"min": 4 * Gi, "max": int(12.4 * Gi), "last": int(12.4 * Gi), "allowed": allowed}
    assert point == {**amounts, "utilization": 0.35}


def test_the_utilisation_of_each_container_on_each_card(endpoints: Endpoints, clock: Clock) -> None:
    """An account can be a whole pod: who of it computes, and on which card, is told apart, at the account's points."""
    endpoints.publish(quiet(0, utilization=activity(None)))
    endpoints.publish(quiet(15, utilization=busy_parts({"main": 0.7, "si\x1bde": 0.1})))
    clock.second = 45
    (series,) = document(endpoints)["series"]
    times = [point["at"] for point in series["points"]]
    gap = [None, None]
    assert [(each["container"], each["gpu"]) for each in series["containers"]] == [
        ("main", "GPU-0"), ("main", "GPU-1"), ("si\\x1bde", "GPU-0"), ("si\\x1bde", "GPU-1"),
    ]  # fmt: skip
    for each, ratio in zip(series["containers"], (0.7, 0.7, 0.1, 0.1), strict=True):
        assert [point["at"] for point in each["points"]] == times
        assert [point["utilization"] for point in each["points"]] == [None, ratio, *gap]
    assert [point["utilization"] for point in series["points"]] == [None, 0.8, *gap]
    assert series["containers_in_all"] == 4
    assert "containers" not in document(endpoints, "/api/history?gpu=0")["series"][0]
    (short,) = document(endpoints, f"{POD}&minutes=1")["series"]
    assert {len(each["points"]) for each in short["containers"]} == {len(short["points"])}


def test_of_too_many_containers_some_are_listed(endpoints: Endpoints, clock: Clock) -> None:
    """A pod with a hundred containers on two cards does not make megabytes, and how many there are is said."""
    endpoints.publish(quiet(0, utilization=busy_parts({f"c{number:02}": 0.01 for number in range(100)})))
    (series,) = document(endpoints)["series"]
    assert (len(series["containers"]), series["containers_in_all"]) == (40, 200)


def test_a_gap_is_a_point_without_values(endpoints: Endpoints, clock: Clock) -> None:
    """Where the driver was silent or no cycle came, nothing is drawn."""
    endpoints.publish(quiet(0))
    endpoints.publish(quiet(60))
    clock.second = 100
    points = document(endpoints)["series"][0]["points"]
    known = [point["last"] for point in points]
    assert known == [4 * Gi, *[None] * 3, 4 * Gi, *[None] * 3]
    assert {point["min"] for point in points if point["last"] is None} == {None}
    assert {point["allowed"] for point in points if point["last"] is None} == {None}
    assert {point["utilization"] for point in points} == {None}


def test_while_cycles_repeat_it_goes_on(endpoints: Endpoints, clock: Clock) -> None:
    """A quiet node has no gaps."""
    for second in range(61):
        endpoints.publish(quiet(second))
    clock.second = 60
    assert {point["last"] for point in document(endpoints)["series"][0]["points"]} == {4 * Gi}


def test_the_hour_of_a_gpu(endpoints: Endpoints, clock: Clock) -> None:
    """By index or UUID, against its size, with what was done to the pods on it."""
    report = climbing(31)
    endpoints.publish(replace(report, began=(killed(),)))
    clock.second = 31
    uuid, size = report.snapshot.gpus[0].uuid, report.snapshot.gpus[0].total
    for name in ("0", uuid):
        found = document(endpoints, f"/api/history?gpu={name}")
        assert found["gpu"] == uuid
        (series,) = found["series"]
        assert (series["uid"], series["container"], series["gpu"]) == (None, None, uuid)
        assert [point["allowed"] for point in series["points"]] == [size]
        assert [mark["do"] for mark in found["actions"]] == ["kill"]


def test_the_actions_of_the_pod_are_listed(endpoints: Endpoints, clock: Clock) -> None:
    """Those of that pod and time, oldest first, as in the status."""
    endpoints.publish(quiet(0))
    mine = [
        RecentStatus(at=Moment(at(second).wall_s), do=Do.WARN, namespace="a", pod="trainer")
        for second in (3000, 2000, -2000)
    ]
    other = RecentStatus(at=Moment(at(2500).wall_s), do=Do.KILL, namespace="a", pod="other")
    endpoints.set_journal("", (mine[0], other, *mine[1:]))
    clock.second = 3100
    times = [action["at"] for action in document(endpoints)["actions"]]
    assert times == [rfc3339(at(2000).wall_s), rfc3339(at(3000).wall_s)]
    assert len(document(endpoints, f"{POD}&minutes=5")["actions"]) == 1


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "must name a pod or a GPU"),
        ("pod=trainer", "write ?pod=NAMESPACE/NAME"),
        ("pod=/trainer", "write ?pod=NAMESPACE/NAME"),
        ("pod=a/", "write ?pod=NAMESPACE/NAME"),
        ("pod=a/trainer&gpu=0", "must name a pod or a GPU"),
        ("pod=a/trainer&minutes=0", "a whole number from 1 to 60"),
        ("pod=a/trainer&minutes=61", "a whole number from 1 to 60"),
        ("pod=a/trainer&minutes=-5", "a whole number from 1 to 60"),
        ("pod=a/trainer&minutes=1e1", "a whole number from 1 to 60"),
        ("pod=a/trainer&minutes=%D9%A3", "a whole number from 1 to 60"),
        (f"pod=a/trainer&minutes={'9' * 5000}", "a whole number from 1 to 60"),
        ("&".join(["pod=a/b"] * 50), "must name a pod or a GPU"),
    ],
)
def test_a_query_that_says_nothing(endpoints: Endpoints, query: str, words: str) -> None:
    """400, with what to write instead, in a few words however long the query is."""
    endpoints.publish(quiet(0))
    response = get(endpoints, f"/api/history?{query}")
    assert response.status is HTTPStatus.BAD_REQUEST
    assert words in response.body.decode()
    assert len(response.body) < 300


def test_what_was_not_seen(endpoints: Endpoints) -> None:
    """404, and which command goes further back; a name stays text."""
    endpoints.publish(quiet(0))
    for target in ("/api/history?pod=a/unknown", "/api/history?gpu=7", "/api/history?pod=a/%1b[2J"):
        response = get(endpoints, target)
        assert response.status is HTTPStatus.NOT_FOUND
        assert b"`gpu-watchdog history`" in response.body
        assert b"\x1b" not in response.body


def test_many_different_questions_within_a_second(endpoints: Endpoints) -> None:
    """Anybody can ask for other pods: some are answered, the others are asked to come again."""
    endpoints.publish(quiet(0))
    statuses = [get(endpoints, f"{POD}&minutes={minutes}").status for minutes in range(1, 61)]
    assert 10 <= statuses.count(HTTPStatus.OK) <= 40
    assert set(statuses) == {HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE}
