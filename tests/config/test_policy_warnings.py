"""What a policy is warned of: what is probably not meant; and thresholds that fall."""

from typing import Final

import pytest

from tests.worlds import parse_policy
from watchdog.config.checks import is_surely_below
from watchdog.config.fields import parse_threshold
from watchdog.config.load import PolicyError, unit_mistakes

RULE: Final = '[[rule]]\nname = "r"\nmatch = {}\n'
SOURCE: Final = '[[declaration]]\nresource = "veriff.com/gpu-memory"\nunit = "1"\n'


def step(rest: str) -> str:
    """A policy of one rule with one step."""
    return f"{SOURCE}{RULE}[[rule.step]]\n{rest}\n"


WARNING_STEP: Final = 'above = "100%"\nfor = "2s"\ndo = "warn"'
PROTECT: Final = '[protect]\npriority_namespaces = ["kube-system"]\n'
KILLING: Final = step('above = "100%"\nfor = "2s"\ndo = "kill"\nunwarned = true') + PROTECT


def rule(name: str, match: str) -> str:
    """A rule without steps."""
    return f'[[rule]]\nname = "{name}"\nmatch = {match}\n'


def owned(kinds: str) -> str:
    """A policy of one rule for pods with owners of these kinds."""
    return SOURCE + rule("a", f"{{ owner_kinds = [{kinds}] }}")


def declaration(key: str, *lines: str) -> str:
    """A declaration that reads this key."""
    return "\n".join(["[[declaration]]", key, *lines, ""])


JOBS: Final = rule("a", '{ owner_kinds = ["J*"] }') + KILLING.partition(RULE)[2]
MIG: Final = 'unit = "mig"'
ADVERTISED: Final = f'{SOURCE}[capacity]\nresource = "veriff.com/gpu-memory"\n'


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (SOURCE, "there is no [[rule]]: every pod is measured and left alone"),
        (f"schemes = []\n{RULE}", "there is no [[declaration]], no scheme and no default: every pod is undeclared"),
        (f'{SOURCE}[[rule]]\nname = "r"\n', "rule[0]: has no match, so it applies to every pod"),
        (SOURCE + RULE + rule("s", '{ pods = ["a"] }'), "rule[1]: can never apply: rule[0]"),
        (SOURCE + rule("a", '{ namespaces = ["*"], pods = ["b", "*"] }') + RULE, "rule[1]: can never apply: rule[0]"),
        (SOURCE + rule("a", '{ pods = ["b"] }') + rule("b", '{ pods = ["b"] }'), "rule[1]: can never apply: rule[0]"),
        (step('above = "100%"\nfor = "500ms"\ndo = "warn"'), "rule[0].step[0].for: 500ms is shorter than interval, 1s"),
        (f'{SOURCE}{RULE}default = "4"\n', "rule[0].default: is 4 bytes"),
        ('[allowance]\nper_context = "512"\n', "allowance.per_context: is 512 bytes"),
        (f'{SOURCE}allowance = {{ per_context = "9" }}\n', "declaration[0].allowance.per_context: is 9 bytes"),
        (declaration('resource = "a.b/gpu"', MIG), "declaration[0].unit: is for resources named after"),
        (declaration('annotation = "a.b/mig-x"', MIG), "declaration[0].unit: is for resources named"),
        (
            declaration('resource = "a.b/mig-*"', MIG, 'limit_annotation = "a.b/limit"'),
            "declaration[0].limit_annotation: is ignored",
        ),
        ('schemes = ["hami"]\n', 'schemes: lacks "dra", which is in "*": pods that get their cards'),
        ('interval = "5m"\nstale_after = "3m"\n', "stale_after: is shorter than interval"),
        ('stale_after = "2m"\n', "stale_after: is shorter than 2m40s: on a quiet cluster"),
        ("[protect]\npriority_at_least = 2000000001\n", "protect.priority_at_least: has no effect"),
        ("[protect]\npriority_at_least = 0\n", "protect.priority_at_least: protects every pod that has no priority"),
        (
            '[protect]\npods = ["a/b", "*/dcgm-*"]\n',
            "protect.pods[1]: protects such a pod in any namespace: tenants who",
        ),
        ('[protect]\npods = ["dcgm-exporter-*"]\n', "protect.pods[0]: protects such a pod in any namespace"),
        ('[protect]\npods = ["team-?/x"]\n', "protect.pods[0]: protects such a pod in a namespace team-?: tenants"),
        ('[protect]\nnamespaces = ["a", "gpu-*"]\n', "protect.namespaces[1]: protects everyone who can create a"),
        (KILLING.removesuffix(PROTECT), 'protect.priority_namespaces: with "*" any tenant protects its pods by'),
        (
            KILLING.replace('"kube-system"', '"gpu-*"'),
            'protect.priority_namespaces: with "gpu-*" tenants there protect',
        ),
        (
            'schemes = ["veriff"]\n[claims]\ncount_shares = true\n',
            'claims.count_shares: applies only with the scheme "dra"',
        ),
        ("[pressure]\n", "pressure: applies only to steps with under_pressure = true, and there is none"),
        (f'{SOURCE}{RULE}mode = "enforce"\n', "rule[0].mode: is enforce, but the policy observes, so the rule only"),
        (f'mode = "enforce"\n{KILLING}', "there are no [brakes]: the number of kills and evictions"),
        (f'mode = "enforce"\n{KILLING}[brakes]\n', "there are no [brakes]: the number of kills and evictions"),
        (f'mode = "enforce"\n{KILLING}[brakes]\nnode = "10 per 10m"\n', "brakes: there is no breaker: a mistake that"),
        ('[capacity]\nresource = "a.b/c"\n', "capacity.resource: is read by no [[declaration]]"),
        (f'{ADVERTISED}amount = "4Gi"\nreserve = "1Gi"\n', "capacity.reserve: is ignored if amount is a quantity"),
        (
            declaration('resource = "a.b/c*"', 'unit = "percent"', '[capacity]\nresource = "a.b/c"'),
            'capacity.amount: is advertised in bytes, and declarations of the resource count in "percent"',
        ),
        ('[capacity]\nresource = "nvidia.com/mig-1g.5gb"\n', "capacity.resource: is what NVIDIA's device plugin"),
        (
            owned('"Job", "CronJob"'),
            "rule[0].match.owner_kinds[1]: matches no pod: the controller of a CronJob's pods is",
        ),
        (owned('"job"'), 'rule[0].match.owner_kinds[0]: matches no pod: kinds are case-sensitive; write "Job"'),
        (owned('"ReplicaSet"'), "rule[0].match.owner_kinds[0]: matches no pods of Deployments; for those write"),
        (SOURCE + JOBS, "rule[0].step[0].grace: is 10s, and the rule matches Jobs: a Job counts a pod whose program"),
    ],
)
def test_what_is_probably_not_meant_is_warned_of(text: str, warning: str) -> None:
    """A policy that is valid and probably not what its writer wants says so."""
    assert any(found.startswith(warning) for found in parse_policy(text).warnings), parse_policy(text).warnings


