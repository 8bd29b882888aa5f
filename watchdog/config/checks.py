"""Mistakes that involve several fields, and warnings about what is valid but probably unintended."""

from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from watchdog.config.document import Location, Mistake, format_path
from watchdog.config.fields import CONTAINER, quote
from watchdog.config.known_units import doubt_of, is_known, per_of
from watchdog.core.amount import GPU_RESOURCE, profile_of
from watchdog.core.policy import Brakes, Capacity, Declaration, Do, Match, Policy, Protect, Rule, Step, Threshold
from watchdog.core.units import format_duration, format_quantity

_KINDS: Final = ("resource", "annotation", "label")
_OF_RESOURCES: Final = ("cards", "named")  # units of what only a scheduler hands out


class FileTable(NamedTuple):
    """A table of the file."""

    # Where it is.
    at: Location
    # Its data.
    given: Any
    # The locations whose values were rejected.
    rejected: frozenset[Location]

    def below(self, *keys: str | int) -> "FileTable":
        """A table within this one."""
        given = self.given
        for key in keys:
            given = given[key] if isinstance(key, int) else given.get(key, {})
        return FileTable((*self.at, *keys), given, self.rejected)

    def trusts(self, *keys: str) -> bool:
        """Whether none of these keys' values was rejected and replaced."""
        return not any((*self.at, key) in self.rejected for key in keys) and self.at not in self.rejected

    def mistake(self, key: str, what: str) -> Mistake:
        """A mistake under a key of this table, or of the table itself if the key is empty."""
        return Mistake((*self.at, key) if key else self.at, what)


def find_mistakes(policy: Policy, document: dict[str, Any], rejected: frozenset[Location]) -> Iterator[Mistake]:
    """Check what is left of a document once mistakes in single fields are removed; their locations are `rejected`."""
    top = FileTable((), document, rejected)
    names_of_schemes = policy.schemes or ()
    for index, name in enumerate(names_of_schemes):
        first = names_of_schemes.index(name)
        if first != index:
            yield Mistake(
                ("schemes", index), f"{quote(name)} is selected by schemes[{first}] already; leave one of them"
            )
    # A declaration's own allowance takes missing keys from `[allowance]`, so its value alone does not identify it.
    seen: dict[tuple[str, Collection[str]], int] = {}
    for index, declaration in enumerate(policy.declarations):
        place = top.below("declaration", index)
        yield from _check_declaration(declaration, place)
        first = seen.setdefault((repr(declaration), frozenset(place.given.get("allowance", ()))), index)
        if first != index and not any(at[:2] == place.at for at in rejected):
            yield place.mistake("", f"is the same as declaration[{first}]; leave one of them")
    names: dict[str, Location] = {}
    for index, rule in enumerate(policy.rules):
        place = top.below("rule", index)
        if place.trusts("name"):
            if rule.name in names:
                yield place.mistake("name", f"{quote(rule.name)} is the name of {format_path(names[rule.name])} too")
            names.setdefault(rule.name, place.at)
        yield from _check_rule(rule, place)
    backoff, place = policy.brakes.owner_backoff, top.below("brakes", "owner_backoff")
    if backoff and place.trusts("first", "max") and backoff.max_s < backoff.first_s:
        yield place.mistake("max", "must be at least as long as first")
    if policy.capacity is not None:
        yield from _check_capacity(policy.capacity, top.below("capacity"))


def _check_declaration(declaration: Declaration, place: FileTable) -> Iterator[Mistake]:
    # A key with a rejected value is given nevertheless.
    kinds = [kind for kind in _KINDS if getattr(declaration, kind) is not None or not place.trusts(kind)]
    if place.trusts() and len(kinds) != 1:
        named = f"names {' and '.join(kinds)}" if kinds else "names no key"
        yield place.mistake("", f"{named}; it needs exactly one of resource, annotation, label")
    elif kinds[0] != "resource" and declaration.unless is not None:
        yield place.mistake("unless", f"is valid only with a resource, not with {kinds[0]}")
    if place.trusts(*_KINDS, "limit_annotation") and len(kinds) == 1:
        yield from _check_limits(declaration, place)
    if place.trusts(*_KINDS) and declaration.container_annotation:
        if kinds == ["resource"]:
            yield place.mistake("container_annotation", "is valid only with an annotation or a label")
        elif CONTAINER in declaration.key:
            yield place.mistake("container_annotation", f"and {CONTAINER} both name the container; leave one of them")
    yield from _check_unit(declaration, place, kinds)


