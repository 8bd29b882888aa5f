"""Valid policies: every key means what the file says, and what is printed reads as the same policy."""

import hashlib
import tomllib
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import pytest

from tests.worlds import Gi, Mi, parse_policy, step
from watchdog.config.document import is_table, keys_of, walk
from watchdog.config.fields import hours
from watchdog.config.load import built_in_policy, load_policy
from watchdog.core import policy as core_policy
from watchdog.core.policy import (
    NO_ALLOWANCE,
    Allowance,
    Capacity,
    Claims,
    Declaration,
    Draining,
    Events,
    Idle,
    JournalLimits,
    LimitAnnotation,
    Maintenance,
    Match,
    Policy,
    Protect,
    Pulse,
    Rule,
    Safety,
    Unless,
    Window,
)

ROOT: Final = Path(__file__).parents[2]
WHOLE: Final = Path(__file__).with_name("whole.toml")
SOURCE: Final = '[[declaration]]\nresource = "example.com/gpu-memory"\nunit = "1"\n'


@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_the_shipped_example_observes_and_enforces_with_one_change(mode: str) -> None:
    """Unchanged it kills nothing; the change that its comments promise is enough, and there is nothing to warn of."""
    text = (ROOT / "config" / "policy.toml").read_text(encoding="utf-8")
    policy = parse_policy(text.replace('\nmode = "observe"\n', f'\nmode = "{mode}"\n'))
    assert (policy.mode, policy.warnings) == (mode, ())
    assert any(step.do.enforces for rule in policy.rules for step in rule.steps)


def test_the_built_in_policy_only_observes() -> None:
    """`scan` without a policy sees what would follow for well-known resources, and has no warnings."""
    policy = built_in_policy()
    assert (policy.mode, policy.source, policy.warnings) == ("observe", "built-in policy", ())
    assert policy.declarations == load_policy(ROOT / "config" / "policy.toml").declarations
    (rule,) = policy.rules
    assert (rule.name, rule.match, rule.default) == ("everything", Match(), None)
    assert rule.steps == (step("100%", 5, "warn"), step("110%", 30, "kill"))


def test_every_key_is_compiled() -> None:
    """Each value of a file is in the compiled policy, in bytes, seconds and exact fractions."""
    policy = load_policy(WHOLE)
    assert policy.mode == "enforce"
    assert (policy.interval_s, policy.stale_after_s, policy.release_timeout_s) == (2.0, 120.0, 45.0)
    assert policy.allowance == Allowance(per_context=256 * Mi, max_contexts=8, percent=Fraction(25, 1000))
    assert policy.declarations == (
        Declaration(
            resource="example.com/gpu-memory",
            unit=Mi,
            per="gpu",
            node_labels={"example.com/pool": "gpu-*"},
            unless=Unless(resource="example.com/cores", at_least=100),
            limits=(LimitAnnotation(key="example.com/limit"),),
            zero="unset",
            allowance=Allowance(per_context=Mi, max_contexts=7, percent=Fraction(5, 100)),
        ),
        Declaration(annotation="example.com/{container}.gpu-memory", unit=1),
        Declaration(resource="example.com/cores", unit="cards", of=100, unit_differs=True, allowance=NO_ALLOWANCE),
        Declaration(
            annotation="example.com/vram",
            unit=Gi,
            container_annotation="example.com/vram-container",
            limits=(
                LimitAnnotation(key="example.com/a"),
                LimitAnnotation(key="example.com/{container}.b", unit="fraction"),
            ),
        ),
        Declaration(label="gpu-*", unit="share", shares="label:nvidia.com/gpu.replicas", allowance=NO_ALLOWANCE),
        Declaration(resource="veriff.com/gpu-memory", unit=1),
    )
    assert (policy.schemes, [each.scheme for each in policy.declarations]) == (
        ("veriff",),
        ["", "", "", "", "", "veriff"],
    )
    assert policy.protect == Protect(
        namespaces=("gpu-operator",),
        pods=("*/dcgm-exporter-*", "trainer"),
        priority_at_least=1_000_000_000,
        priority_namespaces=("kube-system", "gpu-*"),
        annotation="example.com/spare",
    )
    assert policy.journal == JournalLimits(max_age_s=7 * 86400.0, max_size=64 * Mi)
    assert policy.safety == Safety(foreign_pid_namespace=True, signal_without_pidfd=True, signal_mps_clients=True)
    assert policy.pulse == Pulse(every_s=0.1, rise=32 * Mi, looks=Window(count=30, per_s=120.0))
    assert policy.mps == Draining(control="/usr/bin/nvidia-cuda-mps-control", pipe=("/run/mps/pipe",), timeout_s=2.0)
    assert policy.maintenance == Maintenance(alert_after_s=7200.0)
    assert policy.idle == Idle(after_s=1800.0, above=512 * Mi)
    assert policy.claims == Claims(count_shares=True)
    assert policy.capacity == Capacity(resource="example.com/gpu-memory", amount=40 * Gi, reserve=Gi, unit=Mi)
    page_url = "https://gpu.example.org/{node}/pods/{namespace}/{pod}"
    assert policy.events == Events(observe=True, contact="GPU team", page_url=page_url)


PULSE_POLICY = """
mode = "{mode}"
[pulse]
every = "{every}"
[[rule]]
name = "quick"
match = {{}}
{rule}
[[rule.step]]
above = "100%"
for = "{for_}"
do = "{do}"
"""


