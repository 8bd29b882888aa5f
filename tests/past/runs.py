"""Runs that are recorded and replayed: their policy, a cycle a second, and the commands on what was recorded."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from tests.past.life import Life, State, holding, tenant
from tests.worlds import at, policy, rule, step
from watchdog import clock
from watchdog.cli.main import main

WARN = step("100%", 5, "warn")
KILL = step("110%", 10, "kill")
AT_ONCE = step("150%", 0, "kill")
P = policy(rule(WARN, KILL, AT_ONCE))
LOW = State(used=holding(6.0), pods=(tenant(),))
HIGH = replace(LOW, used=holding(10.0))


def cycles(*parts: tuple[int, State], since: int = 0, every: int = 1) -> Iterator[tuple[float, State]]:
    """Cycles a second apart: each part until its second."""
    second = since
    for until, state in parts:
        while second < until:
            yield float(second), state
            second += every


def recently(path: Path, *parts: tuple[int, State]) -> None:
    """A life that ended a moment ago, by this machine's clock."""
    life, began_s = Life(path, P), clock.now().wall_s - 300
    for second, state in cycles(*parts):
        life.see(state, replace(at(second), wall_s=began_s + second))
    life.end()


def call(command: str, path: Path, *arguments: str, policy: str) -> tuple[int, str]:
    """The exit code of `replay` or `recommend` and its whole output, with a policy of this text."""
    file = path.with_name("policy.toml")
    file.write_text(policy, encoding="utf-8")
    result = CliRunner().invoke(main, [command, "--policy", str(file), "--journal", str(path), *arguments])
    return result.exit_code, result.output