def _check_unit(declaration: Declaration, place: FileTable, kinds: Sequence[str]) -> Iterator[Mistake]:
    if place.trusts("unit", "shares"):
        if declaration.unit == "share" and declaration.shares is None:
            yield place.mistake("shares", 'is required with unit = "share": a number or "label:KEY"')
        if declaration.unit != "share" and declaration.shares is not None:
            yield place.mistake("shares", 'is valid only with unit = "share"')
    if place.trusts("unit", "of") and declaration.of is not None and declaration.unit != "cards":
        yield place.mistake("of", 'is valid only with unit = "cards"')
    if place.trusts(*_KINDS, "unit") and declaration.unit in _OF_RESOURCES and "resource" not in kinds:
        yield place.mistake("unit", f"{quote(str(declaration.unit))} is valid only with a resource")


def _check_limits(declaration: Declaration, place: FileTable) -> Iterator[Mistake]:
    key = declaration.annotation or declaration.label
    is_of_pod = key is not None and CONTAINER not in key and not declaration.container_annotation
    for limit in declaration.limits:
        if CONTAINER in limit.key and is_of_pod:
            what = f"has {CONTAINER}, but {quote(key or '')} is of the whole pod; leave {CONTAINER} out"
            yield place.mistake("limit_annotation", what)
        if limit.key == declaration.annotation:
            yield place.mistake("limit_annotation", "is the declaration itself; a limit needs an annotation of its own")


def _check_rule(rule: Rule, place: FileTable) -> Iterator[Mistake]:
    match = place.below("match")
    for key in ("namespaces", "pods", "owner_kinds"):
        if key in match.given and not getattr(rule.match, key):
            yield match.mistake(key, "is an empty list; omit the key to match any value")
    for index, step in enumerate(rule.steps):
        yield from _check_step(step, place.below("step", index))
    yield from _check_ladder(rule.steps, place)


def _check_step(step: Step, place: FileTable) -> Iterator[Mistake]:
    if not place.trusts("do"):
        return
    given = place.given
    for key in given:
        actions = [f'"{do}"' for do in Do if key in do.keys]
        if actions and key not in step.do.keys:
            yield place.mistake(key, f'is valid only with do = {" or ".join(actions)}, not with "{step.do}"')
    if "grace" in given and step.grace_s < step.do.least_grace_s:
        least = format_duration(step.do.least_grace_s)
        yield place.mistake("grace", f"must be at least {least} for {step.do}; the API server allows no less")
    if _is_below_allowed(step) and place.trusts("above"):
        yield place.mistake("above", f"{step.above} is below what is allowed; {step.do} needs 100% or more")


def _is_below_allowed(step: Step) -> bool:
    return step.do.enforces and step.above.share is not None and step.above.share < 1


def _check_ladder(steps: Sequence[Step], rule: FileTable) -> Iterator[Mistake]:
    """Find duplicate steps and falling thresholds; steps under pressure form a separate ladder."""
    seen: dict[object, int] = {}
    tops: dict[bool, list[Threshold]] = {True: [], False: []}
    for index, step in enumerate(steps):
        place = rule.below("step", index)
        if not place.trusts("above") or _is_below_allowed(step):
            continue
        if place.trusts("for", "do"):
            first = seen.setdefault(step.signature, index)
            if first != index:
                yield place.mistake("", f"has the same above, for and do as step[{first}]; leave one of them")
                continue
        top = tops[step.under_pressure]
        lower = next((earlier for earlier in top if is_surely_below(step.above, earlier)), None)
        if lower is not None:
            yield place.mistake("above", f"{step.above} falls below {lower} of an earlier step")
        else:
            top[:] = [threshold for threshold in top if _kind(threshold) != _kind(step.above)] + [step.above]


