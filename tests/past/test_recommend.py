"""Recommend: use over time, to the byte and the second, what to declare for it, and the command."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.past import runs
from tests.past.life import Life, State, holding, tenant
from tests.past.runs import P, cycles, recently
from tests.worlds import VERIFF, Gi, Mi, at, claimant, container, gpu, owner, pod, policy
from watchdog.cli.recommend import recommendation_text, used
from watchdog.core.model import Pod
from watchdog.core.policy import Allowance, Declaration, Policy
from watchdog.past.recommendation import Advice, Fit, Usage, Workload
from watchdog.report.advice import needed

PER_GPU = Declaration(resource="nvidia.com/gpumem", unit=Mi, per="gpu")
PERCENT = Declaration(resource="nvidia.com/gpumem-percentage", unit="percent", per="gpu")
NOTE = Declaration(annotation="vram", unit=Gi)
SHIPPED = Allowance(per_context=512 * Mi, max_contexts=4, percent=Fraction(2, 100))
PLAIN = policy(declarations=(VERIFF, PER_GPU, PERCENT, NOTE))


HOURS = 7201  # seconds; long enough to recommend declaring less


def lived(
    path: Path, *parts: tuple[int, State], every: int = 1, by: Policy = PLAIN
) -> dict[Workload, tuple[Usage, Advice]]:
    """The advice on the workloads of a run of these parts, with a cycle every `every` seconds."""
    Life(path, replace(P, interval_s=float(every))).run(cycles(*parts, every=every))
    return known(path, by)


def known(path: Path, by: Policy = PLAIN, since_s: float = 0.0) -> dict[Workload, tuple[Usage, Advice]]:
    """The advice on the workloads of a journal."""
    return {workload: (usage, advice) for workload, usage, advice in used(path, by, since_s)}


def only(found: dict[Workload, tuple[Usage, Advice]]) -> tuple[Usage, Advice]:
    """The one that there is."""
    (one,) = found.values()
    return one


def suggested(advice: Advice) -> tuple[str, str] | None:
    """The key and the value that are suggested."""
    return None if advice.suggestion is None else (advice.suggestion.key, advice.suggestion.value)


def using(gib: float | None, of: Pod, *, card: int = 0) -> State:
    """A pod's container `main` that holds so much."""
    return State(used=holding(gib, of.uid, card), pods=(of,))


def test_percentiles_go_by_time(path: Path) -> None:
    """Half of the time below 1Gi is a median of 1Gi, however seldom or often it was read; the peak is one second."""
    of = tenant(declared="8Gi")
    usage, _ = only(lived(path, (500, using(1, of)), (900, using(2, of)), (999, using(3, of)), (1001, using(7, of))))
    assert usage.held_s == {1 * Gi: 500, 2 * Gi: 400, 3 * Gi: 99, 7 * Gi: 1}
    assert [usage.percentile(percent) for percent in (50, 50.1, 90, 99, 99.9, 99.95)] == [
        1 * Gi, 2 * Gi, 2 * Gi, 3 * Gi, 3 * Gi, 7 * Gi,
    ]  # fmt: skip
    assert (usage.peak, usage.known_s) == (7 * Gi, 1000)


def test_all_pods_of_an_owner_are_one_workload(path: Path) -> None:
    """Two pods of one owner count both, each for its own time; another owner is another workload."""
    pods = tuple(tenant(uid, owner=owner("Job", "train")) for uid in "ab")
    alone = State(used=holding(1, "a"), pods=pods)
    both = State(used=holding(1, "a") | holding(3, "b"), pods=pods)
    other = replace(both, used={**both.used, ("c/main", 0): Gi}, pods=(*pods, tenant("c")))
    found = lived(path, (100, alone), (200, both), (301, other))
    usage, _ = found[Workload(namespace="ns", kind="Job", name="train", container="main")]
    assert (usage.pods, usage.held_s, usage.idle_s) == ({"a", "b"}, {1 * Gi: 300, 3 * Gi: 200}, 100)
    assert found[Workload(namespace="ns", kind="Pod", name="pod-c", container="main")][0].held_s == {1 * Gi: 100}


def test_the_use_of_a_container_is_that_of_all_its_gpus(path: Path) -> None:
    """Over two cards it is the sum; where the declaration is per GPU the fullest card says what to declare."""
    asking = pod("a", container("main", of="a", resources={"nvidia.com/gpumem": "8192", "nvidia.com/gpu": "2"}))
    state = State(used={("a/main", 0): 5 * Gi, ("a/main", 1): 3 * Gi}, pods=(asking,))
    usage, advice = only(lived(path, (101, state)))
    assert (usage.peak, usage.peak_per_gpu, usage.per_gpu) == (8 * Gi, 5 * Gi, True)
    assert advice.fit is Fit.FITS
    much = replace(state, used={("a/main", 0): 2 * Gi, ("a/main", 1): 1 * Gi})
    usage, advice = only(lived(path.with_name("other.db"), (HOURS, much), every=60))
    assert (advice.fit, suggested(advice)) == (Fit.TOO_MUCH, ("nvidia.com/gpumem", "2304"))
    assert advice.suggestion is not None
    assert advice.suggestion.per_gpu


