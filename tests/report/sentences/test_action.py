"""The sentences about a step and what came of it, and how texts are escaped, cut and written."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.build import NOTEBOOKS, Story, climbing, entry, killed, outcome, policy, trainer, trainer_node
from tests.worlds import Gi, Mi, at, container, rule, snapshot, step, use
from watchdog.core.assessment import Misdeclaration, Verdict
from watchdog.core.brakes import Brake
from watchdog.core.model import Now, ProcessKey, elapsed_s
from watchdog.core.plan import PlanEntry, Result, Sent
from watchdog.core.policy import Declaration, Scope
from watchdog.daemon.actions.kill import ENOUGH
from watchdog.report.sentences.action import TakenAction, explanation, outcome_note, release_note
from watchdog.report.sentences.following import begun_note, forecast, misdeclared_note, note
from watchdog.report.text import clip, fit, inert, quoted, rfc3339, shorten, span

WARN_ALONE = step("100%", 0, "warn")
PER_GPU = Declaration(resource="veriff.com/gpu-memory", unit=1, per="gpu")


def by_rule(*steps: object, used: int = 12 * Gi, declared: str | None = "8Gi", **more: object) -> PlanEntry:
    """The first plan entry of a pod with one process under a rule with these steps."""
    under = policy(rule(*steps, name="r", **more))  # type: ignore[arg-type]
    pod = trainer(containers=(container("main", declared, of="u1"),))
    seen = snapshot([use(101, used)], [trainer_node().processes[101]], second=0.0)
    return Story(under=under, pods=(pod,)).see(seen).plan.entries[0]


def warned(*later: object) -> PlanEntry:
    """A warning of rule `notebooks`, or of a rule that goes on with these steps."""
    under = policy(rule(step("100%", 5, "warn"), *later, name="r")) if later else policy()  # type: ignore[arg-type]
    return entry(climbing(5, under=under), "warn")


def protected(made: PlanEntry) -> PlanEntry:
    """The same entry, of a protected pod."""
    return replace(made, assessment=replace(made.assessment, protected="it is in kube-system"))


SPARED = ": no kill or eviction follows, because this pod is protected (it is in kube-system)."
NOTES: dict[str, tuple[Callable[[], PlanEntry], str]] = {
    "a warning, and what comes next": (
        warned, "This is a warning: the rule kills above 110% for 10s (threshold 11.2Gi)."),
    "a warning alone": (lambda: by_rule(WARN_ALONE), "This is a warning: the rule takes no further action."),
    "a warning to a protected pod": (lambda: protected(warned()), f"This is a warning{SPARED}"),
    "a warning before an eviction that is not to come": (
        lambda: protected(warned(step("120%", 60, "evict"))), f"This is a warning{SPARED}"),
    "a warning alone to a protected pod": (
        lambda: protected(by_rule(WARN_ALONE)), "This is a warning: the rule takes no further action."),
    "at once": (
        lambda: by_rule(step("150%", 0, grace_s=0.0), used=20 * Gi),
        "above 150%, immediately. Killing all processes of container main: SIGKILL immediately."),
    "an amount above the limit": (
        lambda: by_rule(step(f"+{512 * Mi}", 5), used=20 * Gi), 'Rule "r": more than 512Mi above allowed for 5s.'),
    "an amount": (lambda: by_rule(step(f"{12 * Gi}", 5), used=20 * Gi), 'Rule "r": above 12Gi for 5s.'),
    "an amount below the limit": (
        lambda: by_rule(step(f"{2 * Gi}", 5), used=20 * Gi), 'Rule "r": above 2Gi for 5s (and above what is allowed).'),
    "a whole pod": (
        lambda: by_rule(step("100%", 0, scope="pod"), used=20 * Gi), "Killing all processes of the pod:"),
    "an eviction": (
        lambda: by_rule(step("100%", 0, "evict"), used=20 * Gi), "Evicting the pod with a grace period of 10s."),
    "a default": (
        lambda: by_rule(step(), default=4 * Gi, declared=None),
        'allowed (4Gi from the default of rule "r", plus allowance)'),
    "a default of nothing": (
        lambda: by_rule(step(), default=0, declared=None), 'but none is allowed (0 from the default of rule "r"),'),
    "a container": (
        lambda: by_rule(step(), account="container"), "Container main of pod a/trainer uses 12Gi of GPU memory"),
    "a GPU": (
        lambda: entry(Story(under=policy(NOTEBOOKS, declarations=(PER_GPU,))).run(13.0, 12)),
        "of GPU memory on GPU-0, "),
    "less than the limit": (lambda: by_rule(step("50%", 0, "warn"), used=6 * Gi), "69% of the 8.7Gi allowed"),
    "an excess below one percent": (
        lambda: by_rule(step(), used=int(8 * Gi * 1.02) + 532 * Mi), "20Mi more than the 8.7Gi allowed"),
    "a use that is known in part": (
        lambda: entry(assessment=replace(entry().assessment, used=None)), "uses at least 12.4Gi of GPU memory"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTES)
def test_each_form_of_step_rule_and_account_reads_well(name: str) -> None:
    """Thresholds, scopes, accounts and defaults are put into words, and a warning announces only what will follow."""
    made, says = NOTES[name]
    assert says in note(made(), at(31))


@pytest.mark.parametrize(
    ("scope", "before", "after"),
    [
        ("process", "the largest GPU process of container main", "1 process of container main"),
        ("container", "all processes of container main", "5 processes of container main"),
        ("pod", "all processes of the pod", "5 processes in all containers of the pod"),
    ],
)
def test_a_number_of_processes_is_reported_only_once_they_got_a_signal(scope: Scope, before: str, after: str) -> None:
    """Before the first signal only GPU processes are listed: their number announced 1 where 5 ended."""
    made = by_rule(step("100%", 0, scope=scope), used=20 * Gi)
    number = 1 if scope == "process" else 5
    assert f"Killing {before}: " in note(made, at(1))
    assert f"Would kill {before}: " in note(made, at(1), observing=True)
    assert f": kill {before} (" in forecast(made, at(1)).sentence
    assert f"would have killed {before}" in outcome_note(outcome(made, Result.OBSERVED))
    assert f"Killing {after}: " in begun_note(made, at(1), number)
    keys = tuple(ProcessKey(pid=pid, start_ticks=1) for pid in range(101, 101 + number))
    sent = (Sent(signal="SIGTERM", keys=frozenset(keys), after_s=0.0),)
    ended = outcome(made, signalled=keys, sent=sent)
    assert f"killed {after} with SIGTERM" in outcome_note(ended)


@pytest.mark.parametrize("made", [warned, lambda: by_rule(WARN_ALONE)])
def test_a_protected_pod_is_not_threatened_in_observe_mode_either(made: Callable[[], PlanEntry]) -> None:
    """Point 35: a protected pod is never acted on, so its warning announces nothing, whatever the mode."""
    acting, observing = (note(protected(made()), at(31), observing=each) for each in (False, True))
    assert observing == acting.replace("This is a warning", "Would warn")


@pytest.mark.parametrize("result", list(Result))
@pytest.mark.parametrize("do", ["warn", "kill", "evict"])
def test_every_outcome_has_its_sentence(result: Result, do: str) -> None:
    """The end of a step has a sentence for each result, with its reason."""
    made = by_rule(step("100%", 0, do))
    text = outcome_note(outcome(made, result, reason="because of x"))
    assert text.startswith("Pod a/trainer: ")
    assert text.endswith('(rule "r", above 100%, immediately).')
    assert "because of x" in text or (do == "warn" and result is Result.DONE)


def test_the_release_has_its_time() -> None:
    """The memory's return, or that it did not return, is reported with the time it took."""
    assert outcome_note(killed(release_s=0.8)) == (
        "Pod a/trainer: killed 3 processes of container main with SIGTERM; the memory was free 0.8s after the first "
        'signal (rule "notebooks", above 110% for 10s).'
    )
    evicted = outcome(by_rule(step("100%", 0, "evict")), release_s=19.0)
    assert "evicted the pod with a grace period of 10s; the memory was free 19s after the eviction was accepted" in (
        outcome_note(evicted)
    )
    assert release_note(TakenAction.of(killed(release_s=0.8))).endswith("free again 0.8s after the first signal.")
    assert "is not confirmed free: still listed." in release_note(TakenAction.of(killed(reason="still listed")))


