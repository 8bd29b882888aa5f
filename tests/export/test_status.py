"""The JSON of `scan --json` and `/api/status`."""

import json
from dataclasses import replace

import pytest

from tests.export.build import Story, climbing, hostile_pod, policy, quiet, trainer, trainer_node
from tests.worlds import Gi, at, container, gpu, process, rule, snapshot, step, use
from watchdog.core.model import Gap, GapReason, Gpu, Place, PlaceKind, PodList
from watchdog.core.plan import Brake, Conditions
from watchdog.export.status import status_document
from watchdog.export.sums import residual_by_gpu, unattributed_by_gpu

EXPECTED = """
{"node": "n1", "at": "2027-01-15T08:00:09.000Z", "mode": "enforce", "enforcing": true, "suspended": [],
 "policy": {"sha256": "abababababababababababababababababababababababababababababababab",
            "loaded_at": "2027-01-15T07:59:00.000Z"},
 "gpus": [
  {"uuid": "GPU-0", "index": 0, "name": "Stub", "parent": null, "gi": null, "ci": null, "profile": null, "up": true,
   "memory": {"total": 85899345920, "used": 13851269529, "reserved": 268435456, "residual": 268435456}},
  {"uuid": "GPU-1", "index": 1, "name": "Stub", "parent": null, "gi": null, "ci": null, "profile": null, "up": true,
   "memory": {"total": 85899345920, "used": 2147483648, "reserved": 268435456, "residual": 805306368}}],
 "accounts": [
  {"namespace": "a", "pod": "trainer", "uid": "u1", "container": null, "gpu": null, "used": 13314398617,
   "used_at_least": 13314398617, "declared": 8589934592, "declared_by": "veriff.com/gpu-memory",
   "allowed": 10909216931, "verdict": "over", "rule": "notebooks", "protected": null,
   "over_since": "2027-01-15T08:00:00.000Z",
   "processes": [
    {"pid": 101, "start_ticks": 1010, "container": "main", "gpu": "GPU-0", "used": 10093173145, "name": "python3"},
    {"pid": 102, "start_ticks": 1020, "container": "main", "gpu": "GPU-0", "used": 1073741824, "name": "python3"},
    {"pid": 103, "start_ticks": 1030, "container": "main", "gpu": "GPU-0", "used": 1073741824, "name": "python3"},
    {"pid": 103, "start_ticks": 1030, "container": "main", "gpu": "GPU-1", "used": 1073741824, "name": "python3"}]}],
 "unattributed": [{"pid": 9, "gpu": "GPU-0", "used": 1073741824, "reason": "host"}],
 "gaps": [],
 "plan": [
  {"namespace": "a", "pod": "trainer", "uid": "u1", "container": "main", "do": "kill", "scope": "container",
   "pids": [101, 102, 103], "rule": "notebooks", "step": 1, "due_in_s": 1, "withheld_by": null},
  {"namespace": "a", "pod": "trainer", "uid": "u1", "container": null, "do": "warn", "scope": null, "pids": [],
   "rule": "notebooks", "step": 0, "due_in_s": 21, "withheld_by": null}]}
"""


def test_the_document_is_the_promised_one() -> None:
    """Every name, type, unit and the order of the keys is what the outside relies on."""
    document = status_document(climbing(9))
    assert document == json.loads(EXPECTED)
    assert json.dumps(document) == json.dumps(json.loads(EXPECTED))


def test_unknown_is_null_and_never_zero() -> None:
    """Unknown bytes are null, in accounts, in processes, and in what would be calculated from them."""
    seen = trainer_node(
        None, gpus=(replace(gpu(0), total=None, used=None, reserved=None), gpu(1, used=None, reserved=Gi))
    )
    document = status_document(Story().see(seen))
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
    assert residual_by_gpu(report)["GPU-0"] == residual
    assert status_document(report)["gpus"][0]["memory"]["residual"] == residual