@pytest.mark.parametrize(
    "text",
    [
        step('above = "100%"\nfor = "0s"\ndo = "warn"'),
        step('above = "100%"\nfor = "1s"\ndo = "kill"\nunwarned = true') + PROTECT,
        step('above = "0%"\nfor = "1s"\ndo = "warn"'),
        step('above = "+0"\nfor = "1s"\ndo = "kill"\nunwarned = true') + PROTECT,
        f'{RULE}default = "0"\n',
        SOURCE + rule("a", '{ pods = ["b"] }') + RULE,
        SOURCE + rule("a", '{ node_labels = { a = "*" } }') + RULE,
        f'{SOURCE}{RULE}[allowance]\nper_context = "0"\n[protect]\npriority_at_least = 2000000000\n',
        f'mode = "enforce"\n{SOURCE}{RULE}mode = "enforce"\n',
        f'{SOURCE}{RULE}mode = "observe"\nactive = "Mon-Fri 08:00-18:00 UTC"\n',
        f'mode = "enforce"\n{KILLING}[brakes]\nbreaker = {{ offenders = "50%", of_at_least = 3, hold = "10m" }}\n',
        f'mode = "enforce"\n{step(WARNING_STEP)}',
        KILLING,
        owned('"ReplicaSet", "Deploy*"'),
        SOURCE + rule("a", '{ owner_kinds = ["Job"], namespace_labels = { a = "b" } }') + RULE,
    ],
)
def test_what_is_meant_is_not_warned_of(text: str) -> None:
    """A rule that only warns, a threshold at allowed, a catch-all at the end, brakes: no warning."""
    assert parse_policy(text).warnings == ()


