"""The metrics: names, labels and meaning as promised; unknown is absent; series go with their pod."""

import threading
from dataclasses import replace
from typing import Literal

import pytest

from tests.export.samples import ACCOUNT, POD, after, read, samples, series, value, values
from tests.report.build import (
    NOTEBOOKS,
    Story,
    climbing,
    entry,
    killed,
    outcome,
    policy,
    quiet,
    trainer,
    trainer_node,
    utilized,
    withheld,
)
from tests.worlds import T0, Gi, at, claimant, container, gpu, process, rule, snapshot, step, use
from watchdog.core.assessment import Verdict
from watchdog.core.brakes import Brake
from watchdog.core.errors import Problem
from watchdog.core.model import Gap, GapReason, MaintenanceStart, MigParent, PodList
from watchdog.core.plan import PlanEntry, Result
from watchdog.core.policy import Declaration, Idle, Maintenance, Pulse
from watchdog.export.metrics import Metrics
from watchdog.node.drivers.thread import PulseState

ACCOUNT_LABELS = "namespace pod container gpu rule"
NAMES_BY_LABELS = {
    "gpu index model driver parent profile sharing": "gpu_info",
    "gpu": "gpu_up gpu_memory_total_bytes gpu_memory_used_bytes gpu_memory_reserved_bytes gpu_memory_residual_bytes "
    "gpu_memory_unattributed_bytes gpu_utilization_ratio",
    "namespace pod container gpu": "container_memory_used_bytes container_gpu_utilization_ratio",
    "namespace state": "namespace_card_seconds_total",
    "namespace pod": "pod_memory_used_bytes pod_memory_declared_bytes pod_memory_peak_bytes",
    ACCOUNT_LABELS: "account_memory_used_bytes account_memory_declared_bytes account_memory_allowed_bytes "
    "account_over_limit account_idle_seconds",
    f"{ACCOUNT_LABELS} verdict": "account_verdict",
    f"{ACCOUNT_LABELS} brake": "account_withheld",
    "verdict": "accounts",
    "namespace pod container action result rule": "pod_last_action_timestamp_seconds",
    "rule action result": "actions_total",
    "rule action": "would_act_total",
    "brake": "withheld_total",
    "action": "reaction_seconds_count",
    "reason": "scan_gaps_total enforcement_suspended",
    "": "release_seconds_count scan_duration_seconds_count cycle_duration_seconds_count last_cycle_timestamp_seconds "
    "pods_last_sync_timestamp_seconds enforcing breaker_open policy_last_reload_successful "
    "maintenance_since_timestamp_seconds maintenance_alert_after_seconds policy_last_reload_success_timestamp_seconds "
    "idle_after_seconds pulse_active pulse_looks_spent_total cycle_late_total",
    "sha256 mode": "policy_info",
    "version python": "build_info",
}
NAMES = {name: set(labels.split()) for labels, names in NAMES_BY_LABELS.items() for name in names.split()}


def test_names_and_labels_are_the_promised_ones() -> None:
    """Dashboards and alerts of others rely on these names and labels, and on there being no others; none has a PID."""
    pods = (trainer(), trainer(name="odd", uid="u9", containers=(container("main", "-1", of="u9"),)))
    last = climbing(10, pods=pods)
    held = replace(last.plan, entries=(withheld(Brake.STALE),))
    start = MaintenanceStart(at=at(0), seen=True)
    last = replace(last, outcomes=(killed(release_s=1.0),), suspended=("lock",), plan=held)
    last = replace(last, maintenance="why", maintenance_start=start, policy=replace(last.policy, pulse=Pulse()))
    last = replace(last, utilization=utilized().utilization)
    found = after(climbing(9), last)
    ours = {name.removeprefix("gpu_watchdog_") for name, _ in found if name.startswith("gpu_watchdog_")}
    assert {name for name in ours if not name.endswith(("_bucket", "_sum"))} == set(NAMES)
    for name, labels in NAMES.items():
        assert all(set(each) == labels for each in series(found, name)), name
    assert not {"101", "102", "103"} & {text for _, labels in found for _, text in labels}


USED = 13314398617


