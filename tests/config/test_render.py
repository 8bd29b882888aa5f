"""What is written of a policy: it reads back as the same policy, and people find every value in it."""

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.config.toml_text import to_toml
from tests.worlds import parse_policy
from watchdog.config.document import keys_of, policy_document, walk
from watchdog.config.fields import hours, parse_threshold
from watchdog.config.load import built_in_policy, load_policy
from watchdog.config.render import render_policy
from watchdog.config.scheme import all_schemes
from watchdog.core.policy import (
    Allowance,
    Capacity,
    Declaration,
    Do,
    Draining,
    Events,
    JournalLimits,
    Match,
    Policy,
    Protect,
    Pulse,
    Rule,
    Safety,
    Step,
    Threshold,
    Unless,
)
from watchdog.core.units import parse_duration

WHOLE: Final = Path(__file__).with_name("whole.toml")
SHIPPED: Final = Path(__file__).parents[2] / "config" / "policy.toml"
AMOUNTS = st.integers(0, 2**60)
NAMES = st.lists(st.from_regex(r"[a-z*?][a-z0-9.*?-]{0,9}", fullmatch=True), max_size=3).map(tuple)
LABELS = st.dictionaries(st.sampled_from(["a", "example.com/b.c", "tier"]), st.sampled_from(["", "x*", "Y_1"]))


def seconds(low_ms: int, high_ms: int) -> st.SearchStrategy[float]:
    """Durations in whole milliseconds."""
    return st.integers(low_ms, high_ms).map(lambda milliseconds: milliseconds / 1000)


def shares(low: int, high: int) -> st.SearchStrategy[Fraction]:
    """Shares of a whole, in millionths of a percent."""
    return st.integers(low * 10**6, high * 10**6).map(lambda number: Fraction(number, 10**8))


ALLOWANCES = st.builds(Allowance, per_context=AMOUNTS, max_contexts=st.integers(0, 100_000), percent=shares(0, 100))
MARKS: Final[list[st.SearchStrategy[Threshold]]] = [
    st.builds(Threshold, share=shares(100, 999_999)),
    st.builds(Threshold, plus=AMOUNTS),
    st.builds(Threshold, amount=AMOUNTS),
]


def make_step(above: Threshold, for_s: float, do: Do, times: tuple[float, float], scope: Any) -> Step:
    """A step that has only what goes with what it does: the rest has its default."""
    if do is Do.WARN:
        return Step(above=above, for_s=for_s, do=do, repeat_s=times[0])
    if do is Do.EVICT:
        return Step(above=above, for_s=for_s, do=do, grace_s=times[1])
    return Step(above=above, for_s=for_s, do=do, grace_s=times[1], scope=scope)


def threshold_bytes(step: Step) -> Fraction:
    """What orders marks of one kind."""
    return Fraction(step.above.share or step.above.plus or step.above.amount or 0)


def ladders(marks: st.SearchStrategy[Threshold]) -> st.SearchStrategy[tuple[Step, ...]]:
    """Steps whose marks rise, no two alike."""
    step = st.builds(
        make_step,
        above=marks,
        for_s=seconds(0, 30 * 86_400_000),
        do=st.sampled_from(Do),
        times=st.tuples(seconds(1000, 30 * 86_400_000), seconds(1000, 86_400_000)),
        scope=st.sampled_from(["process", "container", "pod"]),
    )
    by_signature: Callable[[Step], object] = lambda step: step.signature  # noqa: E731 - typed for the checker
    return st.lists(step, max_size=4, unique_by=by_signature).map(
        lambda steps: tuple(sorted(steps, key=threshold_bytes))
    )


