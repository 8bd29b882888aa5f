"""The patch of a node's capacity, and when it may be made again."""

import threading
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.kube.test_events import Away, no_thread
from tests.node.support import wait_until
from tests.worlds import gpu, policy, snapshot
from watchdog.core.model import Node
from watchdog.core.policy import Capacity
from watchdog.kube.capacity import PATIENCE, CapacityChange, CapacityKeeper, CapacityPace, is_outdated
from watchdog.kube.client import ApiResponse

GI = 2**30
UID = {"op": "test", "path": "/metadata/uid", "value": "u"}
ENTRY = "/status/capacity/example.com~1gpu-memory"
CHANGE = CapacityChange(node="n", uid="u", resource="example.com/gpu-memory", written="0", bare=False, amount=80 * GI)


def answer(status: int, body: bytes = b"{}", **headers: str) -> ApiResponse:
    """An answer of the API server."""
    return ApiResponse(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


def _patch(seen: object, op: str, path: str = ENTRY, **value: object) -> list[dict[str, object]]:
    return [{"op": "test", "path": path, "value": seen}, {"op": op, "path": path, **value}]


@pytest.mark.parametrize(
    ("change", "patch"),
    [
        ({}, _patch("0", "add", value=str(80 * GI))),
        ({"written": None}, _patch(None, "add", value=str(80 * GI))),
        (
            {"written": None, "bare": True},
            _patch(None, "add", "/status/capacity", value={"example.com/gpu-memory": str(80 * GI)}),
        ),
        ({"amount": None}, _patch("0", "remove")),
        ({"resource": "a~b.c/d", "amount": 0}, _patch("0", "add", "/status/capacity/a~0b.c~1d", value="0")),
    ],
)
def test_a_patch_tests_what_was_seen(change: dict[str, object], patch: list[dict[str, object]]) -> None:
    """It tests the object's UID and the former entry, and changes one entry (RFC 6901 escapes in its path)."""
    assert replace(CHANGE, **change).patch() == [UID, *patch]  # type: ignore[arg-type]


def test_the_former_amount_in_readable_form() -> None:
    """People read a quantity; a node without any capacity differs from one without this entry."""
    for capacity, before, bare in (
        ({"a.b/c": "85899345920"}, "80Gi", False),
        ({"a.b/c": "lots"}, "lots", False),
        ({"a.b/other": "1"}, "nothing", False),
        ({}, "nothing", True),
    ):
        change = CapacityChange.of(Node(name="n", uid="u", capacity=capacity), "a.b/c", 1)
        assert (change.before, change.bare) == (before, bare)


@pytest.mark.parametrize(
    ("status", "body", "outdated"),
    [
        (422, b'{"message": "the server rejected our request due to an error in our request"}', True),
        (422, b'{"details": {"causes": [{"reason": "FieldValueInvalid", "message": "must be an integer"}]}}', False),
        (404, b"{}", True),
        (403, b"{}", False),
        (409, b"{}", False),
        (500, b"{}", False),
    ],
)
def test_an_outdated_patch_differs_from_a_refused_one(status: int, body: bytes, *, outdated: bool) -> None:
    """Waiting helps only if the node has changed: an invalid amount or a missing right stays."""
    assert is_outdated(answer(status, body)) is outdated


def test_a_change_is_not_repeated_before_the_watch_shows_it() -> None:
    """Right after a change the node is still known as it was before; that is no reason to make the change again."""
    pace = CapacityPace()
    pace.consider(CHANGE, 0.0)
    pace.made(CHANGE, 0.0)
    assert pace.awaits_echo(CHANGE, 4.9)
    assert not pace.awaits_echo(CHANGE, 5.1)
    assert not pace.awaits_echo(replace(CHANGE, written="7"), 1.0)


def made_again(
    pace: CapacityPace, second: float, made: CapacityChange, then: CapacityChange | None = None, later_s: float = 8
) -> str | None:
    """Make a change, and consider the next one (the same unless given) some seconds later; the message, if any."""
    pace.made(made, second)
    return pace.consider(then or made, second + later_s)


def test_a_contested_change_backs_off() -> None:
    """A device plugin with the same resource writes every 10 s: after a few times it is reported, and waits grow."""
    pace = CapacityPace()
    assert pace.consider(CHANGE, 0.0) is None
    reported = [made_again(pace, 10.0 * number, CHANGE) for number in range(PATIENCE)]
    assert reported[:-1] == [None] * (PATIENCE - 1)
    assert reported[-1] is not None
    assert "does not stay at 80Gi" in reported[-1]
    waits = []
    for number in range(200):
        begun = 1000.0 + 10 * number
        made_again(pace, begun, CHANGE)
        waits.append(pace.not_before_s - begun - 8)
    assert max(waits) <= 600
    assert max(waits[20:]) > 120  # full jitter: some of them are short, and some are not
    assert sum(waits[20:]) / 180 > 120


def test_a_lasting_change_another_object_or_another_amount_is_no_contest() -> None:
    """Kubelets restart every other hour, nodes are recreated, and cards come and go: nothing has been reverted."""
    pace = CapacityPace()
    pace.consider(CHANGE, 0.0)
    for number in range(20):
        assert made_again(pace, 3600.0 * number, CHANGE, later_s=1800) is None
    recreated = [replace(CHANGE, uid=f"u{number}") for number in range(20)]
    resized = [replace(CHANGE, amount=number) for number in range(20)]
    for number, (made, then) in enumerate([*pairwise(recreated), *pairwise(resized)]):
        assert made_again(pace, 1e6 + 10 * number, made, then) is None
    assert pace.not_before_s == 0.0


@pytest.mark.parametrize(
    ("answered", "longest_s"), [(None, 30), (answer(500), 30), (answer(429), 30), (answer(403), 60), (answer(422), 60)]
)
def test_failures_back_off_to_a_bound(answered: ApiResponse | None, longest_s: float) -> None:
    """A server that may be back soon is tried within 30 s, one that refuses less often; Retry-After comes on top."""
    pace = CapacityPace()
    waits = []
    for number in range(100):
        pace.failed(answered, 1000.0 * number)
        waits.append(pace.not_before_s - 1000.0 * number)
    assert all(0 <= wait <= longest_s for wait in waits)
    assert max(waits[:3]) <= 4
    assert max(waits[10:]) > longest_s / 2
    pace.made(CHANGE, 0.0)
    pace.failed(answered, 0.0)
    assert pace.not_before_s <= 2
    pace.made(CHANGE, 0.0)
    pace.failed(answer(429, Retry_After="7"), 0.0)
    assert 7 <= pace.not_before_s <= 9


def test_a_recreated_object_does_not_wait() -> None:
    """Earlier refusals were about another object: the new one gets its capacity within seconds."""
    pace = CapacityPace()
    pace.consider(CHANGE, 0.0)
    for _ in range(10):
        pace.failed(answer(403), 0.0)
    pace.consider(replace(CHANGE, uid="new"), 1.0)
    assert pace.not_before_s == 0.0


CYCLE = Node(name="n", uid="u"), replace(snapshot(), gpus=(gpu(),)), policy(capacity=Capacity(resource="a.b/c"))


def test_a_change_waits_for_a_thread_that_can_not_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of threads no cycle fails; the next one tries again."""
    api = Away()
    keeper = CapacityKeeper(api)
    with monkeypatch.context() as at_limit:
        at_limit.setattr(threading.Thread, "start", no_thread)
        keeper.advertise(*CYCLE)
    keeper.advertise(*CYCLE)
    wait_until(lambda: api.calls > 0, 5)
    keeper.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_ended_is_started_again() -> None:
    """A defect costs one attempt to advertise; the next cycle makes another one."""
    before, api = set(threading.enumerate()), Away(has_defect=True)
    keeper = CapacityKeeper(api)
    keeper.advertise(*CYCLE)
    wait_until(lambda: api.calls == 1 and set(threading.enumerate()) <= before)
    keeper.advertise(*CYCLE)
    wait_until(lambda: api.calls > 1, 5)
    keeper.stop()