def test_what_pods_containers_and_accounts_use() -> None:
    """Processes, containers and GPUs are summed where their sums are asked for."""
    found = after(climbing(9))
    for card, used in (("GPU-0", USED - Gi), ("GPU-1", Gi)):
        assert values(found, **POD, container="main", gpu=card) == {"container_memory_used_bytes": used}
    pod = {"pod_memory_used_bytes": USED, "pod_memory_declared_bytes": 8 * Gi, "pod_memory_peak_bytes": USED}
    assert values(found, **POD) == pod
    assert values(found, **ACCOUNT) == {
        "account_memory_used_bytes": USED,
        "account_memory_declared_bytes": 8 * Gi,
        "account_memory_allowed_bytes": 10909216931,
        "account_over_limit": 1,
    }
    assert value(after(quiet()), "account_over_limit", **ACCOUNT) == 0


def test_what_gpus_have() -> None:
    """A card's counters, its residual and what is of no pod are under its UUID."""
    found = after(climbing(9))
    assert values(found, gpu="GPU-0") == {
        "gpu_up": 1,
        "gpu_memory_total_bytes": 80 * Gi,
        "gpu_memory_used_bytes": 13851269529,
        "gpu_memory_reserved_bytes": Gi / 4,
        "gpu_memory_residual_bytes": Gi / 4,
        "gpu_memory_unattributed_bytes": Gi,
    }
    assert value(found, "gpu_memory_unattributed_bytes", gpu="GPU-1") == 0
    card = {"gpu": "GPU-0", "index": "0", "model": "Stub", "driver": "550.54", "parent": "", "profile": ""}
    card |= {"sharing": "whole"}
    assert value(found, "gpu_info", **card) == 1


def test_a_mig_parent_has_an_info_alone() -> None:
    """A MIG parent is no GPU row: it has its `gpu_info` and nothing else; its instances name it."""
    slice_ = gpu(0, uuid="MIG-1", parent="GPU-9", gi=1, ci=0, profile="1g.10gb")
    parent = MigParent(uuid="GPU-9", index=0, name="Card")
    found = after(Story().see(snapshot(gpus=[slice_], parents=(parent,))))
    assert [labels["parent"] for labels in series(found, "gpu_info") if labels["gpu"] == "MIG-1"] == ["GPU-9"]
    assert [name for name, labels in found if ("gpu", "GPU-9") in labels] == ["gpu_watchdog_gpu_info"]


def test_unknown_is_absent() -> None:
    """What is not known has no series: not the container of the process, its pod, its account, nor the card."""
    cards = (replace(gpu(0), total=None, used=None, reserved=None, up=False), gpu(1))
    found = after(Story().see(trainer_node(None, gpus=cards)))
    assert values(found, **POD, container="main", gpu="GPU-0") == {}
    assert values(found, **POD, container="main", gpu="GPU-1") == {"container_memory_used_bytes": Gi}
    assert values(found, **POD) == {"pod_memory_declared_bytes": 8 * Gi, "pod_memory_peak_bytes": 3 * Gi}
    assert values(found, **ACCOUNT).keys() == {"account_memory_declared_bytes", "account_memory_allowed_bytes"}
    assert values(found, gpu="GPU-0") == {"gpu_up": 0, "gpu_memory_unattributed_bytes": Gi}


@pytest.mark.parametrize("listed", [False, True], ids=["no list", "a list that may lack processes, as on WSL"])
def test_a_pod_that_may_be_on_a_gpu_whose_processes_are_not_all_known_is_unknown(listed: bool) -> None:
    """A pod seen nowhere does not read as using 0 then, and the card has no sum of its processes."""
    card = gpu(0, used=9 * Gi, reserved=Gi, listed=listed)
    found = after(Story().see(snapshot(gpus=[card], unseen=frozenset({"GPU-0"}))))
    assert values(found, **POD) == {"pod_memory_declared_bytes": 8 * Gi}
    assert value(found, "gpu_memory_used_bytes", gpu="GPU-0") == 9 * Gi
    assert series(found, "gpu_memory_unattributed_bytes") == series(found, "gpu_memory_residual_bytes") == []
    assert value(found, "accounts", verdict="unknown") == 1


