"""How the watchdog itself is."""

from collections.abc import Iterator

from watchdog.core.units import format_duration
from watchdog.export.page.html import section, sentence
from watchdog.export.page.sight import Sight
from watchdog.report.health import OK
from watchdog.report.status import HealthStatus
from watchdog.report.text import clock_time, elapsed_s, span

Row = tuple[str, str, bool]


def wellness(sight: Sight) -> str:
    """The section of the watchdog's own health: a list of what it looks at, with what is wrong in plain words."""
    rows = [*_passes(sight.health), *_inputs(sight), *_self(sight)]
    body = "".join(_row(*row) for row in rows)
    return section("health", "The watchdog itself", f"<dl>{body}</dl>")


def _row(title: str, value: str, is_well: bool) -> str:  # noqa: FBT001 - rows are written as tuples
    content = sentence(value)
    return f"<div><dt>{title}</dt><dd>{content if is_well else f'<b class=bad>{content}</b>'}</dd></div>"


def _passes(health: HealthStatus) -> Iterator[Row]:
    yield "Ready", "; ".join(health.unready) or "yes", health.ready
    if health.last_pass_ago_s is None:
        yield "Last pass", "none yet", health.turns
        return
    took = f", took {_ms(health.last_pass_s)}" if health.last_pass_s is not None else ""
    yield "Last pass", f"{span(health.last_pass_ago_s)} ago{took}", health.turns
    yield "Passes", f"99 of 100 within {_ms(health.pass_p99_s or 0.0)}; {health.passes:,} since the start", True


def _inputs(sight: Sight) -> Iterator[Row]:
    health, report = sight.health, sight.report
    if report is not None:
        yield "NVML", "ok" if not report.snapshot.blind else "does not answer", not report.snapshot.blind
        synced = report.pods.synced
        age = "none has come yet" if synced is None else f"{span(elapsed_s(synced, report.at) + sight.passed_s)} old"
        bound = f" (too old from {format_duration(report.policy.stale_after_s)} on)" if synced is not None else ""
        yield "Pod list", f"{age}{bound}", not sight.is_stale
        api = "not asked: the pods come from a file" if health.api is None else health.api
        yield "API server", api, health.api in (None, OK)
    yield "Journal", health.journal, health.journal == OK
    loaded = ""
    if report is not None:
        loaded = f", read {clock_time(report.policy_loaded_at_s, sight.now_s)}, {report.policy.sha256[:12]}"
    policy = f"the file on disk is not in force: {health.policy_error}" if health.policy_error else ""
    yield "Policy", policy or f"{OK}{loaded}", not health.policy_error


def _self(sight: Sight) -> Iterator[Row]:
    health = sight.health
    yield "Version", health.version, True
    yield "Runs since", f"{clock_time(health.started_at, sight.now_s)}, {span(health.uptime_s)} ago", True


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else span(seconds)
