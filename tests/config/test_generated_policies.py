"""Generated policies with one change each: never a traceback, never accepted with a mistake in it."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.config.mutations import Changed, changed_policy
from tests.config.toml_text import to_toml
from tests.worlds import parse_policy
from watchdog.config.document import policy_document
from watchdog.config.load import PolicyError, load_policy
from watchdog.core.policy import Policy

MANY = range(10_000)


def check(changed: Changed, path: Path) -> bool:
    """Load a changed policy and compare the result with what is known of it; returns whether it was accepted."""
    path.write_bytes(changed.data)
    try:
        loaded = load_policy(path)
    except PolicyError as error:
        check_report(changed, error, str(path))
        return False
    assert changed.mistake is not True, changed
    assert same(parse_policy(to_toml(policy_document(loaded)), "again"), loaded)
    return True


def check_report(changed: Changed, error: PolicyError, source: str) -> None:
    """Every mistake is a printable line, and the one that was made is among them."""
    assert changed.mistake is not False, (changed, str(error))
    lines = str(error).split("\n")
    assert len(lines) == len(error.problems)
    assert all(line.isprintable() and line.startswith(source) for line in lines), lines
    if changed.path is not None:
        assert any(problem.path.startswith(changed.path) for problem in error.problems), (changed, lines)


def same(one: Policy, other: Policy) -> bool:
    """Whether two policies say the same, wherever they come from."""
    return replace(one, sha256="", source="", warnings=()) == replace(other, sha256="", source="", warnings=())


@pytest.mark.slow
def test_ten_thousand_changed_policies(tmp_path: Path) -> None:
    """None gives a traceback, a mistake is refused with its path, and what is accepted reads back as it is written."""
    counts: Counter[tuple[str, bool]] = Counter()
    for number in MANY:
        changed = changed_policy(number)
        counts[changed.change, check(changed, tmp_path / "policy.toml")] += 1
    assert min(counts[change, False] for change, accepted in counts if not accepted) > 100
    assert counts["none", True] > 400
    assert counts["random_edit", True] > 10
