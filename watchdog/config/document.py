"""A compiled policy as the data of a policy file: every effective value, in texts that read back as the same policy."""

from collections.abc import Mapping
from typing import Any

from watchdog.config.amounts import format_threshold, format_window
from watchdog.core.policy import (
    Allowance,
    Brakes,
    Capacity,
    Declaration,
    Do,
    Match,
    MpsControl,
    Policy,
    Pulse,
    Rule,
    Step,
)
from watchdog.core.units import format_duration, format_percent, format_quantity


def policy_document(policy: Policy) -> dict[str, Any]:
    """Give the policy as TOML or JSON would hold it."""
    return {
        "version": 1,
        "mode": policy.mode,
        "interval": format_duration(policy.interval_s),
        "stale_after": format_duration(policy.stale_after_s),
        "release_timeout": format_duration(policy.release_timeout_s),
        "declaration": [_declaration(declaration) for declaration in policy.declarations],
        "allowance": _allowance(policy.allowance),
        "rule": [_rule(rule) for rule in policy.rules],
        "protect": {
            "namespaces": list(policy.protect.namespaces),
            "pods": list(policy.protect.pods),
            "priority_at_least": policy.protect.priority_at_least,
            "annotation": policy.protect.annotation,
        },
        **_given("brakes", _brakes(policy.brakes)),
        "pressure": {"free_below": format_percent(policy.free_below)},
        **_given("capacity", policy.capacity and _capacity(policy.capacity)),
        "events": {"observe": policy.events_in_observe, "contact": policy.contact},
        "journal": {
            "max_age": format_duration(policy.journal.max_age_s),
            "max_size": format_quantity(policy.journal.max_size),
        },
        "safety": {
            "foreign_pid_namespace": policy.safety.foreign_pid_namespace,
            "signal_without_pidfd": policy.safety.signal_without_pidfd,
            "signal_mps_clients": policy.safety.signal_mps_clients,
        },
        **_given("pulse", policy.pulse and _pulse(policy.pulse)),
        **_given("mps", policy.mps and _mps(policy.mps)),
    }


def _capacity(capacity: Capacity) -> dict[str, Any]:
    return {
        "resource": capacity.resource,
        "amount": "cards" if capacity.amount is None else format_quantity(capacity.amount),
        "reserve": format_quantity(capacity.reserve),
    }


def _pulse(pulse: Pulse) -> dict[str, Any]:
    return {
        "every": format_duration(pulse.every_s),
        "rise": format_quantity(pulse.rise),
        "looks": format_window(pulse.looks),
    }


def _mps(mps: MpsControl) -> dict[str, Any]:
    return {"control": mps.control, "pipe": list(mps.pipe), "timeout": format_duration(mps.timeout_s)}


def _brakes(brakes: Brakes) -> dict[str, Any]:
    backoff, breaker = brakes.owner_backoff, brakes.breaker
    windows = {"node": brakes.node, "namespace": brakes.namespace, "owner": brakes.owner}
    document: dict[str, Any] = {name: format_window(window) for name, window in windows.items() if window is not None}
    if backoff is not None:
        document["owner_backoff"] = {
            "first": format_duration(backoff.first_s),
            "factor": backoff.factor,
            "max": format_duration(backoff.max_s),
        }
    if breaker is not None:
        document["breaker"] = {
            "offenders": format_percent(breaker.offenders),
            "of_at_least": breaker.of_at_least,
            "hold": format_duration(breaker.hold_s),
        }
    return document


def _declaration(declaration: Declaration) -> dict[str, Any]:
    unit = declaration.unit
    unless = declaration.unless
    return {
        declaration.kind: declaration.key,
        "unit": format_quantity(unit) if isinstance(unit, int) else unit,
        "per": declaration.per,
        **_given("shares", declaration.shares),
        **_given("node_labels", declaration.node_labels),
        **_given("unless", unless and {"resource": unless.resource, "at_least": unless.at_least}),
        **_given("limit_annotation", declaration.limit_annotation),
        **_given("allowance", declaration.allowance and _allowance(declaration.allowance)),
    }


def _allowance(allowance: Allowance) -> dict[str, Any]:
    return {
        "per_context": format_quantity(allowance.per_context),
        "max_contexts": allowance.max_contexts,
        "percent": format_percent(allowance.percent),
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "name": rule.name,
        "match": _match(rule.match),
        "account": rule.account,
        **({} if rule.default is None else {"default": format_quantity(rule.default)}),
        **_given("mode", rule.mode),
        **_given("active", rule.active and rule.active.text),
        "step": [_step(step) for step in rule.steps],
    }


def _match(match: Match) -> dict[str, Any]:
    return {
        **_given("namespaces", match.namespaces),
        **_given("pods", match.pods),
        **_given("labels", match.labels),
        **_given("owner_kinds", match.owner_kinds),
        **_given("namespace_labels", match.namespace_labels),
        **_given("node_labels", match.node_labels),
    }


def _step(step: Step) -> dict[str, Any]:
    document: dict[str, Any] = {
        "above": format_threshold(step.above),
        "for": format_duration(step.for_s),
        "do": step.do.value,
    }
    if step.do is Do.KILL:
        document["scope"] = step.scope
    if step.do.is_force:
        document["grace"] = format_duration(step.grace_s)
    else:
        document["repeat"] = format_duration(step.repeat_s)
    return document | _given("under_pressure", step.under_pressure) | _given("unwarned", step.unwarned)


def _given(key: str, value: object) -> dict[str, Any]:
    """The entry of a key that is set, in types that JSON and TOML have; nothing where it is not set."""
    if not value:
        return {}
    if isinstance(value, Mapping):
        return {key: dict(value)}
    return {key: list(value) if isinstance(value, tuple) else value}