BY_CLAIM = replace(PLAIN, schemes=("dra",))


@pytest.mark.parametrize(
    ("gib", "size", "fit", "expected"),
    [
        (5, 4 * Gi, Fit.TOO_LITTLE, ("capacity.requests.memory", "5632Mi")),
        (3, 4 * Gi, Fit.FITS, None),
        (1, 4 * Gi, Fit.TOO_MUCH, ("capacity.requests.memory", "1280Mi")),
        (5, None, Fit.WHOLE, None),
    ],
)
def test_a_claim_is_recommended_by_what_its_pod_used(
    path: Path, gib: float, size: int | None, fit: Fit, expected: tuple[str, str] | None
) -> None:
    """Point 42: a share of a card has a number that can be changed, in the claim; a whole card has none."""
    state = using(gib, claimant("a", size=size))
    Life(path, replace(BY_CLAIM, interval_s=60.0)).run(cycles((HOURS, state), every=60))
    usage, advice = only(known(path, BY_CLAIM))
    assert (advice.fit, suggested(advice), usage.last.declared_by) == (fit, expected, "claim team/gpu")
    if fit is Fit.TOO_MUCH:
        assert advice.reason == "declares 4Gi, 3.2 times what is needed, by claim team/gpu"


def test_a_claim_that_pods_share_is_for_all_of_them(path: Path) -> None:
    """Point 42: what is recommended suffices for what they used together."""
    pods = claimant("a", "ns/pod-b"), claimant("b", "ns/pod-a")
    state = State(used=holding(3, "a") | holding(2, "b"), pods=pods)
    Life(path, BY_CLAIM).run(cycles((100, state)))
    found = known(path, BY_CLAIM)
    assert {workload.name: suggested(advice) for workload, (_, advice) in found.items()} == {
        "pod-a": ("capacity.requests.memory", "5632Mi"),
        "pod-b": ("capacity.requests.memory", "5632Mi"),
    }
    (_, advice), *_ = found.values()
    assert "by claim team/gpu, which ns/pod-b has too: what they use together counts" in advice.reason


def test_unknown_is_never_nothing(path: Path) -> None:
    """Time of unknown use is reported as such and is in no percentile; a workload that never used memory is unused."""
    of = tenant()
    usage, advice = only(lived(path, (100, using(2, of)), (151, using(None, of))))
    assert (usage.held_s, usage.unknown_s, usage.percentile(50)) == ({2 * Gi: 100}, 50, 2 * Gi)
    assert "for 33% of the time its use is unknown" in advice.reason
    usage, advice = only(lived(path.with_name("other.db"), (100, using(None, of))))
    assert (usage.percentile(50), usage.percentile(99), advice.fit) == (None, None, Fit.UNKNOWN)
    assert advice.suggestion is None
    usage, advice = only(lived(path.with_name("unused.db"), (100, State(pods=(tenant(),)))))
    assert (advice.fit, usage.idle_s, usage.percentile(50)) == (Fit.UNUSED, 99, None)


def test_time_without_a_recording_does_not_count(path: Path) -> None:
    """A gap, a restart and the time before `--since` are not made up."""
    of = tenant()
    Life(path, P).run([(float(second), using(1, of)) for second in (*range(50), *range(80, 100))])
    Life(path, P).run((float(second), using(2, of)) for second in range(200, 221))
    usage, _ = only(known(path))
    assert usage.held_s == {1 * Gi: 49 + 19, 2 * Gi: 20}
    usage, _ = only(known(path, since_s=at(90).wall_s))
    assert usage.held_s == {1 * Gi: 9, 2 * Gi: 20}


