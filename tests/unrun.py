"""Which tests a machine could not run, and why: by reason, for the end of a run."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

_PREFIX = "Skipped: "
# Where a test folder is too large to say anything, its subfolders are not: tests/cluster is one thing.
_DEPTH = 2


def summary(skipped: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """A line for each reason, the commonest first: how many tests, why, and in which folders.

    Takes the names of skipped tests with what pytest has of each: file, line, and `Skipped: ` with the reason.
    """
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for name, why in skipped:
        reason = str(why[2] if isinstance(why, tuple) else why).removeprefix(_PREFIX)
        folder = "/".join(name.partition("::")[0].split("/")[:_DEPTH])
        found[" ".join(reason.split())][folder] += 1
    for reason, folders in sorted(found.items(), key=lambda each: (-each[1].total(), each[0])):
        where = ", ".join(f"{folder} {count}" for folder, count in folders.most_common())
        yield f"{folders.total():>5}  {reason} ({where})"
