"""Warnings: what a policy may say, but what is hardly meant."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from watchdog.config.amounts import format_mark
from watchdog.config.checks import warns_before
from watchdog.config.declaration_schema import DeclarationTable
from watchdog.config.problems import Location, Mistake
from watchdog.config.rule_schema import MatchTable, RuleTable, StepTable
from watchdog.config.schema import BrakesTable, CapacityTable, PolicyTable, ProtectTable
from watchdog.core.amount import GPU_RESOURCE, profile_of
from watchdog.core.policy import Protect
from watchdog.core.units import format_duration, format_quantity

_PLUGIN_DOMAIN: Final = "nvidia.com/"
# On a quiet cluster the API server says something that often (watchdog/kube/follow/course.py).
_LIFE_SIGNS_S: Final = 160.0
_SMALL: Final = 2**20  # the driver hands out memory in pages of 64 KiB and more; a context alone takes hundreds of MiB


def find_warnings(table: PolicyTable) -> Iterator[Mistake]:
    """Look through a valid policy."""
    yield from _look_at_whole(table)
    yield from _look_for_unused(table.rule)
    has_limits = any(each.limit_annotation for each in table.declaration)
    for index, rule in enumerate(table.rule):
        yield from _look_at_rule(rule, ("rule", index), table.interval)
        yield from _look_for_unwarned(rule, ("rule", index), table.interval, has_limits=has_limits)
        yield from _look_for_jobs(rule, ("rule", index))
        if rule.mode == "enforce" and table.mode == "observe":
            yield Mistake(
                ("rule", index, "mode"),
                "is enforce, but the policy observes, and so does the rule: it can't do more than the policy",
            )
    if table.allowance.per_context and table.allowance.per_context < _SMALL:
        yield Mistake(("allowance", "per_context"), _say_small(table.allowance.per_context))
    for index, declaration in enumerate(table.declaration):
        yield from _look_at_declaration(declaration, ("declaration", index))
    if table.capacity is not None:
        yield from _look_at_capacity(table.capacity, table.declaration)
    for section, value in (("pulse", table.pulse), ("mps", table.mps)):
        if value is not None:
            yield Mistake((section,), "has no effect in this version; as long as it is set, the daemon only observes")


def _look_at_declaration(declaration: DeclarationTable, at: Location) -> Iterator[Mistake]:
    if declaration.allowance and 0 < (declaration.allowance.per_context or 0) < _SMALL:
        yield Mistake((*at, "allowance", "per_context"), _say_small(declaration.allowance.per_context or 0))
    if declaration.unit != "mig":
        return
    if profile_of(declaration.resource or "") is None:
        what = 'is for resources named after a MIG profile, like "nvidia.com/mig-*"; here 1 stands for a whole card'
        yield Mistake((*at, "unit"), what)
    if declaration.limit_annotation:
        yield Mistake((*at, "limit_annotation"), 'says nothing with unit = "mig": an instance is its own limit')


def _look_at_capacity(capacity: CapacityTable, declarations: list[DeclarationTable]) -> Iterator[Mistake]:
    name = capacity.resource
    readers = [each for each in declarations if fnmatchcase(name, each.resource or "")]
    if capacity.amount != "cards" and capacity.reserve:
        yield Mistake(("capacity", "reserve"), 'says nothing where amount is a quantity, only with amount = "cards"')
    if not readers:
        yield Mistake(("capacity", "resource"), "is read by no [[declaration]]: what pods ask of it binds nobody")
    elif not isinstance(readers[0].unit, int):
        what = f'is advertised in bytes, and declarations of the resource count in "{readers[0].unit}"'
        yield Mistake(("capacity", "amount"), what)
    if name.startswith(_PLUGIN_DOMAIN) and (name == GPU_RESOURCE or name.endswith(".shared") or profile_of(name)):
        yield Mistake(
            ("capacity", "resource"), "is what NVIDIA's device plugin offers: its number is put over this one"
        )


def _look_at_whole(table: PolicyTable) -> Iterator[Mistake]:
    if not table.rule:
        yield Mistake((), "there is no [[rule]]: every pod is measured and left alone")
    elif not table.declaration and all(rule.default is None for rule in table.rule):
        yield Mistake((), "there is no [[declaration]] and no default: every pod is undeclared and left alone")
    if table.stale_after < table.interval:
        yield Mistake(("stale_after",), "is shorter than interval: force may be withheld always")
    elif table.stale_after < _LIFE_SIGNS_S:
        what = (
            "is shorter than 2m40s: on a quiet cluster the API server may give no sign of life for so long, and then "
            "force is withheld now and then; with --pods that does not matter"
        )
        yield Mistake(("stale_after",), what)
    waits = any(step.under_pressure for rule in table.rule for step in rule.step)
    if table.pressure is not None and not waits:
        yield Mistake(("pressure",), "is for steps with under_pressure = true, and there is none")
    uses_force = any(step.do != "warn" for rule in table.rule for step in rule.step)
    if table.mode == "enforce" and uses_force and table.brakes in (None, BrakesTable()):
        yield Mistake((), "there are no [brakes]: nothing bounds how many pods are killed or evicted in a time")
    yield from _look_at_protection(table.protect)


def _look_at_protection(protect: ProtectTable) -> Iterator[Mistake]:
    for index, pattern in enumerate(protect.pods):
        namespace, slash, _ = pattern.rpartition("/")
        if not slash or "*" in namespace or "?" in namespace:
            where = f"a namespace {namespace}" if namespace.strip("*") else "any namespace"
            what = f"protects such a pod in {where}: tenants who can create one there exempt themselves"
            yield Mistake(("protect", "pods", index), f"{what}; name the namespace")
    for index, namespace in enumerate(protect.namespaces):
        if "*" in namespace or "?" in namespace:
            what = "protects whoever can create a namespace of such a name; name each namespace in full"
            yield Mistake(("protect", "namespaces", index), what)
    priority = protect.priority_at_least
    if priority > Protect().priority_at_least:
        yield Mistake(("protect", "priority_at_least"), "protects nobody more: 2000000000 and above always are")
    if priority <= 0:
        yield Mistake(("protect", "priority_at_least"), "protects every pod that has no priority class")


def _look_for_unused(rules: list[RuleTable]) -> Iterator[Mistake]:
    seen: dict[str, int] = {}
    for index, rule in enumerate(rules):
        match = "all" if _is_for_all(rule.match) else repr(rule.match)
        first = seen.get("all", seen.setdefault(match, index))
        if first != index:
            why = f"can never be used: rule[{first}] matches whatever it would match; put it before that one"
            yield Mistake(("rule", index), why)


def _look_at_rule(rule: RuleTable, at: Location, interval: float) -> Iterator[Mistake]:
    if "match" not in rule.model_fields_set:
        yield Mistake(at, "has no match, so it is for every pod; write match = {} to say so")
    if rule.default and rule.default < _SMALL:
        yield Mistake((*at, "default"), _say_small(rule.default))
    for number, step in enumerate(rule.step):
        yield from _look_at_step(step, (*at, "step", number), interval)


def _look_for_unwarned(rule: RuleTable, at: Location, interval: float, *, has_limits: bool) -> Iterator[Mistake]:
    for number, step in enumerate(rule.step):
        if step.do == "warn" or step.unwarned:
            continue
        if not any(warns_before(each, step, interval_s=interval, has_limits=has_limits) for each in rule.step):
            what = f"can {step.do} before any warning has been given; warn earlier, or set unwarned = true"
            yield Mistake((*at, "step", number), what)


def _look_at_step(step: StepTable, at: Location, interval: float) -> Iterator[Mistake]:
    if 0 < step.for_s < interval:
        yield Mistake(
            (*at, "for"), f"{format_duration(step.for_s)} is shorter than interval, {format_duration(interval)}"
        )
    amount = step.above.plus or step.above.amount
    if amount and amount < _SMALL:
        yield Mistake((*at, "above"), f"{format_mark(step.above)} {_say_small(amount)}")


def _say_small(amount: int) -> str:
    return f'is {amount} bytes; for mebibytes write "{format_quantity(amount)}Mi"'


def _look_for_jobs(rule: RuleTable, at: Location) -> Iterator[Mistake]:
    if not any(fnmatchcase("Job", kind) for kind in rule.match.owner_kinds):
        return
    for number, step in enumerate(rule.step):
        if step.do == "kill" and step.grace:
            yield Mistake(
                (*at, "step", number, "grace"),
                f"is {format_duration(step.grace)}, and the rule matches Jobs: a Job counts a pod whose program exits "
                'with 0 on SIGTERM as succeeded; "0s" avoids that',
            )


def _is_for_all(match: MatchTable) -> bool:
    names_all = all(any(not name.strip("*/") for name in names) for names in (match.namespaces, match.pods) if names)
    return names_all and not (match.labels or match.owner_kinds or match.namespace_labels or match.node_labels)
