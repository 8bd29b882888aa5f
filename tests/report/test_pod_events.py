"""The Events on pods: one for each occurrence; their notes, read as a tenant does who knows nothing of the watchdog."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.build import climbing, entry, killed, outcome, policy, quiet, trainer, withheld
from tests.report.notes import (
    OBSERVING,
    evicting,
    holding,
    idling,
    kill_of,
    misdeclaring,
    occurrences,
    on_cards,
    reported,
    table,
    transferring,
    warned,
)
from tests.worlds import Gi, at, container, rule, step
from watchdog.core.assessment import MOST_MISDECLARED
from watchdog.core.brakes import Brake
from watchdog.core.model import Claim, ClaimedDevice, Owner
from watchdog.core.plan import Outcome, Result
from watchdog.core.policy import Declaration, Policy
from watchdog.kube.event_objects import SERIES_GAP_S, PodEvent
from watchdog.report.changes import Changes
from watchdog.report.events import pod_events
from watchdog.report.sentences.action import outcome_note, shown_as
from watchdog.report.sentences.following import note

CONTACT = "Questions: ask gpu-team@example.org."


def annotations(pod_event: PodEvent) -> dict[str, str]:
    """The annotations, by their names after the prefix."""
    assert all(key.startswith("gpu-memory-watchdog/") for key in pod_event.annotations)
    return {key.partition("/")[2]: value for key, value in pod_event.annotations.items()}


def only(*reports: object) -> PodEvent:
    """The one Event of these cycles."""
    (pod_event,) = reported(*reports)  # type: ignore[arg-type]
    return pod_event


@pytest.mark.parametrize(
    ("reason", "action", "is_normal"),
    [
        ("GPUMemoryOverLimit", "Warn", False),
        ("GPUMemoryKilled", "Kill", False),
        ("GPUMemoryReleased", "Release", True),
        ("GPUMemoryEvicted", "Evict", False),
        ("GPUMemoryEvictionBlocked", "Evict", False),
        ("GPUMemoryWithheld", "Withhold", False),
        ("GPUMemoryMisdeclared", "Warn", False),
        ("GPUMemoryTransferred", "Warn", False),
    ],
)
def test_each_occurrence_has_its_reason_and_action(reason: str, action: str, is_normal: bool) -> None:
    """Machines filter by these words: they are those of the contract, and on the pod that it is about."""
    found = occurrences()[reason]
    assert (found.action, found.is_normal) == (action, is_normal)
    assert (found.namespace, found.pod, found.uid) == ("a", "trainer", "u1")
    assert found.note.endswith(CONTACT)
    assert found.at_s == pytest.approx(at(31).wall_s, abs=10)


def test_a_kill_has_its_event_at_the_first_signal() -> None:
    """Promise 2: docs/events.md has its whole note; machines have bytes."""
    assert annotations(only(quiet(31, began=(killed(),)))) == {
        "used": "13314398617",
        "declared": "8589934592",
        "allowed": "10909216931",
        "gpu": "GPU-0,GPU-1",
        "container": "main",
        "rule": "notebooks",
        "threshold": "above 110% for 10s",
    }


@pytest.mark.parametrize(
    "ended",
    [
        killed(release_s=12.4),
        killed(reason="the driver still lists its memory after release_timeout"),
        killed(result=Result.FAILED, reason="3 processes did not end after SIGKILL"),
        killed(result=Result.INTERRUPTED, reason="the watchdog was stopped in the grace period"),
    ],
)
def test_the_end_of_a_kill_is_another_event(ended: Outcome) -> None:
    """A note can't be rewritten on the server, so each end has an Event of its own, once."""
    first, last, *rest = reported(quiet(31, began=(killed(),)), quiet(44, outcomes=(ended,)), quiet(45))
    assert (first.reason, last.reason, last.is_normal, rest) == ("GPUMemoryKilled", "GPUMemoryReleased", True, [])
    assert last.note.startswith(outcome_note(ended))
    found = annotations(last)
    assert (found["result"], found.get("release-seconds")) == (ended.result, "12.400" if ended.release_s else None)