def test_the_verdict_names_what_is_neither_within_nor_over() -> None:
    """Each such account has its verdict, with its labels, and no limit that it could be over; no other has one."""
    odd = trainer(name="odd", uid="u2", containers=(container("main", "-1", of="u2"),))
    bare = trainer(name="bare", uid="u3", containers=(container("main", of="u3"),))
    dark = trainer(name="dark", uid="u4", containers=(container("main", "8Gi", of="u4"),))
    idle = trainer(name="idle", uid="u5", containers=(container("main", of="u5"),))
    owners = {101: "u1", 103: "u3", 104: "u4", 105: "u5"}
    uses = [use(101, Gi), use(103, Gi), use(104, None), use(105, 0)]
    seen = snapshot(uses, [process(pid, f"{uid}/main") for pid, uid in owners.items()])
    found = after(Story(pods=(trainer(), odd, bare, dark, idle)).see(seen))
    verdicts = {labels["pod"]: labels["verdict"] for labels in series(found, "account_verdict")}
    assert verdicts == {"odd": "misdeclared", "bare": "undeclared", "dark": "unknown"}
    assert value(found, "account_verdict", **{**ACCOUNT, "pod": "odd"}, verdict="misdeclared") == 1
    assert values(found, **{**ACCOUNT, "pod": "bare"}).keys() == {"account_memory_used_bytes"}
    assert values(found, namespace="a", pod="bare").keys() == {"pod_memory_used_bytes", "pod_memory_peak_bytes"}


def test_a_container_that_the_list_does_not_have_yet_is_unknown() -> None:
    """What it declares is not known, so its pod, which does declare, is not shown as undeclared."""
    under = policy(replace(NOTEBOOKS, account="container"))
    seen = snapshot([use(101, Gi), use(102, Gi)], [process(101, "u1/main"), process(102, "u1/young")])
    (labels,) = series(after(Story(under=under).see(seen)), "account_verdict")
    assert (labels["pod"], labels["container"], labels["verdict"]) == ("trainer", "", "unknown")


def test_series_go_with_their_pod() -> None:
    """A pod that has left the list leaves no series but its last action."""
    story = Story()
    first = story.see(trainer_node())
    story.pods = ()
    found = after(replace(first, outcomes=(killed(),)), story.see(snapshot(second=1)))
    left = {name for name, labels in found if ("pod", "trainer") in labels}
    assert left == {"gpu_watchdog_pod_last_action_timestamp_seconds"}


def test_the_peak_is_kept_over_a_pods_life() -> None:
    """The peak is the most that was seen while the pod lives, also when it uses nothing for a while, and no longer."""
    story = Story()
    reports = [story.see(trainer_node(used, second)) for second, used in enumerate((4, 9, 5))]
    reports.append(story.see(snapshot(second=3)))
    assert value(after(*reports), "pod_memory_peak_bytes", **POD) == 9 * Gi
    story.pods = (trainer(uid="u2", containers=(container("main", "8Gi", of="u2"),)),)
    reports.append(story.see(snapshot([use(201, Gi)], [process(201, "u2/main")], second=4)))
    assert value(after(*reports), "pod_memory_peak_bytes", **POD) == Gi


@pytest.mark.parametrize("uid", ["u0", "u2"])
def test_two_pods_of_one_name_are_one_series(uid: str) -> None:
    """While the old pod of a recreated one is still terminating, nothing is there twice; both its bytes are counted."""
    old = trainer(deletion_deadline_s=T0 + 600)
    new = trainer(uid=uid, containers=(container("main", "4Gi", of=uid),))
    seen = trainer_node(12.4)
    fresh = process(201, f"{uid}/main")
    seen = replace(seen, uses=(*seen.uses, use(201, 2 * Gi)), processes={**seen.processes, 201: fresh})
    found = after(Story(pods=(old, new)).see(seen))
    assert values(found, **POD) == {
        "pod_memory_used_bytes": USED + 2 * Gi, "pod_memory_declared_bytes": 12 * Gi, "pod_memory_peak_bytes": USED,
    }  # fmt: skip
    assert value(found, "container_memory_used_bytes", **POD, container="main", gpu="GPU-0") == USED + Gi
    assert value(found, "account_memory_declared_bytes", **ACCOUNT) == 4 * Gi
    assert value(found, "account_over_limit", **ACCOUNT) == 0
    assert sum(value(found, "accounts", verdict=verdict.value) or 0 for verdict in Verdict) == 2


