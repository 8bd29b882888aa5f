"""Runs that are recorded and replayed: their policy, and a cycle a second."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.past.life import Life, State, holding, tenant
from tests.worlds import at, policy, rule, step
from watchdog import clock

WARN = step("100%", 5, "warn")
KILL = step("110%", 10, "kill")
AT_ONCE = step("150%", 0, "kill")
P = policy(rule(WARN, KILL, AT_ONCE))
LOW = State(used=holding(6.0), pods=(tenant(),))
HIGH = replace(LOW, used=holding(10.0))


def passes(*parts: tuple[int, State], since: int = 0, every: int = 1) -> Iterator[tuple[float, State]]:
    """Cycles a second apart: each part until its second."""
    second = since
    for until, state in parts:
        while second < until:
            yield float(second), state
            second += every


def recently(path: Path, *parts: tuple[int, State]) -> None:
    """A life that ended a moment ago, by this machine's clock."""
    life, began_s = Life(path, P), clock.now().wall_s - 300
    for second, state in passes(*parts):
        life.see(state, replace(at(second), wall_s=began_s + second))
    life.end()
