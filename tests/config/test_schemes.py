"""Schemes: which of them a policy selects, and what `check` shows of them; what each reads is in tests/docs."""

import json
from itertools import groupby
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from tests.worlds import Gi, assessed, container, parse_policy, pod, snapshot, use
from watchdog.cli.main import main
from watchdog.config.scheme import FOLDER, all_schemes

ROOT: Final = Path(__file__).parents[2]
RULE: Final = '\n[[rule]]\nname = "all"\nmatch = {}\n'

EVERY: Final = [
    *("veriff", "hami", "huawei-cce", "tencent-gpu-manager", "tencent-qgpu", "elastic-gpu", "koordinator"),
    *("nvidia-mig", "nvidia-sharing", "nos", "vgpu-manager"),
]  # what `*` selects, in the order in which they apply


WITHOUT_TABLES: Final = ("dra",)  # claims have no keys


def effective(*lines: str) -> list[str]:
    """What a policy that begins with these lines declares by, in order: schemes, and the keys of its own tables."""
    under = parse_policy("\n".join(lines) + RULE)
    names = [name for name, _ in groupby(each.scheme or each.key for each in under.declarations)]
    with_tables = tuple(name for name in under.schemes or () if name not in WITHOUT_TABLES)
    assert with_tables == tuple(name for name in names if name in all_schemes())
    return names


@pytest.mark.parametrize("name", all_schemes())
def test_a_scheme_says_what_it_is(name: str) -> None:
    """Each file is named as its scheme, describes it in a line, names a source, and says what to look up if need be."""
    scheme = all_schemes()[name]
    assert (FOLDER / f"{name}.toml").is_file()
    assert len(scheme.description) < 90
    assert scheme.source.startswith("https://")
    assert scheme.note or not scheme.by_name_only
    tenants_write = any("resource" not in table for table in scheme.tables)
    assert scheme.by_name_only is (tenants_write or not scheme.unambiguous)


def test_which_schemes_apply() -> None:
    """Without the key all of `*` if the file has no table, otherwise none; `*` and names add up, each once."""
    own = '[[declaration]]\nresource = "a.b/c"\nunit = "1"'
    assert [name for name, each in all_schemes().items() if not each.by_name_only] == [*EVERY, *WITHOUT_TABLES]
    without_hami = [name for name in EVERY if name != "hami"]
    for lines, expected in (
        (('mode = "observe"',), EVERY),
        ((own,), ["a.b/c"]),
        (("schemes = []",), []),
        (('schemes = ["*"]', own), ["a.b/c", *EVERY]),
        (('schemes = ["kai", "veriff"]', own), ["a.b/c", "kai", "veriff"]),
        (('schemes = ["*", "kai"]',), [*EVERY, "kai"]),
        (('schemes = ["kai", "*"]',), ["kai", *EVERY]),
        (('schemes = ["hami", "*"]',), ["hami", *without_hami]),
        (('schemes = ["*", "hami"]',), [*without_hami, "hami"]),
    ):
        assert effective(*lines) == expected, lines