@pytest.mark.parametrize(
    ("of", "gib", "fit", "expected"),
    [
        (tenant(declared="8Gi"), 6.0, Fit.FITS, None),
        (tenant(declared="4Gi"), 6.1, Fit.TOO_LITTLE, ("veriff.com/gpu-memory", "6912Mi")),
        (tenant(declared="4Gi"), 12.1, Fit.TOO_LITTLE, ("veriff.com/gpu-memory", "14Gi")),
        (tenant(declared="16Gi"), 2.0, Fit.TOO_MUCH, ("veriff.com/gpu-memory", "2304Mi")),
        (tenant(declared="4Gi"), 79.5, Fit.TOO_LITTLE, ("veriff.com/gpu-memory", "80Gi")),
        (tenant(declared=None), 3.0, Fit.NOTHING, ("veriff.com/gpu-memory", "3584Mi")),
        (tenant(declared="-1"), 3.0, Fit.MISDECLARED, ("veriff.com/gpu-memory", "3584Mi")),
        (pod("a", container(of="a", resources={"nvidia.com/gpumem": "1000"})), 1.5, Fit.TOO_LITTLE,
         ("nvidia.com/gpumem", "1792")),
        (pod("a", container(of="a", resources={"nvidia.com/gpumem-percentage": "10"})), 12.0, Fit.TOO_LITTLE,
         ("nvidia.com/gpumem-percentage", "18")),
        (tenant(declared=None, annotations={"vram": "2"}), 2.5, Fit.TOO_LITTLE, ("vram", "3")),
        (pod("a", container(of="a", resources={"nvidia.com/gpu": "1"})), 2.0, Fit.WHOLE, None),
        (tenant(declared="2Gi"), None, Fit.UNKNOWN, None),
    ],
)  # fmt: skip
def test_what_to_declare(path: Path, of: Pod, gib: float | None, fit: Fit, expected: object) -> None:
    """Each kind of declaration gets its own answer, in the unit in which it is written, to be copied as it is."""
    _, advice = only(lived(path, (HOURS, using(gib, of)), every=60))
    assert (advice.fit, suggested(advice)) == (fit, expected), advice.reason


def test_a_declaration_of_the_pod_is_held_against_the_pod(path: Path) -> None:
    """An annotation for the whole pod counts for its containers together."""
    both = pod("a", container("main", of="a"), container("side", of="a"), annotations={"vram": "4"})
    state = State(used={("a/main", 0): 1 * Gi, ("a/side", 0): 2 * Gi}, pods=(both,))
    ((workload, (usage, advice)),) = lived(path, (101, state)).items()
    assert (workload.container, usage.held_s, advice.fit) == (None, {3 * Gi: 100}, Fit.FITS)


@given(st.lists(st.integers(1, 60 * Gi), min_size=1, max_size=8), st.integers(1, 6), st.booleans())
def test_the_suggestion_allows_the_peak(amounts: list[int], contexts: int, plain: bool) -> None:
    """A pod that declares what is suggested would never have been over its limit, and one that declares less would."""
    allowance = policy().allowance if plain else SHIPPED
    found = max(needed(amount, contexts, allowance) for amount in amounts)
    assert all(allowance.allowed(found, contexts) >= amount for amount in amounts)
    assert found == 0 or allowance.allowed(found - 2, contexts) < max(amounts)


def test_little_data_is_no_reason_to_declare_less(path: Path) -> None:
    """A workload seen for half a minute has not shown its peak: more may be advised, never less."""
    usage, advice = only(lived(path, (31, using(3.0, tenant(declared="16Gi")))))
    assert (usage.seen_s, advice.fit, advice.suggestion) == (30, Fit.TOO_MUCH, None)
    assert advice.reason.endswith("; seen for only 30s, too short to recommend declaring less")
    _, advice = only(lived(path.with_name("more.db"), (31, using(3.0, tenant(declared="2Gi")))))
    assert advice.suggestion is not None
    assert advice.reason.endswith("; seen for only 30s")
    _, advice = only(lived(path.with_name("long.db"), (3601, using(3.0, tenant(declared="16Gi"))), every=60))
    assert advice.suggestion is not None
    assert "only" not in advice.reason


@pytest.mark.parametrize("gib", [0.1, 1.0, 3.0, 7.9, 30.0, 79.9])
def test_what_is_suggested_allows_more_than_the_peak(path: Path, gib: float) -> None:
    """What a suggestion allows lies a tenth above the peak, or as far as the card goes; and the times are its own."""
    by = replace(PLAIN, allowance=SHIPPED)
    usage, advice = only(lived(path, (HOURS, using(gib, tenant(declared=None))), every=60, by=by))
    assert advice.suggestion is not None
    assert advice.suggestion.allows == SHIPPED.allowed(advice.suggestion.amount, 1)
    assert advice.suggestion.allows >= min(usage.peak * 1.1, 80 * Gi)


def test_times_are_of_what_is_suggested(path: Path) -> None:
    """A declaration is compared with a declaration: 8Gi is 2.9 times 2816Mi, whatever the allowance adds to both."""
    by = replace(PLAIN, allowance=SHIPPED)
    _, advice = only(lived(path, (HOURS, using(3.0, tenant(declared="8Gi"))), every=60, by=by))
    assert advice.reason == "declares 8Gi, 2.9 times what is needed"
    assert suggested(advice) == ("veriff.com/gpu-memory", "2816Mi")


