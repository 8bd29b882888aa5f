"""Ten thousand policies with one change each: never a traceback, never accepted with a mistake in it."""

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

FEW = range(400)
MANY = range(400, 10_400)


def check(changed: Changed, path: Path) -> bool:
    """Load a changed policy and hold what comes of it against what is known; say whether it was accepted."""
    path.write_bytes(changed.data)
    loaded = load(path)
    if isinstance(loaded, PolicyError):
        check_report(changed, loaded, str(path))
        return False
    assert changed.mistake is not True, changed
    assert same(parse_policy(to_toml(policy_document(loaded)), "again"), loaded)
    return True


def load(path: Path) -> Policy | PolicyError:
    """What loading a file gives, as a value."""
    try:
        return load_policy(path)
    except PolicyError as error:
        return error


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


def check_all(numbers: range, path: Path) -> Counter[tuple[str, bool]]:
    """Check the policies of these numbers; count what was accepted and refused of each change."""
    counts: Counter[tuple[str, bool]] = Counter()
    for number in numbers:
        changed = changed_policy(number)
        counts[changed.change, check(changed, path)] += 1
    return counts


@pytest.mark.slow
def test_a_few_hundred_changed_policies(tmp_path: Path) -> None:
    """A policy with one mistake is refused for that mistake, and one without any is accepted."""
    counts = check_all(FEW, tmp_path / "policy.toml")
    assert len({change for change, _ in counts}) == 17
    assert counts["none", True] > 5


@pytest.mark.slow
def test_ten_thousand_changed_policies(tmp_path: Path) -> None:
    """No change of ten thousand gives a traceback, and none with a mistake in it is accepted."""
    counts = check_all(MANY, tmp_path / "policy.toml")
    assert counts.total() == len(MANY) == 10_000
    assert min(counts[change, False] for change, accepted in counts if not accepted) > 100
    assert counts["none", True] > 400
    assert counts["random_edit", True] > 10
