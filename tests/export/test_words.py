"""The sentences that people read."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.export.build import (
    NOTEBOOKS,
    Story,
    climbing,
    entry,
    killed,
    outcome,
    policy,
    trainer,
    trainer_node,
    withheld,
)
from tests.worlds import Gi, Mi, at, container, rule, snapshot, step, use
from watchdog.core.assessment import Misdeclaration, Verdict
from watchdog.core.brakes import Brake
from watchdog.core.model import Now, ProcessKey, elapsed_s
from watchdog.core.plan import PlanEntry, Result, Sent
from watchdog.core.policy import Declaration, Policy
from watchdog.daemon.kill import ENOUGH
from watchdog.report.sentences.action import explanation, outcome_note, release_note
from watchdog.report.sentences.following import forecast, misdeclared_note, note
from watchdog.report.text import clip, fit, inert, rfc3339, shorten, span

KILLING = (
    "Pod a/trainer uses 12.4Gi of GPU memory, 122% of the 10.2Gi allowed (8Gi declared by veriff.com/gpu-memory, "
    'plus allowance), for 31s. Rule "notebooks": above 110% for 10s. Killing 3 processes of container main: SIGTERM, '
    "then SIGKILL after 10s."
)


def by_rule(*steps: object, used: int = 12 * Gi, declared: str | None = "8Gi", **more: object) -> PlanEntry:
    """The first plan entry of a pod with one process under a rule with these steps."""
    under = policy(rule(*steps, name="r", **more))  # type: ignore[arg-type]
    pod = trainer(containers=(container("main", declared, of="u1"),))
    seen = snapshot([use(101, used)], [], second=0.0)
    place = {101: replace(seen.processes[101], place=trainer_node().processes[101].place)}
    return Story(under=under, pods=(pod,)).see(replace(seen, processes=place)).plan.entries[0]


def test_the_note_of_a_kill_reads_as_promised() -> None:
    """The Event's note is, to the letter, the one that the contract shows."""
    assert note(entry(), at(31)) == KILLING


def test_observe_mode_says_what_it_would_do() -> None:
    """A note of observe mode never reads as if something had been done."""
    text = note(entry(), at(31), observing=True)
    assert "Would kill 3 processes of container main: SIGTERM, then SIGKILL after 10s." in text
    assert text.endswith("No action is taken: the watchdog is in observe mode.")
    assert "Killing" not in text


def test_a_warning_tells_what_comes_next() -> None:
    """A warning that does not say what follows is read too late."""
    text = note(entry(climbing(5), "warn"), at(5))
    assert text.endswith("This is a warning: the rule kills above 110% for 10s (threshold 11.2Gi).")
    last = by_rule(step("100%", 0, "warn"))
    assert note(last, at(0)).endswith("This is a warning: the rule takes no further action.")


@pytest.mark.parametrize("observing", [False, True])
def test_a_warning_to_a_protected_pod_threatens_nothing(observing: bool) -> None:
    """Point 35: a protected pod is never acted on, so its warning does not leave the rule's threat standing."""
    warned = entry(climbing(5), "warn")
    spared = replace(warned, assessment=replace(warned.assessment, protected="it is in kube-system"))
    assert note(spared, at(5), observing=observing).endswith(
        ": no kill or eviction follows, because this pod is protected (it is in kube-system)."
    )
    last = by_rule(step("100%", 0, "warn"))
    spared = replace(last, assessment=replace(last.assessment, protected="it is in kube-system"))
    assert note(spared, at(5), observing=observing).endswith(": the rule takes no further action.")
    evicting = rule(step("100%", 30, "warn"), step("120%", 60, "evict"), name="r")
    warned = entry(climbing(5, under=policy(evicting)), "warn")
    spared = replace(warned, assessment=replace(warned.assessment, protected="it is in kube-system"))
    assert note(spared, at(5), observing=observing).endswith(
        ": no kill or eviction follows, because this pod is protected (it is in kube-system)."
    )