POLICY = """
[[declaration]]
resource = "veriff.com/gpu-memory"
unit = "1"
[allowance]
per_context = "0"
percent = "0%"
"""


def call(path: Path, *arguments: str, text: str = POLICY) -> tuple[int, str]:
    """The command on a journal."""
    return runs.call("recommend", path, *arguments, policy=text)


def test_the_command_for_people(path: Path) -> None:
    """Each workload is a row with what it used and a suggestion that can be copied; the reason is in a list below."""
    recently(path, (100, using(6.1, tenant(declared="4Gi", owner=owner("Deployment", "w" * 150)))))
    code, text = call(path)
    assert code == 0
    head, row = (line.split() for line in text.splitlines()[:2])
    assert (head[-1], row[:3]) == ("SUGGESTED", ["Deployment", f"ns/{'w' * 150}", "main"])
    assert row[-2:] == ["veriff.com/gpu-memory:", "6912Mi"]
    assert f"- container main of Deployment ns/{'w' * 150}: declares too little" in text
    assert "; 6912Mi allows 6.8Gi\n" in text
    assert "1 workload, 1 suggestion." in text


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_it_fits_a_terminal(path: Path, width: int) -> None:
    """Columns are dropped and names cut until rows fit; what to declare is whole, its key in the list if need be."""
    Life(path, P).run(
        cycles((100, using(6.1, tenant(declared="4Gi", owner=owner("Deployment", "train-resnet50-imagenet")))))
    )
    text = recommendation_text(used(path, P, 0.0), width=width)
    head, row, *rest = text.splitlines()
    assert max(map(len, text.splitlines())) <= width
    has_key = width >= 200
    assert ("PODS" in head.split(), row.split()[-1]) == (width >= 120, "6912Mi")
    assert ("veriff.com/gpu-memory: 6912Mi" in row, "veriff.com/gpu-memory: 6912Mi" in " ".join(rest)) == (
        has_key,
        not has_key,
    )
    assert "Deployment ns/train-resnet50-imagenet" in " ".join(" ".join(rest).split())


def test_a_pod_without_an_owner_is_named_as_people_write_it(path: Path) -> None:
    """`pod notebooks/jupyter-7`, and a declaration that fits has a reason that a person would give."""
    recently(path, (4000, using(6.0, tenant(declared="8Gi"))))
    text = " ".join(call(path)[1].split())
    assert "- container main of pod ns/pod-a: its declaration fits its peak use" in text


def test_the_command_as_json(path: Path) -> None:
    """Every amount is in bytes and every time in hours, as its key has it."""
    recently(path, (100, using(6.0, tenant(declared="4Gi"))))
    (one,) = json.loads(call(path, "--json")[1])
    assert one["workload"] == {"kind": "Pod", "name": "pod-a"}
    assert (one["p50_bytes"], one["p99_bytes"], one["peak_bytes"]) == (6 * Gi, 6 * Gi, 6 * Gi)
    assert (one["declared_bytes"], one["declared_by"]) == (4 * Gi, "veriff.com/gpu-memory")
    assert one["seen_hours"] == pytest.approx(99 / 3600, abs=1e-4)
    assert (one["stand"], one["suggested"]["value"]) == ("too_little", "6912Mi")
    assert (one["suggested"]["bytes"], one["suggested"]["allows"]) == (6912 * Mi, 6912 * Mi)


def test_without_a_recording(path: Path) -> None:
    """No journal is exit code 1; nothing in that time is an answer, as for `history`: 0."""
    code, text = call(path)
    assert (code, "there is no journal" in text) == (1, True)
    recently(path, (20, using(1.0, tenant())))
    code, text = call(path, "--since", "1m")
    assert (code, "nothing to recommend" in text) == (0, True)
    code, text = call(path, "--since", "1m", "--json")
    assert (code, text.endswith("[]\n")) == (0, True)


def test_the_gpus_of_the_node_say_what_a_share_is_worth(path: Path) -> None:
    """A percentage is one of this node's cards."""
    of = pod("a", container(of="a", resources={"nvidia.com/gpumem-percentage": "50"}))
    state = replace(using(10.0, of), gpus=(gpu(0, 40 * Gi),))
    usage, advice = only(lived(path, (100, state)))
    assert (usage.last.declared, advice.fit) == (20 * Gi, Fit.FITS)
    usage, advice = only(lived(path.with_name("less.db"), (HOURS, replace(state, used=holding(5.0))), every=60))
    assert (usage.last.declared, advice.fit) == (20 * Gi, Fit.TOO_MUCH)
    assert suggested(advice) == ("nvidia.com/gpumem-percentage", "14")