def test_accounts_of_containers_and_gpus_have_their_labels() -> None:
    """Where the account is a container on one GPU, its labels say so."""
    per_gpu = Declaration(resource="veriff.com/gpu-memory", unit=1, per="gpu")
    under = policy(replace(NOTEBOOKS, account="container"), declarations=(per_gpu,))
    found = after(Story(under=under).see(trainer_node()))
    labels = {(each["container"], each["gpu"]) for each in series(found, "account_memory_used_bytes")}
    assert labels == {("main", "GPU-0"), ("main", "GPU-1")}
    assert value(found, "pod_memory_declared_bytes", **POD) == 16 * Gi


@pytest.mark.parametrize("account", ["pod", "container"])
def test_a_total_beside_claims_counts_once(account: Literal["pod", "container"]) -> None:
    """Where a pod has an account on each card and one over all, each byte is in the pod's sums once."""
    claims = {name: claimant("u1", size=size).claims["gpu"] for name, size in (("gpu", 8 * Gi), ("second", 16 * Gi))}
    on_other = replace(claims["second"].devices[0], name="gpu-1", uuid="GPU-1")
    claims["second"] = replace(claims["second"], devices=(on_other,))
    main = replace(container("main", "3Gi", of="u1"), claims=tuple(claims))
    owner = trainer(containers=(main, container("side", "1Gi", of="u1")), claims=claims)
    under = policy(replace(NOTEBOOKS, account=account), schemes=("dra",))
    found = after(Story(under=under, pods=(owner,)).see(trainer_node()))
    assert {labels["gpu"] for labels in series(found, "account_memory_used_bytes")} == {"GPU-0", "GPU-1", ""}
    assert values(found, **POD) == {
        "pod_memory_used_bytes": USED, "pod_memory_declared_bytes": 28 * Gi, "pod_memory_peak_bytes": USED,
    }  # fmt: skip


def test_counters_are_preset() -> None:
    """Whatever can be counted is there as 0 from the first cycle, so that the first time shows as an increase."""
    found = after(quiet())
    ways = {(labels["rule"], labels["action"], labels["result"]) for labels in series(found, "actions_total")}
    results = ("done", "failed", "blocked", "gone", "interrupted", "withdrawn")
    assert ways == {("notebooks", action, result) for action in ("warn", "kill") for result in results}
    assert {labels["brake"] for labels in series(found, "withheld_total")} == {brake.value for brake in Brake}
    assert {labels["reason"] for labels in series(found, "scan_gaps_total")} == {each.value for each in GapReason}
    assert len(series(found, "would_act_total")) == 2
    assert values(found, action="kill")["reaction_seconds_count"] == values(found)["release_seconds_count"] == 0
    assert all(count == 0 for (name, _), count in found.items() if name.endswith(("actions_total", "withheld_total")))
    only = after(quiet(policy=policy(rule(name="measure"), rule(step("100%", 0, "evict"), name="evicting"))))
    assert {labels["action"] for labels in series(only, "actions_total")} == {"evict"}


def test_actions_are_counted_by_their_results() -> None:
    """Each outcome counts once under its result; what observe mode would have done counts apart and acted on no pod."""
    warned, failed, observed = entry(climbing(5), "warn"), Result.FAILED, Result.OBSERVED
    found = after(
        quiet(1, began=(killed(),)),
        quiet(2, outcomes=(killed(), outcome(warned), outcome(result=failed))),
        quiet(3, outcomes=(outcome(result=observed),)),
    )
    counted = {(each["action"], each["result"]): value(found, "actions_total", **each)
               for each in series(found, "actions_total")}  # fmt: skip
    assert {way for way, count in counted.items() if count} == {("kill", "done"), ("kill", "failed"), ("warn", "done")}
    assert set(counted.values()) == {0, 1}
    assert value(found, "would_act_total", rule="notebooks", action="kill") == 1
    assert {labels["result"] for labels in series(found, "pod_last_action_timestamp_seconds")} == {"done", "failed"}