def test_a_kill_that_fails_as_it_begins_has_both_events() -> None:
    """Its processes have got signals, although the cycle knows of it only that it has ended."""
    failed = replace(killed(), result=Result.FAILED, reason="no right to signal process 7")
    assert [each.reason for each in reported(quiet(31, outcomes=(failed,)))] == ["GPUMemoryKilled", "GPUMemoryReleased"]


@pytest.mark.parametrize("result", [Result.FAILED, Result.GONE])
def test_a_kill_without_a_signal_has_no_event(result: Result) -> None:
    """Nothing has happened to the pod: what was not needed, or not possible, is for the operator's log."""
    assert reported(quiet(31, outcomes=(outcome(result=result, reason="nothing was signalled"),))) == ()


def test_a_warning_is_repeated_as_a_series() -> None:
    """A warning an hour later is the same one once more; at another threshold it is not."""
    first, again, other = reported(
        quiet(31, outcomes=(outcome(warned()),)),
        quiet(3631, outcomes=(outcome(warned(), at=at(3631)),)),
        quiet(3631, outcomes=(outcome(entry(climbing(5, under=policy(rule(step("50%", 0, "warn")))), "warn")),)),
    )
    assert first.key == again.key != other.key
    assert first.again_within_s == 3600 + SERIES_GAP_S > again.at_s - first.at_s


def test_another_end_or_brake_is_no_repetition() -> None:
    """Freed, and not freed in time, are two things; so are two brakes."""
    began = quiet(31, began=(killed(), killed(number=2)))
    _, _, one, two = reported(began, quiet(32, outcomes=(killed(release_s=1.0), killed(number=2))))
    assert one.key != two.key
    owner, node = reported(holding(withheld(Brake.OWNER), withheld(Brake.NODE)))
    assert owner.key != node.key
    assert (annotations(owner)["brake"], annotations(owner)["would"]) == ("owner", "kill")


def test_an_eviction_says_what_may_replace_the_pod() -> None:
    """Its reader learns what comes after; docs/events.md has the note of a pod that has a controller."""
    assert "container" not in annotations(only(quiet(31, began=(outcome(evicting(), number=1),))))
    bare = replace(evicting(), assessment=replace(evicting().assessment, pod=trainer(owner=None)))
    assert "No controller will replace the pod." in only(quiet(31, began=(outcome(bare, number=1),))).note


@pytest.mark.parametrize(
    ("result", "word"), [(Result.BLOCKED, "The eviction is blocked"), (Result.FAILED, "It failed")]
)
def test_an_eviction_that_is_not_possible_says_why(result: Result, word: str) -> None:
    """The budget's owner is usually the pod's: the reason says what to change. Tried again, it is a series."""
    reason = "PodDisruptionBudget trainers allows no disruption now"
    first, again = reported(*(quiet(n, outcomes=(outcome(evicting(), result, reason=reason),)) for n in (31, 631)))
    assert first.reason == "GPUMemoryEvictionBlocked"
    assert f"Evicting the pod with a grace period of 30s. {word}: {reason}" in first.note
    assert ("It is retried for up to 10m." in first.note) is (result is Result.BLOCKED)
    assert first.key == again.key
    assert first.again_within_s >= 600


def test_a_wrong_declaration_is_reported_once_for_each_pod_and_finding() -> None:
    """Not at each cycle, and not again by the next daemon; another pod of the same name has its own Event."""
    first = misdeclaring()
    found = only(first, first, quiet(40, pods=first.pods))
    assert found.once
    assert "Correct it in the pod's manifest." in found.note
    assert len(reported(first, misdeclaring("800Gi"))) == 2
    (recreated,) = (replace(each, uid="u2") for each in first.pods.pods)
    again = tuple(replace(each, pod=recreated, account=each.account._replace(uid="u2")) for each in first.assessments)
    other = replace(first, assessments=again, pods=replace(first.pods, pods=(recreated,)))
    assert len(reported(first, other, other)) == 2
    assert len(reported(first, other, first)) == 3, "nothing is kept of a pod that has gone"