@pytest.mark.parametrize(
    ("sent", "reported"),
    [
        ([], "no signal"),
        ([("SIGTERM", "abc", 0.0)], "SIGTERM"),
        ([("SIGKILL", "abc", 0.0)], "SIGKILL"),
        ([("SIGTERM", "abc", 0.0), ("SIGKILL", "c", 10.0)], "SIGTERM, then SIGKILL to 1 process after 10s"),
        ([("SIGTERM", "abc", 0.0), ("SIGKILL", "abc", 4.0)], "SIGTERM, then SIGKILL after 4s"),
        ([("SIGTERM", "abc", 0.0), ("SIGKILL", "abcd", 4.0)], "SIGTERM, then SIGKILL after 4s"),
        ([("SIGTERM", "abc", 0.0), ("SIGKILL", "cde", 4.0)], "SIGTERM, then SIGKILL to 3 processes after 4s"),
    ],
)
def test_only_signals_that_were_sent_are_named(sent: list[tuple[str, str, float]], reported: str) -> None:
    """What a kill's step would have sent is not what it sent; "then" only where those that got the first did."""
    signals = tuple(
        Sent(signal=name, keys=frozenset(ProcessKey(pid=ord(each), start_ticks=1) for each in whom), after_s=after_s)
        for name, whom, after_s in sent
    )
    assert f"The processes got {reported}. " in explanation(killed(sent=signals), policy())