def test_withheld_steps_count_once_per_incident() -> None:
    """Point 29: only what the plan marks as new counts, under its brake."""
    report = climbing()
    held, again = (
        replace(report, plan=replace(report.plan, entries=(replace(withheld(Brake.STALE), is_new=is_new),)))
        for is_new in (True, False)
    )
    found = after(held, again, again)
    assert value(found, "withheld_total", brake="stale") == 1
    assert value(found, "withheld_total", brake="journal") == 0


def test_what_is_withheld_now_is_there_for_as_long_as_it_is() -> None:
    """Point 29: a withheld step stays due. One series an account and brake, none for what is not due yet or is done."""
    report, due = climbing(), entry()
    stale, journal = (replace(withheld(brake), is_new=False) for brake in (Brake.STALE, Brake.JOURNAL))
    later = replace(withheld(Brake.NODE), due_in_s=1.0)

    def exposed(*entries: PlanEntry) -> list[dict[str, str]]:
        return series(after(replace(report, plan=replace(report.plan, entries=entries))), "account_withheld")

    assert exposed(stale) == [{**ACCOUNT, "brake": "stale"}]
    assert exposed(stale, stale, later, due) == [{**ACCOUNT, "brake": "stale"}]
    assert {labels["brake"] for labels in exposed(stale, journal)} == {"stale", "journal"}
    assert exposed(later) == exposed(due) == exposed() == []


def test_gaps_count_at_every_cycle() -> None:
    """A gap counts as long as it lasts, the driver's and the pod list's."""
    lost, missing = (
        Gap(reason=reason, what="x", problem=Problem("x")) for reason in (GapReason.GPU_LOST, GapReason.PODS)
    )
    pods = PodList(gaps=(missing,))
    reports = [replace(quiet(n), snapshot=trainer_node(1, n, gaps=(lost, lost)), pods=pods) for n in range(3)]
    found = after(*reports)
    assert value(found, "scan_gaps_total", reason="gpu_lost") == 6
    assert value(found, "scan_gaps_total", reason="pods") == 3


def test_the_last_action_outlives_its_pod_by_15_minutes() -> None:
    """An alert has a quarter of an hour to see what was done to a pod that has gone since."""
    story, metrics = Story(), Metrics()
    metrics.update(replace(story.see(trainer_node(second=31)), outcomes=(killed(),)))
    there = {**POD, "container": "main", "action": "kill", "result": "done", "rule": "notebooks"}
    for second in (3000, 3100, 3500, 3999):
        metrics.update(story.see(snapshot(second=second)))
        assert value(read(metrics), "pod_last_action_timestamp_seconds", **there) == at(31).wall_s
        story.pods = ()
    metrics.update(story.see(snapshot(second=4001)))
    assert series(read(metrics), "pod_last_action_timestamp_seconds") == []


def test_histograms() -> None:
    """Times fall into the bucket of the next bound above them, and sums and counts agree."""
    found = after(
        quiet(1, began=(killed(reaction_s=0.05),), scan_s=0.004, duration_s=100.0),
        quiet(2, outcomes=(killed(release_s=3.0),), scan_s=0.004, duration_s=0.0),
    )
    for name, expected, labels in (
        ("reaction_seconds", {"0.025": 0, "0.05": 1}, {"action": "kill"}),
        ("release_seconds", {"2.5": 0, "5.0": 1}, {}),
        ("cycle_duration_seconds", {"10.0": 1, "+Inf": 2}, {}),
    ):
        assert {le: value(found, f"{name}_bucket", **labels, le=le) for le in expected} == expected
    assert value(found, "reaction_seconds_count", action="kill") == 1
    assert (values(found)["release_seconds_sum"], values(found)["scan_duration_seconds_count"]) == (3.0, 2)


def test_the_daemons_own_state() -> None:
    """Whether it enforces, why not, and how fresh what it knows is."""
    found = after(quiet(5, suspended=("lock", "journal"), enforcing=False))
    assert {labels["reason"] for labels in series(found, "enforcement_suspended")} == {"lock", "journal"}
    now_s = at(5).wall_s
    state = {"enforcing": 0, "breaker_open": 0, "last_cycle_timestamp_seconds": now_s}
    assert values(found).items() >= {**state, "pods_last_sync_timestamp_seconds": now_s}.items()
    assert series(after(quiet(pods=PodList())), "pods_last_sync_timestamp_seconds") == []
    assert series(after(quiet()), "enforcement_suspended") == []