def test_wrong_declarations_without_end_are_reported_and_kept_to_a_bound() -> None:
    """A tenant could write 256 KiB of another mistake into an annotation each second, and fill the daemon's memory."""
    found = reported(*(misdeclaring(f"{number}{'x' * 200_000}") for number in range(MOST_MISDECLARED + 8)))
    assert len(found) == MOST_MISDECLARED
    assert all(len(repr(each)) < 5000 for each in found)


def test_a_wrong_declaration_of_a_pod_without_a_rule_has_no_event() -> None:
    """A policy that is not for a pod writes nothing on it."""
    assert reported(misdeclaring(rules=())) == ()


@pytest.mark.parametrize(
    "idle",
    [
        {"enforcing": False},
        {"enforcing": False, "suspended": ("lock",)},
        {"enforcing": False, "policy": policy(mode="observe")},
    ],
)
def test_a_pod_that_is_only_observed_has_no_event(idle: dict[str, object]) -> None:
    """Trying a policy out must not frighten tenants, whatever it is that makes the daemon only observe."""
    observed = outcome(result=Result.OBSERVED)
    assert reported(quiet(31, outcomes=(observed,), **idle)) == ()
    assert reported(replace(holding(withheld(Brake.NODE)), **idle)) == ()  # type: ignore[arg-type]
    assert reported(replace(misdeclaring(), **idle)) == ()  # type: ignore[arg-type]


def test_a_rule_that_only_observes_has_no_event() -> None:
    """The mode of the rule counts like that of the policy; the others' pods have theirs all the same."""
    held = withheld(Brake.NODE)
    quiet_one = replace(held, assessment=replace(held.assessment, observes=True))
    assert len(reported(holding(quiet_one, held))) == 1


def test_a_wrong_declaration_is_reported_when_enforcement_begins() -> None:
    """What was kept quiet in observe mode is not lost: it is reported as soon as it matters."""
    seen = misdeclaring()
    assert len(reported(replace(seen, enforcing=False), seen, replace(seen, enforcing=False), seen)) == 1


def test_a_wrong_declaration_is_reported_once_this_daemon_writes_events() -> None:
    """Of two daemons on a node only the one with the lock does; what the other has seen is reported by it later."""
    changes, seen = Changes(), replace(misdeclaring(mode="observe", events_in_observe=True), enforcing=False)
    found = [tuple(pod_events(changes.since(seen, writes_events=has_lock), seen)) for has_lock in (False, True, True)]
    assert [len(each) for each in found] == [0, 1, 0]


@pytest.mark.parametrize("of", [entry, warned, evicting])
def test_what_would_have_been_done_is_plain_where_the_policy_wants_it(of: object) -> None:
    """With `[events] observe` there is an Event; nobody reads in it of a kill or an eviction that never happened."""
    made: Outcome = outcome(of(), Result.OBSERVED)  # type: ignore[operator]
    found = only(quiet(31, policy=OBSERVING, enforcing=False, outcomes=(made,)))
    assert (found.reason, found.action, annotations(found)["would"]) == ("GPUMemoryOverLimit", "Warn", made.entry.do)
    assert found.note.startswith(note(made.entry, at(31), observing=True, policy=OBSERVING))
    assert not [each for each in ("Killing", "Evicting", "restart policy", "OOMKilled") if each in found.note]


def test_what_would_have_been_held_back_says_that_too() -> None:
    """In observe mode a brake is not what spares the pod."""
    found = only(holding(withheld(Brake.NODE), under=OBSERVING, enforcing=False))
    assert "No action would be taken anyway: the watchdog is in observe mode." in found.note


def test_what_is_not_known_is_left_out() -> None:
    """Machines that read an annotation can rely on its number: an unknown one is not there, and never 0."""
    made = entry()
    blind = replace(made.assessment, used=None, declared=None, allowed=None, uses=())
    found = only(quiet(31, began=(killed(entry=replace(made, assessment=blind)),)))
    assert annotations(found).keys() == {"container", "rule", "threshold"}