RULES = st.builds(
    Rule,
    name=st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=63),
    match=st.builds(
        Match,
        namespaces=NAMES,
        pods=NAMES,
        labels=LABELS,
        owner_kinds=st.sampled_from([(), ("Job", "Stateful*")]),
        namespace_labels=LABELS,
        node_labels=LABELS,
    ),
    account=st.sampled_from(["pod", "container"]),
    default=st.none() | AMOUNTS,
    mode=st.sampled_from([None, "observe", "enforce"]),
    active=st.sampled_from([None, *map(hours().read, ("Mon-Fri 08:00-18:00 Asia/Kolkata", "Sun 22:00-06:00 UTC"))]),
    steps=st.sampled_from(MARKS).flatmap(ladders),
)
DECLARATIONS = st.builds(
    Declaration,
    resource=st.from_regex(r"example\.com/[a-z*?]{1,9}", fullmatch=True),
    unit=st.integers(1, 2**60),
    per=st.sampled_from(["total", "gpu"]),
    node_labels=LABELS,
    unless=st.none() | st.builds(Unless, resource=st.just("example.com/cores"), at_least=st.integers(1, 10**15)),
    allowance=st.none() | ALLOWANCES,
)
CAPACITIES = st.builds(
    Capacity,
    resource=st.just("example.org/advertised"),  # no declaration that is made here reads it
    amount=st.none() | st.integers(2**20, 2**50),
    reserve=st.integers(0, 2**40),
)
POLICIES = st.builds(
    Policy,
    sha256=st.just(""),
    source=st.just("generated"),
    mode=st.sampled_from(["observe", "enforce"]),
    interval_s=seconds(1000, 300_000),
    stale_after_s=seconds(1000, 86_400_000),
    release_timeout_s=seconds(1000, 3_600_000),
    schemes=st.lists(st.sampled_from(list(all_schemes())), max_size=3, unique=True).map(tuple),
    declarations=st.lists(DECLARATIONS, max_size=3, unique_by=lambda declaration: declaration.key).map(tuple),
    allowance=ALLOWANCES,
    rules=st.lists(RULES, max_size=3, unique_by=lambda rule: rule.name).map(tuple),
    protect=st.builds(Protect, namespaces=NAMES, pods=NAMES, priority_at_least=st.integers(-(2**31), 2**31 - 1)),
    journal=st.builds(JournalLimits, max_age_s=seconds(1000, 10**11), max_size=st.integers(2**18, 2**40)),
    safety=st.builds(
        Safety,
        foreign_pid_namespace=st.booleans(),
        signal_without_pidfd=st.booleans(),
        signal_mps_clients=st.booleans(),
    ),
    pulse=st.none() | st.builds(Pulse, every_s=st.just(0.0) | seconds(20, 1000), rise=st.integers(1, 2**40)),
    mps=st.none() | st.builds(Draining, pipe=st.lists(st.just("/run/mps/pipe"), max_size=2).map(tuple)),
    capacity=st.none() | CAPACITIES,
    events=st.builds(
        Events,
        observe=st.booleans(),
        contact=st.sampled_from(["", "GPU team", 'A "quoted" \\ name', "\U0001f600"]),
    ),
)


@pytest.mark.slow
@given(POLICIES)
def test_a_policy_that_is_written_reads_back_the_same(policy: Policy) -> None:
    """Law 9: "Whatever is written parses back: quantities, durations, cgroup paths of every driver"."""
    after = parse_policy(to_toml(policy_document(policy)), "generated")
    built_in = after.declarations[len(policy.declarations) :]
    assert [name for name, _ in groupby(each.scheme for each in built_in)] == list(policy.schemes or ())
    assert replace(after, sha256="", warnings=(), declarations=policy.declarations) == policy
    assert after.declarations[: len(policy.declarations)] == policy.declarations
    assert policy_document(after) == policy_document(policy)


@given(st.one_of(*MARKS, st.builds(Threshold, share=shares(0, 100))))
def test_a_mark_that_is_written_reads_back_the_same(mark: Threshold) -> None:
    """Law 9: "Whatever is written parses back: quantities, durations, cgroup paths of every driver"."""
    assert parse_threshold(str(mark)) == mark


def test_every_default_that_is_written_reads_back_the_same() -> None:
    """Law 9: what the reference shows as a key's default is what the key has if it is given that text."""
    seen = 0
    for location, table in walk():
        for name, key in keys_of(table).items():
            if key.kind is not None and not key.is_required and key.default not in (None, (), {}):
                for default in key.default if key.is_list else [key.default]:
                    assert key.kind.read(key.kind.write(default)) == default, (location, name)
                    seen += 1
    assert seen > 25


def test_a_whole_policy_that_is_written_reads_back() -> None:
    """The document of a policy with every key has all of it."""
    policy = load_policy(WHOLE)
    again = parse_policy(to_toml(policy_document(policy)), policy.source)
    assert replace(again, sha256=policy.sha256, warnings=policy.warnings) == policy


def test_a_document_is_plain_json() -> None:
    """A policy's document can be written as JSON and read again without loss."""
    document = policy_document(load_policy(WHOLE))
    assert json.loads(json.dumps(document)) == document


@given(POLICIES)
def test_the_ladder_stands_in_the_text_as_the_policy_has_it(policy: Policy) -> None:
    """Law 9: the marks and durations of the table that `check` prints parse back, in the order of the steps."""
    rows = [line.split("  ") for line in render_policy(policy).split("\n") if line.startswith("    ")]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    steps = [(parse_threshold(row[0]), parse_duration(row[1])) for row in cells if len(row) == 3 and row[0] != "ABOVE"]
    assert steps == [(step.above, step.for_s) for rule in policy.rules for step in rule.steps]


