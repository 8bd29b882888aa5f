"""The mistakes in a policy that operators make most often: each is named before anything is killed."""

from typing import Final

import pytest
from click.testing import CliRunner

from tests.cli.doctor.build import GOOD, spoilt
from tests.cli.doctor.rows import under
from tests.worlds import Gi, assessed, container, parse_policy, pod, snapshot, use
from watchdog.cli.doctor import diagnose
from watchdog.cli.main import main
from watchdog.config.load import PolicyError

RULE: Final = '[[rule]]\nname = "all"\nmatch = {}\n'
WARN: Final = '[[rule.step]]\nabove = "100%"\nfor = "5s"\ndo = "warn"\n'
KILL: Final = '[[rule.step]]\nabove = "110%"\nfor = "30s"\ndo = "kill"\n'
BRAKES: Final = '[brakes]\nnode = "10 per 10m"\nbreaker = { offenders = "50%", of_at_least = 3, hold = "10m" }\n'
REST: Final = RULE + WARN + KILL + BRAKES


def table(resource: str, *lines: str) -> str:
    """A table for a resource."""
    return "\n".join(["[[declaration]]", f'resource = "{resource}"', *lines, ""])


MISTAKES: Final = {
    "MiB read as bytes": (table("nvidia.com/gpumem", 'unit = "1"') + REST, 1, 'is smaller than "1Mi", the unit of'),
    "GiB read as MiB": (table("aliyun.com/gpu-mem", 'unit = "1Mi"') + REST, 1, 'is smaller than "1Gi", the unit of'),
    "a percentage read as MiB": (
        table("nvidia.com/gpumem-percentage", 'unit = "1Mi"') + REST,
        1,
        'is smaller than "percent"',
    ),
    "a unit that is too large": (table("nvidia.com/gpumem", 'unit = "1Gi"') + REST, 0, 'is larger than "1Mi"'),
    "bytes, for a key that nobody knows": (
        table("example.com/vram", 'unit = "1"') + REST,
        0,
        "every pod is over its limit",
    ),
    "a default in bytes": (
        f'schemes = ["*"]\n{RULE}default = "4"\n{WARN}{KILL}{BRAKES}',
        0,
        'for mebibytes write "4Mi"',
    ),
    "no breaker": (f'schemes = ["*"]\n{RULE}{WARN}{KILL}[brakes]\nnode = "10 per 10m"\n', 0, "there is no breaker"),
    "no brakes": (f'schemes = ["*"]\n{RULE}{WARN}{KILL}', 0, "there are no [brakes]"),
    "a kill before any warning": (f'schemes = ["*"]\n{RULE}{KILL}{BRAKES}', 0, "before any warning has been given"),
    "a threshold below the limit": (
        f'schemes = ["*"]\n{RULE}{KILL.replace("110%", "90%")}{BRAKES}',
        1,
        "is below what is allowed",
    ),
    "a rule that comes too late": (f'schemes = ["*"]\n{REST}{RULE.replace("all", "b")}', 0, "can never apply"),
    "a misspelt key": (f'schemes = ["*"]\n{RULE}{KILL}gracee = "1s"\n', 1, 'did you mean "grace"?'),
    "a scheme that is not there": ('schemes = ["gpumem"]\n' + REST, 1, "schemes[0]"),
}


@pytest.mark.parametrize(("text", "code", "named"), MISTAKES.values(), ids=MISTAKES)
def test_check_names_the_mistake(text: str, code: int, named: str) -> None:
    """Each is a line of `check`; what would put every pod over its limit makes it fail."""
    done = CliRunner().invoke(main, ["check", "-"], input=f'mode = "enforce"\n{text}')
    assert (done.exit_code, named in done.stderr) == (code, True), done.stderr


def test_doctor_names_what_only_shows_in_use() -> None:
    """MiB under a key that no scheme knows look like bytes: an account that is a million times over is named."""
    policy = parse_policy(table("example.com/vram", 'unit = "1"', "unit_differs = true") + REST)
    owner = pod("a", container(resources={"example.com/vram": "6144"}))
    found = assessed(snapshot([use(7, 5 * Gi)]), [owner], policy)
    facts = under(spoilt("processes", assessments=found), policy)
    (finding,) = (each for each in diagnose(facts).findings if each.name == "limits_plausible")
    assert "uses 5Gi, about a million times the 6Ki that it declares by example.com/vram" in finding.what


def test_a_wrong_unit_keeps_doctor_from_saying_that_it_can_enforce() -> None:
    """Doctor must not say "can enforce" of a policy that `check` refuses."""
    wrong = parse_policy(f'mode = "enforce"\n{MISTAKES["MiB read as bytes"][0]}')
    assert (diagnose(under(GOOD, wrong)).enforce, diagnose(under(GOOD, wrong)).observe) == (False, True)
    assert diagnose(GOOD).enforce
    with pytest.raises(PolicyError):
        parse_policy(f'mode = "enforce"\n{MISTAKES["a threshold below the limit"][0]}')
