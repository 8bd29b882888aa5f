"""What is written of a policy and of its keys: it reads back the same, and people find every value in it."""

import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from textwrap import dedent
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.config.toml_text import to_toml
from tests.worlds import Gi, parse_policy
from tools.policy_reference import EXAMPLE, REFERENCE, policy_reference
from watchdog.cli.policy_text import render_policy
from watchdog.config.document import keys_of, policy_document, walk
from watchdog.config.fields import parse_threshold
from watchdog.config.load import PolicyError, built_in_policy, load_policy
from watchdog.core.policy import Allowance, Threshold
from watchdog.core.units import format_bytes, parse_quantity

WHOLE: Final = Path(__file__).with_name("whole.toml")
SHIPPED: Final = Path(__file__).parents[2] / "config" / "policy.toml"
AMOUNTS = st.just(0) | st.integers(2**20, 2**60)  # a threshold of fewer bytes is refused
SHARES = st.integers(0, 999_999 * 10**6).map(lambda number: Fraction(number, 10**8))  # in millionths of a percent


@given(st.builds(Threshold, share=SHARES) | st.builds(Threshold, plus=AMOUNTS) | st.builds(Threshold, amount=AMOUNTS))
def test_a_threshold_that_is_written_reads_back_the_same(threshold: Threshold) -> None:
    """Law 9, "Everything that is written parses back": thresholds too."""
    assert parse_threshold(str(threshold)) == threshold


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
    """The document of a policy with every key has all of it, and is plain JSON."""
    policy = load_policy(WHOLE)
    document = policy_document(policy)
    assert json.loads(json.dumps(document)) == document
    again = parse_policy(to_toml(document), policy.source)
    assert replace(again, sha256=policy.sha256, warnings=policy.warnings) == policy


def test_the_text_of_a_whole_policy_names_every_value() -> None:
    """An operator who reads what `check` prints finds each effective value."""
    text = render_policy(load_policy(WHOLE))
    for words in (
        "Mode enforce: warns, kills and evicts as the rules say",
        "listed at least every 2s; no enforcement on a pod list older than 2m; release timeout 45s",
        "  KEY                                 KIND         UNIT  PER    SCHEME  CONDITIONS\n",
        "  example.com/gpu-memory              resource      1Mi  gpu    -       on nodes with example.com/pool=gpu-*",
        ", unless example.com/cores is 100 or more, 0 declares nothing, limit in annotation example.com/limit, own",
        "  example.com/cores                   resource    cards  total  -       100 make a card, no allowance",
        "for the container that example.com/vram-container names, else the first, limit in annotation example.com/a or",
        " example.com/a or example.com/{container}.b (fraction)",
        "own allowance 5% of declared + 1Mi for each of at most 7 contexts",
        "  gpu-*                               label       share  total  -       shares label:nvidia.com/gpu.replicas",
        "  veriff.com/gpu-memory               resource        1  total  veriff  -\n",
        'Resource claims: not read; schemes = ["dra"] reads them, for pods that get their cards by ResourceClaims',
        "Allowance: 2.5% of declared + 256Mi for each of at most 8 contexts",
        '"notebooks": namespace jupyter-*; pod nb-?; owned by StatefulSet; labels tier=dev; namespace labels',
        "namespace labels team=a; node labels pool=gpu",
        "account container (each container separately); where nothing is declared: default 4Gi",
        "mode observe, active Mon-Fri 08:00-18:00 Europe/Berlin",
        "    ABOVE   FOR  DO\n    90%     30s  warn, again every 2h\n",
        "    +512Mi  10s  kill all processes of the pod (scope pod): SIGTERM, SIGKILL after 5s while the card is",
        "    20Gi    0s   evict with grace 1m, warned or not\n",
        "namespace gpu-operator, pod */dcgm-exporter-*, pod trainer, annotation example.com/spare, priority from 1000",
        "Journal: at most 7d and 64Mi",
        "Reported, and left alone: accounts that use at least 512Mi and have computed nothing for 30m",
        "Contact named in Events: GPU team",
        "Page linked in Events: https://gpu.example.org/{node}/pods/{namespace}/{pod}",
        "Safety overrides: foreign_pid_namespace, signal_without_pidfd, signal_mps_clients",
        "memory counters are read every 100ms; a rise of 32Mi brings the next reading forward, at most 30 per 2m\n",
        "MPS clients are drained before they are ended, by the control daemons of /run/mps/pipe",
        "Advertised on the node: 40Gi as example.com/gpu-memory, in units of 1Mi\n",
    ):
        assert words in text, (words, text)


