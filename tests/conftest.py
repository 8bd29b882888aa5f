"""What all tests share: how many examples the property tests try (HYPOTHESIS_PROFILE), and what was not run and why."""

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.leftovers import pytest_configure, session_folder  # noqa: F401 - pytest finds them by their names in here

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
# With CI set a run tries the same examples each time, so that it says something about the commit; every other run
# looks for new ones, and so does the soak.
_FIXED = bool(os.environ.get("CI"))

for _name, _examples in (("quick", 20), ("full", 100)):
    settings.register_profile(
        _name, max_examples=_examples, deadline=None, suppress_health_check=_QUIET, database=None, derandomize=_FIXED
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


# Before anything that loads the stub of NVML into the same process; then what takes longest, and the image is there
# when a cluster needs it.
_FIRST = [f"tests/{each}" for each in ("gpu", "release", "image", "browser", "monitoring/rules/test_alerts", "cluster")]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For several workers: then come all other files as the digests of their names lie.

    So what waits for processes and what computes, each of which fills folders, go on side by side all the time.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _place(item.nodeid.partition("::")[0]))


def _place(file: str) -> tuple[int, bytes]:
    first = next((number for number, each in enumerate(_FIRST) if file.startswith(each)), None)
    return (len(_FIRST), hashlib.sha256(file.encode()).digest()) if first is None else (first, b"")


# Around all others, so that it is the last thing printed before the line with the counts.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Report what this machine could not run: a line for each reason, the commonest first, with the folders."""
    yield
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.section(f"not run on this machine: {len(skipped)}", yellow=True)
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for each in skipped:
        why = each.longrepr[2] if isinstance(each.longrepr, tuple) else each.longrepr
        # Where a test folder is too large to say anything, its subfolders are not: tests/cluster is one thing.
        folder = "/".join(each.nodeid.partition("::")[0].split("/")[:2])
        found[" ".join(str(why).removeprefix("Skipped: ").split())][folder] += 1
    for reason, folders in sorted(found.items(), key=lambda each: (-each[1].total(), each[0])):
        where = ", ".join(f"{folder} {count}" for folder, count in folders.most_common())
        terminalreporter.line(f"{folders.total():>5}  {reason} ({where})")