def test_the_event_of_a_static_pod_is_where_kubectl_looks() -> None:
    """`kubectl describe` looks for a mirror pod's Events by the hash of its configuration."""
    pod = trainer(static=True, config_hash="0123456789abcdef0123456789abcdef")
    held = withheld(Brake.PROTECTED)
    held = replace(held, assessment=replace(held.assessment, pod=pod))
    assert only(holding(held)).uid == "0123456789abcdef0123456789abcdef"


names = st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=12), st.integers(1, 60))
amounts = st.integers(0, 2**70)


PAGE_URL: Final = "https://gpu.example.org/{node}/pods/{namespace}/{pod}"


@given(
    names,
    names,
    names,
    st.tuples(names, st.sampled_from(["", PAGE_URL, PAGE_URL.ljust(200, "x")])),
    amounts,
    st.tuples(st.sampled_from(sorted(Brake)), st.sampled_from([0, 1, 2])),
)
def test_every_note_fits_and_is_inert(
    namespace: str, name: str, other: str, ask: tuple[str, str], used: int, held_at: tuple[Brake, int]
) -> None:
    """Law: whatever tenants and operators call things, a note is printable, has at most 1 kB and names whom to ask."""
    brake, base, (contact, page_url) = held_at[0], _ENTRIES[held_at[1]], ask
    assessment = replace(
        base.assessment,
        pod=trainer(namespace=namespace, name=name, owner=Owner(kind=other, name=name)),
        declared_by=other,
        used=used,
        used_at_least=used,
    )
    under: Policy = policy(contact=contact[:200], page_url=page_url, events_in_observe=True)
    parts = [quote(each, safe="", errors="replace") for each in (namespace, name)]
    link = page_url.format(node="n1", namespace=parts[0], pod=parts[1])
    fits = bool(link) and len(link) <= 200 + 253 + 63 + 253
    hostile = replace(base, assessment=assessment, victim=other, rule=replace(base.rule, name=other))
    held = replace(_QUIET.plan, entries=(replace(hostile, withheld_by=brake, is_new=True),))
    ends = (replace(_KILLED, entry=hostile), *(outcome(hostile, result, reason=name) for result in Result))
    everything = replace(_QUIET, policy=under, plan=held, began=(replace(_KILLED, entry=hostile),), outcomes=ends)
    for pod_event in reported(everything, replace(everything, enforcing=False)):
        assert pod_event.note.isprintable()
        assert len(pod_event.note.encode()) <= 1024
        assert pod_event.note.endswith(f" Details: {link}" if fits else ".")
        assert "Questions: ask " in pod_event.note or len(link) > 200
        assert all(value.isprintable() for value in pod_event.annotations.values())


_ENTRIES = (entry(), warned(), evicting())
_QUIET, _KILLED = quiet(31), killed(release_s=1e9)


PAGE: Final = (Path(__file__).parents[2] / "docs" / "events.md").read_text(encoding="utf-8")
# What only somebody knows who has read the code or the status.
JARGON: Final = (
    *("account", "verdict", "brake", "ledger", "assessment", "undeclared", "unattributed", "step", "None", "{", "  "),
)


@cache
def notes() -> dict[str, PodEvent]:
    """Each kind of note by its name."""
    return dict(table())


@pytest.mark.parametrize("name", sorted(notes()))
def test_each_note_can_be_read_by_somebody_who_knows_nothing_of_this(name: str) -> None:
    """Whole sentences in a line, without the words of the code, that end with whom to ask.

    One about use has the amounts, the rule and the remedy; one of a kill says how Kubernetes shows it: a program may
    exit with 0 on SIGTERM, which is Completed, and who looks for OOMKilled finds nothing.
    """
    found = notes()[name]
    note = found.note
    assert note.startswith(("Pod a/trainer", "Container side of pod a/trainer"))
    assert not [word for word in JARGON if word in note]
    whom = "the operator of this cluster" if "nobody to ask" in name else "gpu-team@example.org"
    assert note.endswith(f" Questions: ask {whom}.")
    assert len(note.encode()) <= 1024
    assert note.count("(") == note.count(")")
    if "uses" in note:
        amount = r"[0-9.]+[KMGT]i"
        assert re.search(rf" uses {amount} of GPU memory", note)
        assert re.search(rf"the {amount} allowed \(", note) or "but none is allowed (0 " in note
        assert re.search(r'\. Rule "\w+": above ', note)
        assert "To stay within the limit, use " in note
    if found.reason == "GPUMemoryKilled":
        code = "Error (exit code 143 or 137), or Completed if its main process exits with 0"
        assert ("Error (exit code 137)" if "SIGKILL immediately" in note else code) in note
        assert "OOMKilled" in note
        assert ("restart policy" in note) is ("scope process" not in name)