@pytest.mark.parametrize("brake", list(Brake))
def test_every_brake_has_its_reason(brake: Brake) -> None:
    """Whoever is spared finds what held it back, for every brake there is."""
    held = withheld(brake, assessment=replace(entry().assessment, protected="it is in kube-system"))
    text = note(held, at(31))
    assert re.search(
        r"No action taken: killing 3 processes of container main is due but held back, because .{20,}\.$", text
    )
    assert "Killing 3" not in text
    assert ("kube-system" in text) == (brake is Brake.PROTECTED)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (by_rule(step("150%", 0, grace_s=0.0), used=20 * Gi), "above 150%, immediately. Killing 1 process of"),
        (by_rule(step("150%", 0, grace_s=0.0), used=20 * Gi), "container main: SIGKILL immediately."),
        (by_rule(step(f"+{512 * Mi}", 5), used=20 * Gi), "Rule \"r\": more than 512Mi above allowed for 5s."),
        (by_rule(step(f"{12 * Gi}", 5), used=20 * Gi), "Rule \"r\": above 12Gi for 5s."),
        (by_rule(step(f"{2 * Gi}", 5), used=20 * Gi), "Rule \"r\": above 2Gi for 5s (and above what is allowed)."),
        (by_rule(step("100%", 0, scope="pod"), used=20 * Gi), "Killing 1 process in all containers of the pod:"),
        (by_rule(step("100%", 0, "evict"), used=20 * Gi), "Evicting the pod with a grace period of 10s."),
        (by_rule(step(), default=4 * Gi, declared=None), ("allowed (4Gi from the default of rule \"r\", plus "
                                                         "allowance)")),
        (by_rule(step(), default=0, declared=None), "but none is allowed (0 from the default of rule \"r\")."),
        (by_rule(step(), account="container"), "Container main of pod a/trainer uses 12Gi of GPU memory"),
        (by_rule(step("50%", 0, "warn"), used=6 * Gi), "69% of the 8.7Gi allowed"),
        (by_rule(step(), used=int(8 * Gi * 1.02) + 532 * Mi), "20Mi more than the 8.7Gi allowed"),
    ],
)  # fmt: skip
def test_each_form_of_rule_and_account_reads_well(made: PlanEntry, says: str) -> None:
    """Marks, scopes, accounts and defaults are told in words, and a small excess is not told as "100% of"."""
    assert says in note(made, at(0))


def test_a_gpu_account_names_its_gpu() -> None:
    """Where each GPU has its own account, the sentence says which one is meant."""
    per_gpu = Declaration(resource="veriff.com/gpu-memory", unit=1, per="gpu")
    report = Story(under=policy(NOTEBOOKS, declarations=(per_gpu,))).run(13.0, 12)
    assert "of GPU memory on GPU-0, " in note(entry(report), at(12))


def test_an_unknown_part_is_said() -> None:
    """A use that is known in part is told as at least that much."""
    partly = replace(entry().assessment, used=None)
    assert "uses at least 12.4Gi of GPU memory" in note(entry(assessment=partly), at(31))


def test_no_text_numbers_a_step() -> None:
    """People read the rule and the mark; the number of a step never stands in a sentence."""
    for result in Result:
        assert "step" not in outcome_note(outcome(result=result)).lower()
    assert (
        "step"
        not in (note(entry(), at(31)) + forecast(entry(), at(31)).sentence + explanation(killed(), policy())).lower()
    )


@pytest.mark.parametrize("result", list(Result))
@pytest.mark.parametrize("do", ["warn", "kill", "evict"])
def test_every_outcome_has_its_sentence(result: Result, do: str) -> None:
    """What came of a step is told for each result, with its reason."""
    made = by_rule(step("100%", 0, do))
    text = outcome_note(outcome(made, result, reason="because of x"))
    assert text.startswith("Pod a/trainer: ")
    assert text.endswith('(rule "r", above 100%, immediately).')
    assert "because of x" in text or (do == "warn" and result is Result.DONE)


def test_the_release_is_told_with_its_time() -> None:
    """The memory's return, or that it did not return, is said with the time it took."""
    assert outcome_note(killed(release_s=0.8)) == (
        "Pod a/trainer: killed 3 processes of container main with SIGTERM; the memory was free 0.8s after the first "
        'signal (rule "notebooks", above 110% for 10s).'
    )
    assert release_note(killed(release_s=0.8)).endswith("free again 0.8s after the first signal.")
    assert "is not confirmed free: still listed." in release_note(killed(reason="still listed"))


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ([], "no signal"),
        ([("SIGTERM", "abc", 0.0)], "SIGTERM"),
        ([("SIGKILL", "abc", 0.0)], "SIGKILL"),
        ([("SIGTERM", "abc", 0.0), ("SIGKILL", "c", 10.0)], "SIGTERM, and 1 process SIGKILL after 10s"),
        ([("SIGTERM", "abc", 0.0), ("SIGKILL", "abc", 4.0)], "SIGTERM, then SIGKILL after 4s"),
        ([("SIGTERM", "abc", 0.0), ("SIGKILL", "abcd", 4.0)], "SIGTERM, then SIGKILL after 4s"),
        ([("SIGTERM", "abc", 0.0), ("SIGKILL", "cde", 4.0)], "SIGTERM, and 3 processes SIGKILL after 4s"),
    ],
)
def test_only_signals_that_were_sent_are_named(sent: list[tuple[str, str, float]], said: str) -> None:
    """What a kill's step would have sent is not what it did send; "then" is said where those that got the first did."""
    signals = tuple(
        Sent(signal=name, keys=frozenset(ProcessKey(pid=ord(each), start_ticks=1) for each in whom), after_s=after_s)
        for name, whom, after_s in sent
    )
    assert f"The processes got {said}. " in explanation(killed(sent=signals), policy())