def warns_before(warning: Step, step: Step, *, interval_s: float, has_limits: bool) -> bool:
    """Whether a warning is always given before another step is due, whatever is allowed.

    It has to be due a whole interval earlier: across an inconclusive reading, one interval can count at once.

    A kill or an eviction never counts below what is allowed. Under pressure a step compares with the request, which may
    be less than what a plain warning compares with if a tenant may name a limit (`has_limits`).
    """
    threshold, other = warning.above, step.above
    is_lower = threshold == other or is_surely_below(threshold, other) or threshold.plus == 0
    is_lower = is_lower or (threshold.share is not None and threshold.share <= 1)
    is_alike = warning.under_pressure == step.under_pressure or not (warning.under_pressure or has_limits)
    return warning.do == "warn" and is_lower and is_alike and warning.for_s + interval_s <= step.for_s


def is_surely_below(threshold: Threshold, earlier: Threshold) -> bool:
    """Whether a threshold is below an earlier one, whatever is allowed.

    Thresholds of one kind are compared as numbers. Thresholds of different kinds can be compared only if they are on
    different sides of what is allowed: 90% is below every `+` amount, and +0 below 110%. The rest depends on the pod
    and is accepted.
    """
    for one, other in (
        (threshold.share, earlier.share),
        (threshold.plus, earlier.plus),
        (threshold.amount, earlier.amount),
    ):
        if one is not None and other is not None:
            return one < other
    if threshold.share is not None and earlier.plus is not None:
        return threshold.share < 1
    return threshold.plus == 0 and earlier.share is not None and earlier.share > 1


def _kind(threshold: Threshold) -> tuple[bool, bool]:
    return threshold.share is None, threshold.plus is None


def _check_capacity(capacity: Capacity, place: FileTable) -> Iterator[Mistake]:
    # IsExtendedResourceName in k8s.io/kubernetes/pkg/apis/core/v1/helper: others can't be requested from a node.
    domain = capacity.resource.partition("/")[0]
    if place.trusts("resource") and (domain == "kubernetes.io" or domain.endswith(".kubernetes.io")):
        yield place.mistake("resource", f"{quote(capacity.resource)} is of Kubernetes' own domain; name one of yours")


_PLUGIN_DOMAIN: Final = "nvidia.com/"
# How often the API server sends something on a quiet cluster (watchdog/kube/reflector.py).
_LIFE_SIGNS_S: Final = 160.0
_SMALL: Final = 2**20  # the driver hands out memory in pages of 64 KiB and more; a context alone takes hundreds of MiB


def find_warnings(policy: Policy, document: dict[str, Any]) -> Iterator[Mistake]:
    """Warnings about a valid policy, and the document that it was read from."""
    yield from _warn_of_whole(policy, document)
    yield from _warn_of_unused(policy.rules)
    for index, rule in enumerate(policy.rules):
        if "match" not in document["rule"][index]:
            yield Mistake(
                ("rule", index), "has no match, so it applies to every pod; write match = {} to make that explicit"
            )
        yield from _warn_of_rule(rule, ("rule", index), policy)
    yield from _warn_of_small(policy.allowance.per_context, "allowance", "per_context")
    own = (each for each in policy.declarations if not each.scheme)
    for index, declaration in enumerate(own):
        yield from _warn_of_declaration(declaration, ("declaration", index))
    if policy.capacity is not None:
        yield from _warn_of_capacity(policy.capacity, policy.declarations)


def _warn_of_declaration(declaration: Declaration, at: Location) -> Iterator[Mistake]:
    if declaration.allowance is not None:
        yield from _warn_of_small(declaration.allowance.per_context, *at, "allowance", "per_context")
    doubt = doubt_of(declaration)
    if doubt is not None:
        yield Mistake((*at, "unit"), doubt.what)
    elif declaration.unit == 1 and not is_known(declaration) and not declaration.unit_differs:
        what = (
            'is "1": pods must write bytes or a suffix, like 8Gi. Where they write a bare number of MiB, every pod is '
            'over its limit: write unit = "1Mi" then; unit_differs = true confirms bytes'
        )
        yield Mistake((*at, "unit"), what)
    if (known := per_of(declaration)) is not None and not declaration.unit_differs:
        what = (
            f'is "{declaration.per}", and scheme {known.scheme} reads the key with per = "{known.per}"; '
            "unit_differs = true says that it differs here"
        )
        yield Mistake((*at, "per"), what)
    if declaration.unit == "mig" and profile_of(declaration.resource or "") is None:
        what = 'is for resources named after a MIG profile, like "nvidia.com/mig-*"; here 1 stands for a whole card'
        yield Mistake((*at, "unit"), what)
    if declaration.counts_devices and declaration.limits:
        what = f"is ignored with unit = {quote(str(declaration.unit))}: a device is its own limit"
        yield Mistake((*at, "limit_annotation"), what)