def test_a_job_that_may_count_it_as_success_is_named() -> None:
    """A Job's pod whose program exits with 0 on SIGTERM has succeeded for Kubernetes, and only its Event says so."""
    of_job = entry()
    pod = of_job.assessment.pod
    assert pod.owner is not None
    assert shown_as(of_job).endswith("Completed if its main process exits with 0 (its Job counts that as success).")
    for owner in (None, replace(pod.owner, kind="ReplicaSet")):
        other = replace(of_job, assessment=replace(of_job.assessment, pod=replace(pod, owner=owner)))
        assert shown_as(other).endswith("Completed if its main process exits with 0.")


def test_of_several_containers_it_says_why_this_one() -> None:
    """An owner whose sidecar was killed for what the pod uses reads why it was that one."""
    why = "Of its containers, side exceeds its own declaration by the most."
    reported = {name for name, each in notes().items() if why in each.note}
    assert reported == {"kill, two that declare", "kill, one declares and the other uses"}


def test_under_a_default_nothing_is_declared() -> None:
    """An owner who has declared nothing learns that this is the reason, and the key by which to."""
    for name in ("kill, default", "kill, forbidden"):
        note = notes()[name].note
        assert "The pod declares no GPU memory. To stay within" in note
        assert 'set resources.limits["veriff.com/gpu-memory"] of container main to at least 12Gi (the allowance' in note


def test_a_share_without_an_amount_is_named() -> None:
    """An owner whose claim gave a share of a card, and no amount, reads that, and where to add one."""
    device = ClaimedDevice(request="gpu", name="gpu.nvidia.com/n1/gpu-0", uuid="GPU-0", memory=0, is_shared=True)
    claims = {"gpu": Claim(name="shared-79sk5", template="shared", devices=(device,), unknown="")}
    holder = trainer(containers=(replace(container("main", of="u1"), claims=("gpu",)),), claims=claims)
    under = policy(rule(step("110%"), name="r", default=Gi), declarations=(), schemes=("dra",))
    note = kill_of(under, holder, on_cards(12.4)).note
    assert "allowed (1Gi from the default of rule" in note
    assert (
        "Claim shared-79sk5/gpu gives the pod a share of a card, but no amount of memory. To stay within the limit, "
        "use less GPU memory or make the pod again with a ResourceClaimTemplate like shared whose request gpu has "
        "capacity.requests.memory of at least 12Gi."
    ) in note


def test_a_misdeclaration_says_how_the_number_is_read() -> None:
    """Most of them are numbers in another unit than was meant."""
    for name, says in {
        "misdeclared": "Under veriff.com/gpu-memory 1 means 1 byte, and suffixes like 8Gi work.",
        "misdeclared: number of a unit": "Under nvidia.com/gpumem 1 means 1Mi on each GPU.",
        "misdeclared: percentage": "Under nvidia.com/gpumem-percentage the number is a percentage of each card.",
        "misdeclared: fraction": "Under gpu-fraction the number is a fraction of each card, like 0.5.",
        "misdeclared: share": "Under nvidia.com/gpu.shared the number is a count of shares of a GPU.",
    }.items():
        assert f" {says} Correct it in the pod's manifest. " in notes()[name].note


def remedy(note: str) -> str:
    """What to change, as the page has it in a cell."""
    found = re.search(r"the limit, (?:use (?:less|no) GPU memory or )?(.*?)\. Questions:", note)
    assert found is not None, note
    return found[1].replace("declare more: ", "").replace("declare what it needs: ", "")


