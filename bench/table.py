"""Tables in Markdown, as docs/benchmarks.md has them."""

from collections.abc import Iterable, Sequence


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table under a title, each row as soon as it is there."""
    print(f"\n### {title}\n\n| {' | '.join(columns)} |")
    print("|" + "---|" * len(columns), flush=True)
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def milliseconds(seconds: float) -> str:
    """A time, in milliseconds with three digits that count."""
    return f"{seconds * 1000:.3g}" if seconds < 0.1 else f"{seconds * 1000:.0f}"
