"""The words for what holds a step back, and for rules that only observe or mind a short card."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.export.build import NOTEBOOKS, entry, killed, outcome, policy, quiet, withheld
from tests.worlds import Gi, at, step
from watchdog.config.fields import hours
from watchdog.core.assessment import MpsHazard, MpsRole
from watchdog.core.brakes import Brake
from watchdog.core.model import ProcessKey
from watchdog.core.plan import PlanEntry, Result
from watchdog.core.policy import Backoff, Brakes, Breaker, Policy, Window
from watchdog.daemon.enforcement import REMEDIES
from watchdog.report.changes import outcome_changes
from watchdog.report.sentences import brakes as idle_words
from watchdog.report.sentences.action import explanation, outcome_note
from watchdog.report.sentences.following import forecast, note
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
KEY = ProcessKey(pid=7, start_ticks=70)
FLAT = policy(brakes=Brakes(owner_backoff=Backoff(first_s=60, factor=1, max_s=3600)))

SENTENCES = [
    (Brake.PROTECTED, None, BOUND, "held back, because the pod is protected: it is in kube-system."),
    (Brake.PENDING, 30.0, BOUND, ("held back for at most another 30s, until 08:01:01 UTC, because an earlier kill "
                                  "or eviction here is still in progress: its memory has not been freed yet.")),
    (Brake.STALE, None, BOUND, "because the list of this node's pods is too old to act on (older than 3m)."),
    (Brake.OWNER, 250.0, BOUND, ("held back for another 4m 10s, until 08:04:41 UTC, because 1 kill or "
                                 "eviction of pods of Job train was started on this node in the last 1h, and "
                                 "the policy allows 1 per 1h.")),
    (Brake.OWNER_BACKOFF, 40.0, BOUND, ("because the last kill or eviction of pods of Job train is too "
                                        "recent: the back-off is 1m after the first and grows 2-fold with "
                                        "each further one, up to 1h.")),
    (Brake.OWNER_BACKOFF, 40.0, FLAT, "is too recent: the policy waits 1m between them."),
    (Brake.NAMESPACE, 90.0, BOUND, ("because 5 kills or evictions in namespace a were started on this node in "
                                    "the last 10m, and the policy allows 5 per 10m.")),
    (Brake.NODE, 90_000.0, BOUND, ("held back for another 1d 1h, until 2027-01-16 09:00:31 UTC, because 10 "
                                   "kills or evictions were started on this node in the last 10m, and the "
                                   "policy allows 10 per 10m.")),
    (Brake.BREAKER, 600.0, BOUND, ("held back for another 10m, until 08:10:31 UTC, because so many workloads are "
                                   "over their limits at once that a wrong policy or reading is more likely than "
                                   "that many real offenders (the breaker opens at 50%); until fewer are over, "
                                   "one workload is killed or evicted every 10m.")),
    (Brake.JOURNAL, None, BOUND, ("because the watchdog can't write its journal, and takes no action without "
                                  "a record.")),
    (Brake.MAINTENANCE, None, BOUND, "because the GPUs of this node are under maintenance."),
    (Brake.UNKNOWN_CONTAINER, None, BOUND, "no container in the pod list exceeds its own declaration."),
    (Brake.MPS, None, BOUND, ("because clients of an MPS server may run on a GPU that can't be listed now, and ending "
     "one can break the others.")),
    (Brake.OWNER, None, policy(), ("of Job train reached the policy's limit on kills and evictions on this "
                                  "node.")),
    (Brake.OWNER_BACKOFF, None, policy(), "the last kill or eviction of pods of Job train on this node is too recent."),
    (Brake.NAMESPACE, None, policy(), ("namespace a reached the policy's limit on kills and evictions on this "
                                      "node.")),
    (Brake.NODE, None, policy(), "this node reached the policy's limit on kills and evictions on this node."),
    (Brake.BREAKER, None, policy(), ("at once that a wrong policy or reading is more likely than that many real "
                                     "offenders.")),
]  # fmt: skip


def held(brake: Brake, releases_in_s: float | None = None, **more: object) -> PlanEntry:
    """A kill of a/trainer, of Job train, that this brake holds back."""
    why = "it is in kube-system" if brake is Brake.PROTECTED else None
    return withheld(brake, assessment=replace(entry().assessment, protected=why), releases_in_s=releases_in_s, **more)


@pytest.mark.parametrize(("brake", "releases_in_s", "under", "says"), SENTENCES)
def test_a_withholding_is_told_in_numbers(brake: Brake, releases_in_s: float | None, under: Policy, says: str) -> None:
    """Whoever is spared reads what held it back, by the numbers of the policy, and the time at which that ends."""
    made = held(brake, releases_in_s)
    assert note(made, at(31), policy=under).endswith(says)
    assert forecast(made, at(31), under).sentence.endswith(says.removeprefix("held back").removeprefix(", "))


@pytest.mark.parametrize(
    ("hazard", "says"),
    [
        (MpsHazard(role=MpsRole.CLIENT, container="main", key=KEY, name="python3"),
         ("because process 7 (python3) in container main is a client of an MPS server outside its pod that can't be "
            "drained, and ending it "
         "can break the work of the other clients.")),
        (MpsHazard(role=MpsRole.SERVER, container="main", key=KEY, name="x"),
         ("because process 7 (x) in container main may be an MPS server, and the work of all its clients would break "
         "with it.")),
        (MpsHazard(role=MpsRole.SERVER, container="main"),
         "because container main may be an MPS server, and the work of all its clients would break with it."),
    ],
)  # fmt: skip
def test_what_mps_holds_back_is_named(hazard: MpsHazard, says: str) -> None:
    """Whoever asks why a pod is left alone reads which of its processes others depend on."""
    made = held(Brake.MPS)
    made = replace(made, assessment=replace(made.assessment, protected=None, mps=(hazard,)))
    assert note(made, at(31), policy=BOUND).endswith(says)


def test_every_brake_stands_in_the_table() -> None:
    """A brake without a sentence here would be one that nobody has read."""
    assert {brake for brake, *_ in SENTENCES} == set(Brake)


def test_what_was_only_observed_is_not_told_as_done() -> None:
    """Observe mode keeps counts of its own, and its withholding must not claim that anybody was killed."""
    made = held(Brake.NAMESPACE, 90.0)
    observing = replace(BOUND, mode="observe")
    assert "5 kills or evictions in namespace a would have started" in note(made, at(31), policy=observing)
    alone = replace(made, assessment=replace(made.assessment, observes=True))
    assert "would have started" in note(alone, at(31), policy=BOUND)


def test_a_pod_without_a_controller_and_a_daemonset() -> None:
    """A pod of no controller is its own owner; a DaemonSet's pod is spared for a reason of its own."""
    pod = replace(entry().assessment.pod, owner=None)
    alone = held(Brake.OWNER, 10.0)
    alone = replace(alone, assessment=replace(alone.assessment, pod=pod))
    assert "because 1 kill or eviction of this pod was started" in note(alone, at(31), policy=BOUND)
    daemon = withheld(Brake.PROTECTED)
    assert note(daemon, at(31)).endswith("because its DaemonSet would recreate the pod on this node immediately.")