@pytest.mark.parametrize(
    ("threshold", "earlier", "below"),
    [
        *(("100%", "110%", True), ("110%", "110%", False), ("+1Mi", "+2Mi", True), ("+2Mi", "+1Mi", False)),
        *(("1Mi", "2Mi", True), ("0", "0", False), ("99%", "+0", True), ("100%", "+1Gi", False)),
        *(("+0", "101%", True), ("+0", "100%", False), ("+1Mi", "10000%", False), ("1Mi", "10000%", False)),
        *(("1Mi", "+1Gi", False), ("1%", "1Gi", False), ("+0", "1Gi", False)),
    ],
)
def test_thresholds_of_different_kinds_fall_only_where_that_is_sure(
    threshold: str, earlier: str, *, below: bool
) -> None:
    """Point 17: thresholds that fall are refused; what depends on the pod's allowed amount is let through."""
    assert is_surely_below(parse_threshold(threshold), parse_threshold(earlier)) is below


def ladder(*steps: str, source: str = SOURCE) -> str:
    """A policy with one rule of these steps, each as `ABOVE FOR DO`, and more keys after that."""
    made = []
    for each in steps:
        above, for_, do, *more = each.split(" ", 3)
        made.append(
            f'[[rule.step]]\nabove = "{above}"\nfor = "{for_}"\ndo = "{do}"\n' + "".join(f"{key}\n" for key in more)
        )
    return source + RULE + "".join(made)


def test_a_ladder_of_mixed_thresholds_is_accepted() -> None:
    """A warning at 100%, a kill 512Mi above allowed and another at 20Gi make a ladder that no check can order."""
    rising = ladder("100% 30s warn", "+512Mi 10s kill", "20Gi 5s kill", "110% 1s kill", "+1Gi 0s kill")
    assert len(parse_policy(rising).rules[0].steps) == 5


def test_steps_under_pressure_make_a_ladder_of_their_own() -> None:
    """Point 8: steps under pressure compare with the request, so their thresholds need not rise above the others'."""
    pressed = "kill under_pressure = true"
    with pytest.raises(PolicyError, match=r"step\[2\]\.above: 100% falls below 150%"):
        parse_policy(ladder("150% 0s kill", f"150% 0s {pressed}", f"100% 1s {pressed}"))
    assert len(parse_policy(ladder("100% 0s kill", f"100% 0s {pressed}", f"100% 1s {pressed}")).rules[0].steps) == 3


LIMITED: Final = f'{SOURCE}limit_annotation = "limit"\n'


@pytest.mark.parametrize(
    ("text", "unwarned"),
    [
        (ladder("100% 5s warn", "110% 30s kill"), []),
        (ladder("100% 30s warn", "110% 10s kill"), [1]),
        (ladder("100% 5s warn", "110% 5s kill"), [1]),
        (ladder("100% 5s warn", "110% 30s evict", "150% 0s kill"), [2]),
        (ladder("100% 5s warn", "110% 30s evict", "150% 0s kill unwarned = true"), []),
        (ladder("110% 10s kill"), [0]),
        (ladder("110% 10s evict"), [0]),
        (ladder("110% 10s warn"), []),
        (ladder("110% 5s warn", "110% 6s kill"), []),
        (ladder("110% 5s warn", "110% 5500ms kill"), [1]),
        ('interval = "2s"\n' + ladder("110% 5s warn", "110% 6s kill"), [1]),
        ('interval = "2s"\n' + ladder("110% 5s warn", "110% 7s kill"), []),
        (ladder("120% 5s warn", "150% 10s kill"), []),
        (ladder("+1Gi 5s warn", "+2Gi 10s kill"), []),
        (ladder("+0 5s warn", "110% 10s kill"), []),
        (ladder("+1Gi 5s warn", "150% 10s kill"), [1]),
        (ladder("10Gi 5s warn", "20Gi 10s kill"), []),
        (ladder("10Gi 5s warn", "100% 10s kill"), [1]),
        (ladder("100% 5s warn", "20Gi 10s kill"), []),
        (ladder("100% 5s warn under_pressure = true", "110% 10s kill"), [1]),
        (ladder("100% 5s warn under_pressure = true", "110% 10s kill under_pressure = true"), []),
        (ladder("100% 5s warn", "110% 10s kill under_pressure = true"), []),
        (ladder("100% 5s warn", "110% 10s kill under_pressure = true", source=LIMITED), [1]),
    ],
)
def test_a_step_that_can_come_before_any_warning_is_named(text: str, unwarned: list[int]) -> None:
    """Point 17: a warning comes first only if its threshold is surely no higher and its time an interval shorter."""
    what = "before any warning has been given; warn earlier, or set unwarned = true"
    found = [warning for warning in parse_policy(text).warnings if what in warning]
    assert [warning.split(": ")[0] for warning in found] == [f"rule[0].step[{number}]" for number in unwarned]


