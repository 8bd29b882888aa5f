"""A compiled policy as readable text: every effective value, its declarations as a table, rule by rule."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Final

from watchdog.cli.tables import Column, table
from watchdog.config.document import read_declaration
from watchdog.config.fields import format_window
from watchdog.config.scheme import Scheme
from watchdog.core.policy import (
    NO_ALLOWANCE,
    Allowance,
    Brakes,
    Capacity,
    Declaration,
    Idle,
    LimitAnnotation,
    Match,
    Policy,
    Pulse,
    Rule,
    Step,
)
from watchdog.core.rules import SYSTEM_CRITICAL_PRIORITY, matches
from watchdog.core.units import format_duration, format_percent, format_quantity
from watchdog.report.sentences.action import acted_by
from watchdog.report.sentences.draining import drained_by

_MODES = {"observe": "makes every decision and takes no action", "enforce": "warns, kills and evicts as the rules say"}
_DECLARATIONS = (
    Column(title="KEY"),
    Column(title="KIND"),
    Column(title="UNIT", right=True),
    Column(title="PER"),
    Column(title="SCHEME"),
    Column(title="CONDITIONS"),
)
_STEPS = (Column(title="ABOVE"), Column(title="FOR"), Column(title="DO"))
# Neither a mistake nor a warning, but the owner of a killed pod will look for someone to ask.
_NO_CONTACT = (
    'none, so they say "the operator of this cluster"; contact under [events] takes a name, an address or a page'
)


def render_policy(policy: Policy) -> str:
    """A policy as lines of text; what a policy file can set is written as in one."""
    return "\n".join(_lines(policy))


def render_schemes(schemes: Iterable[Scheme]) -> str:
    """Schemes as lines of text: what each reads, what to look up before relying on it, and its source."""
    lines = ['Built-in declaration tables, which `schemes` in a policy selects by name; "*" selects all in "*".']
    for scheme in schemes:
        selected = "by name only" if scheme.by_name_only else 'in "*"'
        lines += ["", f"{scheme.name} ({selected})", f"  {scheme.description}"]
        lines += [f"  {_declaration(read_declaration(table))}" for table in scheme.tables]
        lines += [f"  Note: {scheme.note}"] * bool(scheme.note)
        lines.append(f"  Source: {scheme.source}")
    return "\n".join(lines)


_CLAIMS_READ: Final = "what they gave counts beside resources, and before annotations and labels"
_CLAIMS_UNREAD: Final = 'not read; schemes = ["dra"] reads them, for pods that get their cards by ResourceClaims'


def _lines(policy: Policy) -> Iterator[str]:
    yield f"Policy {policy.source} (sha256 {policy.sha256})"
    yield f"Mode {policy.mode}: {_MODES[policy.mode]}"
    yield (
        f"Processes are listed at least every {format_duration(policy.interval_s)}; no enforcement on a pod list older "
        f"than {format_duration(policy.stale_after_s)}; release timeout {format_duration(policy.release_timeout_s)}"
    )
    yield ""
    yield "Declarations (the first that a container has applies):" if policy.declarations else "No declarations."
    if policy.declarations:
        yield from (f"  {line}" for line in table(_DECLARATIONS, map(_declaration_row, policy.declarations)))
    yield f"Resource claims: {_CLAIMS_READ if policy.reads_claims else _CLAIMS_UNREAD}"
    yield f"Allowance: {_allowance(policy.allowance)}"
    yield ""
    yield "Rules (the first that matches a pod applies):" if policy.rules else "No rules: every pod is left alone."
    for rule in policy.rules:
        yield from _rule(rule)
    yield from _jobs(policy.rules)
    yield ""
    yield from _rest(policy)


def _declaration(declaration: Declaration) -> str:
    per = "for all GPUs together" if declaration.per == "total" else "for each GPU"
    first = f"{declaration.kind} {declaration.key}: unit {_unit(declaration)}, {per}"
    return ", ".join([first, *_conditions(declaration)])


def _declaration_row(declaration: Declaration) -> tuple[str, ...]:
    conditions = ", ".join(_conditions(declaration)) or "-"
    return (
        declaration.key,
        declaration.kind,
        _unit(declaration),
        declaration.per,
        declaration.scheme or "-",
        conditions,
    )


def _unit(declaration: Declaration) -> str:
    return format_quantity(declaration.unit) if isinstance(declaration.unit, int) else declaration.unit


def _conditions(declaration: Declaration) -> list[str]:
    parts = []
    if declaration.shares is not None:
        parts.append(f"shares {declaration.shares}")
    if declaration.node_labels:
        parts.append(f"on nodes with {_labels(declaration.node_labels)}")
    if declaration.unless:
        parts.append(f"unless {declaration.unless.resource} is {declaration.unless.at_least} or more")
    if declaration.of is not None:
        parts.append(f"{declaration.of} make a card")
    if declaration.zero == "unset":
        parts.append("0 declares nothing")
    if declaration.container_annotation:
        parts.append(f"for the container that {declaration.container_annotation} names, else the first")
    if declaration.limits:
        parts.append(f"limit in annotation {' or '.join(map(_limit, declaration.limits))}")
    if declaration.wrong_unit:
        parts.append("applies to no pod, because of its unit")
    if declaration.allowance is not None:
        own = _allowance(declaration.allowance)
        parts.append("no allowance" if declaration.allowance == NO_ALLOWANCE else f"own allowance {own}")
    return parts


def _limit(limit: LimitAnnotation) -> str:
    unit = format_quantity(limit.unit) if isinstance(limit.unit, int) else limit.unit
    return limit.key if unit is None else f"{limit.key} ({unit})"


def _allowance(allowance: Allowance) -> str:
    if allowance == NO_ALLOWANCE:
        return "none"
    contexts = f"{format_quantity(allowance.per_context)} for each of at most {allowance.max_contexts} contexts"
    return f"{format_percent(allowance.percent)} of declared + {contexts}"


def _rule(rule: Rule) -> Iterator[str]:
    yield f'  "{rule.name}": {_match(rule.match)}'
    account = "a pod's containers together" if rule.account == "pod" else "each container separately"
    yield f"    account {rule.account} ({account}); where nothing is declared: {_default(rule.default)}"
    if rule.mode is not None or rule.active is not None:
        yield f"    mode {rule.mode or 'as above'}, active {rule.active.text if rule.active else 'always'}"
    if not rule.steps:
        yield "    no steps: measured only"
        return
    rows = [(str(step.above), format_duration(step.for_s), _action(step)) for step in rule.steps]
    yield from (f"    {line}" for line in table(_STEPS, rows))


def _jobs(rules: tuple[Rule, ...]) -> Iterator[str]:
    """What a grace period means for Jobs, by the rules that kill with one and match Jobs, as most rules do."""
    names = []
    for rule in rules:
        if rule.match.owner_kinds and not matches("Job", rule.match.owner_kinds):
            continue
        if any(step.do.ends_processes and step.grace_s for step in rule.steps):
            names.append(f'"{rule.name}"')
        if replace(rule.match, owner_kinds=()) == Match():
            break  # no Job reaches a later rule
    if names:
        those = f"{'rules' if len(names) > 1 else 'rule'} {', '.join(names)}"
        what = 'a pod whose program exits with 0 on SIGTERM counts as succeeded; grace = "0s" avoids that'
        yield ""
        yield f"Jobs under {those}: {what}"


def _default(default: int | None) -> str:
    if default is None:
        return "left alone"
    return f"default {format_quantity(default)}" if default else "nothing is allowed (default 0)"


def _match(match: Match) -> str:
    parts = {
        "namespace": " or ".join(match.namespaces),
        "pod": " or ".join(match.pods),
        "owned by": " or ".join(match.owner_kinds),
        "labels": _labels(match.labels),
        "namespace labels": _labels(match.namespace_labels),
        "node labels": _labels(match.node_labels),
    }
    return "; ".join(f"{what} {values}" for what, values in parts.items() if values) or "every pod"


def _action(step: Step) -> str:
    return acted_by(step) + " while the card is short" * step.under_pressure + ", warned or not" * step.unwarned


def _rest(policy: Policy) -> Iterator[str]:
    protect = policy.protect
    spared = [f"namespace {name}" for name in protect.namespaces] + [f"pod {name}" for name in protect.pods]
    spared += [f"annotation {protect.annotation}"] if protect.annotation else []
    where = "any namespace" if "*" in protect.priority_namespaces else ", ".join(protect.priority_namespaces)
    if where:
        spared.append(f"priority from {min(protect.priority_at_least, SYSTEM_CRITICAL_PRIORITY)} in {where}")
    yield f"Protected in addition to the built-in cases: {', '.join(spared) or 'none'}"
    yield _brakes(policy.brakes)
    if any(step.under_pressure for rule in policy.rules for step in rule.steps):
        yield f"A card is short of memory while less than {format_percent(policy.pressure.free_below)} of it is free"
    yield _capacity(policy.capacity)
    journal = policy.journal
    yield f"Journal: at most {format_duration(journal.max_age_s)} and {format_quantity(journal.max_size)}"
    yield _idle(policy.idle)
    if policy.events.observe:
        yield "Events on pods in observe mode too"
    yield f"Contact named in Events: {policy.events.contact or _NO_CONTACT}"
    if policy.events.page_url:
        yield f"Page linked in Events: {policy.events.page_url}"
    overrides = [check.name for check in fields(policy.safety) if getattr(policy.safety, check.name)]
    yield f"Safety overrides: {', '.join(overrides) or 'none'}"
    if policy.pulse is not None:
        yield _pulse(policy.pulse)
    yield from drained_by(policy)


def _idle(idle: Idle) -> str:
    if not idle.after_s:
        return "Memory that is held without computing is not reported"
    above, after = format_quantity(idle.above), format_duration(idle.after_s)
    return f"Reported, and left alone: accounts that use at least {above} and have computed nothing for {after}"


def _pulse(pulse: Pulse) -> str:
    if not pulse.every_s:
        return "Memory counters are not read between readings"
    often, rise = format_duration(pulse.every_s), format_quantity(pulse.rise)
    return (
        f"Between readings, while a rule can kill or evict within a second, memory counters are read every {often}; a "
        f"rise of {rise} brings the next reading forward, at most {format_window(pulse.looks)}"
    )


def _capacity(capacity: Capacity | None) -> str:
    if capacity is None:
        return "Advertised on the node: nothing"
    less = f", less {format_quantity(capacity.reserve)} each" if capacity.reserve else ""
    unit = f", in units of {format_quantity(capacity.unit)}" if capacity.unit != 1 else ""
    amount = f"the memory of its cards{less}," if capacity.amount is None else format_quantity(capacity.amount)
    return f"Advertised on the node: {amount} as {capacity.resource}{unit}"


def _brakes(brakes: Brakes) -> str:
    windows = (("node", brakes.node), ("namespace", brakes.namespace), ("owner", brakes.owner))
    parts = [f"{name} {format_window(window)}" for name, window in windows if window is not None]
    backoff, breaker = brakes.owner_backoff, brakes.breaker
    if backoff is not None:
        first, longest = format_duration(backoff.first_s), format_duration(backoff.max_s)
        parts.append(f"owner back-off {first}, each time {backoff.factor:g} times as long, at most {longest}")
    if breaker is not None:
        share, hold = format_percent(breaker.offenders), format_duration(breaker.hold_s)
        parts.append(f"breaker at {share} of at least {breaker.of_at_least} owners, for {hold}")
    return f"Brakes, kills and evictions at most: {'; '.join(parts) or 'unlimited'}"


def _labels(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels.items())
