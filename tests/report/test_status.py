"""The JSON of `scan --json` and `/api/status`."""

import json
from dataclasses import replace
from fractions import Fraction
from typing import Final

import pytest

from tests.node.support import run_python
from tests.report.build import (
    KILL,
    NOTEBOOKS,
    Story,
    acting,
    climbing,
    hostile_pod,
    policy,
    quiet,
    status_document,
    trainer,
    trainer_node,
    utilized,
)
from tests.worlds import VERIFF, Gi, Mi, at, container, gpu, process, rule, snapshot, step, use
from watchdog.config.fields import hours
from watchdog.core.brakes import Brake
from watchdog.core.errors import Problem
from watchdog.core.ledger import UnderWay
from watchdog.core.model import Gap, GapReason, Gpu, MaintenanceStart, Place, PlaceKind, PodList
from watchdog.core.policy import NO_ALLOWANCE, Allowance, Declaration
from watchdog.core.units import LARGEST
from watchdog.report.card_hours import NodeHours, OwnerHours, encode_hours
from watchdog.report.sentences.node import maintenance_clause, under_maintenance
from watchdog.report.status import GpuStatus, HealthStatus, Moment, decode, encode
from watchdog.report.status_build import status_of
from watchdog.report.summary import encoded, summary_of

EXPECTED = """
{"node": "n1", "at": "2027-01-15T08:00:09.000Z", "mode": "enforce", "enforcing": true, "suspended": [], "stopped_why": null, "stops": [],
 "policy": {"sha256": "abababababababababababababababababababababababababababababababab",
            "loaded_at": "2027-01-15T07:59:00.000Z"},
 "interface": "NVML",
 "gpus": [
  {"uuid": "GPU-0", "index": 0, "name": "Stub", "parent": null, "gi": null, "ci": null, "profile": null,
   "first_slice": null, "up": true,
   "memory": {"total": 85899345920, "used": 13851269529, "reserved": 268435456, "residual": 268435456},
   "listed": true, "unattributed": 1073741824, "utilization": null, "utilization_unknown": null, "sharing": "whole"},
  {"uuid": "GPU-1", "index": 1, "name": "Stub", "parent": null, "gi": null, "ci": null, "profile": null,
   "first_slice": null, "up": true,
   "memory": {"total": 85899345920, "used": 2147483648, "reserved": 268435456, "residual": 805306368},
   "listed": true, "unattributed": 0, "utilization": 0.5, "utilization_unknown": "the cause; the remedy", "sharing": "whole"}],
 "accounts": [
  {"namespace": "a", "pod": "trainer", "uid": "u1", "container": null, "gpu": null, "used": 13314398617,
   "used_at_least": 13314398617, "used_at_most": null, "declared": 8589934592, "declared_by": "veriff.com/gpu-memory",
   "allowed": 10909216931, "verdict": "over", "rule": "notebooks", "protected": null,
   "over_since": "2027-01-15T08:00:00.000Z",
   "processes": [
    {"pid": 101, "start_ticks": 1010, "container": "main", "gpu": "GPU-0", "used": 10093173145, "name": "python3"},
    {"pid": 102, "start_ticks": 1020, "container": "main", "gpu": "GPU-0", "used": 1073741824, "name": "python3"},
    {"pid": 103, "start_ticks": 1030, "container": "main", "gpu": "GPU-0", "used": 1073741824, "name": "python3"},
    {"pid": 103, "start_ticks": 1030, "container": "main", "gpu": "GPU-1", "used": 1073741824, "name": "python3"}],
   "owner": {"kind": "Job", "name": "train"}, "requested": null, "allowed_by_request": null,
   "allowance": {"percent": "2%", "per_context": 536870912, "contexts": 4}, "misdeclarations": [],
   "behind": false, "rule_unknown": null, "limit_unknown": null, "observes": false, "active": null, "under_way": null,
   "ladder": [
    {"step": 0, "do": "warn", "scope": null, "above": "100%", "threshold_bytes": 10909216931, "for_s": 5, "grace_s": null,
     "repeat_s": 3600, "under_pressure": false, "state": "above", "counted_s": 9, "tally_s": 9, "since": "2027-01-15T08:00:00.000Z"},
    {"step": 1, "do": "kill", "scope": "container", "above": "110%", "threshold_bytes": 12000138624, "for_s": 10, "grace_s": 10,
     "repeat_s": null, "under_pressure": false, "state": "above", "counted_s": 9, "tally_s": 9, "since": "2027-01-15T08:00:00.000Z"},
    {"step": 2, "do": "kill", "scope": "container", "above": "150%", "threshold_bytes": 16363825396, "for_s": 0, "grace_s": 0,
     "repeat_s": null, "under_pressure": false, "state": "below", "counted_s": 0, "tally_s": null, "since": null}],
   "advice": "use less GPU memory or declare more: set resources.limits[\\"veriff.com/gpu-memory\\"] of container main \
to at least 11Gi (the allowance is added to this)", "declare_by": null, "left_since": null, "utilization": 0.25,
   "containers": [{"container": "main", "gpu": "GPU-0", "utilization": 0.123}, {"container": "main", "gpu": "GPU-1", "utilization": null}],
   "idle_s": 7201, "idle": true}],
 "unattributed": [{"pid": 9, "gpu": "GPU-0", "used": 1073741824, "reason": "host", "name": "Xorg"}],
 "gaps": [],
 "plan": [
  {"namespace": "a", "pod": "trainer", "uid": "u1", "container": "main", "do": "kill", "scope": "container",
   "pids": [101, 102, 103], "rule": "notebooks", "step": 1, "due_in_s": 1, "due_by": "stretch", "withheld_by": null,
   "account": {"container": null, "gpu": null}, "above": "110%", "threshold_bytes": 12000138624, "for_s": 10, "card": null,
   "observes": false, "releases_in_s": null, "held_because": null, "pending": null,
   "sentence": "Pod a/trainer, in 1s: kill all processes of container main (SIGTERM, then SIGKILL after 10s). Rule \\\"notebooks\\\": above 110% of the 10.2Gi allowed for 10s.",
   "detail": "Kill all processes of container main (SIGTERM, then SIGKILL after 10s). Rule \\\"notebooks\\\": above 110% of the 10.2Gi allowed for 10s."}],
 "contact": "gpu-team@example.org", "free_below": "5%", "release_timeout_s": 30,
 "pods_synced_at": "2027-01-15T08:00:09.000Z", "pods_stale": false, "stale_after_s": 180,
 "breaker": {"open": false, "since": null, "until": null},
 "maintenance": null, "maintenance_since": null, "maintenance_since_at_least": false, "recent": [], "changes": [], "health": null}
"""  # noqa: E501 - sentences of JSON have no line breaks


