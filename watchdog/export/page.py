"""The status page: one self-contained page without a script, every name in it escaped."""

import base64
import hashlib
from collections.abc import Iterable
from html import escape
from typing import Final

from watchdog.core.findings import Assessment
from watchdog.core.model import Gpu
from watchdog.core.plan import CycleReport
from watchdog.core.units import format_bytes
from watchdog.export.outlook import outlook
from watchdog.export.phrases import inert, rfc3339
from watchdog.export.sums import all_gaps

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#222}"
    "h1{font-size:1.3rem}h2{font-size:1rem;margin:1.6rem 0 .4rem}table{border-collapse:collapse;width:100%}"
    "th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid #ddd}"
    "meter{width:12rem}.over{color:#b00020;font-weight:600}.within{color:#1b6e2f}.misdeclared,.unknown{color:#8a5a00}"
    "td,li{overflow-wrap:anywhere}"
)
# No script, no picture, no frame, nothing from elsewhere: the style alone, by its hash.
POLICY: Final = (
    "default-src 'none'; style-src 'sha256-"
    f"{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def page(report: CycleReport | None) -> str:
    """The page as HTML; without a report it says that there is none yet."""
    if report is None:
        return _frame("gpu-watchdog", ["<p>No pass has finished yet.</p>"])
    parts = [
        f"<p>{_text(rfc3339(report.at.wall_s))} &middot; {_mode(report)}</p>",
        _table(
            ("GPU", "Name", "Used", "", "Total"), (_gpu(gpu, report) for gpu in report.snapshot.gpus), "No GPU seen."
        ),
        "<h2>Accounts</h2>",
        _table(
            ("Pod", "Container", "Used", "Declared", "Allowed", "Verdict", "Rule"),
            (_account(each) for each in report.assessments),
            "No pod uses GPU memory or declares it.",
        ),
        _list(
            "What would follow",
            outlook(report),
            "Nothing.",
        ),
        _list("Not known", [f"{gap.what}: {gap.why}" for gap in all_gaps(report)], "Nothing is missing."),
    ]
    return _frame(f"GPU memory on {inert(report.node.name)}", parts)


def _frame(title: str, parts: Iterable[str]) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5">'
        f'<meta name="viewport" content="width=device-width"><title>{_text(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{_text(title)}</h1>{''.join(parts)}</body></html>\n"
    )


def _mode(report: CycleReport) -> str:
    if report.maintenance is not None:
        return f"the GPUs are under maintenance, and nobody is acted on: {_text(report.maintenance, 600)}"
    if report.suspended:
        return f"told to enforce, but only observing: {_text(', '.join(report.suspended))}"
    return "enforcing" if report.enforcing else "observing: nothing is done"


def _table(titles: tuple[str, ...], rows: Iterable[list[str]], empty: str) -> str:
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    head = "".join(f"<th>{_text(title)}</th>" for title in titles)
    return f"<table><tr>{head}</tr>{body}</table>" if body else f"<p>{_text(empty)}</p>"


def _gpu(gpu: Gpu, report: CycleReport) -> list[str]:
    name = f"{gpu.name} {gpu.profile or ''}".strip()
    if not gpu.up and report.maintenance is not None:
        return [_cell(str(gpu.index)), _cell(name), _cell("under maintenance"), _cell(""), _cell("")]
    if not gpu.up:
        return [_cell(str(gpu.index)), _cell(name), '<td class="over">does not answer</td><td></td><td></td>']
    meter = ""
    if gpu.used is not None and gpu.total:
        meter = f'<meter min="0" max="{int(gpu.total)}" value="{int(gpu.used)}"></meter>'
    used, total = _cell(_bytes(gpu.used)), _cell(_bytes(gpu.total))
    return [_cell(str(gpu.index)), _cell(name), used, f"<td>{meter}</td>", total]


def _account(assessment: Assessment) -> list[str]:
    container = assessment.account.container
    verdict = assessment.verdict.value + (" (protected)" if assessment.protected is not None else "")
    return [
        _cell(assessment.pod.title),
        _cell("all" if container is None else container or "unknown"),
        _cell(f"{'at least ' if assessment.used is None else ''}{_bytes(assessment.used_at_least)}"),
        _cell("" if assessment.declared is None else _bytes(assessment.declared)),
        _cell("" if assessment.allowed is None else _bytes(assessment.allowed)),
        f'<td class="{assessment.verdict.value}">{_text(verdict)}</td>',
        _cell(assessment.rule.name if assessment.rule is not None else ""),
    ]


def _list(title: str, lines: list[str], empty: str) -> str:
    items = "".join(f"<li>{_text(line, 2000)}</li>" for line in lines)
    return f"<h2>{_text(title)}</h2>" + (f"<ul>{items}</ul>" if items else f"<p>{_text(empty)}</p>")


def _cell(text: str) -> str:
    return f"<td>{_text(text)}</td>"


def _text(text: str, limit: int = 300) -> str:
    return escape(inert(text, limit))


def _bytes(amount: int | None) -> str:
    return "unknown" if amount is None else format_bytes(amount)