def test_a_gpu_whose_processes_are_not_known_has_no_unattributed_bytes() -> None:
    """What could not be listed is unknown, also where the rest that is remembered would add up."""
    report = Story(pods=()).see(snapshot([use(5, Gi)], [process(5, None)], [gpu(0, listed=False), gpu(1)]))
    assert unattributed_by_gpu(report) == {"GPU-0": None, "GPU-1": 0}


def test_mig_instances_are_rows_with_their_parent() -> None:
    """A MIG instance is a GPU row of its own, with parent, instances and profile."""
    slice_ = gpu(0, uuid="MIG-1", parent="GPU-0", gi=3, ci=0, profile="1g.10gb", up=False)
    row = status_document(Story().see(snapshot(gpus=[slice_])))["gpus"][0]
    assert [row[key] for key in ("uuid", "parent", "gi", "ci", "profile", "up")] == [
        "MIG-1",
        "GPU-0",
        3,
        0,
        "1g.10gb",
        False,
    ]


def test_accounts_of_containers_and_of_unknown_containers() -> None:
    """Point 9: bytes of an unknown container stand in the account whose container is the empty text."""
    under = policy(rule(step(), name="r", account="container"))
    stray = process(7, "u1/main", place=Place(kind=PlaceKind.POD, pod="u1"))
    seen = trainer_node(17)
    seen = replace(seen, uses=(*seen.uses, use(7, Gi)), processes={**seen.processes, 7: stray})
    accounts = status_document(Story(under=under).see(seen))["accounts"]
    assert [each["container"] for each in accounts] == ["", "main"]
    assert [each["processes"][0]["container"] for each in accounts] == ["", "main"]
    assert accounts[0]["verdict"] == "undeclared"


def test_the_plan_lists_every_entry_with_its_brake() -> None:
    """A step that is held back stands in the plan with the brake that holds it; a scope belongs to kills alone."""
    story = Story(conditions=Conditions(journal_writable=False))
    plan = status_document(story.run(17, 12))["plan"]
    assert [(each["do"], each["scope"], each["step"], each["withheld_by"]) for each in plan] == [
        ("kill", "container", 2, Brake.JOURNAL.value),
        ("warn", None, 0, None),
    ]


def test_gaps_of_the_node_and_of_the_pods() -> None:
    """Whatever could not be learned is listed with its remedy, be it of the driver or of the pod list."""
    first = Gap(reason=GapReason.GPU_LOST, what="GPU-0", why="lost")
    second = Gap(reason=GapReason.PODS, what="pod file", why="gone")
    report = quiet(snapshot=trainer_node(1, gaps=(first,)), pods=PodList(gaps=(second,)))
    assert status_document(report)["gaps"] == [{"what": "GPU-0", "why": "lost"}, {"what": "pod file", "why": "gone"}]


def test_a_pod_without_a_rule_or_a_limit_has_nulls() -> None:
    """Where no rule matches and nothing is declared, the words for it are null, not empty texts."""
    under = policy(rules=())
    account = status_document(Story(under=under, pods=(trainer(containers=(container(of="u1"),)),)).see(trainer_node()))
    row = account["accounts"][0]
    assert [row[key] for key in ("rule", "declared", "declared_by", "allowed", "over_since", "protected")] == [None] * 6
    assert row["verdict"] == "undeclared"


def test_hostile_names_survive_as_json() -> None:
    """Whatever names there are, the document is JSON that any reader takes, without raw control characters."""
    seen = snapshot([use(5, 2 * Gi)], [process(5, "evil/c\x07\r", name="\x1b]0;x\udc80\n")], second=3)
    text = json.dumps(status_document(Story(pods=(hostile_pod(),)).see(seen)))
    assert json.loads(text.encode("utf-8"))["accounts"][0]["processes"][0]["name"] == r"\x1b]0;x\udc80\x0a"
    assert text.isprintable()


def test_times_are_those_of_the_report() -> None:
    """The moment of the pass and the loading of the policy are told in UTC with milliseconds."""
    document = status_document(replace(quiet(), at=replace(at(0), wall_s=1767323045.678), policy_loaded_at_s=0.0))
    assert document["at"] == "2026-01-02T03:04:05.678Z"
    assert document["policy"]["loaded_at"] == "1970-01-01T00:00:00.000Z"