def test_the_document_is_the_promised_one() -> None:
    """Every name, type, unit and the order of the keys is what the outside relies on."""
    document = status_document(utilized())
    assert document == json.loads(EXPECTED)
    assert json.dumps(document) == json.dumps(json.loads(EXPECTED))


def test_gpus_are_listed_by_index_and_place() -> None:
    """A card that was lost, which a driver names last, keeps its place; instances are in the order of their slices."""
    instances = [
        gpu(1, uuid=f"MIG-{gi}", parent="GPU-1", gi=gi, ci=0, profile="1g.10gb", placement=(19, first_slice))
        for gi, first_slice in ((7, 4), (9, 0))
    ]
    report = quiet(snapshot=trainer_node(gpus=(*instances, gpu(2), gpu(10), gpu(0, up=False))))
    found = [(each["uuid"], each["first_slice"]) for each in status_document(report)["gpus"]]
    assert found == [("GPU-0", None), ("MIG-9", 0), ("MIG-7", 4), ("GPU-2", None), ("GPU-10", None)]


@pytest.mark.parametrize(
    ("name", "profile", "model"),
    [
        ("NVIDIA L4", None, "NVIDIA L4"),
        ("NVIDIA H100", "1g.10gb", "NVIDIA H100 1g.10gb"),
        ("NVIDIA H100 MIG 1g.10gb", "1g.10gb", "NVIDIA H100 MIG 1g.10gb"),
        ("", None, ""),
    ],
)
def test_the_profile_of_an_instance_is_named_once(name: str, profile: str | None, model: str) -> None:
    """Newer drivers put it into the name themselves."""
    assert GpuStatus(uuid="x", name=name, profile=profile).model == model


