"""From the tables of a valid file to the compiled policy."""

from fnmatch import fnmatchcase
from typing import Literal

from watchdog.config.declaration_schema import AllowanceTable, DeclarationTable, OwnAllowanceTable
from watchdog.config.rule_schema import MatchTable, RuleTable, StepTable
from watchdog.config.schema import BrakesTable, CapacityTable, MpsTable, PolicyTable, PressureTable, PulseTable
from watchdog.core.policy import (
    NO_ALLOWANCE,
    Allowance,
    Backoff,
    Brakes,
    Breaker,
    Capacity,
    Declaration,
    Do,
    JournalLimits,
    Match,
    MpsControl,
    Policy,
    Protect,
    Pulse,
    Rule,
    Safety,
    Step,
    Unless,
)


def compile_policy(table: PolicyTable, *, sha256: str, source: str, warnings: tuple[str, ...]) -> Policy:
    """Compile a valid policy."""
    allowance = _compile_allowance(table.allowance)
    protect, journal, safety = table.protect, table.journal, table.safety
    return Policy(
        sha256=sha256,
        source=source,
        mode=table.mode,
        interval_s=table.interval,
        stale_after_s=table.stale_after,
        release_timeout_s=table.release_timeout,
        declarations=tuple(_compile_declaration(declaration, allowance) for declaration in table.declaration),
        allowance=allowance,
        rules=tuple(_compile_rule(rule) for rule in table.rule),
        protect=Protect(
            namespaces=tuple(protect.namespaces),
            pods=tuple(protect.pods),
            priority_at_least=protect.priority_at_least,
            annotation=protect.annotation,
        ),
        brakes=_compile_brakes(table.brakes) if table.brakes is not None else Brakes(),
        free_below=(table.pressure or PressureTable()).free_below,
        journal=JournalLimits(max_age_s=journal.max_age, max_size=journal.max_size),
        safety=Safety(
            foreign_pid_namespace=safety.foreign_pid_namespace,
            signal_without_pidfd=safety.signal_without_pidfd,
            signal_mps_clients=safety.signal_mps_clients,
        ),
        capacity=_compile_capacity(table.capacity, table.declaration) if table.capacity is not None else None,
        events_in_observe=table.events.observe,
        contact=table.events.contact,
        pulse=_compile_pulse(table.pulse) if table.pulse is not None else None,
        mps=_compile_mps(table.mps) if table.mps is not None else None,
        warnings=warnings,
    )


def _compile_allowance(table: AllowanceTable) -> Allowance:
    return Allowance(per_context=table.per_context, max_contexts=table.max_contexts, percent=table.percent)


def _compile_declaration(table: DeclarationTable, allowance: Allowance) -> Declaration:
    kind, key = _name(table)
    return Declaration(
        kind=kind,
        key=key,
        unit=table.unit,
        per=table.per,
        shares=table.shares,
        node_labels=dict(table.node_labels),
        unless=Unless(resource=table.unless.resource, at_least=table.unless.at_least) if table.unless else None,
        limit_annotation=table.limit_annotation,
        allowance=_compile_own_allowance(table, allowance),
    )


def _name(table: DeclarationTable) -> tuple[Literal["resource", "annotation", "label"], str]:
    if table.resource is not None:
        return "resource", table.resource
    if table.annotation is not None:
        return "annotation", table.annotation
    return "label", table.label or ""


def _compile_own_allowance(table: DeclarationTable, allowance: Allowance) -> Allowance | None:
    """A declaration's own allowance; a part of a card as such (`share`, `mig`) has none unless it says so."""
    is_part = table.unit in ("share", "mig")
    own = table.allowance
    if own is None:
        return NO_ALLOWANCE if is_part else None
    base = Allowance(
        per_context=0 if is_part else allowance.per_context,
        max_contexts=allowance.max_contexts,
        percent=NO_ALLOWANCE.percent if is_part else allowance.percent,
    )
    return _override(own, base)


def _override(own: OwnAllowanceTable, base: Allowance) -> Allowance:
    return Allowance(
        per_context=base.per_context if own.per_context is None else own.per_context,
        max_contexts=base.max_contexts if own.max_contexts is None else own.max_contexts,
        percent=base.percent if own.percent is None else own.percent,
    )


def _compile_rule(table: RuleTable) -> Rule:
    return Rule(
        name=table.name,
        match=_compile_match(table.match),
        account=table.account,
        default=table.default,
        mode=table.mode,
        active=table.active,
        steps=tuple(_compile_step(step) for step in table.step),
    )


def _compile_brakes(table: BrakesTable) -> Brakes:
    backoff, breaker = table.owner_backoff, table.breaker
    return Brakes(
        node=table.node,
        namespace=table.namespace,
        owner=table.owner,
        owner_backoff=Backoff(first_s=backoff.first, factor=backoff.factor, max_s=backoff.max) if backoff else None,
        breaker=Breaker(offenders=breaker.offenders, of_at_least=breaker.of_at_least, hold_s=breaker.hold)
        if breaker
        else None,
    )


def _compile_capacity(table: CapacityTable, declarations: list[DeclarationTable]) -> Capacity:
    """What is advertised counts as the declaration counts that reads it: pods ask for both with one number."""
    units = (each.unit for each in declarations if fnmatchcase(table.resource, each.resource or ""))
    unit = next(units, 1)
    return Capacity(
        resource=table.resource,
        amount=None if table.amount == "cards" else table.amount,
        reserve=table.reserve,
        unit=unit if isinstance(unit, int) else 1,
    )


def _compile_pulse(table: PulseTable) -> Pulse:
    return Pulse(every_s=table.every, rise=table.rise, looks=table.looks)


def _compile_mps(table: MpsTable) -> MpsControl:
    return MpsControl(control=table.control, pipe=tuple(table.pipe), timeout_s=table.timeout)


def _compile_match(table: MatchTable) -> Match:
    return Match(
        namespaces=tuple(table.namespaces),
        pods=tuple(table.pods),
        labels=dict(table.labels),
        owner_kinds=tuple(table.owner_kinds),
        namespace_labels=dict(table.namespace_labels),
        node_labels=dict(table.node_labels),
    )


def _compile_step(table: StepTable) -> Step:
    return Step(
        above=table.above,
        for_s=table.for_s,
        do=Do(table.do),
        scope=table.scope,
        grace_s=table.grace,
        repeat_s=table.repeat,
        under_pressure=table.under_pressure,
        unwarned=table.unwarned,
    )