def test_the_owner_reads_what_to_change() -> None:
    """The explanation says what happened, how much was used, why that is too much, what to change and whom to ask."""
    assert explanation(killed(release_s=0.8), policy()) == (
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


def test_a_kill_that_was_interrupted_is_explained_in_full() -> None:
    """The owner of processes that got SIGTERM and nothing more reads that, and why."""
    text = explanation(killed(result=Result.INTERRUPTED, reason="enforcement was turned off meanwhile"), policy())
    assert "this was interrupted: enforcement was turned off meanwhile." in text
    assert "The processes got SIGTERM; that was in the grace period, so no SIGKILL was sent." in text


def test_a_process_that_was_spared_sigkill_is_not_called_killed() -> None:
    """Point 22: one whose pod is back within the threshold after SIGTERM may live on, and keeps its memory."""
    spared = killed(result=Result.GONE, reason=ENOUGH)
    assert outcome_note(spared) == (
        "Pod a/trainer: killing 3 processes of container main was no longer needed: usage was back within the "
        'threshold after SIGTERM, so nothing more was sent (rule "notebooks", above 110% for 10s).'
    )
    assert not [each for each in ("killed", "exit code", "memory was free") if each in explanation(spared, policy())]


def test_a_skipped_declaration_has_what_applies_instead() -> None:
    """The owner of a misdeclared pod learns which declaration, why, and what counts now."""
    skipped = Misdeclaration(
        source="veriff.com/gpu-memory of container main", why="'8 GB' is not a quantity", key="veriff.com/gpu-memory"
    )
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
KILL = entry()


@given(names, names, names, names)
def test_hostile_names_are_inert_and_a_note_fits_an_event(namespace: str, name: str, victim: str, ruled: str) -> None:
    """Whatever a tenant calls things, no control character gets into a sentence, and it stays under 1 kB of UTF-8."""
    assessment = replace(
        KILL.assessment, pod=trainer(namespace=namespace, name=name), declared_by=ruled, protected=name
    )
    hostile = replace(KILL, assessment=assessment, victim=victim, rule=replace(NOTEBOOKS, name=ruled))
    held = replace(hostile, withheld_by=Brake.PROTECTED)
    for text in (
        note(hostile, at(31)),
        note(hostile, at(31), observing=True),
        note(held, at(31)),
        forecast(held, at(31)).sentence,
        outcome_note(outcome(hostile, reason=namespace)),
        release_note(TakenAction.of(outcome(hostile, reason=namespace))),
        misdeclared_note(assessment, Misdeclaration(source=victim, why=ruled)),
    ):
        assert text.isprintable()
        assert len(text.encode()) <= 1024
    assert explanation(outcome(hostile, reason=name), policy(contact=ruled)).isprintable()


def test_a_long_name_that_begins_another_leaves_neither_long() -> None:
    """A pod's name begins with its owner's: both are shortened as a whole, at their ends and not in between."""
    owner = "o" * 70
    text = fit(f"{owner} owns pod {owner}-{'p' * 90}: killed.", 150)
    assert text == f"{shorten(owner, 63)} owns pod {shorten(owner + '-' + 'p' * 90, 63)}: killed."
    assert fit(f"{owner} owns pod {owner}-{'p' * 90}: killed.", 75).endswith("pppp: killed.")
    assert fit("word " * 40, 30) == "word word word word word wo..."


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
    """A measured time is written as people say it, and is never negative."""
    assert span(seconds) == text


def test_elapsed_time_across_boots_and_back_in_time() -> None:
    """Point 19: in another boot ages come from the wall clock, and negative ones count as 0."""
    before = Now(boottime_s=90_000, wall_s=1000, boot_id="old")
    assert elapsed_s(before, Now(boottime_s=5, wall_s=1030, boot_id="new")) == 30
    assert elapsed_s(before, Now(boottime_s=5, wall_s=900, boot_id="new")) == 0
    assert elapsed_s(before, Now(boottime_s=90_010, wall_s=0, boot_id="old")) == 10


def test_moments_and_texts_that_are_cut() -> None:
    """Times are RFC 3339 in UTC with milliseconds; texts end at a whole character, answers of a server at a word."""
    assert rfc3339(1767323045.678) == "2026-01-02T03:04:05.678Z"
    assert (clip("ä" * 10, 12), clip("short", 12)) == ("ääää...", "short")
    assert quoted("pods are forbidden: the user cannot evict.", 41) == "pods are forbidden: the user cannot evict"
    assert quoted("pods are forbidden: the user cannot evict", 40) == "pods are forbidden: the user cannot..."
    assert len(quoted("x" * 9999, 400)) == 400