def test_a_step_that_waits_for_a_short_card_names_it() -> None:
    """One victim a card: the next waits for that card's memory, not for anything of its own pod."""
    made = held(Brake.PENDING, gpu="GPU-7")
    assert "an earlier kill or eviction on GPU-7 is still in progress" in note(made, at(31))


UNDER_PRESSURE = replace(NOTEBOOKS, steps=(step("100%", 5, "kill", under_pressure=True),))


def test_a_step_under_pressure_says_when_it_counts() -> None:
    """The mark of such a step is none without the shortage: it names the card, and how little counts as short."""
    made = entry(rule=UNDER_PRESSURE, step_index=0, gpu="GPU-0")
    assert threshold_text(made) == "above 100% for 5s while GPU-0 is short of memory"
    assert "above 100% for 5s while GPU-0 is short of memory (less than 5% free). Killing" in note(
        made, at(31), policy=policy()
    )


def test_a_step_under_pressure_compares_with_the_request() -> None:
    """Where a tenant has named a limit above its request, pressure holds it to the request, and so do the words."""
    above = replace(entry().assessment, requested=4 * Gi, allowed_by_request=6 * Gi, allowed=20 * Gi, declared=18 * Gi)
    made = entry(rule=UNDER_PRESSURE, step_index=0, gpu="GPU-0", assessment=above, threshold_bytes=6 * Gi)
    assert "uses 12.4Gi of GPU memory, 207% of the 6Gi allowed (4Gi requested, plus allowance)" in note(made, at(31))
    text = explanation(outcome(made), policy())
    assert "exceeded its GPU memory limit. It used 12.4Gi; its limit was 6Gi: 4Gi requested" in text
    remedy = (
        'set resources.limits["veriff.com/gpu-memory"] of container main to at least 11Gi (the allowance is '
        "added to this)."
    )
    assert remedy in text