@pytest.mark.parametrize(
    ("differs", "is_useful"),
    [({}, True), ({"for_": "1s", "do": "evict"}, True), ({"for_": "2s"}, False), ({"do": "warn"}, False),
     ({"every": "0s"}, False), ({"mode": "observe"}, False), ({"rule": 'mode = "observe"'}, False)],
)  # fmt: skip
def test_the_pulse_runs_only_where_it_can_lead_to_a_kill(differs: dict[str, str], is_useful: bool) -> None:
    """Reading counters 20 times a second is for rules that kill or evict within a second; no other needs it."""
    keys = {"mode": "enforce", "every": "50ms", "rule": "", "for_": "0s", "do": "kill"} | differs
    assert (parse_policy(PULSE_POLICY.format(**keys)).useful_pulse is not None) is is_useful


def test_every_key_of_a_rule_is_compiled() -> None:
    """A rule, its match and its ladder arrive as written, in their order."""
    assert load_policy(WHOLE).rules == (
        Rule(
            name="notebooks",
            match=Match(
                namespaces=("jupyter-*",),
                pods=("nb-?",),
                labels={"tier": "dev"},
                owner_kinds=("StatefulSet",),
                namespace_labels={"team": "a"},
                node_labels={"pool": "gpu"},
            ),
            account="container",
            default=4 * Gi,
            mode="observe",
            active=hours().read("Mon-Fri 08:00-18:00 Europe/Berlin"),
            steps=(
                step("90%", 30, "warn", repeat_s=7200.0),
                step(f"+{512 * Mi}", 10, "kill", "pod", grace_s=5.0, under_pressure=True),
                step(f"{20 * Gi}", 0, "evict", grace_s=60.0, unwarned=True),
            ),
        ),
    )


def test_the_whole_policy_has_every_key_of_the_schema() -> None:
    """The tests of the compiled policy leave no key out: a new one must be put into whole.toml."""
    document = tomllib.loads(WHOLE.read_text(encoding="utf-8"))
    for location, table in walk():
        missing = set(keys_of(table)) - keys_at([document], [part for part in location if isinstance(part, str)])
        assert not missing, (location, missing)


def keys_at(tables: list[dict[str, Any]], names: list[str]) -> set[str]:
    """All keys of the tables under these names, through lists of tables too."""
    for name in names:
        inner = [table[name] for table in tables if name in table]
        tables = [item for value in inner for item in (value if isinstance(value, list) else [value])]
    return {key for table in tables for key in table}


def test_every_table_of_the_schema_is_reached() -> None:
    """The walk over the tables, on which the reference and the hints are based, finds every one, each key described."""
    reached = {table for _, table in walk()}
    assert reached == {each for each in vars(core_policy).values() if is_table(each)}
    keys = [(table, key) for table in reached for key in keys_of(table).values()]
    assert all(key.meaning and (key.kind or is_table(key.table)) for _, key in keys)
    of_no_file = {(Capacity, "unit"), (Declaration, "scheme"), (Declaration, "wrong_unit")}
    of_no_file |= {(Policy, name) for name in ("sha256", "source", "warnings")}
    reported = {(table, key.field) for table, key in keys}
    assert {(table, each.name) for table in reached for each in fields(table)} == reported | of_no_file


def test_defaults() -> None:
    """A file that says almost nothing gets the defaults of the compiled policy."""
    text = 'mode = "observe"\nschemes = []\n'
    digest = hashlib.sha256(text.encode()).hexdigest()
    warning = "there is no [[rule]]: every pod is measured and left alone"
    assert parse_policy(text) == Policy(sha256=digest, source="policy.toml", schemes=(), warnings=(warning,))


def test_the_digest_is_that_of_the_files_bytes(tmp_path: Path) -> None:
    """The digest in metrics and journal is what `sha256sum` says of the file, comments and line ends included."""
    path = tmp_path / "policy.toml"
    data = "# \u00e4\r\nversion = 1\r\n".encode()
    path.write_bytes(data)
    policy = load_policy(path)
    assert policy.sha256 == hashlib.sha256(data).hexdigest()
    assert policy.source == str(path)


@pytest.mark.parametrize(
    ("own", "allowance"),
    [
        ("", None),
        ("allowance = {}", Allowance(per_context=Gi, max_contexts=3, percent=Fraction(1, 10))),
        ('allowance = { percent = "5%" }', Allowance(per_context=Gi, max_contexts=3, percent=Fraction(1, 20))),
        ('allowance = { per_context = "0" }', Allowance(per_context=0, max_contexts=3, percent=Fraction(1, 10))),
        ("allowance = { max_contexts = 0 }", Allowance(per_context=Gi, max_contexts=0, percent=Fraction(1, 10))),
    ],
)
def test_own_allowance_takes_what_it_leaves_out_from_the_common_one(own: str, allowance: Allowance | None) -> None:
    """Point 12: a declaration can bring its own allowance; a key that it leaves out is that of `[allowance]`."""
    common = '[allowance]\nper_context = "1Gi"\nmax_contexts = 3\npercent = "10%"\n'
    (declaration,) = parse_policy(f"{SOURCE}{own}\n{common}").declarations
    assert declaration.allowance == allowance


@pytest.mark.parametrize(
    ("unit", "own", "allowance"),
    [
        ('"mig"', "", NO_ALLOWANCE),
        ('"share"\nshares = 4', "", NO_ALLOWANCE),
        ('"mig"', 'allowance = { percent = "1%" }', Allowance(per_context=0, max_contexts=4, percent=Fraction(1, 100))),
        ('"share"\nshares = 4', 'allowance = { per_context = "1Mi" }', Allowance(per_context=Mi, percent=Fraction(0))),
        ('"percent"', "", None),
    ],
)
def test_a_part_of_a_card_has_no_allowance_of_itself(unit: str, own: str, allowance: Allowance | None) -> None:
    """Point 12: `share` and `mig` have no allowance unless they bring one."""
    (declaration,) = parse_policy(f'[[declaration]]\nresource = "example.com/gpu"\nunit = {unit}\n{own}\n').declarations
    assert declaration.allowance == allowance