def test_unknown_is_null_and_never_zero() -> None:
    """Unknown bytes are null, in accounts, in processes, and in what would be calculated from them."""
    cards = (replace(gpu(0), total=None, used=None, reserved=None), gpu(1, used=None, reserved=Gi))
    document = status_document(Story().see(trainer_node(None, gpus=cards)))
    account = document["accounts"][0]
    assert (account["used"], account["used_at_least"]) == (None, 3 * Gi)
    assert account["processes"][0]["used"] is None
    assert document["gpus"][0]["memory"] == {"total": None, "used": None, "reserved": None, "residual": None}


@pytest.mark.parametrize(
    ("card", "uses", "residual"),
    [
        (gpu(used=5 * Gi, reserved=Gi), [use(5, Gi)], 3 * Gi),
        (gpu(used=Gi, reserved=0), [use(5, 2 * Gi)], -Gi),
        (gpu(used=5 * Gi, reserved=Gi), [use(5, Gi), use(6, None)], None),
        (gpu(used=5 * Gi, reserved=None), [use(5, Gi)], None),
        (gpu(used=None, reserved=Gi), [use(5, Gi)], None),
        (gpu(used=5 * Gi, reserved=Gi, listed=False), [], None),
        (gpu(used=5 * Gi, reserved=Gi), [use(5, Gi), use(5, 3 * Gi, 1)], 3 * Gi),
    ],
)
def test_residual(card: Gpu, uses: list[object], residual: int | None) -> None:
    """The residual is used minus reserved minus all processes of that row: never clamped, null if a part is unknown."""
    report = Story(pods=()).see(snapshot(uses, [], [card, gpu(1)]))  # type: ignore[arg-type]
    assert status_document(report)["gpus"][0]["memory"]["residual"] == residual


def test_compute_instances_share_their_residual() -> None:
    """Each compute instance has the memory of its GPU instance, and so the processes of all of them."""
    one = gpu(used=5 * Gi, reserved=Gi, parent="GPU-9", gi=1, ci=0)
    rows = [one, replace(one, uuid="GPU-1", ci=1), replace(one, uuid="GPU-2", gi=2)]
    report = Story(pods=()).see(snapshot([use(5, Gi), use(6, Gi, 1)], [], rows))
    assert [row["memory"]["residual"] for row in status_document(report)["gpus"]] == [2 * Gi, 2 * Gi, 4 * Gi]


@pytest.mark.parametrize(
    ("card", "unseen"), [(gpu(0, listed=False), frozenset()), (gpu(0), frozenset({"GPU-0"}))], ids=["no list", "WSL"]
)
def test_a_gpu_whose_processes_are_not_all_known_has_no_unattributed_bytes(card: Gpu, unseen: frozenset[str]) -> None:
    """What could not be listed, or is listed without need to be whole, is unknown, whatever is remembered of it."""
    seen = snapshot([use(5, Gi)], [process(5, None)], [card, gpu(1)], unseen=unseen)
    rows = status_document(Story(pods=()).see(seen))["gpus"]
    assert [(row["listed"], row["unattributed"]) for row in rows] == [(False, None), (True, 0)]


def test_while_the_loop_hangs_no_entry_of_the_plan_promises_anything() -> None:
    """Each sentence of the plan says that nothing is done until a cycle ends."""
    health = HealthStatus(version="1", uptime_s=60, hangs_since=Moment(at(9).wall_s))
    document = status_document(climbing(9), health)
    assert document["health"]["hangs_since"] == "2027-01-15T08:00:09.000Z"
    assert document["plan"]
    assert all("no action starts until one does" in each["sentence"] for each in document["plan"])


def test_accounts_of_containers_and_of_unknown_containers() -> None:
    """Point 9: bytes of an unknown container are in the account whose container is the empty text."""
    under = policy(rule(step(), name="r", account="container"))
    stray = process(7, "u1/main", place=Place(kind=PlaceKind.POD, pod="u1"))
    seen = trainer_node(17)
    seen = replace(seen, uses=(*seen.uses, use(7, Gi)), processes={**seen.processes, 7: stray})
    accounts = status_document(Story(under=under).see(seen))["accounts"]
    assert [each["container"] for each in accounts] == ["", "main"]
    assert [each["processes"][0]["container"] for each in accounts] == ["", "main"]
    assert accounts[0]["verdict"] == "undeclared"