def _warn_of_capacity(capacity: Capacity, declarations: Sequence[Declaration]) -> Iterator[Mistake]:
    name = capacity.resource
    readers = [each for each in declarations if fnmatchcase(name, each.resource or "")]
    if capacity.amount is not None and capacity.reserve:
        yield Mistake(("capacity", "reserve"), 'is ignored if amount is a quantity; it goes with amount = "cards"')
    if not readers:
        what = "is read by no [[declaration]] and no scheme: requests for it are not enforced"
        yield Mistake(("capacity", "resource"), what)
    elif not isinstance(readers[0].unit, int):
        what = f'is advertised in bytes, and declarations of the resource count in "{readers[0].unit}"'
        yield Mistake(("capacity", "amount"), what)
    if name.startswith(_PLUGIN_DOMAIN) and (name == GPU_RESOURCE or name.endswith(".shared") or profile_of(name)):
        what = "is what NVIDIA's device plugin advertises: its number replaces this one"
        yield Mistake(("capacity", "resource"), what)


def _warn_without_claims(policy: Policy, document: dict[str, Any]) -> Iterator[Mistake]:
    if document.get("schemes"):
        what = 'lacks "dra", which is in "*": pods that get their cards by ResourceClaims are left alone'
        yield Mistake(("schemes",), what)
    if policy.claims.count_shares:
        yield Mistake(("claims", "count_shares"), 'applies only with the scheme "dra"')


def _warn_of_whole(policy: Policy, document: dict[str, Any]) -> Iterator[Mistake]:
    if not policy.rules:
        yield Mistake((), "there is no [[rule]]: every pod is measured and left alone")
    elif not policy.declarations and all(rule.default is None for rule in policy.rules):
        yield Mistake(
            (), "there is no [[declaration]], no scheme and no default: every pod is undeclared and left alone"
        )
    if not policy.reads_claims:
        yield from _warn_without_claims(policy, document)
    if policy.stale_after_s < policy.interval_s:
        yield Mistake(("stale_after",), "is shorter than interval: enforcement may always be withheld")
    elif policy.stale_after_s < _LIFE_SIGNS_S:
        what = (
            "is shorter than 2m40s: on a quiet cluster the API server may send nothing for that long, and then "
            "enforcement is withheld occasionally; with --pods this does not apply"
        )
        yield Mistake(("stale_after",), what)
    if "pressure" in document and not any(step.under_pressure for rule in policy.rules for step in rule.steps):
        yield Mistake(("pressure",), "applies only to steps with under_pressure = true, and there is none")
    enforces = any(step.do.enforces for rule in policy.rules for step in rule.steps)
    if policy.mode == "enforce" and enforces and policy.brakes == Brakes():
        yield Mistake((), "there are no [brakes]: the number of kills and evictions is not limited")
    elif policy.mode == "enforce" and enforces and policy.brakes.breaker is None:
        what = (
            "there is no breaker: a mistake that puts every pod over its limit kills them all; add breaker = "
            '{ offenders = "50%", of_at_least = 3, hold = "10m" }'
        )
        yield Mistake(("brakes",), what)
    yield from _warn_of_protection(policy.protect)
    if enforces:
        yield from _warn_of_priorities(policy.protect)


def _warn_of_protection(protect: Protect) -> Iterator[Mistake]:
    for index, pattern in enumerate(protect.pods):
        namespace, slash, _ = pattern.rpartition("/")
        if not slash or "*" in namespace or "?" in namespace:
            where = f"a namespace {namespace}" if namespace.strip("*") else "any namespace"
            what = f"protects such a pod in {where}: tenants who can create one there exempt themselves"
            yield Mistake(("protect", "pods", index), f"{what}; name the namespace")
    for index, namespace in enumerate(protect.namespaces):
        if "*" in namespace or "?" in namespace:
            what = "protects everyone who can create a namespace of such a name; name each namespace in full"
            yield Mistake(("protect", "namespaces", index), what)
    priority = protect.priority_at_least
    if priority > Protect().priority_at_least:
        yield Mistake(("protect", "priority_at_least"), "has no effect: 2000000000 and above always count")
    if priority <= 0:
        yield Mistake(("protect", "priority_at_least"), "protects every pod that has no priority class")