def test_the_text_of_a_whole_policy_names_every_value() -> None:
    """An operator who reads what `check` prints finds each effective value."""
    text = render_policy(load_policy(WHOLE))
    for words in (
        "Mode enforce: acts",
        "listed at least every 2s; no enforcement on a pod list older than 2m; release timeout 45s",
        "resource example.com/gpu-memory: unit 1Mi, for each GPU, on nodes with example.com/pool=gpu-*, unless ",
        ", unless example.com/cores is 100 or more, limit in annotation example.com/limit, own allowance 5%",
        "own allowance 5% of declared + 1Mi for each of at most 7 contexts",
        "label gpu-*: unit share, for all GPUs together, shares label:nvidia.com/gpu.replicas, own allowance none",
        "Allowance: 2.5% of declared + 256Mi for each of at most 8 contexts",
        "notebooks: namespace jupyter-*; pod nb-?; owned by StatefulSet; labels tier=dev; namespace labels",
        "namespace labels team=a; node labels pool=gpu",
        "account container (each container by itself); where nothing is declared: default 4Gi",
        "mode observe, active Mon-Fri 08:00-18:00 Europe/Berlin",
        "    ABOVE   FOR  DO\n    90%     30s  warn, again every 2h\n",
        "    +512Mi  10s  kill all containers of the pod (scope pod): SIGTERM, SIGKILL after 5s while the card is",
        "    20Gi    0s   evict with grace 1m, warned or not\n",
        "namespace gpu-operator, pod */dcgm-exporter-*, pod trainer, annotation example.com/spare, priority from 1000",
        "Journal: at most 7d and 64Mi",
        "Contact named in Events: GPU team",
        "Safety overrides: foreign_pid_namespace, signal_without_pidfd, signal_mps_clients",
        "MPS clients are drained before they are ended, by the control daemons of /run/mps/pipe",
        "Advertised on the node: 40Gi as example.com/gpu-memory, in units of 1Mi\n",
    ):
        assert words in text, (words, text)


_FOR_ALL_JOBS = '[[rule]]\nname = "jobs"\nmatch = { owner_kinds = ["Job"] }\n'
_FOR_SOME_JOBS = '[[rule]]\nname = "jobs"\nmatch = { owner_kinds = ["Job"], labels = { tier = "dev" } }\n'


@pytest.mark.parametrize(
    ("before", "match", "grace", "is_told"),
    [
        ("", "{}", "10s", True),
        ("", '{ owner_kinds = ["J*"] }', "1s", True),
        ("", "{}", "0s", False),
        ("", '{ owner_kinds = ["Pod"] }', "1s", False),
        (_FOR_ALL_JOBS, "{}", "10s", False),
        (_FOR_SOME_JOBS, "{}", "10s", True),
    ],
)
def test_what_a_job_makes_of_a_grace_period_is_told(before: str, match: str, grace: str, is_told: bool) -> None:
    """Where a rule kills with a grace period and gets Jobs, `check` says that exit code 0 counts as success."""
    kill = f'[[rule.step]]\nabove = "100%"\nfor = "1s"\ndo = "kill"\ngrace = "{grace}"\n'
    text = render_policy(parse_policy(f'{before}[[rule]]\nname = "r"\nmatch = {match}\n{kill}', "policy.toml"))
    said = 'a pod whose program exits with 0 on SIGTERM counts as succeeded; grace = "0s" avoids that'
    assert (f'\nJobs under rule "r": {said}\n' in text) is is_told
    assert ("Jobs under" in text) is is_told


def test_what_a_job_makes_of_a_grace_period_is_told_once() -> None:
    """One line for the policy that ships, with the name of its rule; it has no warnings."""
    lines = [line for line in render_policy(load_policy(SHIPPED)).splitlines() if "as succeeded" in line]
    (said,) = lines
    assert said.startswith('Jobs under rule "everything": a pod whose program exits with 0 ')


def test_the_text_of_a_policy_that_says_little() -> None:
    """Where nothing is set, the text says what follows from that."""
    little = 'schemes = []\n[[rule]]\nname = "r"\nmatch = {}\ndefault = "0"\n'
    text = render_policy(parse_policy(little, "policy.toml"))
    nobody = 'Contact named in Events: none, so they say "the operator of this cluster"; contact under [events] takes'
    for words in ("No declarations.", "r: every pod", "nothing is allowed (default 0)", "no steps: measured only"):
        assert words in text
    assert nobody in text
    assert "where nothing is declared: left alone" in render_policy(built_in_policy())
    assert "No rules: every pod is left alone." in render_policy(parse_policy("version = 1\n", "policy.toml"))