def test_a_warning_tells_of_pressure_where_nothing_else_follows() -> None:
    """A rule whose only force is under pressure does not say that it does nothing more."""
    steps = (step("100%", 0, "warn"), step("100%", 5, "kill", under_pressure=True))
    warned = entry(rule=replace(NOTEBOOKS, steps=steps), step_index=0)
    assert "the rule kills above 100% for 5s while its card is short of memory." in note(warned, at(31))
    warned = entry(rule=replace(NOTEBOOKS, steps=(*steps, step("200%", 9))), step_index=0)
    assert note(warned, at(31)).endswith("the rule kills above 200% for 9s (threshold 20.3Gi).")


def observed(**of_rule: object) -> PlanEntry:
    """A kill by a rule that only observes."""
    observing = replace(NOTEBOOKS, **of_rule)  # type: ignore[arg-type]
    return entry(rule=observing, assessment=replace(entry().assessment, rule=observing, observes=True))


def test_a_rule_that_observes_is_named_as_the_reason() -> None:
    """Where the daemon enforces and one rule does not, the words blame the rule and not the mode."""
    made = observed(mode="observe")
    would = outcome(made, Result.OBSERVED)
    (item,) = outcome_changes(would)
    assert item.sentence.endswith("SIGKILL after 10s. No action is taken: this rule only observes.")
    assert forecast(made, at(31)).sentence.endswith(
        'Rule "notebooks": above 110% of the 10.2Gi allowed for 10s. No action will be taken: this rule only observes.'
    )
    assert "would have killed 3 processes of container main, but this rule only observes (rule" in outcome_note(would)
    assert "; this rule only observes, so no action was taken." in explanation(would, policy())


def test_a_rule_outside_its_hours_says_which_they_are() -> None:
    """Whoever is spared by the time of day reads the hours."""
    made = observed(active=hours().read("Mon-Fri 08:00-18:00 Europe/Berlin"))
    says = "this rule only observes outside its hours (Mon-Fri 08:00-18:00 Europe/Berlin)"
    assert forecast(made, at(31)).sentence.endswith(f"No action will be taken: {says}.")
    warned = replace(made, step_index=0)
    assert note(warned, at(31), observing=True).endswith(
        f"above 110% for 10s (threshold 11.2Gi); no action will be taken: {says}."
    )


def test_observe_mode_stays_observe_mode() -> None:
    """Where the whole daemon observes, that is what the words say."""
    assert note(entry(), at(31), observing=True).endswith("No action is taken: the watchdog is in observe mode.")
    assert "the watchdog is in observe mode, so no action was taken" in explanation(
        outcome(result=Result.OBSERVED), policy()
    )
    assert "killed" in explanation(killed(), policy())


def test_a_step_that_a_brake_will_hold_is_not_promised() -> None:
    """What is not due yet and would be held then says both, with the moment at which all brakes let go."""
    made = held(Brake.OWNER, 49.0, due_in_s=7.0)
    assert forecast(made, at(31), BOUND).sentence.startswith(
        "Pod a/trainer, in 7s: kill 3 processes of container main ("
    )
    assert (
        "Held back then, until 08:01:20 UTC, because 1 kill or eviction of pods"
        in forecast(made, at(31), BOUND).sentence
    )
    assert "would be due in 7s but held back then, until 08:01:20 UTC, because 1 kill" in note(
        made, at(31), policy=BOUND
    )


def test_a_suspension_is_the_reason_why_nothing_is_done() -> None:
    """Where the policy says enforce and the stop file lies there, the words name that and not the mode."""
    report = quiet(1, suspended=("stop_file", "x"), enforcing=False)
    (item,) = outcome_changes(outcome(result=Result.OBSERVED), report)
    assert item.sentence.endswith("No action is taken: enforcement is suspended (a stop file exists on the node; x).")
    assert set(REMEDIES) <= set(idle_words._SUSPENDED)
    (item,) = outcome_changes(outcome(result=Result.OBSERVED), quiet(1, policy=policy(mode="observe")))
    assert item.sentence.endswith("No action is taken: the watchdog is in observe mode.")