def test_the_owner_reads_what_to_change() -> None:
    """The explanation says what happened, how much was used, why that is too much, what to change and whom to ask."""
    text = explanation(killed(release_s=0.8), policy())
    assert text == (
        "The watchdog killed 3 processes of container main (pod a/trainer), because the pod exceeded its GPU "
        "memory limit. It used 12.4Gi; its limit was 10.2Gi: 8Gi declared by veriff.com/gpu-memory, plus 2.2Gi "
        'driver allowance. Rule "notebooks" kills above 110% for 10s (threshold 11.2Gi); the pod had been above '
        "it for 30s. The processes got SIGTERM, and the memory was free 0.8s after the first signal. Kubernetes "
        "does not report OOMKilled. The container shows Error (exit code 143 or 137), or Completed if its main "
        "process exited with 0 (its Job counts that as success). To prevent this, use less GPU memory or declare "
        'more: set resources.limits["veriff.com/gpu-memory"] of container main to at least 11Gi (the allowance is '
        "added to this). Questions: ask gpu-team@example.org."
    )


@pytest.mark.parametrize("result", list(Result))
@pytest.mark.parametrize("contact", ["", "gpu-team"])
def test_an_explanation_has_three_to_six_sentences(result: Result, contact: str) -> None:
    """Nobody reads more than six sentences, and fewer than three leave something out."""
    text = explanation(outcome(result=result), policy(contact=contact))
    assert 3 <= len(re.findall(r"\.(?= [A-Z]|$)", text)) <= 6


IN_MIB = Declaration(resource="veriff.com/gpu-memory", unit=Mi)


@pytest.mark.parametrize(
    ("under", "declared", "default", "says"),
    [
        (policy(), "1Gi", None, 'resources.limits["veriff.com/gpu-memory"] of container main to at least 12Gi'),
        (policy(), "11Gi", None, 'resources.limits["veriff.com/gpu-memory"] of container main to at least 12Gi'),
        (policy(), None, 0, 'resources.limits["veriff.com/gpu-memory"] of container main to at least 12Gi'),
        (policy(declarations=(IN_MIB,)), "1024", None, "of container main to at least 12288 (12Gi)."),
        (policy(declarations=()), None, 0, "use no GPU memory: no key in this cluster"),
    ],
)
def test_what_to_declare_is_written_in_the_unit_of_the_declaration(
    under: Policy, declared: str | None, default: int | None, says: str
) -> None:
    """The number that an owner is told can be copied into the pod's spec, and would have been enough."""
    ruled = replace(under, rules=(rule(step(), name="r", default=default),))
    pod = trainer(containers=(container("main", declared, of="u1"),))
    seen = snapshot([use(101, 12 * Gi)], [trainer_node().processes[101]])
    made = Story(under=ruled, pods=(pod,)).see(seen).plan.entries[0]
    assert says in explanation(outcome(made), ruled)


def test_a_skipped_declaration_is_told_with_what_holds_instead() -> None:
    """The owner of a misdeclared pod learns which declaration, why, and what counts now."""
    skipped = Misdeclaration(source="veriff.com/gpu-memory of container main", why="'8 GB' is not a quantity")
    fallback = replace(entry().assessment, declared_by="default")
    assert misdeclared_note(fallback, skipped) == (
        "Pod a/trainer: veriff.com/gpu-memory of container main is ignored: '8 GB' is not a quantity. 8Gi "
        'from the default of rule "notebooks" applies instead.'
    )
    nothing = replace(fallback, verdict=Verdict.MISDECLARED, declared=None)
    assert misdeclared_note(nothing, skipped).endswith(
        "No other declaration applies, so the pod is only measured and no action is taken on it."
    )


names = st.text(min_size=1, max_size=600)


@given(names, names, names, names)
def test_hostile_names_are_inert_and_a_note_fits_an_event(namespace: str, name: str, victim: str, ruled: str) -> None:
    """Whatever a tenant calls things, no control character gets into a sentence, and it stays under 1 kB of UTF-8."""
    pod = trainer(namespace=namespace, name=name)
    assessment = replace(entry_once().assessment, pod=pod, declared_by=ruled, protected=name)
    hostile = replace(entry_once(), assessment=assessment, victim=victim, rule=replace(NOTEBOOKS, name=ruled))
    held = replace(hostile, withheld_by=Brake.PROTECTED)
    told = [
        note(hostile, at(31)),
        note(hostile, at(31), observing=True),
        note(held, at(31)),
        forecast(held, at(31)).sentence,
        outcome_note(outcome(hostile, reason=namespace)),
        release_note(outcome(hostile, reason=namespace)),
        misdeclared_note(assessment, Misdeclaration(source=victim, why=ruled)),
    ]
    for text in told:
        assert text.isprintable()
        assert len(text.encode()) <= 1024
    assert explanation(outcome(hostile, reason=name), policy(contact=ruled)).isprintable()