def unit(key: str, *lines: str) -> str:
    """A policy with one table for this key, which enforces."""
    return f'mode = "enforce"\n{declaration(key, *lines)}{RULE}'


SMALLER, LARGER, UNKNOWN = "smaller", "larger", "no scheme"


@pytest.mark.parametrize(
    ("key", "lines", "found"),
    [
        # Bytes, by the number of bytes.
        ('resource = "nvidia.com/gpumem"', ('unit = "1"',), SMALLER),
        ('resource = "nvidia.com/gpumem"', ('unit = "1Ki"',), SMALLER),
        ('resource = "nvidia.com/gpumem"', ('unit = "1Mi"',), None),
        ('resource = "nvidia.com/gpumem"', ('unit = "1Gi"',), LARGER),
        ('resource = "nvidia.com/gpumem"', ('unit = "1"', "unit_differs = true"), None),
        ('resource = "nvidia.com/gpumem"', ('unit = "1Gi"', "unit_differs = true"), None),
        ('resource = "*/gpumem"', ('unit = "1"',), SMALLER),
        ('resource = "aliyun.com/gpu-mem"', ('unit = "1Mi"',), SMALLER),
        ('resource = "aliyun.com/gpu-mem"', ('unit = "1Mi"', "unit_differs = true"), None),
        ('resource = "volcano.sh/vgpu-memory"', ('unit = "256Mi"',), LARGER),
        ('resource = "tencent.com/vcuda-memory"', ('unit = "1Mi"',), SMALLER),
        ('resource = "tke.cloud.tencent.com/qgpu-memory"', ('unit = "1Mi"',), SMALLER),
        ('annotation = "gpu-memory"', ('unit = "1"',), SMALLER),
        ('label = "gpu-memory"', ('unit = "1"',), UNKNOWN),  # the scheme knows an annotation of that name
        ('resource = "veriff.com/gpu-memory"', ('unit = "1Mi"',), LARGER),
        # A percentage, a fraction and bytes are of different kinds.
        ('resource = "nvidia.com/gpumem-percentage"', ('unit = "1Mi"',), SMALLER),
        ('resource = "nvidia.com/gpumem-percentage"', ('unit = "fraction"',), LARGER),
        ('resource = "nvidia.com/gpumem"', ('unit = "percent"',), LARGER),
        ('annotation = "gpu-fraction"', ('unit = "percent"',), SMALLER),
        # What counts devices may have any size that a device can have.
        ('resource = "nvidia.com/gpu"', ('unit = "1"',), SMALLER),
        ('resource = "nvidia.com/gpu"', ('unit = "percent"',), SMALLER),
        ('resource = "nvidia.com/gpu"', ('unit = "10Gi"',), None),
        ('resource = "nvidia.com/gpu.shared"', ('unit = "share"', "shares = 4"), None),
        ('resource = "nvidia.com/mig-1g.5gb"', ('unit = "share"', "shares = 2"), None),
        ('resource = "nvshare.com/gpu"', ('unit = "share"', "shares = 20"), None),
        ('resource = "koordinator.sh/gpu"', ('unit = "cards"', "of = 100"), None),
        # A key that no scheme knows.
        ('resource = "example.com/vram"', ('unit = "1"',), UNKNOWN),
        ('resource = "example.com/vram"', ('unit = "1"', "unit_differs = true"), None),
        ('resource = "example.com/vram"', ('unit = "1Mi"',), None),
    ],
)
def test_a_unit_is_compared_with_that_of_the_scheme_that_knows_the_key(
    key: str, lines: tuple[str, ...], found: str | None
) -> None:
    """Point 6: whether a unit is wrong is judged from the policy; a smaller one applies to no pod."""
    policy = parse_policy(unit(key, *lines))
    reported = [warning for warning in policy.warnings if warning.startswith("declaration[0].unit: ")]
    words = {SMALLER: "is smaller than", LARGER: "is larger than", UNKNOWN: 'is "1": pods must write bytes'}
    assert [[name for name, text in words.items() if text in each] for each in reported] == ([[found]] if found else [])
    assert bool(policy.declarations[0].wrong_unit) is (found == SMALLER)
    assert [str(each).partition(": ")[2].partition(":")[0] for each in unit_mistakes(policy)] == (
        ["declaration[0].unit"] if found == SMALLER else []
    )