def test_the_plan_lists_every_entry_with_its_brake() -> None:
    """A step that is held back is in the plan with the brake that holds it; a scope belongs to kills alone."""
    plan = status_document(Story(journal_writable=False).run(17, 12))["plan"]
    assert [(each["do"], each["scope"], each["step"], each["withheld_by"]) for each in plan] == [
        ("kill", "container", 2, Brake.JOURNAL.value),
        ("warn", None, 0, None),
    ]


def test_gaps_of_the_node_and_of_the_pods() -> None:
    """Whatever could not be learned is listed with its remedy, be it of the driver or of the pod list."""
    first = Gap(reason=GapReason.GPU_LOST, what="GPU-0", problem=Problem("lost", "drain the node"))
    second = Gap(reason=GapReason.PODS, what="pod file", problem=Problem("gone"))
    report = quiet(snapshot=trainer_node(1, gaps=(first,)), pods=PodList(gaps=(second,)))
    unknown = {"since": None, "gpu": None}
    assert status_document(report)["gaps"] == [
        {"what": "GPU-0", "why": "lost", "remedy": "drain the node", "reason": "gpu_lost", **unknown},
        {"what": "pod file", "why": "gone", "remedy": None, "reason": "pods", **unknown},
    ]


def test_a_pod_without_a_rule_or_a_limit_has_nulls() -> None:
    """Where no rule matches and nothing is declared, the words for it are null, not empty texts."""
    pod = trainer(containers=(container(of="u1"),))
    (row,) = status_document(Story(under=policy(rules=()), pods=(pod,)).see(trainer_node()))["accounts"]
    assert [row[key] for key in ("rule", "declared", "declared_by", "allowed", "over_since", "protected")] == [None] * 6
    assert row["verdict"] == "undeclared"


def test_where_nothing_is_declared_the_ladder_has_no_thresholds() -> None:
    """The steps of the rule are listed also where no threshold can be worked out: it is unknown, not 0."""
    nothing = trainer(containers=(container(of="u1"),))
    (account,) = status_document(Story(pods=(nothing,)).see(trainer_node()))["accounts"]
    found = [(step["threshold_bytes"], step["state"], step["since"]) for step in account["ladder"]]
    assert found == [(None, "unknown", None)] * 3


def test_hostile_names_survive_as_json() -> None:
    """Whatever names there are, the document is JSON that any reader takes, without raw control characters."""
    seen = snapshot([use(5, 2 * Gi)], [process(5, "evil/c\x07\r", name="\x1b]0;x\udc80\n")], second=3)
    text = json.dumps(status_document(Story(pods=(hostile_pod(),)).see(seen)))
    assert json.loads(text.encode("utf-8"))["accounts"][0]["processes"][0]["name"] == r"\x1b]0;x\udc80\x0a"
    assert text.isprintable()


OWN = Allowance(per_context=0, max_contexts=0, percent=Fraction(5, 100))
ODD = Allowance(per_context=Gi, max_contexts=2, percent=Fraction(0))
OTHER = Declaration(resource="other", unit=1, allowance=OWN)


@pytest.mark.parametrize(
    ("own", "second", "printed"),
    [
        (None, None, {"percent": "2%", "per_context": 512 * Mi, "contexts": 4}),
        (OWN, None, {"percent": "5%", "per_context": 0, "contexts": 0}),
        (ODD, None, {"percent": "0%", "per_context": Gi, "contexts": 2}),
        (NO_ALLOWANCE, None, None),
        (None, "1Gi", None),  # no single one explains the sum of two
    ],
)
def test_how_what_is_allowed_adds_up(
    own: Allowance | None, second: str | None, printed: dict[str, object] | None
) -> None:
    """The allowance is the one that gave the sum, be it the policy's or the declaration's own."""
    under = policy(declarations=(replace(VERIFF, allowance=own), OTHER))
    side = container("side", of="u1", resources={"other": second} if second else {})
    pod = trainer(containers=(container("main", "8Gi", of="u1"), side))
    (account,) = status_document(Story(under=under, pods=(pod,)).see(trainer_node()))["accounts"]
    assert account["declared"] == (9 * Gi if second else 8 * Gi)
    assert account["allowance"] == printed