_ENTRY: list[PlanEntry] = []


def entry_once() -> PlanEntry:
    """One entry for many examples."""
    if not _ENTRY:
        _ENTRY.append(entry())
    return _ENTRY[0]


def test_a_long_name_that_begins_another_leaves_neither_long() -> None:
    """A pod's name begins with its owner's: both are shortened as a whole, at their ends and not in between."""
    owner = "o" * 70
    text = fit(f"{owner} owns pod {owner}-{'p' * 90}: killed.", 150)
    assert text == f"{shorten(owner, 63)} owns pod {shorten(owner + '-' + 'p' * 90, 63)}: killed."
    assert fit(f"{owner} owns pod {owner}-{'p' * 90}: killed.", 75).endswith("pppp: killed.")
    assert fit("word " * 40, 30) == "word word word word word wo..."


def test_the_longest_legal_names_still_leave_the_verb() -> None:
    """Names of the longest kind that Kubernetes allows are shortened before the sentence loses its end."""
    pod = trainer(namespace="n" * 63, name="p" * 253)
    made = entry(victim="c" * 63, rule=replace(NOTEBOOKS, name="r" * 400))
    made = replace(made, assessment=replace(made.assessment, pod=pod, declared_by=f"{'d' * 253}/{'k' * 63}"))
    text = note(made, at(31))
    assert text.endswith(f"of container {'c' * 63}: SIGTERM, then SIGKILL after 10s.")
    assert len(text.encode()) <= 1024


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain-name", "plain-name"),
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("line\nbreak\r\t", r"line\x0abreak\x0d\x09"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("\udc80", r"\udc80"),
        ("\U000e0041", r"\U000e0041"),
        ("naïve 模型", "naïve 模型"),
        ("x" * 300, "x" * 125 + ".." + "x" * 126),
    ],
)
def test_inert_text(text: str, escaped: str) -> None:
    """Control characters, direction marks and lone surrogates are written out; letters of any script are left."""
    assert inert(text) == escaped


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.04, "0s"), (0.83, "0.8s"), (3, "3s"), (9.96, "10s"), (31, "31s"), (59.7, "1m"), (95, "1m 35s"),
     (3599.9, "1h"), (3660, "1h 1m"), (90_000, "1d 1h"), (-5, "0s")],
)  # fmt: skip
def test_spans_of_time(seconds: float, text: str) -> None:
    """A measured time is told as people say it, and is never negative."""
    assert span(seconds) == text


def test_elapsed_time_across_boots_and_back_in_time() -> None:
    """Point 19: in another boot ages come from the wall clock, and negative ones count as 0."""
    before = Now(boottime_s=90_000, wall_s=1000, boot_id="old")
    assert elapsed_s(before, Now(boottime_s=5, wall_s=1030, boot_id="new")) == 30
    assert elapsed_s(before, Now(boottime_s=5, wall_s=900, boot_id="new")) == 0
    assert elapsed_s(before, Now(boottime_s=90_010, wall_s=0, boot_id="old")) == 10


def test_moments_and_clipping() -> None:
    """Times are RFC 3339 in UTC with milliseconds; a text is cut at a character's border."""
    assert rfc3339(1767323045.678) == "2026-01-02T03:04:05.678Z"
    assert clip("ä" * 10, 12) == "ääää..."
    assert clip("short", 12) == "short"


def test_a_kill_that_was_interrupted_is_told_whole() -> None:
    """Whoever got SIGTERM and nothing more reads that, and why, and not the name of a result."""
    text = explanation(killed(result=Result.INTERRUPTED, reason="enforcement was turned off meanwhile"), policy())
    assert "this was interrupted: enforcement was turned off meanwhile." in text
    assert "The processes got SIGTERM; that was in the grace period, so no SIGKILL was sent." in text
    assert "ended as" not in text


def test_a_process_that_was_spared_sigkill_is_not_called_killed() -> None:
    """Point 22: one whose pod is back within the threshold after SIGTERM may live on, and keeps its memory."""
    spared = killed(result=Result.GONE, reason=ENOUGH)
    assert outcome_note(spared) == (
        "Pod a/trainer: killing 3 processes of container main was no longer needed: usage was back within the "
        'threshold after SIGTERM, so nothing more was sent (rule "notebooks", above 110% for 10s).'
    )
    text = explanation(spared, policy())
    assert "this was no longer needed: usage was back within the threshold after SIGTERM, so nothing more" in text
    for each in ("killed", "exit code", "memory was free", "seen free"):
        assert each not in text
