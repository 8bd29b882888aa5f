"""The status page: which rows it has, in which order, from the status of the node. page.html lays them out.

It is one document without a script. The template's environment makes every value inert and escapes it, so rows need
not; a row only shortens a name that must be shorter than usual.
"""

import base64
import hashlib
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from watchdog.core.residual import Sum
from watchdog.core.rules import MODE, REASON
from watchdog.core.units import ByteColumn, format_bytes, format_duration
from watchdog.export.names import PodName, short_names, with_subjects
from watchdog.export.page_cards import Bar, account_bar, amount, bar_terms, cards
from watchdog.export.page_headline import SEE_ABOVE, STOPPED, Headline, PageInput, headline
from watchdog.export.page_hour import account_hour
from watchdog.export.page_pods import Row, idle_holders, place, pod_table
from watchdog.options import DEFAULT_JOURNAL, DEFAULT_NAMESPACE
from watchdog.report.health import OK
from watchdog.report.progress import AccountProgress, Level
from watchdog.report.recent import is_action
from watchdog.report.sentences.action import result_short
from watchdog.report.sentences.node import STRAYS, StrayWords, gap_subject, reason_given, unlisted
from watchdog.report.status import AccountStatus, GapStatus, Status, UnattributedStatus
from watchdog.report.text import capital, count, inert, span

if TYPE_CHECKING:
    from jinja2 import Environment, Template

_LONGEST_TEXT: Final = 2000
_WITH_DETAILS: Final = 3
_MOST_OVER: Final = 12  # the others are among all pods
_RECENT_AT_FIRST: Final = 6  # the others are collapsed
_GAPS_AT_FIRST: Final = 3  # the others are collapsed: below them are the cards and who is over
_MOST_REMEDIES: Final = 8
_MOST_OF_A_KIND: Final = 4
_REFRESH_S: Final = 5
_CALM_REFRESH_S: Final = 15
_SENTENCE_END: Final = re.compile(r"(?<=[.]) (?=[A-Z])")


def _finalize(value: object) -> object:
    """A text with control characters and direction overrides escaped, and its middle cut if it is too long."""
    if type(value) is str:  # the most frequent kind
        return inert(value, _LONGEST_TEXT)
    return inert(value, _LONGEST_TEXT) if isinstance(value, str) and not hasattr(value, "__html__") else value


@cache
def template(name: str) -> "Template":
    """A template, compiled on first use: with the library the status page's takes 4 MiB."""
    return _environment().get_template(name)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=_finalize,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"inert": inert, "short": short_names, "with_subjects": with_subjects}
    return environment


def content_policy(style: str) -> str:
    """No script, no frame, nothing external: only this style by its hash, and the tab's icon, which is in the page."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


STYLE: Final = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
POLICY: Final = content_policy(STYLE)


def page(seen: PageInput) -> tuple[str, int]:
    """The page as of now, also before the first cycle; and after how many seconds to reload it."""
    head, status = headline(seen), seen.status
    gaps = list(_remedies(seen, status, head)) if status is not None else []
    refresh_s = _CALM_REFRESH_S if head.level is Level.GOOD else _REFRESH_S
    most_over, most_gaps = (None, None) if seen.query.shows_all else (_MOST_OVER, _MOST_REMEDIES)
    urgent = [_urgent(progress, seen, number) for number, progress in enumerate(seen.urgent[:most_over])]
    recent = list(_recent(seen, status)) if status is not None else []
    pods, bars = pod_table(seen), [cast("Bar | None", row["bar"]) for row in urgent]
    html = template("page.html").render(
        style=STYLE,
        seen=seen,
        query=seen.query,
        head=head,
        refresh_s=refresh_s,
        node=status.node if status is not None else "",
        cards=cards(status, names_all=seen.query.shows_all) if status is not None else None,
        urgent=list(_without_repeats(urgent)),
        urgent_terms=(urgent_terms := bar_terms(bars)),
        more_urgent=len(seen.urgent) - len(urgent),
        stop=stop_enforcement(status) if status is not None else None,
        recent=recent[:_RECENT_AT_FIRST],
        earlier=recent[_RECENT_AT_FIRST:],
        gaps=gaps[:_GAPS_AT_FIRST],
        more_gaps=gaps[_GAPS_AT_FIRST:most_gaps],
        has_more_gaps=len(gaps[:most_gaps]) < len(gaps),
        unattributed=list(_unattributed(seen, status)) if status is not None else [],
        idle=idle_holders(seen),
        pods=pods,
        pod_terms=bar_terms(pods.bars, (css for css, _ in urgent_terms)),
        health=[(title, head.shortened(value), is_good) for title, value, is_good in _health(seen)],
        unlisted=unlisted(seen.unlisted),
        unlisted_gpus=[seen.gpu(gpu.uuid) for gpu in seen.unlisted],
    )
    return html, refresh_s


def _urgent(progress: AccountProgress, seen: PageInput, number: int) -> Row:
    """An account that is over its limit or has a next step. The first few have details, and the first one advice."""
    account, has_details, is_first = progress.account, number < _WITH_DETAILS, number == 0
    allowed, declared = account.allowed, account.declared
    sharers = account.shared_with if isinstance(account.shared_with, tuple) else ()
    is_default = account.declared_by == "default"
    source = (
        f'from the default of rule "{inert(account.rule or "")}"'
        if is_default
        else f"declared by {inert(account.declared_by or 'nothing')}"
    )
    origin = f"{format_bytes(declared)} {source if is_first else 'declared'}" if declared is not None else ""
    shown = (step for step in progress.steps if step.is_held or (has_details and step is progress.gravest))
    return {
        "pod": PodName(account.namespace, account.pod),
        "place": place(account, seen),
        "subjects": seen.subjects_beside(account),
        "steps": progress.steps,
        "bar": account_bar(account),
        "hour": account_hour(account),
        "used": amount(account.used, account.least),
        "together": format_bytes(account.compared) if sharers and account.compared != account.least else "",
        "sharers": [PodName.of(title) for title in sharers],
        "allowed": format_bytes(allowed) if allowed is not None else "",
        "origin": origin,
        "excess": format_bytes(account.compared - allowed)
        if allowed is not None and account.compared > allowed
        else "",
        "lasting": _lasting(account, seen),
        "details": [step.detail for step in shown],
        "protected": account.protected if has_details else None,
        "advice": account.advice if is_first else None,
    }


def _without_repeats(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows without sentences of their details that an earlier one has, such as why nothing is enforced."""
    shown: set[str] = set()
    for row in rows:
        sentences = [_SENTENCE_END.split(str(detail)) for detail in cast("list[str]", row["details"])]
        yield {**row, "details": [" ".join(s for s in detail if s not in shown) for detail in sentences]}
        shown.update(sentence for detail in sentences for sentence in detail)


