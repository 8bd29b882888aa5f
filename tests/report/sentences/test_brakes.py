"""The sentences about what holds a step back, and about rules that only observe or that act only on a full card."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.report.build import NOTEBOOKS, entry, outcome, policy, quiet, withheld
from tests.worlds import Gi, at, step
from watchdog.config.fields import hours
from watchdog.core.brakes import Brake
from watchdog.core.hazards import Hazard, HazardRole
from watchdog.core.model import ProcessKey
from watchdog.core.plan import PlanEntry, Result
from watchdog.core.policy import Backoff, Brakes, Breaker, Policy, Window
from watchdog.report.changes import outcome_changes
from watchdog.report.sentences import brakes as idle_words
from watchdog.report.sentences.action import explanation, outcome_note
from watchdog.report.sentences.following import forecast, note
from watchdog.report.sentences.suspension import REMEDIES
from watchdog.report.sentences.usage import threshold_text

BOUND = policy(
    brakes=Brakes(
        node=Window(count=10, per_s=600),
        namespace=Window(count=5, per_s=600),
        owner=Window(count=1, per_s=3600),
        owner_backoff=Backoff(first_s=60, factor=2, max_s=3600),
        breaker=Breaker(offenders=Fraction(1, 2), of_at_least=3, hold_s=600),
    )
)
FLAT = policy(brakes=Brakes(owner_backoff=Backoff(first_s=60, factor=1, max_s=3600)))
KILL = entry()


def held(brake: Brake, releases_in_s: float | None = None, *, gpu: str | None = None, **more: object) -> PlanEntry:
    """A kill of a/trainer, of Job train, that this brake holds back; `more` is of its assessment."""
    assessment = replace(KILL.assessment, **more)  # type: ignore[arg-type]
    return withheld(brake, assessment=assessment, releases_in_s=releases_in_s, gpu=gpu)


def by_mps(role: HazardRole, *, is_known: bool = True) -> PlanEntry:
    """A kill that is withheld by process 7, or by what is known of container main alone."""
    key = ProcessKey(pid=7, start_ticks=70) if is_known else None
    return held(Brake.HAZARD, hazards=(Hazard(role=role, container="main", key=key, name="python3"),))


SENTENCES = [
    (held(Brake.PROTECTED, protected="it is in kube-system"), BOUND,
     "withheld, because the pod is protected: it is in kube-system."),
    (held(Brake.PROTECTED), policy(), "because its DaemonSet would recreate the pod on this node immediately."),
    (held(Brake.PENDING, 30.0), BOUND,
     ("withheld for at most another 30s, until 08:01:01 UTC, because an earlier kill or eviction here is still in "
     "progress: its memory has not been freed yet.")),
    (held(Brake.PENDING, gpu="GPU-7"), policy(),
     "because an earlier kill or eviction on GPU-7 is still in progress: its memory has not been freed yet."),
    (held(Brake.STALE), BOUND, "because the list of this node's pods is too old to act on (older than 3m)."),
    (held(Brake.OWNER, 250.0), BOUND,
     ("withheld for another 4m 10s, until 08:04:41 UTC, because 1 kill or eviction of pods of Job train was started "
     "on this node in the last 1h, and the policy allows 1 per 1h.")),
    (held(Brake.OWNER, pod=replace(KILL.assessment.pod, owner=None)), BOUND,
     "because 1 kill or eviction of this pod was started on this node in the last 1h, and the policy allows 1 per 1h."),
    (held(Brake.OWNER_BACKOFF, 40.0), BOUND,
     ("because the last kill or eviction of pods of Job train is too recent: the back-off is 1m after the first and "
     "grows 2-fold with each further one, up to 1h.")),
    (held(Brake.OWNER_BACKOFF, 40.0), FLAT, "is too recent: the policy waits 1m between them."),
    (held(Brake.NAMESPACE, 90.0), BOUND,
     ("because 5 kills or evictions in namespace a were started on this node in the last 10m, and the policy allows "
     "5 per 10m.")),
    # Observe mode keeps counts of its own, and must not claim that anything was killed.
    (held(Brake.NAMESPACE, 90.0), replace(BOUND, mode="observe"),
     ("because 5 kills or evictions in namespace a would have started on this node in the last 10m, and the policy "
     "allows 5 per 10m.")),
    (held(Brake.NODE, observes=True), BOUND,
     "because 10 kills or evictions would have started on this node in the last 10m, and the policy allows 10 per 10m."
     ),
    (held(Brake.NODE, 90_000.0), BOUND,
     ("withheld for another 1d 1h, until 2027-01-16 09:00:31 UTC, because 10 kills or evictions were started on this "
     "node in the last 10m, and the policy allows 10 per 10m.")),
    (held(Brake.BREAKER, 600.0), BOUND,
     ("withheld for another 10m, until 08:10:31 UTC, because so many workloads are over their limits at once that a "
     "wrong policy or reading is more likely than that many real offenders (the breaker opens at 50%); until fewer are "
     "over, one workload is killed or evicted every 10m.")),
    (held(Brake.BREAKER, observes=True), BOUND,
     "(the breaker opens at 50%); until fewer are over, one workload would be killed or evicted every 10m."),
    (held(Brake.JOURNAL), BOUND, "because the watchdog can't write its journal, and takes no action without a record."),
    (held(Brake.MAINTENANCE), BOUND, "because the GPUs of this node are under maintenance."),
    (held(Brake.CLAIM, behind_pod="a/other"), BOUND, "because pod a/other uses more of the claim that both have."),
    (held(Brake.CLAIM, behind_pod="a/trainer"), BOUND,
     "because another container of the pod uses more of the claim that both have."),
    (held(Brake.UNKNOWN_CONTAINER), BOUND, "no container in the pod list exceeds its own declaration."),
    (held(Brake.HAZARD), BOUND,
     "because MPS clients may be missing in this reading (see the data gaps), and ending one can break the others."
     ),
    (by_mps(HazardRole.CLIENT), BOUND,
     ("because process 7 (python3) in container main is a client of an MPS server outside its pod that can't be "
     "drained, and ending it can break the work of the other clients.")),
    (by_mps(HazardRole.SERVER), BOUND,
     ("because process 7 (python3) in container main may be an MPS server, and the work of all its clients would break "
     "with it.")),
    (by_mps(HazardRole.SERVER, is_known=False), BOUND,
     "because container main may be an MPS server, and the work of all its clients would break with it."),
    (held(Brake.OWNER), policy(), "of Job train reached the policy's limit on kills and evictions on this node."),
    (held(Brake.OWNER_BACKOFF), policy(),
     "the last kill or eviction of pods of Job train on this node is too recent."),
    (held(Brake.NAMESPACE), policy(),
     "namespace a reached the policy's limit on kills and evictions on this node."),
    (held(Brake.NODE), policy(), "this node reached the policy's limit on kills and evictions on this node."),
    (held(Brake.BREAKER), policy(),
     "at once that a wrong policy or reading is more likely than that many real offenders."),
    (replace(held(Brake.OWNER), counts_as_full=True), BOUND,
     "so the limit of pods of Job train (1 per 1h) is treated as reached for one full period."),
    (replace(held(Brake.OWNER_BACKOFF), counts_as_full=True), BOUND,
     "the wait after a kill or eviction of pods of Job train (at most 1h) is treated as reached for one full period."),
    (replace(held(Brake.NODE), counts_as_full=True), BOUND,
     "so the limit of this node (10 per 10m) is treated as reached for one full period."),
]  # fmt: skip


@pytest.mark.parametrize(("made", "under", "says"), SENTENCES)
def test_a_step_that_is_held_back_has_its_reason_in_numbers(made: PlanEntry, under: Policy, says: str) -> None:
    """The owner reads what held the step back, by the numbers of the policy, and the time at which that ends."""
    assert note(made, at(31), policy=under).endswith(says)
    assert forecast(made, at(31), under).sentence.endswith(says.removeprefix("withheld").removeprefix(", "))


def test_every_brake_is_in_the_table() -> None:
    """A brake without a sentence here would have one that was never read."""
    assert {made.withheld_by for made, *_ in SENTENCES} == set(Brake)


def test_a_step_that_a_brake_will_hold_is_not_promised() -> None:
    """What is not due yet and would be held then says both, with the moment at which all brakes release."""
    made = replace(held(Brake.OWNER, 49.0), due_in_s=7.0)
    found, because = forecast(made, at(31), BOUND).sentence, ", until 08:01:20 UTC, because 1 kill or eviction of pods"
    assert found.startswith("Pod a/trainer, in 7s: kill all processes of container main (")
    assert f"Withheld then{because}" in found
    assert f"would be due in 7s but withheld then{because}" in note(made, at(31), policy=BOUND)


UNDER_PRESSURE = replace(NOTEBOOKS, steps=(step("100%", 5, "kill", under_pressure=True),))


def test_a_step_under_pressure_says_when_it_counts() -> None:
    """The threshold of such a step is none without the shortage: it names the card, and how little counts as short."""
    made = entry(rule=UNDER_PRESSURE, step_index=0, gpu="GPU-0")
    assert threshold_text(made) == "above 100% for 5s while GPU-0 is short of memory"
    assert threshold_text(made, policy()) == f"{threshold_text(made)} (less than 5% free)"


def test_a_step_under_pressure_compares_with_the_request() -> None:
    """Where a tenant has named a limit above its request, pressure holds it to the request, and so do the words."""
    above = replace(KILL.assessment, requested=4 * Gi, allowed_by_request=6 * Gi, allowed=20 * Gi, declared=18 * Gi)
    made = entry(rule=UNDER_PRESSURE, step_index=0, gpu="GPU-0", assessment=above, threshold_bytes=6 * Gi)
    assert "uses 12.4Gi of GPU memory, 207% of the 6Gi allowed (4Gi requested, plus allowance)" in note(made, at(31))
    text = explanation(outcome(made), policy())
    assert "It used 12.4Gi; its limit was 6Gi: 4Gi requested" in text
    assert "of container main to at least 11Gi" in text


def test_a_warning_announces_a_step_under_pressure_where_nothing_else_follows() -> None:
    """A rule that enforces only under pressure does not say that it does nothing more."""
    steps = (step("100%", 0, "warn"), step("100%", 5, "kill", under_pressure=True))
    warned = entry(rule=replace(NOTEBOOKS, steps=steps), step_index=0)
    assert "the rule kills above 100% for 5s while its card is short of memory." in note(warned, at(31))
    warned = entry(rule=replace(NOTEBOOKS, steps=(*steps, step("200%", 9))), step_index=0)
    assert note(warned, at(31)).endswith("the rule kills above 200% for 9s (threshold 20.3Gi).")


@pytest.mark.parametrize(
    ("of_rule", "says"),
    [
        ({"mode": "observe"}, "this rule only observes"),
        ({"active": hours().read("Mon-Fri 08:00-18:00 Europe/Berlin")},
         "this rule only observes outside its hours (Mon-Fri 08:00-18:00 Europe/Berlin)"),
    ],
)  # fmt: skip
def test_a_rule_that_observes_is_named_as_the_reason(of_rule: dict[str, object], says: str) -> None:
    """Where the daemon enforces and one rule does not, or not now, the words blame the rule and not the mode."""
    observing = replace(NOTEBOOKS, **of_rule)  # type: ignore[arg-type]
    made = entry(rule=observing, assessment=replace(KILL.assessment, rule=observing, observes=True))
    would = outcome(made, Result.OBSERVED)
    (item,) = outcome_changes(would)
    assert item.sentence.endswith(f"SIGKILL after 10s. No action is taken: {says}.")
    assert forecast(made, at(31)).sentence.endswith(
        f'Rule "notebooks": above 110% of the 10.2Gi allowed for 10s. No action will be taken: {says}.'
    )
    assert f"would have killed all processes of container main, but {says} (rule" in outcome_note(would)
    assert f"; {says}, so no action was taken." in explanation(would, policy())
    assert note(replace(made, step_index=0), at(31), observing=True).endswith(
        f"above 110% for 10s (threshold 11.2Gi); no action will be taken: {says}."
    )


def test_where_the_daemon_observes_the_words_say_so_and_why() -> None:
    """By its mode, or because enforcement is suspended although the policy says enforce; never as if it had acted."""
    would = outcome(result=Result.OBSERVED)
    observing = note(KILL, at(31), observing=True)
    assert "Would kill all processes of container main: SIGTERM, then SIGKILL after 10s." in observing
    assert observing.endswith("No action is taken: the watchdog is in observe mode.")
    assert "Killing" not in observing
    assert "the watchdog is in observe mode, so no action was taken" in explanation(would, policy())
    (item,) = outcome_changes(would, quiet(1, policy=policy(mode="observe")))
    assert item.sentence == observing
    (item,) = outcome_changes(would, quiet(1, suspended=("stop_file", "x"), enforcing=False))
    assert item.sentence.endswith("No action is taken: enforcement is suspended (a stop file exists on the node; x).")
    assert set(REMEDIES) <= set(idle_words._SUSPENDED)
