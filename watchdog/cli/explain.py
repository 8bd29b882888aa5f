"""`explain`: what was done to a pod or would be, and why; from the daemon, or from the journal where none answers."""

import difflib
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

import click

from watchdog import clock
from watchdog.cli.client import QueryError, help_lines, query_status, to_run_inside
from watchdog.cli.explain_past import (
    action_sentences,
    earlier_sentences,
    last_accounts,
    lead_sentences,
    past_sentences,
    told,
)
from watchdog.core.errors import WatchdogError
from watchdog.daemon.enforcement import remedy_on
from watchdog.journal.errors import JournalError
from watchdog.journal.playback import RecordedNode, recorded_cycles
from watchdog.journal.read import HistoryRow, history, pods_in, reading
from watchdog.report.sentences.account import account_paragraphs
from watchdog.report.sentences.node import (
    actions_continue,
    breaker_open,
    hung,
    pods_stale,
    unanswered,
    under_maintenance,
    without_unanswered,
)
from watchdog.report.sentences.usage import amount_used
from watchdog.report.status import GapStatus, Status, encode
from watchdog.report.text import clock_time, date_time, inert, rfc3339

_LONGEST: Final = 600
_CHECK_DRIVER: Final = (
    "The node's operator should check its GPU driver (`nvidia-smi`, and the kernel log for NVRM and Xid)."
)


def out_of_sight(status: Status) -> tuple[str, ...]:
    """All that keeps the daemon from knowing its node; nothing: what it does not know of is not there."""
    found = (*_hung(status), under_maintenance(status), *_unanswered(status))
    return tuple(filter(None, found)) or tuple(_unlisted(status))


def _unanswered(status: Status) -> tuple[str, ...]:
    found = unanswered(status, status.at)
    return (*found, actions_continue(status)) if found else ()


def _hung(status: Status) -> tuple[str, ...]:
    if status.hangs_since is None:
        return ()
    return hung(status, status.at), actions_continue(status), _CHECK_DRIVER


def _unlisted(status: Status) -> Iterator[str]:
    """Cards that answer, and whose processes are not all told."""
    for gpu in status.gpus:
        if gpu.up and not gpu.listed:
            uuid = gpu.uuid or ""
            gap = next((each for each in status.gaps if (each.what or "").startswith(uuid)), GapStatus())
            since, at = gap.since, status.at
            lasting = f", since {clock_time(since, at)}" if since is not None and at is not None else ""
            why = inert(gap.text or "the driver does not list them", _LONGEST).rstrip(".")
            yield f"The list of processes on {inert(uuid)} is incomplete{lasting}: {why}."