def stop_enforcement(status: Status) -> Row:
    """How to stop enforcement on this node, or by what it is stopped and how to resume it: each with its command."""
    node, path = shlex.quote(inert(status.node)), status.health.stop_file if status.health is not None else None
    is_usual = path in (None, str(DEFAULT_JOURNAL.with_name("stop")))
    option = "" if is_usual else f" --stop-file {shlex.quote(inert(path or ''))}"
    uses_api = status.health is None or status.health.api is not None
    exec_ = f"kubectl -n {DEFAULT_NAMESPACE} exec POD -- " if uses_api else ""
    where = f"the watchdog's pod{' (-n: its namespace)' if uses_api else ', or on a node that has the command'}:"
    stopped_by = [reason for reason in STOPPED if reason in status.suspended]
    given = {stop.switch: f" {capital(reason_given(stop, status.node))}." for stop in status.stops}
    if stopped_by:
        resume = {
            "node_annotation": (
                f"The node's annotation turns it off.{given.get('node_annotation', '')}",
                f"kubectl annotate node {node} {MODE}- {REASON}-",
            ),
            "stop_file": (
                f"The file {inert(path or 'stop')} turns it off.{given.get('stop_file', '')} In {where}",
                f"{exec_}gpu-watchdog resume{option}",
            ),
        }
        commands = [resume[reason] for reason in stopped_by]
        return {
            "title": "Enforcement is stopped here",
            "link": "Resume enforcement",
            "lead": "To resume it:",
            "commands": commands,
        }
    by_api = [("From anywhere:", f"kubectl annotate node {node} {MODE}=observe --overwrite")] if uses_api else []
    lead = (
        "This stops all kills and evictions here until you resume. Measuring continues."
        if status.mode == "enforce"
        else "The policy only observes. Stopping also prevents later policies from enforcing."
    )
    commands = [
        *by_api,
        (f"{'Or in' if uses_api else 'In'} {where}", f"{exec_}gpu-watchdog stop{option}"),
    ]
    return {"title": "Stop enforcement here", "link": "Stop enforcement", "lead": lead, "commands": commands}


def _lasting(account: AccountStatus, seen: PageInput) -> str:
    """How long it has been over its limit: `for 9s`."""
    if account.over_since is None or seen.status is None:
        return ""
    over_s = seen.status.at - account.over_since + (0.0 if seen.as_of else seen.passed_s)
    return f"for {span(over_s) if over_s >= 1 else 'less than 1s'} {seen.as_of}".strip()


def _recent(seen: PageInput, status: Status) -> Iterator[Row]:
    """The recent actions, their amounts in one notation."""
    recent = status.recent
    column = ByteColumn.of(each for action in recent for each in (action.compared, action.allowed))
    for action in recent:
        at_s, allowed, css = action.at or 0.0, action.allowed, Level.BAD if is_action(action) else Level.WATCH
        pod = PodName(action.namespace or "", action.pod or "")
        used = amount(None if action.used is None else action.compared, action.compared, column.text)
        yield {
            "time": seen.clock(at_s),
            "ago": seen.ago(at_s),
            "pod": pod,
            "subjects": (pod, seen.gpu(action.gpu or "")),
            "container": action.container,
            "result": result_short(action),
            "css": css.value,
            "use": used if allowed is None else f"{used} of {column.text(allowed)}",
            "is_shared": bool(action.used_beside),
            "sentences": [text for text in (action.why, action.outcome) if text],
        }


