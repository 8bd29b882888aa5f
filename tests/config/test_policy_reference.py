"""The policy reference says what the schema checks, and its numbers are right."""

import re
from textwrap import dedent

import pytest

from tests.worlds import Gi, parse_policy
from tools.policy_reference import EXAMPLE, REFERENCE, policy_reference
from watchdog.config.load import PolicyError
from watchdog.core.policy import Allowance
from watchdog.core.units import format_bytes, parse_quantity


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