def test_the_page_shows_what_to_change_for_each_kind_of_declaration() -> None:
    """The table of docs/events.md is what the notes say."""
    rows = [
        f"| {name.removeprefix('kill, ').removeprefix('declared: ')} | {remedy(each.note)} |"
        for name, each in notes().items()
        if name.startswith(("kill, declared", "kill, default", "kill, forbidden", "kill, two"))
    ]
    missing = [row for row in rows if row not in PAGE]
    assert not missing, "\n".join(missing)


def test_what_is_cut_of_a_note_that_is_too_long() -> None:
    """With the longest names that Kubernetes allows: the action, the remedy and whom to ask are there."""
    key, contact = f"{'d' * 253}/{'k' * 63}", "https://" + "c" * 190
    declarations = (Declaration(resource=key, unit=1),)
    under = policy(rule(step("110%"), name="r" * 63), declarations=declarations, contact=contact)
    main = replace(trainer().containers[0], name="c" * 63, resources={key: "8Gi"})
    holder = trainer(namespace="n" * 63, name="p" * 253, containers=(main,))
    note = kill_of(under, holder, on_cards(12.4)).note
    assert len(note.encode()) <= 1024
    assert re.search(
        r"set resources\.limits\[\"d+\.\.d+/k+(\.\.k+)?\"\] of container c+ to at least 12Gi "
        r"\(the allowance is added to this\)",
        note,
    )
    assert "Killing 3 processes of container c" in note
    assert note.endswith("c.")


@pytest.mark.parametrize(
    ("names", "link"),
    [
        (("a", "trainer"), "https://gpu.example.org/n1/pods/a/trainer"),
        (("n" * 63, "p" * 253), f"https://gpu.example.org/n1/pods/{'n' * 63}/{'p' * 253}"),
        (("a b", "c/d?e#f"), "https://gpu.example.org/n1/pods/a%20b/c%2Fd%3Fe%23f"),
    ],
)
def test_a_note_ends_with_the_whole_link_to_the_page_of_the_pod(names: tuple[str, str], link: str) -> None:
    """What does not fit beside it is cut; the rest says what happened, what to change and whom to ask."""
    namespace, name = names
    holder = trainer(namespace=namespace, name=name)
    note = kill_of(policy(rule(step("110%"), name="r"), page_url=PAGE_URL), holder, on_cards(12.4)).note
    assert note.endswith(f" Details: {link}")
    assert len(note.encode()) <= 1024
    assert "uses 12.4Gi of GPU memory" in note
    assert "Questions: ask gpu-team@example.org. " in note


def test_the_event_of_an_mps_client() -> None:
    """Point 36: the owner learns that the work on the GPU ends at once, whatever the grace period."""
    found = notes()["kill, an MPS client"]
    assert found.reason == "GPUMemoryKilled"
    assert "The MPS server is asked to end 1 client first" in found.note
    assert "The grace period does not extend its work on the GPU." in found.note


def test_memory_that_changes_hands_is_reported_to_both_owners() -> None:
    """Point 10: also to that of a pod which has no account any more; where nothing is enforced, only if wanted."""
    found = reported(transferring())
    assert [(each.namespace, each.pod, each.uid) for each in found] == [("a", "trainer", "u1"), ("b", "server", "u2")]
    assert {each.reason for each in found} == {"GPUMemoryTransferred"}
    assert all("a/trainer" in each.note and "b/server" in each.note and "36Gi" in each.note for each in found)
    assert reported(transferring(enforcing=False)) == ()


def test_idle_memory_is_reported_to_its_owner() -> None:
    """Where nothing is enforced, as all Events only if the policy asks for it."""
    (found,) = reported(idling())
    assert (found.namespace, found.pod, found.uid, found.reason) == ("a", "trainer", "u1", "GPUMemoryIdle")
    assert reported(idling(enforcing=False)) == ()
    assert [each.reason for each in reported(idling(enforcing=False, policy=OBSERVING))] == ["GPUMemoryIdle"]