def _warn_of_priorities(protect: Protect) -> Iterator[Mistake]:
    for namespace in protect.priority_namespaces:
        if "*" in namespace or "?" in namespace:
            where = "any tenant protects its pods" if not namespace.strip("*") else "tenants there protect their pods"
            what = (
                f'with "{namespace}" {where} by the priority class system-node-critical, unless a quota forbids it; '
                'name each namespace in full, as in priority_namespaces = ["kube-system", "gpu-operator"]'
            )
            yield Mistake(("protect", "priority_namespaces"), what)
            return


def _warn_of_unused(rules: Sequence[Rule]) -> Iterator[Mistake]:
    seen: dict[str, int] = {}
    for index, rule in enumerate(rules):
        match = "all" if _is_for_all(rule.match) else repr(rule.match)
        first = seen.get("all", seen.setdefault(match, index))
        if first != index:
            why = f"can never apply: rule[{first}] matches every pod that it would match; move it before that one"
            yield Mistake(("rule", index), why)


def _warn_of_rule(rule: Rule, at: Location, policy: Policy) -> Iterator[Mistake]:
    yield from _warn_of_kinds(rule.match.owner_kinds, (*at, "match", "owner_kinds"))
    yield from _warn_of_small(rule.default, *at, "default")
    steps = [((*at, "step", number), step) for number, step in enumerate(rule.steps)]
    for place, step in steps:
        if 0 < step.for_s < policy.interval_s:
            shorter = f"{format_duration(step.for_s)} is shorter than interval, {format_duration(policy.interval_s)}"
            yield Mistake((*place, "for"), shorter)
    has_limits = any(declaration.limits for declaration in policy.declarations)
    for place, step in steps:
        if not step.do.enforces or step.unwarned:
            continue
        if not any(warns_before(w, step, interval_s=policy.interval_s, has_limits=has_limits) for w in rule.steps):
            what = f"can {step.do} before any warning has been given; warn earlier, or set unwarned = true"
            yield Mistake(place, what)
    if any(fnmatchcase("Job", kind) for kind in rule.match.owner_kinds):
        for place, step in steps:
            if step.do == "kill" and step.grace_s:
                what = (
                    f"is {format_duration(step.grace_s)}, and the rule matches Jobs: a Job counts a pod whose program "
                    'exits with 0 on SIGTERM as succeeded; "0s" avoids that'
                )
                yield Mistake((*place, "grace"), what)
    if rule.mode == "enforce" and policy.mode == "observe":
        what = "is enforce, but the policy observes, so the rule only observes too"
        yield Mistake((*at, "mode"), what)


# Kubernetes' own controllers, and what a pod without a controller is matched as.
_OWNER_KINDS: Final = ("CronJob", "DaemonSet", "Deployment", "Job", "Pod", "ReplicaSet", "StatefulSet")
_BY_LOWER_CASE: Final = {kind.lower(): kind for kind in _OWNER_KINDS}


def _warn_of_kinds(kinds: Sequence[str], at: Location) -> Iterator[Mistake]:
    """Find kinds that are the owners of no pods, or of fewer than expected (watchdog/kube/objects.py)."""
    for index, kind in enumerate(kinds):
        known = _BY_LOWER_CASE.get(kind.lower(), kind)
        if known == "CronJob":
            yield Mistake((*at, index), 'matches no pod: the controller of a CronJob\'s pods is a Job; write "Job"')
        elif kind != known:
            yield Mistake((*at, index), f'matches no pod: kinds are case-sensitive; write "{known}"')
        elif kind == "ReplicaSet" and not any(fnmatchcase("Deployment", other) for other in kinds):
            yield Mistake((*at, index), 'matches no pods of Deployments; for those write "Deployment"')


def _warn_of_small(amount: int | None, *at: str | int) -> Iterator[Mistake]:
    if amount and amount < _SMALL:
        yield Mistake(at, f'is {amount} bytes; for mebibytes write "{format_quantity(amount)}Mi"')


def _is_for_all(match: Match) -> bool:
    names_all = all(any(not name.strip("*/") for name in names) for names in (match.namespaces, match.pods) if names)
    return names_all and not (match.labels or match.owner_kinds or match.namespace_labels or match.node_labels)