def test_an_action_in_progress_is_in_the_status() -> None:
    """While a kill waits for its memory the account says which step it was and what it hit."""
    under_way = UnderWay(step=KILL.signature, victim="main", until_s=at(20).boottime_s + 40)
    (account,) = status_document(acting(climbing(31), under_way))["accounts"]
    moments = {"begun_at": "2027-01-15T08:00:20.000Z", "sigkill_at": "2027-01-15T08:00:30.000Z"}
    known = {"step": 1, "do": "kill", "container": "main", "grace_s": 10, **moments}
    assert account["under_way"] == {**known, "signals": [], "ended": False}
    # What ended on SIGTERM gets no SIGKILL, so none is announced.
    for sent, sigkill_at in ((("SIGTERM",), None), (("SIGTERM", "SIGKILL"), moments["sigkill_at"])):
        ended = replace(under_way, sent=sent, ended=True)
        (account,) = status_document(acting(climbing(31), ended))["accounts"]
        assert account["under_way"] == {**known, "sigkill_at": sigkill_at, "signals": [*sent], "ended": True}
    (account,) = status_document(acting(climbing(31), UnderWay(step=None, victim="")))["accounts"]
    assert account["under_way"] == {**dict.fromkeys(known), "signals": [], "ended": False}


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("Mon-Fri 07:00-18:00 UTC", (True, "Fri 18:00 UTC", "2027-01-15T18:00:00.000Z")),
        ("Mon-Thu 08:00-18:00 UTC", (False, "Mon 08:00 UTC", "2027-01-18T08:00:00.000Z")),
        ("Mon-Sun 00:00-24:00 UTC", (True, None, None)),
    ],
)
def test_the_hours_of_a_rule_are_in_the_status(text: str, printed: tuple[bool, str | None, str | None]) -> None:
    """Whether the hours hold, and when that changes, in the rule's own time zone and in UTC; never: null."""
    active = replace(NOTEBOOKS, active=hours().read(text))
    (account,) = status_document(Story(under=policy(active)).see(trainer_node()))["accounts"]
    (always,) = status_document(Story(under=policy(replace(active, mode="observe"))).see(trainer_node()))["accounts"]
    assert (always["observes"], always["active"]) == (True, None)
    assert account["active"] == dict(zip(("hours", "now", "changes", "changes_at"), (text, *printed), strict=True))


def test_a_pod_list_that_is_too_old_is_marked() -> None:
    """Its reader sees that no time counts; never having had a list counts as too old."""
    assert status_document(quiet(pods=PodList(synced=at(-179))))["pods_stale"] is False
    assert status_document(quiet(pods=PodList(synced=at(-181))))["pods_stale"] is True
    never = status_document(quiet(pods=PodList()))
    assert (never["pods_stale"], never["pods_synced_at"]) == (True, None)


def test_a_plan_on_an_old_list_says_that_no_time_counts() -> None:
    """A step whose timer is paused does not come in this many seconds, and says so."""
    report = Story(pods_stale=True).see(trainer_node(), pods=PodList(pods=(trainer(),), synced=at(-181)))
    ends = " The pod list is out of date: timers are paused until it is updated."
    waiting = [entry["sentence"] for entry in status_document(report)["plan"] if entry["due_in_s"] > 0]
    assert waiting
    assert all(sentence.endswith(ends) for sentence in waiting)
    fresh = status_document(Story().see(trainer_node()))["plan"]
    assert not [each for each in fresh if each["sentence"].endswith(ends)]


def test_maintenance_has_its_reason() -> None:
    """The reason why nothing is known is beside the gaps; what a label holds is escaped."""
    report = replace(quiet(9), maintenance="the node's label nvidia.com/mig.config.state is pend\x1bing")
    reason = status_document(report)["maintenance"]
    assert reason == "the node's label nvidia.com/mig.config.state is pend\\x1bing"


SINCE: Final = "2027-01-15T08:00:00.000Z"


