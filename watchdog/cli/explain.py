"""`explain`: what was or would be done to a pod, and why; from the daemon, or from the journal if none answers."""

import difflib
import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

import click

from watchdog import clock
from watchdog.cli.client import QueryError, help_lines, query_status, to_run_inside
from watchdog.cli.explain_past import (
    account_sentences,
    action_sentences,
    last_accounts,
    last_actions,
    last_occurrences,
)
from watchdog.cli.listing import terminal_width
from watchdog.cli.program import NARROWEST
from watchdog.core.errors import WatchdogError
from watchdog.journal.errors import JournalError
from watchdog.journal.playback import recorded_cycles
from watchdog.journal.read import HistoryRow, history, pods_in, reading
from watchdog.report.sentences.account import account_paragraphs
from watchdog.report.sentences.node import (
    breaker_open,
    hung_in_full,
    out_of_sight,
    pods_stale,
    unanswered_in_full,
    under_maintenance,
    without_unanswered,
)
from watchdog.report.sentences.suspension import remedy_on
from watchdog.report.sentences.usage import amount_used
from watchdog.report.status import Status, encode
from watchdog.report.text import capital, clock_time, date_time, inert, rfc3339

_LATELY: Final = "7 days"
_LATELY_S: Final = 7 * 86400.0
_MOST_LINES: Final = 10
_TIME_WIDTH: Final = len("2026-01-02 14:05:10 UTC  ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Paragraphs about a pod and its node, and what was done recently."""

    pod: str
    node: str
    # `daemon` or `journal`.
    source: str
    # The moment that it describes (Unix time).
    at_s: float
    accounts: tuple[dict[str, Any], ...]
    plan: tuple[dict[str, Any], ...]
    paragraphs: tuple[tuple[str, ...], ...]
    past: tuple[HistoryRow, ...]
    # Why recent actions are not known; empty: they are.
    no_past: str = ""
    # Commands, to be printed without wrapping.
    hints: tuple[str, ...] = ()

    @property
    def document(self) -> dict[str, Any]:
        """The JSON of `explain --json`."""
        namespace, _, name = self.pod.partition("/")
        return {
            "namespace": namespace,
            "pod": name,
            "node": self.node,
            "source": self.source,
            "at": rfc3339(self.at_s),
            "accounts": list(self.accounts),
            "plan": list(self.plan),
            "sentences": [sentence for paragraph in self.paragraphs for sentence in paragraph],
            "history": [{"at": row.at, **asdict(row)} for row in self.past],
        }

    def lines(self, width: int) -> Iterator[str]:
        """The text of `explain`, in lines of at most `width` characters unless a name or a command has more."""
        yield from wrap(
            f"Pod {inert(self.pod)} on node {inert(self.node)}, {date_time(self.at_s)}",
            width,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for paragraph in self.paragraphs:
            if paragraph:
                # Names have hyphens, and must stay whole to be copied.
                yield from ("", *wrap(" ".join(paragraph), width, break_on_hyphens=False))
        if self.hints:
            yield from ("", *self.hints)
        if self.past:
            yield from ("", *wrap(f"What was decided and done in the last {_LATELY}, from the journal:", width))
            yield f"{'TIME':<{_TIME_WIDTH}}MESSAGE"
        for row in self.past:
            line = f"{date_time(row.wall_s):<{_TIME_WIDTH}}{inert(row.sentence, 4000)}"
            yield from wrap(line, width, subsequent_indent=" " * _TIME_WIDTH, break_on_hyphens=False)


def by_daemon(pod: str, status: Status, rows: Iterable[HistoryRow]) -> Explanation | None:
    """From the daemon's current status; None if it does not have the pod."""
    accounts = tuple(account for account in status.accounts if account.title == pod)
    now_s, node, (namespace, _, name) = status.at, status.node, pod.partition("/")
    here = [row for row in rows if row.node == node]
    lead, earlier = last_actions(status, here, namespace, name, now_s)
    if not accounts and (here or not lead):
        return None
    if lead and not accounts:
        lead = (*lead, "It uses and declares no GPU memory on this node now.")
    is_unknown = any(account.used is None for account in accounts)
    no_answer, rest = (unanswered_in_full(status), without_unanswered(status)) if is_unknown else ((), status)
    return Explanation(
        pod=pod,
        node=node,
        source="daemon",
        at_s=now_s,
        accounts=tuple(encode(account) for account in accounts),
        plan=tuple(encode(entry) for entry in status.plan if entry.title == pod),
        paragraphs=(
            lead,
            (*hung_in_full(status), *no_answer, *_idle(status)),
            *(paragraph for account in accounts for paragraph in account_paragraphs(account, rest)),
            earlier,
            _of_node(status),
        ),
        past=last_occurrences(here, _MOST_LINES),
    )


def by_journal(
    pod: str, rows: Sequence[HistoryRow], why_not: str, now_s: float, hints: tuple[str, ...] = ()
) -> Explanation:
    """From the last rows of the journal; `why_not` is why the daemon is not the source, `hints` are commands to try."""
    last, accounts = rows[-1], last_accounts(rows)
    source = f"{capital(why_not)}; this is from the journal, as of {clock_time(last.wall_s, now_s)}."
    return Explanation(
        pod=pod,
        node=last.node,
        source="journal",
        at_s=last.wall_s,
        accounts=accounts,
        plan=(),
        paragraphs=(
            action_sentences(rows, now_s),
            (source,),
            *(account_sentences(account, last.node, now_s) for account in accounts),
        ),
        past=last_occurrences(rows, _MOST_LINES),
        hints=hints,
    )


def _idle(status: Status) -> tuple[str, ...]:
    """Why no action is taken on the whole node."""
    idle = ""
    if status.switched_off_by:
        why = "; ".join(remedy_on(reason, status) or inert(reason) for reason in status.switched_off_by)
        idle = f"Enforcement is suspended on this node, although the policy says enforce: {why}."
    elif not status.enforcing and not status.suspended:
        idle = "The watchdog only observes on this node: it records what it would do and takes no action."
    return tuple(filter(None, (idle, under_maintenance(status))))


def _of_node(status: Status) -> tuple[str, ...]:
    """What else affects every pod on the node, and whom to ask."""
    ask = f"Questions: ask {inert(status.contact, 600)}." if status.contact else ""
    return tuple(filter(None, (breaker_open(status, status.at), pods_stale(status, status.at), ask)))


class UnexplainedError(WatchdogError):
    """Nothing is known of a pod; the text has what was asked, and which pods may have been meant."""


_WIDTH: Final = 100


def print_explanation(pod: str, url: str | None, journal: Path, *, as_json: bool, from_afar: bool = False) -> None:
    """Explain a pod (`namespace/name`) from the daemon at `url`, or else from the journal; None: only the journal.

    `from_afar`: the daemon may be another node's, whose journal is not the one here.
    """
    try:
        explanation = explain_pod(pod, url, journal, clock.now().wall_s, from_afar=from_afar)
    except UnexplainedError as error:
        raise click.ClickException(str(error)) from error
    print_lines(explanation, as_json=as_json)


def print_lines(explanation: Explanation, *, as_json: bool) -> None:
    """Print an explanation."""
    if explanation.no_past:
        click.echo(f"History is not available here: {explanation.no_past}", err=True)
    if as_json:
        click.echo(json.dumps(explanation.document, indent=1))
        return
    click.echo("\n".join(explanation.lines(max(terminal_width() or _WIDTH, NARROWEST))))


def explain_pod(pod: str, url: str | None, journal: Path, now_s: float, *, from_afar: bool = False) -> Explanation:
    """Why a pod was or was not acted on, as of now (Unix time); UnexplainedError if nothing is known of it."""
    status: Status | None = None
    rows: list[HistoryRow] = []
    hints: tuple[str, ...] = ()
    no_journal, why_not = "", "no daemon was asked, because of --journal (--url asks one)"
    if url is not None:
        try:
            status = query_status(url)
            why_not = _not_in_status(status, pod, now_s)
        except QueryError as error:
            why_not, hints = str(error), help_lines(error, "explain", pod)
    try:
        rows = history(journal, pod, now_s - _LATELY_S)
    except JournalError as error:
        no_journal = str(error)
    if from_afar and not rows and not journal.exists():
        where = ", and none is kept here" if status is None else f": {to_run_inside('explain', pod)}"
        no_journal = f"it is in the journal of the daemon's own node{where}"
    if status is not None and (explanation := by_daemon(pod, status, rows)) is not None:
        return replace(explanation, no_past=no_journal)
    if rows:
        return by_journal(pod, rows, why_not, now_s, hints)
    before = "" if no_journal or status is not None else _last_recorded(journal, pod, now_s)
    lines = [f"nothing {'was decided' if before else 'is known'} about pod {inert(pod)}", why_not, *hints]
    lines += _unknown_here(pod, journal, no_journal, status, before)
    raise UnexplainedError("\n  ".join(filter(None, lines)))


def _not_in_status(status: Status, pod: str, now_s: float) -> str:
    """Why the daemon's status does not have a pod; first what the daemon can't see."""
    node, at = inert(status.node), clock_time(status.at or now_s, now_s)
    if unseen := out_of_sight(status):
        return f"the daemon of node {node} does not see all of its node at {at}. {' '.join(unseen).rstrip('.')}"
    return f"the daemon of node {node} knew of no GPU memory of pod {inert(pod)} at {at}"


def _unknown_here(pod: str, journal: Path, no_journal: str, status: Status | None, before: str) -> Iterator[str]:
    """What the journal has, where the pod may be, and which pods may have been meant."""
    known = {account.title for account in status.accounts} if status is not None else set()
    if not no_journal:
        try:
            known |= set(pods_in(journal))
        except JournalError as error:
            no_journal = str(error)
    yield no_journal or f"the journal {journal} has nothing about it in the last {_LATELY}"
    yield before
    if status is not None:
        yield (
            "so it may still be here and use GPU memory, or be on another node: ask again once that is resolved"
            if out_of_sight(status)
            else "it may be on another node, or it neither uses GPU memory nor declares any"
        )
        if any(use.reason == "unknown_pod" for use in status.unattributed):
            yield "processes of pods that the pod list does not have use GPU memory here: it may be one of them"
    if misses := near_misses(pod, known):
        yield f"did you mean {' or '.join(map(inert, misses))}?"


_MOST_MISSES: Final = 3


def near_misses(pod: str, known: Iterable[str]) -> list[str]:
    """Pods of the same name in another namespace, and then those with a similar name."""
    candidates = sorted(known)
    same = [title for title in candidates if title.partition("/")[2] == pod.partition("/")[2]]
    alike = difflib.get_close_matches(pod, candidates, n=_MOST_MISSES)
    return list(dict.fromkeys([*same, *alike]))[:_MOST_MISSES]


def _last_recorded(journal: Path, pod: str, now_s: float) -> str:
    """What a pod (`namespace/name`) used in the last recorded cycle, as a clause; empty if that is not known."""
    try:
        with reading(journal) as connection:
            last_s = connection.execute("SELECT max(until_wall_s) FROM past_span").fetchone()[0] or 0.0
        (last,) = deque(recorded_cycles(journal, last_s), maxlen=1)
    except JournalError:  # one of an older version has no recording
        return ""
    recorded = next((known for known in last.node.pods.values() if known.title == pod), None)
    if recorded is None:
        return ""
    amounts = [use.used for use in last.node.uses_of(recorded.uid)]
    at_least = sum(amount or 0 for amount in amounts)
    used = f"{amount_used(None if None in amounts else at_least, at_least)} of GPU memory"
    return f"when the daemon last recorded the node, at {clock_time(last_s, now_s)}, {inert(pod)} used {used}"