def _remedies(seen: PageInput, status: Status, head: Headline) -> Iterator[Row]:
    """Data gaps by remedy and reason: the names of the first few, and how many more there are.

    What the headline says already is not repeated.
    """
    by_remedy: defaultdict[str, defaultdict[str, list[GapStatus]]] = defaultdict(lambda: defaultdict(list))
    for gap in status.gaps:
        by_remedy[gap.remedy or ""][gap.why].append(gap)
    for remedy, by_reason in by_remedy.items():
        shown = [(gaps[:_MOST_OF_A_KIND], why) for why, gaps in by_reason.items()][:_MOST_OF_A_KIND]
        pointer = "" if all(head.says(why) for why in by_reason) else SEE_ABOVE
        yield {
            "gaps": [
                ([gap_subject(gap, status.gpus) for gap in gaps], SEE_ABOVE if head.says(why) else why)
                for gaps, why in shown
            ],
            "subjects": [subject for gaps, _ in shown for gap in gaps for subject in seen.subjects_of(gap)],
            "more": sum(map(len, by_reason.values())) - sum(len(gaps) for gaps, _ in shown),
            "remedy": pointer if head.says(remedy) else remedy,
        }


def _unattributed(seen: PageInput, status: Status) -> Iterator[Row]:
    """Memory of processes without a pod, by reason: the total, and the largest as name, PID, amount and GPU."""
    by_reason: defaultdict[str, list[UnattributedStatus]] = defaultdict(list)
    for use in status.unattributed:
        by_reason[use.reason].append(use)
    for reason in (*STRAYS, *(by_reason.keys() - STRAYS.keys())):
        uses, total = sorted(by_reason[reason], key=lambda use: -(use.used or 0)), Sum()
        for use in uses:
            total.add(use.used)
        words = STRAYS.get(reason, StrayWords(f"({reason})", reason, ""))
        if uses:
            yield {
                "total": amount(total.total, total.at_least) if total.known or total.at_least else "An unknown amount",
                "processes": count(len({use.pid for use in uses}), "process", "processes"),
                "means": words.several,
                "largest": [
                    (use.name or "unnamed", use.pid, amount(use.used), seen.gpu(use.gpu))
                    for use in uses[:_MOST_OF_A_KIND]
                ],
                "more": max(len(uses) - _MOST_OF_A_KIND, 0),
                "advice": words.advice,
            }


def _health(seen: PageInput) -> Iterator[tuple[str, str, bool]]:
    """The watchdog's own health: each item, its state, and whether that is good."""
    health, status = seen.health, seen.status
    yield "Ready", "; ".join(health.unready) or "yes", health.ready
    if health.last_cycle_ago_s is None:
        yield "Last cycle", "none yet", health.turns
    else:
        took = f", took {_short_span(health.last_cycle_s)}" if health.last_cycle_s is not None else ""
        yield "Last cycle", f"{span(health.last_cycle_ago_s)} ago{took}", health.turns
        yield "Cycles", f"99% within {_short_span(health.cycle_p99_s or 0.0)}; {health.cycles:,} since startup", True
    if status is not None:
        yield from _inputs(seen, status)
    yield "Journal", health.journal, health.journal == OK
    loaded_at = status.policy.loaded_at if status is not None else None
    loaded = f", loaded {seen.clock(loaded_at)}" if loaded_at is not None else ""
    sha256 = f", SHA-256 {status.policy.sha256[:12]}" if status is not None and status.policy.sha256 else ""
    error = f"the file on disk is not in effect: {health.policy_error}" if health.policy_error else ""
    yield "Policy", error or f"{OK}{loaded}{sha256}", not error
    yield "Version", health.version, True
    yield "Up since", f"{seen.clock(health.started_at)} ({span(health.uptime_s)})", True


def _inputs(seen: PageInput, status: Status) -> Iterator[tuple[str, str, bool]]:
    released = "released for maintenance" if status.maintenance is not None else OK
    yield status.interface, "not responding" if seen.is_blind else released, not seen.is_blind
    synced, stale_after_s = status.pods_synced_at, status.stale_after_s
    age = "not read yet" if synced is None else f"{span(status.at - synced + seen.passed_s)} old"
    bound = f" (stale after {format_duration(stale_after_s)})" if synced is not None and stale_after_s else ""
    yield "Pod list", f"{age}{bound}", not status.pods_stale
    api = seen.health.api
    yield "API server", "not used: the pods come from a file" if api is None else api, api in (None, OK)


def _short_span(seconds: float) -> str:
    return f"{max(seconds * 1000, 1):.0f} ms" if seconds < 1 else span(seconds)