@pytest.mark.parametrize(
    ("suspended", "seen", "reasons"),
    [
        (("maintenance",), True, [f"maintenance: why, since {SINCE}"]),
        (("lock", "maintenance"), False, ["lock", f"maintenance: why, since at least {SINCE}"]),
        ((), True, []),
        (("maintenance",), None, ["maintenance: why"]),
    ],
)
def test_a_suspension_by_maintenance_is_named(
    suspended: tuple[str, ...], seen: bool | None, reasons: list[str]
) -> None:
    """Point 41: with what says so and since when, if that is known; what switches enforcement off besides stays."""
    start = None if seen is None else MaintenanceStart(at=at(0), seen=seen)
    report = quiet(90, maintenance="why", maintenance_start=start, enforcing=False, suspended=suspended)
    document = status_document(report)
    assert document["suspended"] == reasons
    assert document["maintenance_since"] == (SINCE if start is not None else None)
    assert document["maintenance_since_at_least"] is (seen is False)
    assert (report.switched_off_by, report.observes) == (suspended[:-1], suspended != ("maintenance",))


@pytest.mark.parametrize(
    ("start", "reported"),
    [
        (None, "under maintenance (why): their use"),
        (MaintenanceStart(at=at(0), seen=True), "under maintenance (why, since 08:00:00 UTC): their use"),
        (MaintenanceStart(at=at(0), seen=False), "under maintenance (why, since at least 08:00:00 UTC): their use"),
    ],
)
def test_maintenance_is_one_sentence(start: MaintenanceStart | None, reported: str) -> None:
    """Point 41: what people read names what says so, and since when."""
    status = status_of(quiet(90, maintenance="why", maintenance_start=start))
    assert reported in under_maintenance(status)
    assert maintenance_clause(status, status.at) in under_maintenance(status)


def test_a_pod_that_declares_nothing_has_the_key_beside_it() -> None:
    """The plainest key that can be copied comes first; a pod that declares has no need of it."""
    nothing = trainer(containers=(container("main", None, of="u1"),))
    shares = Declaration(resource="a/share", unit="share", shares=4)
    pattern = Declaration(annotation="a/{container}", unit=1)
    for declared, key in (((pattern, shares, VERIFF), VERIFF.key), ((pattern, shares), "a/share"), ((pattern,), None)):
        report = Story(pods=(nothing,), under=policy(declarations=declared)).see(trainer_node(4.0))
        assert status_document(report)["accounts"][0]["declare_by"] == key


def test_what_the_daemon_sends_its_commands_understand() -> None:
    """A driver that fills its counters, and a node and a path whose names are not UTF-8, break no command."""
    most = 2**64 - 1
    report = Story().see(
        snapshot([use(1, most)], [process(1, "u1/main")], (gpu(0, total=most, used=most, reserved=most),))
    )
    document = status_document(replace(report, node=replace(report.node, name="n\udc80")))
    read = decode(json.dumps(document).encode())
    assert (read.gpus[0].memory.used, read.accounts[0].processes[0].used) == (LARGEST, LARGEST)
    assert read.node == "n\\udc80"
    for each in (encode(read), status_document(climbing(9))):  # also: whole seconds stay whole
        text = json.dumps(each)
        assert json.dumps(encode(decode(text.encode()))) == text


def test_threads_may_read_their_first_documents_at_once() -> None:
    """No type is prepared as it is first decoded: msgspec does so in Python code, where another thread can come in."""
    status = status_of(climbing(9))
    hours = NodeHours(node="n1", since=status.at, until=status.at, owners=(OwnerHours(namespace="a"),))
    documents = {
        "status.decode": json.dumps(encode(status)).encode(),
        "summary.decode_summary": encoded(summary_of(status)),
        "card_hours.decode_hours": encode_hours(hours),
    }
    for name, document in documents.items():
        code = f"""
import sys
from pathlib import Path
from watchdog.report import card_hours, status, summary
ran = set()
sys.setprofile(lambda frame, *_: ran.add(Path(frame.f_code.co_filename).parent.name))
{name}({document!r})
sys.setprofile(None)
print(*sorted(ran & {{"report", "msgspec"}}))
"""
        assert run_python(code) == "report\n", name