def test_maintenance_is_dated_in_both_modes() -> None:
    """Point 41: when it began and what the policy allows; without maintenance there is no date."""
    start = MaintenanceStart(at=at(-90), seen=False)
    for reasons in ((), ("maintenance",)):
        found = after(quiet(5, enforcing=False, suspended=reasons, maintenance="why", maintenance_start=start))
        assert values(found)["maintenance_since_timestamp_seconds"] == at(-90).wall_s
        assert values(found)["enforcing"] == 0
        assert [labels["reason"] for labels in series(found, "enforcement_suspended")] == [*reasons]
    found = after(quiet(policy=policy(maintenance=Maintenance(alert_after_s=120.0))))
    assert series(found, "maintenance_since_timestamp_seconds") == []
    assert values(found)["maintenance_alert_after_seconds"] == 120


@pytest.mark.parametrize(
    ("pulse", "is_active", "shown"),
    [(Pulse(), True, [1]), (Pulse(), False, [0]), (Pulse(every_s=0.0), False, []), (None, False, [])],
)
def test_the_pulse_is_shown_where_the_policy_has_one(pulse: Pulse | None, is_active: bool, shown: list[float]) -> None:
    """Point 40: whether counters are read, as of the scrape and not of the last cycle, which may be a while ago."""
    state = [PulseState()]
    metrics = Metrics(pulse=lambda: state[0])
    metrics.update(quiet(policy=policy(pulse=pulse)))
    state[0] = PulseState(is_active=is_active, looks_spent=7)
    found = read(metrics)
    assert [value for (name, _), value in found.items() if name == "gpu_watchdog_pulse_active"] == shown
    assert values(found)["pulse_looks_spent_total"] == 7


def test_how_busy_and_for_how_long_idle() -> None:
    """An account that computes has been idle for 0 s; where that is unknown, or `[idle]` is off, it has no series."""
    known = utilized()
    found = after(known)
    assert value(found, "account_idle_seconds", **ACCOUNT) == pytest.approx(7201.4)
    assert value(found, "idle_after_seconds") == 7200
    computing = replace(known, utilization=replace(known.utilization, idle_s={}))
    assert value(after(computing), "account_idle_seconds", **ACCOUNT) == 0
    off = replace(climbing(9), policy=replace(known.policy, idle=Idle(after_s=0.0)))
    assert not {"account_idle_seconds", "idle_after_seconds"} & values(after(off), **ACCOUNT).keys()
    assert series(after(off), "idle_after_seconds") == []


def test_a_bad_reload_shows() -> None:
    """A policy file that stops parsing shows as a metric, while the time of the last good one stays."""
    metrics = Metrics()

    def reload() -> tuple[float, float]:
        found = values(read(metrics))
        return found["policy_last_reload_successful"], found["policy_last_reload_success_timestamp_seconds"]

    metrics.update(quiet())
    assert reload() == (1, at(-60).wall_s)
    metrics.policy_reload(ok=False, wall_s=at(10).wall_s)
    assert reload() == (0, at(-60).wall_s)
    metrics.policy_reload(ok=True, wall_s=at(20).wall_s)
    metrics.update(quiet(21))
    assert reload() == (1, at(20).wall_s)


def test_a_scrape_sees_one_cycle_and_not_parts_of_two() -> None:
    """Scrapes on another thread while cycles go on always find numbers that belong together."""
    metrics = Metrics()
    reports = [Story().see(trainer_node(used)) for used in (4, 6, 8)]
    metrics.update(reports[0])
    stop = threading.Event()

    def update() -> None:
        while not stop.is_set():
            for report in reports:
                metrics.update(report)

    thread = threading.Thread(target=update)
    thread.start()
    try:
        for _ in range(50):
            found = samples(metrics.registry.collect())
            pod = value(found, "pod_memory_used_bytes", **POD)
            assert pod == value(found, "account_memory_used_bytes", **ACCOUNT)
            assert value(found, "scan_duration_seconds_count") == value(found, "cycle_duration_seconds_count")
    finally:
        stop.set()
        thread.join()