_FOR_ALL_JOBS = '[[rule]]\nname = "jobs"\nmatch = { owner_kinds = ["Job"] }\n'
_FOR_SOME_JOBS = '[[rule]]\nname = "jobs"\nmatch = { owner_kinds = ["Job"], labels = { tier = "dev" } }\n'


@pytest.mark.parametrize(
    ("before", "match", "grace", "is_named"),
    [
        ("", "{}", "10s", True),
        ("", '{ owner_kinds = ["J*"] }', "1s", True),
        ("", "{}", "0s", False),
        ("", '{ owner_kinds = ["Pod"] }', "1s", False),
        (_FOR_ALL_JOBS, "{}", "10s", False),
        (_FOR_SOME_JOBS, "{}", "10s", True),
    ],
)
def test_rules_that_kill_jobs_with_a_grace_period_are_named(
    before: str, match: str, grace: str, is_named: bool
) -> None:
    """Where a rule kills with a grace period and gets Jobs, `check` says that exit code 0 counts as success."""
    kill = f'[[rule.step]]\nabove = "100%"\nfor = "1s"\ndo = "kill"\ngrace = "{grace}"\n'
    text = render_policy(parse_policy(f'{before}[[rule]]\nname = "r"\nmatch = {match}\n{kill}'))
    what = 'a pod whose program exits with 0 on SIGTERM counts as succeeded; grace = "0s" avoids that'
    assert [line for line in text.splitlines() if line.startswith("Jobs under")] == (
        [f'Jobs under rule "r": {what}'] if is_named else []
    )


def test_the_text_of_a_short_policy() -> None:
    """Where nothing is set, the text says what follows from that."""
    little = 'schemes = []\n[[rule]]\nname = "r"\nmatch = {}\ndefault = "0"\n'
    text = render_policy(parse_policy(little))
    for words in (
        *("No declarations.", '"r": every pod', "nothing is allowed (default 0)", "no steps: measured only"),
        'Contact named in Events: none, so they say "the operator of this cluster"; contact under [events] takes',
    ):
        assert words in text
    assert "Memory counters" not in text
    off = render_policy(parse_policy(f'{little}[pulse]\nevery = "0s"\n'))
    assert off.endswith("Memory counters are not read between readings")
    assert "where nothing is declared: left alone" in render_policy(built_in_policy())
    assert "No rules: every pod is left alone." in render_policy(parse_policy("version = 1\n"))


def hundredths(amount: float) -> str:
    """Gibibytes with two digits, as the example has them."""
    return f"{amount / Gi:.2f}Gi"


def test_the_committed_reference_is_what_the_schema_gives() -> None:
    """A key that is added, a range or a default that changes, changes the reference in the same commit."""
    committed = REFERENCE.read_text(encoding="utf-8")
    assert committed == policy_reference(), "regenerate it with: python -m tools.policy_reference"


def test_the_worked_example_is_a_policy_without_warnings() -> None:
    """What an operator copies from the page is valid as it is, and enforces."""
    policy = parse_policy(dedent(EXAMPLE), "example")
    assert (policy.mode, policy.warnings) == ("enforce", ())
    assert len(policy.rules[0].steps) == 3


def test_the_numbers_of_the_worked_example() -> None:
    """The amounts in the text are what the code makes of the declaration: 8Gi, two processes, one GPU."""
    policy = parse_policy(dedent(EXAMPLE), "example")
    allowed = policy.allowance.allowed(8 * Gi, 2)
    text = policy_reference()
    assert f"allowed = 8Gi x 1.02 + 2 x 512Mi = {hundredths(allowed)}" in text
    for step in policy.rules[0].steps:
        assert f"above {step.above} ({hundredths(step.above.threshold_bytes(allowed, step.do))})" in text
    default = Allowance().allowed(parse_quantity("4Gi"), 1)
    assert f"4Gi x 1.02 + 512Mi = {hundredths(default)}" in text
    assert allowed > 9 * Gi
    assert format_bytes(9 * Gi) == "9Gi"


def test_the_policies_within_the_text_are_refused_as_it_says() -> None:
    """The error lines that the page shows are those that `check` prints."""
    broken = '[[rule]]\nname = "r"\nmatch = {}\n' + "".join(
        f'[[rule.step]]\nabove = "{above}"\nfor = "0s"\ndo = "{do}"\n{rest}'
        for above, do, rest in (("100%", "warn", ""), ("90%", "kill", 'gracee = "1s"\n'))
    )
    with pytest.raises(PolicyError) as caught:
        parse_policy(broken)
    shown = re.findall(r"^    (policy\.toml: .*)$", policy_reference(), re.MULTILINE)
    assert shown == str(caught.value).split("\n")