LATELY: Final = "7 days"
LATELY_S: Final = 7 * 86400.0
_MOST_LINES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A paragraph for each account of a pod and one for the node, and what was done lately.

    `source` is `daemon` or `journal`; `at_s` is the moment it is true of (Unix time). `no_past` says why what was done
    lately is not known; empty where it is. `hints` are lines to be printed as they are: commands.
    """

    pod: str
    node: str
    source: str
    at_s: float
    accounts: tuple[dict[str, Any], ...]
    plan: tuple[dict[str, Any], ...]
    paragraphs: tuple[tuple[str, ...], ...]
    past: tuple[HistoryRow, ...]
    no_past: str = ""
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
        """The text of `explain`, in lines of at most `width` characters."""
        yield f"Pod {inert(self.pod)} on node {inert(self.node)}, {date_time(self.at_s)}"
        for paragraph in self.paragraphs:
            if paragraph:
                # Names have hyphens, and whoever copies one must get it whole.
                yield from ("", *wrap(" ".join(paragraph), width, break_on_hyphens=False))
        if self.hints:
            yield from ("", *self.hints)
        if self.past:
            yield from ("", f"What was decided and done in the last {LATELY}, from the journal:")
        for row in self.past:
            line = f"- {date_time(row.wall_s)}: {inert(row.sentence, 4000)}"
            yield from wrap(line, width, subsequent_indent="  ", break_on_hyphens=False)


def by_daemon(pod: str, status: Status, rows: Iterable[HistoryRow]) -> Explanation | None:
    """By what the daemon says now; None where it knows nothing of the pod."""
    accounts = tuple(each for each in status.accounts if each.title == pod)
    now_s, (namespace, _, name) = status.at or 0.0, pod.partition("/")
    node = status.node or ""
    here = [row for row in rows if row.node == node]
    lead = lead_sentences(status, here, namespace, name, now_s)
    if not accounts and (here or not lead):
        return None
    if lead and not accounts:
        lead = (*lead, "It uses and declares no GPU memory on this node now.")
    is_unknown = any(each.used is None for each in accounts)
    unanswered, told_of = (_unanswered(status), without_unanswered(status)) if is_unknown else ((), status)
    return Explanation(
        pod=pod,
        node=node,
        source="daemon",
        at_s=now_s,
        accounts=tuple(encode(each) for each in accounts),
        plan=tuple(encode(each) for each in status.plan if each.title == pod),
        paragraphs=(
            lead,
            (*_hung(status), *unanswered, *_idle(status)),
            *(p for each in accounts for p in account_paragraphs(each, told_of)),
            earlier_sentences(status, here, namespace, name, now_s),
            _of_node(status),
        ),
        past=told(here, _MOST_LINES),
    )


def by_journal(
    pod: str, rows: Sequence[HistoryRow], why_not: str, now_s: float, hints: tuple[str, ...] = ()
) -> Explanation:
    """By what the journal last had of it; `why_not` says why the daemon is not the source, `hints` what helps."""
    last, accounts = rows[-1], last_accounts(rows)
    source = f"{why_not[:1].upper()}{why_not[1:]}; this is from the journal, as of {clock_time(last.wall_s, now_s)}."
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
            *(past_sentences(each, last.node, now_s) for each in accounts),
        ),
        past=told(rows, _MOST_LINES),
        hints=hints,
    )


def _idle(status: Status) -> tuple[str, ...]:
    """Why nothing is done on the whole node: it comes first, since all that would follow does not."""
    sentences = []
    suspended, node = status.suspended, inert(status.node or "")
    if suspended:
        why = "; ".join(remedy_on(reason, node) or inert(reason) for reason in suspended)
        sentences.append(f"Enforcement is suspended on this node, although the policy says enforce: {why}.")
    elif not status.enforcing:
        sentences.append("The watchdog only observes on this node: it records what it would do and takes no action.")
    return tuple(filter(None, (*sentences, under_maintenance(status))))


def _of_node(status: Status) -> tuple[str, ...]:
    """What else holds for everybody on the node, and whom to ask."""
    ask = f"Questions: ask {inert(status.contact, 600)}." if status.contact else ""
    return tuple(filter(None, (breaker_open(status, status.at), pods_stale(status, status.at), ask)))


_MOST_MISSES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class UnansweredQuery:
    """What was asked about a pod, and in vain.

    `status` is the daemon's (None: it was not asked, or could not be), `why_not` why it says nothing, `hints` what
    helps. `no_journal` says why the journal can't be read, `before` what its past has of the pod; they may be empty.
    """

    pod: str
    status: Status | None
    why_not: str
    hints: tuple[str, ...]
    journal: Path
    no_journal: str
    before: str


def say_unknown(asked: UnansweredQuery) -> str:
    """Say that nothing is known of a pod, what was asked, what can be done, and which pods may have been meant."""
    pod, status, no_journal = asked.pod, asked.status, asked.no_journal
    known = {each.title for each in status.accounts} if status is not None else set()
    if not no_journal:
        try:
            known |= set(pods_in(asked.journal))
        except JournalError as error:
            no_journal = str(error)
    lines = [f"nothing {'was decided about' if asked.before else 'is known of'} pod {inert(pod)}"]
    lines += [asked.why_not] if asked.why_not else []
    lines += asked.hints
    lines.append(no_journal or f"the journal {asked.journal} has nothing about it in the last {LATELY}")
    lines += [asked.before] if asked.before else []
    lines += _places(status) if status is not None else []
    misses = near_misses(pod, known)
    lines += [f"did you mean {' or '.join(inert(each) for each in misses)}?"] if misses else []
    return "\n  ".join(lines)


def _places(status: Status) -> list[str]:
    """Where a pod may be of which the daemon knows nothing."""
    if out_of_sight(status):
        places = [
            "so it may be here and use GPU memory all the same, or be on another node: ask again when that is over"
        ]
    else:
        places = ["it may be on another node, or it neither uses GPU memory nor declares any"]
    if any(use.reason == "unknown_pod" for use in status.unattributed):
        places.append("processes of pods that the pod list does not have use GPU memory here: it may be one of them")
    return places


def near_misses(pod: str, known: Iterable[str]) -> list[str]:
    """Pods of the same name in another namespace, and then those with a name much like it."""
    _, _, name = pod.partition("/")
    candidates = sorted(known)
    same = [each for each in candidates if each.partition("/")[2] == name]
    alike = difflib.get_close_matches(pod, candidates, n=_MOST_MISSES)
    return list(dict.fromkeys([*same, *alike]))[:_MOST_MISSES]


_HAS_PAST: Final = "SELECT count(*) FROM sqlite_schema WHERE name = 'past_span'"
_LAST: Final = "SELECT max(until_wall_s) FROM past_span"


def last_seen(journal: Path, pod: str, now_s: float) -> str:
    """What a pod (`namespace/name`) used at the last recorded pass, as a clause; empty where that is not known."""
    try:
        last_s, scene = _last_scene(journal)
    except JournalError:
        return ""
    for known in scene.pods.values():
        if known.title == pod:
            amounts = [use.used for use in scene.uses_of(known.uid)]
            at_least = sum(amount or 0 for amount in amounts)
            used = f"{amount_used(None if None in amounts else at_least, at_least)} of GPU memory"
            return f"when the daemon last recorded the node, at {clock_time(last_s, now_s)}, {inert(pod)} used {used}"
    return ""


def _last_scene(journal: Path) -> tuple[float, RecordedNode]:
    """The node as it stood when the record ends; JournalError where there is none."""
    with reading(journal) as connection:
        has_past = connection.execute(_HAS_PAST).fetchone()[0]
        last_s = connection.execute(_LAST).fetchone()[0] if has_past else None
    if last_s is None:
        raise JournalError(f"journal {journal} holds no past")
    scene = RecordedNode()
    for cycle in recorded_cycles(journal, last_s):
        scene = cycle.node
    return last_s, scene


_WIDTH: Final = 100
_NARROWEST: Final = 40


def print_explanation(pod: str, url: str | None, journal: Path, *, as_json: bool, from_afar: bool = False) -> None:
    """Explain a pod (`namespace/name`) by the daemon at `url`, or else by the journal; None: by the journal alone.

    `from_afar`: the daemon is another node's, maybe, and the journal that lies here is not its own.
    """
    try:
        explanation = explain_pod(pod, url, journal, clock.now().wall_s, from_afar=from_afar)
    except UnexplainedError as error:
        raise click.ClickException(str(error)) from error
    if explanation.no_past:
        click.echo(f"History is not available here: {explanation.no_past}", err=True)
    if as_json:
        click.echo(json.dumps(explanation.document, indent=1))
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    click.echo("\n".join(explanation.lines(max(width, _NARROWEST))))


class UnexplainedError(WatchdogError):
    """Nothing is known of a pod; the text says what was asked and which pods may have been meant."""


def explain_pod(pod: str, url: str | None, journal: Path, now_s: float, *, from_afar: bool = False) -> Explanation:
    """Find out why a pod was or was not acted on, as of now (Unix time); UnexplainedError where nothing is known."""
    status, silent = _ask(url) if url is not None else (None, None)
    rows, no_journal = _read(journal, pod, now_s)
    if from_afar and not rows and not journal.exists():
        no_journal = "it stands in the journal of the daemon's own node, and none is kept here"
        if status is not None:
            no_journal = f"it stands in the journal of the daemon's own node: {to_run_inside('explain', pod)}"
    found = by_daemon(pod, status, rows) if status is not None else None
    if found is not None:
        return replace(found, no_past=no_journal)
    hints: tuple[str, ...] = ()
    if status is not None:
        why_not = _nothing(status, pod, now_s)
    elif silent is not None:
        why_not, hints = str(silent), help_lines(silent, "explain", pod)
    else:
        why_not = "no daemon was asked (--journal); --url asks one"
    if rows:
        return by_journal(pod, rows, why_not, now_s, hints)
    before = "" if no_journal or status is not None else last_seen(journal, pod, now_s)
    raise UnexplainedError(
        say_unknown(
            UnansweredQuery(
                pod=pod,
                status=status,
                why_not=why_not,
                hints=hints,
                journal=journal,
                no_journal=no_journal,
                before=before,
            )
        )
    )


def _nothing(status: Status, pod: str, now_s: float) -> str:
    """Why the daemon that answers has nothing about a pod: what it can't see comes first."""
    node, at = inert(status.node or ""), clock_time(status.at or now_s, now_s)
    blind = out_of_sight(status)
    if blind:
        return f"the daemon of node {node} does not see all of its node at {at}. {' '.join(blind).rstrip('.')}"
    return f"the daemon of node {node} knew of no GPU memory of pod {inert(pod)} at {at}"


def _ask(url: str) -> tuple[Status | None, QueryError | None]:
    """The status of the daemon there, or why there is none."""
    try:
        return query_status(url), None
    except QueryError as error:
        return None, error


def _read(journal: Path, pod: str, now_s: float) -> tuple[list[HistoryRow], str]:
    """What the journal has about a pod, or why it can't be read."""
    try:
        return history(journal, pod, now_s - LATELY_S), ""
    except JournalError as error:
        return [], str(error)