def test_a_table_of_the_file_comes_before_its_scheme() -> None:
    """A cluster whose setting differs says so in a table of its own, which applies, with the policy's allowance."""
    own = '[[declaration]]\nresource = "nvidia.com/gpumem"\nunit = "1Gi"\nper = "gpu"\nunit_differs = true\n'
    under = parse_policy(f'schemes = ["*"]\n{own}[allowance]\nper_context = "1Gi"\n{RULE}')
    assert under.warnings == ()
    one = pod("a", container(resources={"nvidia.com/gpumem": "8", "nvidia.com/gpu": "1"}))
    (found,) = assessed(snapshot([use(7, 1)]), [one], under)
    assert (found.declared, found.allowed) == (8 * Gi, 8 * Gi * 102 // 100 + Gi)


EXAMPLES: Final = sorted((ROOT / "examples").glob("*.toml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_valid_without_a_warning(file: Path) -> None:
    """An operator who copies an example, and later sets it to enforce, has nothing to repair."""
    text = file.read_text(encoding="utf-8")
    for mode in ("observe", "enforce"):
        under = parse_policy(text.replace('\nmode = "observe"', f'\nmode = "{mode}"'), file.name)
        assert (under.mode, under.warnings) == (mode, ())
        assert under.brakes.breaker is not None
    assert len(text.splitlines()) <= 40
    assert f"(../examples/{file.name})" in (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")


def test_check_lists_the_schemes() -> None:
    """`check --schemes` fits 100 columns, and names of each scheme what it reads, its source and whether `*` has it."""
    reported = CliRunner().invoke(main, ["check", "--schemes"]).stdout
    assert max(map(len, reported.splitlines())) <= 100
    listed = json.loads(CliRunner().invoke(main, ["check", "--schemes", "--json"]).stdout)["schemes"]
    assert [each["name"] for each in listed] == list(all_schemes())
    blocks = [" ".join(block.split()) for block in reported.split("\n\n")[1:]]
    for each, block in zip(listed, blocks, strict=True):
        how = "by name only" if each["by_name_only"] else 'in "*"'
        assert block.startswith(f"{each['name']} ({how}) ")
        keys = [f'{kind} {table[kind]}: unit {table["unit"]}' for table in each["declarations"] for kind in table
                if kind in ("resource", "annotation", "label")]  # fmt: skip
        assert all(words in block for words in (*keys, each["source"], each["description"], each["note"] or ""))


def test_check_takes_a_file_or_lists_the_schemes() -> None:
    """Neither, or both, is an incorrect use and not a file that is called nothing."""
    for arguments in (["check"], ["check", "--schemes", "policy.toml"], ["check", "--json"]):
        assert CliRunner().invoke(main, arguments).exit_code == 2


def test_check_names_the_scheme_of_each_table() -> None:
    """What is in effect is printed in order, for people and for programs, with the scheme that each table is of."""
    own = '[[declaration]]\nresource = "veriff.com/gpu-memory"\nunit = "1"\n'
    text = 'schemes = ["hami", "aliyun"]\n' + own + RULE
    reported = CliRunner().invoke(main, ["check", "-"], input=text).stdout.splitlines()
    at = reported.index("Declarations (the first that a container has applies):") + 1
    titles, *rows = (line.split() for line in reported[at : at + 9])
    assert titles == ["KEY", "KIND", "UNIT", "PER", "SCHEME", "CONDITIONS"]
    of_schemes = [
        ("nvidia.com/gpumem", "hami"),
        ("nvidia.com/gpumem-percentage", "hami"),
        ("nvidia.com/vgpu", "hami"),
        ("nvidia.com/gpucores", "hami"),
        ("aliyun.com/gpu-mem", "aliyun"),
        ("aliyun.com/gpu-count", "aliyun"),
        ("aliyun.com/gpu-core.percentage", "aliyun"),
    ]
    assert [(row[0], row[4]) for row in rows] == [("veriff.com/gpu-memory", "-"), *of_schemes]
    found = json.loads(CliRunner().invoke(main, ["check", "-", "--json"], input=text).stdout)
    declarations = [(each["resource"], each["scheme"]) for each in found["declarations"]]
    assert declarations == [("veriff.com/gpu-memory", None), *of_schemes]
    assert (found["policy"]["schemes"], len(found["policy"]["declaration"])) == (["hami", "aliyun"], 1)


# What 0 means under each key of a scheme, by its source. "none": no memory is used; counts of devices and shares have
# none of it, since a count of 0 requests nothing.
COUNTED: Final = ("share", "cards", "mig", "named")
MEANS_NONE: Final = {"veriff.com/gpu-memory", "tencent.com/vcuda-memory"}


@pytest.mark.parametrize("name", all_schemes())
def test_a_scheme_says_what_0_means(name: str) -> None:
    """Point 6: a 0 that means "not set" to its system never makes a pod one that may use nothing."""
    for table in all_schemes()[name].tables:
        if table["unit"] in COUNTED:
            assert "zero" not in table
            continue
        key = next(table[kind] for kind in ("resource", "annotation", "label") if kind in table)
        assert table.get("zero", "none") == ("none" if key in MEANS_NONE else "unset"), key


@pytest.mark.parametrize(
    ("lines", "zero"),
    [
        (('resource = "nvidia.com/gpumem"', 'unit = "1Mi"', 'per = "gpu"'), "unset"),
        (('resource = "volcano.sh/vgpu-memory"', 'unit = "10Mi"', 'per = "gpu"', "unit_differs = true"), "unset"),
        (('resource = "nvidia.com/gpumem"', 'unit = "1Mi"', 'per = "gpu"', 'zero = "none"'), "none"),
        (('resource = "veriff.com/gpu-memory"', 'unit = "1"'), "none"),
        (('resource = "example.com/vram"', 'unit = "1Mi"'), "none"),
    ],
)
def test_a_table_of_ones_own_reads_a_0_as_its_scheme_does(lines: tuple[str, ...], zero: str) -> None:
    """A table with another unit for a key of HAMi must not turn "not set" into "nothing may be used"."""
    under = parse_policy("\n".join(("[[declaration]]", *lines)) + RULE)
    assert under.declarations[0].zero == zero
