"""Mistakes that no single field shows, and warnings: what a policy may say but hardly means."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from watchdog.config.amounts import format_threshold
from watchdog.config.fields import CONTAINER, quote
from watchdog.config.mistakes import Location, Mistake, format_path
from watchdog.config.schema import (
    BrakesTable,
    CapacityTable,
    DeclarationTable,
    MatchTable,
    PolicyTable,
    ProtectTable,
    RuleTable,
    StepTable,
)
from watchdog.core.amount import GPU_RESOURCE, profile_of
from watchdog.core.policy import Protect, Threshold
from watchdog.core.units import format_duration, format_quantity

_KINDS: Final = ("resource", "annotation", "label")
_LISTS: Final = ("namespaces", "pods", "owner_kinds")


class Ground(NamedTuple):
    """A place of the document, and the places below which nothing can be concluded from."""

    at: Location
    spoilt: frozenset[Location]

    def trusts(self, *keys: str) -> bool:
        """Whether what stands under these keys is what the file says."""
        return not any((*self.at, key) in self.spoilt for key in keys) and self.at not in self.spoilt

    def mistake(self, key: str, what: str) -> Mistake:
        """A mistake under a key of this place, or of the place itself if the key is empty."""
        return Mistake((*self.at, key) if key else self.at, what)


def find_mistakes(table: PolicyTable, spoilt: frozenset[Location]) -> Iterator[Mistake]:
    """Look at what the schema let through; nothing is said of places that it did not trust."""
    seen: dict[str, int] = {}
    for index, declaration in enumerate(table.declaration):
        ground = Ground(("declaration", index), spoilt)
        yield from _check_declaration(declaration, ground)
        first = seen.setdefault(repr(declaration), index)
        if first != index and not any(place[:2] == ground.at for place in spoilt):
            yield ground.mistake("", f"is the same as declaration[{first}]; leave one of them")
    names: dict[str, Location] = {}
    for index, rule in enumerate(table.rule):
        ground = Ground(("rule", index), spoilt)
        if ground.trusts("name"):
            if rule.name in names:
                yield ground.mistake("name", f"{quote(rule.name)} is the name of {format_path(names[rule.name])} too")
            names.setdefault(rule.name, ground.at)
        yield from _check_rule(rule, ground)
    if table.brakes is not None:
        yield from _check_brakes(table.brakes, Ground(("brakes",), spoilt))
    if table.capacity is not None:
        yield from _check_capacity(table.capacity, Ground(("capacity",), spoilt))


def _check_declaration(declaration: DeclarationTable, ground: Ground) -> Iterator[Mistake]:
    # A key that is there and wrong is there all the same.
    kinds = [kind for kind in _KINDS if getattr(declaration, kind) is not None or not ground.trusts(kind)]
    if ground.trusts() and len(kinds) != 1:
        named = f"names {' and '.join(kinds)}" if kinds else "names nothing to read"
        yield ground.mistake("", f"{named}; it needs exactly one of resource, annotation, label")
    elif kinds[0] != "resource" and declaration.unless is not None:
        yield ground.mistake("unless", f"goes only with a resource, not with {kinds[0]}")
    if ground.trusts(*_KINDS, "limit_annotation") and len(kinds) == 1:
        yield from _check_limit(declaration, ground)
    if ground.trusts("unit", "shares"):
        if declaration.unit == "share" and declaration.shares is None:
            yield ground.mistake("shares", 'is required with unit = "share": a number or "label:KEY"')
        if declaration.unit != "share" and declaration.shares is not None:
            yield ground.mistake("shares", 'goes only with unit = "share"')


def _check_limit(declaration: DeclarationTable, ground: Ground) -> Iterator[Mistake]:
    annotation = declaration.limit_annotation
    if not annotation:
        return
    key = declaration.annotation or declaration.label
    if CONTAINER in annotation and key is not None and CONTAINER not in key:
        what = f"has {CONTAINER}, but {quote(key)} is of the whole pod; leave {CONTAINER} out"
        yield ground.mistake("limit_annotation", what)
    if annotation == declaration.annotation:
        yield ground.mistake("limit_annotation", "is the declaration itself; a limit needs an annotation of its own")


def _check_rule(rule: RuleTable, ground: Ground) -> Iterator[Mistake]:
    match = Ground((*ground.at, "match"), ground.spoilt)
    for key in _LISTS:
        if key in rule.match.model_fields_set and not getattr(rule.match, key):
            yield match.mistake(key, "is an empty list; leave the key out to match whatever it is")
    for index, step in enumerate(rule.step):
        yield from _check_step(step, Ground((*ground.at, "step", index), ground.spoilt))
    yield from _check_ladder(rule.step, ground)


def _check_step(step: StepTable, ground: Ground) -> Iterator[Mistake]:
    if not ground.trusts("do"):
        return
    given = step.model_fields_set
    if "scope" in given and step.do != "kill":
        yield ground.mistake("scope", f'goes only with do = "kill", not with "{step.do}"')
    if "grace" in given and step.do == "warn":
        yield ground.mistake("grace", 'goes only with do = "kill" or "evict"')
    if "grace" in given and step.do == "evict" and step.grace < 1:
        yield ground.mistake("grace", "must be at least 1s for evict; the API server gives no less")
    if "unwarned" in given and step.do == "warn":
        yield ground.mistake("unwarned", 'goes only with do = "kill" or "evict"')
    if "repeat" in given and step.do != "warn":
        yield ground.mistake("repeat", 'goes only with do = "warn"')
    if _is_below_allowed(step) and ground.trusts("above"):
        yield ground.mistake(
            "above", f"{format_threshold(step.above)} is below what is allowed; {step.do} needs 100% or more"
        )


def _is_below_allowed(step: StepTable) -> bool:
    return step.do != "warn" and step.above.share is not None and step.above.share < 1


def _check_ladder(steps: list[StepTable], rule: Ground) -> Iterator[Mistake]:
    """Find steps that stand twice, and marks that fall; steps under pressure make a ladder of their own."""
    seen: dict[tuple[Threshold, float, str, bool], int] = {}
    tops: dict[bool, list[Threshold]] = {True: [], False: []}
    for index, step in enumerate(steps):
        ground = Ground((*rule.at, "step", index), rule.spoilt)
        if not ground.trusts("above") or _is_below_allowed(step):
            continue
        if ground.trusts("for", "do"):
            first = seen.setdefault((step.above, step.for_s, step.do, step.under_pressure), index)
            if first != index:
                yield ground.mistake("", f"has the same above, for and do as step[{first}]; leave one of them")
                continue
        top = tops[step.under_pressure]
        lower = next((earlier for earlier in top if is_surely_below(step.above, earlier)), None)
        if lower is not None:
            yield ground.mistake(
                "above", f"{format_threshold(step.above)} falls below {format_threshold(lower)} of an earlier step"
            )
        else:
            top[:] = [mark for mark in top if _kind(mark) != _kind(step.above)] + [step.above]


def warns_before(warning: StepTable, step: StepTable, *, interval_s: float, has_limits: bool) -> bool:
    """Whether a step's warning is given before another step is due, whatever is allowed.

    It has to be due a whole interval earlier: across a reading that says nothing, so much time can count at once.

    A kill or an eviction never counts below what is allowed. One under pressure compares with the request, which may be
    less than what a plain warning compares with where a tenant may name a limit (`has_limits`).
    """
    mark, other = warning.above, step.above
    is_lower = mark == other or is_surely_below(mark, other) or mark.plus == 0
    is_lower = is_lower or (mark.share is not None and mark.share <= 1)
    is_alike = warning.under_pressure == step.under_pressure or not (warning.under_pressure or has_limits)
    return warning.do == "warn" and is_lower and is_alike and warning.for_s + interval_s <= step.for_s


def is_surely_below(mark: Threshold, earlier: Threshold) -> bool:
    """Whether a mark is below another whatever is allowed.

    Marks of one kind are compared as numbers. Of different kinds only what lies on different sides of allowed can be
    told apart: 90% is below every `+` amount, and +0 below 110%. Everything else depends on the pod and is let through.
    """
    if mark.share is not None and earlier.share is not None:
        return mark.share < earlier.share
    if mark.plus is not None and earlier.plus is not None:
        return mark.plus < earlier.plus
    if mark.amount is not None and earlier.amount is not None:
        return mark.amount < earlier.amount
    if mark.share is not None and earlier.plus is not None:
        return mark.share < 1
    return mark.plus == 0 and earlier.share is not None and earlier.share > 1


def _kind(mark: Threshold) -> tuple[bool, bool]:
    return mark.share is None, mark.plus is None


def _check_brakes(brakes: BrakesTable, ground: Ground) -> Iterator[Mistake]:
    backoff = Ground((*ground.at, "owner_backoff"), ground.spoilt)
    if (
        brakes.owner_backoff
        and backoff.trusts("first", "max")
        and brakes.owner_backoff.max < brakes.owner_backoff.first
    ):
        yield backoff.mistake("max", "must be at least as long as first")


def _check_capacity(capacity: CapacityTable, ground: Ground) -> Iterator[Mistake]:
    # IsExtendedResourceName in k8s.io/kubernetes/pkg/apis/core/v1/helper: others can't be requested from a node.
    domain = capacity.resource.partition("/")[0]
    if ground.trusts("resource") and (domain == "kubernetes.io" or domain.endswith(".kubernetes.io")):
        yield ground.mistake("resource", f"{quote(capacity.resource)} is of Kubernetes' own domain; name one of yours")


_PLUGIN_DOMAIN: Final = "nvidia.com/"
# On a quiet cluster the API server says something that often (watchdog/kube/reflector.py).
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
        yield Mistake((*at, "above"), f"{format_threshold(step.above)} {_say_small(amount)}")


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
